//! Arbitrary bytes behind the records of a journal, as a power failure or an editor leaves them: no
//! record before them is lost, and none that is appended afterwards.
#![no_main]

use std::slice;

use libfuzzer_sys::fuzz_target;
use onrush_proto::InfoHash;
use onrush_store::lists::journal::{JournalContents, addition};
use onrush_tracker::access::ListKind;
use onrush_tracker::access::origins::comment;
use onrush_tracker::access::overlay::ListChange;

/// Bytes of the input for each record.
const RECORD: usize = 22;

fuzz_target!(|bytes: &[u8]| {
    let Some((&number, bytes)) = bytes.split_first() else { return };
    let records = (usize::from(number) % 8).min(bytes.len() / RECORD);
    let (records, tail) = bytes.split_at(records * RECORD);
    let kind = |odd: u8| if odd & 1 == 0 { ListKind::Deny } else { ListKind::Allow };
    let record = |bytes: &[u8]| {
        let info_hash = InfoHash(bytes[2..].try_into().expect("20 bytes"));
        let text = String::from_utf8_lossy(&bytes[2..]);
        let comment = (bytes[1] & 2 == 0).then(|| comment(&text));
        (kind(bytes[0]), ListChange { info_hash, listed: bytes[1] & 1 == 0, comment })
    };
    let records: Vec<(ListKind, ListChange)> = records.chunks(RECORD).map(record).collect();
    let mut file = Vec::new();
    let append = |file: &mut Vec<u8>, (kind, change): &(ListKind, ListChange)| {
        let last = file.last().copied().unwrap_or(b'\n');
        file.extend_from_slice(addition(last, *kind, slice::from_ref(change)).as_bytes());
    };
    records.iter().for_each(|record| append(&mut file, record));
    file.extend_from_slice(tail);
    let later = (ListKind::Deny, ListChange::new(InfoHash([7; 20]), true));
    append(&mut file, &later);
    for kind in [ListKind::Deny, ListKind::Allow] {
        let read = JournalContents::read(file.as_slice(), kind).expect("memory can be read");
        let of_kind = |(of, change): &(ListKind, ListChange)| (*of == kind).then(|| change.clone());
        let before: Vec<ListChange> = records.iter().filter_map(of_kind).collect();
        assert!(read.changes.starts_with(&before));
        assert!(kind != later.0 || read.changes.last() == Some(&later.1));
        assert!(read.unreadable <= tail.split(|byte| *byte == b'\n').count());
    }
});
