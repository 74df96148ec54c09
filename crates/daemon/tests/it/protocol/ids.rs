//! Connect: the scope and validity of connection ids.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use onrush_proto::Family;
use onrush_tracker::connection::{ConnectionIds, SKEW};

use super::LOOPBACK;
use super::support::client::{Client, transaction};
use super::support::network::in_network_with;
use super::support::packets::{Announce, Counts, hash, scrape};
use super::support::tracker::{RunningTracker, TrackerConfig, both};

/// Connect: an id covers the source IP, not the port (libtorrent caches ids per IP, carrier NATs
/// change ports).
#[test]
fn an_id_is_valid_from_every_port_of_its_address() {
    both("", |tracker| {
        for source in LOOPBACK {
            let first = tracker.client(source);
            for _ in 0..10 {
                let second = tracker.unconnected_client(source).with_id(first.id);
                assert_ne!(first.address().port(), second.address().port());
                assert_eq!(second.counts(hash(0)), Counts::default());
                assert_eq!(second.announce(&Announce::leecher(hash(1), 7)).counts(), (0, 1));
                second.announce(&Announce::leecher(hash(1), 7).event(3));
            }
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
            assert_eq!(client.counts(hash(1)), Counts::default(), "the client's own id is valid");
        }
    });
}

/// The same for IPv6: all 128 bits of the address count.
#[test]
fn an_id_is_invalid_from_other_ipv6_addresses() {
    let addresses = ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:8000::1", "3001:db8::1"];
    in_network_with(&addresses.map(|ip| format!("{ip}/128")), || {
        both("", |tracker| {
            let clients = addresses.map(|ip| tracker.client(ip));
            for other in &clients[1..] {
                assert_invalid(tracker, &clients[0], other.id);
                assert_invalid(tracker, other, clients[0].id);
            }
        });
    });
}

/// Announce: an id with any bit changed gets no reply and is counted (BEP 15, "Connect").
#[test]
fn every_bit_of_an_id_counts() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        assert_invalid(tracker, &client, 0);
        assert_invalid(tracker, &client, u64::MAX);
        for bit in 0..64 {
            assert_invalid(tracker, &client, client.id ^ 1 << bit);
        }
    });
}

/// Announce: the connection id is checked first, so a request with an invalid id gets no reply,
/// whatever other faults it has.
#[test]
fn an_invalid_id_is_refused_before_any_other_fault() {
    let forbidden = hash(7);
    let table = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{}\"]", hex(&forbidden));
    both(&table, |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let bad = client.id ^ 1;
            for request in [
                Announce::leecher(hash(1), 0),
                Announce::leecher(forbidden, 7),
                Announce::leecher(hash(1), 7).tail(&[2, 255, 1]),
            ] {
                let request = request.bytes(bad, transaction());
                client.assert_ignored(tracker, &request, "connection_id");
            }
            for hashes in [&[][..], &[forbidden][..], &[hash(1); 74][..]] {
                let request = scrape(bad, transaction(), hashes);
                client.assert_ignored(tracker, &request, "connection_id");
            }
        }
    });
}

/// Connect: time is divided into buckets of the configured validity; ids of the current and the
/// previous bucket are accepted, older ones not (BEP 15, "Connect": two minutes). Time is
/// wall-clock time.
#[test]
fn ids_of_the_current_and_the_previous_bucket_are_valid() {
    let validity = validity_with(|width, phase| phase > 60 && phase + 60 < width);
    with_validity(validity, |tracker, client, ids, now| {
        let ip = client.address().ip();
        let at = |unix: u64| ids.issue(ip, unix).0;
        assert_eq!(at(now), client.id, "the key file gives the same ids");
        for good in [at(now), at(now - validity)] {
            assert_valid(client, good);
        }
        for bad in [at(now - 2 * validity), at(now - 3 * validity), at(now + 2 * validity)] {
            assert_invalid(tracker, client, bad);
        }
    });
}

/// Connect: ids of the next bucket are accepted up to 10 s early, for clock skew between hosts.
#[test]
fn ids_of_the_next_bucket_are_valid_within_ten_seconds_of_clock_skew() {
    assert_eq!(SKEW, 10);
    let near = validity_with(|width, phase| (2..=8).contains(&(width - phase)));
    with_validity(near, |_, client, ids, now| {
        assert_valid(client, ids.issue(client.address().ip(), now + near).0);
    });
    let far = validity_with(|width, phase| (60..=120).contains(&(width - phase)));
    with_validity(far, |tracker, client, ids, now| {
        assert_invalid(tracker, client, ids.issue(client.address().ip(), now + far).0);
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
            for &address in tracker.tracker().running.addresses() {
                let other = Client::new(client.address().ip(), address).with_id(client.id);
                assert_eq!(other.counts(hash(number)), Counts::default());
            }
            let served = tracker.tracker().running.workers();
            workers = served.filter(|(_, metrics)| metrics.incoming.v4.scrapes.get() > 0).count();
            if workers == 2 {
                break;
            }
        }
        assert_eq!(workers, 2, "both workers have received requests");
    }
}

/// Asserts that the tracker accepts `id`.
fn assert_valid(client: &Client, id: u64) {
    let reply = client.exchange(&scrape(id, transaction(), &[hash(1)]));
    assert_eq!((reply.len(), reply[3]), (20, 2), "a scrape response");
}

/// Asserts that the tracker refuses `id` without a reply.
fn assert_invalid(tracker: &RunningTracker, client: &Client, id: u64) {
    let announce = Announce::leecher(hash(1), 7).bytes(id, transaction());
    client.assert_ignored(tracker, &announce, "connection_id");
    let scrape = scrape(id, transaction(), &[hash(1)]);
    client.assert_ignored(tracker, &scrape, "connection_id");
}

/// Seconds since 1970.
fn unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// A validity that puts the current time at the required position within its bucket, so that the
/// test does not wait. `good` gets the width of the bucket and the seconds since its start.
fn validity_with(good: impl Fn(u64, u64) -> bool) -> u64 {
    let now = unix();
    let found = (600..=3600).filter(|width| good(*width, now % width));
    // The longest time until the next bucket is the safest.
    found.max_by_key(|width| width - now % width).expect("a width that fits the time")
}

/// Runs a test against trackers with this validity, with a client of either family and connection
/// ids of the tracker's key.
fn with_validity(validity: u64, test: impl Fn(&RunningTracker, &Client, &ConnectionIds, u64)) {
    both(&format!("[connection]\nvalidity = {validity}"), |tracker| {
        let keys =
            onrush_store::key_file::load_or_create(&tracker.state_dir().join("connection.key"))
                .unwrap();
        let ids = ConnectionIds::new(&keys, u32::try_from(validity).unwrap());
        for source in LOOPBACK {
            let client = tracker.client(source);
            assert!(client.address().ip() == source.parse::<IpAddr>().unwrap());
            test(tracker, &client, &ids, unix());
        }
    });
}

/// An info hash in the notation of the configuration file.
fn hex(hash: &[u8; 20]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
