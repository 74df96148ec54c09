//! What the routes share with each other and with the main thread. Nothing here is touched by a worker.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::process::Process;
use super::pulse::{Pulse, STUCK};
use super::reading::{Depth, Reading, State, mode_of};
use super::source::Source;
use super::stage::{Stage, StageCell};
use super::stats::HttpStats;
use super::token::Token;
use crate::view::InForce;
use onrush_config::settings::AdminSettings;

/// State of the HTTP side.
#[derive(Debug)]
pub struct Shared {
    pub(super) stage: StageCell,
    /// For making an answer that others have a part in.
    pub(super) patience: Duration,
    /// One request at a time may have all shards looked through.
    pub(super) looking_through: AtomicBool,
    source: OnceLock<Source>,
    token: Mutex<Option<Token>>,
    pulse: Mutex<Pulse>,
    requests: AtomicU64,
    connections: Arc<AtomicU64>,
    under_way: Arc<AtomicU64>,
    turned_away: AtomicU64,
}

impl Shared {
    pub(super) fn new(token: Option<Token>, settings: &AdminSettings) -> Self {
        Self {
            stage: StageCell::new(),
            patience: settings.timeout,
            looking_through: AtomicBool::new(false),
            source: OnceLock::new(),
            token: Mutex::new(token),
            pulse: Mutex::default(),
            requests: AtomicU64::new(0),
            connections: Arc::default(),
            under_way: Arc::default(),
            turned_away: AtomicU64::new(0),
        }
    }

    pub(super) fn serve(&self, source: Source) {
        let _ = self.source.set(source);
        self.look(Instant::now());
        self.stage.set(Stage::Serving);
    }

    /// Everything about the tracker, once it serves.
    pub(super) fn source(&self) -> Option<&Source> {
        self.source.get()
    }

    /// Looks at the turns of the workers; for how long each has stood still.
    pub(super) fn look(&self, now: Instant) -> Vec<Duration> {
        let Some(source) = self.source() else { return Vec::new() };
        let turns = source.overview.workers().map(|(_, worker)| worker.turns.get());
        lock(&self.pulse).look(turns, now)
    }

    /// The names of the workers that are stuck.
    pub(super) fn stuck(&self, now: Instant) -> Vec<String> {
        let still = self.look(now);
        let Some(source) = self.source() else { return Vec::new() };
        let workers = source.overview.workers().map(|(name, _)| name);
        let stuck = workers.zip(still).filter(|(_, still)| *still >= STUCK);
        stuck.map(|(name, _)| name.to_owned()).collect()
    }

    /// A look at everything.
    pub(super) fn reading(&self) -> Option<Reading> {
        let source = self.source()?;
        let InForce { settings, lists, pressure, .. } = source.overview.in_force();
        let states =
            self.look(Instant::now()).into_iter().enumerate().map(|(worker, still_for)| {
                let (waiting, room) = source.lane(worker);
                State { lane: Depth { waiting, room }, still_for }
            });
        Some(Reading {
            workers: source.overview.shared_workers(),
            states: states.collect(),
            addresses: source.overview.addresses().to_vec(),
            list_mode: mode_of(&lists.access),
            list_entries: lists.access.len(),
            blocked_sources: lists.blocked.len(),
            pressure,
            settings,
            stage: self.stage.get(),
            time: unix(SystemTime::now()),
            started: unix(source.overview.started()),
            uptime: source.started.elapsed(),
            files: source.overview.files().clone(),
            process: Process::here(),
            http: self.http(),
        })
    }

    /// Whether this is the token; `None` where there is none to be.
    pub(super) fn knows(&self, given: &str) -> Option<bool> {
        lock(&self.token).as_ref().map(|token| token.is(given))
    }

    /// Goes by this token from now on.
    pub(super) fn follow(&self, token: Option<Token>) {
        *lock(&self.token) = token;
    }

    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer that is under way until what is returned is dropped.
    pub(super) fn under_way(&self) -> Counted {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Counted(self.under_way.clone())
    }

    /// Whether an answer is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Counts a connection until what is returned is dropped.
    pub(super) fn connection(&self) -> Counted {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Counted(self.connections.clone())
    }

    fn http(&self) -> HttpStats {
        HttpStats {
            requests: self.requests.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
        }
    }
}

/// A connection that is counted.
pub(super) struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whoever panicked while holding it has left nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::view::{Overview, Phase};
    use onrush_config::file::Config;
    use onrush_config::flags::Flags;
    use onrush_config::settings::{Host, Settings};
    use onrush_swarm::ShardMap;
    use onrush_tracker::access::Lists;
    use onrush_tracker::metrics::WorkerMetrics;
    use onrush_tracker::orders::Orders;

    /// The state over two workers that take turns when a test says so.
    fn shared() -> (Shared, [Arc<WorkerMetrics>; 2]) {
        let config = Config::parse("test.toml", "");
        let (settings, _) =
            Settings::resolve(config, &Flags::default(), &Host::default()).expect("is right");
        let workers = [(); 2].map(|()| Arc::new(WorkerMetrics::default()));
        let named = ["worker-0", "worker-1"].into_iter().zip(&workers);
        let named = named.map(|(name, metrics)| (name.to_owned(), metrics.clone())).collect();
        let (asks, _) = crossbeam_channel::bounded(1);
        let shared = Shared::new(None, &settings.admin);
        let in_force = InForce {
            settings: Arc::new(settings),
            lists: Lists::open(),
            phase: Phase::Serving,
            pressure: Default::default(),
        };
        let orders = Orders::new(&[], Arc::from([]));
        let overview = Overview::new(named, orders, &[], in_force, Files::default(), asks);
        shared.serve(Source::new(overview, Arc::from([]), ShardMap::new([1; 5], 1)));
        (shared, workers)
    }

    #[test]
    fn a_worker_that_takes_no_turns_is_named_after_five_seconds() {
        let (shared, workers) = shared();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..5 {
            workers.iter().for_each(|worker| worker.turns.add(1));
            assert_eq!(shared.stuck(at(second)), [""; 0]);
        }
        for second in 5..9 {
            workers[0].turns.add(1);
            assert_eq!(shared.stuck(at(second)), [""; 0]);
        }
        workers[0].turns.add(1);
        assert_eq!(shared.stuck(at(9)), ["worker-1"]);
        workers[1].turns.add(1);
        assert_eq!(shared.stuck(at(10)), ["worker-0"; 0], "both go on, or have not stood long");
    }
}
