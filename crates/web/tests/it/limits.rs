//! Limits: of connections, of one source, of memory, of batches.

use std::io::Write;

use onrush_net::stream::memory::Client;
use onrush_tracker::close_cause::CloseCause;

use crate::world::{ANNOUNCE, HASH, World, get, read_all, replies, source};

#[test]
fn a_source_has_its_share_of_connections() {
    let mut world = World::new("connections_per_source = 2\n");
    let of_v6: Vec<_> =
        (1..=3).map(|n| world.connect(source(&format!("2001:4860::{n}"), 1))).collect();
    let mut of_v4: Vec<_> = (1..=3).map(|n| world.connect(source("198.51.100.1", n))).collect();
    let other = world.connect(source("2001:4860:0:1::1", 1));
    world.settle();
    assert_eq!((world.closed(CloseCause::SourceLimit), world.counters().open.get()), (2, 5));
    drop((of_v6, of_v4.remove(0), other));
    world.settle();
    let again = world.connect(source("198.51.100.1", 9));
    world.settle();
    assert_eq!(world.closed(CloseCause::SourceLimit), 2, "a place has become free");
    drop(again);
    world.check();
}

#[test]
fn at_the_limit_the_longest_idle_is_closed_and_then_newcomers_are() {
    let mut world = World::new("connections = 3\n");
    let mut clients: Vec<_> = (1..=3).map(|n| world.connect(source("198.51.100.1", n))).collect();
    for client in [2, 0, 1] {
        clients[client].write_all(get(ANNOUNCE).as_bytes()).unwrap();
        world.pass(1);
    }
    // Not the oldest one, but the one whose last request is the oldest.
    let mut newcomer = world.connect(source("198.51.100.1", 4));
    world.settle();
    assert_eq!(world.closed(CloseCause::Replaced), 1);
    assert!(read_all(&mut clients[2]).1 && !read_all(&mut clients[0]).1);
    // One whose next request has begun to arrive is not idle any more.
    clients[0].write_all(b"GET").unwrap();
    // Nor are those that wait for the head of their first request.
    let waiting = world.connect(source("198.51.100.1", 5));
    world.settle();
    let mut refused = world.connect(source("198.51.100.1", 7));
    world.settle();
    assert_eq!((world.closed(CloseCause::Replaced), world.closed(CloseCause::Full)), (2, 1));
    assert_eq!(read_all(&mut refused), (Vec::new(), true));
    assert!(!read_all(&mut newcomer).1);
    drop(waiting);
    world.settle();
    world.check();
}

/// A connection whose reply is read, and whose client does not close it.
fn lingering(world: &mut World, port: u16) -> Client {
    let mut client = world.connect(source("198.51.100.1", port));
    let (replies, end) = world.ask(&mut client, format!("GET {ANNOUNCE} HTTP/1.0\r\n\r\n"));
    assert!(end && replies.len() == 1);
    client
}

#[test]
fn what_lingers_is_no_connection_of_its_source_and_is_closed_first() {
    let mut world = World::new("connections = 3\nconnections_per_source = 1\n");
    let mut idle = world.connect(source("198.51.100.2", 1));
    idle.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    world.settle();
    let mut clients: Vec<_> = (1..=2).map(|port| lingering(&mut world, port)).collect();
    assert_eq!((world.closed(CloseCause::Served), world.counters().open.get()), (0, 3));
    // The place of the first one is taken.
    clients.push(lingering(&mut world, 3));
    assert_eq!((world.closed(CloseCause::Served), world.counters().open.get()), (1, 3));
    assert!(!read_all(&mut idle).1);
    // Input after the last reply resets nothing, for a second.
    clients[2].write_all(&[0; 4096]).unwrap();
    world.pass(1);
    assert_eq!(world.closed(CloseCause::Served), 1);
    world.pass(1);
    assert_eq!((world.closed(CloseCause::Served), world.counters().open.get()), (3, 1));
    world.check();
}

#[test]
fn partial_requests_stay_within_the_memory_for_buffers() {
    let config = "buffer_memory = 1_048_576\nconnections_per_source = 1000\n";
    let mut world = World::new(config);
    let part = format!("GET /{} HTTP/1.1\r\n", "a".repeat(8_000));
    let mut clients: Vec<_> = (1..=500)
        .map(|port| {
            let mut client = world.connect(source("198.51.100.1", port));
            client.write_all(part.as_bytes()).unwrap();
            if port % 100 == 0 {
                world.pass(1);
            }
            world.settle();
            let buffered = world.counters().buffered_bytes.get();
            assert!(buffered <= 1 << 20, "{buffered} bytes are buffered");
            client
        })
        .collect();
    let closed = world.closed(CloseCause::Memory);
    assert!((365..400).contains(&closed), "{closed} are closed");
    // Those that have waited longest.
    let open = clients.iter_mut().map(|client| !read_all(client).1);
    let open: Vec<_> = open.enumerate().filter(|(_, open)| *open).map(|(at, _)| at).collect();
    assert!(open[0] >= 299 && open.ends_with(&(400..500).collect::<Vec<_>>()), "{open:?}");
    // A request that arrives at once needs no memory.
    let mut honest = world.connect(source("198.51.100.2", 1));
    assert_eq!(world.ask(&mut honest, get(ANNOUNCE)).0.len(), 1);
    drop(clients);
    world.settle();
    assert_eq!(world.counters().buffered_bytes.get(), 0);
    world.check();
}

