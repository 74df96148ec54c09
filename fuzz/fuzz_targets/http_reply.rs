//! Arbitrary bytes as a reply over HTTP, and as its body: no panic; a head is the same however its
//! bytes arrive, and what follows the reply changes nothing; the tracker's writers give a body that
//! is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::http::client::{Body, BodyReader, Framing, ReplyHead};
use onrush_proto::http::{write_announce, write_failure, write_scrape};
use onrush_proto::{AnnounceHead, TransactionId, scrape};

/// A client, which decides the family of the peers that are written.
const V4: &str = "192.0.2.7";
const V6: &str = "2001:db8::7";

fn head(bytes: &[u8]) {
    let Ok(Some(head)) = ReplyHead::parse(bytes) else { return };
    assert_eq!(ReplyHead::parse(&bytes[..head.len]), Ok(Some(head)));
    assert_eq!(ReplyHead::parse(&bytes[..head.len - 1]), Ok(None));
    let (mut joined, mut again) = (Vec::new(), Vec::new());
    if let Ok(Some((found, len))) = head.body(bytes, true, &mut joined) {
        let whole = head.body(&bytes[..len], true, &mut again);
        assert_eq!(whole, Ok(Some((found, len))));
        if head.framing != Framing::UntilEnd {
            body(found);
        }
    }
}

fn body(bytes: &[u8]) {
    let (mut reader, mut again, mut written) =
        (BodyReader::default(), BodyReader::default(), Vec::new());
    let Ok(found) = reader.read(bytes) else { return };
    match found {
        Body::Failure(failure) => {
            let Ok(reason) = std::str::from_utf8(failure.reason) else { return };
            write_failure(reason, failure.retry_in, &mut written);
        }
        Body::Scrape(files) => {
            let counts = files.counts.iter().map(|counts| {
                let mut wire = [0; scrape::COUNTS_LEN];
                counts.write(&mut wire);
                wire
            });
            write_scrape(files.hashes, &counts.collect::<Vec<_>>(), &mut written);
        }
        Body::Announce(announce) => {
            let (Some(seeders), Some(leechers)) = (announce.seeders, announce.leechers) else {
                return;
            };
            // In a list, an IPv4-mapped address is IPv4.
            if announce.v6.iter().any(|peer| peer.ip().to_canonical().is_ipv4()) {
                return;
            }
            let transaction_id = TransactionId(0);
            let head = AnnounceHead {
                transaction_id, interval: announce.interval, leechers, seeders,
            };
            let (peers, client) = match (announce.v4.is_empty(), announce.v6.is_empty()) {
                (false, false) => return,
                (true, false) => (announce.v6, V6),
                (_, true) => (announce.v4, V4),
            };
            let client = client.parse().expect("an address");
            write_announce(&head, peers.as_bytes(), client, !announce.is_list, &mut written);
        }
    }
    assert_eq!(again.read(&written), Ok(found));
}

fuzz_target!(|bytes: &[u8]| {
    head(bytes);
    body(bytes);
});
