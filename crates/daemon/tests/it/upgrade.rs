//! Upgrades: under load, with changes during the transfer, and with failures.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use onrush_proto::{Event, InfoHash};

use crate::harness::client::{Client, leecher, random_hash, seeder};
use crate::harness::messages::{
    ADMIN_LISTENS, NO_ADMIN, PEERS_RESTORED, SNAPSHOT, STOPPED, SUCCESSOR_FAILED, TOO_OLD,
    UNAVAILABLE, UPGRADE_BEGINS, UPGRADE_DONE, UPGRADE_FAILED, UPGRADE_LEFT, UPGRADE_RECEIVED,
    UPGRADE_RUNNING,
};
use crate::harness::network::{Ipv6, in_own_network};
use crate::harness::process::{Daemon, Launch, TIMEOUT, free_address, mode};
use crate::snapshot::{FILE, PLACEMENTS, age, populate, started, swarm_state};

/// A later reply counts as lost.
const LOST: Duration = Duration::from_secs(15);
/// Announces in flight per client of the load.
const BURST: usize = 16;

/// Starts a process that takes over.
fn follower(state: &Path, flags: &[&str]) -> Daemon {
    let launch = Launch::new(flags).flag("--listen", "127.0.0.1:0").flag("--state-dir", state);
    launch.config("[log]\ntotals_every = 0\n").start_with(&["--upgrade"])
}

/// Announces sent while a test acts, and their counts.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    sent: AtomicUsize,
    answered: AtomicUsize,
}

impl Load {
    /// Announces to a set of swarms until `over` is set.
    fn run(&self, number: u8, address: SocketAddr) {
        let mut client = Client::at(Ipv4Addr::new(127, 0, 2, number).into(), address);
        client.connect();
        let hashes: Vec<_> = (0..BURST).map(|_| random_hash()).collect();
        while !self.over.load(Ordering::Relaxed) {
            let answered = client.burst(&hashes, seeder(4_001), LOST);
            self.sent.fetch_add(BURST, Ordering::Relaxed);
            self.answered.fetch_add(answered, Ordering::Relaxed);
        }
    }

    /// Waits for this many further replies.
    fn await_replies(&self, count: usize) {
        let (before, deadline) = (self.answered.load(Ordering::Relaxed), Instant::now() + 2 * LOST);
        while self.answered.load(Ordering::Relaxed) < before + count {
            assert!(Instant::now() < deadline, "the load has stalled");
            thread::yield_now();
        }
    }

    fn lost(&self) -> usize {
        self.sent.load(Ordering::Relaxed) - self.answered.load(Ordering::Relaxed)
    }
}

/// Runs `change` under load; the numbers of requests sent and lost.
fn under_load(address: SocketAddr, change: impl FnOnce(&Load)) -> (usize, usize) {
    let load = Load::default();
    thread::scope(|scope| {
        for number in 1..=4 {
            let load = &load;
            scope.spawn(move || load.run(number, address));
        }
        load.await_replies(500);
        change(&load);
        load.over.store(true, Ordering::Relaxed);
    });
    (load.sent.load(Ordering::Relaxed), load.lost())
}

#[test]
fn an_upgrade_loses_no_reply_and_no_peer() {
    // The same workers, other shards, the other placement.
    let colocated: &[&str] = &["--workers", "2", "--placement", "colocated"];
    let split: &[&str] = &["--workers", "3", "--placement", "split"];
    for (old, new) in [(colocated, colocated), (split, colocated), (colocated, split)] {
        let state = tempfile::tempdir().unwrap();
        let mut first = started(state.path(), old, "[log]\ntotals_every = 0\n");
        let address = first.serving()[0];
        let hashes = populate(address);
        let before = swarm_state(&mut Client::new(address), &hashes);
        let mut second = None;
        let (sent, lost) = under_load(address, |load| {
            let mut follower = follower(state.path(), new);
            assert_eq!(follower.serving(), [address]);
            follower.wait_for_line(UPGRADE_RECEIVED);
            load.await_replies(500);
            second = Some(follower);
        });
        assert_eq!(lost, 0, "of {sent}");
        let ended = first.end();
        assert_eq!(ended.code, Some(0), "{}", ended.text());
        assert!(ended.text().contains(UPGRADE_DONE), "{}", ended.text());
        let second = second.unwrap();
        assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
        // The new process holds the lock and can itself be upgraded.
        let refused = started(state.path(), old, "").refusal();
        assert!(refused.contains(&format!("(process {})", second.pid())), "{refused}");
        let mut third = follower(state.path(), new);
        third.serving();
        assert_eq!(second.end().code, Some(0));
        assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
        third.wait_for_line(UPGRADE_RECEIVED);
        let output = third.stop().text();
        assert!(output.contains(SNAPSHOT), "{output}");
    }
}

