//! One process follows another: under load, with what came at the last moment, and when something is amiss.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_proto::{Event, InfoHash};

use crate::client::{Client, fresh_hash, leecher, seeder};
use crate::process::{Daemon, Launch, mode};
use crate::snapshot::{PLACEMENTS, ask, populate, started};

/// For how long an answer may take before it counts as lost.
const LOST: Duration = Duration::from_secs(15);
/// Announces that a client of the load has under way.
const BURST: usize = 16;

/// One that takes over.
fn follower(state: &Path, flags: &[&str]) -> Daemon {
    let launch = Launch::new(flags).flag("--listen", "127.0.0.1:0").flag("--state-dir", state);
    launch.config("[log]\ntotals_every = 0\n").start_with(&["--upgrade"])
}

/// What a load has sent and got.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    sent: AtomicUsize,
    answered: AtomicUsize,
}

impl Load {
    /// Announces to swarms of its own until it is over.
    fn run(&self, number: u8, address: SocketAddr) {
        let mut client = Client::at(Ipv4Addr::new(127, 0, 2, number).into(), address);
        client.connect();
        let hashes: Vec<_> = (0..BURST).map(|_| fresh_hash()).collect();
        while !self.over.load(Ordering::Relaxed) {
            let answered = client.burst(&hashes, seeder(4_001), LOST);
            self.sent.fetch_add(BURST, Ordering::Relaxed);
            self.answered.fetch_add(answered, Ordering::Relaxed);
        }
    }

    /// Waits until so many more were answered.
    fn goes_on(&self, answers: usize) {
        let (before, deadline) = (self.answered.load(Ordering::Relaxed), Instant::now() + 2 * LOST);
        while self.answered.load(Ordering::Relaxed) < before + answers {
            assert!(Instant::now() < deadline, "the load stands still");
            thread::yield_now();
        }
    }

    fn lost(&self) -> usize {
        self.sent.load(Ordering::Relaxed) - self.answered.load(Ordering::Relaxed)
    }
}

/// Runs `change` while load runs; how many were sent, and how many of these were lost.
fn under_load(address: SocketAddr, change: impl FnOnce(&Load)) -> (usize, usize) {
    let load = Load::default();
    thread::scope(|scope| {
        for number in 1..=4 {
            let load = &load;
            scope.spawn(move || load.run(number, address));
        }
        load.goes_on(500);
        change(&load);
        load.over.store(true, Ordering::Relaxed);
    });
    (load.sent.load(Ordering::Relaxed), load.lost())
}

#[test]
fn no_answer_is_lost_and_the_peers_are_the_same() {
    // The same workers, others with swarms, and from one layout to the other.
    let colocated: &[&str] = &["--workers", "2", "--placement", "colocated"];
    let split: &[&str] = &["--workers", "3", "--placement", "split"];
    for (old, new) in [(colocated, colocated), (split, colocated), (colocated, split)] {
        let state = tempfile::tempdir().unwrap();
        let mut first = started(state.path(), old, "[log]\ntotals_every = 0\n");
        let address = first.serving()[0];
        let hashes = populate(address);
        let before = ask(&mut Client::new(address), &hashes);
        let mut second = None;
        let (sent, lost) = under_load(address, |load| {
            let mut follower = follower(state.path(), new);
            assert_eq!(follower.serving(), [address]);
            follower.line("upgrade: the rest has arrived");
            load.goes_on(500);
            second = Some(follower);
        });
        assert_eq!(lost, 0, "of {sent}");
        let ended = first.end();
        assert_eq!(ended.code, Some(0), "{}", ended.text());
        assert!(ended.text().contains(" has taken over; the rest was "), "{}", ended.text());
        let second = second.unwrap();
        assert_eq!(ask(&mut Client::new(address), &hashes), before);
        // The one that follows is like any other: it holds the lock, and can be followed itself.
        let refused = started(state.path(), old, "").refusal();
        assert!(refused.contains(&format!("(process {})", second.pid())), "{refused}");
        let mut third = follower(state.path(), new);
        third.serving();
        assert_eq!(second.end().code, Some(0));
        assert_eq!(ask(&mut Client::new(address), &hashes), before);
        third.line("upgrade: the rest has arrived");
        let said = third.stop().text();
        assert!(said.contains("snapshot: "), "{said}");
    }
}

