//! Text for people, and the limits as numbers: how values look in a message or a log.

use onrush_proto::options::Options;
use onrush_proto::response::BadResponse;
use onrush_proto::{Family, InfoHash, MAX_RESPONSE_LEN, Malformed, PeerId, announce, scrape};

#[test]
fn limits_of_responses() {
    assert_eq!(MAX_RESPONSE_LEN, 1232);
    assert_eq!((Family::V4.max_peers(), Family::V6.max_peers()), (200, 67));
    assert_eq!(announce::max_response_len(Family::V4), 20 + 200 * 6);
    assert_eq!(announce::max_response_len(Family::V6), 20 + 67 * 18);
    assert_eq!((scrape::MAX_REQUEST_LEN, scrape::MAX_RESPONSE_LEN), (16 + 74 * 20, 8 + 74 * 12));
}

#[test]
fn an_info_hash_shows_as_hexadecimal() {
    let hash = InfoHash([0xA7; 20]);
    assert_eq!(format!("{hash}"), "a7".repeat(20));
    assert_eq!(format!("{hash:?}"), "a7".repeat(20));
}

/// The client chooses its peer id: control characters in it must not reach a terminal.
#[test]
fn a_peer_id_shows_control_characters_as_escapes() {
    let mut id = *b"-TR3000-abcdefghijkl";
    id[19] = 0x1B;
    assert_eq!(format!("{:?}", PeerId(id)), r"-TR3000-abcdefghijk\x1b");
}

#[test]
fn options_show_as_a_list() {
    let shown = format!("{:?}", Options(&[2, 1, b'/', 1, 7, 0]));
    assert_eq!(shown, "[Opt { kind: 2, data: [47] }, Opt { kind: 7, data: [] }]");
}

#[test]
fn errors_name_the_fault() {
    assert_eq!(Malformed::Short.to_string(), "too short for its action");
    assert_eq!(Malformed::Magic.to_string(), "a connect without the magic number");
    assert_eq!(Malformed::Action.to_string(), "an action that is not a request's");
    assert_eq!(BadResponse::Short.to_string(), "too short for its action");
    assert_eq!(BadResponse::Length.to_string(), "its length does not fit its action");
    assert_eq!(BadResponse::Action.to_string(), "an action that is not a response's");
    let short = "00".parse::<InfoHash>().unwrap_err();
    assert_eq!(
        short.to_string(),
        "an info hash has 40 hexadecimal digits or 32 base32 characters, not 2"
    );
    let digit = format!("0g{}", "0".repeat(38)).parse::<InfoHash>().unwrap_err();
    assert_eq!(digit.to_string(), "character 2 is 'g', which is not hexadecimal");
}
