//! Upgrades during which one of the processes is killed with SIGKILL: the old one, the new one, or
//! the launcher between them. Afterwards one process serves with all peers; or none does, if the
//! killed process was the one that served, and a start has the peers of the snapshot. Never do two
//! serve, and never is a part of the peers served.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onrush_proto::{InfoHash, ScrapeCounts};
use tempfile::TempDir;

use crate::harness::messages::{
    READY, SNAPSHOT, SUCCESSOR_FAILED, UPGRADE_BEGINS, UPGRADE_DONE, UPGRADE_RECEIVED,
};
use crate::harness::{
    Client, Daemon, Launch, PLACEMENTS, Peers, TIMEOUT, connect, free_address, hash, meanwhile,
    seeder, transaction,
};

/// Swarms that are scraped all the time.
const WATCHED: std::ops::Range<u32> = 5_000..5_003;
/// Scrapes of them in a round at least.
const SCRAPES: u64 = 5;
/// Peers of each of them.
const PEERS: u16 = 20;
/// Swarms with one peer each, of which some are scraped after each round.
const MORE: std::ops::Range<u32> = 10_000..30_000;
/// Hashes per burst of announces, and per scrape.
const BURST: usize = 64;
/// Log lines of an upgrade, in their usual order, which divide it into stages.
pub(crate) const STEPS: [&str; 7] = [
    "SIGUSR2: started ",
    "receiving the handoff of process ",
    UPGRADE_BEGINS,
    "upgrade: loaded ",
    READY,
    UPGRADE_DONE,
    UPGRADE_RECEIVED,
];
/// The successor has the sockets, though it may have exited since.
const HANDOFF_COMPLETE: &str = "handoff complete: ";
/// The successor has not received the peers that announced during the transfer.
const REST_LOST: &str = "the peers since the dump have not all arrived";
/// Pause between looks at processes and log.
const LOOK: Duration = Duration::from_millis(2);
/// Time after which a request without a reply is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// The process to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Old,
    New,
    Launcher,
}

impl Victim {
    /// The lines after which it runs, for some time at least.
    pub(crate) fn steps(self) -> &'static [&'static str] {
        match self {
            Self::Old => &STEPS[..6],
            Self::New => &STEPS[1..],
            Self::Launcher => &STEPS[..5],
        }
    }
}

/// When the process is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The log line before it; `None`: the start of the upgrade.
    pub(crate) step: Option<&'static str>,
    /// The time since then.
    pub(crate) after: Duration,
}

/// Which of the two processes of an upgrade serves after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KillOutcome {
    Old,
    New,
    Neither,
}

/// The kills so far, by outcome and by stage: the number of the last step before.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    pub(crate) number: usize,
    pub(crate) outcomes: BTreeMap<KillOutcome, usize>,
    pub(crate) stages: BTreeMap<usize, usize>,
}

/// Upgrades a tracker with a kill at each of these moments, until `is_enough`.
pub(crate) fn kill_at(
    victim: Victim,
    moments: impl Iterator<Item = Moment>,
    is_enough: impl Fn(&Kills) -> bool,
) -> Kills {
    let mut trackers = Trackers::start();
    let scrapes = AtomicU64::new(0);
    let mut kills = Kills::default();
    meanwhile([watch(trackers.address, &scrapes)], || {
        for (round, moment) in moments.enumerate() {
            eprintln!("round {round}: {moment:?}");
            if let Some((stage, outcome)) = trackers.round(victim, moment) {
                kills.number += 1;
                *kills.stages.entry(stage).or_insert(0) += 1;
                *kills.outcomes.entry(outcome).or_insert(0) += 1;
            }
            let enough = scrapes.load(Ordering::Relaxed) + SCRAPES;
            trackers
                .wait_for("the swarms are scraped", |_| scrapes.load(Ordering::Relaxed) >= enough);
            if is_enough(&kills) {
                break;
            }
        }
    });
    eprintln!("{victim:?}: {kills:?}");
    kills
}

