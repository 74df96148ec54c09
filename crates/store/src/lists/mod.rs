//! Lists of info hashes and of blocked sources: their files, and the changes made while the tracker
//! ran.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@file`] | files of entries and their comments, line by line |
//! | [`journal`] | what was added and removed, over restarts |

pub mod file;
pub mod journal;

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use onrush_config::Settings;
use onrush_config::settings::{Access, Listed};
use onrush_config::values::ListFile;
use onrush_tracker::access::addresses::AddressSet;
use onrush_tracker::access::origins::{OriginsBuilder, Part};
use onrush_tracker::access::overlay::OverlaySet;
use onrush_tracker::access::set::InfoHashSet;
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
    let (blocks, file) = (&settings.blocked, &settings.blocked_file);
    let mut blocks = blocks.clone();
    if let Some(file) = file {
        blocks.extend(read_with_comments(file, most, &BLOCKS, progress, &mut |_, _| {})?);
    }
    let access = access_list(&settings.access, most, progress)?;
    let blocked = Arc::new(AddressSet::new(blocks));
    Ok(Lists { access: Arc::new(access), blocked, ..Lists::open() })
}

/// The most entries of each list since the last start without an upgrade, or the last forced reload
/// or upgrade. A list that is read again is compared with it, and not with the one in force, which
/// may be half of a file already. It is part of a handoff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryHighWaterMark {
    /// The kind of the list of info hashes: `allow` or `deny`. After a change it is another list.
    pub kind: Option<String>,
    /// Info hashes.
    pub info_hashes: usize,
    /// Blocks of blocked addresses.
    pub blocks: usize,
}

impl EntryHighWaterMark {
    /// The entries of these lists.
    pub fn of(lists: &Lists) -> Self {
        Self {
            kind: lists.access.kind().map(|kind| kind.name().to_owned()),
            info_hashes: lists.access.len(),
            blocks: lists.blocked.blocks(),
        }
    }

    /// The numbers once lists that were `read` for `settings` are in force. Fewer blocks are no
    /// loss if they contain all addresses that are `blocked` so far, where these are known.
    ///
    /// # Errors
    /// [`ListFault::Lost`], when a list with a file has lost more than half of its entries.
    pub fn with(
        &self,
        settings: &Settings,
        blocked: Option<&AddressSet>,
        read: &Lists,
    ) -> Result<Self, ListError> {
        let now = Self::of(read);
        let file = match &settings.access {
            Access::Allow(listed) | Access::Deny(listed) => listed.files.first(),
            Access::Open => None,
        };
        let file = file.filter(|_| self.kind == now.kind).map(|file| &file.path);
        let info_hashes = most(file, INFO_HASHES.name, self.info_hashes, now.info_hashes)?;
        let file = settings.blocked_file.as_ref();
        let blocks = match most(file, BLOCKS.name, self.blocks, now.blocks) {
            Err(_) if blocked.is_some_and(|old| read.blocked.contains_all(old)) => now.blocks,
            most => most?,
        };
        Ok(Self { kind: now.kind, info_hashes, blocks })
    }

    /// Follows a list of info hashes that was changed on request from `before` entries to `now`.
    pub fn follow_change(&mut self, before: usize, now: usize) {
        self.info_hashes = (self.info_hashes + now).saturating_sub(before);
    }
}

