//! Arbitrary text as a message of WebTorrent: no panic; what is passed on of it is valid JSON, and
//! is read as the same; there is no more of it than may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::webtorrent::{
    Action, Answer, Limits, Message, Offer, parse, write_answer, write_failure, write_offer,
    write_scrape,
};
use onrush_proto::{InfoHash, PeerId, ScrapeCounts};
use serde_json::Value;

/// Few inputs have more.
const LIMITS: Limits = Limits { offers: 2, hashes: 3 };

fn tree(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("a message to a client is JSON")
}

fn forwarded(info_hash: &InfoHash, from: &PeerId, offer: Result<&Offer, &Answer>) {
    let mut out = Vec::new();
    let (key, text) = match offer {
        Ok(offer) => {
            write_offer(info_hash, from, offer, &mut out);
            ("offer", offer.offer)
        }
        Err(answer) => {
            write_answer(info_hash, from, answer, &mut out);
            ("answer", answer.answer)
        }
    };
    let message = tree(&out);
    assert_eq!(message[key], tree(text.as_bytes()));
    assert!(message[key]["sdp"].is_string());
    assert_eq!(message["peer_id"], String::from_iter(from.0.map(char::from)));
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut out = Vec::new();
    match parse(text, LIMITS) {
        Ok(Message::Announce(it)) => {
            assert!(it.offers.len() <= LIMITS.offers);
            it.offers.iter().for_each(|offer| forwarded(&it.info_hash, &it.peer_id, Ok(offer)));
            it.answer.iter().for_each(|answer| forwarded(&it.info_hash, &it.peer_id, Err(answer)));
        }
        Ok(Message::Scrape(hashes)) => {
            assert!(hashes.len() <= LIMITS.hashes);
            write_scrape(hashes.iter().map(|hash| (*hash, ScrapeCounts::default())), &mut out);
            let files = tree(&out)["files"].as_object().map(serde_json::Map::len);
            assert!(files.is_some_and(|files| files <= hashes.len()));
        }
        Err(rejected) => {
            let action = rejected.action.unwrap_or(Action::Announce);
            let reason = rejected.reason.text();
            write_failure(action, rejected.info_hash.as_ref(), reason, None, &mut out);
            assert_eq!(tree(&out)["failure reason"], reason);
        }
    }
});
