//! Arbitrary bytes behind the records of a journal, as a power failure or an editor leaves them: no
//! record before them is lost, and none that is appended afterwards.
#![no_main]

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use onrush_proto::InfoHash;
use onrush_store::lists::journal::{JournalContents, addition};
use onrush_tracker::access::ListKind;
use onrush_tracker::access::origins::comment;
use onrush_tracker::access::overlay::{Author, ListChange};

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
        let author = Author { unix: bytes[2].into(), name: "user 0".to_owned() };
        let author = (bytes[1] & 4 == 0).then(|| Arc::new(author));
        let change = ListChange::new(info_hash, bytes[1] & 1 == 0);
        let is_reset = bytes[1] & 8 == 0;
        (kind(bytes[0]), ListChange { comment, author, is_reset, ..change })
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
        let read = |file: &[u8]| JournalContents::read(file, kind).expect("memory can be read");
        let (all, of_tail) = (read(&file), read(tail));
        let of_kind = records.iter().filter(|(of, _)| *of == kind);
        let state = |it: &ListChange| (!it.is_reset).then(|| (it.listed, it.author.clone()));
        // `None` after a reset.
        let before: BTreeMap<_, _> = of_kind.map(|(_, it)| (it.info_hash, state(it))).collect();
        // A line of the tail may be a change or a reset.
        let is_lost = |(hash, expected): (&InfoHash, &Option<(bool, Option<Arc<Author>>)>)| {
            all.changes.get(hash).and_then(state) != *expected
                && !of_tail.changes.contains_key(hash)
                && *hash != later.1.info_hash
        };
        assert!(tail.contains(&b'=') || !before.iter().any(is_lost));
        let has_later = || all.changes.get(&later.1.info_hash).is_some_and(|it| it.listed);
        assert!(kind != later.0 || has_later());
        assert!(all.damaged <= tail.split(|byte| *byte == b'\n').count());
    }
});
