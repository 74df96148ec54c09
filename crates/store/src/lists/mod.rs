//! Lists of info hashes and of blocked sources: their files, and the changes made while the tracker
//! ran.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@file`] | files of entries, line by line |
//! | [`journal`] | what was added and removed, over restarts |

pub mod file;
pub mod journal;

use std::path::PathBuf;
use std::sync::Arc;

use onrush_config::Settings;
use onrush_config::settings::{Access, Blocked, Listed};
use onrush_tracker::access::addresses::AddressSet;
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
    Ok(Lists { access: Arc::new(access), blocked: Arc::new(AddressSet::new(blocks)) })
}

/// Checks lists that were read for `settings` against those in `force`.
///
/// # Errors
/// [`ListError::Lost`], when a list with a file lost more than half of its entries.
pub fn check_losses(settings: &Settings, force: &Lists, read: &Lists) -> Result<(), ListError> {
    let check = |file: Option<&PathBuf>, name, before: usize, now: usize| match file {
        Some(file) if now < before.div_ceil(2) => {
            Err(ListError::Lost { path: file.clone(), name, before, now })
        }
        _ => Ok(()),
    };
    let file = match &settings.access {
        Access::Allow(listed) | Access::Deny(listed) => listed.file.as_ref(),
        Access::Open => None,
    };
    // After a change of the mode the list is another one.
    if read.access.kind() == force.access.kind() {
        check(file, INFO_HASHES.name, force.access.len(), read.access.len())?;
    }
    let ranges = [&force.blocked, &read.blocked].map(|list| list.len());
    check(settings.blocked.file.as_ref(), "address ranges", ranges[0], ranges[1])
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

    #[test]
    fn a_list_that_lost_more_than_half_of_its_entries_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let lists = |mode: &str, hashes: usize, blocks: usize| {
            let lines = |of: fn(usize) -> String, number| (0..number).map(of).collect::<String>();
            std::fs::write(at("hashes"), lines(|n| format!("{n:040x}\n"), hashes)).unwrap();
            std::fs::write(at("blocks"), lines(|n| format!("10.0.{n}.1\n"), blocks)).unwrap();
            let text = format!(
                "[access]\nmode = \"{mode}\"\nfile = {:?}\nblocked_file = {:?}\n",
                at("hashes"),
                at("blocks")
            );
            let settings = Settings::for_test(&text);
            let lists = load(&settings, &mut || {}).unwrap();
            (settings, lists)
        };
        let loss = |from: (&str, usize, usize), to: (&str, usize, usize)| {
            let (_, force) = lists(from.0, from.1, from.2);
            let (settings, read) = lists(to.0, to.1, to.2);
            match check_losses(&settings, &force, &read) {
                Ok(()) => None,
                Err(ListError::Lost { path, before, now, .. }) => {
                    Some((path.file_name().unwrap().to_owned(), before, now))
                }
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(loss(("deny", 100, 100), ("deny", 50, 50)), None);
        assert_eq!(loss(("deny", 100, 9), ("deny", 49, 0)), Some(("hashes".into(), 100, 49)));
        assert_eq!(loss(("allow", 101, 9), ("allow", 50, 0)), Some(("hashes".into(), 101, 50)));
        assert_eq!(loss(("deny", 100, 120), ("deny", 900, 0)), Some(("blocks".into(), 120, 0)));
        assert_eq!(loss(("deny", 1, 9), ("deny", 0, 9)), Some(("hashes".into(), 1, 0)));
        // Another list.
        assert_eq!(loss(("deny", 900, 9), ("allow", 1, 9)), None);
        // Without files the configuration says what is meant.
        let (_, force) = lists("deny", 900, 200);
        let settings = Settings::for_test("[access]\nmode = \"deny\"\n");
        let read = load(&settings, &mut || {}).unwrap();
        assert!(check_losses(&settings, &force, &read).is_ok());
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
