//! Scrape: replies, order, limits, and refusals.

use onrush_proto::Family;

use super::LOOPBACK;
use super::counts::assert_swarms_have_peers;
use super::support::client::{Client, transaction};
use super::support::packets::{self, Announce, COMPLETED, Counts, hash, scrape};
use super::support::tracker::{RunningTracker, both};

/// Info hashes in one datagram (BEP 15, "Scrape").
const MOST: usize = 74;

/// Packets: scrape response 0: 2, 4: transaction id, 8: per hash seeders, completed, leechers
/// (BEP 15, "Scrape"; BEP 48 for the terms).
#[test]
fn a_scrape_byte_by_byte() {
    both("", |tracker| {
        for (number, source) in (0..).zip(LOOPBACK) {
            let client = tracker.client(source);
            for port in 5000..5003 {
                client.announce(&Announce::leecher(hash(number), port));
            }
            for port in 6000..6002 {
                client.announce(&Announce::seeder(hash(number), port));
            }
            client.announce(&Announce::seeder(hash(number), 7000).event(COMPLETED));
            client.announce(&Announce::seeder(hash(number), 7000).event(packets::STOPPED));
            let mut request = client.id.to_be_bytes().to_vec(); // 0: connection id
            request.extend([0, 0, 0, 2]); // 8: action
            request.extend([0xCA, 0xFE, 0xBA, 0xBE]); // 12: transaction id
            request.extend(hash(number)); // 16: info hash
            assert_eq!(request.len(), 36);
            assert_eq!(
                client.exchange(&request),
                [
                    0, 0, 0, 2, 0xCA, 0xFE, 0xBA, 0xBE, // head
                    0, 0, 0, 2, // seeders
                    0, 0, 0, 1, // completed
                    0, 0, 0, 3, // leechers
                ]
            );
        }
    });
}

/// Scrape: the connection id is checked as for announces.
#[test]
fn a_scrape_needs_a_valid_id() {
    both("", |tracker| {
        for source in LOOPBACK {
            let client = tracker.client(source);
            for id in [0, client.id ^ 1, client.id.swap_bytes(), tracker.client("127.0.0.5").id] {
                for hashes in [1, 2, MOST] {
                    let request = scrape(id, transaction(), &vec![hash(1); hashes]);
                    client.assert_ignored(tracker, &request, "connection_id");
                }
            }
        }
    });
}

/// Scrape: up to 74 hashes get entries in order, over all shards.
#[test]
fn up_to_74_hashes_get_entries_in_order() {
    both("", |tracker| {
        let expected = fill(tracker, MOST);
        let hashes: Vec<_> = (0..MOST as u32).map(hash).collect();
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            for len in (1..=MOST).rev().chain([MOST]) {
                assert_eq!(client.scrape(&hashes[..len]), expected[..len]);
            }
            let backwards: Vec<_> = hashes.iter().rev().copied().collect();
            let replies: Vec<_> = client.scrape(&backwards).into_iter().rev().collect();
            assert_eq!(replies, expected);
        }
    });
}

/// Scrape: of more than 74 hashes, the first 74 get entries.
#[test]
fn of_more_than_74_hashes_the_first_get_entries() {
    both("", |tracker| {
        let expected = fill(tracker, 100);
        let hashes: Vec<_> = (0..100).map(hash).collect();
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            for len in [MOST, MOST + 1, 80, 100] {
                assert_eq!(client.scrape(&hashes[..len]), expected[..MOST], "of {len}");
            }
            let many = vec![hashes[3]; 400];
            assert_eq!(client.scrape(&many), [expected[3]; MOST]);
        }
    });
    both("[scrape]\nmax_hashes = 3", |tracker| {
        let expected = fill(tracker, 5);
        let hashes: Vec<_> = (0..5).map(hash).collect();
        assert_eq!(tracker.client("127.0.0.1").scrape(&hashes), expected[..3], "as configured");
    });
}

