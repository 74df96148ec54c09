//! A pause of the web worker, as in an upgrade: what becomes of each connection.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use onrush_net::stream::memory::{Client, Conditions};
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::gather::Gather;
use onrush_tracker::member::MemberThread;

use onrush_testing::tls::client as tls_config;

use crate::tls::TlsClient;
use crate::world::{ANNOUNCE, CERTIFICATE, World, get, read_all, replies, source};

fn client(world: &World, number: u16) -> Client {
    world.connect(source("198.51.100.1", number))
}

/// A connection whose first request was answered.
fn kept(world: &mut World, number: u16) -> Client {
    let mut client = client(world, number);
    assert!(
        matches!(world.ask(&mut client, get(ANNOUNCE)), (replies, false) if replies.len() == 1)
    );
    client
}

/// Asserts that this many replies have arrived, of which the last one alone announces the end, and
/// that the connection has ended.
#[track_caller]
fn assert_ended(client: &mut Client, count: usize) {
    let (bytes, ended) = read_all(client);
    let closes: Vec<_> = replies(&bytes).iter().map(|reply| reply.closes).collect();
    let expected: Vec<_> = (1..=count).map(|number| number == count).collect();
    assert_eq!((closes, ended), (expected, true));
}

fn is_signalled(paused: &mut Gather<()>) -> bool {
    paused.poll().unwrap().is_some()
}

#[test]
fn idle_connections_are_closed_and_newcomers_wait() {
    let mut world = World::new("");
    let mut idle = [1, 2].map(|number| kept(&mut world, number));
    let mut paused = world.orders().pause_fronts().unwrap();
    let mut newcomer = client(&world, 3);
    newcomer.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    assert!(!is_signalled(&mut paused));
    world.settle();
    idle.iter_mut().for_each(|client| assert_eq!(read_all(client), (Vec::new(), true)));
    assert_eq!((world.closed(CloseCause::Stop), world.counters().open.get()), (2, 0));
    assert!(is_signalled(&mut paused));
    world.pass(3);
    let counters = world.counters();
    assert_eq!((counters.accepted.get(), counters.accept_queue.get()), (2, 1));
    assert_eq!(read_all(&mut newcomer), (Vec::new(), false));
    world.orders().resume().unwrap();
    world.settle();
    assert!(matches!(read_all(&mut newcomer), (reply, false) if replies(&reply).len() == 1));
    assert!(!replies_close(&mut world, &mut newcomer));
    world.check();
}

/// Whether the reply to a further request ends the connection.
fn replies_close(world: &mut World, client: &mut Client) -> bool {
    let (replies, ended) = world.ask(client, get("/health"));
    assert_eq!(replies[0].closes, ended);
    ended
}

/// Whose requests have arrived, in part or whole, however far the worker is with them.
#[test]
fn begun_requests_are_answered_and_end_their_connections() {
    let conditions = Conditions { capacity: 400, ..Conditions::default() };
    let mut world = World::with(1, "", conditions);
    let (begin, rest) = (&get(ANNOUNCE)[..40], &get(ANNOUNCE)[40..]);
    // On a kept connection, without a turn that could have read it.
    let mut unread = kept(&mut world, 1);
    let mut in_part = kept(&mut world, 2);
    in_part.write_all(begin.as_bytes()).unwrap();
    let mut in_flight = client(&world, 3);
    in_flight.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    let mut silent = client(&world, 4);
    // Its replies wait to be sent.
    let mut slow = client(&world, 5);
    slow.write_all(get("/health").repeat(10).as_bytes()).unwrap();
    world.web.turn(world.now()).unwrap();
    assert_eq!(world.counters().accepted.get(), 5);
    // Events of the last wait are taken first, and it is not among them.
    world.web.wait(Duration::ZERO).unwrap();
    unread.write_all(get("/health").as_bytes()).unwrap();
    let mut paused = world.orders().pause_fronts().unwrap();
    world.settle();
    assert_ended(&mut unread, 1);
    assert_ended(&mut in_flight, 1);
    let mut received = Vec::new();
    while !is_ended(&mut slow, &mut received) {
        world.settle();
    }
    let closes: Vec<_> = replies(&received).iter().map(|reply| reply.closes).collect();
    assert_eq!(closes, [[false; 9].as_slice(), &[true]].concat());
    // The clients close, too, or the time is over in which input is discarded.
    drop((unread, in_flight, slow));
    world.settle();
    assert!(!is_signalled(&mut paused));
    // A client whose first request has not arrived counts as one that has begun.
    in_part.write_all(rest.as_bytes()).unwrap();
    silent.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    world.settle();
    assert_ended(&mut in_part, 1);
    assert_ended(&mut silent, 1);
    drop((in_part, silent));
    world.settle();
    assert!(is_signalled(&mut paused), "whatever lingers");
    world.pass(2);
    assert_eq!(world.closed(CloseCause::Served), 5);
    world.check();
}

