//! Upgrades: under load, with changes during the transfer, and with failures.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use nix::unistd::Uid;
use onrush_proto::InfoHash;
use onrush_replica::handoff::PROTOCOL;

use crate::control_socket::process_at;
use crate::harness::messages::{
    ADMIN_LISTENS, NO_ADMIN, PEERS_RESTORED, SNAPSHOT, SUCCESSOR_FAILED, TOO_OLD, UPGRADE_BEGINS,
    UPGRADE_DONE, UPGRADE_FAILED, UPGRADE_LEFT, UPGRADE_RECEIVED, UPGRADE_REQUESTED,
    UPGRADE_RUNNING,
};
use crate::harness::{
    Client, Daemon, Launch, PLACEMENTS, Peers, TOKEN_FILE, change_list, eventually, free_address,
    in_own_network, launch_in, meanwhile, mode, random_hash, request_with_token, seeder,
};
use crate::snapshot::{FILE, age};

/// Texts of responses to a change that is refused during an upgrade.
const REFUSED: [&str; 3] = ["a handoff is in progress", "the tracker is ", "try again in a moment"];
/// Announces in flight per client of the load.
const BURST: usize = 16;

/// Starts a successor.
fn follower(state: &Path, flags: &[&str]) -> Daemon {
    launch_in(state, flags, "[log]\ntotals_every = 0\n").flags(&["--upgrade"]).start()
}

/// Runs `change` while four clients announce; each announce has to get its reply. The argument of
/// `change` waits for 500 further replies. Returns the result of `change`.
fn under_load<T>(address: SocketAddr, change: impl FnOnce(&dyn Fn()) -> T) -> T {
    let answered = AtomicUsize::new(0);
    let load = (1..=4).map(|number| {
        let client = Client::at(Ipv4Addr::new(127, 0, 2, number).into(), address).connected();
        let (hashes, answered) = ([(); BURST].map(|()| random_hash()), &answered);
        move || {
            client.burst(&hashes);
            answered.fetch_add(BURST, Ordering::Relaxed);
        }
    });
    meanwhile(load, || {
        let await_replies = || {
            let enough = answered.load(Ordering::Relaxed) + 500;
            eventually("the load continues", || answered.load(Ordering::Relaxed) >= enough);
        };
        await_replies();
        change(&await_replies)
    })
}

#[test]
fn an_upgrade_loses_no_reply_and_no_peer() {
    // The same workers, other shards, the other placement.
    let colocated: &[&str] = &["--workers", "2", "--placement", "colocated"];
    let split: &[&str] = &["--workers", "3", "--placement", "split"];
    for (old, new) in [(colocated, colocated), (split, colocated), (colocated, split)] {
        let state = tempfile::tempdir().unwrap();
        let first = launch_in(state.path(), old, "[log]\ntotals_every = 0\n").serve();
        let address = first.address();
        let peers = Peers::announced_to(address);
        let second = under_load(address, |await_replies| {
            let mut follower = follower(state.path(), new);
            assert_eq!(follower.serving(), [address]);
            follower.wait_for_line(UPGRADE_RECEIVED);
            await_replies();
            follower
        });
        first.end().exits(0, &[UPGRADE_DONE]);
        peers.assert_served(address);
        // The successor holds the lock and can itself be upgraded.
        launch_in(state.path(), old, "").start().refusal(&[&format!("(process {})", second.pid())]);
        let mut third = follower(state.path(), new);
        third.serving();
        assert_eq!(second.end().code, Some(0));
        peers.assert_served(address);
        third.wait_for_line(UPGRADE_RECEIVED);
        third.stop().exits(0, &[SNAPSHOT]);
    }
}

