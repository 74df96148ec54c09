//! A file of a list that is read again and has lost most of its entries is refused.

use serde::{Deserialize, Serialize};

use super::file::{BLOCKS, INFO_HASHES, ListError, ListFault};
use onrush_config::Settings;
use onrush_config::settings::Access;
use onrush_tracker::access::Lists;
use onrush_tracker::access::addresses::AddressSet;

/// The most distinct entries of each file since the last start without an upgrade, or the last
/// forced reload or upgrade. A file that is read again is compared with it, and not with the list
/// in force, which may be half of a file already, and has changes on request. It is part of a
/// handoff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryHighWaterMark {
    /// The kind of the list of info hashes: `allow` or `deny`. After a change it is another list.
    pub kind: Option<String>,
    /// The names of the files in their order, and the info hashes of each.
    pub files: Vec<(String, usize)>,
    /// Blocks of the file of blocked addresses.
    pub blocks: usize,
}

impl EntryHighWaterMark {
    /// The entries of the files of these lists.
    pub fn of(lists: &Lists) -> Self {
        let files = lists.access.parts().iter().map(|part| (part.name.to_string(), part.entries));
        Self {
            kind: lists.access.kind().map(|kind| kind.name().to_owned()),
            files: files.collect(),
            blocks: lists.blocked.blocks(),
        }
    }

    /// The numbers once lists that were `read` for `settings` are in force. Fewer blocks are no
    /// loss if they contain all addresses that are `blocked` so far, where these are known.
    ///
    /// # Errors
    /// [`ListFault::Lost`], when a file has lost more than half of its entries.
    pub fn with(
        &self,
        settings: &Settings,
        blocked: Option<&AddressSet>,
        read: &Lists,
    ) -> Result<Self, ListError> {
        let mut now = Self::of(read);
        let files = match &settings.access {
            Access::Allow(listed) | Access::Deny(listed) if self.kind == now.kind => &*listed.files,
            _ => &[],
        };
        for (nth, file) in files.iter().enumerate() {
            let most = most(&self.files, &now.files, nth);
            let (_, entries) = &mut now.files[nth];
            *entries = check(INFO_HASHES.name, most, *entries).map_err(|it| it.of(&file.path))?;
        }
        if let Some(file) = &settings.blocked_file {
            now.blocks = match check(BLOCKS.name, self.blocks, now.blocks) {
                Err(_)
                    if now.blocks > 0
                        && blocked.is_some_and(|old| read.blocked.contains_all(old)) =>
                {
                    now.blocks
                }
                most => most.map_err(|it| it.of(file))?,
            };
        }
        Ok(now)
    }
}

/// The number of entries with which the `nth` of the files is compared, from those `before`: that
/// of the file with its name, or else of the one in its place that is no longer among the files, as
/// the name of a file may have a date.
pub fn most<T>(before: &[(String, usize)], files: &[(String, T)], nth: usize) -> usize {
    let named = before.iter().find(|(name, _)| *name == files[nth].0);
    let is_gone = |name: &String| files.iter().all(|(other, _)| other != name);
    let replaced = || before.get(nth).filter(|(name, _)| is_gone(name));
    named.or_else(replaced).map_or(0, |(_, most)| *most)
}

/// The most distinct entries of a file with `most` so far and `now` at present.
///
/// # Errors
/// [`ListFault::Lost`], when the file has lost more than half of them.
pub fn check(name: &'static str, most: usize, now: usize) -> Result<usize, ListFault> {
    match now < most.div_ceil(2) {
        true => Err(ListFault::Lost { name, most, now }),
        false => Ok(most.max(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;
    use std::ffi::OsString;

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
        assert_eq!(now.blocks, 0);
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

    /// The entries of other files and of the configuration, and repeated lines, do not count.
    #[test]
    fn each_file_is_judged_alone_by_its_distinct_entries() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let read_with = |name: &str, first: &str, second: &str, blocked: &str| {
            let first_file = at(name);
            for (name, text) in [(name, first), ("second", second), ("blocked", blocked)] {
                std::fs::write(at(name), text).unwrap();
            }
            let inline: Vec<String> = (0..90).map(|n| format!("\"{:040x}\"", 1_000 + n)).collect();
            let sources: Vec<String> = (0..90).map(|n| format!("\"192.0.2.{n}\"")).collect();
            let settings = Settings::for_test(&format!(
                "[access]\nmode = \"deny\"\ninfo_hashes = [{}]\nfiles = [{:?}, {:?}]\n\
                 blocked = [{}]\nblocked_file = {:?}\n",
                inline.join(", "),
                first_file,
                at("second"),
                sources.join(", "),
                at("blocked")
            ));
            let lists = load(&settings, &mut || {}).unwrap();
            (settings, lists)
        };
        let read =
            |first: &str, second: &str, blocked: &str| read_with("first", first, second, blocked);
        let hashes = |from: usize, number: usize| -> String {
            (from..from + number).map(|n| format!("{n:040x}\n")).collect()
        };
        let (twenty, forty) = (hashes(0, 20), hashes(20, 40));
        let (_, before) = read(&twenty, &forty, &singles(40));
        let most = EntryHighWaterMark::of(&before);
        let loss = |first: &str, second: &str, blocked: &str| {
            let (settings, read) = read(first, second, blocked);
            lost(most.with(&settings, Some(&before.blocked), &read))
        };
        let singles_of = singles(40);
        assert_eq!(loss(&hashes(0, 10), &hashes(20, 20), &singles_of), None);
        assert_eq!(loss("", &forty, &singles_of), Some(("first".into(), 20, 0)));
        assert_eq!(loss(&twenty, &hashes(0, 19), &singles_of), Some(("second".into(), 40, 19)));
        // Another file in place of the first one.
        let renamed = |number: usize| {
            let (settings, read) = read_with("new", &hashes(0, number), &forty, &singles_of);
            lost(most.with(&settings, Some(&before.blocked), &read))
        };
        assert_eq!((renamed(10), renamed(9)), (None, Some(("new".into(), 20, 9))));
        let repeated = hashes(0, 1).repeat(20);
        assert_eq!(loss(&repeated, &forty, &singles_of), Some(("first".into(), 20, 1)));
        let repeated = "10.0.0.1\n".repeat(40);
        assert_eq!(loss(&twenty, &forty, &repeated), Some(("blocked".into(), 40, 1)));
        assert_eq!(loss(&twenty, &forty, ""), Some(("blocked".into(), 40, 0)));
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
}
