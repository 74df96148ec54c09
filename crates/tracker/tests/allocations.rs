//! No allocation per request: once a tracker has stored its peers, traffic allocates no memory.

use std::net::SocketAddr;

use onrush_net::memory::Endpoint;
use onrush_net::{Reply, Return, Socket};
use onrush_proto::options::Options as Bep41;
use onrush_proto::{Announce, Connect, ConnectionId, InfoHash, PeerId, Scrape, TransactionId};
use onrush_testing::memory_tracker::{
    COLOCATED, SPLIT, TRACKER_V4, TestTracker, announce, at, connect,
};
use onrush_tracker::orders::Orders;
use onrush_tracker::source_sample::Sampled;

const CLIENTS: u8 = 100;
const SWARMS: u8 = 40;

/// The requests of one client per round, encoded in advance so that only the tracker's allocations
/// are counted.
fn packets(client: u8, connection_id: ConnectionId) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut bytes = [0; 2048];
    Connect { transaction_id: TransactionId(1) }.write(bytes.first_chunk_mut().unwrap());
    packets.push(bytes[..16].to_vec());
    for swarm in 0..SWARMS {
        let announce = Announce {
            transaction_id: TransactionId(u32::from(swarm)),
            peer_id: PeerId([client; 20]),
            // With every other announce the peer changes between seeder and leecher.
            left: u64::from(swarm % 2),
            // Some announces have port 0 and get an error reply.
            port: if swarm == 13 { 0 } else { 6881 },
            options: Bep41(&[2, 1, b'/']),
            ..announce(connection_id, InfoHash([swarm; 20]))
        };
        let len = announce.write(&mut bytes);
        packets.push(bytes[..len].to_vec());
    }
    let hashes: Vec<_> = (0..60).map(|n| InfoHash([n; 20])).collect();
    let len = Scrape::write(connection_id, TransactionId(9), &hashes, &mut bytes);
    packets.push(bytes[..len].to_vec());
    packets.push(b"no request at all".to_vec());
    packets
}

/// Sends all requests of every client, runs the tracker, and counts the replies.
fn round(
    world: &mut TestTracker<Endpoint>,
    clients: &mut Endpoint,
    packets: &[Vec<Vec<u8>>],
) -> usize {
    let tracker: SocketAddr = TRACKER_V4.parse().unwrap();
    let mut replies = 0;
    for (client, packets) in packets.iter().enumerate() {
        let to = Return::to(tracker, client as u16);
        clients.send(packets.iter().map(|packet| Reply { bytes: packet, to: &to }));
        world.settle(at(10));
        loop {
            let received = clients.receive(128).unwrap().len();
            replies += received;
            if received == 0 {
                break;
            }
        }
    }
    replies
}

fn steady_state_allocates_nothing(placement: &str) {
    let addresses: Vec<SocketAddr> =
        (1..=CLIENTS).map(|n| format!("198.51.100.{n}:3000").parse().unwrap()).collect();
    let (mut world, mut clients) = TestTracker::with_clients(placement, &addresses);
    let packets: Vec<_> = (0..CLIENTS)
        .map(|client| packets(client, connect(&mut world, &mut clients, client.into(), at(10))))
        .collect();
    for _ in 0..3 {
        round(&mut world, &mut clients, &packets);
    }
    let mut replies = 0;
    let counted = allocation_counter::measure(|| {
        replies = round(&mut world, &mut clients, &packets);
    });
    let expected = usize::from(CLIENTS) * (packets[0].len() - 1);
    assert_eq!(replies, expected, "all requests except junk get replies");
    assert_eq!(counted.count_total, 0, "{expected} replies allocated {counted:?}");

    // A sample of sources is allocated by the thread that asks for it.
    let (workers, owners) = (world.workers.len(), world.workers[0].owners.clone());
    let orders = Orders::new(&world.workers[0].mailboxes, workers, owners);
    let mut found = orders.sample_sources(Sampled::All, 1_000, || 1).unwrap();
    world.settle(at(10));
    let counted = allocation_counter::measure(|| {
        round(&mut world, &mut clients, &packets);
    });
    orders.end_samples().unwrap();
    world.settle(at(10));
    assert_eq!(found.poll().unwrap().map(|found| found.len()), Some(workers));
    assert_eq!(counted.count_total, 0, "samples of sources allocated {counted:?}");
}

#[test]
fn split_allocates_nothing_per_request() {
    steady_state_allocates_nothing(SPLIT);
}

#[test]
fn colocated_allocates_nothing_per_request() {
    steady_state_allocates_nothing(COLOCATED);
}

#[test]
fn the_allocation_counter_works() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(counted.count_total, 1);
}
