//! A tracker in this process, in either placement.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onrush::Tracker;
use onrush_config::Settings;
use onrush_config::{Flags, Host};
use onrush_proto::Family;
use onrush_tracker::metrics::{Incoming, Summary};
use tempfile::TempDir;

use super::client::Client;

/// Deadline of every wait. Long, because a loaded machine may stall for seconds; successful tests
/// never wait this long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The placements in which the tests run.
const PLACEMENTS: [(&str, &str); 2] = [
    ("split", "placement = \"split\"\nsocket = 2\nswarm = 2"),
    ("colocated", "placement = \"colocated\"\ntotal = 2"),
];

/// Runs a test against a tracker in each placement, on 127.0.0.1 and ::1. `tables` are further
/// tables of its configuration file.
pub(crate) fn both(tables: &str, test: impl Fn(&RunningTracker)) {
    for config in TrackerConfig::both() {
        test(&config.tables(tables).start());
    }
}

/// The configuration of a tracker.
#[derive(Clone, Debug)]
pub(crate) struct TrackerConfig {
    placement: &'static str,
    workers: &'static str,
    listen: String,
    tables: String,
    change: fn(&mut Settings),
}

impl TrackerConfig {
    /// One configuration per placement.
    pub(crate) fn both() -> [Self; 2] {
        PLACEMENTS.map(|(placement, workers)| Self {
            placement,
            workers,
            listen: "\"127.0.0.1:0\", \"[::1]:0\"".to_owned(),
            tables: String::new(),
            change: |_| {},
        })
    }

    /// Sets further tables of the configuration file.
    pub(crate) fn tables(mut self, tables: &str) -> Self {
        self.tables = tables.to_owned();
        self
    }

    /// Sets the addresses to listen on: a list in TOML without its brackets.
    pub(crate) fn listen(mut self, listen: &str) -> Self {
        self.listen = listen.to_owned();
        self
    }

    /// Sets a change of the settings beyond the ranges of the configuration file, so that a test
    /// does not wait for minutes or send thousands of packets.
    pub(crate) fn change(mut self, change: fn(&mut Settings)) -> Self {
        self.change = change;
        self
    }

    /// Starts the tracker with a new state directory.
    pub(crate) fn start(&self) -> RunningTracker {
        let state = tempfile::tempdir().expect("a state directory");
        self.start_in(state)
    }

    /// Starts the tracker with an existing state directory.
    pub(crate) fn start_in(&self, state: TempDir) -> RunningTracker {
        let settings = self.settings(state.path());
        let tracker = Tracker::start(&settings).unwrap_or_else(|error| panic!("{error}"));
        RunningTracker { config: self.clone(), tracker: Some(tracker), state: Some(state) }
    }

    /// The settings with this state directory.
    pub(crate) fn settings(&self, state: &Path) -> Settings {
        let Self { workers, listen, tables, .. } = self;
        let text = format!(
            "listen = [{listen}]\nstate_dir = {state:?}\n[admin]\nlisten = \"off\"\n\
             [workers]\npin = \"off\"\n{workers}\n{tables}"
        );
        let host = Host { vcpus: vec![0, 1], memory: Some(8 << 30), ..Host::default() };
        let (mut settings, _) = Settings::parse("test.toml", &text, &Flags::default(), &host)
            .unwrap_or_else(|problems| panic!("{problems}"));
        (self.change)(&mut settings);
        settings
    }
}

/// A running tracker.
pub(crate) struct RunningTracker {
    config: TrackerConfig,
    /// `None` only during a restart.
    tracker: Option<Tracker>,
    state: Option<TempDir>,
}

impl RunningTracker {
    /// The tracker itself.
    pub(crate) fn tracker(&self) -> &Tracker {
        self.tracker.as_ref().expect("a running tracker")
    }

    /// The totals of all workers.
    pub(crate) fn summary(&self) -> Summary {
        self.tracker().running.summary()
    }

    /// A counter of one family, summed over all workers.
    pub(crate) fn incoming(&self, family: Family, counter: impl Fn(&Incoming) -> u64) -> u64 {
        let workers = self.tracker().running.workers();
        workers.map(|(_, metrics)| counter(metrics.incoming.of(family))).sum()
    }

    /// Refusals of one family, by reason.
    pub(crate) fn refused(&self, family: Family) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (_, metrics) in self.tracker().running.workers() {
            for (reason, count) in metrics.incoming.of(family).refusals() {
                *counts.entry(reason).or_default() += count;
            }
        }
        counts
    }

    /// The state directory.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state.as_ref().expect("a state directory").path()
    }

    /// The address of the listener in the family of `ip`.
    pub(crate) fn address_for(&self, ip: IpAddr) -> SocketAddr {
        let addresses = self.tracker().running.addresses();
        let address = addresses.iter().find(|address| address.is_ipv4() == ip.is_ipv4());
        *address.unwrap_or_else(|| panic!("no listener in the family of {ip}: {addresses:?}"))
    }

    /// A connected client at `ip` (any of 127/8, or ::1).
    pub(crate) fn client(&self, ip: &str) -> Client {
        let mut client = self.unconnected_client(ip);
        client.connect();
        client
    }

    /// A client at `ip` without a connection id.
    pub(crate) fn unconnected_client(&self, ip: &str) -> Client {
        let ip = ip.parse().expect("an IP address");
        Client::new(ip, self.address_for(ip))
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    /// When a worker fails meanwhile, or after [`TIMEOUT`].
    pub(crate) fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
            if let Ok(failure) = self.tracker().running.failures().recv_timeout(POLL_INTERVAL) {
                panic!("{} failed: {}", failure.name, failure.cause);
            }
        }
    }

    /// Waits until every worker has finished a turn that began after this call: all requests
    /// received before have been processed, and their replies sent.
    pub(crate) fn until_all_have_turned(&self) {
        let turns = || -> Vec<u64> {
            self.tracker().running.workers().map(|(_, metrics)| metrics.turns.get()).collect()
        };
        // The current turn does not count, the next one does.
        let before = turns();
        self.until("every worker has taken two turns", || {
            turns().iter().zip(&before).all(|(now, before)| *now >= before + 2)
        });
    }

    /// Stops the tracker and starts another with the same state directory.
    pub(crate) fn restart(mut self) -> Self {
        self.tracker.take().expect("a running tracker").stop();
        let state = self.state.take().expect("a state directory");
        self.config.start_in(state)
    }
}

impl Drop for RunningTracker {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the placement was {}", self.config.placement);
        }
    }
}