/// A process of the tracker under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    /// Its role in an upgrade; `None` for the first process, and before it executes the program.
    role: Option<Victim>,
}

/// The processes of a group, in no order, without zombies.
fn processes(group: u32) -> Vec<Process> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let found = all.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let runs = !["Z", "X"].contains(&fields.next()?);
        // The parent is between the state and the group.
        let is_member = fields.nth(1)?.parse() == Ok(group);
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        let role = match environment.split_once("ONRUSH_UPGRADE=") {
            Some((_, role)) if role.starts_with("launcher") => Some(Victim::Launcher),
            Some(_) => Some(Victim::New),
            None => None,
        };
        (runs && is_member).then_some(Process { id, role })
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
    /// The process group of the first process, and of all its successors.
    group: u32,
    /// The process that serves.
    owner: u32,
    peers: Peers,
}

impl Drop for Trackers {
    fn drop(&mut self) {
        processes(self.group).iter().for_each(|process| _ = send_kill(process.id));
        if !thread::panicking() {
            self.daemon.await_exit();
        }
    }
}

impl Trackers {
    fn start() -> Self {
        let (state, address) = (tempfile::tempdir().unwrap(), free_address());
        let daemon = serve(state.path(), address);
        let client = daemon.client();
        for number in WATCHED {
            for port in 0..PEERS {
                client.announce(&seeder(hash(number), 1_000 + port));
            }
        }
        // The transfer of these takes some time.
        for some in Self::more().chunks(BURST) {
            client.burst(some);
        }
        let peers = Peers::announced_to(address);
        // The snapshot.
        daemon.stop();
        let daemon = serve(state.path(), address);
        let first = daemon.pid();
        Self { state, address, daemon, group: first, owner: first, peers }
    }

    /// Swarms with one seeder each.
    fn more() -> Vec<InfoHash> {
        MORE.map(hash).collect()
    }

    /// Asserts that all peers are served.
    fn check_peers(&self) {
        self.peers.assert_served(self.address);
        let client = Client::new(self.address).connected();
        for some in Self::more().chunks(BURST).step_by(20) {
            assert!(client.scrape(some).iter().all(|counts| counts.seeders == 1));
        }
    }

    /// Starts an upgrade, kills the victim, and checks which process serves. Returns the number of
    /// the last step before the kill, and its outcome; `None` if the victim did not run.
    fn round(&mut self, victim: Victim, moment: Moment) -> Option<(usize, KillOutcome)> {
        let (old, begin) = (self.owner, self.begin_upgrade());
        if let Some(step) = moment.step {
            // Without CPU time a handoff may fail.
            self.wait_for("a step of the upgrade", |this| {
                this.logged(begin, step) || this.logged(begin, SUCCESSOR_FAILED)
            });
        }
        self.daemon.read_until(Instant::now() + moment.after);
        let stage = self
            .kill(victim, old)
            .then(|| STEPS.iter().rposition(|step| self.logged(begin, step)).unwrap_or(0));
        let left = self.settle();
        let log = self.daemon.log()[begin..].join("\n");
        let outcome = match left {
            Some(id) if id == old => KillOutcome::Old,
            Some(_) => KillOutcome::New,
            None => KillOutcome::Neither,
        };
        // Shown if an assertion below fails.
        eprintln!("{stage:?} {outcome:?}:\n{log}");
        match (victim, outcome) {
            (Victim::Launcher, KillOutcome::Neither) => panic!("no process serves"),
            // Before the handoff the predecessor served, and after it the successor.
            (Victim::Old, KillOutcome::Neither) => assert!(!log.contains(READY)),
            (Victim::New, KillOutcome::Neither) => assert!(log.contains(HANDOFF_COMPLETE)),
            (Victim::Old, KillOutcome::Old) | (Victim::New, KillOutcome::New) => {
                assert_eq!(stage, None, "a killed process serves");
            }
            _ => {}
        }
        self.owner = left.unwrap_or_else(|| {
            self.daemon.await_exit();
            self.daemon = serve(self.state.path(), self.address);
            self.group = self.daemon.pid();
            self.group
        });
        if outcome == KillOutcome::New {
            // The check adds a peer to each swarm for a moment, which a snapshot would keep.
            self.wait_for("the delta is merged, and in a snapshot", |this| {
                let merged = this.logged(begin, UPGRADE_RECEIVED) || this.logged(begin, REST_LOST);
                merged && this.logged(begin, READY) && this.logged(begin, SNAPSHOT)
            });
        }
        self.check_peers();
        stage.map(|stage| (stage, outcome))
    }

