//! Access rules: the info hashes that are served, and the sources that are not.
//!
//! | module | contents |
//! |---|---|
//! | [`set`] | an immutable set of millions of info hashes |
//! | [`overlay`] | such a set, with the changes since it was loaded |
//! | [`origins`] | the lists that it consists of, and the comments of its entries |
//! | [`addresses`] | sets of source addresses, as ranges |
//! | [`blocks`] | blocks of sources made while the tracker runs |
//! | [`member_counts`] | counters of refused requests, by block or by list |

pub mod addresses;
pub mod blocks;
pub mod member_counts;
pub mod origins;
pub mod overlay;
pub mod set;

use std::sync::Arc;

use onrush_proto::InfoHash;

use addresses::AddressSet;
use blocks::SourceBlocks;
use member_counts::MemberCounts;
use origins::Part;
use overlay::{ListChange, OverlaySet};

/// The lists in use. Immutable, shared by all workers, cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The info hashes that are served.
    pub access: Arc<AccessList>,
    /// The sources that the configuration blocks.
    pub blocked: Arc<AddressSet>,
    /// The sources blocked while the tracker runs, made for the set of the configuration.
    pub blocks: Arc<SourceBlocks>,
    /// Announces of info hashes that are not served, by part of the list.
    pub forbidden: Arc<MemberCounts>,
}

impl Lists {
    /// Lists that permit everything.
    pub fn open() -> Self {
        Self {
            access: Arc::new(AccessList::Open),
            blocked: Arc::default(),
            blocks: Arc::default(),
            forbidden: Arc::default(),
        }
    }

    /// The name of each part of the list, and how many announces it has refused.
    pub fn refused_by_part(&self) -> impl Iterator<Item = (&str, u64)> {
        let parts = self.access.parts().iter().enumerate();
        parts.map(|(number, part)| (&*part.name, self.forbidden.sum(number)))
    }

    /// All sources that are not served.
    pub fn refused(&self) -> &Arc<AddressSet> {
        if self.blocks.is_empty() { &self.blocked } else { self.blocks.refused() }
    }
}

/// The info hashes that are served. Immutable, shared by all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessList {
    /// All info hashes.
    Open,
    /// Only the listed ones.
    Allow(OverlaySet),
    /// All but the listed ones.
    Deny(OverlaySet),
}

impl AccessList {
    /// A warning for the operator, if the list serves everything or nothing.
    pub fn warning(&self) -> Option<&'static str> {
        match self {
            Self::Deny(list) if list.is_empty() => {
                Some("access.mode is \"deny\" and the list is empty: everything is served")
            }
            Self::Allow(list) if list.is_empty() => Some(
                "access.mode is \"allow\" and the list is empty, as changes to it removed the last \
                 entries: nothing is served",
            ),
            _ => None,
        }
    }

    /// The set of listed info hashes, unless the list is open.
    pub fn set(&self) -> Option<&OverlaySet> {
        match self {
            Self::Open => None,
            Self::Allow(listing) | Self::Deny(listing) => Some(listing),
        }
    }

    /// The kind of the list, unless it is open.
    pub fn kind(&self) -> Option<ListKind> {
        match self {
            Self::Open => None,
            Self::Allow(_) => Some(ListKind::Allow),
            Self::Deny(_) => Some(ListKind::Deny),
        }
    }

    /// The parts of the list. An open one has none.
    pub fn parts(&self) -> &[Part] {
        self.set().map_or(&[], |set| set.origins().parts())
    }

    /// The part by which an info hash that is not served is refused, with its number. An allow
    /// list refuses by its first part, as what it refuses is in none.
    pub fn refusing_part(&self, info_hash: &InfoHash) -> Option<(usize, &Part)> {
        let part = match self {
            Self::Open => return None,
            Self::Allow(_) => 0,
            Self::Deny(set) => set.origins().part_of(info_hash),
        };
        self.parts().get(part).map(|it| (part, it))
    }

    /// The list after `changes`; of several for one info hash the last counts. An open list has no
    /// changes.
    pub fn with<'a>(&self, changes: impl IntoIterator<Item = &'a ListChange>) -> Self {
        self.map(|listing| listing.with(changes))
    }

    /// The list with its changes merged into one set. Takes time proportional to its length.
    pub fn merged(&self) -> Self {
        self.map(OverlaySet::merged)
    }

    fn map(&self, change: impl FnOnce(&OverlaySet) -> OverlaySet) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Allow(listing) => Self::Allow(change(listing)),
            Self::Deny(listing) => Self::Deny(change(listing)),
        }
    }

    /// The number of listed info hashes.
    pub fn len(&self) -> usize {
        self.set().map_or(0, OverlaySet::len)
    }

    /// Whether no info hash is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all info hashes are served.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether the swarm is served; scrapes of other swarms report zeros.
    #[inline]
    pub fn permits(&self, info_hash: InfoHash) -> bool {
        match self {
            Self::Open => true,
            // By value, so that an open list keeps the info hash in registers.
            _ => self.permits_listed(info_hash),
        }
    }

    /// Reads the memory that looking up these info hashes will read, so that the cache misses
    /// overlap.
    pub fn prefetch(&self, names: &[&[u8; 20]]) {
        if let Some(listing) = self.set() {
            listing.prefetch(names);
        }
    }

    #[inline(never)]
    fn permits_listed(&self, info_hash: InfoHash) -> bool {
        let (listing, served) = match self {
            Self::Open => return true,
            Self::Allow(listing) => (listing, true),
            Self::Deny(listing) => (listing, false),
        };
        listing.contains(&info_hash) == served
    }
}

/// The kind of an access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The listed info hashes are served.
    Allow,
    /// The listed info hashes are not served.
    Deny,
}

impl ListKind {
    /// The name in the configuration and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Allow, Self::Deny].into_iter().find(|kind| kind.name() == name)
    }
}
