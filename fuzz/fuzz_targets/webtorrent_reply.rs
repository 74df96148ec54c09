//! Arbitrary text as a message of a tracker of WebTorrent: no panic; the tracker's writers give a
//! message that is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::ScrapeCounts;
use onrush_proto::webtorrent::client::{Forwarded, Reply, ReplyReader};
use onrush_proto::webtorrent::{
    Answer, Offer, write_answer, write_counts, write_failure, write_offer, write_scrape,
};

fn description(kind: &str, it: &Forwarded<'_>) -> String {
    format!(r#"{{"type":"{kind}","sdp":"{}"}}"#, it.sdp)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (mut reader, mut again, mut out) =
        (ReplyReader::default(), ReplyReader::default(), Vec::new());
    let Ok(found) = reader.read(text) else { return };
    match &found {
        Reply::Announce(it) => {
            let (Some(seeders), Some(leechers)) = (it.seeders, it.leechers) else { return };
            let counts = ScrapeCounts { seeders, completed: 0, leechers };
            write_counts(&it.info_hash, it.interval, &counts, &mut out);
        }
        Reply::Scrape(files) => {
            let counts = files.hashes.iter().copied().zip(files.counts.iter());
            write_scrape(counts, &mut out);
        }
        Reply::Offer(it) => {
            let offer = Offer { offer_id: it.offer_id, offer: &description("offer", it) };
            write_offer(&it.info_hash, &it.peer_id, &offer, &mut out);
        }
        Reply::Answer(it) => {
            let answer = &description("answer", it);
            let answer = Answer { to_peer_id: it.peer_id, offer_id: it.offer_id, answer };
            write_answer(&it.info_hash, &it.peer_id, &answer, &mut out);
        }
        Reply::Failure(it) => {
            let hash = it.info_hash.as_ref();
            write_failure(it.action, hash, &it.reason, it.retry_in, &mut out);
        }
    }
    let written = std::str::from_utf8(&out).expect("a message is text");
    assert_eq!(again.read(written), Ok(found));
});
