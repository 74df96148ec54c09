//! Memory of peers is returned to the system when all peers have left, except for the minimum size
//! of the tables and what the allocator keeps: at least two thirds of it.

use std::time::Duration;

use onrush_proto::Event;

use crate::harness::{Client, Launch, eventually, hash, leecher, transaction};

/// Two per swarm.
const PEERS: u32 = 300_000;
/// Peers announced first, so that the daemon makes its one-time allocations.
const WARM_UP: u32 = 5_000;
/// Datagrams between two requests whose replies are awaited. Those of two bursts fit in the receive
/// buffer of the client: replies to connects are sent before those to earlier announces.
const BURST: u32 = 64;

#[test]
fn memory_is_returned_when_all_peers_have_left() {
    // jemalloc keeps some megabytes in caches of idle threads (docs/benchmarks/allocators.md);
    // these are disabled to measure the memory of the daemon's own data.
    let daemon = Launch::new(&["--listen", "127.0.0.1:0", "--workers", "1"])
        .environment("_RJEM_MALLOC_CONF", "tcache:false")
        .serve();
    let resident = || daemon.memory_kb("RssAnon");
    let mut client = daemon.client();
    announce(&mut client, WARM_UP, Event::Started);
    announce(&mut client, WARM_UP, Event::Stopped);
    let idle = resident();

    announce(&mut client, PEERS, Event::Started);
    let full = resident();
    announce(&mut client, PEERS, Event::Stopped);

    assert!(full > idle + 5 * 1024, "from {idle} kB to {full} kB: no memory to return");
    let enough = idle + (full - idle) / 3;
    // The allocator returns memory that is unused for ten seconds, in steps.
    eventually(&format!("at most {enough} kB of {full} kB are left"), || {
        // The client stays active meanwhile.
        client.connect();
        #[expect(
            clippy::disallowed_methods,
            reason = "an allocator returns memory without an event"
        )]
        std::thread::sleep(Duration::from_millis(100));
        resident() <= enough
    });
    println!("{idle} kB, {full} kB, {} kB", resident());
}

/// Announces the first `peers` peers with this event.
fn announce(client: &mut Client, peers: u32, event: Event) {
    for number in 0..peers {
        if number % BURST == 0 {
            client.connect();
        }
        let peer = leecher(hash(number / 2), 2 + (number % 2) as u16).event(event).want(0);
        client.send(&peer.bytes(client.id, transaction()));
    }
    client.connect();
}
