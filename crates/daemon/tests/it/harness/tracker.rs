//! A tracker in this process, in either placement.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;

use onrush::Tracker;
use onrush_config::Settings;
use onrush_config::{Flags, Host};
use onrush_tracker::metrics::Summary;
use tempfile::TempDir;

use crate::harness::client::Client;

/// The placements in which the tests run: keys of the table `[workers]`.
const PLACEMENTS: [&str; 2] =
    ["placement = \"split\"\nsocket = 2\nswarm = 2", "placement = \"colocated\"\ntotal = 2"];

/// The loopback address of each family.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

/// The configuration of a tracker.
#[derive(Clone, Debug)]
pub(crate) struct TrackerConfig {
    workers: &'static str,
    listen: String,
    tables: String,
}

impl TrackerConfig {
    /// One configuration per placement.
    pub(crate) fn both() -> [Self; 2] {
        PLACEMENTS.map(Self::with_workers)
    }

    /// A configuration with these keys of the table `[workers]`.
    pub(crate) fn with_workers(workers: &'static str) -> Self {
        let listen = "\"127.0.0.1:0\", \"[::1]:0\"".to_owned();
        Self { workers, listen, tables: String::new() }
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

    /// Starts the tracker with a new state directory.
    pub(crate) fn start(&self) -> RunningTracker {
        let state = tempfile::tempdir().expect("a state directory");
        let settings = self.settings(state.path());
        let tracker = Tracker::start(&settings, None).unwrap_or_else(|error| panic!("{error}"));
        RunningTracker { workers: self.workers, tracker, _state: state }
    }

    fn settings(&self, state: &Path) -> Settings {
        let Self { workers, listen, tables, .. } = self;
        let text = format!(
            "listen = [{listen}]\nstate_dir = {state:?}\n[admin]\nlisten = \"off\"\n\
             [workers]\npin = \"off\"\n{workers}\n{tables}"
        );
        let host = Host { vcpus: vec![0, 1], memory: Some(8 << 30), ..Host::default() };
        let (settings, _) = Settings::parse("test.toml", &text, &Flags::default(), &host)
            .unwrap_or_else(|problems| panic!("{problems}"));
        settings
    }
}

/// A running tracker.
pub(crate) struct RunningTracker {
    workers: &'static str,
    pub(crate) tracker: Tracker,
    _state: TempDir,
}

impl RunningTracker {
    /// The totals of all workers.
    pub(crate) fn summary(&self) -> Summary {
        self.tracker.running.summary()
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
}

impl Drop for RunningTracker {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the workers were:\n{}", self.workers);
        }
    }
}
