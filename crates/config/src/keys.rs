//! Every key of the configuration file, in the order of the printed file. To add a key, add its
//! field here and use it; reading, errors, `--print-config`, the reference
//! (docs/CONFIGURATION.md) and reloads follow from the declaration. Derived numbers with
//! `#[serde(default)]` are 0 until `resolve` sets them: their ranges do not include 0.

mod export;
mod xdp;

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use onrush_proto::InfoHash;
use onrush_swarm::shard::{MAX_PEER_LIFETIME, MAX_SWARMS};
use onrush_toml_keys::{
    Applied, Key, Kind, Schema, integer, keys, list, parses, switch, table, text, texts, word,
    word_or_list,
};
use onrush_tracker::access::addresses::AddressBlock;
use onrush_tracker::access::origins::MAX_LISTS;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::proxies::ClientAddress;
use serde::Deserialize;

use crate::values::{
    AccessMode, ListFile, Listen, ListenAt, LogFormat, Pin, PlacementMode, admin, client_address,
    default_admin, is_admin_at, is_error_text, is_host_name, is_name, is_path, seconds,
};
pub use export::ExportSettings;
pub use xdp::{XDP_INTERFACES, XDP_RING, XdpConnects, XdpMode, XdpReplies, XdpSettings};

/// Workers of all kinds together.
pub const MAX_WORKERS: usize = 1024;
/// The words of `workers.placement`.
pub const PLACEMENTS: &[&str] = &["auto", "split", "colocated"];
/// The key of the level of the log.
pub const LOG_LEVEL: &str = "log.level";
/// The words of `log.level`.
pub const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// The word of a level.
pub fn level_word(level: LevelFilter) -> &'static str {
    LEVELS[level as usize]
}

/// The words of `log.format`.
pub const LOG_FORMATS: &[&str] = &["text", "json"];
/// The longest interval, in seconds.
pub(crate) const MAX_INTERVAL: u32 = 43_200;

/// The greatest `limits.peers` and `limits.idle_swarms`: a single shard must be able to hold both,
/// with each peer in a swarm of its own.
const MAX_PEERS: i64 = 4_000_000_000;
const MAX_IDLE_SWARMS: i64 = 200_000_000;
const _: () = assert!(MAX_PEERS + MAX_IDLE_SWARMS <= MAX_SWARMS as i64);

/// The greatest SO_RCVBUF and SO_SNDBUF: the kernel doubles them in an `int` (socket(7)).
const MAX_BUFFER: i64 = (1 << 30) - 1;
/// The maximum number of a vCPU, by the largest NR_CPUS of Linux (arch/x86/Kconfig).
const VCPU: Kind = Kind::Integer(0..=8191, "vCPU");
const VCPUS: Kind = Kind::List(&VCPU, 1..=MAX_WORKERS);
const LISTEN: Kind = Kind::Text("an address with a port, in quotes", parses::<ListenAt>);
const INFO_HASH: Kind = Kind::Text("40 hexadecimal digits, in quotes", parses::<InfoHash>);
const FILE_PATH: Kind = Kind::Text("an absolute path, in quotes", is_path);
const BLOCK: Kind = Kind::Text("an address, a block or a range, in quotes", parses::<AddressBlock>);
const HOST_NAME: Kind = Kind::Text("a host name without port, in quotes", is_host_name);
const LIST_FILE: Kind = Kind::Text(
    "an absolute path, in quotes, alone or with `: ` and an error text behind it",
    parses::<ListFile>,
);
const PATH: Key = text("an absolute path, in quotes", is_path);
const NAME: Key = text("a name, in quotes", is_name);

