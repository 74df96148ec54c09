//! Arbitrary bytes as messages of an upgrade: no panic, and each that is accepted is the same after
//! another trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_replica::handoff::Message;

fuzz_target!(|bytes: &[u8]| {
    let mut from = bytes;
    while let Ok(message) = Message::decode(&mut from) {
        let encoded = message.encode().expect("every message has a JSON form");
        assert_eq!(Message::decode(encoded.as_slice()).expect("its own form"), message);
    }
    // As text without its length, which the fuzzer seldom guesses.
    let framed = [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    if let Ok(message) = Message::decode(framed.as_slice()) {
        let encoded = message.encode().expect("every message has a JSON form");
        assert_eq!(Message::decode(encoded.as_slice()).expect("its own form"), message);
    }
});
