//! Requests of other threads to the main thread. Only the main thread changes settings and lists,
//! so two changes never run at the same time.

use std::fmt;

use log::LevelFilter;

use crate::api::Problem;
use crate::api::admin::{
    ExportReport, ListChanges, ListUpdate, ReloadReport, SnapshotReport, Successor,
};
use crate::api::blocks::{BlockList, BlockRequest, BlockUpdate};
use crate::caller::Caller;
use onrush_proto::InfoHash;
use onrush_tracker::access::overlay::ListChange;

/// A request. The main thread answers each one through its [`Responder`].
#[derive(Debug)]
pub enum Request {
    /// Reload the configuration.
    Reload {
        /// Whether a list that lost most of its entries is accepted.
        force: bool,
        /// Its sender.
        caller: Caller,
        /// Gets the result. The error lists everything that is wrong with the configuration.
        responder: Responder<Result<ReloadReport, Problem>>,
    },
    /// Write the full scrape to its file.
    Export(Responder<Result<ExportReport, String>>),
    /// Write the peers to the snapshot.
    Snapshot(Responder<Result<SnapshotReport, String>>),
    /// Start the successor. The response is sent when it receives the sockets.
    Upgrade {
        /// Whether peers that do not fit into the successor are dropped, and a list that lost most
        /// of its entries is accepted.
        force: bool,
        /// Its sender.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<Successor, String>>,
    },
    /// Change the lowest level that is logged, until the next reload. Responds with the former one.
    LogLevel {
        /// The level.
        level: LevelFilter,
        /// Its sender.
        caller: Caller,
        /// Receives the former level.
        responder: Responder<LevelFilter>,
    },
    /// Add info hashes to the access list, remove them, or reset them.
    ChangeList {
        /// Later ones override earlier ones. Either all are resets, or none.
        changes: Vec<ListChange>,
        /// Its sender.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<ListUpdate, Problem>>,
    },
    /// The changes that the files of the access list do not have.
    ListChanges {
        /// The first info hash.
        from: InfoHash,
        /// Most changes.
        limit: usize,
        /// Gets them.
        responder: Responder<ListChanges>,
    },
    /// All blocks of sources.
    Blocks(Responder<BlockList>),
    /// Block sources.
    Block {
        /// The sources.
        block: Box<BlockRequest>,
        /// Its sender.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<BlockUpdate, Problem>>,
    },
    /// Remove a block of sources.
    Unblock {
        /// Its prefix.
        prefix: String,
        /// Its sender.
        caller: Caller,
        /// Gets the former block, as the one of an update.
        responder: Responder<Result<BlockUpdate, Problem>>,
    },
}

/// Sends the response to a request. The callback must not block: the main thread calls it.
pub struct Responder<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Responder<T> {
    /// A responder that calls `respond`.
    pub fn new(respond: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(respond))
    }

    /// Sends the response.
    pub fn respond(self, response: T) {
        (self.0)(response);
    }
}

impl<T> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}
