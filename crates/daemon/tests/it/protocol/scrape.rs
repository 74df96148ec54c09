//! Scrape: replies, order, limits, and refusals.

use onrush_proto::{InfoHash, ScrapeCounts};

use crate::harness::client::transaction;
use crate::harness::packets::{self, COMPLETED, STOPPED, hash, leecher, scrape, seeder};
use crate::harness::tracker::{LOOPBACK, RunningTracker, both, each};

/// Info hashes in one datagram (BEP 15, "Scrape").
const MOST: usize = 74;

/// Packets: scrape response 0: 2, 4: transaction id, 8: per hash seeders, completed, leechers
/// (BEP 15, "Scrape"; BEP 48 for the terms).
#[test]
fn a_scrape_byte_by_byte() {
    each("", |_, client| {
        for port in 5000..5003 {
            client.announce(&leecher(hash(1), port));
        }
        for port in 6000..6002 {
            client.announce(&seeder(hash(1), port));
        }
        client.announce(&seeder(hash(1), 7000).event(COMPLETED));
        client.announce(&seeder(hash(1), 7000).event(STOPPED));
        let mut request = client.id.to_be_bytes().to_vec(); // 0: connection id
        request.extend([0, 0, 0, 2]); // 8: action
        request.extend([0xCA, 0xFE, 0xBA, 0xBE]); // 12: transaction id
        request.extend(hash(1).0); // 16: info hash
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
    });
}

/// Scrape: the connection id is checked as for announces.
#[test]
fn a_scrape_needs_a_valid_id() {
    each("", |tracker, client| {
        for id in [0, client.id ^ 1, client.id.swap_bytes(), tracker.client("127.0.0.5").id] {
            for hashes in [1, 2, MOST] {
                let request = scrape(id, transaction(), &vec![hash(1); hashes]);
                tracker.assert_ignored(client, &request, "connection_id");
            }
        }
    });
}

/// Scrape: up to 74 hashes get entries in order, over all shards.
#[test]
fn up_to_74_hashes_get_entries_in_order() {
    both("", |tracker| {
        let expected = fill(tracker, MOST as u32);
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
    each("", |tracker, client| {
        let expected = fill(tracker, 3);
        for len in (37..56).chain(57..76) {
            let mut request = scrape(client.id, transaction(), &[0, 1, 2].map(hash));
            request.truncate(len);
            let reply = packets::counts(&client.exchange(&request));
            assert_eq!(reply, expected[..(len - 16) / 20], "{len} bytes");
        }
    });
}

/// Scrape: a request without a hash gets an error reply and is counted.
#[test]
fn a_scrape_without_a_hash_is_an_error() {
    each("", |tracker, client| {
        for more in 0..20 {
            let mut request = scrape(client.id, transaction(), &[hash(1)]);
            request.truncate(16 + more);
            let text = packets::error_text(&client.exchange(&request));
            assert_eq!(text, "scrape without an info hash");
        }
        assert_eq!(tracker.refused(client.family())["no_hash"], 20);
    });
}

/// Scrape: a repeated hash gets an entry each time; unknown hashes get zeros, among known ones too.
#[test]
fn repeated_and_unknown_hashes_get_entries() {
    each("", |tracker, client| {
        let known = fill(tracker, 4);
        let reply = client.scrape(&[3, 99, 2, 3, 98, 3, 2].map(hash));
        let none = ScrapeCounts::default();
        assert_eq!(reply, [known[3], none, known[2], known[3], none, known[3], known[2]]);
        assert_eq!(client.scrape(&[InfoHash([0; 20]), InfoHash([255; 20])]), [none; 2]);
    });
}

/// Scrape: forbidden hashes get zeros, among permitted ones too, and the reply is complete.
#[test]
fn forbidden_hashes_get_zeros() {
    for (mode, permitted) in [("deny", 0), ("allow", 1)] {
        let table = format!("[access]\nmode = \"{mode}\"\ninfo_hashes = [\"{}\"]", hash(1));
        both(&table, |tracker| {
            let (known, other) = (hash(permitted), hash(1 - permitted));
            tracker.client("127.0.0.1").announce(&seeder(known, 5000));
            let one = ScrapeCounts { seeders: 1, ..ScrapeCounts::default() };
            let none = ScrapeCounts::default();
            for client in LOOPBACK.map(|source| tracker.client(source)) {
                assert_eq!(client.scrape(&[other, known, other]), [none, one, none]);
                assert_eq!(client.scrape(&[other]), [none]);
                assert_eq!(client.scrape(&[other; MOST]), [none; MOST]);
            }
            assert_eq!(tracker.summary().refused_in_all(), 0);
        });
    }
}

/// Fills the first swarms with different counts, and returns these.
fn fill(tracker: &RunningTracker, swarms: u32) -> Vec<ScrapeCounts> {
    let client = tracker.client("127.0.0.1");
    let fill_one = |number: u32| {
        let (seeders, completed, leechers) = (1 + number % 3, number % 2, number / 3 % 5);
        for n in 0..seeders {
            let event = if n < completed { COMPLETED } else { 0 };
            client.announce(&seeder(hash(number), 5000 + n as u16).event(event));
        }
        for n in 0..leechers {
            client.announce(&leecher(hash(number), 6000 + n as u16));
        }
        ScrapeCounts { seeders, completed, leechers }
    };
    (0..swarms).map(fill_one).collect()
}
