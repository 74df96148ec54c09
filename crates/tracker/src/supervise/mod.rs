//! The main thread once the workers run: hears signals, deaths and what others ask for, watches once a
//! second, reports.
//!
//! | room | what is in it |
//! |---|---|
//! | [`ask`] | what other threads may ask for |
//! | `lists` | what is put on the list and taken off it meanwhile |
//! | `reloading` | the configuration that was read again comes into force |
//! | `watch` | what is to be said and done, second by second |

pub mod ask;
mod lists;
mod reloading;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, never, select, tick};

use crate::enforce::Enforcement;
use crate::export::schedule::{Exports, Told};
use crate::http::source::Source;
use crate::metrics::{Files, Summary};
use crate::overload::{Overload, Pressure};
use crate::overview::{InForce, Overview, Phase};
use crate::process::service::{self, Lifeline};
use crate::process::signals::Wish;
use crate::reload::Reload;
use crate::running::Death;
use crate::settings::Settings;
use crate::start::Tracker;
use ask::Ask;
use lists::Changes;
use watch::{Steer, Watch, turn};

/// Things that others have asked for and that wait for the main thread at most. It is quick with all of
/// them.
const ASKS_ROOM: usize = 64;

/// Why the tracker ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// A worker died.
    Died(Death),
    /// Another process has its sockets.
    Given,
}

/// Whoever watches over a running tracker.
pub struct Supervisor {
    tracker: Tracker,
    settings: Arc<Settings>,
    reload: Reload,
    watch: Watch,
    enforcement: Enforcement,
    overload: Overload,
    changes: Changes,
    exports: Exports,
    asks: Receiver<Ask>,
    overview: Overview,
    lifeline: Lifeline,
}

impl Supervisor {
    /// Of a tracker that was started with these settings.
    pub fn new(tracker: Tracker, settings: Settings, reload: Reload) -> Self {
        let (sender, asks) = bounded(ASKS_ROOM);
        let running = &tracker.running;
        let watch = Watch::new(&settings, running.workers().count(), Instant::now());
        let settings = Arc::new(settings);
        let in_force = InForce {
            settings: settings.clone(),
            lists: tracker.lists.clone(),
            phase: Phase::Serving,
            pressure: Pressure { step: 0, interval: settings.announce.interval },
        };
        let (orders, addresses) = (running.orders().clone(), running.addresses());
        let exports = Exports::default();
        let files = Files {
            snapshot: tracker.snapshots.writes().clone(),
            export: exports.writes().clone(),
        };
        let workers = running.shared_workers();
        let overview = Overview::new(workers, orders, addresses, in_force, files, sender);
        if let Some(http) = &tracker.http {
            http.serve(Source::new(overview.clone(), running.ways().clone(), tracker.map));
        }
        let (enforcement, changes) = (Enforcement::new(), Changes::new());
        let lifeline = Lifeline::new(tracker.running.addresses(), Instant::now());
        let overload = Overload::new(Instant::now());
        Self {
            tracker,
            settings,
            reload,
            watch,
            enforcement,
            overload,
            changes,
            exports,
            asks,
            overview,
            lifeline,
        }
    }

    /// What others may see of it.
    pub fn overview(&self) -> &Overview {
        &self.overview
    }

    /// The tracker, once nobody watches it any more.
    pub fn into_tracker(self) -> Tracker {
        self.tracker
    }

    /// Watches until the tracker is asked to stop or a worker dies.
    pub fn run(&mut self, wishes: &Receiver<Wish>) -> End {
        let seconds = tick(Duration::from_secs(1));
        self.lifeline.ready();
        let end = loop {
            select! {
                recv(wishes) -> wish => match wish {
                    Ok(Wish::Reload) => self.reload_for("SIGHUP", None),
                    Ok(Wish::User) => self.export(None),
                    Ok(Wish::Stop) | Err(_) => break End::Asked,
                },
                recv(self.tracker.given) -> given => match given {
                    Ok(given) => {
                        self.tracker.taken_by = Some(given);
                        break End::Given;
                    }
                    // Whoever would tell is gone.
                    Err(_) => self.tracker.given = never(),
                },
                recv(self.asks) -> ask => if let Ok(ask) = ask { self.obey(ask) },
                recv(self.reload.read()) -> read => if let Ok(read) = read { self.reloaded(read) },
                recv(self.changes.merged()) -> list => if let Ok(list) = list { self.list_merged(&list) },
                recv(self.enforcement.told()) -> forgotten => match forgotten {
                    Ok(0) | Err(_) => {}
                    Ok(1) => log::info!("forgot 1 swarm that is no longer permitted"),
                    Ok(swarms) => log::info!("forgot {swarms} swarms that are no longer permitted"),
                },
                recv(self.tracker.running.deaths()) -> death => {
                    let unknown = || Death { name: "worker".into(), cause: "unknown".into() };
                    break End::Died(death.unwrap_or_else(|_| unknown()));
                }
                recv(seconds) -> _ => self.second(Instant::now()),
            }
        };
        if end != End::Given {
            service::stopping("stopping");
        }
        self.overview.change(|shown| shown.phase = Phase::Stopping);
        if let Some(http) = &self.tracker.http {
            http.stopping();
        }
        end
    }

    /// Does what another thread asked for.
    fn obey(&mut self, ask: Ask) {
        match ask {
            Ask::Reload(answer) => self.reload_for("reload", Some(answer)),
            Ask::Export(answer) => self.export(Some(answer)),
            Ask::ChangeList(changes, answer) => answer.tell(self.change_list(&changes)),
        }
    }

    /// Writes the full scrape to its file.
    fn export(&mut self, answer: Option<Told>) {
        let orders = self.tracker.running.orders();
        self.exports.begin(&self.settings.export, orders, answer);
    }

    /// What is due once a second.
    fn second(&mut self, now: Instant) {
        let Self { tracker, watch, enforcement, lifeline, exports, settings, .. } = self;
        if let Err(deaf) = enforcement.second(&tracker.lists.access, tracker.running.orders(), now)
        {
            log::error!("{deaf}: swarms that are no longer permitted stay in its shard");
        }
        exports.second(&settings.export, tracker.running.orders(), now);
        let Tracker { running, snapshots, clock, .. } = tracker;
        snapshots.second(running.orders(), *clock, now);
        let workers: Vec<_> = running.workers().collect();
        lifeline.second(&workers, now);
        let steering = tracker.steering.as_mut();
        let mut steer = steering.map(|steering| |change| turn(steering, change));
        let steer = steer.as_mut().map(|steer| steer as Steer<'_>);
        for (level, text) in watch.second(&workers, now, steer) {
            log::log!(level, "{text}");
        }
        self.look_for_overload(now);
    }

    /// Eases the load where too much is dropped, and puts an end to that.
    fn look_for_overload(&mut self, now: Instant) {
        let Summary { datagrams, kernel_drops, .. } = self.tracker.running.summary();
        let (anew, what) = self.overload.second(&self.settings, datagrams, kernel_drops, now);
        if let Some(what) = what {
            log::warn!("{what}");
        }
        if anew {
            self.announce_rules();
        }
    }

    fn pressure(&self) -> Pressure {
        self.overload.pressure(&self.settings.overload, &self.settings.announce)
    }
}
