//! From what is written to what is meant: the flags over the file, the host under both. Finds
//! what contradicts itself, and reports it together with what was wrong with single keys.

mod passed;
mod workers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::summary::bytes;
use super::{
    Access, AdminSettings, Blocked, ConnectionSettings, ExportSettings, Host, Limits, Listed,
    Listen, LogSettings, Notice, OverloadSettings, ScrapeSettings, Settings, SnapshotSettings,
    SocketSettings,
};
use crate::export_format::{NAMES, of_name};
use crate::file::{AccessMode, AdminAt, Config, Findings, Origin, Problem, Problems, Written};
use crate::flags::Flags;
use onrush_tracker::limits::{AnnounceSettings, Placement};

/// Memory that a peer takes at most, on average: one alone in its swarm, with its share of the
/// tables, 58 to 61 bytes as measured (crates/lab/programs/memory.rs). The text of
/// `limits.peers` follows it.
pub const BYTES_PER_PEER: u64 = 64;

/// Peers in all, where memory allows and nobody says otherwise.
const PEERS: u64 = 20_000_000;

/// The longest interval that can be configured, in seconds.
const LONGEST_INTERVAL: u32 = 43_200;
/// The longest lifetime of a peer, in seconds.
const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;

/// Where HTTP listens when nobody says otherwise.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);

impl Settings {
    /// Settles what a configuration and flags mean on a host.
    ///
    /// # Errors
    /// Everything that is wrong with them: what [`Config`] found while reading, and what
    /// contradicts itself or cannot be on this host.
    pub fn resolve(
        mut config: Config,
        args: &Flags,
        host: &Host,
    ) -> Result<(Self, Vec<Notice>), Problems> {
        let notices = args.overlay(&mut config);
        let findings = std::mem::take(&mut config.findings);
        let mut resolution = Resolution { config: &config, host, findings, notices };
        let settings = resolution.settings();
        match resolution.findings.into_problems() {
            Some(problems) => Err(problems),
            None => Ok((settings, resolution.notices)),
        }
    }
}

struct Resolution<'a> {
    config: &'a Config,
    host: &'a Host,
    findings: Findings,
    notices: Vec<Notice>,
}

impl<'a> Resolution<'a> {
    fn settings(&mut self) -> Settings {
        let written = self.written();
        let placement = self.placement();
        let placement = self.by_sockets(placement);
        let pin = self.pin(placement);
        self.identity();
        Settings {
            listen: self.listen(),
            sockets_passed: self.host.passed.is_some(),
            placement,
            spin: self.spin(placement, pin.is_some()),
            pin,
            socket: SocketSettings {
                receive_buffer: written.receive_buffer.value,
                send_buffer: written.send_buffer.value,
                batch: written.batch.value,
                steering: written.steering.value,
            },
            announce: self.announce(),
            scrape: ScrapeSettings { max_hashes: written.max_hashes.value },
            connection: ConnectionSettings {
                validity: written.validity.value,
                key_file: written.key_file.value.clone(),
            },
            overload: self.overload(),
            limits: self.limits(placement),
            access: self.access(),
            blocked: Blocked {
                blocks: written.blocked.value.iter().map(|item| item.value).collect(),
                file: written.blocked_file.value.clone(),
            },
            refuse_bogons: written.refuse_bogons.value,
            user: written.user.value.clone(),
            group: written.group.value.clone(),
            state_dir: written.state_dir.value.clone().or_else(|| self.host.state_dir()),
            snapshot: SnapshotSettings {
                enabled: written.snapshot_enabled.value,
                every: Duration::from_secs(u64::from(written.snapshot_every.value)),
            },
            export: self.export(),
            admin: self.admin(),
            log: LogSettings {
                level: written.log_level.value.0,
                totals_every: Duration::from_secs(u64::from(written.totals_every.value)),
                addresses: written.log_addresses.value,
            },
        }
    }

    fn listen(&mut self) -> Vec<Listen> {
        let mut listen: Vec<Listen> = Vec::new();
        for item in &self.written().listen.value {
            for (address, optional) in item.value.addresses() {
                // Port 0 is a new port each time.
                let twice = address.port() != 0 && listen.iter().any(|l| same(l.address, address));
                if twice {
                    let what = format!("{address} stands twice in the list");
                    self.problem(&item.origin, "listen", what, None);
                }
                listen.push(Listen { address, optional });
            }
        }
        self.passed_instead(listen)
    }