#[test]
fn errors_of_an_upgrade_are_named_and_the_predecessor_serves() {
    let state = tempfile::tempdir().unwrap();
    follower(state.path(), PLACEMENTS[0]).refusal(&["--upgrade"]);

    let mut first = launch_in(state.path(), PLACEMENTS[0], "").serve();
    assert_eq!(mode(&state.path().join("upgrade.sock")), 0o600);
    // An address in use by another process.
    let taken = UdpSocket::bind("127.0.0.2:0").unwrap();
    let address_taken = taken.local_addr().unwrap().to_string();
    Launch::new(PLACEMENTS[0])
        .flag("--listen", &address_taken)
        .flag("--state-dir", state.path())
        .flags(&["--upgrade"])
        .start()
        .refusal(&[&address_taken]);
    first.line(UPGRADE_LEFT);
    first.check();

    // A successor with another protocol version, and a successor with an invalid message.
    let mut stream = request_handoff(state.path(), 99);
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap_or(0);
    first.line_with("9.9.9", &["99"]);
    let mut stream = UnixStream::connect(state.path().join("upgrade.sock")).unwrap();
    stream.write_all(b"\0\0\0\x02{}").unwrap();
    first.line(UPGRADE_FAILED);
    first.check();
}

/// Connects as a successor that speaks this version of the protocol.
fn request_handoff(state: &Path, protocol: u64) -> UnixStream {
    let mut stream = UnixStream::connect(state.join("upgrade.sock")).unwrap();
    let message = format!(r#"{{"Request":{{"protocol":{protocol},"version":"9.9.9"}}}}"#);
    stream.write_all(&(message.len() as u32).to_be_bytes()).unwrap();
    stream.write_all(message.as_bytes()).unwrap();
    stream
}

/// Starts a daemon with a state directory, the admin API at a fixed address, and these tables.
pub(crate) fn with_admin(state: &Path, flags: &[&str], tables: &str) -> Daemon {
    let admin = free_address();
    let config = format!("{tables}\n{TOKEN_FILE}listen = \"{admin}\"\n");
    let launch = Launch::new(flags).flag("--state-dir", state).config(&config);
    launch.configured_admin().serve()
}

/// Upgrades a daemon by `onrush ctl` with these flags; the addresses of the successor.
pub(crate) fn upgrade_by_ctl(daemon: &mut Daemon, flags: &[&str]) -> Vec<SocketAddr> {
    daemon.ctl(&[&["upgrade"], flags].concat()).prints(&[]);
    daemon.upgraded()
}

/// The process starts its successor with the same flags, on `onrush ctl upgrade` and on SIGUSR2,
/// repeatedly.
#[test]
fn a_running_process_starts_its_successor() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
    let address = daemon.address();
    let (first, flags) = (daemon.pid(), command_line(&daemon));
    let peers = Peers::announced_to(address);
    under_load(address, |await_replies| {
        let ended = daemon.ctl(&["upgrade"]);
        ended.prints(&[]);
        assert_eq!(daemon.upgraded(), [address]);
        assert!(ended.output.starts_with(&format!("process {} ", daemon.pid())), "{ended:?}");
        await_replies();
        assert_eq!(daemon.upgrade(), [address]);
        await_replies();
    });
    assert_ne!(daemon.pid(), first);
    peers.assert_served(address);
    // No process remains between the two: the new one is a child of the reaper of orphans.
    let parent = daemon.status("PPid").parse::<u32>().unwrap();
    assert!(parent != first && parent != std::process::id(), "{parent}");
    assert_eq!(command_line(&daemon), flags, "the same for `ps` and `systemctl status`");
    let ended = daemon.stop();
    ended.exits(0, &[SNAPSHOT]);
    let requests: Vec<_> =
        ended.log.iter().filter(|line| line.contains(UPGRADE_REQUESTED)).collect();
    assert!(requests[0].contains("127.0.0.1:") && requests[1].contains("SIGUSR2"), "{requests:?}");
    let user = format!("of user {}", Uid::effective());
    let begins = ended.log.iter().filter(|line| line.contains(UPGRADE_BEGINS));
    assert_eq!(begins.filter(|line| line.contains(&user)).count(), 2, "{:?}", ended.log);
}

fn command_line(daemon: &Daemon) -> String {
    String::from_utf8(fs::read(format!("/proc/{}/cmdline", daemon.pid())).unwrap()).unwrap()
}

