//! Lists of info hashes and of blocked sources: their files, and the changes made while the tracker
//! ran.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@file`] | files of entries and their comments, line by line |
//! | [`journal`] | what was added and removed, over restarts |
//! | [`shrinkage`] | a file that has lost most of its entries is refused |

pub mod file;
pub mod journal;
pub mod shrinkage;

use std::sync::Arc;

use onrush_config::Settings;
use onrush_config::settings::{Access, Listed};
use onrush_config::values::ListFile;
use onrush_tracker::access::addresses::AddressSet;
use onrush_tracker::access::origins::{OriginsBuilder, Part};
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::{InfoHashSet, sort_distinct};
use onrush_tracker::access::{AccessList, Lists};

use file::{BLOCKS, INFO_HASHES, ListError, ListFault, read_with_comments};

/// The lists that the settings describe, with the files that they name. Calls `progress` every few
/// milliseconds, as files may have hundreds of millions of lines.
///
/// # Errors
/// [`ListError`], when a file cannot be read, a line is not an entry, or nothing would be served.
/// No part of any list is then used.
pub fn load(settings: &Settings, progress: &mut dyn FnMut()) -> Result<Lists, ListError> {
    let most = settings.limits.list_entries;
    let in_file = match &settings.blocked_file {
        Some(file) => read_with_comments(file, most, &BLOCKS, progress, &mut |_, _| {})?,
        None => Vec::new(),
    };
    let access = access_list(&settings.access, most, progress)?;
    let blocked = Arc::new(AddressSet::new(in_file).with(settings.blocked.iter().copied()));
    Ok(Lists { access: Arc::new(access), blocked, ..Lists::open() })
}

/// The list of info hashes that the settings describe, with the files that they name, which may
/// have `most` entries together.
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
        Access::Allow(listed) => match (entries(listed, most, progress)?, listed.files.first()) {
            (set, Some(file)) if set.is_empty() => {
                return Err(ListFault::Empty.of(&file.path));
            }
            (set, _) => AccessList::Allow(set),
        },
        Access::Deny(listed) => AccessList::Deny(entries(listed, most, progress)?),
    })
}

/// The entries with their origins. The first part is that of the first file, of the configuration
/// itself and of changes made while the tracker runs.
fn entries(
    listed: &Listed,
    most: usize,
    progress: &mut dyn FnMut(),
) -> Result<OverlaySet, ListError> {
    let part = |file: Option<&ListFile>| Part {
        name: file.map_or("access.info_hashes".into(), |file| file.name().into()),
        error: file.and_then(|file| file.error.as_ref()).unwrap_or(&listed.error).as_str().into(),
        entries: 0,
    };
    let mut hashes: Vec<[u8; 20]> = Vec::new();
    let mut origins = OriginsBuilder::new(part(listed.files.first()));
    for (nth, file) in listed.files.iter().enumerate() {
        let number = if nth == 0 { 0 } else { origins.part(part(Some(file))) };
        let comment = &mut |hash: &[u8; 20], comment: &str| origins.entry(number, *hash, comment);
        let left = most - hashes.len();
        let read = read_with_comments(&file.path, left, &INFO_HASHES, progress, comment);
        let mut read = read.map_err(|error| match error.fault {
            // The limit is that of all files together.
            ListFault::Long { name, .. } => ListFault::Long { most, name }.of(&file.path),
            _ => error,
        })?;
        read.iter().for_each(|hash| origins.entry(number, *hash, ""));
        sort_distinct(&mut read, progress);
        origins.set_entries(number, read.len());
        if hashes.is_empty() { hashes = read } else { hashes.extend(read) }
    }
    hashes.extend(listed.hashes.iter().map(|hash| hash.0));
    let set = OverlaySet::new(InfoHashSet::with_progress(hashes, progress));
    Ok(set.with_origins(origins.build()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
        let listed =
            Listed { hashes: vec![inline], files: vec![unlabelled(&file)], ..Listed::default() };
        assert_eq!(permits(&Access::Open), [true; 3]);
        assert_eq!(permits(&Access::Allow(listed.clone())), [true, true, false]);
        assert_eq!(permits(&Access::Deny(listed)), [false, false, true]);
    }

    #[test]
    fn entries_have_the_part_and_the_comment_of_their_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String, error: Option<&str>| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            ListFile { path, error: error.map(str::to_owned) }
        };
        let [one, two, three] = [1, 2, 3].map(|n| InfoHash([n; 20]));
        let files = vec![
            file("a", format!("{one} # why\n{two}\n"), None),
            file("b", format!("# no entry\n{two}\n{three}#\n{three} # again\n"), Some("B")),
        ];
        let listed = Listed { hashes: vec![InfoHash([4; 20])], files, error: "all".to_owned() };
        let read = |most| access_list(&Access::Deny(listed.clone()), most, &mut || {});
        let list = read(5).unwrap();
        let of = |hash: InfoHash| {
            let (number, part) = list.refusing_part(&hash).unwrap();
            let comment = list.set().unwrap().comment(&hash).unwrap_or_default().to_owned();
            (number, part.name.to_string(), part.error.to_string(), comment)
        };
        let expected = |number, name: &str, error: &str, comment: &str| {
            (number, name.to_owned(), error.to_owned(), comment.to_owned())
        };
        assert_eq!(of(one), expected(0, "a", "all", "why"));
        assert_eq!(of(two), expected(1, "b", "B", ""));
        assert_eq!(of(three), expected(1, "b", "B", "again"));
        assert_eq!(of(InfoHash([4; 20])), expected(0, "a", "all", ""));
        // The limit is that of all files.
        let error = read(4).unwrap_err().to_string();
        assert!(error.contains("/b: ") && error.contains("more than 4 info hashes"), "{error}");
    }

    fn unlabelled(path: &Path) -> ListFile {
        ListFile { path: path.to_owned(), error: None }
    }

    /// A truncated file must not stop all service.
    #[test]
    fn an_empty_allow_list_is_refused_and_an_empty_deny_list_gives_a_warning() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let listed = Listed { files: vec![unlabelled(file.path())], ..Listed::default() };
        let error =
            access_list(&Access::Allow(listed.clone()), 10, &mut || {}).unwrap_err().to_string();
        assert!(error.contains("access.mode"), "{error}");
        let open = access_list(&Access::Deny(listed), 10, &mut || {}).unwrap();
        assert!(open.permits(InfoHash([1; 20])) && open.warning().is_some());
        assert_eq!(AccessList::Open.warning(), None);
    }
}
