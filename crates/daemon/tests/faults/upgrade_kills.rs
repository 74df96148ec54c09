//! SIGKILL of the old process, of the new one and of the launcher between them, twenty times each,
//! at moments of several stages of an upgrade. Afterwards one process serves with all peers; or
//! none does, if the killed process was the one that served, and a start has the peers of the
//! snapshot. Never do two serve, and never is a part of the peers served.
//!
//! Moments come from a seed, which a failure prints; `ONRUSH_SEED=N` repeats them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onrush_proto::{InfoHash, ScrapeCounts};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crate::harness::client::{Client, transaction};
use crate::harness::messages::{READY, UPGRADE_BEGINS, UPGRADE_DONE, UPGRADE_RECEIVED};
use crate::harness::packets::{connect, counts, hash, scrape, seeder, u32_at};
use crate::harness::process::{Daemon, TIMEOUT, free_address};
use crate::harness::swarms::{PLACEMENTS, SwarmState, populate, swarm_state};

/// Kills of each process at least.
const KILLS: usize = 20;
/// Upgrades for them at most: when the moment comes, the process may not run yet or any more.
const ROUNDS: usize = 4 * KILLS;
/// Swarms that are scraped all the time.
const WATCHED: std::ops::Range<u32> = 5_000..5_003;
/// Peers of each of them.
const PEERS: u16 = 20;
/// Swarms with one peer each, of which some are scraped after each round.
const MORE: std::ops::Range<u32> = 10_000..30_000;
/// Hashes per burst of announces, and per scrape.
const BURST: usize = 64;
/// Log lines of an upgrade, in their usual order. A kill comes shortly after one of them. The lines
/// divide the upgrade into stages.
const STEPS: [&str; 7] = [
    "SIGUSR2: started ",
    "taking over from process ",
    UPGRADE_BEGINS,
    "upgrade: loaded ",
    READY,
    UPGRADE_DONE,
    UPGRADE_RECEIVED,
];
/// The old process has handed over the sockets, though the new one may have exited since.
const TAKEN_OVER: &str = " has taken over";
/// The new process has not received the peers that announced during the transfer.
const REST_LOST: &str = "the peers since the dump have not all arrived";
/// Stages in which each process is killed at least.
const MIN_STAGES: usize = 3;
/// Upper bound of the time between such a line and the kill.
const AFTER_STEP: Duration = Duration::from_millis(4);
/// Upper bound of the time between the start of an upgrade and a kill at a random time.
const UPGRADE_TIME: Duration = Duration::from_millis(120);
/// Pause between looks at processes and log.
const LOOK: Duration = Duration::from_millis(2);

/// The process to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Old,
    New,
    Launcher,
}

impl Victim {
    /// Whether these numbers of kills have all outcomes before and after the handoff.
    fn has_all(self, outcomes: [usize; 3]) -> bool {
        let [old, new, neither] = outcomes.map(|kills| kills > 0);
        match self {
            Self::Old => new && neither,
            Self::New => old && neither,
            Self::Launcher => new,
        }
    }

    /// The lines after which it runs, for some time at least.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Old => &STEPS[..6],
            Self::New => &STEPS[1..],
            Self::Launcher => &STEPS[..5],
        }
    }
}

#[test]
fn the_old_process_killed_at_any_moment_of_an_upgrade() {
    kill_at_every_stage(Victim::Old);
}

#[test]
fn the_new_process_killed_at_any_moment_of_an_upgrade() {
    kill_at_every_stage(Victim::New);
}

#[test]
fn the_launcher_killed_at_any_moment_of_an_upgrade() {
    kill_at_every_stage(Victim::Launcher);
}

fn kill_at_every_stage(victim: Victim) {
    let seed = std::env::var("ONRUSH_SEED").map_or_else(
        |_| rand::random::<u32>().into(),
        |seed| seed.parse().expect("ONRUSH_SEED is a number"),
    );
    eprintln!("{victim:?}: again with ONRUSH_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut trackers = Trackers::start();
    let watch = Watch::default();
    thread::scope(|scope| {
        let (watch, address) = (&watch, trackers.address);
        let watching = scope.spawn(move || watch.run(address));
        let ends = EndsWatch(watch);
        let (mut outcomes, mut stages, mut kills) = ([0; 3], BTreeMap::new(), 0);
        let mut complete = false;
        for round in 0..ROUNDS {
            let steps = victim.steps();
            let moment = match round % 3 {
                0 | 1 => Moment::After(
                    steps[(round - round / 3) % steps.len()],
                    random.random_range(Duration::ZERO..AFTER_STEP),
                ),
                _ => Moment::At(random.random_range(Duration::ZERO..UPGRADE_TIME)),
            };
            eprintln!("round {round}: {moment:?}");
            if let Some((stage, outcome)) = trackers.round(victim, moment) {
                kills += 1;
                *stages.entry(stage).or_insert(0) += 1;
                outcomes[outcome as usize] += 1;
            }
            complete = kills >= KILLS && stages.len() >= MIN_STAGES && victim.has_all(outcomes);
            if complete {
                break;
            }
        }
        drop(ends);
        watching.join().unwrap();
        eprintln!("{victim:?}: old, new, none serve: {outcomes:?} by stage {stages:?}; {watch:?}");
        assert!(complete, "after {kills} kills: {outcomes:?}, {stages:?}");
    });
    assert!(watch.scrapes.into_inner() > 100);
}

/// When the process is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after a log line.
    After(&'static str, Duration),
    /// This long after the start of the upgrade.
    At(Duration),
}

/// Which of the two processes of an upgrade serves after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Old,
    New,
    Neither,
}

