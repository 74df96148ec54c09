//! State of the HTTP server, shared by its routes and the main thread. Workers never touch it.

use std::iter;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::StatusCode;

use crate::api::Problem;
use crate::api::stats::Files;
use crate::connections::Connections;
use crate::metrics::process::Process;
use crate::metrics::snapshot::{StatsSnapshot, WorkerState};
use crate::mutex::lock;
use crate::readiness::Readiness;
use crate::stall::{STALL_REPORTED, StallDetector};
use crate::token::Token;
use crate::view::{InForce, View};
use onrush_config::settings::AdminSettings;

/// The state as an argument of the routes.
pub(crate) type SharedState = State<Arc<ServerState>>;

/// The tracker begins to look for its state directory, or has none.
const NO_SOCKET: &str = "this tracker has no control socket: it has no state directory that it can \
                         write to (its log says why)";

/// State of the HTTP server.
pub(crate) struct ServerState {
    /// `admin.timeout`: time limit for a response that depends on another thread.
    pub(crate) timeout: Duration,
    /// Held while a request walks over all swarms; only one may at a time.
    walk: tokio::sync::Mutex<()>,
    /// Held while the workers sample sources; only one request may use them at a time.
    pub(crate) sampling: tokio::sync::Mutex<()>,
    /// The open connections.
    pub(crate) connections: Arc<Connections>,
    /// `admin.hosts`, until there is a view.
    hosts: Vec<String>,
    /// Each request in progress has a clone.
    pub(crate) in_progress: Arc<()>,
    readiness: Mutex<Readiness>,
    view: OnceLock<View>,
    token: Mutex<Option<Token>>,
    /// Where no token is needed, or why there is no such place.
    socket: Mutex<String>,
    stalls: Mutex<StallDetector>,
}

impl ServerState {
    pub(crate) fn new(token: Option<Token>, settings: &AdminSettings) -> Self {
        Self {
            timeout: settings.timeout,
            walk: tokio::sync::Mutex::default(),
            sampling: tokio::sync::Mutex::default(),
            connections: Connections::new(settings.connections, settings.timeout),
            hosts: settings.hosts.clone(),
            in_progress: Arc::default(),
            readiness: Mutex::new(Readiness::Starting),
            view: OnceLock::new(),
            token: Mutex::new(token),
            socket: Mutex::new(NO_SOCKET.to_owned()),
            stalls: Mutex::new(StallDetector::new(Instant::now())),
        }
    }

