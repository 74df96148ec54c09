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

use crate::harness::client::Client;
use crate::harness::process::TIMEOUT;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The placements in which the tests run: keys of the table `[workers]`.
const PLACEMENTS: [&str; 2] =
    ["placement = \"split\"\nsocket = 2\nswarm = 2", "placement = \"colocated\"\ntotal = 2"];

/// The loopback address of each family.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

/// Runs a test against a tracker in each placement, on 127.0.0.1 and ::1. `tables` are further
/// tables of its configuration file.
pub(crate) fn both(tables: &str, test: impl Fn(&RunningTracker)) {
    for config in TrackerConfig::both() {
        test(&config.tables(tables).start());
    }
}

/// Runs a test in each placement with a connected client of each family, each time against a new
/// tracker.
pub(crate) fn each(tables: &str, test: impl Fn(&RunningTracker, &Client)) {
    for source in LOOPBACK {
        both(tables, |tracker| test(tracker, &tracker.client(source)));
    }
}

/// The configuration of a tracker.
#[derive(Clone, Debug)]
pub(crate) struct TrackerConfig {
    workers: &'static str,
    listen: String,
    tables: String,
    change: fn(&mut Settings),
}

impl TrackerConfig {
    /// One configuration per placement.
    pub(crate) fn both() -> [Self; 2] {
        PLACEMENTS.map(Self::with_workers)
    }

    /// A configuration with these keys of the table `[workers]`.
    pub(crate) fn with_workers(workers: &'static str) -> Self {
        let listen = "\"127.0.0.1:0\", \"[::1]:0\"".to_owned();
        Self { workers, listen, tables: String::new(), change: |_| {} }
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
        let settings = self.settings(state.path());
        let tracker = Tracker::start(&settings, None).unwrap_or_else(|error| panic!("{error}"));
        RunningTracker { workers: self.workers, tracker, state }
    }

    fn settings(&self, state: &Path) -> Settings {
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
    workers: &'static str,
    pub(crate) tracker: Tracker,
    state: TempDir,
}

impl RunningTracker {
    /// The totals of all workers.
    pub(crate) fn summary(&self) -> Summary {
        self.tracker.running.summary()
    }

    /// A counter of one family, summed over all workers.
    pub(crate) fn incoming(&self, family: Family, counter: impl Fn(&Incoming) -> u64) -> u64 {
        let workers = self.tracker.running.workers();
        workers.map(|(_, metrics)| counter(metrics.incoming.of(family))).sum()
    }

    /// Refusals of one family, by reason.
    pub(crate) fn refused(&self, family: Family) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (_, metrics) in self.tracker.running.workers() {
            for (reason, count) in metrics.incoming.of(family).refusals() {
                *counts.entry(reason).or_default() += count;
            }
        }
        counts
    }

    /// The state directory.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    /// The addresses of the listeners.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.tracker.running.addresses()
    }

    /// The address of the listener in the family of `ip`.
    pub(crate) fn address_for(&self, ip: IpAddr) -> SocketAddr {
        let addresses = self.addresses();
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
        Client::at(ip, self.address_for(ip)).strict()
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    /// When a worker fails meanwhile, or after [`TIMEOUT`].
    pub(crate) fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
            if let Ok(failure) = self.tracker.running.failures().recv_timeout(POLL_INTERVAL) {
                panic!("{} failed: {}", failure.name, failure.cause);
            }
        }
    }

    /// Waits until every worker has finished a turn that began after this call: all requests
    /// received before have been processed, and their replies sent.
    pub(crate) fn until_all_have_turned(&self) {
        let turns = || -> Vec<u64> {
            self.tracker.running.workers().map(|(_, metrics)| metrics.turns.get()).collect()
        };
        // The current turn does not count, the next one does.
        let before = turns();
        self.until("every worker has taken two turns", || {
            turns().iter().zip(&before).all(|(now, before)| *now >= before + 2)
        });
    }

    /// Asserts that a datagram gets no reply and is counted once, for this reason and the client's
    /// family only. The client must be connected.
    pub(crate) fn assert_ignored(&self, client: &Client, datagram: &[u8], reason: &'static str) {
        let family = client.family();
        let before = self.refused(family);
        let replies = client.replies_to(datagram);
        assert!(replies.is_empty(), "{reason}: unexpected reply {replies:02x?}");
        let mut expected = before.clone();
        *expected.entry(reason).or_default() += 1;
        self.until(&format!("{reason} is counted"), || self.refused(family) != before);
        assert_eq!(self.refused(family), expected, "counted once, as {reason}");
    }
}

impl Drop for RunningTracker {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the workers were:\n{}", self.workers);
        }
    }
}
