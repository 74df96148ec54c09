//! Connect: the scope and validity of connection ids.

use std::time::{Duration, Instant, SystemTime};

use onrush_proto::{Family, ScrapeCounts};
use onrush_store::key_file::load_or_create;
use onrush_store::state_file;
use onrush_tracker::connection::{ConnectionIds, SKEW};

use crate::harness::client::{Client, transaction};
use crate::harness::network::in_own_network;
use crate::harness::packets::{self, hash, leecher, scrape};
use crate::harness::tracker::{RunningTracker, TrackerConfig, both, each};

/// Connect: an id covers the source IP, not the port (libtorrent caches ids per IP, carrier NATs
/// change ports).
#[test]
fn an_id_is_valid_from_every_port_of_its_address() {
    each("", |tracker, first| {
        for _ in 0..10 {
            let source = first.address().ip().to_string();
            let second = tracker.unconnected_client(&source).with_id(first.id);
            assert_ne!(first.address().port(), second.address().port());
            assert_eq!(second.counts(hash(0)), ScrapeCounts::default());
            assert_eq!(second.announce(&leecher(hash(1), 7)).counts(), (0, 1));
        }
    });
}

/// Connect and Announce: the id of another address gets no reply and is counted (BEP 15,
/// "Connect").
#[test]
fn an_id_is_invalid_from_other_addresses() {
    both("", |tracker| {
        let clients = ["127.0.0.1", "127.0.0.2", "127.1.0.1", "::1"].map(|ip| tracker.client(ip));
        for (n, client) in clients.iter().enumerate() {
            for (m, other) in clients.iter().enumerate() {
                if n != m {
                    assert_invalid(tracker, client, other.id);
                }
            }
            assert_eq!(client.counts(hash(1)), ScrapeCounts::default(), "its own id is valid");
        }
    });
}

/// The same for IPv6: all 128 bits of the address count.
#[test]
fn an_id_is_invalid_from_other_ipv6_addresses() {
    let addresses = ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:8000::1", "3001:db8::1"];
    in_own_network(&addresses, || {
        both("", |tracker| {
            let clients = addresses.map(|ip| tracker.client(ip));
            for other in &clients[1..] {
                assert_invalid(tracker, &clients[0], other.id);
                assert_invalid(tracker, other, clients[0].id);
            }
        });
    });
}

/// Announce: the connection id is checked first, so a request with an invalid id gets no reply,
/// even if it has other faults.
#[test]
fn an_invalid_id_is_refused_before_any_other_fault() {
    let forbidden = hash(7);
    let table = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{forbidden}\"]");
    each(&table, |tracker, client| {
        let bad = client.id ^ 1;
        for request in
            [leecher(hash(1), 0), leecher(forbidden, 7), leecher(hash(1), 7).tail(&[2, 255, 1])]
        {
            let request = request.bytes(bad, transaction());
            tracker.assert_ignored(client, &request, "connection_id");
        }
        for hashes in [&[][..], &[forbidden][..], &[hash(1); 74][..]] {
            let request = scrape(bad, transaction(), hashes);
            tracker.assert_ignored(client, &request, "connection_id");
        }
    });
}

/// Connect: time is divided into buckets of the configured validity; ids of the current and the
/// previous bucket are accepted, others not (BEP 15, "Connect": two minutes). Time is wall-clock
/// time. (Clock skew and single bits: unit tests of crates/tracker/src/connection.)
#[test]
fn ids_of_the_current_and_the_previous_bucket_are_valid() {
    assert_eq!(SKEW, 10, "seconds between the clocks of two hosts");
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    // Far from the ends of a bucket, so that none ends meanwhile.
    let in_the_middle = |width: &u64| (200..400).contains(&(now % width));
    let validity = (600..=3600).find(in_the_middle).expect("a width that fits the time");
    each(&format!("[connection]\nvalidity = {validity}"), |tracker, client| {
        let file = tracker.state_dir().join("connection.key");
        let keys = load_or_create(&file, state_file::open).unwrap();
        let ids = ConnectionIds::new(&keys, validity as u32);
        let at = |unix: u64| ids.issue(client.address().ip(), unix).0;
        assert_eq!(at(now), client.id, "the key file gives the same ids");
        let before = scrape(at(now - validity), transaction(), &[hash(1)]);
        assert_eq!(packets::counts(&client.exchange(&before)), [ScrapeCounts::default()]);
        for bad in [at(now - 2 * validity), at(now - 3 * validity), at(now + 2 * validity)] {
            assert_invalid(tracker, client, bad);
        }
    });
}

/// Announce: an expired id gets no reply and is counted. In real time, with a validity of two
/// seconds: an id is accepted for at least two seconds, and finally expires.
#[test]
fn an_id_expires() {
    const VALIDITY: u32 = 2;
    for config in TrackerConfig::both() {
        let tracker = config.change(|settings| settings.connection.validity = VALIDITY).start();
        let start = Instant::now();
        let client = tracker.client("127.0.0.1");
        let refused = || tracker.refused(Family::V4)["connection_id"];
        tracker.until("the id expires", || {
            client.send(&scrape(client.id, transaction(), &[hash(1)]));
            refused() > 0
        });
        let lasted = start.elapsed();
        assert!(lasted > Duration::from_secs(VALIDITY.into()), "only {lasted:?}");
        let fresh = tracker.client("127.0.0.1");
        assert_ne!(fresh.id, client.id);
    }
}

/// Connect: all workers, both families and all ports share one key.
#[test]
fn all_workers_and_ports_share_one_key() {
    for config in TrackerConfig::both() {
        let tracker = config.listen("\"127.0.0.1:0\", \"127.0.0.1:0\", \"127.0.0.2:0\"").start();
        let client = tracker.client("127.0.0.9");
        let mut workers = 0;
        // The kernel picks the worker by the ports of both sides, or by the info hash.
        for number in 0..100 {
            for &address in tracker.addresses() {
                let other = Client::at(client.address().ip(), address).with_id(client.id);
                assert_eq!(other.counts(hash(number)), ScrapeCounts::default());
            }
            let served = tracker.tracker.running.workers();
            workers = served.filter(|(_, metrics)| metrics.incoming.v4.scrapes.get() > 0).count();
            if workers == 2 {
                break;
            }
        }
        assert_eq!(workers, 2, "both workers have received requests");
    }
}

/// Asserts that the tracker refuses `id` without a reply.
fn assert_invalid(tracker: &RunningTracker, client: &Client, id: u64) {
    let announce = leecher(hash(1), 7).bytes(id, transaction());
    tracker.assert_ignored(client, &announce, "connection_id");
    let scrape = scrape(id, transaction(), &[hash(1)]);
    tracker.assert_ignored(client, &scrape, "connection_id");
}