#[test]
fn a_failed_successor_is_reported_and_the_predecessor_serves() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
    let right = fs::read_to_string(daemon.config_path()).unwrap();
    daemon.configure(&format!("{right}\n[log]\nlevel = \"loud\"\n"));
    daemon.ctl(&["upgrade"]).exits(1, &["exit code 2", "log.level"]);
    daemon.line_with(SUCCESSOR_FAILED, &["exit code 2"]);
    daemon.check();
    // An address of another program is an error where it is configured.
    let other = TcpListener::bind("127.0.0.2:0").unwrap();
    let elsewhere = other.local_addr().unwrap();
    let admin = format!("listen = \"{}\"", daemon.admin());
    daemon.configure(&right.replace(&admin, &format!("listen = \"{elsewhere}\"")));
    daemon.ctl(&["upgrade"]).exits(1, &[&format!("`admin.listen`: {elsewhere} ")]);
    daemon.check();
    // The control socket stays that of the predecessor.
    assert_eq!(process_at(&state.path().join("control.sock")), u64::from(daemon.pid()));
    // A further upgrade is refused while one is in progress.
    daemon.configure(&right);
    let mut stopped = request_handoff(state.path(), PROTOCOL.into());
    stopped.read_exact(&mut [0]).unwrap();
    daemon.signal("USR2");
    daemon.line_with("SIGUSR2: ", &[UPGRADE_RUNNING]);
    daemon.ctl(&["upgrade"]).exits(1, &[UPGRADE_RUNNING]);
    daemon.ctl(&["reload"]).exits(1, &[UPGRADE_RUNNING]);
    drop(stopped);
    daemon.line(UPGRADE_LEFT);
    daemon.check();
    upgrade_by_ctl(&mut daemon, &[]);
    daemon.check();
}

/// A wildcard conflicts with the address of the predecessor and with that of another program: that
/// is logged, and the admin side listens once the address is free.
#[test]
fn an_admin_address_that_is_in_use_after_the_upgrade_is_bound_later() {
    in_own_network(&[], || {
        let state = tempfile::tempdir().unwrap();
        let mut daemon = with_admin(state.path(), PLACEMENTS[0], "listen = [\"127.0.0.1:0\"]");
        let (address, http) = (daemon.address(), daemon.admin());
        let other = TcpListener::bind(("127.0.0.2", http.port())).unwrap();
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, http.port()));
        let text = fs::read_to_string(daemon.config_path()).unwrap();
        daemon.configure(&text.replace(&http.to_string(), &any.to_string()));
        assert_eq!(daemon.upgrade(), [address]);
        daemon.wait_for_line(NO_ADMIN);
        let served = format!("http://{any}{ADMIN_LISTENS}");
        assert!(!daemon.log().iter().any(|line| line.contains(&served)), "{:?}", daemon.log());
        daemon.check();
        drop(other);
        daemon.wait_for_line(&served);
        daemon.ctl(&["--timeout", "60", "health"]).prints(&[]);
    });
}

/// A hash listed during the transfer is refused by the successor.
#[test]
fn list_changes_during_an_upgrade_apply_after_it() {
    let state = tempfile::tempdir().unwrap();
    let tables = "listen = [\"127.0.0.1:0\"]\n[access]\nmode = \"deny\"";
    let mut daemon = with_admin(state.path(), PLACEMENTS[0], tables);
    let client = daemon.client();
    let hashes: Vec<InfoHash> = (0..200).map(|_| random_hash()).collect();
    hashes.iter().for_each(|hash| drop(client.announce(&seeder(*hash, 1_000))));
    let (admin, listed) = (daemon.admin(), Mutex::new(Vec::new()));
    let mut next = hashes.iter().copied().peekable();
    let change = || {
        let Some(hash) = next.peek() else { return };
        // Neither process may listen for a moment.
        let Ok(response) = change_list(admin, "POST", &[*hash]) else { return };
        if response.status == 200 {
            listed.lock().unwrap().extend(next.next());
        } else {
            assert!(REFUSED.iter().any(|part| response.body.contains(part)), "{response:?}");
        }
    };
    meanwhile([change], || {
        (0..3).for_each(|_| drop(daemon.upgrade()));
        // The last change is made after the upgrades, if not before.
        eventually("a hash is listed", || !listed.lock().unwrap().is_empty());
    });
    let listed = listed.into_inner().unwrap();
    let journal = fs::read_to_string(state.path().join("access.changes")).unwrap();
    for hash in &listed {
        client.announce_refused(&seeder(*hash, 1_000));
        assert!(journal.contains(&hash.to_string()), "{journal}");
    }
    // Only listed swarms are purged. The response to the last change may be lost, so that its state
    // is unknown.
    let served = hashes.iter().skip(listed.len() + 1);
    served.for_each(|hash| assert_eq!(client.counts(*hash).seeders, 1, "{hash}"));
    let purged = |hash: &InfoHash| {
        request_with_token(admin, "GET", &format!("/api/v1/swarm/{hash}"), "")
            .is_ok_and(|response| response.status == 404)
    };
    eventually("all listed swarms are purged", || listed.iter().all(purged));
}

