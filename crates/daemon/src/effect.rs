//! Effects: what the supervisor decides, and the executor carries out in this order. Owners of
//! state touch neither files nor threads nor workers; every way in which they act on the rest of
//! the process is a variant of [`Effect`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::Sender;
use log::{Level, LevelFilter};
use onrush_net::steering::Steering;
use onrush_proto::InfoHash;

use crate::certificate_files::FileStates;
use crate::notice::Notice;
use onrush_config::Settings;
use onrush_control::Token;
use onrush_control::api::admin::{ExportReport, SnapshotReport};
use onrush_control::request::Responder;
use onrush_replica::delta::CompletedHandoff;
use onrush_replica::handoff::{InheritedState, IntervalCommitment};
use onrush_store::blocks::Block;
use onrush_store::lists::journal::ReplayedList;
use onrush_tracker::access::overlay::ListChange;
use onrush_tracker::access::{AccessList, ListKind};
use onrush_tracker::running::WorkerFailure;
use onrush_web::tls::certificates::Certificates;

/// An action of the process outside the supervisor.
#[derive(Debug)]
pub enum Effect {
    /// Write an entry to the log.
    Notice(Notice),
    /// Send the rules in force to the workers, and show what is in force to other threads.
    Publish,
    /// Show what is in force to other threads: the rules are unchanged.
    Show,
    /// Respond to a request, with the value that the responder holds.
    Reply(Responder<()>),
    /// Write a record to disk, and report it by `Event::Recorded`.
    Record(ChangeRecord),
    /// Rewrite the journal of the list without changes that the files of the list contain.
    CompactJournal(ReplayedList),
    /// Merge the overlay of a list on a thread of its own, and report it by `Event::Merged`.
    Merge(Arc<AccessList>),
    /// Remove swarms from every shard, and report their numbers by `Event::Removed`.
    Remove(Removal),
    /// Read the configuration on a thread of its own, and report it by `Event::Loaded`.
    Load,
    /// Put the keys of files that are written periodically into force.
    ReconfigureFiles(Arc<Settings>),
    /// Look whether the files of certificates have changed, and report it by
    /// `Event::Certificates`.
    LookAtCertificates(FileStates),
    /// Use these certificates for new connections.
    ReplaceCertificates(Arc<Certificates>),
    /// Put the token of the admin API into force.
    SetToken(Option<Token>),
    /// Put the settings of the log into force.
    SetLog(LogControl),
    /// Change the steering of announces.
    Steer(SteeringChange),
    /// Write the interval commitment for the process after this one: at once if it has changed,
    /// otherwise once a minute.
    StoreCommitment {
        /// The commitment; `None` if only the configured interval was sent.
        commitment: Option<IntervalCommitment>,
        /// Whether it has changed.
        changed: bool,
    },
    /// Write the peers to the snapshot.
    Snapshot(Responder<Result<SnapshotReport, String>>),
    /// Write the full scrape to its file.
    Export(Option<Responder<Result<ExportReport, String>>>),
    /// Write the history, for a successor that reads it soon.
    WriteHistory,
    /// Start a successor, and report it by `Event::Launched`.
    Launch {
        /// Whether peers that do not fit into the successor are dropped.
        force: bool,
    },
    /// Kill the successor that this process has started.
    KillSuccessor,
    /// Send the state that a successor inherits, with the snapshot that this process could not
    /// read.
    SendInherited(Box<InheritedState>, Sender<InheritedState>),
    /// Notify the service manager.
    Notify(ServiceState),
    /// End the process.
    End(End),
}

/// How a tracker ends.
#[derive(Debug)]
pub enum End {
    /// A signal requested it.
    Stopped,
    /// A worker failed.
    WorkerFailed(WorkerFailure),
    /// A successor has the sockets.
    Handoff(CompletedHandoff),
}

/// The settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogControl {
    /// The lowest level that is logged.
    pub level: LevelFilter,
    /// Whether entries are JSON.
    pub json: bool,
    /// Notices of each kind per minute, for those that have a limit.
    pub warnings_per_minute: u32,
}

/// A record that is written before a change is in force; what follows if the disk refuses it is
/// decided by the owner of the change.
#[derive(Clone, Debug)]
pub enum ChangeRecord {
    /// Changes of the list of this kind, appended to the journal.
    ListChanges(ListKind, Vec<ListChange>),
    /// All blocks of sources.
    Blocks(Vec<Block>),
}

/// The removal of swarms that are no longer permitted.
#[derive(Clone, Debug)]
pub enum Removal {
    /// The swarms of these info hashes.
    Named(Arc<[InfoHash]>),
    /// All swarms that a list does not permit.
    Forbidden {
        /// The list.
        list: Arc<AccessList>,
        /// Set when another list is in force: the removal stops.
        superseded: Arc<AtomicBool>,
    },
}

/// A change of the steering of announces to their shard's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeringChange {
    /// Stop steering to this worker.
    Withdraw(usize),
    /// Steer to this worker again.
    Restore(usize),
}

impl SteeringChange {
    /// Makes the change.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn apply(self, steering: &mut Steering) -> io::Result<()> {
        match self {
            Self::Withdraw(worker) => steering.withdraw(worker as u16),
            Self::Restore(worker) => steering.restore(worker as u16),
        }
    }
}

/// A notification of the service manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// The tracker serves, for the first time or after a reload.
    Ready(String),
    /// A reload has begun. `Ready` ends it, whether it succeeds or fails.
    Reloading,
    /// The status line.
    Status(String),
    /// Resets the watchdog.
    Watchdog,
    /// The tracker stops.
    Stopping,
}

/// Effects in the order in which they are carried out.
#[derive(Debug, Default)]
pub struct Effects(pub Vec<Effect>);

impl Effects {
    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Adds an entry of the log.
    pub fn notice(&mut self, notice: Notice) {
        self.push(Effect::Notice(notice));
    }

    /// Adds an information for the log.
    pub fn info(&mut self, text: impl Into<String>) {
        self.notice(Notice::new(Level::Info, text));
    }

    /// Adds a warning for the log.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.notice(Notice::warn(text));
    }

    /// Adds an error for the log.
    pub fn error(&mut self, text: impl Into<String>) {
        self.notice(Notice::new(Level::Error, text));
    }

    /// Adds a response.
    pub fn reply<T: Send + 'static>(&mut self, responder: Responder<T>, response: T) {
        self.push(Effect::Reply(Responder::new(|()| responder.respond(response))));
    }
}

#[cfg(test)]
impl Effects {
    /// Sends the responses; the other effects.
    pub(crate) fn send_replies(self) -> Vec<Effect> {
        let mut others = Vec::new();
        for effect in self.0 {
            match effect {
                Effect::Reply(reply) => reply.respond(()),
                other => others.push(other),
            }
        }
        others
    }

    /// The entries of the log.
    pub(crate) fn notices(&self) -> Vec<Notice> {
        let notice = |effect: &Effect| match effect {
            Effect::Notice(notice) => Some(notice.clone()),
            _ => None,
        };
        self.0.iter().filter_map(notice).collect()
    }

    /// Asserts that an entry of the log has all of these parts.
    #[track_caller]
    pub(crate) fn assert_logged(&self, parts: &[&str]) {
        let has_all = |notice: &Notice| parts.iter().all(|part| notice.text.contains(part));
        assert!(self.notices().iter().any(has_all), "no {parts:?} in {:?}", self.notices());
    }
}
