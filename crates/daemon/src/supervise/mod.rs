//! The main thread once the workers run: hears signals, deaths and what others ask for, watches once a
//! second, reports.
//!
//! | room | what is in it |
//! |---|---|
//! | [`ask`] | what other threads may ask for |
//! | `lists` | what is put on the list and taken off it meanwhile |
//! | `reloading` | the configuration that was read again comes into force |
//! | `upgrading` | another process takes over |
//! | `watch` | what is to be said and done, second by second |

mod lists;
mod reloading;
mod upgrading;
mod watch;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, never, select, tick};

use crate::exports::{Exports, Told};
use crate::overload::Overload;
use crate::process::service::{self, Lifeline};
use crate::process::signals::Wish;
use crate::purge::Enforcement;
use crate::reload::Reload;
use crate::start::Tracker;
use crate::upgrade::give::Given;
use crate::upgrade::successor::Program;
use lists::Changes;
use onrush_config::settings::Settings;
use onrush_control::files::Files;
use onrush_control::request::Request;
use onrush_control::view::{InForce, Parts, Pressure, View};
use onrush_tracker::metrics::Summary;
use onrush_tracker::running::WorkerFailure;
use upgrading::Upgrading;
use watch::{Steer, Watch, turn};

/// Things that others have asked for and that wait for the main thread at most. It is quick with all of
/// them.
const ASKS_ROOM: usize = 64;

/// Why the tracker ends.
#[derive(Debug)]
pub enum End {
    /// It was asked to.
    Asked,
    /// A worker died.
    Died(WorkerFailure),
    /// Another process has its sockets.
    Given(Given),
    /// The process that got them ended before it had all of the peers; this is its number.
    Orphaned(i32),
}

/// How long the sockets may be between two processes, when this one is asked to stop at that moment.
const LAST_STEP: Duration = Duration::from_secs(5);

/// Whoever watches over a running tracker.
pub struct Supervisor {
    tracker: Tracker,
    settings: Arc<Settings>,
    reload: Reload,
    watch: Watch,
    enforcement: Enforcement,
    overload: Overload,
    changes: Changes,
    upgrading: Upgrading,
    exports: Exports,
    asks: Receiver<Request>,
    view: View,
    lifeline: Lifeline,
}

impl Supervisor {
    /// Of a tracker that was started with these settings.
    pub fn new(mut tracker: Tracker, settings: Settings, reload: Reload) -> Self {
        let (sender, asks) = bounded(ASKS_ROOM);
        let running = &tracker.running;
        let watch = Watch::new(&settings, Instant::now());
        let settings = Arc::new(settings);
        let in_force = InForce {
            settings: settings.clone(),
            lists: tracker.lists.clone(),
            pressure: Pressure { step: 0, interval: settings.announce.interval },
        };
        let exports = Exports::default();
        let files = Files {
            snapshot: tracker.snapshots.writes().clone(),
            export: exports.writes().clone(),
        };
        let parts = Parts {
            workers: running.shared_workers(),
            orders: running.orders().clone(),
            mailboxes: running.mailboxes().clone(),
            map: tracker.map,
            addresses: running.addresses().to_vec(),
            files,
        };
        let view = View::new(parts, in_force, sender);
        if let Some(http) = &tracker.http {
            http.serve(view.clone());
        }
        let (mut enforcement, changes) = (Enforcement::new(), Changes::new());
        if let Some(former) = tracker.former.take() {
            enforcement.begin(&tracker.lists.access, former, Instant::now());
        }
        let lifeline = Lifeline::new(tracker.running.addresses(), Instant::now());
        let mut overload = Overload::new(Instant::now());
        let promise = tracker.promise.take();
        if let Some(promise) = promise {
            overload.keep(promise, Instant::now());
        }
        let supervisor = Self {
            tracker,
            settings,
            reload,
            watch,
            enforcement,
            overload,
            changes,
            upgrading: Upgrading::new(None, Instant::now()),
            exports,
            asks,
            view,
            lifeline,
        };
        if promise.is_some() {
            supervisor.announce_rules();
        }
        supervisor
    }

    /// One that can start a successor, by this program.
    pub fn followed_by(mut self, program: Program) -> Self {
        self.upgrading = Upgrading::new(Some(program), Instant::now());
        self
    }