    fn announce(&mut self) -> AnnounceSettings {
        let written = self.written();
        let (interval, jitter) = (written.interval.value, written.interval_jitter_percent.value);
        let longest_wait = interval + (interval * jitter).div_ceil(100);
        let lifetime = &written.peer_lifetime;
        let peer_lifetime =
            lifetime.value.unwrap_or_else(|| interval.saturating_mul(2).min(LONGEST_LIFETIME));
        let sure =
            [&lifetime.origin, &written.interval.origin, &written.interval_jitter_percent.origin]
                .iter()
                .all(|origin| **origin != Origin::Broken);
        if sure && peer_lifetime < longest_wait {
            let what = format!(
                "{peer_lifetime} seconds, but clients are told to come back after up to \
                 {longest_wait} (interval {interval}, jitter {jitter} %)"
            );
            let help = "a peer would be forgotten before it announces again: twice the interval is \
                        right, and is taken when this key is absent";
            let origin = if lifetime.origin.is_given() {
                &lifetime.origin
            } else {
                &written.interval.origin
            };
            self.problem(origin, "announce.peer_lifetime", what, Some(help.to_owned()));
        }
        let (default, most) = (&written.default_peers, &written.max_peers_v4);
        if default.origin.is_given() && most.origin.is_given() && default.value > most.value {
            let what =
                format!("found {}, but no reply has more than {}", default.value, most.value);
            let help = "raise `max_peers_v4`, or lower this".to_owned();
            self.problem(&default.origin, "announce.default_peers", what, Some(help));
        }
        AnnounceSettings {
            interval,
            interval_jitter_percent: jitter,
            default_peers: default.value,
            max_peers_v4: most.value,
            max_peers_v6: written.max_peers_v6.value,
            peer_lifetime,
            completed_retention: written.completed_retention.value,
        }
    }

    fn overload(&mut self) -> OverloadSettings {
        let written = self.written();
        let (interval, longest) = (&written.interval, &written.longest_interval);
        let sure = interval.origin != Origin::Broken && longest.origin != Origin::Broken;
        if let Some(seconds) = longest.value
            && seconds < interval.value
            && sure
        {
            let what = format!("{seconds} seconds, but the interval is {}", interval.value);
            let help = "under pressure clients are told to wait longer, not shorter: twice the interval is \
                        taken when this key is absent";
            self.problem(&longest.origin, "overload.longest_interval", what, Some(help.to_owned()));
        }
        OverloadSettings {
            drop_share: written.drop_share.value,
            longest_interval: longest
                .value
                .unwrap_or_else(|| interval.value.saturating_mul(2).min(LONGEST_INTERVAL)),
        }
    }

    fn limits(&mut self, placement: Placement) -> Limits {
        let written = self.written();
        Limits {
            peers: self.peers(),
            idle_swarms: written.idle_swarms.value,
            batches_in_flight: self.batches_in_flight(placement),
            batch_requests: written.batch_requests.value,
            scrapes_in_flight: written.scrapes_in_flight.value,
            warnings_per_minute: written.warnings_per_minute.value,
            list_entries: written.list_entries.value,
        }
    }

    fn peers(&mut self) -> u64 {
        let Some(peers) = self.written().peers.value else {
            let held = self.host.memory.map_or(PEERS, |memory| memory / 2 / BYTES_PER_PEER);
            return PEERS.min(held).max(1_000);
        };
        let most = peers.saturating_mul(BYTES_PER_PEER);
        if let Some(memory) = self.host.memory.filter(|memory| *memory < most) {
            self.notices.push(Notice::new(format!(
                "limits.peers = {peers} may take {}, but this host has {}",
                bytes(most),
                bytes(memory)
            )));
        }
        peers
    }

    fn batches_in_flight(&mut self, placement: Placement) -> usize {
        let shards = placement.shards();
        let field = &self.written().batches_in_flight;
        let Some(batches) = field.value else { return (8 * shards).max(32) };
        if batches < 2 * shards {
            let what = format!(
                "found {batches}, but {shards} workers own swarms, and each needs one batch that is \
                 being filled and one that is under way"
            );
            let help = format!("{} at least, {} for bursts", 2 * shards, 8 * shards);
            self.problem(&field.origin, "limits.batches_in_flight", what, Some(help));
        }
        batches
    }

