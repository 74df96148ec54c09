//! Arbitrary bytes as the target of a GET, or as a query: no panic; a parsed announce encodes to a
//! query with the same fields, and is a scrape of its info hash; hashes of a scrape are sorted,
//! each once, and no more than may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::Event;
use onrush_proto::http::{AnnounceQuery, BadQuery, Target, scrape_hashes};

/// The number of hashes that a scrape may have here: few inputs have more.
const MAX_HASHES: usize = 3;

fn encoded(announce: &AnnounceQuery) -> String {
    let id = |id: [u8; 20]| id.map(|byte| format!("%{byte:02x}")).concat();
    let event = match announce.event {
        Event::None => "",
        Event::Completed => "completed",
        Event::Started => "started",
        Event::Stopped => "stopped",
        Event::Paused => "paused",
    };
    format!(
        "info_hash={}&peer_id={}&port={}&left={}&event={event}&numwant={}&compact={}",
        id(announce.info_hash.0),
        id(announce.peer_id.0),
        announce.port,
        u8::from(!announce.seeder),
        announce.num_want,
        u8::from(announce.compact),
    )
}

fuzz_target!(|bytes: &[u8]| {
    let query = match Target::parse(bytes) {
        Target::Announce(query) | Target::Scrape(query) => query,
        Target::Root | Target::Health | Target::Other => bytes,
    };
    let mut hashes = Vec::new();
    let scrape = scrape_hashes(query, MAX_HASHES, &mut hashes);
    match scrape {
        Ok(()) => {
            assert!(hashes.len() <= MAX_HASHES && hashes.is_sorted_by(|one, next| one < next));
        }
        Err(bad) => assert!(bad == BadQuery::InfoHash && hashes.is_empty()),
    }
    match AnnounceQuery::parse(query) {
        Ok(announce) => {
            assert_eq!(hashes, [announce.info_hash.0]);
            assert_eq!(AnnounceQuery::parse(encoded(&announce).as_bytes()), Ok(announce));
        }
        Err(BadQuery::InfoHash) => assert!(scrape.is_err() || hashes.is_empty()),
        Err(BadQuery::InfoHashes | BadQuery::PeerId | BadQuery::Port) => {}
    }
});
