//! Daemons with a state directory, and the peers that they keep in it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use onrush_proto::{Event, InfoHash, ScrapeCounts};

use crate::harness::{Client, Launch, leecher, random_hash, seeder};

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

/// Swarms of one to thirty peers, some with completed downloads, one without peers.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) hashes: Vec<InfoHash>,
    pub(crate) state: SwarmState,
}

impl Peers {
    /// Announces the peers to the tracker at this address.
    pub(crate) fn announced_to(address: SocketAddr) -> Self {
        let hashes = (0..24).map(|number| create_swarm(address, number)).collect::<Vec<_>>();
        Self { state: swarm_state(address, &hashes), hashes }
    }

    /// Asserts that a start restores all peers from its snapshot.
    #[track_caller]
    pub(crate) fn assert_restored(&self, launch: Launch) {
        let daemon = launch.serve_restored();
        self.assert_served(daemon.address());
    }

    /// Asserts that the tracker at this address has all peers, and no others in these swarms.
    #[track_caller]
    pub(crate) fn assert_served(&self, address: SocketAddr) {
        assert_eq!(swarm_state(address, &self.hashes), self.state);
    }
}

/// The state of swarms: counts from scrapes, and all peers from announces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SwarmState {
    pub(crate) counts: Vec<ScrapeCounts>,
    pub(crate) peers: Vec<Vec<SocketAddr>>,
}

pub(crate) fn swarm_state(address: SocketAddr, hashes: &[InfoHash]) -> SwarmState {
    let client = Client::new(address).connected();
    let counts = client.scrape(hashes);
    let peers = hashes.iter().map(|hash| {
        // The announcing client joins and leaves; the swarms are small enough for complete peer
        // lists.
        let mut peers = client.announce(&leecher(*hash, 9)).peers;
        client.announce(&leecher(*hash, 9).event(Event::Stopped));
        peers.sort_unstable();
        peers
    });
    let peers = peers.collect();
    SwarmState { counts, peers }
}

fn create_swarm(address: SocketAddr, number: u16) -> InfoHash {
    let client = Client::at(Ipv4Addr::new(127, 0, 1, number as u8).into(), address).connected();
    let hash = random_hash();
    for port in 1_000..=1_000 + number {
        let seeds = (port - 1_000) % 3 == 0;
        client.announce(&if seeds { seeder(hash, port) } else { leecher(hash, port) });
        if port % 4 == 1 {
            client.announce(&seeder(hash, port).event(Event::Completed));
        }
        if number == 7 {
            client.announce(&leecher(hash, port).event(Event::Stopped));
        }
    }
    hash
}

pub(crate) fn set_aside(state: &Path) -> usize {
    let files = fs::read_dir(state).unwrap().map(|file| file.unwrap().file_name());
    files.filter(|name| name.to_string_lossy().contains(".damaged-")).count()
}
