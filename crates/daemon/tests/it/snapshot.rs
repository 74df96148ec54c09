//! Peers over restarts: with other numbers of workers, after kills, and with damaged files.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::harness::client::Client;
use crate::harness::messages::{NO_PEERS, PEERS_RESTORED, SNAPSHOT, TOO_OLD};
use crate::harness::packets::{COMPLETED, STOPPED, leecher, random_hash, seeder};
use crate::harness::process::{Launch, mode};

pub(crate) const FILE: &str = "onrush.snapshot";

/// A daemon with this state directory, these flags and a free port.
pub(crate) fn launch_in(state: &Path, flags: &[&str], config: &str) -> Launch {
    let launch = Launch::new(flags).flag("--listen", "127.0.0.1:0").flag("--state-dir", state);
    launch.config(config)
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

pub(crate) fn swarm_state(address: SocketAddr, hashes: &[InfoHash]) -> SwarmState {
    let mut client = Client::new(address);
    client.connect();
    let counts = client.scrape(hashes);
    let peers = hashes.iter().map(|hash| {
        // The announcing client joins and leaves; the swarms are small enough for complete peer
        // lists.
        let mut peers = client.announce(&leecher(*hash, 9)).peers;
        client.announce(&leecher(*hash, 9).event(STOPPED));
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
        for port in 1_000..=1_000 + number {
            let seeds = (port - 1_000) % 3 == 0;
            client.announce(&if seeds { seeder(hash, port) } else { leecher(hash, port) });
            if port % 4 == 1 {
                client.announce(&seeder(hash, port).event(COMPLETED));
            }
            if number == 7 {
                client.announce(&leecher(hash, port).event(STOPPED));
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

#[test]
fn peers_survive_a_restart_with_other_workers() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], "").serve();
    let hashes = populate(daemon.address());
    let before = swarm_state(daemon.address(), &hashes);
    assert_eq!((before.counts[23].seeders, before.peers[23].len()), (12, 24));
    assert_eq!((before.counts[7].completed, before.peers[7].len()), (2, 0));
    for flags in [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[0]] {
        let text = daemon.stop().text();
        assert!(text.contains(SNAPSHOT), "{text}");
        assert_eq!(mode(&state.path().join(FILE)), 0o600);
        daemon = launch_in(state.path(), flags, "").start();
        daemon.line(PEERS_RESTORED);
        daemon.serving();
        assert_eq!(swarm_state(daemon.address(), &hashes), before);
    }
    daemon.stop();
    assert_eq!(set_aside(state.path()), 0);
}

#[test]
fn the_last_periodic_snapshot_survives_a_kill() {
    for flags in PLACEMENTS {
        let state = tempfile::tempdir().unwrap();
        let mut daemon = launch_in(state.path(), flags, "[snapshot]\nevery = 1\n").serve();
        let hashes = populate(daemon.address());
        let before = swarm_state(daemon.address(), &hashes);
        // A snapshot that begins after this point is complete once a later one has begun.
        daemon.skip();
        for _ in 0..3 {
            daemon.line(SNAPSHOT);
        }
        daemon.kill();
        let daemon = launch_in(state.path(), flags, "").serve();
        assert_eq!(swarm_state(daemon.address(), &hashes), before);
        daemon.stop();
    }
}

#[test]
fn without_snapshots_there_is_no_file() {
    let state = tempfile::tempdir().unwrap();
    let config = "[snapshot]\nenabled = false\nevery = 1\n";
    let daemon = launch_in(state.path(), PLACEMENTS[0], config).serve();
    populate(daemon.address());
    assert!(!daemon.stop().text().contains("snapshot"));
    assert!(!state.path().join(FILE).exists());
}

#[test]
fn a_damaged_snapshot_is_renamed_and_reported() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join(FILE);
    let daemon = launch_in(state.path(), PLACEMENTS[0], "").serve();
    populate(daemon.address());
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
        let mut daemon = launch_in(state.path(), PLACEMENTS[number % 3], "").start();
        let line = daemon.line(NO_PEERS);
        assert!(line.contains("WARN") && line.contains(why), "{line}");
        daemon.serving();
        daemon.check();
        assert!(set_aside(state.path()) >= aside.max(1));
        daemon.stop();
    }
    // The last stop has written a valid snapshot.
    let mut daemon = launch_in(state.path(), PLACEMENTS[0], "").start();
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
    let daemon = launch_in(state.path(), PLACEMENTS[0], config).serve();
    let hashes = populate(daemon.address());
    daemon.stop();
    age(&state.path().join(FILE), 120);
    let mut daemon = launch_in(state.path(), PLACEMENTS[1], config).start();
    let line = daemon.line(TOO_OLD);
    assert!(line.contains("0 peers of "), "{line}");
    daemon.serving();
    let state_after = swarm_state(daemon.address(), &hashes);
    assert!(state_after.peers.iter().all(Vec::is_empty));
    // Completed downloads are restored.
    assert_eq!((state_after.counts[7].completed, state_after.counts[23].completed), (2, 4));
    daemon.stop();
}
