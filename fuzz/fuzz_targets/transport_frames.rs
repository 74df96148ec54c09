//! Arbitrary bytes as frames of a connection: no panic; frames and the error that ends them are the
//! same however the bytes arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_load::transport::frames::{Decoder, FrameError, HEADER, header};

/// Stream and payload.
type Frames = Vec<(u32, Vec<u8>)>;

/// The frames in bytes that arrive in parts of this length.
fn decoded(bytes: &[u8], length: usize) -> (Frames, Result<(), FrameError>) {
    let (mut decoder, mut frames) = (Decoder::new(1 << 16), Frames::new());
    for part in bytes.chunks(length) {
        let each = |stream, payload: &[u8]| frames.push((stream, payload.to_vec()));
        if let Err(error) = decoder.feed(part, each) {
            return (frames, Err(error));
        }
    }
    (frames, Ok(()))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((length, bytes)) = bytes.split_first() else { return };
    let whole = decoded(bytes, bytes.len().max(1));
    assert_eq!(decoded(bytes, usize::from(*length) + 1), whole);
    let mut rest = bytes;
    for (stream, payload) in &whole.0 {
        let (head, behind) = rest.split_at(HEADER);
        assert_eq!(head, header(*stream, payload.len() as u16));
        assert_eq!(&behind[..payload.len()], payload);
        rest = &behind[payload.len()..];
    }
});
