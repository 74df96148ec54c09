//! Arbitrary bytes as list files: entries, or problems with the numbers of their lines. A line
//! means the same in every file.
#![no_main]

use std::fmt::Debug;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use onrush_store::lists::file::{BLOCKS, EntryFormat, INFO_HASHES, read_stream};
use onrush_tracker::access::addresses::AddressSet;

/// The entries of a file, if it has no problem.
fn check<T: Debug + PartialEq>(bytes: &[u8], entries: &EntryFormat<T>) -> Option<Vec<T>> {
    let read = |bytes: &[u8]| {
        let comment = &mut |_: &T, text: &str| assert!(!text.is_empty() && !text.contains('\n'));
        read_stream(bytes, Path::new("LIST"), entries, comment)
    };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let alone: Vec<_> = lines.iter().map(|line| read(line)).collect();
    match read(bytes) {
        Ok(all) => {
            let single = alone.into_iter().flat_map(|line| line.expect("the file is valid"));
            assert_eq!(single.collect::<Vec<T>>(), all);
            Some(all)
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            let bad = |number: usize| alone.get(number - 1).is_some_and(Result::is_err);
            let named = text.lines().filter_map(|line| line.strip_prefix("LIST:"));
            let mut count = 0;
            for line in named {
                let number = line.split(':').next().and_then(|number| number.parse().ok());
                assert!(number.is_some_and(bad), "{text:?}");
                count += 1;
            }
            assert!(count > 0, "{text:?}");
            None
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes, &INFO_HASHES);
    if let Some(blocks) = check(bytes, &BLOCKS) {
        let number = blocks.len();
        assert!(AddressSet::new(blocks).len() <= number);
    }
});