/// A handshake and a part of a record are begun requests, too.
#[test]
fn begun_requests_over_tls_are_answered_and_end_their_connections() {
    let mut world = World::new("");
    let config = tls_config(&[&CERTIFICATE]);
    let [mut idle, mut in_part, mut in_flight, mut broken] = [(); 4].map(|()| {
        let mut client = TlsClient::new(world.connect_tls(source("198.51.100.1", 1)), &config);
        client.write(get("/health"));
        client.settle(&mut world);
        assert_eq!(client.replies().len(), 1);
        client
    });
    let mut shaking = TlsClient::new(world.connect_tls(source("198.51.100.1", 2)), &config);
    shaking.write(get(ANNOUNCE));
    assert!(shaking.send(usize::MAX));
    in_part.write(get(ANNOUNCE));
    assert!(in_part.send(10));
    for client in [&mut in_flight, &mut broken] {
        client.write(get(ANNOUNCE));
        assert!(client.send(usize::MAX));
    }
    // Without turns of the shards.
    world.web.turn(world.now()).unwrap();
    broken.client.write_all(b"\x17\x03\x03\0\x14aaaaaaaaaaaaaaaaaaaa").unwrap();
    let mut paused = world.orders().pause_fronts().unwrap();
    world.settle();
    assert_eq!((world.closed(CloseCause::Stop), world.closed(CloseCause::TlsError)), (1, 1));
    assert_eq!(world.counters().abandoned.get(), 1);
    assert!(!is_signalled(&mut paused));
    for client in [&mut in_flight, &mut in_part, &mut shaking] {
        client.settle(&mut world);
        let replies = client.replies();
        assert!(replies.len() == 1 && replies[0].closes, "{replies:?}");
    }
    idle.settle(&mut world);
    assert_eq!(idle.replies().len(), 0);
    world.pass(2);
    assert!(is_signalled(&mut paused));
    assert_eq!((world.closed(CloseCause::Served), world.counters().https_open.get()), (3, 0));
    world.check();
}

/// Reads; whether the connection has ended.
fn is_ended(client: &mut Client, received: &mut Vec<u8>) -> bool {
    let (bytes, ended) = read_all(client);
    received.extend(bytes);
    ended
}

/// Requests that wait in the kernel and for batches.
#[test]
fn pipelined_requests_are_all_answered() {
    const COUNT: usize = 1_000;
    let conditions = Conditions { capacity: 1 << 20, ..Conditions::default() };
    let mut world = World::with(1, "[limits]\nbatches_in_flight = 6\n", conditions);
    let mut clients = [1, 2, 3].map(|number| client(&world, number));
    for client in &mut clients {
        client.write_all(get(ANNOUNCE).repeat(COUNT).as_bytes()).unwrap();
    }
    for _ in 0..5 {
        world.turn();
    }
    // In flight or waiting for a batch.
    world.web.turn(world.now()).unwrap();
    let mut paused = world.orders().pause_fronts().unwrap();
    world.settle();
    clients.iter_mut().for_each(|client| assert_ended(client, COUNT));
    drop(clients);
    world.settle();
    assert!(is_signalled(&mut paused));
    world.check();
}

#[test]
fn a_slow_sender_delays_the_signal_and_continues_after_a_resume() {
    let mut world = World::new("");
    let mut slow = client(&world, 1);
    let (begin, rest) = (&get(ANNOUNCE)[..40], &get(ANNOUNCE)[40..]);
    slow.write_all(begin.as_bytes()).unwrap();
    world.settle();
    let mut paused = world.orders().pause_fronts().unwrap();
    world.pass(5);
    assert!(!is_signalled(&mut paused));
    world.orders().resume().unwrap();
    assert!(matches!(world.ask(&mut slow, rest), (replies, false) if !replies[0].closes));
    assert!(paused.poll().is_err(), "the pause has ended without a signal");
    world.check();
}

#[test]
fn connections_that_wait_at_dropped_addresses_are_served() {
    let mut world = World::new("");
    let mut paused = world.orders().pause_fronts().unwrap();
    world.settle();
    assert!(is_signalled(&mut paused));
    let mut waiting = [1, 2].map(|number| client(&world, number));
    for client in &mut waiting {
        client.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    }
    let other = [source("192.0.2.1", 9)];
    let mut drained = world.orders().drain_fronts(&Arc::from(other)).unwrap();
    world.settle();
    assert!(is_signalled(&mut drained) && world.counters().accepted.get() == 0);
    let own = [world.address];
    let mut drained = world.orders().drain_fronts(&Arc::from(own)).unwrap();
    world.settle();
    waiting.iter_mut().for_each(|client| assert_ended(client, 1));
    drop(waiting);
    world.settle();
    assert!(is_signalled(&mut drained));
    // From then on nothing is accepted.
    let _newcomer = client(&world, 3);
    world.settle();
    assert_eq!(world.counters().accepted.get(), 2);
    world.check();
}