/// A process of the tracker under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    is_launcher: bool,
}

/// The processes that run with a state directory, in no order. A zombie has no command line and is
/// not among them.
fn processes(state: &Path) -> Vec<Process> {
    let state = state.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let found = all.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let environment = String::from_utf8_lossy(&environment);
        let is_launcher = environment.contains("ONRUSH_UPGRADE=launcher");
        line.contains(state).then_some(Process { id, is_launcher })
    });
    found.collect()
}

/// Kills a process; whether there was one.
fn send_kill(process: u32) -> bool {
    kill(Pid::from_raw(process as i32), Signal::SIGKILL).is_ok()
}

/// A tracker that is upgraded again and again.
struct Trackers {
    state: TempDir,
    address: SocketAddr,
    /// The first process, whose log all its successors write to.
    daemon: Daemon,
    /// The process that serves.
    owner: u32,
    hashes: Vec<InfoHash>,
    peers: SwarmState,
}

impl Drop for Trackers {
    fn drop(&mut self) {
        processes(self.state.path()).iter().for_each(|process| {
            send_kill(process.id);
        });
    }
}

impl Trackers {
    fn start() -> Self {
        let (state, address) = (tempfile::tempdir().unwrap(), free_address());
        let daemon = serve(state.path(), address);
        let hashes = populate(address);
        let client = daemon.client();
        for number in WATCHED {
            for port in 0..PEERS {
                client.announce(&seeder(hash(number), 1_000 + port));
            }
        }
        // The transfer of these takes some time.
        for some in Self::more().chunks(BURST) {
            assert_eq!(client.burst(some, TIMEOUT), some.len());
        }
        let peers = swarm_state(address, &hashes);
        // The snapshot.
        daemon.stop();
        let daemon = serve(state.path(), address);
        let owner = daemon.pid();
        Self { state, address, daemon, owner, hashes, peers }
    }

    /// Swarms with one seeder each.
    fn more() -> Vec<InfoHash> {
        MORE.map(hash).collect()
    }

    /// Asserts that all peers are served.
    fn check_peers(&self, log: &str) {
        assert_eq!(swarm_state(self.address, &self.hashes), self.peers, "{log}");
        let mut client = Client::new(self.address);
        client.connect();
        for some in Self::more().chunks(BURST).step_by(20) {
            assert!(client.scrape(some).iter().all(|counts| counts.seeders == 1), "{log}");
        }
    }

    fn processes(&self) -> Vec<Process> {
        processes(self.state.path())
    }

    /// Starts an upgrade, kills the victim, and checks which process serves. Returns the number of
    /// the last step before the kill, and its outcome; `None` if the victim did not run.
    fn round(&mut self, victim: Victim, moment: Moment) -> Option<(usize, Outcome)> {
        let (old, begin) = (self.owner, self.begin_upgrade());
        let start = Instant::now();
        let time = match moment {
            Moment::At(time) => start + time,
            Moment::After(step, time) => {
                self.wait_for("a step of the upgrade", |this| {
                    let lines = &this.daemon.log()[begin..];
                    lines.iter().any(|line| line.contains(step))
                });
                Instant::now() + time
            }
        };
        self.daemon.read_until(time);
        let stage = self.kill(victim, old).then(|| {
            let lines = &self.daemon.log()[begin..];
            let reached = |step: &&str| lines.iter().any(|line| line.contains(*step));
            STEPS.iter().rposition(reached).unwrap_or(0)
        });
        let left = self.settle();
        let log = self.daemon.log()[begin..].join("\n");
        let logged = |part: &str| log.contains(part);
        let outcome = match left {
            Some(id) if id == old => Outcome::Old,
            Some(_) => Outcome::New,
            None => Outcome::Neither,
        };
        match (victim, outcome) {
            (Victim::Launcher, Outcome::Neither) => panic!("no process serves:\n{log}"),
            // Before the handoff the old process was the one that served, and after it the new.
            (Victim::Old, Outcome::Neither) => {
                assert!(!logged(READY), "the new one served:\n{log}")
            }
            (Victim::New, Outcome::Neither) => assert!(logged(TAKEN_OVER), "{log}"),
            (Victim::Old, Outcome::Old) | (Victim::New, Outcome::New) => {
                assert_eq!(stage, None, "a killed process serves:\n{log}");
            }
            _ => {}
        }
        self.owner = left.unwrap_or_else(|| {
            self.daemon = serve(self.state.path(), self.address);
            self.daemon.pid()
        });
        self.check_peers(&log);
        if outcome == Outcome::New {
            self.wait_for("the rest is merged", |this| {
                let lines = &this.daemon.log()[begin..];
                lines.iter().any(|it| it.contains(UPGRADE_RECEIVED) || it.contains(REST_LOST))
            });
        }
        stage.map(|stage| (stage, outcome))
    }

