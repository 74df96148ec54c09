//! Limits of sources: one address can occupy a part of the tracker and of a swarm, not all of it.
//! The attacks come from addresses of the loopback network, which are trusted unless configured
//! otherwise.

use std::net::{IpAddr, Ipv4Addr};

use crate::harness::client::Client;
use crate::harness::messages::{LIMIT_REACHED, RELOADED};
use crate::harness::packets::{Announce, leecher, random_hash, seeder};
use crate::harness::process::{Daemon, Launch, eventually};

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

fn daemons(limits: &str) -> impl Iterator<Item = Daemon> {
    let config = format!("listen = [\"127.0.0.1:0\"]\n[limits]\n{limits}");
    ["colocated", "split"].into_iter().map(move |placement| {
        let launch = Launch::new(&["--workers", "2", "--placement", placement]).admin();
        launch.config(&config).serve()
    })
}

/// A client at an address of its own.
fn honest(daemon: &Daemon, number: u32) -> Client {
    at(daemon, Ipv4Addr::from(0x7F01_0000 + 256 * number + 1))
}

fn at(daemon: &Daemon, address: Ipv4Addr) -> Client {
    let mut client = Client::at(IpAddr::V4(address), daemon.address());
    client.connect();
    client
}

fn not_stored(daemon: &Daemon, limit: &str) -> f64 {
    daemon.metrics().sum("onrush_not_stored_peers_total", &[&format!("limit=\"{limit}\"")])
}

/// One address that announces random info hashes occupies 1 % of the tracker, and a new swarm of
/// honest clients works.
#[test]
fn one_source_does_not_fill_the_tracker() {
    let limits = "peers = 20_000\nsource_peers = 200\nsource_new_swarms = 0\n\
                  trusted_sources = []\n";
    for mut daemon in daemons(limits) {
        let attacker = at(&daemon, ATTACKER);
        for _ in 0..400 {
            assert_eq!(attacker.announce(&leecher(random_hash(), 4_001)).peers, []);
        }
        let line = daemon.line(LIMIT_REACHED);
        assert!(
            line.contains("limits.source_peers ") && line.contains("trusted_sources"),
            "{line}"
        );
        eventually("the refused peers are counted", || {
            not_stored(&daemon, "source_peers") >= 200.0
        });
        // Shards update their gauges once a second.
        let stored = || daemon.metrics().sum("onrush_peers", &[]);
        eventually("the stored peers are counted", || stored() >= 150.0);
        assert!(stored() <= 200.0, "{}", stored());
        let hash = random_hash();
        honest(&daemon, 1).announce(&seeder(hash, 4_002));
        let reply = honest(&daemon, 2).announce(&leecher(hash, 4_003));
        assert_eq!((reply.counts(), reply.ports()), ((1, 1), vec![4_002]));
        daemon.stop();
    }
}

/// One address that announces many ports gets a part of the lists of a swarm. A reload that trusts
/// it exempts it.
#[test]
fn one_source_does_not_own_a_swarm() {
    let limits =
        |trusted: &str| format!("source_peers_per_swarm = 10\ntrusted_sources = [{trusted}]\n");
    for mut daemon in daemons(&limits("")) {
        let hash = random_hash();
        let client = honest(&daemon, 0);
        (0..20).for_each(|n| drop(honest(&daemon, n).announce(&leecher(hash, 4_000))));
        let attacker = at(&daemon, ATTACKER);
        let flood = |from: u16| {
            for port in from..from + 100 {
                let announce: Announce = if port % 2 == 0 { seeder } else { leecher }(hash, port);
                assert!(!attacker.announce(&announce).peers.is_empty(), "it gets a reply");
            }
        };
        flood(5_000);
        let reply = client.announce(&leecher(hash, 4_000));
        assert_eq!(reply.counts(), (5, 25), "its own peers are not counted beyond the limit");
        let hostile = reply.ports().iter().filter(|port| **port >= 5_000).count();
        assert_eq!((reply.ports().len(), hostile), (29, 10));
        eventually("the refused peers are counted", || {
            not_stored(&daemon, "source_peers_per_swarm") == 90.0
        });
        // Peers that are stored are served as before.
        attacker.announce(&seeder(hash, 5_001));
        assert_eq!(client.announce(&leecher(hash, 4_000)).counts(), (6, 24));

        let trusting = limits("\"127.9.0.0/16\"");
        daemon.configure(&format!("listen = [\"127.0.0.1:0\"]\n[limits]\n{trusting}"));
        daemon.signal("HUP");
        assert!(daemon.line(RELOADED).contains("limits.trusted_sources"));
        eventually("the source is trusted", || {
            flood(6_000);
            client.announce(&leecher(hash, 4_000)).counts().0 > 20
        });
        daemon.stop();
    }
}

/// Without configuration, clients on the host itself are not limited: load tests and proxies.
#[test]
fn the_host_itself_is_trusted_by_default() {
    for daemon in daemons("source_peers_per_swarm = 1\nsource_peers = 1\nsource_new_swarms = 1\n") {
        let client = at(&daemon, ATTACKER);
        let hash = random_hash();
        for port in 5_000..5_020 {
            client.announce(&leecher(hash, port));
            client.announce(&leecher(random_hash(), port));
        }
        assert_eq!(client.counts(hash).leechers, 20);
        daemon.stop();
    }
}
