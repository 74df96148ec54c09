//! Lists of info hashes and of blocked sources: their files, and the changes made while the tracker
//! ran.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@file`] | files of entries, line by line |
//! | [`journal`] | what was added and removed, over restarts |

pub mod file;
pub mod journal;

use std::sync::Arc;

use onrush_config::Settings;
use onrush_config::settings::{Access, Blocked, Listed};
use onrush_tracker::access::blocks::BlockList;
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::InfoHashSet;
use onrush_tracker::access::{AccessList, Lists};

use file::{BLOCKS, INFO_HASHES, ListError};

/// The lists that the settings describe, with the files that they name. Calls `progress` every few
/// milliseconds, as files may have hundreds of millions of lines.
///
/// # Errors
/// [`ListError`], when a file cannot be read, a line is not an entry, or nothing would be served.
/// No part of any list is then used.
pub fn load(settings: &Settings, progress: &mut dyn FnMut()) -> Result<Lists, ListError> {
    let most = settings.limits.list_entries;
    let Blocked { blocks, file } = &settings.blocked;
    let mut blocks = blocks.clone();
    if let Some(file) = file {
        blocks.extend(file::read(file, most, &BLOCKS, progress)?);
    }
    let access = access_list(&settings.access, most, progress)?;
    Ok(Lists { access: Arc::new(access), blocked: Arc::new(BlockList::new(blocks)) })
}

/// The list of info hashes that the settings describe, with the file that they name, which may have
/// `most` entries.
///
/// # Errors
/// As [`load`].
pub fn access_list(
    access: &Access,
    most: usize,
    progress: &mut dyn FnMut(),
) -> Result<AccessList, ListError> {
    Ok(match access {
        Access::Open => AccessList::Open,
        Access::Allow(listed) => match (hashes(listed, most, progress)?, &listed.file) {
            (hashes, Some(file)) if hashes.is_empty() => {
                return Err(ListError::Empty { path: file.clone() });
            }
            (hashes, _) => AccessList::Allow(OverlaySet::new(hashes)),
        },
        Access::Deny(listed) => AccessList::Deny(OverlaySet::new(hashes(listed, most, progress)?)),
    })
}

fn hashes(
    listed: &Listed,
    most: usize,
    progress: &mut dyn FnMut(),
) -> Result<InfoHashSet, ListError> {
    let mut hashes = match &listed.file {
        Some(file) => file::read(file, most, &INFO_HASHES, progress)?,
        None => Vec::new(),
    };
    hashes.extend(listed.hashes.iter().map(|hash| hash.0));
    Ok(InfoHashSet::with_progress(hashes, progress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::InfoHash;

    #[test]
    fn lists_permit_and_refuse_their_entries() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("list");
        std::fs::write(&file, "03".repeat(20)).unwrap();
        let (inline, in_file, other) = (InfoHash([1; 20]), InfoHash([3; 20]), InfoHash([2; 20]));
        let permits = |access: &Access| {
            let list = access_list(access, 10, &mut || {}).unwrap();
            [inline, in_file, other].map(|hash| list.permits(hash))
        };
        let listed = Listed { hashes: vec![inline], file: Some(file) };
        assert_eq!(permits(&Access::Open), [true; 3]);
        assert_eq!(permits(&Access::Allow(listed.clone())), [true, true, false]);
        assert_eq!(permits(&Access::Deny(listed)), [false, false, true]);
    }

    /// A truncated file must not stop all service.
    #[test]
    fn an_empty_allow_list_is_refused_and_an_empty_deny_list_gives_a_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listed = Listed { hashes: Vec::new(), file: Some(file.path().to_owned()) };
        let error =
            access_list(&Access::Allow(listed.clone()), 10, &mut || {}).unwrap_err().to_string();
        assert!(error.contains("access.mode"), "{error}");
        let open = access_list(&Access::Deny(listed), 10, &mut || {}).unwrap();
        assert!(open.permits(InfoHash([1; 20])) && open.warning().is_some());
        assert_eq!(AccessList::Open.warning(), None);
    }
}
