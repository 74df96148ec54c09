//! Arbitrary bytes as the input of a connection over HTTP: no panic; a head is the same however its
//! bytes arrive, and what follows it changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_tracker::refusal::HttpRefusal;
use onrush_web::head::{self, Head, MAX_HEAD};

/// The head, without whether bytes follow it.
fn parse(bytes: &[u8]) -> Result<Option<Head<'_>>, HttpRefusal> {
    head::parse(bytes).map(|head| head.map(|head| Head { is_last: true, ..head }))
}

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    if let Ok(Some(head)) = whole {
        assert!(head.len <= bytes.len().min(MAX_HEAD) && !head.target.is_empty());
        assert_eq!(parse(&bytes[..head.len]), whole);
        let is_last = head::parse(bytes).is_ok_and(|head| head.is_some_and(|head| head.is_last));
        assert_eq!(is_last, head.len == bytes.len());
    }
    for end in 0..bytes.len().min(512) {
        match parse(&bytes[..end]) {
            Ok(None) => {}
            // Decided by these bytes, whatever follows.
            decided => assert_eq!(decided, whole),
        }
    }
});
