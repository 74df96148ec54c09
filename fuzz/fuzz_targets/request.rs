//! Arbitrary datagrams as requests: parsing does not panic, and a parsed request encodes to the
//! bytes that it was read from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::announce::REQUEST_LEN;
use onrush_proto::connect;
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_proto::{Event, Malformed, Request, Scrape};

fuzz_target!(|datagram: &[u8]| {
    let mut wire = vec![0xAA; datagram.len().max(REQUEST_LEN)];
    match Request::parse(datagram) {
        Ok(Request::Connect(connect)) => {
            connect.write(wire.first_chunk_mut().expect("at least 98 bytes"));
            assert_eq!(datagram[..connect::REQUEST_LEN], wire[..connect::REQUEST_LEN]);
        }
        Ok(Request::Announce(announce)) => {
            assert_eq!(announce.write(&mut wire), datagram.len());
            if announce.event == Event::None {
                wire[80..84].copy_from_slice(&datagram[80..84]);
            }
            assert_eq!(datagram, wire);
        }
        Ok(Request::Scrape(scrape)) => {
            let hashes: Vec<_> = scrape.info_hashes().collect();
            let len =
                Scrape::write(scrape.connection_id, scrape.transaction_id, &hashes, &mut wire);
            assert_eq!(datagram[..len], wire[..len]);
            assert!(datagram.len() - len < HASH_LEN);
        }
        Err(Malformed::Short) => assert!(datagram.len() < REQUEST_LEN),
        Err(Malformed::Magic | Malformed::Action) => assert!(datagram.len() >= REQUEST_HEAD_LEN),
    }
});
