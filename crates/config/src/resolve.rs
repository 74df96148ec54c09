//! From file, flags and host to settings. Finds contradictions between keys and reports them
//! together with the problems of single keys.

mod passed;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use onrush_swarm::shard::MAX_PEER_LIFETIME;
use onrush_text::numbers::{bytes, grouped, plural};
use onrush_toml_keys::{Document, Problems, Value, Values};
use onrush_tracker::access::addresses::AddressSet;
use onrush_tracker::limits::{Placement, WebLimits, WebTorrentLimits};
use onrush_tracker::proxies::Proxies;

use crate::export_format::{NAMES, of_name};
use crate::flags::Flags;
use crate::host::{Host, PassedKinds};
use crate::keys::{
    CERTIFICATE_KEYS, File, HttpKeys, MAX_INTERVAL, MAX_WORKERS, SCHEMA, WebTorrentKeys,
    XDP_INTERFACES, XDP_RING,
};
use crate::placement::auto_spin;
use crate::settings::{
    Access, BYTES_PER_PEER, CONTROL_SOCKET, HttpSettings, Listed, Listen, Settings,
};
use crate::socket_holders::overlap;
use crate::values::{AccessMode, ListenAt};

/// The default of `limits.peers`, if memory permits.
const PEERS: u64 = 20_000_000;

/// Bytes of the path of a Unix socket (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The remedy for a time that has to be as long as the interval.
const NOT_BELOW: &str =
    "write at least that many, or remove the key: the default is twice the interval";

impl Settings {
    /// Reads the file that `flags` name, or the defaults if they name none, and resolves it
    /// together with the flags.
    ///
    /// # Errors
    /// Everything that is wrong with file and flags.
    pub fn load(flags: &Flags, host: &Host) -> Result<(Self, Vec<String>), Problems> {
        let (settings, notices, found) = resolve(flags.document(), flags, host);
        found.map(|()| (settings, notices))
    }

    /// The same for programs that look for a running tracker, which may run with a file that has
    /// errors by now. Wrong values are the defaults.
    pub fn load_in_part(flags: &Flags, host: &Host) -> InPart {
        let document = flags.document();
        let is_partial = document.is_partial();
        let (settings, _, found) = resolve(document, flags, host);
        InPart { settings, is_partial, problems: found.err() }
    }

    /// The same for the text of a file called `name`.
    ///
    /// # Errors
    /// Everything that is wrong with file and flags.
    pub fn parse(
        name: &str,
        text: &str,
        flags: &Flags,
        host: &Host,
    ) -> Result<(Self, Vec<String>), Problems> {
        let document = Document::parse(&SCHEMA, SCHEMA.defaults(), name, text);
        let (settings, notices, found) = resolve(document, flags, host);
        found.map(|()| (settings, notices))
    }

    /// Settings for tests: the text of a file on a host of which nothing is known.
    ///
    /// # Panics
    /// When anything is wrong with it.
    pub fn for_test(text: &str) -> Self {
        let parsed = Self::parse("test.toml", text, &Flags::default(), &Host::default());
        parsed.unwrap_or_else(|problems| panic!("{problems}")).0
    }

    /// Resolves values that come from settings.
    pub(crate) fn of_values(values: Values, host: &Host) -> Result<Self, Problems> {
        let document = Document::parse(&SCHEMA, values, "the configuration", "");
        let (settings, _, found) = resolve(document, &Flags::default(), host);
        found.map(|()| settings)
    }
}

/// Settings of a configuration that may have errors.
#[derive(Debug)]
pub struct InPart {
    /// The settings.
    pub settings: Settings,
    /// Whether the file could not be read, or only up to an error of its syntax: keys that it has
    /// may be missing.
    pub is_partial: bool,
    /// Everything that is wrong.
    pub problems: Option<Problems>,
}

fn resolve(
    mut document: Document,
    flags: &Flags,
    host: &Host,
) -> (Settings, Vec<String>, Result<(), Problems>) {
    flags.apply(&mut document);
    Resolution { file: document.read(), document, host, notices: Vec::new() }.settings()
}

struct Resolution<'h> {
    file: File,
    document: Document,
    host: &'h Host,
    notices: Vec<String>,
}