    /// Whether a log line from this one on has this part.
    fn logged(&self, begin: usize, part: &str) -> bool {
        self.daemon.log()[begin..].iter().any(|line| line.contains(part))
    }

    /// Starts an upgrade; the number of log lines before it.
    fn begin_upgrade(&mut self) -> usize {
        loop {
            self.daemon.skip();
            let begin = self.daemon.log().len();
            kill(Pid::from_raw(self.owner as i32), Signal::SIGUSR2).unwrap();
            // Refused while the end of the last one is being handled.
            if self.daemon.line("SIGUSR2").contains(STEPS[0]) {
                return begin;
            }
        }
    }

    /// Kills the process, which may not run yet or any more. Returns whether it ran.
    fn kill(&mut self, victim: Victim, old: u32) -> bool {
        let found = processes(self.group).into_iter().find(|process| match victim {
            Victim::Old => process.id == old,
            Victim::New => process.id != old && process.role == Some(Victim::New),
            Victim::Launcher => process.role == Some(Victim::Launcher),
        });
        found.is_some_and(|process| send_kill(process.id))
    }

    /// Waits until one process is left, which answers, or none; its id.
    fn settle(&mut self) -> Option<u32> {
        let mut left = None;
        self.wait_for("one process serves, or none", |this| match processes(this.group)[..] {
            [] => true,
            [one] => {
                let serves = one.role != Some(Victim::Launcher) && answers(this.address);
                left = serves.then_some(one.id);
                left.is_some()
            }
            _ => false,
        });
        if left.is_none() {
            // The log ends with the last process. Its last thread closes the other files meanwhile.
            self.daemon.read_until(Instant::now() + TIMEOUT);
            let lock = self.state.path().join("lock");
            self.wait_for("the lock and the address are released", |this| {
                let lock = File::options().write(true).open(&lock).unwrap();
                let is_released = Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok();
                is_released && UdpSocket::bind(this.address).is_ok()
            });
        }
        left
    }

    fn wait_for(&mut self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is(self) {
            let log = || self.daemon.log().join("\n");
            assert!(
                Instant::now() < deadline,
                "not {what}: {:?}:\n{}",
                processes(self.group),
                log()
            );
            let failed = self.daemon.log().iter().any(|line| line.contains("panicked"));
            assert!(!failed, "{}", log());
            self.daemon.read_until(Instant::now() + LOOK);
        }
    }
}

fn serve(state: &Path, address: SocketAddr) -> Daemon {
    let config = "[snapshot]\nevery = 0\n[log]\ntotals_every = 0\n";
    let launch = Launch::new(PLACEMENTS[0]).flag("--state-dir", state);
    // In a process group of its own.
    launch.flag("--listen", address.to_string()).config(config).under(&["setsid"]).serve()
}

/// Whether a process answers at the address.
fn answers(address: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    socket.send_to(&connect(transaction()), address).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

/// Scrapes swarms whose peers do not change each time it is called, and counts the scrapes.
fn watch(address: SocketAddr, scrapes: &AtomicU64) -> impl FnMut() + Send {
    let mut client = Client::new(address);
    client.repeat_after(AGAIN);
    let hashes: Vec<InfoHash> = WATCHED.map(hash).collect();
    let all = ScrapeCounts { seeders: PEERS.into(), completed: 0, leechers: 0 };
    move || {
        // Ids expire.
        client.connect();
        assert_eq!(client.scrape(&hashes), vec![all; hashes.len()], "a part of the peers");
        scrapes.fetch_add(1, Ordering::Relaxed);
    }
}
