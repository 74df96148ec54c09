//! The progress of an upgrade, in the predecessor: a successor is started on request, and
//! watched until it has the sockets or has failed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use log::Level;

use super::predecessor::HandoffEvent;
use crate::effect::{Effect, Effects};
use crate::notice::Notice;
use onrush_control::api;
use onrush_control::request::Responder;
use onrush_replica::delta::CompletedHandoff;
use onrush_replica::handoff::{InheritedState, IntervalCommitment};

/// Time for a successor to request the handoff: lists of millions of entries take seconds to load.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// Time for a successor to exit after a failed handoff, or after a kill.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Replies to the request for an upgrade.
pub type UpgradeResponder = Responder<Result<api::Successor, String>>;

/// The upgrade in progress, if there is one.
#[derive(Debug)]
pub struct Upgrade {
    /// Why this process cannot start a successor.
    obstacle: Option<&'static str>,
    /// The request for which a successor is being started.
    launching: Option<Launch>,
    /// The successor that this process has started.
    successor: Option<Successor>,
    /// The process that receives sockets and peers.
    process: Option<i32>,
    /// See [`is_releasing`](Self::is_releasing).
    is_releasing: bool,
    responder: Option<UpgradeResponder>,
    /// When this process began to serve: earlier signals were meant for its predecessor.
    since: Instant,
}

/// A request for an upgrade.
#[derive(Debug)]
struct Launch {
    /// Its sender, in the log.
    by: String,
    force: bool,
    /// `None` for a signal.
    responder: Option<UpgradeResponder>,
}

/// A started successor.
#[derive(Debug)]
struct Successor {
    /// When it is killed; `None` during the handoff, which has time-outs of its own.
    deadline: Option<Instant>,
}

impl Upgrade {
    /// None in progress, in a process that serves from now on. It can start a successor if it has
    /// a state directory to itself.
    pub fn new(has_state_directory: bool, now: Instant) -> Self {
        let obstacle = (!has_state_directory).then_some(
            "an upgrade needs a writable state directory, and there is none: see the warnings at \
             the start",
        );
        Self {
            obstacle,
            launching: None,
            successor: None,
            process: None,
            is_releasing: false,
            responder: None,
            since: now,
        }
    }

    /// Whether an upgrade is in progress: the successor may have read the configuration already.
    pub fn is_running(&self) -> bool {
        self.process.is_some() || self.successor.is_some()
    }

    /// Whether the sockets are being released: from the moment at which the successor could serve
    /// until the handoff completes or fails. Meanwhile changes of lists and blocks are refused,
    /// since the successor, which reads them once more after the release, could miss them; it
    /// steers announces, and the outcome decides how this process ends.
    pub fn is_releasing(&self) -> bool {
        self.is_releasing
    }

    /// SIGUSR2 arrived `at` that time.
    pub fn on_signal(&mut self, at: Instant, effects: &mut Effects) {
        if at < self.since {
            return effects.info("SIGUSR2 ignored: it arrived before this process began to serve");
        }
        self.start("SIGUSR2".to_owned(), false, None, effects);
    }

    /// Starts a successor, or reports why it does not. `by` says in the log who requests it; with
    /// `force` peers may be dropped.
    pub fn start(
        &mut self,
        by: String,
        force: bool,
        responder: Option<UpgradeResponder>,
        effects: &mut Effects,
    ) {
        let launch = Launch { by, force, responder };
        let why = match (self.process, &self.successor, self.obstacle) {
            (Some(process), ..) => {
                format!("an upgrade to process {process} is under way already")
            }
            (_, Some(_), _) => {
                "an upgrade is under way already: the successor is starting".to_owned()
            }
            (.., Some(obstacle)) => obstacle.to_owned(),
            _ => {
                effects.push(Effect::Launch { force: launch.force });
                self.launching = Some(launch);
                return;
            }
        };
        refuse(launch, Level::Warn, &why, effects);
    }

    /// The program of the successor was started, or could not be.
    pub fn launched(
        &mut self,
        result: Result<PathBuf, String>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(launch) = self.launching.take() else { return };
        let path = match result {
            Ok(path) => path,
            Err(why) => return refuse(launch, Level::Error, &why, effects),
        };
        let with_force = if launch.force { " with force" } else { "" };
        effects.info(format!(
            "upgrade requested by {}{with_force}: started {}, which serves once it has loaded the \
             peers",
            launch.by,
            path.display()
        ));
        self.successor = Some(Successor { deadline: Some(now + START_TIMEOUT) });
        self.responder = launch.responder;
    }

