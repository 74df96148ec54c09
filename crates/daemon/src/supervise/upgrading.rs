//! A process that follows this one: started when it is asked for, watched until it has the sockets or has failed.

use std::time::Instant;

use super::Supervisor;
use crate::overload::Promise;
use crate::process::service;
use crate::upgrade::give::{Given, Step};
use crate::upgrade::successor::{Ended, Program, Successor};
use onrush_control::api;
use onrush_control::request::Responder;

/// Whoever is told what has become of an upgrade.
pub(super) type Told = Responder<Result<api::Successor, String>>;

/// What the main thread knows of an upgrade.
pub(super) struct Upgrading {
    /// How a successor is started.
    program: Option<Program>,
    /// One that was started.
    successor: Option<Successor>,
    /// The process that gets the peers.
    process: Option<i32>,
    /// Whether that process has been told what there is for the last time.
    last: bool,
    /// Who has asked for it.
    told: Option<Told>,
    /// What was asked for before that was meant for a process before this one.
    since: Instant,
}

impl Upgrading {
    pub(super) fn new(program: Option<Program>, since: Instant) -> Self {
        Self { program, successor: None, process: None, last: false, told: None, since }
    }

    /// Whether another process gets the peers, or is to: it may have read the configuration already.
    pub(super) fn is_under_way(&self) -> bool {
        self.process.is_some() || self.successor.is_some()
    }

    /// Whether another process would not learn any more of what is changed here.
    pub(super) fn is_settled(&self) -> bool {
        self.last
    }

    /// Tells when the successor has ended.
    pub(super) fn ended(&self) -> Option<crossbeam_channel::Receiver<std::io::Result<Ended>>> {
        self.successor.as_ref().map(|successor| successor.ended().clone())
    }

    fn over(&mut self) {
        (self.process, self.last) = (None, false);
    }
}

impl Supervisor {
    /// A signal asks for a successor.
    pub(super) fn upgrade_for_signal(&mut self, at: Instant) {
        if at < self.upgrading.since {
            log::info!("SIGUSR2 came before this process served: it has taken over meanwhile");
            return;
        }
        if let Err(why) = self.upgrade("SIGUSR2") {
            log::warn!("SIGUSR2: {why}");
        }
    }

    /// Starts a successor, and lets `told` know what becomes of it.
    pub(super) fn upgrade_when_asked(&mut self, told: Told) {
        if let Err(why) = self.upgrade("upgrade") {
            return told.respond(Err(why));
        }
        self.upgrading.told = Some(told);
    }

    fn upgrade(&mut self, who: &str) -> Result<(), String> {
        if let Some(process) = self.upgrading.process {
            return Err(format!("an upgrade is under way already: process {process} takes over"));
        }
        if self.upgrading.successor.is_some() {
            return Err("an upgrade is under way already: its process starts".to_owned());
        }
        if self.tracker.lock.is_none() {
            return Err(
                "an upgrade goes by way of the state directory, and there is none that can be \
                        written to: see the warnings at start"
                    .to_owned(),
            );
        }
        let Some(program) = &self.upgrading.program else {
            return Err("this process does not know how it was started".to_owned());
        };
        let path = program.path().display();
        let successor = program
            .start(Instant::now())
            .map_err(|error| format!("cannot start {path}: {error}"))?;
        log::info!("{who}: {path} is started, and takes over when it has loaded the peers");
        self.upgrading.successor = Some(successor);
        Ok(())
    }

    /// An upgrade is so far. When the sockets have changed hands, to whom.
    pub(super) fn upgrade_is_at(&mut self, step: Step) -> Option<Given> {
        let now = Instant::now();
        match step {
            Step::Begun { process, promise } => {
                self.upgrading.process = Some(process);
                if let Some(successor) = &mut self.upgrading.successor {
                    successor.asked(now);
                }
                let _ = promise.send(self.whole_promise(now));
            }
            Step::Ready { process, version, promise } => {
                self.upgrading.last = true;
                if let Some(told) = self.upgrading.told.take() {
                    told.respond(Ok(api::Successor { process: process as u32, version }));
                }
                let _ = promise.send(self.whole_promise(now));
            }
            Step::Failed(_) => {
                let was_last = self.upgrading.last;
                self.upgrading.over();
                match &mut self.upgrading.successor {
                    // It may have bound sockets that datagrams come to already.
                    Some(successor) if was_last => successor.kill(now),
                    // It says why when it ends.
                    Some(successor) => successor.failed(now),
                    None => {}
                }
            }
            Step::Given(given) => {
                if let Some(successor) = self.upgrading.successor.take() {
                    successor.release();
                }
                service::follow(given.process as u32);
                return Some(given);
            }
        }
        None
    }

    /// What a process that follows has to keep.
    pub(super) fn promise(&self, now: Instant) -> Option<Promise> {
        self.overload.promise(&self.settings.overload, &self.settings.announce, now)
    }

    /// The same, with what is configured here: it may be configured otherwise there.
    fn whole_promise(&self, now: Instant) -> Option<Promise> {
        Some(self.overload.whole_promise(&self.settings.overload, &self.settings.announce, now))
    }

    /// The successor has ended without having taken over.
    pub(super) fn successor_ended(&mut self, ended: std::io::Result<Ended>) {
        self.upgrading.successor = None;
        let why = match ended {
            Ok(ended) => ended.to_string(),
            Err(error) => format!("nobody knows how it ended: {error}"),
        };
        let why = format!("the new process has not taken over, and this one serves on: {why}");
        log::error!("{why}");
        if let Some(told) = self.upgrading.told.take() {
            told.respond(Err(why));
        }
    }

    /// What is due once a second.
    pub(super) fn look_at_successor(&mut self, now: Instant) {
        if let Some(successor) = &mut self.upgrading.successor
            && successor.second(now)
        {
            log::error!("the new process takes too long, and is killed");
        }
    }

    /// Who has been promised the sockets, when this process is about to end: it may have them by now.
    pub(super) fn given_at_the_end(&mut self) -> Option<Given> {
        while self.upgrading.is_settled() {
            let step = self.tracker.upgrade.recv_timeout(super::LAST_STEP).ok()?;
            if let Some(given) = self.upgrade_is_at(step) {
                return Some(given);
            }
        }
        None
    }
}