impl Resolution<'_> {
    fn settings(mut self) -> (Settings, Vec<String>, Result<(), Problems>) {
        let placement = self.placement();
        let placement = self.by_sockets(placement);
        let pin = self.pin(placement);
        let listen = self.listen();
        let http = self.http();
        let access = self.access();
        self.resolve_announce();
        self.resolve_overload();
        self.resolve_limits(placement);
        self.check_identity();
        self.check_state_dir();
        self.check_export();
        self.check_admin();
        self.check_http();
        self.check_proxies();
        self.check_xdp();
        let Self { file, document, host, notices } = self;
        let values = document.values().clone();
        let settings = Settings {
            listen,
            sockets_passed: host.passed.kinds(),
            placement,
            spin: file.workers.spin.map_or_else(
                || auto_spin(placement, pin.is_some()),
                |micros| Duration::from_micros(u64::from(micros)),
            ),
            pin,
            socket: file.socket,
            xdp: file.xdp,
            http,
            announce: file.announce,
            scrape: file.scrape,
            connection: file.connection,
            overload: file.overload,
            limits: file.limits,
            access,
            blocked: file.access.blocked,
            blocked_file: file.access.blocked_file,
            refuse_bogons: file.access.refuse_bogons,
            user: file.user,
            group: file.group,
            state_dir: file.state_dir.or_else(|| host.state_dir()),
            snapshot: file.snapshot,
            export: file.export,
            admin: file.admin,
            log: file.log,
            values,
        };
        (settings, notices, document.finish())
    }

    fn listen(&mut self) -> Vec<Listen> {
        let listen = addresses("listen", &self.file.listen, &mut self.document);
        self.passed_instead("listen", &self.host.passed.udp, listen)
    }

    fn http(&mut self) -> HttpSettings {
        let passed = &self.host.passed;
        let listen = addresses("http.listen", &self.file.http.listen, &mut self.document);
        let listen = self.passed_instead("http.listen", &passed.http, listen);
        let tls_listen =
            addresses("http.tls_listen", &self.file.http.tls_listen, &mut self.document);
        let tls_listen = self.passed_instead("http.tls_listen", &passed.https, tls_listen);
        let keys = &self.file.http;
        let certificates = keys.certificates.iter().cloned().zip(keys.keys.clone()).collect();
        let by_vcpus = || self.host.vcpu_count().div_ceil(8).min(MAX_WORKERS);
        let workers = keys.workers.unwrap_or_else(by_vcpus);
        let settings = HttpSettings {
            listen,
            tls_listen,
            certificates,
            workers,
            limits: WebLimits {
                keep_alive: keys.keep_alive,
                timeout: keys.timeout,
                connections: keys.connections.div_ceil(workers),
                connections_per_source: keys.connections_per_source,
                buffer_memory: keys.buffer_memory.div_ceil(workers),
                webtorrent: self.webtorrent(),
            },
            proxies: Arc::new(Proxies {
                addresses: AddressSet::new(keys.proxies.iter().copied()),
                client_address: keys.client_address,
            }),
        };
        self.check_messages(&settings.limits, workers);
        settings
    }

    fn webtorrent(&self) -> Option<WebTorrentLimits> {
        let WebTorrentKeys { enabled, interval, max_offers, max_message, memberships } =
            self.file.webtorrent;
        let limits = WebTorrentLimits { interval, max_offers, max_message, memberships };
        enabled.then_some(limits)
    }

    fn resolve_announce(&mut self) {
        let announce = &mut self.file.announce;
        let (interval, jitter) = (announce.interval, announce.interval_jitter_percent);
        let is_given = announce.peer_lifetime != 0;
        if !is_given {
            announce.peer_lifetime = interval.saturating_mul(2).min(MAX_PEER_LIFETIME);
        }
        let (lifetime, longest) =
            (announce.peer_lifetime, interval + (interval * jitter).div_ceil(100));
        let (default, most) = (announce.default_peers, announce.max_peers_v4);
        let keys = ["peer_lifetime", "interval", "interval_jitter_percent"];
        if lifetime < longest && self.accepted("announce", &keys) {
            let what = format!(
                "found {lifetime} seconds, but clients may announce up to {longest} seconds apart \
                 (interval {interval}, jitter {jitter} %)"
            );
            let path = if is_given { "announce.peer_lifetime" } else { "announce.interval" };
            self.document.problem(path, what, Some(NOT_BELOW));
        }
        let keys = ["announce.default_peers", "announce.max_peers_v4"];
        if default > most && keys.iter().all(|key| self.document.is_given(key)) {
            let what = format!("found {default}, but a reply over IPv4 has at most {most} peers");
            let remedy = "raise `max_peers_v4`, or lower this";
            self.document.problem("announce.default_peers", what, Some(remedy));
        }
    }

    fn resolve_overload(&mut self) {
        let interval = self.file.announce.interval;
        let longest = self.file.overload.longest_interval;
        if longest == 0 {
            self.file.overload.longest_interval = interval.saturating_mul(2).min(MAX_INTERVAL);
        } else if longest < interval && self.accepted("announce", &["interval"]) {
            let what = format!("found {longest} seconds, but the interval is {interval}");
            self.document.problem("overload.longest_interval", what, Some(NOT_BELOW));
        }
    }

    fn resolve_limits(&mut self, placement: Placement) {
        let limits = &mut self.file.limits;
        let memory = self.host.memory;
        let most = limits.peers.saturating_mul(BYTES_PER_PEER);
        if limits.peers == 0 {
            let fit = memory.map_or(PEERS, |memory| memory / 2 / BYTES_PER_PEER);
            limits.peers = PEERS.min(fit).max(1_000);
        } else if let Some(memory) = memory.filter(|memory| *memory < most) {
            self.notices.push(format!(
                "limits.peers, {}, may take {}, but this host has {}",
                grouped(limits.peers),
                bytes(most),
                bytes(memory)
            ));
        }
        let (peers, percent) = (100_000, limits.peers / 100);
        limits.source_peers.get_or_insert(peers.min(percent).max(64));
        let (batches, shards) = (limits.batches_in_flight, placement.shards());
        if batches == 0 {
            limits.batches_in_flight = (8 * shards).max(32);
        } else if batches < 2 * shards {
            let what = format!(
                "found {batches}, but each of {shards} workers with swarms needs one batch that is \
                 filled and one in flight"
            );
            let remedy = format!("write at least {}, or {} for bursts", 2 * shards, 8 * shards);
            self.document.problem("limits.batches_in_flight", what, Some(&remedy));
        }
    }

    fn access(&mut self) -> Access {
        let access = &self.file.access;
        let (mode, files, error) = (access.mode, access.files.clone(), access.error.clone());
        let mut hashes = access.info_hashes.clone();
        hashes.sort_unstable();
        hashes.dedup();
        let repeated = access.info_hashes.len() - hashes.len();
        if repeated > 0 {
            let what = format!("access.info_hashes has {repeated} repeated entries");
            self.notices.push(what);
        }
        let is_empty = hashes.is_empty() && files.is_empty();
        let accepted = self.accepted("access", &["mode", "info_hashes", "files"]);
        match mode {
            AccessMode::Open if !is_empty && accepted => {
                let key = if files.is_empty() { "access.info_hashes" } else { "access.files" };
                let what = "there is a list, but `mode` is \"open\", which ignores it".to_owned();
                let remedy = "write `mode = \"allow\"` or `mode = \"deny\"`, or remove the list";
                self.document.problem(key, what, Some(remedy));
            }
            AccessMode::Allow if is_empty && accepted => {
                let what = "\"allow\" with an empty list would serve nothing".to_owned();
                let remedy = "write the info hashes to serve in `info_hashes` or in `files`";
                self.document.problem("access.mode", what, Some(remedy));
            }
            _ => {}
        }
        self.check_list_files(mode);
        let listed = Listed { hashes, files, error };
        match mode {
            AccessMode::Open => Access::Open,
            AccessMode::Allow => Access::Allow(listed),
            AccessMode::Deny => Access::Deny(listed),
        }
    }

    /// The names of files stand for them in statistics. An allow list refuses by no file.
    fn check_list_files(&mut self, mode: AccessMode) {
        let files = self.file.access.files.clone();
        for (nth, file) in files.iter().enumerate() {
            let key = format!("access.files.{nth}");
            if files[..nth].iter().any(|other| other.name() == file.name()) {
                let what = format!("another file has the name {}", file.name());
                let remedy = "name files differently: statistics show their names";
                self.document.problem(&key, what, Some(remedy));
            }
            if mode == AccessMode::Allow && file.error.is_some() {
                let what = "with `mode = \"allow\"` no entry is refused".to_owned();
                let remedy = "write the text as `error` in [access]";
                self.document.problem(&key, what, Some(remedy));
            }
        }
    }

    fn check_state_dir(&mut self) {
        let most = MAX_SOCKET_PATH - CONTROL_SOCKET.len() - 1;
        let path = self.file.state_dir.clone().or_else(|| self.host.state_dir());
        let length = path.map_or(0, |path| path.as_os_str().len());
        if length > most {
            let remedy = "name a directory with a shorter path";
            let what = format!(
                "the path has {length} bytes, and with more than {most} the sockets for `onrush \
                 ctl` and upgrades cannot be made in it"
            );
            if self.file.state_dir.is_some() || self.host.state_directory.is_some() {
                self.document.problem("state_dir", what, Some(remedy));
            } else {
                // The user's, which a tracker without sockets can use.
                self.notices.push(format!("state_dir: {what}: {remedy}"));
            }
        }
    }

    fn check_export(&mut self) {
        if let Some(path) = &self.file.export.file
            && of_name(path).is_none()
        {
            let what = format!("the name {} does not select a format", path.display());
            let remedy = format!("write a name that ends in {NAMES}");
            self.document.problem("export.file", what, Some(&remedy));
        }
    }

    fn check_admin(&mut self) {
        let admin = &self.file.admin;
        if let Some(Listen { address, .. }) = admin.listen
            && !address.ip().to_canonical().is_loopback()
        {
            let token = match &admin.token_file {
                Some(_) => ", and the token of the admin API is sent unencrypted",
                None => "",
            };
            self.notices.push(format!(
                "admin.listen is {address}: anybody who reaches it can read statistics and \
                 metrics{token}: write admin.listen = \"127.0.0.1:{}\" and put a proxy with TLS \
                 in front",
                address.port()
            ));
        }
    }

    /// HTTP, HTTPS and the admin side have their addresses alone.
    fn check_http(&mut self) {
        let HttpKeys { listen, tls_listen, .. } = self.file.http.clone();
        let admin = self.file.admin.listen.map(|admin| admin.address);
        let admin = admin.filter(|it| it.port() != 0 && self.accepted("admin", &["listen"]));
        let of_http = || listen.iter().flat_map(|ListenAt(at)| at).map(|listen| listen.address);
        let of_http: Vec<_> = of_http().filter(|address| address.port() != 0).collect();
        for (key, entries, other) in
            [("http.listen", &listen, &[][..]), ("http.tls_listen", &tls_listen, &of_http[..])]
        {
            for (nth, ListenAt(at)) in entries.iter().enumerate() {
                let overlapped =
                    |other: &SocketAddr| at.iter().any(|it| overlap(it.address, *other));
                let admin =
                    admin.filter(overlapped).map(|it| (it, "the admin side (`admin.listen`)"));
                let http = other.iter().find(|other| overlapped(other));
                let http = http.map(|it| (*it, "HTTP (`http.listen`)"));
                if let Some((address, side)) = admin.or(http) {
                    let what = format!("{address} is the address of {side}");
                    let remedy = "write another port here or there";
                    self.document.problem(&format!("{key}.{nth}"), what, Some(remedy));
                }
            }
        }
        self.check_certificates();
        self.note_unused_http();
    }

    /// The buffer of a message grows by doubling, and has to fit in the memory of a web worker.
    fn check_messages(&mut self, limits: &WebLimits, workers: usize) {
        let (buffer_memory, most) = match limits.webtorrent {
            Some(webtorrent) => (limits.buffer_memory, 2 * webtorrent.max_message),
            None => return,
        };
        let (http, https) = self.schemes();
        if !(http || https) || buffer_memory >= most {
            return;
        }
        let what = format!(
            "each of {} has {buffer_memory} bytes for buffers, and a message may take {most} \
             (twice `webtorrent.max_message`)",
            plural(workers, "web worker")
        );
        let keys = ["http.buffer_memory", "webtorrent.max_message", "http.workers"];
        let key = keys.into_iter().find(|key| self.document.is_given(key)).unwrap_or(keys[0]);
        let remedy =
            "raise `http.buffer_memory`, or lower `webtorrent.max_message` or `http.workers`";
        self.document.problem(key, what, Some(remedy));
    }

    fn check_certificates(&mut self) {
        let (_, https) = self.schemes();
        let HttpKeys { tls_listen, certificates, keys, .. } = &self.file.http;
        if !self.accepted("http", &["tls_listen", "certificates", "keys"]) {
            return;
        }
        let remedy = "write `certificates = [\"/path/fullchain.pem\"]` and `keys = \
                      [\"/path/privkey.pem\"]` in [http], the key of each certificate at the same \
                      place";
        if certificates.len() != keys.len() {
            let what = format!(
                "each certificate needs its key: found {} and {}",
                plural(certificates.len(), "certificate"),
                plural(keys.len(), "key")
            );
            let key = if keys.is_empty() { "http.certificates" } else { "http.keys" };
            self.document.problem(key, what, Some(remedy));
        } else if https && certificates.is_empty() {
            let what = "HTTPS needs a certificate".to_owned();
            // A socket of a service manager is no value of the file.
            let key = if tls_listen.is_empty() { "http.certificates" } else { "http.tls_listen" };
            self.document.problem(key, what, Some(remedy));
        }
    }

    /// Whether HTTP and HTTPS are served, at configured addresses or those of a service manager.
    fn schemes(&self) -> (bool, bool) {
        let HttpKeys { listen, tls_listen, .. } = &self.file.http;
        let PassedKinds { http, https, .. } = self.host.passed.kinds();
        (http || !listen.is_empty(), https || !tls_listen.is_empty())
    }

    /// Keys without an address have no effect.
    fn note_unused_http(&mut self) {
        let defaults = SCHEMA.defaults();
        let (http, https) = self.schemes();
        let of_tls = |key: &str| CERTIFICATE_KEYS.contains(&key);
        let is_unused = |(key, value): &(&String, &Value)| {
            let is_used = https || http && !of_tls(key);
            let of_web = key.starts_with("http.") || key.starts_with("webtorrent.");
            of_web && !is_used && defaults.get(*key) != Some(*value)
        };
        let values = self.document.values().iter().filter(is_unused);
        let unused: Vec<&str> = values.map(|(key, _)| key.as_str()).collect();
        if !unused.is_empty() && self.accepted("http", &["listen", "tls_listen"]) {
            let (key, example) = match http || https {
                false => ("http.listen", "http.listen = [\":6969\"] to serve HTTP"),
                true => ("http.tls_listen", "http.tls_listen = [\":8443\"] to serve HTTPS"),
            };
            // A check has no sockets of systemd.
            let unless = match unused.iter().any(|key| of_tls(key)) {
                true => " unless systemd passes a socket named tls",
                false => "",
            };
            self.notices.push(format!(
                "without an address in {key} these keys have no effect{unless}: {}; write \
                 {example}",
                unused.join(", ")
            ));
        }
    }

    /// Without proxies, `client_address` has no effect.
    fn check_proxies(&mut self) {
        let key = "http.client_address";
        let is_default = self.document.values().get(key) == SCHEMA.defaults().get(key);
        let (http, https) = self.schemes();
        if (http || https)
            && self.file.http.proxies.is_empty()
            && !is_default
            && self.accepted("http", &["proxies"])
        {
            self.notices.push(format!(
                "{key} has no effect without http.proxies, the addresses of proxies that are \
                 trusted to name the client"
            ));
        }
    }

    /// An interface holds one program, and without any the keys have no effect.
    fn check_xdp(&mut self) {
        let interfaces = self.file.xdp.interfaces.clone();
        for (nth, name) in interfaces.iter().enumerate() {
            if interfaces[..nth].contains(name) {
                let what = format!("{name} is listed twice");
                self.document.problem(&format!("{XDP_INTERFACES}.{nth}"), what, None);
            }
        }
        if !self.file.xdp.ring.is_power_of_two() && self.accepted("xdp", &["ring"]) {
            let what = format!("{} is no power of two", self.file.xdp.ring);
            let remedy = format!("write {}", self.file.xdp.ring.next_power_of_two());
            self.document.problem(XDP_RING, what, Some(&remedy));
        }
        if self.file.xdp.required && interfaces.is_empty() && self.accepted("xdp", &["interfaces"])
        {
            let what = "the program is required, and `xdp.interfaces` is empty".to_owned();
            let remedy = "write `interfaces = [\"eth0\"]` in [xdp], or remove the key";
            self.document.problem("xdp.required", what, Some(remedy));
        }
    }

    fn check_identity(&mut self) {
        if self.file.group.is_some()
            && self.file.user.is_none()
            && !self.document.is_rejected("user")
        {
            let what = "a group needs a user to switch to with it".to_owned();
            let remedy = "add `user`, or start the tracker with this group";
            self.document.problem("group", what, Some(remedy));
        }
    }

    /// Whether no value of these keys was rejected, so that a contradiction is the user's.
    fn accepted(&self, table: &str, keys: &[&str]) -> bool {
        !keys.iter().any(|key| self.document.is_rejected(&format!("{table}.{key}")))
    }
}

/// The addresses of the entries of the list `key`. One that is listed twice is a problem.
fn addresses(key: &str, entries: &[ListenAt], document: &mut Document) -> Vec<Listen> {
    let mut listen: Vec<Listen> = Vec::new();
    for (nth, ListenAt(at)) in entries.iter().enumerate() {
        for at @ Listen { address, .. } in at {
            // Port 0 is a new port each time.
            if address.port() != 0 && listen.iter().any(|l| l.address == *address) {
                let what = format!("{address} is listed twice");
                document.problem(&format!("{key}.{nth}"), what, None);
            }
            listen.push(*at);
        }
    }
    listen
}