/// The most entries of a list with `most` so far and `now` at present. Without a file the
/// configuration has the intended entries.
fn most(
    file: Option<&PathBuf>,
    name: &'static str,
    most: usize,
    now: usize,
) -> Result<usize, ListError> {
    match file {
        None => Ok(now),
        Some(file) if now < most.div_ceil(2) => Err(ListFault::Lost { name, most, now }.of(file)),
        Some(_) => Ok(most.max(now)),
    }
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
    };
    let mut hashes: Vec<[u8; 20]> = Vec::new();
    let mut origins = OriginsBuilder::new(part(listed.files.first()));
    for (nth, file) in listed.files.iter().enumerate() {
        let number = if nth == 0 { 0 } else { origins.part(part(Some(file))) };
        let comment = &mut |hash: &[u8; 20], comment: &str| origins.entry(number, *hash, comment);
        let left = most - hashes.len();
        let read = read_with_comments(&file.path, left, &INFO_HASHES, progress, comment);
        let read = read.map_err(|error| match error.fault {
            // The limit is that of all files together.
            ListFault::Long { name, .. } => ListFault::Long { most, name }.of(&file.path),
            _ => error,
        })?;
        read.iter().for_each(|hash| origins.entry(number, *hash, ""));
        if hashes.is_empty() { hashes = read } else { hashes.extend(read) }
    }
    hashes.extend(listed.hashes.iter().map(|hash| hash.0));
    let set = OverlaySet::new(InfoHashSet::with_progress(hashes, progress));
    Ok(set.with_origins(origins.build()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
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

    #[test]
    fn a_list_that_lost_more_than_half_of_its_entries_is_refused() {
        let loss = |from: (&str, usize, usize), to: (&str, usize, usize)| {
            let [from, to] =
                [from, to].map(|(mode, hashes, blocks)| lists(mode, hashes, &singles(blocks)));
            lost(EntryHighWaterMark::of(&from.1).with(&to.0, Some(&from.1.blocked), &to.1))
        };
        assert_eq!(loss(("deny", 100, 100), ("deny", 50, 50)), None);
        assert_eq!(loss(("deny", 100, 9), ("deny", 49, 0)), Some(("hashes".into(), 100, 49)));
        assert_eq!(loss(("allow", 101, 9), ("allow", 50, 0)), Some(("hashes".into(), 101, 50)));
        assert_eq!(loss(("deny", 100, 120), ("deny", 900, 0)), Some(("blocks".into(), 120, 0)));
        assert_eq!(loss(("deny", 1, 9), ("deny", 0, 9)), Some(("hashes".into(), 1, 0)));
        // Another list.
        assert_eq!(loss(("deny", 900, 9), ("allow", 1, 9)), None);
        // Without files the configuration has the intended entries.
        let (_, force) = lists("deny", 900, &singles(200));
        let settings = Settings::for_test("[access]\nmode = \"deny\"\n");
        let read = load(&settings, &mut || {}).unwrap();
        let now = EntryHighWaterMark::of(&force).with(&settings, None, &read).unwrap();
        assert_eq!((now.info_hashes, now.blocks), (0, 0));
    }

    #[test]
    fn repeated_reloads_do_not_halve_a_list_each_time() {
        let (_, mut force) = lists("deny", 100, &singles(100));
        let mut most = EntryHighWaterMark::of(&force);
        let mut reload = |hashes, blocks| {
            let (settings, read) = lists("deny", hashes, &singles(blocks));
            let with = most.with(&settings, Some(&force.blocked), &read);
            if let Ok(with) = &with {
                (most, force) = (with.clone(), read);
            }
            lost(with)
        };
        assert_eq!(reload(50, 60), None);
        assert_eq!(reload(49, 60), Some(("hashes".into(), 100, 49)));
        assert_eq!(reload(50, 49), Some(("blocks".into(), 100, 49)));
        // A refused length is forgotten; an accepted and larger one counts.
        assert_eq!(reload(120, 50), None);
        assert_eq!(reload(59, 50), Some(("hashes".into(), 120, 59)));
        // Entries that were removed on request are not lost.
        most.follow_change(120, 80);
        let (settings, read) = lists("deny", 41, &singles(50));
        assert_eq!(lost(most.with(&settings, Some(&force.blocked), &read)), None);
    }

    /// The first part of a file of ranges is a loss, and so is a part with its widest range.
    #[test]
    fn blocked_sources_may_be_rewritten_as_ranges() {
        let (_, force) = lists("deny", 1, &singles(200));
        let most = EntryHighWaterMark::of(&force);
        let with = |blocks: &str| {
            let (settings, read) = lists("deny", 1, blocks);
            most.with(&settings, Some(&force.blocked), &read)
        };
        assert_eq!(with("10.0.0.0/24\n").unwrap().blocks, 1);
        assert_eq!(with("10.0.0.0-10.0.0.199\n2001:db8::/32\n").unwrap().blocks, 2);
        assert_eq!(lost(with("10.0.0.0/25\n")), Some(("blocks".into(), 200, 1)));
        let wide = format!("11.0.0.0/8\n{}", singles(98));
        assert_eq!(lost(with(&wide)), Some(("blocks".into(), 200, 99)));
    }

    fn unlabelled(path: &Path) -> ListFile {
        ListFile { path: path.to_owned(), error: None }
    }

    /// Settings and lists with this many info hashes and these blocks in files.
    fn lists(mode: &str, hashes: usize, blocks: &str) -> (Settings, Lists) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let hashes: String = (0..hashes).map(|n| format!("{n:040x}\n")).collect();
        std::fs::write(at("hashes"), hashes).unwrap();
        std::fs::write(at("blocks"), blocks).unwrap();
        let (file, blocked) = (at("hashes"), at("blocks"));
        let settings = Settings::for_test(&format!(
            "[access]\nmode = \"{mode}\"\nfiles = [{file:?}]\nblocked_file = {blocked:?}\n"
        ));
        let lists = load(&settings, &mut || {}).unwrap();
        (settings, lists)
    }

    /// Lines of this many addresses, one after the other.
    fn singles(number: usize) -> String {
        (0..number).map(|n| format!("10.0.0.{n}\n")).collect()
    }

    /// The file whose list was refused, and the numbers of the error.
    fn lost(with: Result<EntryHighWaterMark, ListError>) -> Option<(OsString, usize, usize)> {
        match with {
            Ok(_) => None,
            Err(ListError { path, fault: ListFault::Lost { most, now, .. } }) => {
                Some((path.file_name().unwrap().to_owned(), most, now))
            }
            Err(other) => panic!("{other}"),
        }
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
