//! Peers over restarts: with other numbers of workers, after kills, and with damaged files.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::harness::client::{Client, leecher, random_hash, seeder};
use crate::harness::messages::{NO_PEERS, PEERS_RESTORED, SNAPSHOT, TOO_OLD};
use crate::harness::process::{Daemon, Launch, mode};

pub(crate) const FILE: &str = "onrush.snapshot";

/// Starts a daemon with this state directory, these flags and a free port.
pub(crate) fn started(state: &Path, flags: &[&str], config: &str) -> Daemon {
    Launch::new(flags)
        .flag("--listen", "127.0.0.1:0")
        .flag("--state-dir", state)
        .config(config)
        .start()
}

pub(crate) const PLACEMENTS: [&[&str]; 3] = [
    &["--workers", "2", "--placement", "colocated"],
    &["--workers", "5", "--placement", "split"],
    &["--workers", "1", "--placement", "colocated"],
];

/// The state of swarms: counts from scrapes, and all peers from announces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SwarmState {
    pub(crate) counts: Vec<ScrapeCounts>,
    pub(crate) peers: Vec<Vec<SocketAddr>>,
}

pub(crate) fn swarm_state(client: &mut Client, hashes: &[InfoHash]) -> SwarmState {
    client.connect();
    let counts = client.scrape(hashes);
    let peers = hashes.iter().map(|hash| {
        // The announcing client joins and leaves; the swarms are small enough for complete peer
        // lists.
        let mut peers = client.announce(*hash, leecher(9)).peers;
        let mut stop = leecher(9);
        stop.event = onrush_proto::Event::Stopped;
        client.announce(*hash, stop);
        peers.sort_unstable();
        peers
    });
    let peers = peers.collect();
    SwarmState { counts, peers }
}

/// Creates swarms of one to thirty peers, some with completed downloads, one without peers.
pub(crate) fn populate(address: SocketAddr) -> Vec<InfoHash> {
    let mut hashes: Vec<InfoHash> = Vec::new();
    for number in 0..24u16 {
        let mut client = Client::at(Ipv4Addr::new(127, 0, 1, number as u8).into(), address);
        client.connect();
        let hash = random_hash();
        for port in 0..=number {
            client.announce(
                hash,
                if port % 3 == 0 { seeder(1_000 + port) } else { leecher(1_000 + port) },
            );
            if port % 4 == 1 {
                let mut completed = seeder(1_000 + port);
                completed.event = onrush_proto::Event::Completed;
                client.announce(hash, completed);
            }
        }
        if number == 7 {
            for port in 0..=number {
                let mut stop = leecher(1_000 + port);
                stop.event = onrush_proto::Event::Stopped;
                client.announce(hash, stop);
            }
        }
        hashes.push(hash);
    }
    hashes
}

pub(crate) fn set_aside(state: &Path) -> usize {
    let files = fs::read_dir(state).unwrap().map(|file| file.unwrap().file_name());
    files.filter(|name| name.to_string_lossy().contains(".damaged-")).count()
}

/// Asserts that the snapshot does not contain the key of connection ids.
fn assert_contains_no_key(state: &Path) {
    let key = fs::read_to_string(state.join("connection.key")).unwrap();
    let digits = key.lines().find_map(|line| line.strip_prefix("current ")).unwrap().trim();
    let key = u128::from_str_radix(digits, 16).unwrap().to_be_bytes();
    let snapshot = fs::read(state.join(FILE)).unwrap();
    let there = |piece: &[u8]| snapshot.windows(piece.len()).any(|window| window == piece);
    assert!(!key.windows(8).any(there) && !digits.as_bytes().windows(16).any(there));
}

#[test]
fn peers_survive_a_restart_with_other_workers() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = started(state.path(), PLACEMENTS[0], "");
    let mut address = daemon.serving()[0];
    let hashes = populate(address);
    let mut client = Client::new(address);
    let before = swarm_state(&mut client, &hashes);
    assert_eq!((before.counts[23].seeders, before.peers[23].len()), (12, 24));
    assert_eq!((before.counts[7].completed, before.peers[7].len()), (2, 0));
    for flags in [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[0]] {
        let text = daemon.stop().text();
        assert!(text.contains(SNAPSHOT), "{text}");
        assert_eq!(mode(&state.path().join(FILE)), 0o600);
        assert_contains_no_key(state.path());
        daemon = started(state.path(), flags, "");
        daemon.line(PEERS_RESTORED);
        address = daemon.serving()[0];
        client = Client::new(address);
        assert_eq!(swarm_state(&mut client, &hashes), before);
    }
    daemon.stop();
    assert_eq!(set_aside(state.path()), 0);
}

