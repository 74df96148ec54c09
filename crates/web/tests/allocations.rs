//! No allocation per plain request: once connections are open and peers are stored, announces and
//! scrapes over HTTP allocate no memory.

#[path = "it/world.rs"]
#[allow(dead_code, reason = "this program uses a part")]
mod world;

use std::io::{Read, Write};

use onrush_net::stream::memory::Client;
use world::{ANNOUNCE, HASH, World, source};

const CLIENTS: u16 = 20;
const ROUNDS: usize = 50;

/// Each client sends a request and reads the reply. Returns how many bytes were read.
fn round(world: &mut World, clients: &mut [Client], request: &[u8]) -> usize {
    clients.iter_mut().for_each(|client| client.write_all(request).unwrap());
    world.settle();
    let mut buffer = [0; 4096];
    clients.iter_mut().map(|client| client.read(&mut buffer).unwrap()).sum()
}

#[test]
fn plain_requests_allocate_nothing() {
    let mut world = World::new("");
    let mut clients: Vec<_> =
        (1..=CLIENTS).map(|port| world.connect(source("198.51.100.1", port))).collect();
    for target in [
        ANNOUNCE,
        &ANNOUNCE.replace("left=1", "left=0"),
        &format!("{ANNOUNCE}&event=stopped"),
        &ANNOUNCE.replace("6881", "0"),
        &format!("/scrape?info_hash={HASH}"),
        "/health",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n").into_bytes();
        for _ in 0..3 {
            round(&mut world, &mut clients, &request);
        }
        let before = world.counters().requests.get();
        let counted = allocation_counter::measure(|| {
            for _ in 0..ROUNDS {
                assert!(round(&mut world, &mut clients, &request) > 0);
            }
        });
        let requests = world.counters().requests.get() - before;
        assert_eq!((requests, counted.count_total), (1_000, 0), "{target}: {counted:?}");
    }
    world.check();
}
