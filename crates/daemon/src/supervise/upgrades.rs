//! Upgrades: a successor is started on request, and watched until it has the sockets or has failed.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never};

use super::Supervisor;
use crate::process::notify::{self, NotifyState};
use crate::start::Tracker;
use crate::upgrade::message::Current;
use crate::upgrade::outgoing::{Event, HandedOver};
use crate::upgrade::successor::{Program, Successor};
use onrush_control::api;
use onrush_control::caller::Caller;
use onrush_control::request::Responder;

/// Time for the history to be written: the new process waits.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(1);

/// Replies to the request for an upgrade.
pub(super) type UpgradeResponder = Responder<Result<api::Successor, String>>;

/// The upgrade in progress, if there is one.
pub(super) struct UpgradeState {
    /// Starts a successor.
    pub(super) program: Option<Program>,
    /// The successor that this process has started.
    successor: Option<Successor>,
    /// The process that gets sockets and peers.
    process: Option<i32>,
    /// Whether that process has the final state, and would miss further changes.
    pub(super) is_final: bool,
    responder: Option<UpgradeResponder>,
    /// When this process began to serve: earlier signals were meant for its predecessor.
    since: Instant,
}

impl UpgradeState {
    pub(super) fn new(since: Instant) -> Self {
        Self {
            program: None,
            successor: None,
            process: None,
            is_final: false,
            responder: None,
            since,
        }
    }

    /// Whether an upgrade is in progress: the successor may have read the configuration already.
    pub(super) fn is_running(&self) -> bool {
        self.process.is_some() || self.successor.is_some()
    }

    /// Receives how the successor has exited.
    pub(super) fn successor_exited(&self) -> Receiver<String> {
        self.successor.as_ref().map_or_else(never, |successor| successor.exited.clone())
    }
}

impl Supervisor {
    /// SIGUSR2 arrived `at` that time.
    pub(super) fn upgrade_by_signal(&mut self, at: Instant) {
        if at < self.upgrade.since {
            log::info!("SIGUSR2 ignored: it arrived before this process had taken over");
            return;
        }
        if let Err(why) = self.start_successor("SIGUSR2", false) {
            log::warn!("SIGUSR2: {why}");
        }
    }

    /// A client of the admin API requests an upgrade, in which peers may be dropped with `force`.
    pub(super) fn upgrade_by_request(
        &mut self,
        force: bool,
        caller: Caller,
        responder: UpgradeResponder,
    ) {
        if let Err(why) = self.start_successor(&caller.to_string(), force) {
            return responder.respond(Err(why));
        }
        self.upgrade.responder = Some(responder);
    }

    /// `by` says in the log who requests it.
    fn start_successor(&mut self, by: &str, force: bool) -> Result<(), String> {
        if let Some(process) = self.upgrade.process {
            return Err(format!("an upgrade is under way already: process {process} takes over"));
        }
        if self.upgrade.successor.is_some() {
            return Err("an upgrade is under way already: its process is starting".to_owned());
        }
        if self.tracker.files.lock.is_none() {
            return Err("an upgrade needs a writable state directory, and there is none: see the \
                        warnings at the start"
                .to_owned());
        }
        let Some(program) = &self.upgrade.program else {
            return Err("the program of this process is unknown".to_owned());
        };
        let path = program.path.display();
        let successor = program
            .start(force, Instant::now())
            .map_err(|error| format!("cannot start {path}: {error}"))?;
        let with_force = if force { " with force" } else { "" };
        log::info!(
            "upgrade requested by {by}{with_force}: started {path}, which takes over once it has \
             loaded the peers"
        );
        self.upgrade.successor = Some(successor);
        Ok(())
    }

    /// Handles the progress of a handoff. Returns it once the sockets have changed hands.
    pub(super) fn handle_upgrade(&mut self, event: Event) -> Option<HandedOver> {
        let now = Instant::now();
        match event {
            Event::Requested { process, current } => {
                self.upgrade.process = Some(process);
                if let Some(successor) = &mut self.upgrade.successor {
                    successor.handoff_requested(now);
                }
                let Tracker { overload, files, access, .. } = &mut self.tracker;
                let commitment = overload.full_commitment(&self.settings, now);
                let unread = files.snapshots.unread().cloned().map(Box::new);
                let list_entries = access.most_entries().clone();
                let values = self.settings.shown();
                let _ = current.send(Current { commitment, unread, list_entries, values });
            }
            Event::Ready { process, version, commitment } => {
                self.upgrade.is_final = true;
                // It reads the history once it has the sockets.
                let Tracker { files, history, clock, .. } = &mut self.tracker;
                files.write_history(history, *clock, HISTORY_TIMEOUT);
                if let Some(responder) = self.upgrade.responder.take() {
                    responder.respond(Ok(api::Successor { process: process as u32, version }));
                }
                let _ = commitment.send(self.tracker.overload.full_commitment(&self.settings, now));
            }
            Event::Failed => {
                let was_final = std::mem::take(&mut self.upgrade.is_final);
                self.upgrade.process = None;
                match &mut self.upgrade.successor {
                    // It may have bound sockets, to which the kernel sends datagrams already.
                    Some(successor) if was_final => successor.kill(now),
                    // It exits by itself, with a message.
                    Some(successor) => successor.handoff_failed(now),
                    None => {}
                }
            }
            Event::HandedOver(handed_over) => {
                if let Some(successor) = self.upgrade.successor.take() {
                    successor.release();
                }
                // The watchdog's timeout starts anew for that process.
                let process = NotifyState::MainPid(handed_over.process as u32);
                notify::send(&[process, NotifyState::Watchdog]);
                return Some(handed_over);
            }
        }
        None
    }

    /// The successor has exited without taking over.
    pub(super) fn successor_failed(&mut self, exited: &str) {
        self.upgrade.successor = None;
        let why = format!("the new process has not taken over; this one keeps serving: {exited}");
        log::error!("{why}");
        if let Some(responder) = self.upgrade.responder.take() {
            responder.respond(Err(why));
        }
    }

    /// Once a second.
    pub(super) fn check_successor(&mut self, now: Instant) {
        if let Some(successor) = &mut self.upgrade.successor
            && successor.tick(now)
        {
            log::error!("the new process takes too long, and is killed");
        }
    }

    /// Waits for the end of a handoff that is final, before this process ends.
    pub(super) fn finish_handoff(&mut self) -> Option<HandedOver> {
        while self.upgrade.is_final {
            let event = self.tracker.upgrade.recv_timeout(super::RELEASE_TIMEOUT).ok()?;
            if let Some(handed_over) = self.handle_upgrade(event) {
                return Some(handed_over);
            }
        }
        None
    }
}
