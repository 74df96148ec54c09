//! Which info hashes are served, and which sources are not.
//!
//! | room | what is in it |
//! |---|---|
//! | [`hash_list`] | millions of info hashes, compact and quick to look up |
//! | [`listing`] | such a list, and what was added and removed since it was read |
//! | [`list_file`] | files of info hashes, line by line |
//! | [`journal`] | what was added and removed, over restarts |
//! | [`blocks`] | sources that are not served, by blocks of addresses |
//! | [`bogon`] | addresses that cannot be peers on the internet |

pub mod blocks;
pub mod bogon;
pub mod hash_list;
pub mod journal;
pub mod list_file;
pub mod listing;

use std::sync::Arc;

use onrush_proto::InfoHash;

pub use bogon::is_bogon;
pub(crate) use bogon::{is_bogon_v4, is_bogon_v6};

use crate::settings::{Access, Blocked, Listed, Settings};
use blocks::{BLOCKS, BlockList};
use hash_list::HashList;
use journal::Kind;
use list_file::{INFO_HASHES, ListError};
use listing::{Change, Listing};

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

    /// The lists that the settings describe, with the files that they name.
    ///
    /// # Errors
    /// [`ListError`], when a file cannot be read, something in it is no entry, or nothing would be served. No
    /// part of any list is then used.
    pub fn load(settings: &Settings) -> Result<Self, ListError> {
        let most = settings.limits.list_entries;
        let Blocked { blocks, file } = &settings.blocked;
        let mut blocks = blocks.clone();
        if let Some(file) = file {
            blocks.extend(list_file::read(file, most, &BLOCKS)?);
        }
        let access = AccessList::load(&settings.access, most)?;
        Ok(Self { access: Arc::new(access), blocked: Arc::new(BlockList::new(blocks)) })
    }
}

/// The info hashes that are served. Read by every worker, changed by none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessList {
    /// Any.
    Open,
    /// Only these.
    Allow(Listing),
    /// Any but these.
    Deny(Listing),
}

impl AccessList {
    /// The list that the settings describe, with the file that they name, which may have `most`
    /// entries.
    ///
    /// # Errors
    /// [`ListError`], when the file cannot be read, something in it is no info hash, or nothing would be
    /// served. No part of it is then used.
    pub fn load(access: &Access, most: usize) -> Result<Self, ListError> {
        Ok(match access {
            Access::Open => Self::Open,
            Access::Allow(listed) => match (hashes(listed, most)?, &listed.file) {
                (hashes, Some(file)) if hashes.is_empty() => {
                    return Err(ListError::Empty { path: file.clone() });
                }
                (hashes, _) => Self::Allow(Listing::new(hashes)),
            },
            Access::Deny(listed) => Self::Deny(Listing::new(hashes(listed, most)?)),
        })
    }

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
    pub fn listing(&self) -> Option<&Listing> {
        match self {
            Self::Open => None,
            Self::Allow(listing) | Self::Deny(listing) => Some(listing),
        }
    }

    /// Of which kind the list is, where there is one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Open => None,
            Self::Allow(_) => Some(Kind::Allow),
            Self::Deny(_) => Some(Kind::Deny),
        }
    }

    /// This list after `changes`, of which later ones count; where there is none, none.
    pub fn with(&self, changes: &[Change]) -> Self {
        self.map(|listing| listing.with(changes))
    }

    /// The same list in one piece. Takes as long as the list is long.
    pub fn merged(&self) -> Self {
        self.map(Listing::merged)
    }

    fn map(&self, change: impl FnOnce(&Listing) -> Listing) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Allow(listing) => Self::Allow(change(listing)),
            Self::Deny(listing) => Self::Deny(change(listing)),
        }
    }

    /// How many info hashes are listed.
    pub fn len(&self) -> usize {
        self.listing().map_or(0, Listing::len)
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
    pub fn look_ahead(&self, names: &[&[u8; 20]]) {
        if let Some(listing) = self.listing() {
            listing.look_ahead(names);
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

fn hashes(listed: &Listed, most: usize) -> Result<HashList, ListError> {
    let mut hashes = match &listed.file {
        Some(file) => list_file::read(file, most, &INFO_HASHES)?,
        None => Vec::new(),
    };
    hashes.extend(listed.hashes.iter().map(|hash| hash.0));
    Ok(HashList::new(hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_permit_what_they_say() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        std::fs::write(&file, "03".repeat(20)).unwrap();
        let (inline, in_file, other) = (InfoHash([1; 20]), InfoHash([3; 20]), InfoHash([2; 20]));
        let permits = |access: &Access| {
            let list = AccessList::load(access, 10).unwrap();
            [inline, in_file, other].map(|hash| list.permits(hash))
        };
        let listed = Listed { hashes: vec![inline], file: Some(file) };
        assert_eq!(permits(&Access::Open), [true; 3]);
        assert_eq!(permits(&Access::Allow(listed.clone())), [true, true, false]);
        assert_eq!(permits(&Access::Deny(listed)), [false, false, true]);
    }

    /// A file that something has emptied must not end all service.
    #[test]
    fn an_allow_list_of_nothing_is_refused_and_a_deny_list_of_nothing_warned_of() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listed = Listed { hashes: Vec::new(), file: Some(file.path().to_owned()) };
        let error = AccessList::load(&Access::Allow(listed.clone()), 10).unwrap_err().to_string();
        assert!(error.contains("nothing would be served"), "{error}");
        let open = AccessList::load(&Access::Deny(listed), 10).unwrap();
        assert!(open.permits(InfoHash([1; 20])) && open.warning().is_some());
        assert_eq!(AccessList::Open.warning(), None);
    }
}
