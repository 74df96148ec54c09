//! What other threads ask of the main one: it alone changes what is in force, so that two changes
//! never cross.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use onrush_tracker::access::ListKind;
use onrush_tracker::access::overlay::ListChange;

/// Something that is asked for. Whoever asks is told when it is done, or why not.
#[derive(Debug)]
pub enum Ask {
    /// Read the configuration again.
    Reload(Answer<Result<Reloaded, String>>),
    /// Write the full scrape to its file.
    Export(Answer<Result<Exported, String>>),
    /// Start the process that follows, and tell when it takes over.
    Upgrade(Answer<Result<Followed, String>>),
    /// Put these info hashes on the list and take these off it, of which later ones count.
    ChangeList(Vec<ListChange>, Answer<Result<ListChanged, NotChanged>>),
}

/// An export that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Where.
    pub path: PathBuf,
    /// How many swarms are in it.
    pub swarms: u64,
    /// Its length.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
}

impl std::fmt::Display for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (swarms, bytes, seconds) = (self.swarms, self.bytes, self.took.as_secs_f64());
        write!(f, "{swarms} swarms to {}, {bytes} bytes in {seconds:.2} s", self.path.display())
    }
}

/// The process that takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Its number.
    pub process: u32,
    /// Which build it is.
    pub version: String,
}

/// What changes of the list have led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListChanged {
    /// Which list it is.
    pub kind: ListKind,
    /// How many info hashes it has now.
    pub listed: usize,
    /// How many of those that were named were not as they are now.
    pub changed: usize,
    /// Whether it outlives the process: there is a state directory.
    pub lasting: bool,
}

/// Why the list is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotChanged {
    /// Everything is served.
    #[error("there is no list: access.mode is \"open\"; say \"allow\" or \"deny\" and reload")]
    NoList,
    /// It would be longer than is allowed.
    #[error("the list would have more than {0} info hashes: raise limits.list_entries and reload")]
    Full(usize),
    /// Nothing would be served any more.
    #[error("nothing would be left of the allow list, and nothing would be served")]
    NothingLeft,
    /// It would be lost.
    #[error("another process is about to take over: ask that one, in a second")]
    Upgrading,
    /// It cannot be kept.
    #[error("{} cannot be written: {error}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
}

/// What a reload has led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Keys whose values have changed.
    pub changed: Vec<&'static str>,
    /// Keys whose old values stay in force until an upgrade or a restart.
    pub restart: Vec<&'static str>,
    /// What the operator should know of it, in sentences.
    pub notices: Vec<String>,
}

/// The way back to whoever asked. It must not wait for anything: the main thread calls it.
pub struct Answer<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Answer<T> {
    /// By this call.
    pub fn new(tell: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(tell))
    }

    /// Tells whoever asked.
    pub fn tell(self, what: T) {
        (self.0)(what);
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}