    /// Handles the progress of a handoff to a successor, which gets the `inherited` state when it
    /// requests the handoff, and the interval `commitment` at the release. Returns the handoff once
    /// the successor has the sockets.
    pub fn on(
        &mut self,
        event: HandoffEvent,
        commitment: IntervalCommitment,
        inherited: impl FnOnce() -> InheritedState,
        now: Instant,
        effects: &mut Effects,
    ) -> Option<CompletedHandoff> {
        match event {
            HandoffEvent::Requested { process, inherited: to } => {
                self.process = Some(process);
                self.set_deadline(|_| None);
                effects.push(Effect::SendInherited(Box::new(inherited()), to));
            }
            HandoffEvent::Ready { process, version, commitment: to } => {
                self.is_releasing = true;
                // The successor reads the history once it has the sockets.
                effects.push(Effect::WriteHistory);
                if let Some(responder) = self.responder.take() {
                    effects
                        .reply(responder, Ok(api::Successor { process: process as u32, version }));
                }
                // The successor may have given up.
                let send = move |last| to.send(last).unwrap_or_default();
                effects.reply(Responder::new(send), commitment);
            }
            HandoffEvent::Failed => {
                let was_releasing = std::mem::take(&mut self.is_releasing);
                self.process = None;
                if was_releasing && self.successor.is_some() {
                    // It may have bound sockets, to which the kernel sends datagrams already.
                    effects.push(Effect::KillSuccessor);
                }
                // Otherwise it exits by itself, with a message.
                let latest = now + EXIT_TIMEOUT;
                self.set_deadline(|deadline| Some(deadline.map_or(latest, |at| at.min(latest))));
            }
            HandoffEvent::Completed(completed) => return Some(completed),
        }
        None
    }

    fn set_deadline(&mut self, change: impl FnOnce(Option<Instant>) -> Option<Instant>) {
        if let Some(successor) = &mut self.successor {
            successor.deadline = change(successor.deadline);
        }
    }

    /// The successor has exited before it had the sockets.
    pub fn successor_exited(&mut self, exited: &str, effects: &mut Effects) {
        self.successor = None;
        let why = format!("the successor failed; this process keeps serving: {exited}");
        effects.error(why.as_str());
        if let Some(responder) = self.responder.take() {
            effects.reply(responder, Err(why));
        }
    }

    /// Call once a second: ends a successor that takes too long.
    pub fn tick(&mut self, now: Instant, effects: &mut Effects) {
        let deadline = self.successor.as_ref().and_then(|successor| successor.deadline);
        if deadline.is_some_and(|deadline| now >= deadline) {
            self.set_deadline(|_| Some(now + EXIT_TIMEOUT));
            effects.push(Effect::KillSuccessor);
            effects.error("the successor takes too long, and is killed");
        }
    }
}

/// This process keeps serving because of `why`, without a successor.
fn refuse(launch: Launch, level: Level, why: &str, effects: &mut Effects) {
    let Launch { by, responder, .. } = launch;
    effects.notice(Notice::new(level, format!("upgrade requested by {by}: {why}")));
    if let Some(responder) = responder {
        effects.reply(responder, Err(why.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Requested by a command or by a signal.
    #[test]
    fn a_successor_that_cannot_be_started_is_an_error_of_the_log() {
        let now = Instant::now();
        for by in ["user 0", "SIGUSR2"] {
            let (mut upgrade, mut effects) = (Upgrade::new(true, now), Effects::default());
            let (to, replied) = channel();
            let responder = Responder::new(move |reply| drop(to.send(reply)));
            let responder = (by == "user 0").then_some(responder);
            upgrade.start(by.to_owned(), false, responder, &mut effects);
            let why = "cannot start /usr/bin/onrush: No such file or directory";
            upgrade.launched(Err(why.to_owned()), now, &mut effects);
            let notices = effects.notices();
            let [Notice { level: Level::Error, text, .. }] = &notices[..] else {
                panic!("{notices:?}")
            };
            assert!(text.contains(by) && text.ends_with(why), "{text}");
            effects.send_replies();
            let reply = (by == "user 0").then(|| Err(why.to_owned()));
            assert_eq!(replied.try_recv().ok(), reply);
            assert!(!upgrade.is_running());
        }
    }
}
