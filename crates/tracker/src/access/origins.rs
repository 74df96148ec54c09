//! Where entries of the list of info hashes come from: one of several lists, each with an error
//! text of its own, and the comment of the entry.
//!
//! Only requests that are refused and the control side look here. Entries of the first list without
//! a comment take no memory, others 24 bytes and their part of the distinct comments.

use std::collections::HashMap;
use std::sync::Arc;

use onrush_proto::InfoHash;

/// Lists that a list of info hashes may consist of.
pub const MAX_LISTS: usize = 17;
/// Bytes of a comment that are kept.
pub const MAX_COMMENT: usize = 200;

/// A part of the list of info hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in metrics and statistics.
    pub name: Box<str>,
    /// The text of the error for its info hashes.
    pub error: Box<str>,
    /// The number of distinct entries of its file, also those that other files have.
    pub entries: usize,
}

/// The origins of the entries of a list. Immutable, shared by all workers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Origins {
    /// The first is the one of entries without an origin.
    parts: Box<[Part]>,
    /// Sorted, each info hash once.
    entries: Box<[Entry]>,
    origins: Box<[Origin]>,
}

/// An info hash, and the place of its origin.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    hash: [u8; 20],
    origin: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origin {
    part: usize,
    comment: Box<str>,
}

impl Origins {
    /// The parts; the first is the one of entries whose origin is not known. There may be none.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The number of the part that an info hash comes from.
    pub fn part_of(&self, hash: &InfoHash) -> usize {
        self.origin(hash).map_or(0, |origin| origin.part)
    }

    /// The comment of an info hash.
    pub fn comment(&self, hash: &InfoHash) -> Option<&str> {
        self.origin(hash).map(|origin| &*origin.comment).filter(|comment| !comment.is_empty())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let comments: usize = self.origins.iter().map(|origin| origin.comment.len()).sum();
        size_of_val(&*self.entries) + size_of_val(&*self.origins) + comments
    }

    fn origin(&self, hash: &InfoHash) -> Option<&Origin> {
        let at = self.entries.binary_search_by(|entry| entry.hash.cmp(&hash.0)).ok()?;
        self.origins.get(self.entries[at].origin as usize)
    }
}

/// Collects the origins of entries.
#[derive(Debug, Default)]
pub struct OriginsBuilder {
    parts: Vec<Part>,
    entries: Vec<Entry>,
    places: HashMap<Origin, u32>,
}

impl OriginsBuilder {
    /// Begins with the part of entries whose origin is not known.
    pub fn new(first: Part) -> Self {
        Self { parts: vec![first], ..Self::default() }
    }

    /// Adds a part; returns its number. Refusals of a part beyond
    /// [`MAX_LISTS`] are not counted.
    pub fn part(&mut self, part: Part) -> usize {
        self.parts.push(part);
        self.parts.len() - 1
    }

    /// Sets the number of distinct entries of this part's file.
    pub fn set_entries(&mut self, part: usize, entries: usize) {
        self.parts[part].entries = entries;
    }

    /// Adds an entry of this part. Of several for one info hash the first counts.
    ///
    /// # Panics
    /// When there are 2^32 distinct comments.
    pub fn entry(&mut self, part: usize, hash: [u8; 20], comment: &str) {
        if part == 0 && comment.is_empty() {
            return;
        }
        let origin = Origin { part, comment: shortened(comment).into() };
        let next = u32::try_from(self.places.len()).expect("fewer than 2^32 comments");
        let origin = *self.places.entry(origin).or_insert(next);
        self.entries.push(Entry { hash, origin });
    }

    /// The origins of these entries.
    pub fn build(self) -> Origins {
        let Self { parts, mut entries, places } = self;
        entries.sort_by_key(|entry| entry.hash);
        entries.dedup_by_key(|entry| entry.hash);
        let mut origins: Vec<(u32, Origin)> = places.into_iter().map(|(of, at)| (at, of)).collect();
        origins.sort_unstable_by_key(|(place, _)| *place);
        let origins = origins.into_iter().map(|(_, origin)| origin).collect();
        Origins { parts: parts.into(), entries: entries.into(), origins }
    }
}

/// A comment as it is kept: without control characters, cut to [`MAX_COMMENT`] bytes.
pub fn comment(text: &str) -> Arc<str> {
    shortened(text).into()
}

fn shortened(text: &str) -> String {
    let plain: String = text.chars().filter(|character| !character.is_control()).collect();
    let plain = plain.trim();
    let ends = (0..=MAX_COMMENT.min(plain.len())).rev();
    let end = ends.into_iter().find(|end| plain.is_char_boundary(*end)).unwrap_or(0);
    plain[..end].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn part(name: &str) -> Part {
        Part { name: name.into(), error: format!("error of {name}").into(), entries: 0 }
    }

    proptest! {
        /// Compared with a map.
        #[test]
        fn the_first_origin_of_an_info_hash_counts(
            entries in proptest::collection::vec((0usize..3, 0u8..20, "[a-c]{0,2}"), 0..60),
        ) {
            let mut builder = OriginsBuilder::new(part("0"));
            prop_assert_eq!([builder.part(part("1")), builder.part(part("2"))], [1, 2]);
            let mut model = BTreeMap::new();
            for (part, number, comment) in &entries {
                builder.entry(*part, [*number; 20], comment);
                if *part > 0 || !comment.is_empty() {
                    model.entry(*number).or_insert((*part, comment.as_str()));
                }
            }
            let origins = builder.build();
            for number in 0..20 {
                let hash = InfoHash([number; 20]);
                let (part, comment) = model.get(&number).copied().unwrap_or_default();
                prop_assert_eq!(origins.part_of(&hash), part);
                prop_assert_eq!(origins.comment(&hash).unwrap_or_default(), comment);
            }
        }
    }

    #[test]
    fn comments_are_short_and_plain() {
        assert_eq!(&*comment("  2026-11-22\tby\u{1b}[31m court \n"), "2026-11-22by[31m court");
        assert_eq!(comment(&"ä".repeat(150)).chars().count(), 100);
        assert_eq!(&*comment(" "), "");
        assert_eq!(&*comment("\u{1} a\u{1}"), "a");
        assert_eq!(&*comment(&format!("{} b", "a".repeat(199))), "a".repeat(199));
    }
}
