//! Steering by info hash: announces and scrapes arrive at the worker that owns their shard.
//! Requests that arrive elsewhere travel over lanes, with the same replies.

use crate::harness::{Client, Launch};

/// Clients, each of which announces to swarms of its own and scrapes them.
const CLIENTS: usize = 100;
const SWARMS: usize = 10;

/// The share of requests that used a lane, of clients that check their replies.
fn share_over_lanes(listen: &str, steering: bool) -> f64 {
    let config = format!(
        "[workers]\nplacement = \"colocated\"\ntotal = 4\n[socket]\nsteering = {steering}\n"
    );
    let daemon = Launch::new(&["--listen", listen]).admin().config(&config).serve();
    for _ in 0..CLIENTS {
        let client = Client::new(daemon.address()).connected();
        (0..SWARMS).for_each(|_| client.check_swarm());
    }
    assert_eq!(daemon.metrics().sum("onrush_refused_requests_total", &[]), 0.0);
    let totals = daemon.get("/stats.json").json()["totals"].take();
    let [foreign, local] = ["foreign", "local"].map(|name| totals[name].as_f64().unwrap());
    assert!(foreign + local >= (3 * CLIENTS * SWARMS) as f64, "{totals:#}");
    daemon.stop();
    foreign / (foreign + local)
}

/// Without steering one request in four is local by chance.
#[test]
fn over_95_percent_reach_their_shard_without_a_lane() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        for (steering, expected) in [(true, 0.0..0.05), (false, 0.6..0.9)] {
            let share = share_over_lanes(listen, steering);
            assert!(expected.contains(&share), "{listen} {steering}: {share}");
        }
    }
}
