//! Text for people, and the limits as numbers: how values look in a message or a log.

use onrush_proto::response::BadResponse;
use onrush_proto::{Family, InfoHash, MAX_RESPONSE_LEN, announce, scrape};

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

#[test]
fn errors_name_the_fault() {
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
