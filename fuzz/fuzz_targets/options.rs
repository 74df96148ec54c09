//! Arbitrary bytes as the options after an announce: no panic, the iterator is fused, and the
//! options encode to a list with the same options.
#![no_main]

use libfuzzer_sys::fuzz_target;
use onrush_proto::options::{END, MAX_DATA_LEN, NOP, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut options = Options(bytes).iter();
    let mut again = Vec::with_capacity(bytes.len());
    for option in options.by_ref() {
        assert!(option.kind != END && option.kind != NOP && option.data.len() <= MAX_DATA_LEN);
        again.extend([option.kind, option.data.len() as u8]);
        again.extend(option.data);
    }
    assert_eq!(options.next(), None);
    assert!(again.len() <= bytes.len());
    assert!(Options(&again).iter().eq(Options(bytes).iter()));
});
