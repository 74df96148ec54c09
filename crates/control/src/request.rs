//! Requests of other threads to the main thread. Only the main thread changes settings and lists,
//! so two changes never run at the same time.

use std::fmt;
use std::path::PathBuf;

use log::LevelFilter;
use thiserror::Error;

use crate::api::admin::{ExportReport, ListUpdate, ReloadReport, SnapshotReport, Successor};
use crate::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate};
use crate::caller::Caller;
use onrush_tracker::access::overlay::ListChange;

/// A request. The main thread answers each one through its [`Responder`].
#[derive(Debug)]
pub enum Request {
    /// Reload the configuration. The error lists everything that is wrong with it.
    Reload {
        /// Whether a list that lost most of its entries is accepted.
        force: bool,
        /// Its sender.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<ReloadReport, String>>,
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
    /// Add info hashes to the access list or remove them.
    ChangeList {
        /// Later ones override earlier ones.
        changes: Vec<ListChange>,
        /// Its sender.
        caller: Caller,
        /// Gets the result.
        responder: Responder<Result<ListUpdate, ListChangeError>>,
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
        responder: Responder<Result<BlockUpdate, BlockError>>,
    },
    /// Remove a block of sources.
    Unblock {
        /// Its prefix.
        prefix: String,
        /// Its sender.
        caller: Caller,
        /// Gets the block.
        responder: Responder<Result<BlockEntry, BlockError>>,
    },
}

/// Why no block was made or removed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// Prefix, duration or reason.
    #[error("{0}")]
    Invalid(String),
    /// There are as many blocks as possible.
    #[error(
        "there are {0} blocks already, which is the maximum: a long list belongs into \
         access.blocked_file"
    )]
    Full(usize),
    /// No block has exactly this prefix.
    #[error("{prefix} is not blocked by this exact prefix: `onrush ctl blocks` lists the blocks{}",
        covering.as_ref().map(|block| format!("; {block} contains it")).unwrap_or_default())]
    NotBlocked {
        /// The prefix.
        prefix: String,
        /// A block that contains it.
        covering: Option<String>,
    },
    /// The change would be lost, because the successor has already read the blocks.
    #[error("a handoff is in progress: repeat the request in a second")]
    Upgrading,
    /// The file that keeps blocks across restarts cannot be written. Nothing has changed.
    #[error("nothing has changed, as {path} cannot be written: {error}")]
    File {
        /// The file.
        path: String,
        /// The cause.
        error: String,
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
    /// The change would be lost, because the successor has already read the list.
    #[error("a handoff is in progress: repeat the request in a second")]
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
