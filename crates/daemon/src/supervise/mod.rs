//! The supervisor: the main thread while workers run. It handles signals, requests of the admin
//! server and worker failures, and does periodic work once a second.
//!
//! | module | contents |
//! |---|---|
//! | [`reload`], `apply` | the configuration is read again, compared, and put into force |
//! | `lists` | changes of the list of info hashes without reading its file |
//! | [`purge`] | removal of swarms that the access list no longer permits |
//! | `upgrades` | a successor takes over |
//! | `lifeline` | ready, status and watchdog for the service manager |
//! | `watch`, [`steering_backoff`], `totals_log` | stalls, drops, steering, totals |
//! | `exports` | when the full scrape is written |

mod apply;
mod exports;
mod lifeline;
mod lists;
pub mod purge;
pub mod reload;
pub mod steering_backoff;
mod totals_log;
mod upgrades;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, never, select, tick};

use crate::overload::Overload;
use crate::process::notify;
use crate::process::signals::Signal;
use crate::start::Tracker;
use crate::upgrade::outgoing::HandedOver;
use crate::upgrade::successor::Program;
use exports::{ExportResponder, Exports};
use lifeline::Lifeline;
use lists::ListChanges;
use onrush_config::Settings;
use onrush_control::api::stats;
use onrush_control::files::Files;
use onrush_control::request::Request;
use onrush_control::view::{InForce, Parts, View};
use onrush_tracker::metrics::Summary;
use onrush_tracker::running::WorkerFailure;
use purge::Purge;
use reload::Reload;
use upgrades::UpgradeState;
use watch::{Steer, Watch, change_steering};

/// Requests queued for the supervisor. It serves each of them without waiting.
const MAX_REQUESTS: usize = 64;
/// Upper bound of the time in which the sockets change hands, when a stop is requested meanwhile.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the supervisor ends.
#[derive(Debug)]
pub enum End {
    /// A signal requested it.
    Stopped,
    /// A worker failed.
    WorkerFailed(WorkerFailure),
    /// A successor has the sockets.
    HandedOver(HandedOver),
    /// The successor with this process id exited before it had all peers.
    SuccessorFailed(i32),
}

/// The supervisor of a running tracker.
pub struct Supervisor {
    tracker: Tracker,
    settings: Arc<Settings>,
    reload: Reload,
    watch: Watch,
    purge: Purge,
    overload: Overload,
    list_changes: ListChanges,
    upgrade: UpgradeState,
    exports: Exports,
    requests: Receiver<Request>,
    view: View,
    lifeline: Lifeline,
}

impl Supervisor {
    /// For a tracker started with these settings.
    pub fn new(mut tracker: Tracker, settings: Settings, reload: Reload) -> Self {
        let now = Instant::now();
        let running = &tracker.running;
        let watch = Watch::new(&settings, now);
        let settings = Arc::new(settings);
        let exports = Exports::default();
        let (sender, requests) = bounded(MAX_REQUESTS);
        let parts = Parts {
            workers: running.shared_workers(),
            orders: running.orders().clone(),
            mailboxes: running.mailboxes().clone(),
            map: tracker.map,
            addresses: running.addresses().to_vec(),
            files: Files {
                snapshot: tracker.snapshots.writes().clone(),
                export: exports.writes().clone(),
            },
        };
        let in_force = InForce {
            settings: settings.clone(),
            lists: tracker.lists.clone(),
            overload: stats::Overload { step: 0, interval: settings.announce.interval },
        };
        let view = View::new(parts, in_force, sender);
        if let Some(admin) = &tracker.admin {
            admin.serve(view.clone());
        }
        let mut purge = Purge::new();
        if let Some(former) = tracker.replaced_list.take() {
            purge.start(&tracker.lists.access, former, now);
        }
        let lifeline = Lifeline::new(running.addresses(), now);
        let commitment = tracker.commitment.take();
        let mut overload = Overload::new(now);
        commitment.into_iter().for_each(|commitment| overload.adopt(commitment, now));
        let supervisor = Self {
            tracker,
            settings,
            reload,
            watch,
            purge,
            overload,
            list_changes: ListChanges::new(),
            upgrade: UpgradeState::new(None, now),
            exports,
            requests,
            view,
            lifeline,
        };
        if commitment.is_some() {
            supervisor.publish_rules();
        }
        supervisor
    }

