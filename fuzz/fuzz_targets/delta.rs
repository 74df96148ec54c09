//! Arbitrary bytes as the delta of an upgrade: no panic, memory in proportion to the bytes, and
//! stops that are accepted have one form. The target `snapshot` covers the peers behind them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush::upgrade::delta::{read_stops, write_stops};
use onrush_store::snapshot::load::verify;

/// The shortest stop, bytes.
const SHORTEST: usize = 20 + 1 + 6 + 4 + 4;

fuzz_target!(|bytes: &[u8]| {
    let (mut from, mut stops) = (bytes, Vec::new());
    let read = read_stops(&mut from, || {}, |stop| stops.push(stop));
    assert!(stops.len() * SHORTEST <= bytes.len());
    if read.is_ok() {
        let mut written = Vec::new();
        write_stops(&mut written, &stops).expect("a vector takes everything");
        assert_eq!(written, bytes[..bytes.len() - from.len()]);
        let _ = verify(from, &mut || {});
    }
});
