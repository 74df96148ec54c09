//! Arbitrary datagrams as responses, parsed as by the load tester: no panic, and peers and counts
//! account for every byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::{Family, Response, announce, connect, scrape};

fuzz_target!(|datagram: &[u8]| {
    for family in [Family::V4, Family::V6] {
        let Ok(response) = Response::parse(datagram, family) else { continue };
        assert_eq!(response.transaction_id().0.to_be_bytes(), datagram[4..8]);
        let (head, items, item_len) = match response {
            Response::Connect(_) => (connect::RESPONSE_LEN, 0, 0),
            Response::Announce(_, peers) => {
                assert!(peers.iter().all(|peer| peer.family() == family));
                (announce::HEAD_LEN, peers.iter().count(), family.peer_len())
            }
            Response::Scrape(_, counts) => {
                (scrape::HEAD_LEN, counts.iter().count(), scrape::COUNTS_LEN)
            }
            Response::Error(_, text) => (8, text.len(), 1),
        };
        assert_eq!(head + items * item_len, datagram.len());
    }
});
