//! Connect: what an id is good for, and how long.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use onrush_proto::Family;
use onrush_tracker::connection::{ConnectionIds, SKEW};

use super::LOOPBACK;
use super::support::client::{Client, transaction};
use super::support::network::alone_on_a_network;
use super::support::packets::{Ask, Counts, hash, scrape};
use super::support::served::{Plan, Served, both};

/// Connect: the id is over the source IP, not over the port (libtorrent caches ids per IP,
/// carriers' NATs change ports).
#[test]
fn an_id_is_good_from_every_port_of_its_address() {
    both("", |tracker| {
        for source in LOOPBACK {
            let first = tracker.client(source);
            for _ in 0..10 {
                let second = tracker.stranger(source).with_id(first.id);
                assert_ne!(first.address().port(), second.address().port());
                assert_eq!(second.counts(hash(0)), Counts::default());
                assert_eq!(second.announce(&Ask::leecher(hash(1), 7)).counts(), (0, 1));
                second.announce(&Ask::leecher(hash(1), 7).event(3));
            }
        }
    });
}

/// Connect and Announce: a foreign id, that of another address, is met with silence, and counted
/// (BEP 15, "Connect").
#[test]
fn an_id_is_good_from_no_other_address() {
    both("", |tracker| {
        let clients = ["127.0.0.1", "127.0.0.2", "127.1.0.1", "::1"].map(|ip| tracker.client(ip));
        for (n, client) in clients.iter().enumerate() {
            for (m, other) in clients.iter().enumerate() {
                if n != m {
                    assert_is_no_good(tracker, client, other.id);
                }
            }
            assert_eq!(client.counts(hash(1)), Counts::default(), "the own one is good");
        }
    });
}

/// The same for IPv6: the whole address counts, to the last bit.
#[test]
fn an_id_is_good_from_no_other_ipv6_address() {
    let addresses = ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:8000::1", "3001:db8::1"];
    alone_on_a_network(&addresses.map(|ip| format!("{ip}/128")), || {
        both("", |tracker| {
            let clients = addresses.map(|ip| tracker.client(ip));
            for other in &clients[1..] {
                assert_is_no_good(tracker, &clients[0], other.id);
                assert_is_no_good(tracker, other, clients[0].id);
            }
        });
    });
}

/// Announce: an id that is bad in any bit is met with silence, and counted (BEP 15, "Connect").
#[test]
fn every_bit_of_an_id_counts() {
    both("", |tracker| {
        let client = tracker.client("127.0.0.1");
        assert_is_no_good(tracker, &client, 0);
        assert_is_no_good(tracker, &client, u64::MAX);
        for bit in 0..64 {
            assert_is_no_good(tracker, &client, client.id ^ 1 << bit);
        }
    });
}

/// Announce: the connection id is checked before anything else is looked at: whatever else is
/// wrong, a bad id is silence.
#[test]
fn a_bad_id_hides_every_other_fault() {
    let forbidden = hash(7);
    let table = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{}\"]", hex(&forbidden));
    both(&table, |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            let bad = client.id ^ 1;
            for ask in [
                Ask::leecher(hash(1), 0),
                Ask::leecher(forbidden, 7),
                Ask::leecher(hash(1), 7).tail(&[2, 255, 1]),
            ] {
                let request = ask.bytes(bad, transaction());
                client.is_ignored(tracker, &request, "connection_id");
            }
            for hashes in [&[][..], &[forbidden][..], &[hash(1); 74][..]] {
                let request = scrape(bad, transaction(), hashes);
                client.is_ignored(tracker, &request, "connection_id");
            }
        }
    });
}

/// Connect: time is cut into buckets as wide as the validity; the current and the previous one
/// are accepted, older ones not (BEP 15, "Connect": two minutes). Time is wall-clock time.
#[test]
fn the_current_and_the_previous_bucket_are_good() {
    let validity = validity_with(|width, phase| phase > 60 && phase + 60 < width);
    with_validity(validity, |tracker, client, ids, now| {
        let ip = client.address().ip();
        let at = |unix: u64| ids.issue(ip, unix).0;
        assert_eq!(at(now), client.id, "the key file makes the same ids");
        for good in [at(now), at(now - validity)] {
            assert_is_good(client, good);
        }
        for bad in [at(now - 2 * validity), at(now - 3 * validity), at(now + 2 * validity)] {
            assert_is_no_good(tracker, client, bad);
        }
    });
}

/// Connect: the next bucket is accepted for a skew of up to 10 s only.
#[test]
fn the_next_bucket_is_good_for_hosts_whose_clocks_are_ten_seconds_apart() {
    assert_eq!(SKEW, 10);
    let near = validity_with(|width, phase| (2..=8).contains(&(width - phase)));
    with_validity(near, |_, client, ids, now| {
        assert_is_good(client, ids.issue(client.address().ip(), now + near).0);
    });
    let far = validity_with(|width, phase| (60..=120).contains(&(width - phase)));
    with_validity(far, |tracker, client, ids, now| {
        assert_is_no_good(tracker, client, ids.issue(client.address().ip(), now + far).0);
    });
}

/// Announce: an expired id is met with silence, and counted. Over real time, with a validity of
/// two seconds: good for that long at least, and not for ever.
#[test]
fn an_id_expires() {
    const VALIDITY: u32 = 2;
    for plan in Plan::both() {
        let tracker = plan.change(|settings| settings.connection.validity = VALIDITY).start();
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
    for plan in Plan::both() {
        let tracker = plan.listen("\"127.0.0.1:0\", \"127.0.0.1:0\", \"127.0.0.2:0\"").start();
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
        assert_eq!(workers, 2, "both workers with sockets were asked");
    }
}

/// Asks under an id that must be good.
fn assert_is_good(client: &Client, id: u64) {
    let reply = client.ask(&scrape(id, transaction(), &[hash(1)]));
    assert_eq!((reply.len(), reply[3]), (20, 2), "a scrape response");
}

/// Announces and scrapes under an id that must be met with silence.
fn assert_is_no_good(tracker: &Served, client: &Client, id: u64) {
    let announce = Ask::leecher(hash(1), 7).bytes(id, transaction());
    client.is_ignored(tracker, &announce, "connection_id");
    let scrape = scrape(id, transaction(), &[hash(1)]);
    client.is_ignored(tracker, &scrape, "connection_id");
}

/// Seconds since 1970.
fn unix() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// A validity for which the time is where the test needs it in its bucket, so that nothing has to
/// be waited for. `good` is given the width of the bucket and the seconds since its start.
fn validity_with(good: impl Fn(u64, u64) -> bool) -> u64 {
    let now = unix();
    let found = (600..=3600).filter(|width| good(*width, now % width));
    // With the most time left until the next bucket.
    found.max_by_key(|width| width - now % width).expect("some width fits the time")
}

/// Runs a test against trackers with this validity, a client of either family, and what makes the
/// same ids as the tracker.
fn with_validity(validity: u64, test: impl Fn(&Served, &Client, &ConnectionIds, u64)) {
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

/// As a configuration file writes an info hash.
fn hex(hash: &[u8; 20]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