/// For comparison, a restart: only requests during the gap are lost.
#[test]
fn a_restart_loses_only_requests_during_the_gap() {
    let state = tempfile::tempdir().unwrap();
    let port = crate::harness::process::free_address();
    let config = format!("listen = [\"{port}\"]\n[log]\ntotals_every = 0\n");
    let start =
        || Launch::new(PLACEMENTS[0]).flag("--state-dir", state.path()).config(&config).start();
    let mut first = start();
    let address = first.serving()[0];
    let hashes = populate(address);
    let before = swarm_state(&mut Client::new(address), &hashes);
    let mut second = None;
    let (sent, lost) = under_load(address, |load| {
        first.stop();
        let mut next = start();
        next.serving();
        load.await_replies(500);
        second = Some(next);
    });
    // Each client has one burst in flight.
    assert!(lost <= 4 * BURST && sent > 1_000, "{lost} of {sent}");
    assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
    second.unwrap().stop();
}

/// Peers that join, become seeders or leave during the transfer are in that state after it.
#[test]
fn announces_during_an_upgrade_are_kept() {
    let state = tempfile::tempdir().unwrap();
    let mut first = started(state.path(), PLACEMENTS[0], "");
    let address = first.serving()[0];
    let hashes: Vec<InfoHash> = (0..200).map(|_| random_hash()).collect();
    let mut client = Client::new(address);
    client.connect();
    let mut stop = leecher(1_000);
    stop.event = Event::Stopped;
    hashes.iter().for_each(|hash| drop(client.announce(*hash, leecher(1_000))));
    let over = AtomicBool::new(false);
    let (mut states, mut second) = (vec![1u32; 200], None);
    thread::scope(|scope| {
        // Announces are sent one at a time, each with a reply.
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
        next.wait_for_line(UPGRADE_RECEIVED);
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
fn errors_of_an_upgrade_are_named_and_the_old_process_serves() {
    let state = tempfile::tempdir().unwrap();
    let text = follower(state.path(), PLACEMENTS[0]).refusal();
    assert!(text.contains("--upgrade"), "{text}");

    let mut first = started(state.path(), PLACEMENTS[0], "");
    let address = first.serving()[0];
    assert_eq!(mode(&state.path().join("upgrade.sock")), 0o600);
    // An address in use by another process.
    let taken = UdpSocket::bind("127.0.0.2:0").unwrap();
    let address_taken = taken.local_addr().unwrap().to_string();
    let elsewhere = Launch::new(PLACEMENTS[0])
        .flag("--listen", &address_taken)
        .flag("--state-dir", state.path())
        .start_with(&["--upgrade"])
        .refusal();
    assert!(elsewhere.contains(&address_taken), "{elsewhere}");
    first.line(UPGRADE_LEFT);
    Client::new(address).connect_and_check();

    // A successor with another protocol version, and a successor with an invalid message.
    let mut stream = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    let word = br#"{"Request":{"protocol":99,"version":"9.9.9"}}"#;
    stream.write_all(&(word.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(word).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap_or(0);
    let line = first.line("9.9.9");
    assert!(line.contains("99"), "{line}");
    let mut stream = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    stream.write_all(b"\0\0\0\x02{}").unwrap();
    first.line(UPGRADE_FAILED);
    Client::new(address).connect_and_check();

    // A successor killed at random moments.
    let hashes = populate(address);
    let before = swarm_state(&mut Client::new(address), &hashes);
    for _ in 0..5 {
        let killed = follower(state.path(), PLACEMENTS[0]);
        let moment = Instant::now() + Duration::from_millis(rand::random_range(0..60));
        while Instant::now() < moment {}
        killed.signal("KILL");
        killed.end();
        // If the successor had taken over before the kill, the old process has exited.
        if !still_serves(&mut first, address) {
            return;
        }
        assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
    }
    first.stop();
}

/// Whether a successor was killed during the transfer, before it received the sockets.
fn killed_during_transfer(first: &mut Daemon, state: &Path) -> bool {
    let killed = follower(state, PLACEMENTS[0]);
    if first.line_or_exit(UPGRADE_BEGINS).is_none() {
        return false;
    }
    // A kill by system call is faster than through a shell.
    let pid = nix::unistd::Pid::from_raw(killed.pid() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(killed.end().signal, Some(9));
    first.line_or_exit(UPGRADE_FAILED).is_some()
}

/// The transfer of these peers takes long enough to kill the successor meanwhile; a round in which
/// the successor was faster is repeated.
#[test]
fn a_successor_killed_during_the_transfer_changes_nothing() {
    let mut kills = 0;
    for round in 1.. {
        let state = tempfile::tempdir().unwrap();
        let mut first = started(state.path(), PLACEMENTS[0], "[log]\ntotals_every = 0\n");
        let address = first.serving()[0];
        let hashes = populate(address);
        let mut client = Client::new(address);
        client.connect();
        for _ in 0..1_000 {
            let many: Vec<_> = (0..BURST).map(|_| random_hash()).collect();
            assert_eq!(client.burst(&many, seeder(4_001), LOST), BURST);
        }
        let before = swarm_state(&mut client, &hashes);
        while kills < 5 && killed_during_transfer(&mut first, state.path()) {
            kills += 1;
            assert_eq!(swarm_state(&mut client, &hashes), before);
        }
        if round == 20 {
            assert!(kills > 0, "every successor took over before the kill");
            return;
        }
        if kills == 5 {
            // The process can still be upgraded.
            let mut last = follower(state.path(), PLACEMENTS[0]);
            last.serving();
            assert_eq!(first.end().code, Some(0));
            assert_eq!(swarm_state(&mut client, &hashes), before);
            last.stop();
            return;
        }
    }
}

/// Whether the daemon replies; false when it has exited.
fn still_serves(daemon: &mut Daemon, address: SocketAddr) -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if daemon.has_exited() {
            return false;
        }
        socket.send_to(b"\0\0\x04\x17\x27\x10\x19\x80\0\0\0\0\0\0\0\x01", address).unwrap();
        if socket.recv(&mut [0; 64]).is_ok() {
            return true;
        }
        assert!(Instant::now() < deadline, "the daemon neither replies nor exits");
    }
}

/// Starts a daemon with a state directory, a token and a fixed admin address; the flags of `ctl`
/// that reach it.
fn with_admin(state: &Path, flags: &[&str], tables: &str) -> (Daemon, [String; 4]) {
    let token = state.join("token");
    std::fs::write(&token, "of-the-tests-0123456789").unwrap();
    let http = free_address();
    let config = format!("{tables}\n[admin]\nlisten = \"{http}\"\ntoken_file = {token:?}\n");
    let launch = Launch::new(flags).flag("--state-dir", state).config(&config).configured_admin();
    let reach = [
        "--url".into(),
        format!("http://{http}"),
        "--token-file".into(),
        token.display().to_string(),
    ];
    (launch.start(), reach)
}

/// Runs `onrush ctl`; the exit code and the output.
fn ctl(reach: &[String], arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onrush"));
    let ended = command.arg("ctl").args(reach).args(arguments).output().unwrap();
    let output = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(output).unwrap())
}

/// The process starts its successor with the same flags, on `onrush ctl upgrade` and on SIGUSR2,
/// repeatedly.
#[test]
fn a_running_process_starts_its_successor() {
    let state = tempfile::tempdir().unwrap();
    let (mut daemon, reach) = with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
    let address = daemon.serving()[0];
    let first = daemon.pid();
    let hashes = populate(address);
    let before = swarm_state(&mut Client::new(address), &hashes);
    let (sent, lost) = under_load(address, |load| {
        let (code, output) = ctl(&reach, &["upgrade"]);
        assert_eq!(code, Some(0), "{output}");
        assert_eq!(daemon.upgraded(), [address]);
        assert!(output.starts_with(&format!("process {} ", daemon.pid())), "{output}");
        load.await_replies(500);
        daemon.signal("USR2");
        assert_eq!(daemon.upgraded(), [address]);
        load.await_replies(500);
    });
    assert_eq!(lost, 0, "of {sent}");
    assert_ne!(daemon.pid(), first);
    assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
    // No process remains between the two: the new one is a child of the reaper of orphans.
    let parent = daemon.status("PPid").parse::<u32>().unwrap();
    assert!(parent != first && parent != std::process::id(), "{parent}");
    let flags = std::fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap();
    let flags = String::from_utf8(flags).unwrap();
    assert_eq!(flags.matches("--upgrade").count(), 1, "{flags:?}");
    daemon.signal("TERM");
    daemon.line(SNAPSHOT);
    daemon.line(STOPPED);
}

#[test]
fn a_failed_successor_is_reported_and_the_old_process_serves() {
    let state = tempfile::tempdir().unwrap();
    let (mut daemon, reach) = with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
    let address = daemon.serving()[0];
    let config = daemon.home().join("onrush.toml");
    let right = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{right}\n[log]\nlevel = \"loud\"\n")).unwrap();
    let (code, output) = ctl(&reach, &["upgrade"]);
    assert_eq!(code, Some(1));
    assert!(output.contains("exit code 2") && output.contains("log.level"), "{output}");
    let line = daemon.line(SUCCESSOR_FAILED);
    assert!(line.contains("exit code 2"), "{line}");
    Client::new(address).connect_and_check();
    // A further upgrade is refused while one is in progress.
    std::fs::write(&config, &right).unwrap();
    let stopped = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    let word = format!(
        r#"{{"Request":{{"protocol":{},"version":"x"}}}}"#,
        onrush::upgrade::message::PROTOCOL
    );
    (&stopped).write_all(&(word.len() as u32).to_be_bytes()).unwrap();
    (&stopped).write_all(word.as_bytes()).unwrap();
    (&stopped).read_exact(&mut [0]).unwrap();
    daemon.signal("USR2");
    let line = daemon.line("SIGUSR2: ");
    assert!(line.contains(UPGRADE_RUNNING), "{line}");
    let (code, output) = ctl(&reach, &["upgrade"]);
    assert!(code == Some(1) && output.contains(UPGRADE_RUNNING), "{output}");
    let (code, output) = ctl(&reach, &["reload"]);
    assert!(code == Some(1) && output.contains("reload"), "{output}");
    drop(stopped);
    daemon.line(UPGRADE_LEFT);
    Client::new(address).connect_and_check();
    assert_eq!(ctl(&reach, &["upgrade"]).0, Some(0));
    daemon.upgraded();
    Client::new(address).connect_and_check();
    daemon.signal("TERM");
    daemon.line(STOPPED);
}

/// Changes the admin address in the configuration.
fn move_admin(daemon: &Daemon, from: SocketAddr, to: SocketAddr) {
    let config = daemon.home().join("onrush.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let moved = text.replace(&format!("listen = \"{from}\""), &format!("listen = \"{to}\""));
    assert_ne!(moved, text);
    std::fs::write(&config, moved).unwrap();
}

