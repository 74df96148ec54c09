//! Samples of sources: a flood is found among honest clients, and samples begin and end by orders.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use onrush_net::Socket;
use onrush_net::memory::Endpoint;
use onrush_proto::{Connect, ConnectionId, InfoHash, TransactionId};
use onrush_testing::memory_tracker::{COLOCATED, SPLIT, TestTracker, announce, at, connect, send};
use onrush_tracker::gather::Gather;
use onrush_tracker::orders::Orders;
use onrush_tracker::source_sample::{Sampled, SampledSources};

const HONEST: u32 = 20_000;
const FLOODERS: u32 = 200;
/// Sources in the sample of a worker.
const SIZE: usize = 4_096;

fn orders(world: &TestTracker<Endpoint>) -> Orders {
    let workers = &world.workers;
    Orders::new(&workers[0].mailboxes, workers.len(), workers[0].owners.clone())
}

fn begin(orders: &Orders, kind: Sampled) -> Gather<SampledSources> {
    let mut seeds = 1..;
    orders.sample_sources(kind, SIZE, || seeds.next().unwrap()).unwrap()
}

fn connect_bytes() -> Vec<u8> {
    let mut bytes = [0; 16];
    Connect { transaction_id: TransactionId(1) }.write(&mut bytes);
    bytes.to_vec()
}

/// Honest clients all over the address space, then flooders in 198.51.100.0/24.
fn addresses() -> Vec<SocketAddr> {
    let honest = (0..HONEST).map(|n| Ipv4Addr::from(0x3C00_0000 + n * 997));
    let flooders = (0..FLOODERS).map(|n| Ipv4Addr::from(0xC633_6400 + n));
    honest.chain(flooders).map(|ip| SocketAddr::from((ip, 2_000))).collect()
}

/// Each honest client connects once, and after each connect a flooder sends a datagram.
fn flood(world: &mut TestTracker<Endpoint>, clients: &mut Endpoint, datagram: &[u8]) {
    let connect = connect_bytes();
    for client in 0..HONEST {
        send(clients, client as u16, &connect);
        send(clients, (HONEST + client % FLOODERS) as u16, datagram);
        if client % 32 == 31 {
            world.settle(at(1));
            while !clients.receive(64).unwrap().is_empty() {}
        }
    }
}

/// The share of each /24 over all workers.
fn shares(found: &[SampledSources]) -> HashMap<[u8; 3], f64> {
    let all: u64 = found.iter().map(|sample| sample.requests).sum();
    let mut shares = HashMap::new();
    for sample in found {
        let each = sample.requests as f64 / all as f64 / sample.sources.len() as f64;
        for ip in &sample.sources {
            let [a, b, c, _] = ip.to_ipv4_mapped().unwrap().octets();
            *shares.entry([a, b, c]).or_default() += each;
        }
    }
    shares
}

#[test]
fn a_flood_of_one_network_is_found_among_honest_clients() {
    let invalid = {
        let mut bytes = vec![0; 200];
        let len = announce(ConnectionId(1), InfoHash([1; 20])).write(&mut bytes);
        bytes.truncate(len);
        bytes
    };
    for placement in [SPLIT, COLOCATED] {
        for (kind, datagram, requests, expected) in [
            (Sampled::All, connect_bytes(), 2 * HONEST, 0.5),
            (Sampled::Connects, connect_bytes(), 2 * HONEST, 0.5),
            (Sampled::All, invalid.clone(), 2 * HONEST, 0.5),
            (Sampled::Refused, invalid.clone(), HONEST, 1.0),
        ] {
            let (mut world, mut clients) = TestTracker::with_clients(placement, &addresses());
            let orders = orders(&world);
            let mut found = begin(&orders, kind);
            flood(&mut world, &mut clients, &datagram);
            orders.end_samples().unwrap();
            world.settle(at(2));
            let found = found.poll().unwrap().expect("samples of all workers");
            let counted: u64 = found.iter().map(|sample| sample.requests).sum();
            assert_eq!(counted, u64::from(requests), "{placement} {kind:?}");
            let shares = shares(&found);
            let (first, share) = shares.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            assert_eq!(*first, [198, 51, 100], "{placement} {kind:?}");
            // 3.3 standard deviations of the smallest sample that can be.
            assert!((share - expected).abs() < 0.025, "{placement} {kind:?}: {share}");
            assert!(found.iter().all(|sample| sample.sources.len() <= SIZE));
        }
    }
}

#[test]
fn a_sample_ends_with_an_order_or_with_the_next_sample() {
    for placement in [SPLIT, COLOCATED] {
        let (mut world, mut clients) = TestTracker::with_clients(placement, &addresses()[..2]);
        let orders = orders(&world);
        let requests = |mut found: Gather<SampledSources>| {
            let found = found.poll().unwrap().expect("samples of all workers");
            found.iter().map(|sample| sample.requests).sum::<u64>()
        };
        connect(&mut world, &mut clients, 0, at(1));
        let first = begin(&orders, Sampled::All);
        connect(&mut world, &mut clients, 0, at(1));
        connect(&mut world, &mut clients, 1, at(1));
        let second = begin(&orders, Sampled::All);
        connect(&mut world, &mut clients, 1, at(1));
        assert_eq!(requests(first), 2, "{placement}");
        orders.end_samples().unwrap();
        connect(&mut world, &mut clients, 1, at(1));
        assert_eq!(requests(second), 1, "{placement}");
        // Without a sample, and without a requester.
        orders.end_samples().unwrap();
        drop(begin(&orders, Sampled::All));
        connect(&mut world, &mut clients, 0, at(1));
        orders.end_samples().unwrap();
        world.settle(at(2));
    }
}
