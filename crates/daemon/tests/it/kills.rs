//! SIGKILL at any moment: the next start succeeds, with the peers of a snapshot, every confirmed
//! list change, and a complete export.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_proto::InfoHash;
use tempfile::TempDir;

use crate::harness::messages::{EXPORTED, PEERS_RESTORED};
use crate::harness::{Daemon, Launch, PLACEMENTS, TOKEN_FILE, change_list, random_hash, set_aside};

/// Initial swarms, enough for files that take time to write and read.
const SWARMS: usize = 20_000;
/// Rounds, each with a kill of a tracker that serves, after three of one that starts.
const ROUNDS: usize = 5;

/// State that outlives the processes.
struct Persistent {
    directory: TempDir,
    config: String,
    /// The listed hashes after all confirmed changes.
    listed: BTreeSet<InfoHash>,
    /// The change in progress at the kill, which may or may not be applied.
    unsure: Option<InfoHash>,
    /// Number of starts.
    starts: usize,
}

impl Persistent {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scrape = directory.path().join("scrape.txt");
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\n[access]\nmode = \"deny\"\n\
             {TOKEN_FILE}publish_lists = true\n\
             [snapshot]\nevery = 1\n[export]\nfile = {scrape:?}\nevery = 1\n"
        );
        Self { directory, config, listed: BTreeSet::new(), unsure: None, starts: 0 }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn launch(&mut self) -> Launch {
        self.starts += 1;
        Launch::new(PLACEMENTS[self.starts % 3])
            .flag("--state-dir", self.state())
            .admin()
            .config(&self.config)
    }

    /// Starts the daemon and kills it after `time`.
    fn start_for(&mut self, time: Duration) {
        let mut daemon = self.launch().start();
        daemon.read_until(Instant::now() + time);
        daemon.kill();
        self.check_files();
    }

    /// Asserts that the export is complete and that no file was set aside as damaged.
    fn check_files(&self) {
        if self.state().exists() {
            assert_eq!(set_aside(&self.state()), 0, "a file was set aside as damaged");
        }
        if let Ok(text) = fs::read_to_string(self.directory.path().join("scrape.txt")) {
            assert!(text.is_empty() || text.ends_with('\n'), "the export ends with a line");
            let whole = |line: &str| line.len() > 45 && line.split(' ').count() == 4;
            assert!(text.lines().all(whole), "the export has complete lines");
        }
    }

    /// Asserts that the published list has all confirmed changes.
    fn check_list(&mut self, daemon: &Daemon) {
        let published = daemon.get("/lists");
        assert_eq!(published.status, 200, "{}", published.body);
        let hashes = published.body.lines().filter(|line| !line.starts_with('#'));
        let listed: BTreeSet<InfoHash> = hashes.map(|line| line.parse().unwrap()).collect();
        if let Some(hash) = self.unsure.take() {
            match listed.contains(&hash) {
                true => self.listed.insert(hash),
                false => self.listed.remove(&hash),
            };
        }
        assert!(listed == self.listed, "{} listed, not {}", listed.len(), self.listed.len());
    }

    /// Changes the list until the daemon is killed, and counts the changes.
    fn change_list(&mut self, admin: SocketAddr, confirmed: &AtomicU32) {
        for number in 1.. {
            let old = self.listed.first().filter(|_| number % 3 == 0).copied();
            let method = if old.is_some() { "DELETE" } else { "POST" };
            let hash = old.unwrap_or_else(random_hash);
            self.unsure = Some(hash);
            if !change_list(admin, method, &[hash]).is_ok_and(|response| response.status == 200) {
                return;
            }
            match method {
                "POST" => self.listed.insert(hash),
                _ => self.listed.remove(&hash),
            };
            self.unsure = None;
            confirmed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A random duration below `time`.
fn within(time: Duration) -> Duration {
    time.mul_f64(rand::random::<f64>())
}

#[test]
fn a_start_succeeds_after_a_kill_at_any_moment() {
    let mut persistent = Persistent::new();
    // The first starts create the directory, the lock and the key.
    for milliseconds in [0, 10, 30, 60] {
        persistent.start_for(Duration::from_millis(milliseconds));
    }
    let daemon = persistent.launch().serve();
    let first = populate(&daemon);
    daemon.stop();

    let mut takes = Duration::from_millis(300);
    for round in 0..ROUNDS {
        for number in 0..3 {
            // Every third start creates a key; the other starts load their files.
            if number == 2 {
                fs::remove_file(persistent.state().join("connection.key")).unwrap();
            }
            persistent.start_for(if number == 0 { Duration::ZERO } else { within(takes) });
        }
        takes = serve_until_killed(&mut persistent, &first, round);
    }

    let mut daemon = persistent.launch().start();
    let line = daemon.line(PEERS_RESTORED);
    daemon.serving();
    daemon.check();
    persistent.check_list(&daemon);
    daemon.line(EXPORTED);
    // A stop does not wait for an export that has begun since; the next one removes its file.
    let last = format!(".{}.new", daemon.pid());
    daemon.stop();
    persistent.check_files();
    assert!(!persistent.listed.is_empty(), "no list change was confirmed");
    let names = [persistent.directory.path().to_owned(), persistent.state()]
        .map(|path| fs::read_dir(path).unwrap());
    let names = names.into_iter().flatten().map(|entry| entry.unwrap().file_name());
    let is_left = |name: &String| name.ends_with(".new") && !name.ends_with(&last);
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let temporary: Vec<_> = names.filter(is_left).collect();
    assert!(temporary.is_empty(), "{temporary:?} are left; {line}");
}

/// Announces one seeder in each of the initial swarms.
fn populate(daemon: &Daemon) -> Vec<InfoHash> {
    let hashes: Vec<InfoHash> = (0..SWARMS).map(|_| random_hash()).collect();
    let client = daemon.client();
    for some in hashes.chunks(64) {
        client.burst(some);
    }
    hashes
}

/// Starts after kills, which must succeed, and kills the daemon while peers announce, the list
/// changes, and snapshots and exports are written. Returns the duration of the start.
fn serve_until_killed(persistent: &mut Persistent, first: &[InfoHash], round: usize) -> Duration {
    let began = Instant::now();
    let mut daemon = persistent.launch().serve();
    let takes = began.elapsed();
    let client = daemon.client();
    for some in first.chunks(50).skip(round % 7).step_by(7).take(5) {
        assert!(client.scrape(some).iter().all(|counts| counts.seeders == 1), "peers are missing");
    }
    persistent.check_list(&daemon);
    let admin = daemon.admin();
    let moment = Instant::now() + within(Duration::from_millis(1_500));
    let confirmed = AtomicU32::new(0);
    thread::scope(|scope| {
        let changing = scope.spawn(|| persistent.change_list(admin, &confirmed));
        let is_early = || Instant::now() < moment || confirmed.load(Ordering::Relaxed) == 0;
        while is_early() && !changing.is_finished() {
            let some: Vec<InfoHash> = (0..32).map(|_| random_hash()).collect();
            client.burst(&some);
        }
        if round % 3 == 2 {
            // This may interrupt the last snapshot.
            daemon.signal("TERM");
            daemon.read_until(Instant::now() + within(Duration::from_millis(60)));
        }
        daemon.kill();
    });
    persistent.check_files();
    takes
}
