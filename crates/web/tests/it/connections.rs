//! How connections are kept, pipelined and ended.

use std::io::Write;

use onrush_net::stream::memory::Conditions;
use onrush_tracker::close_cause::CloseCause;

use crate::world::{ANNOUNCE, World, get, read_all, replies, source};

#[test]
fn connections_are_kept_by_version_and_field() {
    let mut world = World::new("");
    for (line, ended) in [
        ("HTTP/1.1\r\n", false),
        ("HTTP/1.1\r\nConnection: close\r\n", true),
        ("HTTP/1.0\r\n", true),
        ("HTTP/1.0\r\nConnection: keep-alive\r\n", false),
    ] {
        let (reply, is_ended) = world.exchange(&format!("GET {ANNOUNCE} {line}\r\n"));
        assert_eq!(is_ended, ended, "{line}");
        assert_eq!(reply.contains("\r\nConnection: close\r\n"), ended, "{reply}");
        let is_kept_1_0 = line.contains("keep-alive");
        assert_eq!(reply.contains("\r\nConnection: keep-alive\r\n"), is_kept_1_0, "{reply}");
    }
}

#[test]
fn a_client_that_pipelines_leaves_turns_to_others() {
    let conditions = Conditions { repeats: 1.0, capacity: 1 << 20, ..Conditions::default() };
    let mut world = World::with(1, "", conditions);
    let mut busy = world.connect(source("198.51.100.1", 1));
    let mut received = Vec::new();
    for _ in 0..50 {
        busy.write_all(get("/health").repeat(100).as_bytes()).unwrap();
        let before = world.counters().answered.get();
        world.turn();
        let answered = world.counters().answered.get() - before;
        assert!(answered <= 32, "{answered} requests of one connection in a turn");
        received.extend(read_all(&mut busy).0);
    }
    let mut other = world.connect(source("198.51.100.2", 1));
    other.write_all(get("/health").as_bytes()).unwrap();
    world.turn();
    assert_eq!(replies(&read_all(&mut other).0).len(), 1);
    world.settle();
    received.extend(read_all(&mut busy).0);
    assert_eq!(replies(&received).len(), 5_000);
}

#[test]
fn slow_heads_and_idle_connections_time_out() {
    let mut world = World::new("timeout = 10\nkeep_alive = 15\n");
    let mut silent = world.connect(source("198.51.100.1", 1));
    let mut slow = world.connect(source("198.51.100.1", 2));
    let mut kept = world.connect(source("198.51.100.1", 3));
    kept.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    world.settle();
    for second in 0..10 {
        slow.write_all(&get(ANNOUNCE).as_bytes()[second..=second]).unwrap();
        world.pass(1);
    }
    assert_eq!(world.counters().open.get(), 3, "the time-out is not over");
    world.pass(1);
    assert_eq!((world.counters().open.get(), world.closed(CloseCause::Timeout)), (1, 2));
    assert!(read_all(&mut silent).1 && read_all(&mut slow).1);
    world.pass(5);
    assert_eq!((world.counters().open.get(), world.closed(CloseCause::Idle)), (0, 1));
    assert_eq!(replies(&read_all(&mut kept).0).len(), 1);
    world.check();
}

#[test]
fn a_client_that_does_not_read_is_closed_and_its_requests_wait() {
    let mut world = World::with(1, "", Conditions { capacity: 300, ..Conditions::default() });
    let mut client = world.connect(source("198.51.100.1", 1));
    let request = get("/health");
    for _ in 0..20 {
        // The tracker stops reading when its replies are not read.
        let _ = client.write(request.as_bytes());
        world.settle();
    }
    let buffered = world.counters().buffered_bytes.get();
    assert!((1..1_000).contains(&buffered), "{buffered} bytes are buffered");
    world.pass(11);
    assert_eq!(world.closed(CloseCause::Timeout), 1);
    assert_eq!(world.counters().buffered_bytes.get(), 0);
    world.check();
}

#[test]
fn a_reset_closes_the_connection_and_abandons_its_request() {
    let mut world = World::new("");
    let mut client = world.connect(source("198.51.100.1", 1));
    client.write_all(get(ANNOUNCE).as_bytes()).unwrap();
    world.web.turn(world.now()).unwrap();
    client.reset();
    world.settle();
    assert_eq!((world.closed(CloseCause::Reset), world.counters().open.get()), (1, 0));
    world.check();
}