    /// Enables upgrades that this process starts itself, with this program.
    pub fn with_program(mut self, program: Program) -> Self {
        self.upgrade = UpgradeState::new(Some(program), Instant::now());
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
            // The sockets may have changed hands at the same moment.
            end @ (End::Stopped | End::WorkerFailed(_)) => {
                self.finish_handoff().map_or(end, End::HandedOver)
            }
            end => end,
        };
        if !matches!(end, End::HandedOver(_)) {
            notify::stopping("stopping");
            self.store_commitment(true, Instant::now());
        }
        if let Some(admin) = &self.tracker.admin {
            admin.stopping();
        }
        self.exports.abort();
        end
    }

    fn serve_events(&mut self, signals: &Receiver<Signal>) -> End {
        let seconds = tick(Duration::from_secs(1));
        loop {
            let successor = self.upgrade.successor_exited().unwrap_or_else(never);
            select! {
                recv(signals) -> signal => match signal {
                    Ok(Signal::Reload) => self.start_reload("SIGHUP", None),
                    Ok(Signal::Export) => self.export(None),
                    Ok(Signal::Upgrade(at)) => self.upgrade_by_signal(at),
                    Ok(Signal::Stop) | Err(_) => return End::Stopped,
                },
                recv(self.tracker.upgrade) -> event => match event {
                    Ok(event) => if let Some(handed_over) = self.handle_upgrade(event) {
                        return End::HandedOver(handed_over);
                    },
                    // The thread at the upgrade socket has ended.
                    Err(_) => self.tracker.upgrade = never(),
                },
                recv(successor) -> exited => match exited {
                    Ok(exited) => self.successor_failed(exited),
                    Err(_) => self.successor_failed(Err(io::ErrorKind::BrokenPipe.into())),
                },
                recv(self.requests) -> request => if let Ok(request) = request {
                    self.handle_request(request);
                },
                recv(self.reload.loaded()) -> loaded => if let Ok(loaded) = loaded {
                    self.finish_reload(loaded);
                },
                recv(self.list_changes.merged()) -> list => if let Ok(list) = list {
                    self.replace_by_merged(&list);
                },
                recv(self.purge.removed()) -> removed => match removed {
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
            Request::Reload(responder) => self.start_reload("reload", Some(responder)),
            Request::Export(responder) => self.export(Some(responder)),
            Request::Upgrade(responder) => self.upgrade_by_request(responder),
            Request::ChangeList(changes, responder) => {
                responder.respond(self.change_list(&changes))
            }
        }
    }

    fn export(&mut self, responder: Option<ExportResponder>) {
        let orders = self.tracker.running.orders();
        self.exports.start(&self.settings.export, orders, responder);
    }

    /// Periodic work, once a second.
    fn tick(&mut self, now: Instant) {
        let Self { tracker, watch, purge, lifeline, exports, settings, upgrade, .. } = self;
        let Tracker { running, snapshots, clock, lists, steering, .. } = tracker;
        if let Err(error) = purge.tick(&lists.access, running.orders(), now) {
            log::error!("{error}: its shard keeps swarms that are no longer permitted");
        }
        exports.tick(&settings.export, running.orders(), now);
        snapshots.tick(running.orders(), *clock, now);
        let workers: Vec<_> = running.workers().collect();
        lifeline.tick(&workers, now);
        // Once the sockets are released, the successor steers them.
        let steering = steering.as_mut().filter(|_| !upgrade.is_final());
        let mut steer = steering.map(|steering| |change| change_steering(steering, change));
        let steer = steer.as_mut().map(|steer| steer as Steer<'_>);
        for (level, text) in watch.tick(&workers, now, steer) {
            log::log!(level, "{text}");
        }
        self.check_overload(now);
        self.check_successor(now);
    }

    /// Adapts load shedding to the share of dropped datagrams.
    fn check_overload(&mut self, now: Instant) {
        let Summary { datagrams, kernel_drops, .. } = self.tracker.running.summary();
        let (changed, message) = self.overload.tick(&self.settings, datagrams, kernel_drops, now);
        if let Some(message) = message {
            log::warn!("{message}");
        }
        if changed {
            self.publish_rules();
        }
        self.store_commitment(changed, now);
    }

    /// Writes the interval commitment to disk, for the process after this one.
    fn store_commitment(&mut self, changed: bool, now: Instant) {
        let Settings { overload, announce, .. } = &*self.settings;
        let commitment = self.overload.commitment(overload, announce, now);
        let unix = self.tracker.clock.now().unix;
        if let Some(file) = &mut self.tracker.commitment_file
            && let Err(error) = file.tick(commitment, changed, unix, now)
        {
            log::debug!("the interval commitment cannot be written: {error}");
        }
    }

    fn pressure(&self) -> stats::Overload {
        self.overload.pressure(&self.settings.overload, &self.settings.announce)
    }
}
