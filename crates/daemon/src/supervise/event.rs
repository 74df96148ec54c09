//! Events: the inputs of the supervisor, from other threads, and the results of effects.

use std::path::PathBuf;

use super::config_source::LoadedConfig;
use crate::certificate_files::Look;
use crate::overload::ProcessState;
use crate::process::signals::Signal;
use crate::upgrade::predecessor::HandoffEvent;
use onrush_control::request::Request;
use onrush_tracker::access::AccessList;
use onrush_tracker::running::WorkerFailure;

/// Something that has happened outside the supervisor.
#[derive(Debug)]
pub enum Event {
    /// A signal has arrived.
    Signal(Signal),
    /// A client of the admin API requests something.
    Request(Request),
    /// A second has passed.
    Tick(Box<ProcessState>),
    /// The configuration was read, or has problems.
    Loaded(Result<Box<LoadedConfig>, String>),
    /// A record was written, or could not be, with the reason.
    Recorded(Result<(), String>),
    /// A list was merged. `None`: it could not be.
    Merged(Option<AccessList>),
    /// The files of certificates were looked at. `None`: they could not be.
    Certificates(Option<Look>),
    /// A shard has removed this many swarms that the list does not permit.
    Removed(u64),
    /// The program of a successor was started, or could not be.
    Launched(Result<PathBuf, String>),
    /// A handoff has progressed.
    Handoff(HandoffEvent),
    /// The successor has exited before it had the sockets, with this status and message.
    SuccessorExited(String),
    /// A worker has failed.
    WorkerFailed(WorkerFailure),
}