#[test]
fn the_last_periodic_snapshot_survives_a_kill() {
    for flags in PLACEMENTS {
        let state = tempfile::tempdir().unwrap();
        let mut daemon = started(state.path(), flags, "[snapshot]\nevery = 1\n");
        let address = daemon.serving()[0];
        let hashes = populate(address);
        let before = swarm_state(&mut Client::new(address), &hashes);
        // A snapshot that begins after this point is complete once a later one has begun.
        daemon.skip();
        for _ in 0..3 {
            daemon.line(SNAPSHOT);
        }
        daemon.signal("KILL");
        daemon.end();
        let mut daemon = started(state.path(), flags, "");
        let address = daemon.serving()[0];
        assert_eq!(swarm_state(&mut Client::new(address), &hashes), before);
        daemon.stop();
    }
}

#[test]
fn without_snapshots_there_is_no_file() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon =
        started(state.path(), PLACEMENTS[0], "[snapshot]\nenabled = false\nevery = 1\n");
    populate(daemon.serving()[0]);
    assert!(!daemon.stop().text().contains("snapshot"));
    assert!(!state.path().join(FILE).exists());
}

#[test]
fn a_damaged_snapshot_is_renamed_and_reported() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join(FILE);
    let mut daemon = started(state.path(), PLACEMENTS[0], "");
    populate(daemon.serving()[0]);
    daemon.stop();
    let good = fs::read(&path).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 4;
    let bad: [(&[u8], &str); 4] = [
        (&flipped, "checksum"),
        (&good[..good.len() - 1], "is truncated"),
        (b"onrush snap", "is truncated"),
        (b"-----BEGIN SOMETHING ELSE-----------------", "not a snapshot"),
    ];
    for (number, (bytes, why)) in bad.into_iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        // The new name of a damaged file contains the time in seconds, so names differ.
        let aside = set_aside(state.path());
        let mut daemon = started(state.path(), PLACEMENTS[number % 3], "");
        let line = daemon.line(NO_PEERS);
        assert!(line.contains("WARN") && line.contains(why), "{line}");
        let address = daemon.serving()[0];
        Client::new(address).connect_and_check();
        assert!(set_aside(state.path()) >= aside.max(1));
        daemon.stop();
    }
    // The last stop has written a valid snapshot.
    let mut daemon = started(state.path(), PLACEMENTS[0], "");
    daemon.line(PEERS_RESTORED);
    daemon.stop();
}

/// Moves the times of all blocks into the past and updates the checksums.
pub(crate) fn age(path: &Path, seconds: u64) {
    let mut bytes = fs::read(path).unwrap();
    let mut at = 32;
    while at < bytes.len() {
        let word = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let len = (word & 0x7FFF_FFFF) as usize;
        let unix = u64::from_be_bytes(bytes[at + 4..at + 12].try_into().unwrap()) - seconds;
        bytes[at + 4..at + 12].copy_from_slice(&unix.to_be_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[at..at + 12]);
        hasher.update(&bytes[at + 16..at + 16 + len]);
        let checksum = hasher.finalize().to_be_bytes();
        bytes[at + 12..at + 16].copy_from_slice(&checksum);
        at += 16 + len;
    }
    fs::write(path, bytes).unwrap();
}

/// Peers age while no process runs.
#[test]
fn expired_peers_are_not_restored() {
    let state = tempfile::tempdir().unwrap();
    let config = "[announce]\ninterval = 60\npeer_lifetime = 66\n";
    let mut daemon = started(state.path(), PLACEMENTS[0], config);
    let hashes = populate(daemon.serving()[0]);
    daemon.stop();
    age(&state.path().join(FILE), 120);
    let mut daemon = started(state.path(), PLACEMENTS[1], config);
    let line = daemon.line(TOO_OLD);
    assert!(line.contains("0 peers of "), "{line}");
    let mut client = Client::new(daemon.serving()[0]);
    let state_after = swarm_state(&mut client, &hashes);
    assert!(state_after.peers.iter().all(Vec::is_empty));
    // Completed downloads are restored.
    assert_eq!((state_after.counts[7].completed, state_after.counts[23].completed), (2, 4));
    daemon.stop();
}
