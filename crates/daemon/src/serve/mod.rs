//! The main thread while a tracker serves: waits for events, lets the supervisor decide, and
//! carries its effects out.
//!
//! | module | contents |
//! |---|---|
//! | `executor` | effects: what the main thread does |
//! | `stop` | how a tracker ends |

mod executor;
mod stop;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, never, select, tick, unbounded};

use crate::access;
use crate::certificates::CertificateControl;
use crate::effect::{Effect, Effects, End};
use crate::notice::NoticeLimit;
use crate::process::logging;
use crate::process::signals::Signal;
use crate::start::Tracker;
use crate::supervise::config_source::ConfigSource;
use crate::supervise::event::Event;
use crate::supervise::{Owners, Supervisor};
use crate::time::Time;
use crate::upgrade::predecessor::HandoffEvent;
use crate::upgrade::program::Program;
use executor::{Executor, Results};
use onrush_config::Settings;
use onrush_config::host::Quotas;
use onrush_control::request::Request;
use onrush_control::view::{Parts, View};
use onrush_net::mio::drops;
use onrush_tracker::running::WorkerFailure;

/// Requests queued for the main thread. It serves each of them without waiting.
const MAX_REQUESTS: usize = 64;

/// A tracker that serves.
pub struct Serving {
    supervisor: Supervisor,
    executor: Executor,
    requests: Receiver<Request>,
    handoffs: Receiver<HandoffEvent>,
}

impl Serving {
    /// A tracker that was started with these settings, which are read again from `source`. With
    /// `program` it can start a successor.
    pub fn new(
        tracker: Tracker,
        settings: Settings,
        source: ConfigSource,
        program: Option<Program>,
    ) -> Self {
        let Tracker { running, access, overload, upgrade, files, tls, .. } = tracker;
        let Tracker { steering, clock, map, mut admin, history, handoffs, .. } = tracker;
        let Tracker { drop_reasons, xdp, spawn_thread, .. } = tracker;
        if !drop_reasons.are_known() {
            log::warn!("{}", drops::UNKNOWN);
        }
        let limit = NoticeLimit::new(settings.limits.warnings_per_minute);
        let addresses = running.addresses();
        let time = Time::of(clock);
        let certificates = CertificateControl::new(tracker.certificates, time);
        let supervisor = Supervisor::new(
            Owners { access, overload, upgrade, certificates },
            (Arc::new(settings), source.clone()),
            running.members().clone(),
            (addresses, sd_notify::watchdog_enabled()),
            time,
        );
        let journal = files.records().map(|records| records.journal.clone());
        let parts = Parts {
            members: running.members().clone(),
            orders: running.orders().clone(),
            mailboxes: running.mailboxes().clone(),
            map,
            addresses: addresses.clone(),
            files: files.results(),
            history: history.clone(),
            lost_log_lines: logging::lost_lines,
            compare: source.comparison(),
            candidate: access::candidate(journal),
        };
        let (sender, requests) = bounded(MAX_REQUESTS);
        let view = View::new(parts, supervisor.in_force(), sender);
        admin.serve(view.clone());
        files.serve_control(&mut admin);
        let (loaded, merged, removed) = (unbounded(), unbounded(), unbounded());
        let results = Results { loaded, merged, removed, certificates: unbounded() };
        let successor = None;
        let executor = Executor {
            running,
            steering,
            xdp,
            clock,
            files,
            admin,
            tls,
            history,
            view,
            source,
            program,
            spawn_thread,
            successor,
            limit,
            drop_reasons,
            quotas: Quotas::of(Path::new("/"), "self"),
            results,
        };
        Self { supervisor, executor, requests, handoffs }
    }

    /// The view that other threads have of the tracker.
    pub fn view(&self) -> &View {
        &self.executor.view
    }

    /// Serves until a stop is requested, a worker fails, or a successor has the sockets.
    pub fn run(&mut self, signals: &Receiver<Signal>) -> End {
        let seconds = tick(Duration::from_secs(1));
        let mut end = self.carry_out(self.supervisor.begin());
        while end.is_none() {
            let event = self.wait(signals, &seconds);
            end = event.and_then(|event| self.handle(event));
        }
        let mut end = end.unwrap_or(End::Stopped);
        if let End::Handoff(completed) = &mut end {
            self.executor.name_successor(completed);
        }
        self.executor.admin.stopping();
        end
    }

    /// Waits for the next event; `None` if a source of events has ended.
    fn wait(&mut self, signals: &Receiver<Signal>, seconds: &Receiver<Instant>) -> Option<Event> {
        let (results, running) = (&self.executor.results, &self.executor.running);
        let successor = self.executor.successor.as_ref();
        let successor_exited = successor.map_or_else(never, |started| started.exited.clone());
        Some(select! {
            // Without a thread that receives signals, nothing could stop the process.
            recv(signals) -> signal => {
                let ended = |_| Signal::Stop("the thread for signals has ended".to_owned());
                Event::Signal(signal.unwrap_or_else(ended))
            }
            recv(self.requests) -> request => Event::Request(request.ok()?),
            recv(results.loaded.1) -> loaded => Event::Loaded(loaded.ok()?.map(Box::new)),
            recv(results.merged.1) -> list => Event::Merged(list.ok()),
            recv(results.removed.1) -> removed => Event::Removed(removed.ok()?),
            recv(results.certificates.1) -> look => Event::Certificates(look.ok()?),
            recv(self.handoffs) -> event => match event {
                Ok(event) => Event::Handoff(event),
                Err(_) => {
                    // The thread at the upgrade socket has ended.
                    self.handoffs = never();
                    return None;
                }
            },
            recv(successor_exited) -> exited => {
                self.executor.successor = None;
                let unknown = |_| "its exit status is unknown".to_owned();
                Event::SuccessorExited(exited.unwrap_or_else(unknown))
            }
            recv(running.failures()) -> failure => {
                let (name, cause) = ("worker".into(), "unknown".into());
                Event::WorkerFailed(failure.unwrap_or(WorkerFailure { name, cause }))
            }
            recv(seconds) -> _ => {
                Event::Tick(Box::new(self.executor.tick(Instant::now())))
            }
        })
    }

    fn handle(&mut self, event: Event) -> Option<End> {
        let effects = self.supervisor.on(event, Time::of(self.executor.clock));
        self.carry_out(effects)
    }

    /// Carries out effects, and those that follow from their results. Returns the end of the
    /// tracker, if it is among them.
    fn carry_out(&mut self, effects: Effects) -> Option<End> {
        let mut effects = VecDeque::from(effects.0);
        while let Some(effect) = effects.pop_front() {
            if let Effect::End(end) = effect {
                return Some(end);
            }
            if let Some(event) = self.executor.carry_out(effect, &self.supervisor) {
                let time = Time::of(self.executor.clock);
                effects.extend(self.supervisor.on(event, time).0);
            }
        }
        None
    }
}
