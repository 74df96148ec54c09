//! The supervisor: the main thread while workers run. It handles signals, requests of the admin
//! server and worker failures, and does periodic work once a second.
//!
//! | module | contents |
//! |---|---|
//! | [`reload`], `apply` | the configuration is read again, compared, and put into force |
//! | `lifeline` | ready, status and watchdog for the service manager |
//! | `watch`, [`steering_backoff`], `totals_log` | stalls, drops, steering, totals |
//! | `limit_warnings` | limits on stored peers that are reached |

mod apply;
mod lifeline;
mod limit_warnings;
pub mod reload;
pub mod steering_backoff;
mod totals_log;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, select, tick};
use log::LevelFilter;

use crate::access::blocks::Time;
use crate::access::{self, InProgress};
use crate::overload::load::{Load, Readings};
use crate::process::logging;
use crate::process::notify::{self, NotifyState};
use crate::process::signals::Signal;
use crate::start::Tracker;
use crate::state_files::ExportResponder;
use crate::upgrade::launcher::Program;
use crate::upgrade::predecessor::CompletedHandoff;
use lifeline::Lifeline;
use onrush_config::Settings;
use onrush_control::caller::Caller;
use onrush_control::request::{Request, Responder};
use onrush_control::stall::StallDetector;
use onrush_control::view::{InForce, Parts, View};
use onrush_net::mio::drops;
use onrush_tracker::running::WorkerFailure;
use reload::Reload;
use steering_backoff::SteeringChange;
use watch::Watch;

/// Requests queued for the supervisor. It serves each of them without waiting.
const MAX_REQUESTS: usize = 64;

/// Why the supervisor ends.
#[derive(Debug)]
pub enum End {
    /// A signal requested it.
    Stopped,
    /// A worker failed.
    WorkerFailed(WorkerFailure),
    /// A successor has the sockets.
    Handoff(CompletedHandoff),
}

/// The supervisor of a running tracker.
pub struct Supervisor {
    tracker: Tracker,
    settings: Arc<Settings>,
    reload: Reload,
    watch: Watch,
    stalls: StallDetector,
    readings: Readings,
    requests: Receiver<Request>,
    view: View,
    lifeline: Lifeline,
}

/// Changes the lowest level that is logged, until the next reload. Returns the former one.
fn change_log_level(level: LevelFilter, caller: Caller) -> LevelFilter {
    let former = log::max_level();
    log::set_max_level(level.max(former));
    log::info!("log level changed by {caller}: {former} -> {level} until the next reload");
    log::set_max_level(level);
    former
}

impl Supervisor {
    /// For a tracker started with these settings.
    pub fn new(mut tracker: Tracker, settings: Settings, reload: Reload) -> Self {
        let now = Instant::now();
        let running = &tracker.running;
        let watch = Watch::new(&settings, now);
        if !tracker.drop_reasons.are_known() {
            log::warn!("{}", drops::UNKNOWN);
        }
        let readings = Readings::new(running.members().len());
        let settings = Arc::new(settings);
        let (sender, requests) = bounded(MAX_REQUESTS);
        let parts = Parts {
            members: running.members().clone(),
            orders: running.orders().clone(),
            mailboxes: running.mailboxes().clone(),
            map: tracker.map,
            addresses: running.addresses().to_vec(),
            files: tracker.files.results(),
            history: tracker.history.clone(),
            lost_log_lines: logging::lost_lines,
            compare: reload.comparison(),
            candidate: access::candidate(tracker.access.journal().cloned()),
        };
        let in_force = InForce {
            settings: settings.clone(),
            lists: tracker.access.lists().clone(),
            overload: tracker.overload.pressure(&settings),
        };
        let view = View::new(parts, in_force, sender);
        tracker.admin.serve(view.clone());
        tracker.files.serve_control(&mut tracker.admin);
        let lifeline = Lifeline::new(running.addresses(), now);
        Self {
            tracker,
            settings,
            reload,
            watch,
            stalls: StallDetector::new(now),
            readings,
            requests,
            view,
            lifeline,
        }
    }