    fn access(&mut self) -> Access {
        let written = self.written();
        let (mode, list) = (&written.access_mode, &written.info_hashes);
        let mut hashes: Vec<_> = list.value.iter().map(|item| item.value).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let twice = list.value.len() - hashes.len();
        if twice > 0 {
            let what = format!("{twice} entries of access.info_hashes stand there more than once");
            self.notices.push(Notice::new(what));
        }
        let file = &written.access_file;
        let has_file = file.value.is_some();
        let broken = [&mode.origin, &list.origin, &file.origin].contains(&&Origin::Broken);
        match mode.value {
            AccessMode::Open if (!hashes.is_empty() || has_file) && !broken => {
                let what = "there is a list, but `mode` is \"open\", which has no use for one";
                let help = "say `mode = \"allow\"` or `mode = \"deny\"`, or take the list out";
                let (origin, key) = match has_file {
                    true => (&file.origin, "access.file"),
                    false => (&list.origin, "access.info_hashes"),
                };
                self.problem(origin, key, what.to_owned(), Some(help.to_owned()));
            }
            AccessMode::Allow if hashes.is_empty() && !has_file && !broken => {
                let what = "nothing would be served: \"allow\" goes with a list, and it is empty";
                let help = "give the info hashes to serve in `info_hashes`, or a `file` of them";
                self.problem(&mode.origin, "access.mode", what.to_owned(), Some(help.to_owned()));
            }
            AccessMode::Deny if hashes.is_empty() && !has_file && !broken => {
                self.notices.push(Notice::new(
                    "access.mode is \"deny\" with an empty list: everything is served".to_owned(),
                ));
            }
            _ => {}
        }
        let listed = Listed { hashes, file: file.value.clone() };
        match mode.value {
            AccessMode::Open => Access::Open,
            AccessMode::Allow => Access::Allow(listed),
            AccessMode::Deny => Access::Deny(listed),
        }
    }

    fn export(&mut self) -> ExportSettings {
        let written = self.written();
        let file = &written.export_file;
        if let Some(path) = file.value.as_deref()
            && of_name(path).is_none()
        {
            let what = format!("{} does not say what is to be in it", path.display());
            let help = Some(format!("its name ends with {NAMES}"));
            self.problem(&file.origin, "export.file", what, help);
        }
        let every = Duration::from_secs(u64::from(written.export_every.value));
        ExportSettings { file: file.value.clone(), every }
    }

    fn admin(&mut self) -> AdminSettings {
        let written = self.written();
        let listen = match written.admin_listen.value {
            Some(AdminAt::Off) => None,
            Some(AdminAt::Address(address)) => Some(Listen { address, optional: false }),
            None => Some(Listen { address: ADMIN, optional: true }),
        };
        let token_file = written.admin_token_file.value.clone();
        if let (Some(Listen { address, .. }), Some(_)) = (listen, &token_file)
            && !address.ip().to_canonical().is_loopback()
        {
            self.notices.push(Notice::new(format!(
                "the admin API listens on {address}, beyond this host, and its token passes unencrypted: let \
                 a proxy with TLS in front, and admin.listen = \"127.0.0.1:{}\"",
                address.port()
            )));
        }
        AdminSettings {
            listen,
            token_file,
            publish_lists: written.admin_publish_lists.value,
            connections: written.admin_connections.value,
            max_body: written.admin_max_body.value,
            timeout: Duration::from_secs(u64::from(written.admin_timeout.value)),
        }
    }

    fn identity(&mut self) {
        let written = self.written();
        if written.group.value.is_some() && written.user.origin == Origin::Default {
            let what = "a group is taken on together with a user, and there is none".to_owned();
            let help = "give `user` too, or start the tracker with this group".to_owned();
            self.problem(&written.group.origin, "group", what, Some(help));
        }
    }

    fn written(&self) -> &'a Written {
        &self.config.written
    }

    fn problem(&mut self, origin: &Origin, key: &str, what: String, help: Option<String>) {
        let source = &self.config.source;
        self.findings.add(|| match origin {
            Origin::File(span) => Problem::at(source.place(span.clone()), key, what, help),
            Origin::Flag(flag) => Problem::at_flag(flag, key, what, help),
            Origin::Default | Origin::Broken => Problem::on_host(key, what, help),
        });
    }
}

/// Whether two sockets would be bound to the same place. The flow label of IPv6 has no part in
/// that.
fn same(a: SocketAddr, b: SocketAddr) -> bool {
    let scope = |address| match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    (a.ip(), a.port(), scope(a)) == (b.ip(), b.port(), scope(b))
}