/// Peers with a long advertised interval are restored until they return, over a restart and an
/// upgrade.
#[test]
fn the_advertised_interval_survives_restart_and_upgrade() {
    let state = tempfile::tempdir().unwrap();
    let config = "[announce]\ninterval = 60\npeer_lifetime = 66\n";
    let daemon = launch_in(state.path(), PLACEMENTS[0], config).serve();
    let peers = Peers::announced_to(daemon.address());
    daemon.stop();
    age(&state.path().join(FILE), 120);
    // They have expired otherwise. A kill keeps the file.
    let mut daemon = launch_in(state.path(), PLACEMENTS[1], config).start();
    daemon.line_with(TOO_OLD, &["0 peers of "]);
    daemon.kill();
    let until = UNIX_EPOCH.elapsed().unwrap().as_secs() + 600;
    fs::write(state.path().join("overload.interval"), format!("900 {until}\n")).unwrap();
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], config).start();
    let line = daemon.line(PEERS_RESTORED);
    assert!(!line.contains(TOO_OLD), "{line}");
    daemon.serving();
    peers.assert_served(daemon.address());
    for _ in 0..2 {
        daemon.upgrade();
        peers.assert_served(daemon.address());
    }
    assert!(!daemon.log().iter().any(|line| line.contains(TOO_OLD)), "{:?}", daemon.log());
}

/// Upgrades with fewer and more workers, and with addresses removed and added.
#[test]
fn workers_and_addresses_change_without_a_loss() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = with_admin(state.path(), &[], "listen = [\"127.0.0.1:0\"]");
    let right = fs::read_to_string(daemon.config_path()).unwrap();
    let right = right.replace("listen = [\"127.0.0.1:0\"]\n", "");
    let write = |daemon: &Daemon, listen: &[SocketAddr], workers: &str| {
        let listen: Vec<_> = listen.iter().map(ToString::to_string).collect();
        daemon.configure(&format!("listen = {listen:?}\n{right}\n[workers]\n{workers}\n"));
    };
    let (kept, other, new) = (free_address(), free_address(), free_address());
    write(&daemon, &[kept, other], "total = 4\nplacement = \"colocated\"");
    daemon.ctl(&["reload"]).prints(&["onrush ctl upgrade", "listen, workers"]);
    assert_eq!(upgrade_by_ctl(&mut daemon, &[]), [kept, other]);
    let peers = Peers::announced_to(kept);
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
        write(&daemon, &listen, &workers);
        under_load(kept, |await_replies| {
            let (mut serving, mut listen) = (upgrade_by_ctl(&mut daemon, &[]), listen.clone());
            serving.sort();
            listen.sort();
            assert_eq!(serving, listen);
            await_replies();
        });
        daemon.check();
        peers.assert_served(kept);
        // Steering matches the shards, whichever sockets were passed on.
        if workers.contains("colocated") && !workers.contains("= 1") {
            let stats = daemon.ctl(&["--json", "stats"]).json();
            let count = |name| stats["totals"][name].as_u64().unwrap();
            let (foreign, local) = (count("foreign"), count("local"));
            assert!(foreign * 10 < local, "{foreign} of {local} at {workers}");
        }
    }
    let changes = ["workers.total: 4 -> 2", "workers.placement: \"colocated\" -> \"split\""];
    daemon.stop().exits(0, &changes);
}
