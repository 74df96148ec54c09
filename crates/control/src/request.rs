//! Requests of other threads to the main thread. Only the main thread changes settings and lists,
//! so two changes never run at the same time.

use std::fmt;
use std::path::PathBuf;

use log::LevelFilter;
use thiserror::Error;

use crate::api::admin::{ExportReport, ListUpdate, ReloadReport, SnapshotReport, Successor};
use crate::caller::Caller;
use onrush_tracker::access::overlay::ListChange;

/// A request. The main thread answers each one through its [`Responder`].
#[derive(Debug)]
pub enum Request {
    /// Reload the configuration. The error lists everything that is wrong with it.
    Reload {
        /// Whether a list that lost most of its entries is accepted.
        force: bool,
        /// Who requests it.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<ReloadReport, String>>,
    },
    /// Write the full scrape to its file.
    Export(Responder<Result<ExportReport, String>>),
    /// Write the peers to the snapshot.
    Snapshot(Responder<Result<SnapshotReport, String>>),
    /// Start the successor process. The response is sent when it takes over.
    Upgrade {
        /// Whether peers that do not fit into the successor are dropped, and a list that lost most
        /// of its entries is accepted.
        force: bool,
        /// Who requests it.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<Successor, String>>,
    },
    /// Change the lowest level that is logged, until the next reload. Responds with the former one.
    LogLevel(LevelFilter, Responder<LevelFilter>),
    /// Add info hashes to the access list or remove them.
    ChangeList {
        /// Later ones override earlier ones.
        changes: Vec<ListChange>,
        /// Who requests it.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<ListUpdate, ListChangeError>>,
    },
}

/// Why the access list was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListChangeError {
    /// `access.mode` is "open".
    #[error("there is no list: access.mode is \"open\"; write \"allow\" or \"deny\" and reload")]
    NoList,
    /// The list would exceed `limits.list_entries`.
    #[error("the list would have more than {0} info hashes: raise limits.list_entries and reload")]
    Full(usize),
    /// The change would remove every entry of the allow list.
    #[error("the allow list would be empty, and the tracker would serve no info hash")]
    NothingLeft,
    /// The change would be lost, because the successor process has already read the list.
    #[error("another process is about to take over: repeat the request in a second")]
    Upgrading,
    /// The journal that keeps changes across restarts cannot be written.
    #[error("{} cannot be written: {error}", path.display())]
    Journal {
        /// The journal's file.
        path: PathBuf,
        /// The cause.
        error: String,
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