/// The new process waits for the admin address only when the old process holds it: an address of
/// another program is an error where it is configured. If the conflict shows only after the old
/// process has exited, it is logged, and the admin side starts once the address is free.
#[test]
fn an_admin_address_of_another_program_is_reported() {
    in_own_network(Ipv6::On, || {
        let state = tempfile::tempdir().unwrap();
        let (mut daemon, reach) =
            with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
        let address = daemon.serving()[0];
        let http = daemon.http();
        let third = TcpListener::bind("127.0.0.2:0").unwrap();
        let elsewhere = third.local_addr().unwrap();
        move_admin(&daemon, http, elsewhere);
        let (code, output) = ctl(&reach, &["upgrade"]);
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains(&format!("admin.listen: {elsewhere} ")), "{output}");
        Client::new(address).connect_and_check();
        assert_eq!(ctl(&reach, &["health"]).0, Some(0));

        // A wildcard conflicts with the address of the old process and with that of the other
        // program.
        let third = TcpListener::bind(("127.0.0.2", http.port())).unwrap();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, http.port()));
        move_admin(&daemon, elsewhere, any);
        daemon.signal("USR2");
        assert_eq!(daemon.upgraded(), [address]);
        daemon.wait_for_line(NO_ADMIN);
        let served = format!("http://{any}{ADMIN_LISTENS}");
        assert!(!daemon.log().iter().any(|line| line.contains(&served)), "{:?}", daemon.log());
        Client::new(address).connect_and_check();
        drop(third);
        daemon.wait_for_line(&served);
        assert_eq!(ctl(&reach, &["health"]).0, Some(0));
        daemon.signal("TERM");
        daemon.line(STOPPED);
    });
}