/// A tracker whose shards have few batches, and clients that ask at once.
fn starved() -> (World, Vec<Client>) {
    let mut world = World::new("[limits]\nbatches_in_flight = 6\nbatch_requests = 2\n");
    let clients = ask_at_once(&mut world);
    (world, clients)
}

/// Ten clients that announce in one swarm and ten in others, all in the same turns of the web
/// worker, while the shards' workers take none.
fn ask_at_once(world: &mut World) -> Vec<Client> {
    let clients = (0..20)
        .map(|number| {
            let hash = if number < 10 { HASH.to_owned() } else { format!("{number:020}") };
            let target = ANNOUNCE.replace(HASH, &hash);
            let mut client = world.connect(source("198.51.100.1", number));
            client.write_all(get(&target).as_bytes()).unwrap();
            client
        })
        .collect();
    world.turn_first();
    clients
}

/// Which clients have got a reply since the last call.
fn answered(clients: &mut [Client]) -> Vec<usize> {
    let mut answered = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let (bytes, ended) = read_all(client);
        assert!(!ended);
        answered.extend(replies(&bytes).iter().map(|_| number));
    }
    answered
}

#[test]
fn announces_without_a_batch_wait_and_are_served_in_their_order() {
    let (mut world, mut clients) = starved();
    let begun = world.metrics.incoming.v4.announces.get();
    assert!((4..20).contains(&begun), "{begun} have a batch, the others wait");
    assert!(answered(&mut clients).is_empty());
    let mut order = Vec::new();
    for _ in 0..20 {
        world.turn();
        order.extend(answered(&mut clients));
    }
    let in_swarm =
        |order: &[usize]| order.iter().filter(|it| **it < 10).copied().collect::<Vec<_>>();
    assert!(in_swarm(&order).is_sorted(), "{order:?}");
    let mut all = order.clone();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..20), "each is served once: {order:?}");
    assert_eq!(world.refused("busy"), 0);
    world.check();
}

#[test]
fn an_announce_without_a_batch_is_refused_after_two_seconds() {
    let (mut world, mut clients) = starved();
    let begun = world.metrics.incoming.v4.announces.get();
    world.second_of_first();
    world.second_of_first();
    assert!(answered(&mut clients).is_empty());
    world.second_of_first();
    assert_eq!(answered(&mut clients).len() as u64, 20 - begun);
    assert_eq!(world.refused("busy"), 20 - begun);
    world.settle();
    assert_eq!(answered(&mut clients).len() as u64, begun, "those that had a batch");
    world.check();
}

#[test]
fn for_memory_slow_clients_are_closed_before_those_that_wait_for_a_batch() {
    let mut world = World::new(
        "buffer_memory = 1_048_576\nconnections_per_source = 1000\n\
         [limits]\nbatches_in_flight = 6\nbatch_requests = 2\n",
    );
    let mut clients = ask_at_once(&mut world);
    let part = format!("GET /{} HTTP/1.1\r\n", "a".repeat(8_000));
    let slow: Vec<_> = (1..=200)
        .map(|port| {
            let mut client = world.connect(source("198.51.100.2", port));
            client.write_all(part.as_bytes()).unwrap();
            client
        })
        .collect();
    world.turn_first();
    world.settle();
    assert_eq!(answered(&mut clients).len(), 20);
    let closed = world.closed(CloseCause::Memory);
    assert!((68..100).contains(&closed), "{closed} are closed");
    drop(slow);
    world.settle();
    world.check();
}

#[test]
fn a_scrape_without_a_batch_is_refused_at_once() {
    let (mut world, _clients) = starved();
    let mut client = world.connect(source("198.51.100.2", 1));
    write!(client, "GET /scrape?info_hash={HASH} HTTP/1.1\r\n\r\n").unwrap();
    world.turn_first();
    let reply = &replies(&read_all(&mut client).0)[0];
    assert!(reply.body.ends_with(b"8:retry ini5ee"), "{reply:?}");
    assert_eq!(world.refused("busy"), 1);
    world.settle();
    world.check();
}