/// The configuration file.
pub static SCHEMA: Schema = Schema {
    keys: File::KEYS,
    hints: &[
        (
            &["address", "bind", "port", "ports"],
            "write `listen = [\":6969\"]` at the top of the file, or in [http] for HTTP",
        ),
        (
            &["allow", "whitelist"],
            "write `mode = \"allow\"` and `info_hashes = [...]` or `files = [...]` in [access]",
        ),
        (
            &["blacklist", "deny"],
            "write `mode = \"deny\"` and `info_hashes = [...]` or `files = [...]` in [access]",
        ),
        (&["enable_keepalive", "idle_timeout"], "write `keep_alive` in [http]"),
        (&["http_address", "http_listen", "http_port"], "write `listen = [\":6969\"]` in [http]"),
        (
            &["cert", "certificate", "fullchain", "ssl_certificate", "tls_certificate_path"],
            "write `certificates = [\"/path/fullchain.pem\"]` in [http]",
        ),
        (
            &["privkey", "private_key", "ssl_certificate_key", "tls_private_key_path"],
            "write `keys = [\"/path/privkey.pem\"]` in [http]",
        ),
        (&["https", "https_listen"], "write `tls_listen = [\":8443\"]` in [http]"),
        (&["log_level"], "write `level = \"info\"` in [log]"),
        (&["max_connections"], "write `connections` in [http], or in [admin]"),
        (&["max_peers"], "write `max_peers_v4` in [announce], or `peers` in [limits]"),
        (&["max_response_peers"], "write `max_peers_v4` and `max_peers_v6` in [announce]"),
        (&["peer_announce_interval"], "write `interval` in [announce]"),
        (&["socket_workers"], "write `socket` in [workers]"),
        (&["swarm_workers"], "write `swarm` in [workers]"),
        (&["threads"], "write `total` in [workers]"),
    ],
    head: "\
# onrush: every key with its default, as written by `onrush --print-config`.
#
# Keep only the lines that you change. A key that is commented out has no fixed default; its comment
# says which value applies without it. The tracker also runs without a file.
#
#   onrush --check-config --config FILE     checks a file and shows its effect on this host
#   onrush --config FILE                    starts with it
#
# Variables like ONRUSH_ANNOUNCE__INTERVAL=30m and flags (onrush --help) override the file, in this
# order.
",
};

/// The keys of the pairs of certificates and private keys, which change together.
pub(crate) const CERTIFICATE_KEYS: [&str; 2] = ["http.certificates", "http.keys"];

/// The owners of keys whose change applies on a reload: the parts of the daemon that put it into
/// force.
pub mod owner {
    /// The lists of info hashes and sources.
    pub const ACCESS: &str = "access";
    /// The certificates of HTTPS.
    pub const CERTIFICATES: &str = "certificates";
    /// The admin API.
    pub const ADMIN: &str = "admin";
    /// The files that are written periodically.
    pub const FILES: &str = "files";
    /// The log.
    pub const LOG: &str = "log";
    /// The interval, which overload lengthens, and the lifetime of peers, which follows it.
    pub const OVERLOAD: &str = "overload";
    /// The rules that each worker has, and nothing else.
    pub const RULES: &str = "rules";
}

/// Whether even an upgrade cannot change a key.
pub fn is_restart_only(path: &str) -> bool {
    SCHEMA.key(path).is_some_and(|key| key.applied == Applied::OnRestart)
}