/// A hash listed during the transfer is refused by the new process.
#[test]
fn list_changes_during_an_upgrade_apply_after_it() {
    let state = tempfile::tempdir().unwrap();
    let tables = "listen = [\"127.0.0.1:0\"]\n[access]\nmode = \"deny\"";
    let (mut daemon, reach) = with_admin(state.path(), PLACEMENTS[0], tables);
    let address = daemon.serving()[0];
    let mut client = Client::new(address);
    client.connect();
    let hashes: Vec<InfoHash> = (0..200).map(|_| random_hash()).collect();
    hashes.iter().for_each(|hash| drop(client.announce(*hash, seeder(1_000))));
    let over = AtomicBool::new(false);
    let mut listed = Vec::new();
    thread::scope(|scope| {
        let (reach, over, hashes) = (&reach, &over, &hashes);
        let changing = scope.spawn(move || {
            let mut listed = Vec::new();
            for hash in hashes {
                let name = hash.to_string();
                while !over.load(Ordering::Relaxed) {
                    let (code, output) = ctl(reach, &["list", "add", &name]);
                    if code == Some(0) {
                        listed.push(*hash);
                        break;
                    }
                    assert!(UNAVAILABLE.iter().any(|part| output.contains(part)), "{output}");
                }
            }
            listed
        });
        for _ in 0..3 {
            daemon.signal("USR2");
            daemon.upgraded();
        }
        over.store(true, Ordering::Relaxed);
        listed = changing.join().unwrap();
    });
    assert!(!listed.is_empty());
    for hash in &listed {
        let why = client.announce_refused(*hash, seeder(1_000));
        assert!(why.contains("denied") || why.contains("not"), "{why}");
    }
    let journal = std::fs::read_to_string(state.path().join("access.changes")).unwrap();
    assert!(listed.iter().all(|hash| journal.contains(&hash.to_string())), "{journal}");
    // Only listed swarms are purged.
    let deadline = Instant::now() + LOST;
    let known = |hash: &InfoHash| {
        loop {
            let (code, output) = ctl(&reach, &["swarm", &hash.to_string()]);
            match code {
                Some(0) => return true,
                Some(1) if output.contains(&hash.to_string()) => return false,
                // The new process may not listen on the admin address yet.
                _ => assert!(Instant::now() < deadline, "{output}"),
            }
        }
    };
    while listed.iter().any(known) {
        assert!(Instant::now() < deadline, "a listed swarm is still stored");
    }
    // The response to the last change may be lost, so that its state is unknown.
    let served = hashes.iter().skip(listed.len() + 1);
    served.for_each(|hash| assert!(known(hash), "{hash}"));
    daemon.signal("TERM");
    daemon.line(STOPPED);
}