    pub(crate) fn readiness(&self) -> Readiness {
        *lock(&self.readiness)
    }

    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        *lock(&self.readiness) = readiness;
    }

    /// Publishes the view of a tracker that has started.
    pub(crate) fn serve(&self, view: View) {
        *lock(&self.stalls) = StallDetector::new(Instant::now());
        let _ = self.view.set(view);
        self.set_readiness(Readiness::Serving);
    }

    /// The view of the tracker; `None` until it has started.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.get()
    }

    /// The view of the tracker, or the 503 response that says why there is none.
    pub(crate) fn serving(&self) -> Result<&View, Problem> {
        self.view().ok_or_else(|| {
            let readiness = self.readiness().name();
            Problem::unavailable(format!(
                "the tracker is {readiness}: /ready reports when it serves"
            ))
        })
    }

    /// Permits a walk over all swarms, until the result is dropped; the 429 response if another
    /// request has the permission.
    pub(crate) fn walk(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Problem> {
        self.walk.try_lock().map_err(|_| {
            let error = "another request is searching the swarms: try again in a moment";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, error)
        })
    }

    /// Reads the members' turn counters; returns for how long each has not changed.
    pub(crate) fn observe_turns(&self, now: Instant) -> Vec<Duration> {
        let Some(view) = self.view() else { return Vec::new() };
        let turns = view.members().iter().map(|member| member.metrics.turns.get());
        lock(&self.stalls).observe(turns, now)
    }

    /// The names of the stalled members.
    pub(crate) fn stalled(&self, now: Instant) -> Vec<String> {
        let stalled_for = self.observe_turns(now);
        let members = self.view().into_iter().flat_map(View::members);
        let stalled = members.zip(stalled_for).filter(|(_, time)| *time >= STALL_REPORTED);
        stalled.map(|(member, _)| member.name.clone()).collect()
    }

    /// Takes a snapshot of all state.
    ///
    /// # Errors
    /// A 503 response, until the tracker has started.
    pub(crate) fn snapshot(&self) -> Result<StatsSnapshot, Problem> {
        let view = self.serving()?;
        let View { parts, started: (start, started), .. } = view;
        let InForce { settings, lists, overrides, overload, last_reload, certificates, .. } =
            view.in_force();
        let stalled_for = self.observe_turns(Instant::now()).into_iter();
        let depths = parts.mailboxes.iter().map(|mailbox| mailbox.requests.depth());
        // Members without a thread have no mailbox.
        let states = stalled_for.zip(depths.chain(iter::repeat((0, 0))));
        let states = states.map(|(stalled_for, (lane_waiting, lane_capacity))| WorkerState {
            lane_waiting,
            lane_capacity,
            stalled_for,
        });
        Ok(StatsSnapshot {
            members: parts.members.clone(),
            states: states.collect(),
            addresses: parts.addresses.clone(),
            lists,
            list_overrides: overrides.map_or(0, |overrides| overrides.entries),
            overload,
            last_reload,
            certificates,
            settings,
            readiness: self.readiness(),
            time: unix(SystemTime::now()),
            started: unix(*started),
            uptime: start.elapsed(),
            files: Files {
                snapshot: parts.files.snapshot.stats(),
                export: parts.files.export.stats(),
            },
            lost_log_lines: (parts.lost_log_lines)(),
            process: Process::read(),
            admin: self.connections.counters.clone(),
        })
    }

    /// Whether a host name is one of `admin.hosts`.
    pub(crate) fn is_own_name(&self, name: &str) -> bool {
        let is_in = |hosts: &[String]| hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
        match self.view() {
            Some(view) => is_in(&view.in_force().settings.admin.hosts),
            None => is_in(&self.hosts),
        }
    }

    /// Whether `given` is the token; `None` where the admin API is off.
    pub(crate) fn is_token(&self, given: &str) -> Option<bool> {
        lock(&self.token).as_ref().map(|token| token.is(given))
    }

    /// Replaces the token.
    pub(crate) fn set_token(&self, token: Option<Token>) {
        *lock(&self.token) = token;
    }

    /// Where no token is needed, or why there is no such place.
    pub(crate) fn socket(&self) -> String {
        lock(&self.socket).clone()
    }

    /// Sets the text about the socket for clients without a token. Returns whether it is new.
    pub(crate) fn set_socket(&self, text: String) -> bool {
        let mut socket = lock(&self.socket);
        let is_new = *socket != text;
        *socket = text;
        is_new
    }

    /// Whether a request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        Arc::strong_count(&self.in_progress) > 1
    }
}

pub(crate) fn unix(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::history::History;
    use crate::view::Parts;
    use onrush_config::Settings;
    use onrush_swarm::ShardMap;
    use onrush_tracker::access::Lists;
    use onrush_tracker::member::{Member, Role};
    use onrush_tracker::metrics::WorkerMetrics;
    use onrush_tracker::orders::Orders;
    use onrush_tracker::running::Addresses;

    /// The state of a tracker with two workers; the test sets their turn counters.
    fn state() -> (ServerState, [Arc<WorkerMetrics>; 2]) {
        let settings = Settings::for_test("");
        let workers = [(); 2].map(|()| Arc::new(WorkerMetrics::default()));
        let members = workers.iter().enumerate();
        let state = ServerState::new(None, &settings.admin);
        let parts = Parts {
            members: members
                .map(|(n, metrics)| Member::new(Role::Both, n, metrics.clone()))
                .collect(),
            orders: Orders::new(&[], 0, Arc::from([])),
            mailboxes: Arc::from([]),
            map: ShardMap::new([1; 5], 1),
            addresses: Addresses::default(),
            files: Files::default(),
            history: Arc::new(History::new(Instant::now())),
            lost_log_lines: || 0,
            compare: Box::new(|_| Ok(Vec::new())),
            candidate: Box::new(|_, _, _| unreachable!()),
        };
        let settings = Arc::new(settings);
        let in_force = InForce {
            settings,
            log_level_by: None,
            lists: Lists::open(),
            overrides: None,
            most_entries: Vec::new(),
            overload: Default::default(),
            last_reload: Default::default(),
            certificates: Default::default(),
        };
        state.serve(View::new(parts, in_force, crossbeam_channel::bounded(1).0));
        (state, workers)
    }

    #[test]
    fn a_worker_without_turns_is_named_after_five_seconds() {
        let (state, workers) = state();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..9 {
            workers[0].turns.add(1);
            workers[1].turns.add(u64::from(second < 5));
            assert_eq!(state.stalled(at(second)), [""; 0]);
        }
        workers[0].turns.add(1);
        assert_eq!(state.stalled(at(9)), ["worker-1"]);
        workers[1].turns.add(1);
        assert_eq!(state.stalled(at(10)), [""; 0], "worker-0 has stalled for 1 s only");
    }
}
