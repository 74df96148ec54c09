//! Info hashes that a change of the list has added and removed, for the log.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use onrush_proto::InfoHash;
use onrush_tracker::access::AccessList;
use onrush_tracker::access::overlay::ListChange;

/// Info hashes that are named; of further ones the log has the number.
const NAMED: usize = 3;

/// The difference between two lists.
#[derive(Debug, Default)]
pub(super) struct ListDiff {
    added: FirstFew,
    removed: FirstFew,
    /// The first of them.
    comment: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct FirstFew {
    named: Vec<InfoHash>,
    more: usize,
}

impl ListDiff {
    /// The difference that these changes make; each must have an effect.
    pub(super) fn of(changes: &[ListChange]) -> Self {
        let mut diff = Self::default();
        for ListChange { info_hash, listed, comment, .. } in changes {
            let part = if *listed { &mut diff.added } else { &mut diff.removed };
            part.add(*info_hash);
            if diff.comment.is_none() {
                diff.comment.clone_from(comment);
            }
        }
        diff
    }

    /// Between two lists of the same kind. Takes time proportional to their length. Lists of
    /// different kinds have no difference.
    pub(super) fn between(old: &AccessList, new: &AccessList) -> Self {
        let mut diff = Self::default();
        let is_same_kind = old.kind() == new.kind();
        let sets = old.set().zip(new.set()).filter(|_| is_same_kind);
        let Some((old, new)) = sets else { return diff };
        let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return diff,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            // An entry of only one list comes before the next entry of the other.
            let (first_old, first_new) =
                (old.next_if(|_| order.is_le()), new.next_if(|_| order.is_ge()));
            match (first_old, first_new) {
                (Some(hash), None) => diff.removed.add(InfoHash(*hash)),
                (None, Some(hash)) => diff.added.add(InfoHash(*hash)),
                _ => {}
            }
        }
    }
}

impl FirstFew {
    fn add(&mut self, hash: InfoHash) {
        if self.named.len() < NAMED { self.named.push(hash) } else { self.more += 1 }
    }

    fn shown(&self, what: &str) -> Option<String> {
        let names: Vec<String> = self.named.iter().map(InfoHash::to_string).collect();
        let names = names.join(", ");
        match self.more {
            _ if names.is_empty() => None,
            0 => Some(format!("{what} {names}")),
            more => Some(format!("{what} {names} and {more} more")),
        }
    }
}

/// Empty if there is no difference.
impl fmt::Display for ListDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [self.added.shown("added"), self.removed.shown("removed")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join("; "))?;
        self.comment.as_ref().map_or(Ok(()), |comment| write!(f, " ({comment:?})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::access::overlay::OverlaySet;
    use onrush_tracker::access::set::InfoHashSet;

    fn hash(number: u8) -> InfoHash {
        InfoHash([number; 20])
    }

    fn deny(numbers: &[u8]) -> AccessList {
        let hashes = numbers.iter().map(|number| hash(*number).0).collect();
        AccessList::Deny(OverlaySet::new(InfoHashSet::new(hashes)))
    }

    #[test]
    fn the_first_few_are_named_and_the_others_counted() {
        let diff = |old: &[u8], new: &[u8]| ListDiff::between(&deny(old), &deny(new)).to_string();
        assert_eq!(diff(&[1, 2, 3], &[1, 2, 3]), "");
        assert_eq!(diff(&[1, 3], &[1, 2, 3]), format!("added {}", hash(2)));
        assert_eq!(diff(&[1, 2, 3], &[1]), format!("removed {}, {}", hash(2), hash(3)));
        let (three, both) = ([4, 5, 6].map(|n| hash(n).to_string()).join(", "), hash(9));
        let expected = format!("added {three} and 2 more; removed {both}");
        assert_eq!(diff(&[1, 9], &[1, 4, 5, 6, 7, 8]), expected);
        let changes = [(4, true), (5, true), (9, false), (6, true), (7, true), (8, true)];
        let changes = changes.map(|(n, listed)| ListChange::new(hash(n), listed));
        assert_eq!(ListDiff::of(&changes).to_string(), expected);
        assert_eq!(ListDiff::of(&[]).to_string(), "");
    }

    #[test]
    fn lists_of_different_kinds_are_not_compared() {
        let AccessList::Deny(listed) = deny(&[1, 2]) else { panic!("it is a deny list") };
        let allow = AccessList::Allow(listed);
        for (old, new) in [(&deny(&[1]), &allow), (&AccessList::Open, &allow)] {
            assert_eq!(ListDiff::between(old, new).to_string(), "");
        }
    }
}
