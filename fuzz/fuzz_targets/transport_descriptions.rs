//! Arbitrary bytes as what the other side of a WebRTC connection sends: no panic; a description is
//! the same when it is written and read again, and so is a message about a channel.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_load::transport::sdp::{ChannelMessage, Description};

fuzz_target!(|bytes: &[u8]| {
    if let Some(message) = ChannelMessage::parse(bytes) {
        assert_eq!(ChannelMessage::parse(&message.encode()), Some(message));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(description) = Description::parse(text) {
        assert_eq!(Description::parse(&description.encode()), Ok(description));
    }
});
