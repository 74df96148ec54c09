//! Under more load than there is room for: what is dropped leads to longer intervals and to connects of new sources
//! that are not answered, and whoever has proven himself goes on being served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use onrush_proto::{Connect, TransactionId, connect};

use crate::client::{Client, fresh_hash, leecher};
use crate::process::{Launch, PATIENCE};

/// Sources that a flood comes from.
const SOURCES: u8 = 64;

#[test]
fn a_flood_lengthens_the_interval_and_sheds_new_sources() {
    let config = "listen = [\"127.0.0.1:0\"]\n\
                  [socket]\nreceive_buffer = 4096\n\
                  [announce]\ninterval_jitter_percent = 0\n\
                  [overload]\ndrop_share = 1\nlongest_interval = 3600\n\
                  [log]\ntotals_every = 1\n";
    let mut daemon = Launch::new(&["--workers", "1"]).config(config).start();
    let tracker = daemon.serving()[0];
    let mut client = Client::new(tracker);
    client.connect();
    let hash = fresh_hash();
    assert_eq!(client.interval(hash, leecher(4_001)), 1800);

    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for part in 0..2 {
            let over = &over;
            scope.spawn(move || flood(tracker, part, over));
        }
        daemon.line("overload: ");
        daemon.line("shed ");
        over.store(true, Ordering::Relaxed);
    });
    // Half a minute passes until anything becomes easier again.
    assert!(client.interval(hash, leecher(4_001)) > 1800);
    for _ in 0..20 {
        client.connect();
    }
    daemon.stop();
}

/// Connects of many sources, faster than they can be answered.
fn flood(tracker: SocketAddr, part: u8, over: &AtomicBool) {
    let source = |number: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 1 + part, 1 + number));
    let clients: Vec<Client> = (0..SOURCES).map(|n| Client::at(source(n), tracker)).collect();
    let mut bytes = [0; connect::REQUEST_LEN];
    Connect { transaction_id: TransactionId(1) }.write(&mut bytes);
    // It ends by itself where the test has failed.
    let deadline = Instant::now() + 2 * PATIENCE;
    while !over.load(Ordering::Relaxed) && Instant::now() < deadline {
        clients.iter().for_each(|client| client.send(&bytes));
    }
}
