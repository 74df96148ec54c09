//! State of the HTTP server, shared by its routes and the main thread. Workers never touch it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api::Problem;
use crate::api::stats::HttpStats;
use crate::metrics::process::Process;
use crate::metrics::snapshot::{StatsSnapshot, WorkerState};
use crate::readiness::{AtomicReadiness, Readiness};
use crate::stall::{STALL_THRESHOLD, StallDetector};
use crate::token::Token;
use crate::view::{InForce, View};
use onrush_config::settings::AdminSettings;

/// State of the HTTP server.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) readiness: AtomicReadiness,
    /// `admin.timeout`: time limit for a response that depends on another thread.
    pub(crate) timeout: Duration,
    /// Set while a request walks over all swarms; only one may at a time.
    pub(crate) walk_running: AtomicBool,
    view: OnceLock<View>,
    token: Mutex<Option<Token>>,
    stalls: Mutex<StallDetector>,
    requests: AtomicU64,
    connections: Arc<AtomicU64>,
    in_progress: Arc<AtomicU64>,
    turned_away: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(token: Option<Token>, settings: &AdminSettings) -> Self {
        Self {
            readiness: AtomicReadiness::new(),
            timeout: settings.timeout,
            walk_running: AtomicBool::new(false),
            view: OnceLock::new(),
            token: Mutex::new(token),
            stalls: Mutex::new(StallDetector::new(Instant::now())),
            requests: AtomicU64::new(0),
            connections: Arc::default(),
            in_progress: Arc::default(),
            turned_away: AtomicU64::new(0),
        }
    }

    /// Publishes the view of a tracker that has started.
    pub(crate) fn serve(&self, view: View) {
        *lock(&self.stalls) = StallDetector::new(Instant::now());
        let _ = self.view.set(view);
        self.readiness.set(Readiness::Serving);
    }

    /// The view of the tracker; `None` until it has started.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.get()
    }

    /// The view of the tracker, or the 503 response that says why there is none.
    pub(crate) fn serving(&self) -> Result<&View, Problem> {
        self.view().ok_or_else(|| Problem::not_serving(self.readiness.get().name()))
    }

    /// Reads the workers' turn counters; returns for how long each has not changed.
    pub(crate) fn observe_turns(&self, now: Instant) -> Vec<Duration> {
        let Some(view) = self.view() else { return Vec::new() };
        let turns = view.workers().map(|(_, worker)| worker.turns.get());
        lock(&self.stalls).observe(turns, now)
    }

    /// The names of the stalled workers.
    pub(crate) fn stalled(&self, now: Instant) -> Vec<String> {
        let stalled_for = self.observe_turns(now);
        let workers = self.view().into_iter().flat_map(View::workers).map(|(name, _)| name);
        let stalled = workers.zip(stalled_for).filter(|(_, time)| *time >= STALL_THRESHOLD);
        stalled.map(|(name, _)| name.to_owned()).collect()
    }

    /// Takes a snapshot of all state.
    ///
    /// # Errors
    /// A 503 response, until the tracker has started.
    pub(crate) fn snapshot(&self) -> Result<StatsSnapshot, Problem> {
        let view = self.serving()?;
        let InForce { settings, lists, pressure } = view.in_force();
        let stalled_for = self.observe_turns(Instant::now()).into_iter().enumerate();
        let states = stalled_for.map(|(worker, stalled_for)| {
            let (lane_waiting, lane_capacity) = view.lane_depth(worker);
            WorkerState { lane_waiting, lane_capacity, stalled_for }
        });
        let (start, started) = view.started();
        Ok(StatsSnapshot {
            workers: view.shared_workers(),
            states: states.collect(),
            addresses: view.addresses().to_vec(),
            lists,
            pressure,
            settings,
            readiness: self.readiness.get(),
            time: unix(SystemTime::now()),
            started: unix(started),
            uptime: start.elapsed(),
            files: view.files().clone(),
            process: Process::read(),
            http: self.http(),
        })
    }

    /// Whether `given` is the token; `None` where the admin API is off.
    pub(crate) fn is_token(&self, given: &str) -> Option<bool> {
        lock(&self.token).as_ref().map(|token| token.is(given))
    }

    /// Replaces the token.
    pub(crate) fn set_token(&self, token: Option<Token>) {
        *lock(&self.token) = token;
    }

    /// Counts a request.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was refused because too many are open.
    pub(crate) fn count_turned_away(&self) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request as in progress until the returned value is dropped.
    pub(crate) fn begin_request(&self) -> Counted {
        Counted::new(&self.in_progress)
    }

    /// Whether a request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_progress.load(Ordering::Relaxed) > 0
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn begin_connection(&self) -> Counted {
        Counted::new(&self.connections)
    }

    fn http(&self) -> HttpStats {
        HttpStats {
            requests: self.requests.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
        }
    }
}

/// Increments a level for as long as it exists.
pub(crate) struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(level: &Arc<AtomicU64>) -> Self {
        level.fetch_add(1, Ordering::Relaxed);
        Self(level.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Each critical section is a single assignment or call, so a poisoned mutex holds a valid value.
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
    use crate::metrics::testing::settings;
    use crate::view::Parts;
    use onrush_swarm::ShardMap;
    use onrush_tracker::access::Lists;
    use onrush_tracker::metrics::WorkerMetrics;
    use onrush_tracker::orders::Orders;

    /// The state of a tracker with two workers; the test sets their turn counters.
    fn state() -> (ServerState, [Arc<WorkerMetrics>; 2]) {
        let settings = settings("");
        let workers = [(); 2].map(|()| Arc::new(WorkerMetrics::default()));
        let named = ["worker-0", "worker-1"].into_iter().zip(&workers);
        let state = ServerState::new(None, &settings.admin);
        let parts = Parts {
            workers: named.map(|(name, metrics)| (name.to_owned(), metrics.clone())).collect(),
            orders: Orders::new(&[], 0, Arc::from([])),
            mailboxes: Arc::from([]),
            map: ShardMap::new([1; 5], 1),
            addresses: Vec::new(),
            files: Files::default(),
        };
        let settings = Arc::new(settings);
        let in_force = InForce { settings, lists: Lists::open(), pressure: Default::default() };
        state.serve(View::new(parts, in_force, crossbeam_channel::bounded(1).0));
        (state, workers)
    }

    #[test]
    fn a_worker_without_turns_is_named_after_five_seconds() {
        let (state, workers) = state();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..5 {
            workers.iter().for_each(|worker| worker.turns.add(1));
            assert_eq!(state.stalled(at(second)), [""; 0]);
        }
        for second in 5..9 {
            workers[0].turns.add(1);
            assert_eq!(state.stalled(at(second)), [""; 0]);
        }
        workers[0].turns.add(1);
        assert_eq!(state.stalled(at(9)), ["worker-1"]);
        workers[1].turns.add(1);
        assert_eq!(state.stalled(at(10)), [""; 0], "worker-0 has stalled for 1 s only");
    }
}
