//! The owner of an upgrade in progress, in the predecessor: a successor is started on request, and
//! watched until it has the sockets or has failed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never};

use super::launcher::{Program, StartedSuccessor};
use super::predecessor::{CompletedHandoff, HandoffEvent};
use crate::access::AccessControl;
use crate::overload::Overload;
use crate::process::notify::{self, NotifyState};
use crate::state_files::StateFiles;
use onrush_config::Settings;
use onrush_control::api;
use onrush_control::caller::Caller;
use onrush_control::history::History;
use onrush_control::request::Responder;
use onrush_replica::handoff::Current;
use onrush_tracker::clock::Clock;

/// Time for the history to be written: the successor waits.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which the sockets change hands at most, when a stop is requested meanwhile.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Replies to the request for an upgrade.
pub type UpgradeResponder = Responder<Result<api::Successor, String>>;

/// The upgrade in progress, if there is one.
pub struct Upgrade {
    /// Receives the progress of a handoff.
    events: Receiver<HandoffEvent>,
    /// Whether the delta of the predecessor is being merged.
    merging: Arc<AtomicBool>,
    /// Starts a successor.
    program: Option<Program>,
    /// The successor that this process has started.
    successor: Option<StartedSuccessor>,
    /// The process that receives sockets and peers.
    process: Option<i32>,
    /// Whether that process has the final state, and would miss further changes.
    is_final: bool,
    responder: Option<UpgradeResponder>,
    /// When this process began to serve: earlier signals were meant for its predecessor.
    since: Instant,
}

/// The parts of a tracker whose state a successor continues.
pub struct Continued<'a> {
    /// The settings in force.
    pub settings: &'a Settings,
    /// The lists in force.
    pub access: &'a AccessControl,
    /// The interval commitment.
    pub overload: &'a Overload,
    /// The files of the state directory.
    pub files: &'a mut StateFiles,
    /// Rates, peers and swarms over time.
    pub history: &'a History,
    /// The workers' clock.
    pub clock: Clock,
}

impl Upgrade {
    /// None in progress, in a process that begins to serve now.
    pub fn new(since: Instant) -> Self {
        Self {
            events: never(),
            merging: Arc::default(),
            program: None,
            successor: None,
            process: None,
            is_final: false,
            responder: None,
            since,
        }
    }

    /// Enables upgrades that this process starts itself, with this program.
    pub fn set_program(&mut self, program: Program) {
        self.program = Some(program);
    }

    /// This process begins to serve.
    pub fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Receives the progress of handoffs from the thread at the upgrade socket.
    pub fn listen(&mut self, events: Receiver<HandoffEvent>) {
        self.events = events;
    }

    /// Receives the progress of a handoff, for [`on`](Self::on).
    pub fn events(&self) -> &Receiver<HandoffEvent> {
        &self.events
    }

    /// The thread at the upgrade socket has ended.
    pub fn listener_ended(&mut self) {
        self.events = never();
    }

    /// Whether the delta of the predecessor is being merged.
    pub fn merging(&self) -> &Arc<AtomicBool> {
        &self.merging
    }

    /// Whether an upgrade is in progress: the successor may have read the configuration already.
    pub fn is_running(&self) -> bool {
        self.process.is_some() || self.successor.is_some()
    }

    /// Whether the successor has the final state, and would miss further changes.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// Receives how the successor has exited.
    pub fn successor_exited(&self) -> Receiver<String> {
        self.successor.as_ref().map_or_else(never, |successor| successor.exited.clone())
    }

    /// SIGUSR2 arrived `at` that time.
    pub fn on_signal(&mut self, at: Instant, files: &StateFiles) {
        if at < self.since {
            log::info!("SIGUSR2 ignored: it arrived before this process began to serve");
            return;
        }
        if let Err(why) = self.start("SIGUSR2", false, files) {
            log::warn!("SIGUSR2: {why}");
        }
    }

    /// A client of the admin API requests an upgrade, in which peers may be dropped with `force`.
    pub fn on_request(
        &mut self,
        force: bool,
        caller: Caller,
        responder: UpgradeResponder,
        files: &StateFiles,
    ) {
        match self.start(&caller.to_string(), force, files) {
            Ok(()) => self.responder = Some(responder),
            Err(why) => responder.respond(Err(why)),
        }
    }