keys! {
    /// The values of the configuration file before they are resolved against the host.
    #[derive(Clone, Debug, Deserialize)]
    pub(crate) struct File {
        /// The addresses to listen on. ":6969" is port 6969 on all addresses of both families; on a
        /// host without IPv6, the tracker logs a warning and serves IPv4 only. An explicit address
        /// like "192.0.2.1:6969", "[2001:db8::1]:6969" or "[::]:6969" is required: if it cannot be
        /// bound, the tracker does not start. Each worker with sockets opens one socket per
        /// address. Flag: --listen.
        #[serde(deserialize_with = "texts")]
        pub(crate) listen: Vec<ListenAt> = list(&LISTEN, 1..=64).default("[\":6969\"]"),

        /// The directory for persistent state: the key of connection ids, snapshots, changes of
        /// lists. It is created if missing. If it is not writable, the tracker logs a warning and
        /// keeps the key in memory; connection ids then become invalid with a restart.
        /// `--check-config` reports it as an error. Flag: --state-dir.
        pub(crate) state_dir: Option<PathBuf> = PATH
            .derived(
                "$STATE_DIRECTORY (set by systemd), else $XDG_STATE_HOME/onrush, else \
                 $HOME/.local/state/onrush",
                "\"/var/lib/onrush\"",
            )
            .on_restart(),

        /// The user to switch to at start, before any socket is opened. Only root can switch users.
        pub(crate) user: Option<String> =
            NAME.derived("the tracker keeps its user", "\"onrush\"").on_restart(),

        /// The group to switch to, together with `user`.
        pub(crate) group: Option<String> =
            NAME.derived("the primary group of `user`", "\"onrush\"").on_restart(),

        /// The number and placement of worker threads. Split: socket workers exchange datagrams
        /// with the kernel, swarm workers store the peers. Colocated: each worker does both, for
        /// its share of the swarms.
        pub(crate) workers: WorkerKeys = table(WorkerKeys::KEYS),

        /// Options of each UDP socket.
        pub(crate) socket: SocketSettings = table(SocketSettings::KEYS),

        /// The XDP program: it answers connects and drops invalid requests in the driver of a
        /// network interface, and workers get the others past the kernel's network stack
        /// (docs/XDP.md). Off while `interfaces` is empty.
        pub(crate) xdp: XdpSettings = table(XdpSettings::KEYS),

        /// Announces and scrapes over HTTP and HTTPS, for the same swarms as over UDP. Off while
        /// `listen` and `tls_listen` are empty.
        pub(crate) http: HttpKeys = table(HttpKeys::KEYS),

        /// WebTorrent: peers in browsers, over WebSocket on the addresses of [http]. Their swarms
        /// are apart from those of other peers, which they cannot reach.
        pub(crate) webtorrent: WebTorrentKeys = table(WebTorrentKeys::KEYS),

        /// Replies to announces, and how long peers are stored.
        #[serde(with = "AnnounceKeys")]
        pub(crate) announce: AnnounceSettings = table(AnnounceKeys::KEYS),

        /// Replies to scrapes.
        pub(crate) scrape: ScrapeSettings = table(ScrapeSettings::KEYS),

        /// Connection ids, which prove that a client can receive at its source address (BEP 15).
        pub(crate) connection: ConnectionSettings = table(ConnectionSettings::KEYS),

        /// Allowed and denied info hashes, and blocked sources.
        pub(crate) access: AccessKeys = table(AccessKeys::KEYS),

        /// Overload: what the tracker does when datagrams arrive faster than its workers can
        /// process them.
        pub(crate) overload: OverloadSettings = table(OverloadSettings::KEYS),

        /// Upper bounds on memory, queues and log lines.
        pub(crate) limits: Limits = table(Limits::KEYS),

        /// Snapshots of all peers in the state directory, from which the next start restores them.
        pub(crate) snapshot: SnapshotSettings = table(SnapshotSettings::KEYS),

        /// The admin side over HTTP: metrics, health, statistics, status page and the admin API. It
        /// runs on a thread of its own.
        pub(crate) admin: AdminSettings = table(AdminSettings::KEYS),

        /// Exports of the full scrape to a file: seeders, leechers and completed downloads of every
        /// swarm.
        pub(crate) export: ExportSettings = table(ExportSettings::KEYS),

        /// The log, in the journal if systemd has started the tracker, otherwise on standard error.
        pub(crate) log: LogSettings = table(LogSettings::KEYS),
    }

    /// The number and placement of worker threads, as configured.
    #[derive(Clone, Debug, Deserialize)]
    pub(crate) struct WorkerKeys {
        /// The placement of sockets and swarms on workers. "auto" is colocated below 14 workers;
        /// from 14 on it is split, with one swarm worker in seven
        /// (docs/benchmarks/scaling-model.md). Flag: --placement.
        pub(crate) placement: PlacementMode = word(PLACEMENTS).default("\"auto\""),

        /// The number of workers of all kinds. More workers than vCPUs compete for the vCPUs. Flag:
        /// --workers.
        pub(crate) total: Option<usize> =
            integer(1..=MAX_WORKERS as i64, "workers").derived(
                "the sum of `socket` and `swarm` if they are given, else the number of vCPUs that \
                 the process may use",
                "4",
            ),

        /// The number of workers with sockets in a split placement.
        pub(crate) socket: Option<usize> =
            integer(1..=MAX_WORKERS as i64 - 1, "workers")
                .derived("`total` minus `swarm`, which is one worker in seven by default", "3"),

        /// The number of workers that store peers in a split placement.
        pub(crate) swarm: Option<usize> =
            integer(1..=MAX_WORKERS as i64 - 1, "workers")
                .derived("`total` minus `socket` if that is given, else one worker in seven", "1"),

        /// Pinning of workers to vCPUs. "auto" pins if each worker can have a vCPU of its own and
        /// no CPU quota is set; "on" requires pinning. Both use one vCPU of every core before the
        /// second ones. A list gives the vCPU of each worker, socket workers first.
        pub(crate) pin: Pin = word_or_list(&["auto", "on", "off"], &VCPUS).default("\"auto\""),

        /// How long an idle worker polls before it sleeps. To wake a sleeping worker takes the
        /// sender some microseconds; polling uses the vCPU and shows as load. With 0, idle workers
        /// sleep at once.
        pub(crate) spin: Option<u32> = integer(0..=1000, "microseconds")
            .derived("20 for 14 or more workers that are split and pinned, else 0", "20"),
    }

    /// Options of each UDP socket.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct SocketSettings {
        /// The receive buffer to request (SO_RCVBUF); 0 keeps the system's default. If the buffer
        /// is full, the kernel drops and counts datagrams, and clients retry. Without CAP_NET_ADMIN
        /// the kernel limits the request to net.core.rmem_max; the tracker logs a warning then.
        pub receive_buffer: usize = integer(0..=MAX_BUFFER, "bytes").default("4_194_304"),

        /// The send buffer to request (SO_SNDBUF); 0 keeps the system's default. If the buffer is
        /// full, replies are dropped and counted, and clients retry. Without CAP_NET_ADMIN the
        /// kernel limits the request to net.core.wmem_max; the tracker logs a warning then.
        pub send_buffer: usize = integer(0..=MAX_BUFFER, "bytes").default("1_048_576"),

        /// The maximum number of datagrams per system call. The kernel accepts up to 1024
        /// (UIO_MAXIOV).
        pub batch: usize = integer(1..=1024, "datagrams").default("128"),

        /// Whether the kernel delivers an announce to the worker that owns its swarm, by classic
        /// BPF on the SO_REUSEPORT group. Only colocated workers use it.
        pub steering: bool = switch().default("true"),
    }

    /// Announces and scrapes over HTTP, as configured.
    #[derive(Clone, Debug, Deserialize)]
    pub(crate) struct HttpKeys {
        /// The TCP addresses to listen on, written as those for UDP; the ports may be the same.
        /// Flag: --http.
        #[serde(deserialize_with = "texts")]
        pub(crate) listen: Vec<ListenAt> = list(&LISTEN, 0..=64).default("[]"),

        /// The TCP addresses to serve HTTPS at: TLS 1.3 and 1.2. They need `certificates` and
        /// `keys`. Flag: --https.
        #[serde(deserialize_with = "texts")]
        pub(crate) tls_listen: Vec<ListenAt> = list(&LISTEN, 0..=64).default("[]"),

        /// The files of the certificates, in PEM, like
        /// "/etc/letsencrypt/live/tracker.example/fullchain.pem". Each file has the certificate
        /// first, then the intermediate certificates. A client gets the certificate that has the
        /// requested name (SNI), otherwise the first one. Changed files are read again within a
        /// minute or two, and on a reload; connections that are open keep theirs.
        pub(crate) certificates: Vec<PathBuf> =
            list(&FILE_PATH, 0..=64).default("[]").on_reload(owner::CERTIFICATES),

        /// The files of their private keys, in PEM, in the same order. ECDSA keys on P-256 need the
        /// least CPU time.
        pub(crate) keys: Vec<PathBuf> =
            list(&FILE_PATH, 0..=64).default("[]").on_reload(owner::CERTIFICATES),

        /// The number of web workers: threads that serve HTTP. They are not pinned.
        pub(crate) workers: Option<usize> = integer(1..=MAX_WORKERS as i64, "workers")
            .derived("one per eight vCPUs that the process may use, rounded up", "1"),

        /// How long a connection stays open after a reply without another request; 0 closes it
        /// after each reply.
        pub(crate) keep_alive: u32 = integer(0..=3600, "seconds").default("15"),

        /// The time for a head with any TLS handshake before it, a message over WebSocket, and for
        /// the client to take all waiting output, even in parts. Then the connection is closed.
        pub(crate) timeout: u32 = integer(1..=300, "seconds").default("10"),

        /// The maximum number of open connections, in equal shares for the web workers. Beyond it,
        /// the connection idle longest is closed for a new one, members of swarms by WebSocket
        /// last; if none is idle, the new one is closed.
        pub(crate) connections: usize =
            integer(1..=1_000_000, "connections").default("16_384"),

        /// The maximum number of open connections of one source, an IPv4 address or an IPv6 /64, at
        /// each web worker. Beyond it, new ones are closed.
        pub(crate) connections_per_source: usize =
            integer(1..=1_000_000, "connections").default("64"),

        /// The memory for incomplete requests and unsent replies of all connections, in equal
        /// shares for the web workers. Beyond a share, the connection is closed that has waited
        /// longest for its client. Requests that arrive at once need no such memory.
        pub(crate) buffer_memory: usize =
            integer(1 << 20..=1 << 36, "bytes").default("67_108_864"),

        /// Proxies that are trusted to name the client of each request: addresses, blocks like
        /// "192.0.2.0/24" or "2001:db8::/32", and ranges. Limits and blocks of sources do not apply
        /// to them, but to the clients that they name. List no address that clients can have: a
        /// host that connects from it chooses the address that is stored and handed out.
        #[serde(deserialize_with = "texts")]
        pub(crate) proxies: Vec<AddressBlock> =
            list(&BLOCK, 0..=256).default("[]").on_reload(owner::RULES),

        /// How `proxies` name the client: in the field "x-forwarded-for", "x-real-ip" or
        /// "forwarded" of each request, or with "proxy-protocol" in a header before everything else
        /// on the connection.
        #[serde(deserialize_with = "client_address")]
        pub(crate) client_address: ClientAddress = word(&ClientAddress::NAMES)
            .default("\"x-forwarded-for\"")
            .on_reload(owner::RULES),
    }

    /// WebTorrent, as configured.
    #[derive(Clone, Copy, Debug, Deserialize)]
    pub(crate) struct WebTorrentKeys {
        /// Whether connections may be upgraded to WebSocket.
        pub(crate) enabled: bool = switch().default("true"),

        /// The time between announces that replies request from clients. A member of a swarm that
        /// has not announced for three intervals, or ten minutes if that is longer, is removed; the
        /// end of its connection removes it at once.
        pub(crate) interval: u32 = integer(30..=MAX_INTERVAL as i64, "seconds").default("120"),

        /// The maximum number of offers of an announce that are forwarded to other peers.
        pub(crate) max_offers: usize = integer(1..=100, "offers").default("10"),

        /// The maximum length of a message. A longer one closes the connection.
        pub(crate) max_message: usize = integer(4096..=1 << 20, "bytes").default("65_536"),

        /// The maximum number of swarms that a connection is a member of. One more closes it.
        pub(crate) memberships: usize = integer(1..=16_384, "swarms").default("1_024"),
    }

    /// Replies to announces, as configured.
    #[derive(Deserialize)]
    #[serde(remote = "AnnounceSettings")]
    pub(crate) struct AnnounceKeys {
        /// The time between announces that replies request from clients. A longer interval lowers
        /// the load; peer lists then contain more peers that have left.
        pub(crate) interval: u32 =
            integer(60..=MAX_INTERVAL as i64, "seconds").default("1800").on_reload(owner::OVERLOAD),

        /// The maximum random deviation from the interval, up or down. It spreads the announces of
        /// clients that arrived together.
        pub(crate) interval_jitter_percent: u32 =
            integer(0..=50, "percent").default("5").on_reload(owner::OVERLOAD),

        /// The number of peers for a client that leaves it to the tracker (num_want below 0). It is
        /// limited by max_peers_v4 and max_peers_v6.
        pub(crate) default_peers: u16 =
            integer(0..=200, "peers").default("50").on_reload(owner::RULES),

        /// The maximum number of peers in a reply over IPv4. 200 peers fill 1232 bytes, which are
        /// not fragmented on any usual path.
        pub(crate) max_peers_v4: u16 =
            integer(1..=200, "peers").default("200").on_reload(owner::RULES),

        /// The maximum number of peers in a reply over IPv6. 67 peers fill 1232 bytes, which are
        /// not fragmented on any usual path.
        pub(crate) max_peers_v6: u16 =
            integer(1..=67, "peers").default("67").on_reload(owner::RULES),

        /// How long a peer is stored after its last announce. It has to be longer than the interval
        /// with its jitter, otherwise peers expire between two announces.
        #[serde(default)]
        pub(crate) peer_lifetime: u32 = integer(60..=MAX_PEER_LIFETIME as i64, "seconds")
            .derived("twice the interval, at most 65536", "3600")
            .on_reload(owner::OVERLOAD),

        /// How long the count of completed downloads is stored after the last peer of a swarm has
        /// left. limits.idle_swarms limits the number of such swarms. A source counts once per
        /// swarm in this time, or in an hour if that is longer.
        pub(crate) completed_retention: u32 =
            integer(0..=604_800, "seconds").default("86_400").on_reload(owner::RULES),
    }

    /// Replies to scrapes.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct ScrapeSettings {
        /// The maximum number of info hashes answered per scrape; further ones are ignored. BEP 15
        /// limits a request to about 74.
        pub max_hashes: usize =
            integer(1..=74, "info hashes").default("74").on_reload(owner::RULES),
    }

    /// Connection ids.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct ConnectionSettings {
        /// How long a connection id is valid at least; at most twice as long. Requests with an
        /// expired id get no reply, and the client connects again. BEP 15 says two minutes; some
        /// clients reuse ids for longer.
        pub validity: u32 = integer(120..=3600, "seconds").default("120"),

        /// The file with the key of connection ids, created if missing. Hosts with the same key
        /// accept each other's ids.
        pub key_file: Option<PathBuf> = PATH
            .derived("connection.key in the state directory", "\"/etc/onrush/connection.key\""),
    }

    /// Allowed and denied info hashes, and blocked sources, as configured.
    #[derive(Clone, Debug, Deserialize)]
    pub(crate) struct AccessKeys {
        /// The effect of the list of info hashes. "open": there is no list and every swarm is
        /// served. "allow": only listed swarms are served. "deny": listed swarms are not served.
        /// Other announces get an error reply, and scrapes report zeros.
        pub(crate) mode: AccessMode =
            word(&["open", "allow", "deny"]).default("\"open\"").on_reload(owner::ACCESS),

        /// The info hashes of the list.
        #[serde(deserialize_with = "texts")]
        pub(crate) info_hashes: Vec<InfoHash> =
            list(&INFO_HASH, 0..=100_000).default("[]").on_reload(owner::ACCESS),

        /// Files with further info hashes, one per line, as 40 hexadecimal digits or 32 base32
        /// characters. A # starts a comment, which belongs to the entry: why, since when. Behind
        /// the path of a file, after a colon and a blank, may be the error text for its entries.
        /// The files are read at start and on every reload, as the user of the tracker. An invalid
        /// line makes all of them invalid. limits.list_entries limits their length.
        #[serde(deserialize_with = "texts")]
        pub(crate) files: Vec<ListFile> = list(&LIST_FILE, 0..=MAX_LISTS - 1)
            .default("[]")
            .on_reload(owner::ACCESS),

        /// The error text of announces that the list refuses, for entries of files without a text
        /// of their own. With "allow", which refuses what is in no file, it is the only one.
        pub(crate) error: String =
            text("1 to 90 printable ASCII characters, in quotes", is_error_text)
                .default("\"info hash is not allowed on this tracker\"")
                .on_reload(owner::ACCESS),

        /// Source addresses that get no replies: addresses, blocks like "192.0.2.0/24" or
        /// "2001:db8::/32", and ranges like "192.0.2.1-192.0.2.9".
        #[serde(deserialize_with = "texts")]
        pub(crate) blocked: Vec<AddressBlock> =
            list(&BLOCK, 0..=100_000).default("[]").on_reload(owner::ACCESS),

        /// A file with further blocked sources, one per line. A # or a ; starts a comment. The file
        /// is read at start and on every reload. An invalid line makes the whole file invalid.
        /// limits.list_entries limits its length.
        pub(crate) blocked_file: Option<PathBuf> =
            PATH.derived("only `blocked` applies", "\"/etc/onrush/blocked.txt\"")
                .on_reload(owner::ACCESS),

        /// Whether requests from addresses that are not valid on the internet (private, loopback,
        /// multicast, reserved) are dropped. Set it to true on a public host, and leave it at false
        /// in a LAN.
        pub(crate) refuse_bogons: bool = switch().default("false").on_reload(owner::RULES),
    }

    /// Reaction to overload.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct OverloadSettings {
        /// The share of datagrams that busy workers may lose, or refuse as `busy`. Above it, the
        /// tracker lengthens the interval step by step, and the kernel drops datagrams that are no
        /// valid request, so that requests get through. When losses become rare, it returns step
        /// by step. 0 disables both. The interval is also lengthened while more than this share of
        /// new connections of HTTP is closed at once because of http.connections, or of requests
        /// over HTTP is refused as `busy`.
        pub drop_share: u32 = integer(0..=100, "percent").default("5").on_reload(owner::OVERLOAD),

        /// The interval at the last of the eight steps of overload. The lifetime of peers grows in
        /// proportion.
        #[serde(default)]
        pub longest_interval: u32 = integer(60..=MAX_INTERVAL as i64, "seconds")
            .derived("twice announce.interval, at most 43200", "3600")
            .on_reload(owner::OVERLOAD),
    }

    /// Upper bounds on memory, queues and log lines.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct Limits {
        /// The maximum number of peers. Beyond it, a new peer replaces one whose source occupies
        /// more, or gets a reply and is not stored; both are counted. A peer takes 8 bytes over
        /// IPv4 and 20 bytes over IPv6; as most swarms have one or two peers, plan 64 bytes per
        /// peer including its swarm.
        #[serde(default)]
        pub peers: u64 = integer(1_000..=MAX_PEERS, "peers").derived(
            "20000000, or as many as fit into half of the memory, whichever is less",
            "20_000_000",
        ),

        /// The maximum number of peers of one source in one swarm: an IPv4 address or an IPv6 /64.
        /// Beyond it, new peers of the source get replies and are not stored. `trusted_sources`
        /// exempts large networks behind NAT. A /24 or a /48 may have 16 times as many. In swarms
        /// of more than 128 peers a count is up to 8 too high or too low, so values below 16 refuse
        /// some sources with a single peer there. 0 disables the limit.
        pub source_peers_per_swarm: u32 =
            integer(0..=1_000_000, "peers").default("64"),

        /// The maximum number of peers of one source in all swarms, otherwise like
        /// `source_peers_per_swarm`; a /16 of IPv4 or a /32 of IPv6 may have 256 times as many. It
        /// is divided among the workers with swarms. With 0, a tracker with `peers` peers stores no
        /// new ones.
        pub source_peers: Option<u64> = integer(0..=MAX_PEERS, "peers")
            .derived("100000, at most 1 % of `peers`, and at least 64", "50_000"),

        /// The maximum number of swarms per minute that one source creates, otherwise like
        /// `source_peers`.
        pub source_new_swarms: u32 =
            integer(0..=100_000_000, "swarms per minute").default("3000"),

        /// Sources to which no limit of a source applies: addresses, blocks and ranges as in
        /// access.blocked. The default has the host itself, for proxies and load tests; include it
        /// when you add others.
        #[serde(deserialize_with = "texts")]
        pub trusted_sources: Vec<AddressBlock> = list(&BLOCK, 0..=100_000)
            .default("[\"127.0.0.0/8\", \"::1\"]")
            .on_reload(owner::RULES),

        /// The maximum number of swarms without peers, which are stored for their count of
        /// completed downloads and take about 100 bytes each. Beyond it, those with the least
        /// counts are removed early (1, 2 to 3, 4 to 15 and so on), the oldest first.
        pub idle_swarms: u64 =
            integer(0..=MAX_IDLE_SWARMS, "swarms").default("1_000_000"),

        /// The maximum number of batches of requests that a worker with sockets may have in flight
        /// to the workers with swarms, in equal shares for each of these. When a share is used up,
        /// requests for its swarms are dropped and counted, and clients retry. Batches are
        /// allocated on first use and take 64 KiB or more each.
        #[serde(default)]
        pub batches_in_flight: usize = integer(2..=65_536, "batches")
            .derived("8 per worker with swarms, at least 32", "96"),

        /// The maximum number of requests in a batch. A full batch is sent, and a new one is
        /// opened.
        pub batch_requests: usize = integer(1..=4096, "requests").default("128"),

        /// The maximum number of scrapes that a worker with sockets may have in flight, about 1 KB
        /// each. Beyond it, scrapes are dropped and counted, and clients retry.
        pub scrapes_in_flight: usize = integer(1..=65_536, "scrapes").default("1024"),

        /// The maximum number of warnings of one kind per minute. Further ones are counted, and
        /// the count is logged.
        pub warnings_per_minute: u32 =
            integer(0..=6000, "lines").default("10").on_reload(owner::LOG),

        /// The maximum number of entries in the file of a list; a longer file is an error. A
        /// listed info hash takes 23 to 24 bytes, and 20 more bytes while the list is loaded.
        /// During a reload the old and the new list are both in memory.
        pub list_entries: usize =
            integer(1..=500_000_000, "entries").default("20_000_000").on_reload(owner::ACCESS),
    }

    /// Snapshots of all peers.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct SnapshotSettings {
        /// Whether peers are written to onrush.snapshot in the state directory and restored from it
        /// at start. A damaged snapshot is renamed, and the tracker logs a warning.
        pub enabled: bool = switch().default("true"),

        /// The time between snapshots, besides those at exit and after an upgrade; 0 disables it.
        /// It limits the loss of peers if the process is killed. A snapshot takes about 0.2 us of
        /// worker time per swarm, in small steps between requests, and 16 to 24 bytes of disk per
        /// IPv4 peer.
        #[serde(deserialize_with = "seconds")]
        pub every: Duration = integer(0..=86_400, "seconds").default("600").on_reload(owner::FILES),
    }

    /// The admin side.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct AdminSettings {
        /// The TCP address to listen on, or "off". An explicit address is required: if it cannot be
        /// bound, the tracker does not start. HTTP is not encrypted; for access from other hosts,
        /// put a proxy with TLS in front. Root and the tracker's user reach the admin side at the
        /// Unix socket control.sock in the state directory, too, also with "off". Flag: --admin.
        #[serde(default = "default_admin", deserialize_with = "admin")]
        pub listen: Option<Listen> =
            text("an address with a port, in quotes, or \"off\"", is_admin_at).derived(
                "127.0.0.1:6970; if that is in use, the tracker logs a warning and runs without \
                 the admin side",
                "\"127.0.0.1:6970\"",
            ),

        /// The host names under which the admin side is reached, without port. Requests for other
        /// names get status 421, so that no web page can read the admin side through a browser of
        /// this host (DNS rebinding). Addresses and localhost are always accepted. A Prometheus
        /// or a proxy that uses a name needs it here.
        pub hosts: Vec<String> = list(&HOST_NAME, 0..=64).default("[]").on_reload(owner::ADMIN),

        /// The file with the token of the admin API (/api/v1): one line of at least 16 characters,
        /// readable only by the user of the tracker (chmod 600). Requests with `Authorization:
        /// Bearer TOKEN` may reload, change lists and inspect swarms. The file is read at start and
        /// on every reload, as the user of the tracker. `head -c24 /dev/urandom | base64` generates
        /// a token.
        pub token_file: Option<PathBuf> = PATH
            .derived(
                "the admin API is available at the control socket only",
                "\"/etc/onrush/admin.token\"",
            )
            .on_reload(owner::ADMIN),

        /// Whether /lists serves the current list of info hashes without a token, for operators who
        /// publish what they deny.
        pub publish_lists: bool = switch().default("false").on_reload(owner::ADMIN),

        /// The maximum number of concurrent connections. One source, an IPv4 address, 127.0.0.0/8
        /// or an IPv6 /64, may have a quarter of them, at least 8; behind a proxy all clients are
        /// one source. Beyond either limit another connection is closed: one with more than 100
        /// requests without a pause, else the one that has been idle longest, else one whose
        /// request is incomplete, else one whose client reads responses and has not paused for
        /// longer than admin.timeout, or whose source has more connections. If there is none, a
        /// request gets status 503, except /health and /ready.
        pub connections: usize = integer(1..=4096, "connections").default("64"),

        /// The maximum length of a request body. A longer one gets status 413.
        pub max_body: usize = integer(1_024..=64 << 20, "bytes").default("1_048_576"),

        /// The time limit for receiving a request, for producing the response, and for sending it.
        /// After it the connection is closed.
        #[serde(deserialize_with = "seconds")]
        pub timeout: Duration = integer(1..=300, "seconds").default("10"),
    }

    /// The log, in the journal if systemd has started the tracker, otherwise on standard error.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    pub struct LogSettings {
        /// The lowest level that is logged. "debug" and "trace" log single packets; do not use them
        /// under load. Flag: --log-level.
        pub level: LevelFilter = word(LEVELS).default("\"info\"").on_reload(owner::LOG),

        /// The format of entries. "text" is a line with time, level and module, or several lines;
        /// "json" is one line in any case, an object with time, level, pid, module and message.
        /// Under systemd neither applies: the journal gets each entry with its priority. Flag:
        /// --log-format, which also applies to errors of this file.
        pub format: LogFormat = word(LOG_FORMATS).default("\"text\"").on_reload(owner::LOG),

        /// The time between lines with totals, at level info; 0 disables them.
        #[serde(deserialize_with = "seconds")]
        pub totals_every: Duration =
            integer(0..=86_400, "seconds").default("60").on_reload(owner::LOG),

        /// Whether addresses of clients may be logged, at levels debug and trace.
        pub addresses: bool = switch().default("false").on_reload(owner::RULES),
    }
}
