//! The tracker's state as the main thread publishes it to other threads. Workers never read it, so
//! none of them can wait for its mutex.

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use crossbeam_channel::{Sender, TrySendError};
use onrush_swarm::ShardMap;

use crate::api::admin::{ConfigDifference, ListCheck, ListOverrides};
use crate::api::stats::{CertificateStats, LastReload, Overload};
use crate::caller::Caller;
use crate::files::Files;
use crate::history::History;
use crate::mutex::lock;
use crate::request::Request;
use onrush_config::{Problems, Settings};
use onrush_tracker::access::{AccessList, ListKind, Lists};
use onrush_tracker::lanes::Mailbox;
use onrush_tracker::member::Member;
use onrush_tracker::orders::Orders;
use onrush_tracker::running::Addresses;

/// A running tracker as other threads see it. Cheap to clone.
#[derive(Clone)]
pub struct View {
    /// Parts that do not change while the tracker runs.
    pub parts: Arc<Parts>,
    /// When the tracker started, on the monotonic clock and on the system's clock.
    pub started: (Instant, SystemTime),
    in_force: Arc<Mutex<InForce>>,
    requests: Sender<Request>,
}

/// Parts that do not change while the tracker runs.
pub struct Parts {
    /// All members by number. One shared list: cloning the `Arc` of each one's counters instead
    /// would write to a cache line of each member.
    pub members: Arc<[Member]>,
    /// Sends orders to the workers.
    pub orders: Orders,
    /// The lanes to the workers, in their order.
    pub mailboxes: Arc<[Mailbox]>,
    /// Maps info hashes to shards.
    pub map: ShardMap,
    /// The served addresses.
    pub addresses: Addresses,
    /// State of the files that the daemon writes.
    pub files: Files,
    /// Rates, peers and swarms over time.
    pub history: Arc<History>,
    /// Reads the number of log lines lost since the start.
    pub lost_log_lines: fn() -> u64,
    /// Reads the configuration again and compares it with these settings.
    pub compare: Compare,
    /// The access list that a reload would put into force with other files.
    pub candidate: Candidate,
}

/// Makes the access list of this kind that a reload would put into force if these were its files,
/// with the changes that override them, and why a reload refuses the list, if it does.
pub type Candidate =
    Box<dyn Fn(&InForce, ListKind, Vec<NamedHashes>) -> (AccessList, ListCheck) + Send + Sync>;

/// A file's name and its info hashes.
pub type NamedHashes = (String, Vec<[u8; 20]>);

/// Reads the configuration again and compares it with settings.
pub type Compare = Box<dyn Fn(&Settings) -> Result<Vec<ConfigDifference>, Problems> + Send + Sync>;

/// The settings, the lists and other state in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The settings, with the level of the log that a request has changed.
    pub settings: Arc<Settings>,
    /// The sender of that request.
    pub log_level_by: Option<Caller>,
    /// The access lists.
    pub lists: Lists,
    /// Changes that override files of the list; `None` if there are none.
    pub overrides: Option<ListOverrides>,
    /// The names of the list's files, and the number of entries with which a reload compares each.
    pub most_entries: Vec<(String, usize)>,
    /// The overload level.
    pub overload: Overload,
    /// The last reload.
    pub last_reload: LastReload,
    /// The certificates of HTTPS.
    pub certificates: Arc<[CertificateStats]>,
}

impl View {
    /// A view of a tracker that starts now. Requests from other threads arrive at `requests`.
    pub fn new(parts: Parts, in_force: InForce, requests: Sender<Request>) -> Self {
        Self {
            parts: Arc::new(parts),
            started: (Instant::now(), SystemTime::now()),
            in_force: Arc::new(Mutex::new(in_force)),
            requests,
        }
    }

    /// All members by number.
    pub fn members(&self) -> &[Member] {
        &self.parts.members
    }

    /// The settings and lists in force at the moment.
    pub fn in_force(&self) -> InForce {
        lock(&self.in_force).clone()
    }

    /// Publishes the settings and lists that are in force from now on.
    pub fn publish(&self, in_force: InForce) {
        *lock(&self.in_force) = in_force;
    }

    /// Sends a request to the main thread.
    ///
    /// # Errors
    /// When the main thread's queue is full or the thread has exited.
    pub fn request(&self, request: Request) -> Result<(), TrySendError<Request>> {
        self.requests.try_send(request)
    }
}
