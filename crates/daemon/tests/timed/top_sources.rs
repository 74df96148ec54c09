//! `onrush ctl top-sources` in a flood: how soon it answers, and how accurate the shares are. For
//! that all workers have to keep up with the flood.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::flood::{BURST, NETWORK, during_a_flood};
use crate::harness::{Launch, connect};

/// The flood's share of all datagrams.
const SHARE: f64 = BURST as f64 / (2 * BURST + 1) as f64;
/// In an instant of the flood honest clients may be ahead.
const INACCURACY: f64 = 0.02;

#[test]
fn a_flood_of_one_network_is_named_within_a_second_with_its_share() {
    let daemon = Launch::on_loopback().flags(&["--workers", "2"]).admin_api("").serve();
    during_a_flood(&daemon, &connect(9), || {
        let began = Instant::now();
        let ended = daemon.ctl(&["--json", "top-sources", "--seconds", "1", "--by", "24"]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let top = ended.json();
        let first = &top["sources"][0];
        assert_eq!(first["source"], NETWORK, "{top:#}");
        let number = |key: &str| first[key].as_f64().unwrap();
        let difference = (number("share") - SHARE).abs();
        assert!(difference <= number("error") + INACCURACY, "{top:#}");
        // Each of the 200 flooders has a part, and no other source has as much.
        let top = daemon.ctl(&["--json", "top-sources", "--seconds", "1"]).json();
        let sources = top["sources"].as_array().unwrap();
        let is_flooder =
            |source: &&Value| source["source"].as_str().unwrap().starts_with("127.9.9.");
        let flooders = sources.iter().filter(is_flooder).count();
        assert!(flooders >= 18 && sources.len() == 20, "{top:#}");
    });
}
