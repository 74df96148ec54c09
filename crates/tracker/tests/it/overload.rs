//! A shard's worker that does not keep up: requests are dropped and counted, no batch is lost, and
//! the tracker recovers once the worker runs again.

use std::net::SocketAddr;

use onrush_net::memory::Endpoint;
use onrush_net::{Reply, Return, Socket};
use onrush_proto::{Announce, ConnectionId, InfoHash, Scrape, TransactionId};
use onrush_testing::memory_tracker::{TRACKER_V4, TestTracker, announce, at, connect};
use onrush_tracker::refusal::Refusal;

const CLIENT: &str = "198.51.100.1:3000";
const BATCH: usize = 16;
const REQUESTS: usize = 40 * BATCH;

fn world(limits: &str) -> (TestTracker<Endpoint>, Endpoint) {
    let text = format!(
        "[workers]\nplacement = \"split\"\nsocket = 1\nswarm = 1\n\
         [socket]\nbatch = {BATCH}\n[limits]\n{limits}\n"
    );
    TestTracker::with_clients(&text, &[CLIENT.parse().unwrap()])
}

fn send(client: &mut Endpoint, packets: &[Vec<u8>]) {
    let tracker: SocketAddr = TRACKER_V4.parse().unwrap();
    let to = Return::to(tracker, 0);
    client.send(packets.iter().map(|packet| Reply { bytes: packet, to: &to }));
}

fn read(client: &mut Endpoint) -> usize {
    std::iter::from_fn(|| Some(client.receive(64).unwrap().len()).filter(|n| *n > 0)).sum()
}

/// Repeats of three announces and a scrape.
fn packets(connection_id: ConnectionId) -> Vec<Vec<u8>> {
    let packet = |n: usize| {
        let mut bytes = [0; 2048];
        let transaction_id = TransactionId(n as u32);
        let info_hash = InfoHash([n as u8; 20]);
        let len = if n % 4 == 3 {
            Scrape::write(connection_id, transaction_id, &[info_hash; 5], &mut bytes)
        } else {
            Announce { transaction_id, ..announce(connection_id, info_hash) }.write(&mut bytes)
        };
        bytes[..len].to_vec()
    };
    (0..REQUESTS).map(packet).collect()
}

/// Sends all requests while the swarm worker is stalled, then lets it run. Returns the number of
/// replies and of requests refused as busy.
fn overrun(limits: &str) -> (usize, usize, TestTracker<Endpoint>) {
    let (mut world, mut client) = world(limits);
    let packets = packets(connect(&mut world, &mut client, 0, at(1)));
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.workers[0].turn(at(1)).unwrap();
    }
    assert_eq!(read(&mut client), 0, "the swarm worker is stalled");
    world.settle(at(1));
    let answered = read(&mut client);
    let busy = world.summary().refused_for(Refusal::Busy) as usize;
    // All batches are free again: the same requests, sent one batch at a time, all get replies.
    for batch in packets.chunks(BATCH) {
        send(&mut client, batch);
        world.settle(at(2));
        assert_eq!(read(&mut client), batch.len());
    }
    assert_eq!(world.summary().refused_for(Refusal::Busy) as usize, busy);
    (answered, busy, world)
}

#[test]
fn a_paused_worker_loses_no_replies() {
    let (answered, busy, _) = overrun("batches_in_flight = 32");
    assert_eq!((answered, busy), (REQUESTS, 0));
}

#[test]
fn requests_beyond_the_share_of_batches_are_counted_as_busy() {
    let (answered, busy, world) = overrun("batches_in_flight = 2");
    assert_eq!(answered + busy, REQUESTS, "each request gets a reply or is counted");
    assert_eq!(answered, 2 * BATCH);
    assert_eq!(world.summary().lane_full, 0, "a lane holds the shares of all workers");
}

#[test]
fn scrapes_beyond_the_table_are_counted_as_busy() {
    let (answered, busy, _) = overrun("batches_in_flight = 64\nscrapes_in_flight = 5");
    assert_eq!((answered, busy), (REQUESTS / 4 * 3 + 5, REQUESTS / 4 - 5));
}

/// Requests that arrive one by one are the case in which small messages would fill a lane.
#[test]
fn a_thousand_single_requests_wait_for_a_paused_worker() {
    let (mut world, mut client) = world("batches_in_flight = 32");
    let packets = packets(connect(&mut world, &mut client, 0, at(1)));
    for packet in packets.iter().cycle().take(1_000) {
        send(&mut client, std::slice::from_ref(packet));
        world.workers[0].turn(at(1)).unwrap();
    }
    world.settle(at(1));
    assert_eq!(read(&mut client), 1_000);
    assert_eq!(world.summary().refused_for(Refusal::Busy), 0);
}

/// Scrapes with many hashes have their own limit: a receive batch full of them gets all replies.
#[test]
fn a_batch_of_the_longest_scrapes_gets_all_replies() {
    let text = "[workers]\nplacement = \"colocated\"\ntotal = 1\n";
    let (mut world, mut client) = TestTracker::with_clients(text, &[CLIENT.parse().unwrap()]);
    let id = connect(&mut world, &mut client, 0, at(1));
    let hashes: Vec<_> = (0..74).map(|n| InfoHash([n; 20])).collect();
    let packets: Vec<_> = (0..128)
        .map(|n| {
            let mut bytes = [0; 2048];
            let len = Scrape::write(id, TransactionId(n), &hashes, &mut bytes);
            bytes[..len].to_vec()
        })
        .collect();
    send(&mut client, &packets);
    world.settle(at(1));
    assert_eq!(read(&mut client), 128);
}