/// The gap of a restart, for comparison: what is sent while nobody is there is lost, and nothing else.
#[test]
fn a_restart_loses_only_what_comes_while_nobody_is_there() {
    let state = tempfile::tempdir().unwrap();
    let port = crate::process::free_address();
    let config = format!("listen = [\"{port}\"]\n[log]\ntotals_every = 0\n");
    let start =
        || Launch::new(PLACEMENTS[0]).flag("--state-dir", state.path()).config(&config).start();
    let mut first = start();
    let address = first.serving()[0];
    let hashes = populate(address);
    let before = ask(&mut Client::new(address), &hashes);
    let mut second = None;
    let (sent, lost) = under_load(address, |load| {
        first.stop();
        let mut next = start();
        next.serving();
        load.goes_on(500);
        second = Some(next);
    });
    // Each client has one burst under way.
    assert!(lost <= 4 * BURST && sent > 1_000, "{lost} of {sent}");
    assert_eq!(ask(&mut Client::new(address), &hashes), before);
    second.unwrap().stop();
}

/// Who comes, turns into a seeder or leaves while the peers are under way is where it should be.
#[test]
fn what_changes_meanwhile_is_not_forgotten() {
    let state = tempfile::tempdir().unwrap();
    let mut first = started(state.path(), PLACEMENTS[0], "");
    let address = first.serving()[0];
    let hashes: Vec<InfoHash> = (0..200).map(|_| fresh_hash()).collect();
    let mut client = Client::new(address);
    client.connect();
    let mut stop = leecher(1_000);
    stop.event = Event::Stopped;
    hashes.iter().for_each(|hash| drop(client.announce(*hash, leecher(1_000))));
    let over = AtomicBool::new(false);
    let (mut states, mut second) = (vec![1u32; 200], None);
    thread::scope(|scope| {
        // One thing after the other, with an answer to each.
        let changing = scope.spawn(|| {
            let mut states = vec![1u32; 200];
            let mut at = 0;
            while !over.load(Ordering::Relaxed) || at % 200 != 0 {
                let number = at % 200;
                let (hash, round) = (hashes[number], states[number] + 1);
                match round % 3 {
                    0 => drop(client.announce(hash, stop)),
                    1 => drop(client.announce(hash, leecher(1_000))),
                    _ => drop(client.announce(hash, seeder(1_000))),
                }
                states[number] = round;
                at += 1;
            }
            states
        });
        let mut next = follower(state.path(), PLACEMENTS[0]);
        next.serving();
        next.line("upgrade: the rest has arrived");
        over.store(true, Ordering::Relaxed);
        second = Some(next);
        states = changing.join().unwrap();
    });
    assert_eq!(first.end().code, Some(0));
    let mut client = Client::new(address);
    client.connect();
    for (part, states) in hashes.chunks(50).zip(states.chunks(50)) {
        for (counts, round) in client.scrape(part).iter().zip(states) {
            let expected = [(0, 0), (0, 1), (1, 0)][*round as usize % 3];
            assert_eq!((counts.seeders, counts.leechers), expected, "round {round}");
        }
    }
    second.unwrap().stop();
}

#[test]
fn what_is_amiss_is_named_and_the_old_one_serves_on() {
    let state = tempfile::tempdir().unwrap();
    let text = follower(state.path(), PLACEMENTS[0]).refusal();
    assert!(text.contains("nobody to take over from") && text.contains("--upgrade"), "{text}");

    let mut first = started(state.path(), PLACEMENTS[0], "");
    let address = first.serving()[0];
    assert_eq!(mode(&state.path().join("upgrade.sock")), 0o600);
    let more = follower(state.path(), &["--workers", "3", "--placement", "colocated"]).refusal();
    assert!(more.contains("has 2 workers with sockets, and this one is to have 3"), "{more}");
    Client::new(address).converse();
    let elsewhere = Launch::new(PLACEMENTS[0])
        .flag("--listen", "127.0.0.2:0")
        .flag("--state-dir", state.path())
        .start_with(&["--upgrade"])
        .refusal();
    assert!(elsewhere.contains("an upgrade keeps the addresses"), "{elsewhere}");
    Client::new(address).converse();

    // Another version, and one that says nothing that is known.
    let mut stream = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    let word = br#"{"Ask":{"protocol":99,"version":"9.9.9"}}"#;
    stream.write_all(&(word.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(word).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap_or(0);
    first.line("onrush 9.9.9 version 99");
    let mut stream = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    stream.write_all(b"\0\0\0\x02{}").unwrap();
    first.line("an upgrade came to nothing, this process serves on");
    Client::new(address).converse();

    // One that is killed when it has been given everything.
    let hashes = populate(address);
    let before = ask(&mut Client::new(address), &hashes);
    for _ in 0..5 {
        let killed = follower(state.path(), PLACEMENTS[0]);
        let moment = Instant::now() + Duration::from_millis(rand::random_range(0..60));
        while Instant::now() < moment {}
        killed.signal("KILL");
        let taken = killed.end().log.iter().any(|line| line.contains(" ready: "));
        if taken {
            // It was quicker.
            return;
        }
        assert_eq!(ask(&mut Client::new(address), &hashes), before);
    }
    first.stop();
}
