//! The settings of the daemon: checked, resolved against the host, and independent of how they
//! were written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use log::LevelFilter;
use onrush_proto::InfoHash;
use onrush_swarm::{ShardSettings, SourceLimits};
use onrush_toml_keys::{Value, Values};
use onrush_tracker::access::Lists;
use onrush_tracker::access::addresses::{AddressBlock, AddressSet};
use onrush_tracker::limits::{AnnounceSettings, Placement, WebLimits, WorkerSettings};
use onrush_tracker::proxies::Proxies;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::Scheme;

use crate::host::PassedKinds;
pub use crate::keys::{
    AdminSettings, ConnectionSettings, ExportSettings, Limits, LogSettings, OverloadSettings,
    ScrapeSettings, SnapshotSettings, SocketSettings, XDP_INTERFACES, XdpConnects, XdpMode,
    XdpReplies, XdpSettings,
};
use crate::keys::{LOG_LEVEL, level_word};
use crate::values::{ListFile, ListenAt};
pub use crate::values::{Listen, LogFormat};

/// Memory per peer at most, on average: one alone in its swarm, with its share of the tables,
/// takes 58 to 61 bytes (crates/lab/programs/memory.rs). The text of `limits.peers` has it, too.
pub const BYTES_PER_PEER: u64 = 64;

/// The name of the control socket in the state directory. That of the upgrade socket is as long.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";

/// The settings of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The addresses to listen on: at least one, each once.
    pub listen: Vec<Listen>,
    /// The kinds of sockets whose addresses are those that a service manager has opened.
    pub sockets_passed: PassedKinds,
    /// The number of workers of each kind.
    pub placement: Placement,
    /// The vCPU of each worker in the order socket workers (or colocated workers), swarm
    /// workers; `None` leaves them to the scheduler.
    pub pin: Option<Vec<usize>>,
    /// How long an idle worker polls before it sleeps.
    pub spin: Duration,
    /// Options of each UDP socket.
    pub socket: SocketSettings,
    /// The XDP program.
    pub xdp: XdpSettings,
    /// Announces and scrapes over HTTP.
    pub http: HttpSettings,
    /// Replies to announces, and how long peers are stored.
    pub announce: AnnounceSettings,
    /// Replies to scrapes.
    pub scrape: ScrapeSettings,
    /// Connection ids.
    pub connection: ConnectionSettings,
    /// Reaction to overload.
    pub overload: OverloadSettings,
    /// Upper bounds on memory, queues and log lines.
    pub limits: Limits,
    /// The allowed or denied info hashes.
    pub access: Access,
    /// Blocked sources of the configuration itself.
    pub blocked: Vec<AddressBlock>,
    /// A file with further ones.
    pub blocked_file: Option<PathBuf>,
    /// Whether sources that are not valid on the internet are refused.
    pub refuse_bogons: bool,
    /// The user to switch to at start.
    pub user: Option<String>,
    /// The group to switch to; `None` for the primary group of `user`.
    pub group: Option<String>,
    /// The directory for persistent state; `None` keeps the key of connection ids in memory.
    pub state_dir: Option<PathBuf>,
    /// Snapshots of all peers.
    pub snapshot: SnapshotSettings,
    /// Exports of the full scrape.
    pub export: ExportSettings,
    /// The admin side over HTTP.
    pub admin: AdminSettings,
    /// The log.
    pub log: LogSettings,
    /// The values of all keys before they were resolved: reloads compare these.
    pub values: Values,
}