    /// Starts an upgrade; the number of log lines before it.
    fn begin_upgrade(&mut self) -> usize {
        loop {
            self.daemon.skip();
            let begin = self.daemon.log().len();
            kill(Pid::from_raw(self.owner as i32), Signal::SIGUSR2).unwrap();
            // Refused while the end of the last one is being handled.
            let line = self.daemon.line("SIGUSR2");
            if line.contains(STEPS[0]) {
                return begin;
            }
        }
    }

    /// Kills the process, which may not run yet or any more. Returns whether it ran.
    fn kill(&mut self, victim: Victim, old: u32) -> bool {
        let found = self.processes().into_iter().find(|process| match victim {
            Victim::Old => process.id == old,
            Victim::New => process.id != old && !process.is_launcher,
            Victim::Launcher => process.is_launcher,
        });
        found.is_some_and(|process| send_kill(process.id))
    }

    /// Waits until one process is left, which answers, or none; its id.
    fn settle(&mut self) -> Option<u32> {
        let mut left = None;
        self.wait_for("one process serves, or none", |this| match this.processes()[..] {
            [] => true,
            [one] => {
                left = (!one.is_launcher && answers(this.address)).then_some(one.id);
                left.is_some()
            }
            _ => false,
        });
        if left.is_none() {
            // The log ends with the last process, which closes its other files meanwhile.
            self.daemon.read_until(Instant::now() + TIMEOUT);
            let lock = self.state.path().join("lock");
            self.wait_for("the lock is released", |_| {
                let lock = File::options().write(true).open(&lock).unwrap();
                Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok()
            });
        }
        left
    }

    fn wait_for(&mut self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is(self) {
            assert!(
                Instant::now() < deadline,
                "not within {TIMEOUT:?}: {what}; {:?}:\n{}",
                self.processes(),
                self.daemon.log().join("\n")
            );
            let failed = self.daemon.log().iter().any(|line| line.contains("panicked"));
            assert!(!failed, "{}", self.daemon.log().join("\n"));
            self.daemon.read_until(Instant::now() + LOOK);
        }
    }
}

fn serve(state: &Path, address: SocketAddr) -> Daemon {
    let config = "[snapshot]\nevery = 0\n[log]\ntotals_every = 0\n";
    let launch = crate::harness::process::Launch::new(PLACEMENTS[0]).flag("--state-dir", state);
    launch.flag("--listen", address.to_string()).config(config).serve()
}

/// Whether a process answers at the address.
fn answers(address: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket.send_to(&connect(transaction()), address).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

/// Scrapes swarms whose peers do not change, all the time.
#[derive(Debug, Default)]
struct Watch {
    over: AtomicBool,
    scrapes: AtomicU64,
}

impl Watch {
    fn run(&self, address: SocketAddr) {
        let mut client = Client::new(address);
        let id = client.connect();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let hashes: Vec<InfoHash> = WATCHED.map(hash).collect();
        let all = ScrapeCounts { seeders: PEERS.into(), completed: 0, leechers: 0 };
        let mut reply = [0; 1024];
        while !self.over.load(Ordering::Relaxed) {
            // Fails while the port is closed: no process serves.
            let _ = socket.send_to(&scrape(id, transaction(), &hashes), address);
            // One more receive than there are replies, so that time passes.
            while let Ok(len) = socket.recv(&mut reply) {
                assert_eq!(u32_at(&reply, 0), 2, "a scrape response");
                assert_eq!(counts(&reply[..len]), vec![all; hashes.len()], "a part of the peers");
                self.scrapes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Ends the watch, also when the test fails.
struct EndsWatch<'a>(&'a Watch);

impl Drop for EndsWatch<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}
