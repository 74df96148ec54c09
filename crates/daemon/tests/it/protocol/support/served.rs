//! A tracker in this process.

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

/// How long a test waits for what must come. Long, as a busy machine may stand still for seconds;
/// nothing waits this long when all is well.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks at something that changes by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// How the work is laid out: the tests run in both.
const PLACEMENTS: [(&str, &str); 2] = [
    ("split", "placement = \"split\"\nsocket = 2\nswarm = 2"),
    ("colocated", "placement = \"colocated\"\ntotal = 2"),
];

/// Runs a test against a tracker in each placement, on 127.0.0.1 and ::1. `tables` are further
/// tables of its configuration file.
pub(crate) fn both(tables: &str, test: impl Fn(&Served)) {
    for plan in Plan::both() {
        test(&plan.tables(tables).start());
    }
}

/// A tracker to be started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    placement: &'static str,
    workers: &'static str,
    listen: String,
    tables: String,
    change: fn(&mut Settings),
}

impl Plan {
    /// One for each placement.
    pub(crate) fn both() -> [Self; 2] {
        PLACEMENTS.map(|(placement, workers)| Self {
            placement,
            workers,
            listen: "\"127.0.0.1:0\", \"[::1]:0\"".to_owned(),
            tables: String::new(),
            change: |_| {},
        })
    }

    /// Further tables of the configuration file.
    pub(crate) fn tables(mut self, tables: &str) -> Self {
        self.tables = tables.to_owned();
        self
    }

    /// Where to listen instead: a list in TOML without its brackets.
    pub(crate) fn listen(mut self, listen: &str) -> Self {
        self.listen = listen.to_owned();
        self
    }

    /// A change of the settings that no configuration file may ask for, so that a test need not
    /// wait for minutes or send thousands of packets.
    pub(crate) fn change(mut self, change: fn(&mut Settings)) -> Self {
        self.change = change;
        self
    }

    /// Starts it with a state directory of its own.
    pub(crate) fn start(&self) -> Served {
        let state = tempfile::tempdir().expect("a directory for the state");
        self.start_in(state)
    }

    /// Starts it on a state directory that is there already.
    pub(crate) fn start_in(&self, state: TempDir) -> Served {
        let settings = self.settings(state.path());
        let tracker = Tracker::start(&settings).unwrap_or_else(|error| panic!("{error}"));
        Served { plan: self.clone(), tracker: Some(tracker), state: Some(state) }
    }

    /// What it means.
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

/// A tracker that serves.
pub(crate) struct Served {
    plan: Plan,
    /// `None` only while it is being stopped.
    tracker: Option<Tracker>,
    state: Option<TempDir>,
}

impl Served {
    /// The running tracker.
    pub(crate) fn tracker(&self) -> &Tracker {
        self.tracker.as_ref().expect("it runs until it is stopped")
    }

    /// What all workers have counted.
    pub(crate) fn summary(&self) -> Summary {
        self.tracker().running.summary()
    }

    /// What a counter of one family has, over all workers.
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

    /// Where its state is kept.
    pub(crate) fn state_dir(&self) -> &Path {
        self.state.as_ref().expect("kept until it is stopped").path()
    }

    /// The address that serves the family of `ip`.
    pub(crate) fn address_for(&self, ip: IpAddr) -> SocketAddr {
        let addresses = self.tracker().running.addresses();
        let address = addresses.iter().find(|address| address.is_ipv4() == ip.is_ipv4());
        *address.unwrap_or_else(|| panic!("nothing serves the family of {ip}: {addresses:?}"))
    }

    /// A client at `ip` (any of 127/8, or ::1) that is connected.
    pub(crate) fn client(&self, ip: &str) -> Client {
        let mut client = self.stranger(ip);
        client.connect();
        client
    }

    /// A client at `ip` that has no connection id yet.
    pub(crate) fn stranger(&self, ip: &str) -> Client {
        let ip = ip.parse().expect("an address");
        Client::new(ip, self.address_for(ip))
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    /// When a worker dies meanwhile, or patience ends.
    pub(crate) fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
            if let Ok(death) = self.tracker().running.failures().recv_timeout(LOOK_AGAIN) {
                panic!("{} died: {}", death.name, death.cause);
            }
        }
    }

    /// Waits until every worker has finished a turn that began after this call: whatever was
    /// received before is dealt with, and its reply is sent.
    pub(crate) fn until_all_have_turned(&self) {
        let turns = || -> Vec<u64> {
            self.tracker().running.workers().map(|(_, metrics)| metrics.turns.get()).collect()
        };
        // The turn under way does not count, the one after it does.
        let before = turns();
        self.until("every worker takes two turns", || {
            turns().iter().zip(&before).all(|(now, before)| *now >= before + 2)
        });
    }

    /// Stops it and starts another on the same state directory.
    pub(crate) fn restart(mut self) -> Self {
        self.tracker.take().expect("it runs until it is stopped").stop();
        let state = self.state.take().expect("kept until it is stopped");
        self.plan.start_in(state)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the placement was {}", self.plan.placement);
        }
    }
}