impl Settings {
    /// The path of the Unix socket at which the admin side is served, below `state_dir`.
    pub fn control_socket(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|directory| directory.join(CONTROL_SOCKET))
    }

    /// These settings with another `log.level`.
    #[must_use]
    pub fn with_log_level(&self, level: LevelFilter) -> Self {
        let mut settings = self.clone();
        settings.log.level = level;
        settings.values.insert(LOG_LEVEL.to_owned(), level_word(level).into());
        settings
    }

    /// The settings of the workers.
    pub fn workers(&self) -> WorkerSettings {
        WorkerSettings {
            placement: self.placement,
            pin: self.pin.clone(),
            spin: self.spin,
            receive_batch: self.socket.batch,
            batches_in_flight: self.limits.batches_in_flight,
            batch_requests: self.limits.batch_requests,
            scrapes_in_flight: self.limits.scrapes_in_flight,
            connection_validity: self.connection.validity,
        }
    }

    /// The entry of `list`, which is `listen`, `http.listen` or `http.tls_listen`, that an address
    /// comes from, like `listen.0`.
    pub fn listen_key(&self, list: &str, address: SocketAddr) -> String {
        let has = |entry: &Value| {
            let at = entry.as_str().and_then(|text| text.parse().ok());
            at.is_some_and(|ListenAt(at)| at.iter().any(|listen| listen.address == address))
        };
        let entries = self.values.get(list).and_then(Value::as_array);
        match entries.and_then(|entries| entries.iter().position(has)) {
            Some(nth) => format!("{list}.{nth}"),
            None => list.to_owned(),
        }
    }

    /// The rules that these settings and `lists` give. The shards divide the limits among them:
    /// each may store a peer.
    pub fn rules(&self, lists: &Lists) -> Rules {
        let (announce, limits) = (self.announce.clone(), &self.limits);
        let shards = self.placement.shards() as u64;
        let sources = SourceLimits {
            peers_per_swarm: limits.source_peers_per_swarm,
            peers: limits.source_peers.unwrap_or(0),
            new_swarms: limits.source_new_swarms,
        };
        let shard = ShardSettings {
            interval: announce.interval,
            interval_jitter_percent: announce.interval_jitter_percent,
            peer_lifetime: announce.peer_lifetime,
            completed_retention: announce.completed_retention,
            max_peers: (limits.peers / shards).max(1),
            max_idle_swarms: limits.idle_swarms.div_ceil(shards),
            sources: sources.share(shards),
        };
        Rules {
            announce,
            max_hashes: self.scrape.max_hashes,
            access: lists.access.clone(),
            blocked: lists.refused().clone(),
            blocks: lists.blocks.clone(),
            forbidden: lists.forbidden.clone(),
            refuse_bogons: self.refuse_bogons,
            log_addresses: self.log.addresses,
            shard,
            trusted: AddressSet::new(limits.trusted_sources.iter().copied()).into(),
            proxies: self.http.proxies.clone(),
            kernel_filter: false,
        }
    }
}

/// Announces and scrapes over HTTP and HTTPS. Off without addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// The TCP addresses to listen on for HTTP, each once.
    pub listen: Vec<Listen>,
    /// The TCP addresses for HTTPS; none of them is in `listen`.
    pub tls_listen: Vec<Listen>,
    /// The files of certificates, each with that of its key: at least one with `tls_listen`.
    /// Without it nothing reads them.
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// The number of web workers, at least 1.
    pub workers: usize,
    /// The limits of each of them.
    pub limits: WebLimits,
    /// The proxies that are trusted to name the client.
    pub proxies: Arc<Proxies>,
}

impl HttpSettings {
    /// The list of the configuration with the addresses at which this is accepted.
    pub fn list(scheme: Scheme) -> &'static str {
        match scheme {
            Scheme::Http => "http.listen",
            Scheme::Https => "http.tls_listen",
        }
    }

    /// The addresses to listen on, with what is accepted there.
    pub fn listeners(&self) -> Vec<(Scheme, Listen)> {
        let http = self.listen.iter().map(|listen| (Scheme::Http, *listen));
        http.chain(self.tls_listen.iter().map(|listen| (Scheme::Https, *listen))).collect()
    }

    /// Whether anything is served over HTTP or HTTPS.
    pub fn is_on(&self) -> bool {
        !self.listen.is_empty() || !self.tls_listen.is_empty()
    }
}

/// The allowed or denied info hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// There is no list.
    Open,
    /// Only listed info hashes are served.
    Allow(Listed),
    /// Listed info hashes are not served.
    Deny(Listed),
}

/// A list of info hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Entries of the configuration itself, in ascending order, each once.
    pub hashes: Vec<InfoHash>,
    /// Files with further ones.
    pub files: Vec<ListFile>,
    /// The error text for those that have none of their own.
    pub error: String,
}