    /// Enables upgrades that this process starts itself, with this program.
    pub fn with_program(mut self, program: Program) -> Self {
        self.tracker.upgrade.set_program(program);
        self
    }

    /// The view that other threads have of the tracker.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Gives the tracker back.
    pub fn into_tracker(self) -> Tracker {
        self.tracker
    }

    /// Supervises until a stop is requested, a worker fails, or a successor has the sockets.
    pub fn run(&mut self, signals: &Receiver<Signal>) -> End {
        self.lifeline.ready();
        let end = match self.serve_events(signals) {
            End::Handoff(completed) => End::Handoff(completed),
            // The sockets may have changed hands at the same moment.
            end => {
                let (upgrade, mut state) = self.tracker.upgrade(&self.settings);
                upgrade.finish(&mut state).map_or(end, End::Handoff)
            }
        };
        if !matches!(end, End::Handoff(_)) {
            notify::send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
            self.store_commitment(true, Instant::now());
        }
        self.tracker.admin.stopping();
        self.tracker.files.abort_export();
        end
    }

    fn serve_events(&mut self, signals: &Receiver<Signal>) -> End {
        let seconds = tick(Duration::from_secs(1));
        loop {
            let successor = self.tracker.upgrade.successor_exited();
            select! {
                recv(signals) -> signal => match signal {
                    Ok(Signal::Reload) => self.start_reload("SIGHUP", false, None),
                    Ok(Signal::Export) => self.export(None),
                    Ok(Signal::Upgrade(at)) => {
                        let Tracker { upgrade, files, .. } = &mut self.tracker;
                        upgrade.on_signal(at, files);
                    }
                    Ok(Signal::Stop) | Err(_) => return End::Stopped,
                },
                recv(self.tracker.upgrade.events()) -> event => match event {
                    Ok(event) => {
                        let (upgrade, mut state) = self.tracker.upgrade(&self.settings);
                        if let Some(completed) = upgrade.on(event, &mut state, Instant::now()) {
                            return End::Handoff(completed);
                        }
                    }
                    Err(_) => self.tracker.upgrade.listener_ended(),
                },
                recv(successor) -> exited => {
                    let unknown = |_| "its exit status is unknown".to_owned();
                    self.tracker.upgrade.successor_failed(&exited.unwrap_or_else(unknown));
                }
                recv(self.requests) -> request => if let Ok(request) = request {
                    self.handle_request(request);
                },
                recv(self.reload.loaded) -> loaded => if let Ok(loaded) = loaded {
                    self.finish_reload(loaded);
                },
                recv(self.tracker.access.merged()) -> list => if let Ok(list) = list
                    && self.tracker.access.replace_by_merged(&list)
                {
                    self.publish_rules();
                },
                recv(self.tracker.access.removed()) -> removed => match removed {
                    Ok(0) | Err(_) => {}
                    Ok(1) => log::info!("removed 1 swarm that is no longer permitted"),
                    Ok(swarms) => {
                        log::info!("removed {swarms} swarms that are no longer permitted");
                    }
                },
                recv(self.tracker.running.failures()) -> failure => {
                    let (name, cause) = ("worker".into(), "unknown".into());
                    let unknown = || WorkerFailure { name, cause };
                    return End::WorkerFailed(failure.unwrap_or_else(|_| unknown()));
                }
                recv(seconds) -> _ => self.tick(Instant::now()),
            }
        }
    }