/// Peers with a long advertised interval are restored until they return, over a restart and an
/// upgrade.
#[test]
fn the_advertised_interval_survives_restart_and_upgrade() {
    let state = tempfile::tempdir().unwrap();
    let config = "[announce]\ninterval = 60\npeer_lifetime = 66\n";
    let mut daemon = started(state.path(), PLACEMENTS[0], config);
    let address = daemon.serving()[0];
    let hashes = populate(address);
    let before = swarm_state(&mut Client::new(address), &hashes);
    daemon.stop();
    age(&state.path().join(FILE), 120);
    let until = UNIX_EPOCH.elapsed().unwrap().as_secs() + 600;
    std::fs::write(state.path().join("overload.promise"), format!("900 {until}\n")).unwrap();
    let mut daemon = started(state.path(), PLACEMENTS[0], config);
    let line = daemon.line(PEERS_RESTORED);
    assert!(!line.contains(TOO_OLD), "{line}");
    let address = daemon.serving()[0];
    assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
    for _ in 0..2 {
        daemon.signal("USR2");
        daemon.upgraded();
        assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
    }
    assert!(!daemon.log().iter().any(|line| line.contains(TOO_OLD)), "{:?}", daemon.log());
}

/// Upgrades with fewer and more workers, and with addresses removed and added.
#[test]
fn workers_and_addresses_change_without_a_loss() {
    let state = tempfile::tempdir().unwrap();
    let (mut daemon, reach) = with_admin(state.path(), &[], "listen = [\"127.0.0.1:0\"]");
    let config = daemon.home().join("onrush.toml");
    let right = std::fs::read_to_string(&config).unwrap();
    let right = right.replace("listen = [\"127.0.0.1:0\"]\n", "");
    let write = |listen: &[SocketAddr], workers: &str| {
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        let text = format!("listen = {listen:?}\n{right}\n[workers]\n{workers}\n");
        std::fs::write(&config, text).unwrap();
    };
    daemon.serving();
    let free = || free_address();
    let (kept, other, new) = (free(), free(), free());
    write(&[kept, other], "total = 4\nplacement = \"colocated\"");
    let (code, output) = ctl(&reach, &["reload"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("onrush ctl upgrade") && output.contains("listen, workers"),
        "{output}"
    );
    let upgrade = |daemon: &mut Daemon| {
        let (code, output) = ctl(&reach, &["upgrade"]);
        assert_eq!(code, Some(0), "{output}");
        daemon.upgraded()
    };
    assert_eq!(upgrade(&mut daemon), [kept, other]);
    let hashes = populate(kept);
    let before = swarm_state(&mut Client::new(kept), &hashes);
    let colocated = |number: u8| format!("total = {number}\nplacement = \"colocated\"");
    let split = "placement = \"split\"\nsocket = 3\nswarm = 2".to_owned();
    for (listen, workers) in [
        (vec![kept, other], colocated(2)),
        (vec![kept], colocated(1)),
        (vec![new, kept], colocated(3)),
        (vec![kept, new, other], colocated(6)),
        (vec![kept, other], split),
        (vec![kept], colocated(5)),
    ] {
        write(&listen, &workers);
        let (sent, lost) = under_load(kept, |load| {
            let mut serving = upgrade(&mut daemon);
            let mut listen = listen.clone();
            serving.sort();
            listen.sort();
            assert_eq!(serving, listen);
            load.await_replies(500);
        });
        assert_eq!(lost, 0, "of {sent}, to {workers}");
        for address in &listen {
            Client::new(*address).connect_and_check();
        }
        assert_eq!(swarm_state(&mut Client::new(kept), &hashes), before, "{workers}");
        // Steering matches the shards, whichever sockets were handed over.
        if workers.contains("colocated") && !workers.contains("= 1") {
            let (_, stats) = ctl(&reach, &["--json", "stats"]);
            let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
            let count = |name| stats["totals"][name].as_u64().unwrap();
            let (foreign, local) = (count("foreign"), count("local"));
            assert!(foreign * 10 < local, "{foreign} of {local} at {workers}");
        }
    }
    daemon.signal("TERM");
    daemon.line(STOPPED);
}