    /// What others may see of it.
    pub fn view(&self) -> &View {
        &self.view
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
            let successor = self.upgrading.ended().unwrap_or_else(never);
            select! {
                recv(wishes) -> wish => match wish {
                    Ok(Wish::Reload) => self.reload_for("SIGHUP", None),
                    Ok(Wish::User) => self.export(None),
                    Ok(Wish::Upgrade(at)) => self.upgrade_for_signal(at),
                    Ok(Wish::Stop) | Err(_) => break End::Asked,
                },
                recv(self.tracker.upgrade) -> step => match step {
                    Ok(step) => if let Some(given) = self.upgrade_is_at(step) {
                        break End::Given(given);
                    },
                    // Whoever would tell is gone.
                    Err(_) => self.tracker.upgrade = never(),
                },
                recv(successor) -> ended => match ended {
                    Ok(ended) => self.successor_ended(ended),
                    Err(_) => self.successor_ended(Err(io::ErrorKind::BrokenPipe.into())),
                },
                recv(self.asks) -> ask => if let Ok(ask) = ask { self.obey(ask) },
                recv(self.reload.read()) -> read => if let Ok(read) = read { self.reloaded(read) },
                recv(self.changes.merged()) -> list => if let Ok(list) = list { self.list_merged(&list) },
                recv(self.enforcement.told()) -> forgotten => match forgotten {
                    Ok(0) | Err(_) => {}
                    Ok(1) => log::info!("forgot 1 swarm that is no longer permitted"),
                    Ok(swarms) => log::info!("forgot {swarms} swarms that are no longer permitted"),
                },
                recv(self.tracker.running.failures()) -> death => {
                    let unknown = || WorkerFailure { name: "worker".into(), cause: "unknown".into() };
                    break End::Died(death.unwrap_or_else(|_| unknown()));
                }
                recv(seconds) -> _ => self.second(Instant::now()),
            }
        };
        let end = match end {
            // Whoever asks for the end may come at the same moment as another process that gets the sockets.
            // And a death here must not be taken for one of theirs.
            End::Asked | End::Died(_) => self.given_at_the_end().map_or(end, End::Given),
            End::Given(_) | End::Orphaned(_) => end,
        };
        if !matches!(end, End::Given(_)) {
            service::stopping("stopping");
            self.keep_promise(true, Instant::now());
        }
        if let Some(http) = &self.tracker.http {
            http.stopping();
        }
        self.exports.give_up();
        end
    }

    /// Does what another thread asked for.
    fn obey(&mut self, ask: Request) {
        match ask {
            Request::Reload(answer) => self.reload_for("reload", Some(answer)),
            Request::Export(answer) => self.export(Some(answer)),
            Request::Upgrade(answer) => self.upgrade_when_asked(answer),
            Request::ChangeList(changes, answer) => answer.respond(self.change_list(&changes)),
        }
    }

    /// Writes the full scrape to its file.
    fn export(&mut self, answer: Option<Told>) {
        let orders = self.tracker.running.orders();
        self.exports.begin(&self.settings.export, orders, answer);
    }

    /// What is due once a second.
    fn second(&mut self, now: Instant) {
        let Self { tracker, watch, enforcement, lifeline, exports, settings, upgrading, .. } = self;
        if let Err(deaf) = enforcement.second(&tracker.lists.access, tracker.running.orders(), now)
        {
            log::error!("{deaf}: swarms that are no longer permitted stay in its shard");
        }
        exports.second(&settings.export, tracker.running.orders(), now);
        let Tracker { running, snapshots, clock, .. } = tracker;
        snapshots.second(running.orders(), *clock, now);
        let workers: Vec<_> = running.workers().collect();
        lifeline.second(&workers, now);
        // A process that has the sockets has its own idea of them.
        let steering = tracker.steering.as_mut().filter(|_| !upgrading.is_settled());
        let mut steer = steering.map(|steering| |change| turn(steering, change));
        let steer = steer.as_mut().map(|steer| steer as Steer<'_>);
        for (level, text) in watch.second(&workers, now, steer) {
            log::log!(level, "{text}");
        }
        self.look_for_overload(now);
        self.look_at_successor(now);
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
        self.keep_promise(anew, now);
    }

    /// Writes down what clients were told that the process after this one has to keep.
    fn keep_promise(&mut self, at_once: bool, now: Instant) {
        let promise = self.promise(now);
        let unix = self.tracker.clock.now().unix;
        if let Some(kept) = &mut self.tracker.kept
            && let Err(error) = kept.second(promise, at_once, unix, now)
        {
            log::debug!("what clients were told is not written down: {error}");
        }
    }

    fn pressure(&self) -> Pressure {
        self.overload.pressure(&self.settings.overload, &self.settings.announce)
    }
}