    /// Starts a successor. `by` says in the log who requests it.
    fn start(&mut self, by: &str, force: bool, files: &StateFiles) -> Result<(), String> {
        if let Some(process) = self.process {
            return Err(format!("an upgrade to process {process} is under way already"));
        }
        if self.successor.is_some() {
            return Err("an upgrade is under way already: the successor is starting".to_owned());
        }
        if files.lock.is_none() {
            return Err("an upgrade needs a writable state directory, and there is none: see the \
                        warnings at the start"
                .to_owned());
        }
        let Some(program) = &self.program else {
            return Err("the program of this process is unknown".to_owned());
        };
        let path = program.path.display();
        let successor = program
            .start(force, Instant::now())
            .map_err(|error| format!("cannot start {path}: {error}"))?;
        let with_force = if force { " with force" } else { "" };
        log::info!(
            "upgrade requested by {by}{with_force}: started {path}, which serves once it has \
             loaded the peers"
        );
        self.successor = Some(successor);
        Ok(())
    }

    /// Handles the progress of a handoff. Returns it once the sockets have changed hands.
    pub fn on(
        &mut self,
        event: HandoffEvent,
        state: &mut Continued<'_>,
        now: Instant,
    ) -> Option<CompletedHandoff> {
        match event {
            HandoffEvent::Requested { process, current } => {
                self.process = Some(process);
                if let Some(successor) = &mut self.successor {
                    successor.handoff_requested(now);
                }
                let _ = current.send(state.current(now));
            }
            HandoffEvent::Ready { process, version, commitment } => {
                self.is_final = true;
                // The successor reads the history once it has the sockets.
                state.files.write_history(state.history, state.clock, HISTORY_TIMEOUT);
                if let Some(responder) = self.responder.take() {
                    responder.respond(Ok(api::Successor { process: process as u32, version }));
                }
                let _ = commitment.send(state.overload.full_commitment(state.settings, now));
            }
            HandoffEvent::Failed => {
                let was_final = std::mem::take(&mut self.is_final);
                self.process = None;
                match &mut self.successor {
                    // It may have bound sockets, to which the kernel sends datagrams already.
                    Some(successor) if was_final => successor.kill(now),
                    // It exits by itself, with a message.
                    Some(successor) => successor.handoff_failed(now),
                    None => {}
                }
            }
            HandoffEvent::Completed(completed) => {
                if let Some(successor) = self.successor.take() {
                    successor.release();
                }
                // The watchdog's timeout starts anew for that process.
                let process = NotifyState::MainPid(completed.process as u32);
                notify::send(&[process, NotifyState::Watchdog]);
                return Some(completed);
            }
        }
        None
    }

    /// The successor has exited before it had the sockets.
    pub fn successor_failed(&mut self, exited: &str) {
        self.successor = None;
        let why = format!("the successor failed; this process keeps serving: {exited}");
        log::error!("{why}");
        if let Some(responder) = self.responder.take() {
            responder.respond(Err(why));
        }
    }

    /// Call once a second: ends a successor that takes too long.
    pub fn tick(&mut self, now: Instant) {
        if let Some(successor) = &mut self.successor
            && successor.tick(now)
        {
            log::error!("the successor takes too long, and is killed");
        }
    }

    /// Waits for the end of a handoff that is final, before this process ends.
    pub fn finish(&mut self, state: &mut Continued<'_>) -> Option<CompletedHandoff> {
        while self.is_final {
            let event = self.events.recv_timeout(RELEASE_TIMEOUT).ok()?;
            if let Some(completed) = self.on(event, state, Instant::now()) {
                return Some(completed);
            }
        }
        None
    }
}

impl Continued<'_> {
    /// The state for a successor that has requested the handoff.
    fn current(&mut self, now: Instant) -> Current {
        Current {
            commitment: self.overload.full_commitment(self.settings, now),
            unread: self.files.snapshots.unread().cloned().map(Box::new),
            list_entries: self.access.entry_high_water_mark().clone(),
            values: self.settings.shown(),
        }
    }
}
