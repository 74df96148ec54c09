//! The settings in a few lines: what `--check-config` writes and the log begins with.

use onrush_net::affinity::format_list;
use onrush_text::numbers::{bytes, grouped, plural, thousandths};
use onrush_tracker::limits::Placement;

use crate::host::Host;
use crate::settings::{
    Access, BYTES_PER_PEER, HttpSettings, Listed, Listen, Settings, XdpConnects, XdpReplies,
    XdpSettings,
};

impl Settings {
    /// One line per subject, on this `host`.
    pub fn summary(&self, host: &Host) -> String {
        let lines = [
            ("listen", self.listen_line()),
            ("xdp", self.xdp_line()),
            ("http", self.http_line()),
            ("workers", self.workers_line()),
            ("vCPUs", vcpus_line(host)),
            ("announce", self.announce_line()),
            ("limits", self.limits_line()),
            ("access", self.access_line()),
            ("state", self.state_line()),
            ("admin", self.admin_line()),
            ("control", self.control_line()),
        ];
        lines.iter().map(|(name, text)| format!("  {name:<9} {text}\n")).collect()
    }

    fn listen_line(&self) -> String {
        addresses(&self.listen) + by_systemd(self.sockets_passed.udp)
    }

    fn xdp_line(&self) -> String {
        let XdpSettings { interfaces, required, mode, connects, replies, .. } = &self.xdp;
        if interfaces.is_empty() {
            return "off".to_owned();
        }
        let by = match connects {
            XdpConnects::Workers => "by the workers",
            XdpConnects::Auto => {
                "in the driver, or by the workers if an interface is a veth device"
            }
            XdpConnects::Driver => "in the driver",
        };
        let to = match replies {
            XdpReplies::Back => "",
            XdpReplies::Table => " by the routing table",
        };
        let required = if *required { "; required" } else { "" };
        let (names, mode) = (interfaces.join(", "), mode.word());
        format!("{names} ({mode}); connects are answered {by}{to}{required}")
    }

    fn http_line(&self) -> String {
        let HttpSettings { listen, tls_listen, certificates, workers, limits, proxies } =
            &self.http;
        if !self.http.is_on() {
            return "off".to_owned();
        }
        let http =
            (!listen.is_empty()).then(|| addresses(listen) + by_systemd(self.sockets_passed.http));
        let https = (!tls_listen.is_empty()).then(|| {
            format!(
                "HTTPS at {}{} with {}",
                addresses(tls_listen),
                by_systemd(self.sockets_passed.https),
                plural(certificates.len(), "certificate")
            )
        });
        let served: Vec<_> = http.into_iter().chain(https).collect();
        let behind = match proxies.addresses.blocks() {
            0 => String::new(),
            blocks => {
                let (from, by) = (plural(blocks, "block"), proxies.client_address.name());
                format!("; proxies of {from} name the client ({by})")
            }
        };
        let webtorrent = limits.webtorrent.map_or("", |_| "; WebTorrent");
        format!(
            "{}; {} with up to {} connections each{behind}{webtorrent}",
            served.join("; "),
            plural(*workers, "web worker"),
            grouped(limits.connections)
        )
    }

    /// The number of workers of each kind, and their vCPUs.
    pub fn workers_line(&self) -> String {
        let kinds = match self.placement {
            Placement::Split { socket_workers, swarm_workers } => {
                format!("split: {socket_workers} socket workers, {swarm_workers} swarm workers")
            }
            Placement::Colocated { workers } => format!("{workers} colocated"),
        };
        match &self.pin {
            Some(vcpus) => format!("{kinds}, pinned to vCPU {}", format_list(vcpus)),
            None => format!("{kinds}, not pinned"),
        }
    }

    /// Interval, lifetime and numbers of peers.
    pub fn announce_line(&self) -> String {
        let announce = &self.announce;
        format!(
            "every {} s +-{} %, peers expire after {} s, up to {} peers over IPv4, {} over IPv6",
            announce.interval,
            announce.interval_jitter_percent,
            announce.peer_lifetime,
            announce.max_peers_v4,
            announce.max_peers_v6
        )
    }

    /// The greatest number of peers, and their memory.
    pub fn limits_line(&self) -> String {
        let memory = bytes(self.limits.peers.saturating_mul(BYTES_PER_PEER));
        format!("{} peers (up to about {memory})", grouped(self.limits.peers))
    }

    fn access_line(&self) -> String {
        let of = |listed: &Listed| {
            let inline = grouped(listed.hashes.len());
            let files: Vec<_> =
                listed.files.iter().map(|file| file.path.display().to_string()).collect();
            match files.join(" and ") {
                files if files.is_empty() => format!("{inline} info hashes"),
                files if listed.hashes.is_empty() => format!("those of {files}"),
                files => format!("those of {files} and {inline} more"),
            }
        };
        let list = match &self.access {
            Access::Open => "all info hashes".to_owned(),
            Access::Allow(listed) => format!("only {}", of(listed)),
            Access::Deny(listed) => format!("all info hashes except {}", of(listed)),
        };
        let bogons = if self.refuse_bogons { "refused" } else { "served" };
        format!("{list}; addresses that are not valid on the internet are {bogons}")
    }

    fn admin_line(&self) -> String {
        let Some(listen) = self.admin.listen else { return "off".to_owned() };
        let api = match &self.admin.token_file {
            Some(file) => format!("admin API with the token in {}", file.display()),
            None => "no admin API (set admin.token_file)".to_owned(),
        };
        format!("http://{}: metrics, health, statistics; {api}", listen.address)
    }

    fn control_line(&self) -> String {
        match self.control_socket() {
            Some(path) => format!("{}: for root and the tracker's user, no token", path.display()),
            None => "no socket, as there is no state directory".to_owned(),
        }
    }

    /// Where the state is kept.
    pub fn state_line(&self) -> String {
        match (&self.connection.key_file, &self.state_dir) {
            (Some(key), Some(dir)) => format!("{}, key in {}", dir.display(), key.display()),
            (Some(key), None) => format!("no directory, key in {}", key.display()),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => {
                "no directory: connection ids become invalid at exit (set --state-dir)".to_owned()
            }
        }
    }
}

fn by_systemd(passed: bool) -> &'static str {
    if passed { " (sockets opened by systemd)" } else { "" }
}

fn addresses(listen: &[Listen]) -> String {
    let one = |listen: &Listen| {
        let optional = if listen.optional { " (unless the host lacks IPv6)" } else { "" };
        format!("{}{optional}", listen.address)
    };
    listen.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn vcpus_line(host: &Host) -> String {
    let mut vcpus = host.vcpus.clone();
    vcpus.sort_unstable();
    let usable = match vcpus.as_slice() {
        [] => "unknown".to_owned(),
        vcpus => format!("{} usable: {}", vcpus.len(), format_list(vcpus)),
    };
    match host.cpu_quota {
        Some(quota) => format!("{usable}, with a quota of {}", thousandths(quota)),
        None => usable,
    }
}
