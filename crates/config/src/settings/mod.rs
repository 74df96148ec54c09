//! Settings as meant here: validated, resolved against this host, without a trace of how they
//! were written. Everything behind this door may trust them.
//!
//! | room | what is in it |
//! |---|---|
//! | `resolve` | [`Settings::resolve`]: from a [`Config`](crate::file::Config), flags and a [`Host`] |
//! | [`placement`] | how many workers of which kind, when nobody says |
//! | `host` | [`Host`]: what this host is |
//! | `summary` | [`Settings::summary`]: the settings for people |

pub mod placement;

mod host;
mod resolve;
mod summary;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onrush_proto::InfoHash;
use onrush_tracker::access::Lists;
use onrush_tracker::access::blocks::AddressBlock;
use onrush_tracker::limits::{AnnounceSettings, Placement, WorkerSettings};
use onrush_tracker::rules::Rules;

pub use host::{Host, Passed, granted, thousandths};
pub use resolve::BYTES_PER_PEER;

/// Everything that a tracker needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen. Never empty, no address twice.
    pub listen: Vec<Listen>,
    /// Whether these are the addresses of sockets that a service manager has opened.
    pub sockets_passed: bool,
    /// How many workers of which kind.
    pub placement: Placement,
    /// The vCPU of each worker in the order socket workers (or colocated workers), swarm
    /// workers; `None` leaves them to the scheduler.
    pub pin: Option<Vec<usize>>,
    /// How long a worker that has nothing to do looks on before it sleeps.
    pub spin: Duration,
    /// The kernel's part.
    pub socket: SocketSettings,
    /// What an announce gets.
    pub announce: AnnounceSettings,
    /// What a scrape gets.
    pub scrape: ScrapeSettings,
    /// How connection ids are made and how long they live.
    pub connection: ConnectionSettings,
    /// What happens when there is too much to do.
    pub overload: OverloadSettings,
    /// What there may be at most.
    pub limits: Limits,
    /// Which info hashes are served.
    pub access: Access,
    /// Which sources are not served.
    pub blocked: Blocked,
    /// Whether sources that cannot be peers on the internet are refused.
    pub refuse_bogons: bool,
    /// The user to become after start as root, and its group.
    pub user: Option<String>,
    /// The group to become; the user's own by default.
    pub group: Option<String>,
    /// Where the key is kept; `None` keeps it in memory.
    pub state_dir: Option<PathBuf>,
    /// When peers are written to the state directory.
    pub snapshot: SnapshotSettings,
    /// Where the full scrape goes.
    pub export: ExportSettings,
    /// Control and observation over HTTP.
    pub admin: AdminSettings,
    /// What is logged.
    pub log: LogSettings,
}

impl Settings {
    /// What the data path needs to know of the workers.
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

    /// The rules that these settings and `lists` give.
    pub fn rules(&self, lists: &Lists) -> Rules {
        let (shards, limits) = (self.placement.shards(), &self.limits);
        let rules =
            Rules::new(self.announce.clone(), shards, limits.peers, limits.idle_swarms, lists);
        Rules {
            max_hashes: self.scrape.max_hashes,
            refuse_bogons: self.refuse_bogons,
            log_addresses: self.log.addresses,
            ..rules
        }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Address and port.
    pub address: SocketAddr,
    /// Whether the tracker may go on without it when the host lacks the address family, or of HTTP when it
    /// is taken (true for the default, false for what somebody asked for by name).
    pub optional: bool,
}

/// The kernel's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// Bytes to ask for as SO_RCVBUF per socket; 0 leaves the system's default.
    pub receive_buffer: usize,
    /// Bytes to ask for as SO_SNDBUF per socket; 0 leaves the system's default.
    pub send_buffer: usize,
    /// Datagrams per receive call at most.
    pub batch: usize,
    /// Whether the kernel steers announces to the worker that owns their shard (colocated only).
    pub steering: bool,
}

/// What a scrape gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeSettings {
    /// Info hashes answered per request at most (hard limit 74).
    pub max_hashes: usize,
}

/// How connection ids are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Seconds for which an id is good at least; it may be good for twice as long.
    pub validity: u32,
    /// The key file; `None` for `connection.key` in the state directory.
    pub key_file: Option<PathBuf>,
}

/// What happens when there is too much to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverloadSettings {
    /// The percentage of datagrams that may be dropped before the tracker eases the load; 0 never minds.
    pub drop_share: u32,
    /// Seconds that clients are told to wait under the hardest pressure; not below the interval.
    pub longest_interval: u32,
}

/// What there may be at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Peers in all, over all shards.
    pub peers: u64,
    /// Swarms without peers whose `completed` is kept, over all shards.
    pub idle_swarms: u64,
    /// Batches that a socket worker may have under way.
    pub batches_in_flight: usize,
    /// Requests in one batch.
    pub batch_requests: usize,
    /// Scrapes that a socket worker may have under way.
    pub scrapes_in_flight: usize,
    /// Warnings of one kind per minute.
    pub warnings_per_minute: u32,
    /// Info hashes in the file of a list.
    pub list_entries: usize,
}

/// Which info hashes are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any.
    Open,
    /// Only these.
    Allow(Listed),
    /// Any but these.
    Deny(Listed),
}

/// What a list has, and where the rest of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Of the configuration itself; each once, in order.
    pub hashes: Vec<InfoHash>,
    /// A file with more of them.
    pub file: Option<PathBuf>,
}

/// Which sources are not served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// Those of the configuration itself.
    pub blocks: Vec<AddressBlock>,
    /// A file with more of them.
    pub file: Option<PathBuf>,
}

/// When peers are written to the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// Whether they are at all.
    pub enabled: bool,
    /// How often, beside at the end; zero for only then.
    pub every: Duration,
}

/// Where the full scrape goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportSettings {
    /// The file; its name is one that says what is to be in it.
    pub file: Option<PathBuf>,
    /// How often it is written; zero for only when it is asked for.
    pub every: Duration,
}

/// Control and observation over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where to listen; `None` is nowhere. Optional where nobody named it: the tracker then goes on without
    /// HTTP when the address is taken.
    pub listen: Option<Listen>,
    /// The file with the token of the admin API; `None` refuses everybody.
    pub token_file: Option<PathBuf>,
    /// Whether the list of info hashes is for everybody to read.
    pub publish_lists: bool,
    /// Connections at once.
    pub connections: usize,
    /// Bytes of a request's body at most.
    pub max_body: usize,
    /// For sending a request, making its answer, and reading that.
    pub timeout: Duration,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The least level that is shown.
    pub level: log::LevelFilter,
    /// How often totals are logged; zero for never.
    pub totals_every: Duration,
    /// Whether clients' addresses may appear at debug and trace.
    pub addresses: bool,
}

/// Something that the operator should know before the tracker serves: worth a warning, no reason
/// to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice(String);

impl Notice {
    /// A notice with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