    fn handle_request(&mut self, request: Request) {
        match request {
            Request::Reload { force, caller, responder } => {
                self.start_reload(&caller.to_string(), force, Some(responder));
            }
            Request::Export(responder) => self.export(Some(responder)),
            Request::Snapshot(responder) => {
                let Tracker { running, files, clock, .. } = &mut self.tracker;
                files.snapshots.write_now(running.orders(), *clock, responder);
            }
            Request::LogLevel { level, caller, responder } => {
                responder.respond(change_log_level(level, caller));
            }
            Request::Upgrade { force, caller, responder } => {
                let Tracker { upgrade, files, .. } = &mut self.tracker;
                upgrade.on_request(force, caller, responder, files);
            }
            Request::ChangeList { changes, caller, responder } => {
                let (limit, now) = (self.settings.limits.list_entries, Instant::now());
                let in_progress = self.in_progress();
                let changed = self.tracker.access.change(&changes, caller, limit, in_progress, now);
                self.published(changed, responder);
            }
            Request::Blocks(responder) => {
                responder.respond(self.tracker.access.shown_blocks(Time::of(self.tracker.clock)));
            }
            Request::Block { block, caller, responder } => {
                let (in_progress, time) = (self.in_progress(), Time::of(self.tracker.clock));
                let blocked = self.tracker.access.block(*block, caller, in_progress, time);
                self.published(blocked, responder);
            }
            Request::Unblock { prefix, caller, responder } => {
                let (in_progress, time) = (self.in_progress(), Time::of(self.tracker.clock));
                let removed = self.tracker.access.unblock(&prefix, caller, in_progress, time);
                self.published(removed, responder);
            }
        }
    }

    /// Sends changed lists to the workers, then the result to its requester.
    fn published<T, E>(&self, result: Result<T, E>, responder: Responder<Result<T, E>>) {
        if result.is_ok() {
            self.publish_rules();
        }
        responder.respond(result);
    }

    /// Work that may have read the lists before a change.
    fn in_progress(&self) -> InProgress {
        InProgress {
            reload: self.reload.loading,
            upgrade: self.tracker.upgrade.is_running(),
            is_final: self.tracker.upgrade.is_final(),
        }
    }

    fn export(&mut self, responder: Option<ExportResponder>) {
        let Tracker { running, files, .. } = &mut self.tracker;
        files.export(&self.settings, running.orders(), responder);
    }

    /// Periodic work, once a second.
    fn tick(&mut self, now: Instant) {
        let Self { tracker, watch, lifeline, settings, stalls, .. } = self;
        let Tracker { running, files, clock, access, steering, overload, history, upgrade, .. } =
            tracker;
        let members = running.members();
        if let Some(warning) = overload.check_filters(members, now) {
            log::warn!("{warning}");
        }
        let summary = running.summary();
        history.record(&summary, now);
        history.record_refused(clock.now().unix, access.lists().refused_by_part());
        files.tick(settings, running.orders(), history, *clock, now);
        let turns = members.iter().map(|member| member.metrics.turns.get());
        let stalled = stalls.observe(turns, now);
        let load = self.readings.tick(members, &stalled, now);
        if let Err(error) = access.tick(running.orders(), &stalled, now) {
            log::error!("{error}: its shard keeps swarms that are no longer permitted");
        }
        lifeline.tick(&summary, &stalled, now);
        // Once the sockets are released, the successor steers them.
        let steering = steering.as_mut().filter(|_| !upgrade.is_final());
        let steer = steering.map(|steering| |change: SteeringChange| change.apply(steering));
        for (level, text) in watch.tick(members, &load, &summary, &stalled, now, steer) {
            log::log!(level, "{text}");
        }
        self.check_overload(&load, now);
        let time = Time { now, unix: self.tracker.clock.now().unix };
        if self.tracker.access.expire_blocks(self.in_progress(), time) {
            self.publish_rules();
        }
        self.tracker.upgrade.tick(now);
    }

    /// Adapts interval and filter to the load of the last second.
    fn check_overload(&mut self, load: &Load, now: Instant) {
        let can_filter = self.tracker.drop_reasons.are_known();
        let overload = &mut self.tracker.overload;
        let interval = overload.pressure(&self.settings).interval;
        let (changed, messages) = overload.tick(&self.settings, load, can_filter, now);
        let other_interval = overload.pressure(&self.settings).interval != interval;
        for (level, text) in messages {
            log::log!(level, "{text}");
        }
        if changed {
            self.publish_rules();
        }
        self.store_commitment(other_interval, now);
    }

    /// Writes the interval commitment to disk, for the process after this one.
    fn store_commitment(&mut self, changed: bool, now: Instant) {
        let Tracker { overload, files, clock, .. } = &mut self.tracker;
        let commitment = overload.commitment(&self.settings, now);
        files.write_commitment(commitment, changed, *clock, now);
    }
}
