//! Which info hashes are served, and which sources are not.
//!
//! | room | what is in it |
//! |---|---|
//! | [`set`] | millions of info hashes, compact and quick to look up |
//! | [`listing`] | such a list, and what was added and removed since it was read |
//! | [`blocks`] | sources that are not served, by blocks of addresses |
//! | [`bogon`] | addresses that cannot be peers on the internet |

pub mod blocks;
pub mod bogon;
pub mod overlay;
pub mod set;

use std::sync::Arc;

use onrush_proto::InfoHash;

pub use bogon::is_bogon;
pub(crate) use bogon::{is_bogon_v4, is_bogon_v6};

use blocks::BlockList;
use overlay::{ListChange, OverlaySet};

/// All lists that are in force. Read by every worker, changed by none; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Which info hashes are served.
    pub access: Arc<AccessList>,
    /// Which sources are not.
    pub blocked: Arc<BlockList>,
}

impl Lists {
    /// Of no restrictions.
    pub fn open() -> Self {
        Self { access: Arc::new(AccessList::Open), blocked: Arc::default() }
    }
}

/// The info hashes that are served. Read by every worker, changed by none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessList {
    /// Any.
    Open,
    /// Only these.
    Allow(OverlaySet),
    /// Any but these.
    Deny(OverlaySet),
}

impl AccessList {
    /// What is odd about it.
    pub fn warning(&self) -> Option<&'static str> {
        match self {
            Self::Deny(list) if list.is_empty() => {
                Some("access.mode is \"deny\" and the list is empty: everything is served")
            }
            Self::Allow(list) if list.is_empty() => Some(
                "access.mode is \"allow\" and the list is empty, as changes to it took the last entries off: \
                 nothing is served",
            ),
            _ => None,
        }
    }

    /// The list, where there is one.
    pub fn set(&self) -> Option<&OverlaySet> {
        match self {
            Self::Open => None,
            Self::Allow(listing) | Self::Deny(listing) => Some(listing),
        }
    }

    /// Of which kind the list is, where there is one.
    pub fn kind(&self) -> Option<ListKind> {
        match self {
            Self::Open => None,
            Self::Allow(_) => Some(ListKind::Allow),
            Self::Deny(_) => Some(ListKind::Deny),
        }
    }

    /// This list after `changes`, of which later ones count; where there is none, none.
    pub fn with(&self, changes: &[ListChange]) -> Self {
        self.map(|listing| listing.with(changes))
    }

    /// The same list in one piece. Takes as long as the list is long.
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

    /// How many info hashes are listed.
    pub fn len(&self) -> usize {
        self.set().map_or(0, OverlaySet::len)
    }

    /// Whether none is listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all info hashes are served.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether announces to this swarm are served and scrapes of it told the truth.
    #[inline]
    pub fn permits(&self, info_hash: InfoHash) -> bool {
        match self {
            Self::Open => true,
            // A copy, so that where nothing is looked up an info hash may stay in registers.
            _ => self.looks_up(info_hash),
        }
    }

    /// Reads what looking up each of these will read, with the cache misses side by side.
    pub fn prefetch(&self, names: &[&[u8; 20]]) {
        if let Some(listing) = self.set() {
            listing.prefetch(names);
        }
    }

    #[inline(never)]
    fn looks_up(&self, info_hash: InfoHash) -> bool {
        let (listing, served) = match self {
            Self::Open => return true,
            Self::Allow(listing) => (listing, true),
            Self::Deny(listing) => (listing, false),
        };
        listing.contains(&info_hash) == served
    }
}

/// Which list a change was made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The one of what is served.
    Allow,
    /// The one of what is not.
    Deny,
}

impl ListKind {
    /// As it is written, here and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}