/// Scrape: trailing bytes shorter than a hash are ignored.
#[test]
fn a_truncated_hash_is_ignored() {
    both("", |tracker| {
        let expected = fill(tracker, 3);
        let hashes = [hash(0), hash(1), hash(2)];
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            for whole in 1..=2 {
                for more in 1..20 {
                    let mut request = scrape(client.id, transaction(), &hashes);
                    request.truncate(16 + 20 * whole + more);
                    let reply = packets::counts(&client.exchange(&request));
                    assert_eq!(reply, expected[..whole], "{more} more bytes");
                }
            }
        }
    });
}

/// Scrape: a request without a hash gets an error reply and is counted.
#[test]
fn a_scrape_without_a_hash_is_an_error() {
    both("", |tracker| {
        for (source, family) in [("127.0.0.1", Family::V4), ("::1", Family::V6)] {
            let client = tracker.client(source);
            for more in 0..20 {
                let mut request = scrape(client.id, transaction(), &[hash(1)]);
                request.truncate(16 + more);
                let text = packets::error_text(&client.exchange(&request));
                assert_eq!(text, "scrape without an info hash");
            }
            assert_eq!(tracker.refused(family)["no_hash"], 20);
        }
    });
}

/// Scrape: a repeated hash gets two entries.
#[test]
fn a_repeated_hash_gets_two_entries() {
    both("", |tracker| {
        let expected = fill(tracker, 4);
        let [.., two, three] = expected[..] else { panic!("four counts expected") };
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            let reply = client.scrape(&[hash(3), hash(2), hash(3), hash(3), hash(2)]);
            assert_eq!(reply, [three, two, three, three, two]);
        }
    });
}

/// Scrape: unknown hashes get zeros, among known ones too.
#[test]
fn unknown_hashes_get_zeros() {
    both("", |tracker| {
        let expected = fill(tracker, 2);
        let none = Counts::default();
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            let reply = client.scrape(&[hash(99), hash(1), hash(98), hash(0), [0; 20], [255; 20]]);
            assert_eq!(reply, [none, expected[1], none, expected[0], none, none]);
        }
    });
}

/// Scrape: forbidden hashes get zeros, among permitted ones too, and the reply is complete.
#[test]
fn forbidden_hashes_get_zeros() {
    let listed = hash(1).map(|byte| format!("{byte:02x}")).concat();
    for (mode, permitted) in [("deny", 0), ("allow", 1)] {
        let table = format!("[access]\nmode = \"{mode}\"\ninfo_hashes = [\"{listed}\"]");
        both(&table, |tracker| {
            let (known, other) = (hash(permitted), hash(1 - permitted));
            tracker.client("127.0.0.1").announce(&Announce::seeder(known, 5000));
            let one = Counts { seeders: 1, ..Counts::default() };
            let none = Counts::default();
            for client in LOOPBACK.map(|source| tracker.client(source)) {
                assert_eq!(client.scrape(&[other, known, other]), [none, one, none]);
                assert_eq!(client.scrape(&[other]), [none]);
                assert_eq!(client.scrape(&[other; MOST]), [none; MOST]);
            }
            assert_eq!(tracker.summary().refused_in_all(), 0);
        });
    }
}

/// Scrape: a scrape never creates a swarm.
#[test]
fn a_scrape_creates_no_swarm() {
    both("", |tracker| {
        for client in LOOPBACK.map(|source| tracker.client(source)) {
            let hashes: Vec<_> = (0..MOST as u32).map(hash).collect();
            assert_eq!(client.scrape(&hashes), [Counts::default(); MOST]);
        }
        assert_swarms_have_peers(tracker, 1000);
    });
}

/// Fills the first swarms with different counts, and returns these.
fn fill(tracker: &RunningTracker, swarms: usize) -> Vec<Counts> {
    let client = tracker.client("127.0.0.1");
    (0..swarms as u32).map(|number| fill_one(&client, number)).collect()
}

fn fill_one(client: &Client, number: u32) -> Counts {
    let counts =
        Counts { seeders: 1 + number % 3, completed: number % 2, leechers: number / 3 % 5 };
    for n in 0..counts.seeders {
        let event = if n < counts.completed { COMPLETED } else { 0 };
        client.announce(&Announce::seeder(hash(number), 5000 + n as u16).event(event));
    }
    for n in 0..counts.leechers {
        client.announce(&Announce::leecher(hash(number), 6000 + n as u16));
    }
    counts
}
