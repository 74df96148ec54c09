//! Limits of sources over real sockets, with their defaults and a reload. The attacks come from an
//! address of the loopback network, which is trusted unless configured otherwise. The limits
//! themselves are tested in `crates/swarm/tests`.

use std::net::Ipv4Addr;

use crate::harness::messages::{LIMIT_REACHED, RELOADED};
use crate::harness::{Client, Daemon, Launch, eventually, leecher, random_hash, seeder};

const LIMITS: &str = "listen = [\"127.0.0.1:0\"]\n[limits]\npeers = 20_000\n\
                      source_peers_per_swarm = 10\nsource_peers = 200\nsource_new_swarms = 0\n";

/// A connected client at 127.9.9.`number`.
fn client(daemon: &Daemon, number: u8) -> Client {
    Client::at(Ipv4Addr::new(127, 9, number, 9).into(), daemon.address()).connected()
}

fn not_stored(daemon: &Daemon, limit: &str) -> f64 {
    daemon.metrics().sum("onrush_not_stored_peers_total", &[&format!("limit=\"{limit}\"")])
}

/// One address that announces many ports and info hashes occupies a part of a swarm and of the
/// tracker, and others are served. A reload that trusts it exempts it.
#[test]
fn one_source_occupies_a_part_until_it_is_trusted() {
    let launch = Launch::new(&["--workers", "2"]).admin();
    let mut daemon = launch.config(&format!("{LIMITS}trusted_sources = []\n")).serve();
    let (attacker, honest, hash) = (client(&daemon, 0), client(&daemon, 1), random_hash());
    honest.announce(&leecher(hash, 4_000));
    for port in 5_000..5_100 {
        let reply = attacker.announce(&seeder(hash, port));
        assert!(!reply.peers.is_empty(), "it gets a reply");
    }
    let reply = honest.announce(&leecher(hash, 4_000));
    assert_eq!((reply.counts(), reply.peers.len()), ((10, 1), 10));
    (0..400).for_each(|_| drop(attacker.announce(&leecher(random_hash(), 4_001))));
    daemon.line_with(LIMIT_REACHED, &["limits.source_peers", "trusted_sources"]);
    eventually("the refused peers are counted", || {
        let limits = ["source_peers_per_swarm", "source_peers"];
        let [per_swarm, in_all] = limits.map(|limit| not_stored(&daemon, limit));
        per_swarm == 90.0 && in_all >= 200.0
    });
    let new = random_hash();
    client(&daemon, 2).announce(&seeder(new, 4_002));
    assert_eq!(honest.announce(&leecher(new, 4_003)).ports(), [4_002]);

    daemon.configure(&format!("{LIMITS}trusted_sources = [\"127.9.0.0/24\"]\n"));
    daemon.signal("HUP");
    daemon.line_with(RELOADED, &["limits.trusted_sources"]);
    eventually("the source is trusted", || {
        (6_000..6_100).for_each(|port| drop(attacker.announce(&seeder(hash, port))));
        honest.announce(&leecher(hash, 4_000)).counts().0 > 20
    });
}

/// Without configuration, clients on the host itself are not limited: load tests and proxies.
#[test]
fn the_host_itself_is_trusted_by_default() {
    let daemon = Launch::new(&[]).config(LIMITS).serve();
    let (client, hash) = (client(&daemon, 0), random_hash());
    (5_000..5_020).for_each(|port| drop(client.announce(&leecher(hash, port))));
    assert_eq!(client.counts(hash).leechers, 20);
}
