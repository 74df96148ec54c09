//! `onrush ctl list`: actions on the list of info hashes, and their replies as text.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use onrush_proto::InfoHash;

use super::format::aligned;
use onrush_control::api::admin::{
    ChangedEntry, ListChanges, ListCheck, ListEntry, ListReport, ListUpdate,
};
use onrush_control::client::ClientError;
use onrush_store::lists::file::{
    INFO_HASHES, ListError, ListFault, read_stream, read_with_comments,
};
use onrush_text::numbers::grouped;
use onrush_text::times::{date, date_time};

/// Bytes of lines per request: well under the default of admin.max_body.
const CHUNK: usize = 400_000;

/// Actions on the list of info hashes.
#[derive(Clone, Debug, Subcommand)]
pub enum List {
    /// Show its mode, length and refusals, or whether and why an info hash is listed
    Show {
        /// 40 hexadecimal digits or 32 base32 characters
        info_hash: Option<String>,
    },
    /// Add info hashes, immediately and permanently
    Add {
        /// The info hashes.
        #[command(flatten)]
        named: Named,
        /// Why, with a reference: kept with the entries behind today's date
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Remove info hashes, immediately and permanently
    Remove(Named),
    /// Show all changes that the list's files do not have: when, by whom, and whether they override
    /// a file, as the removal of its entry does
    Changes,
    /// Drop changes immediately: these info hashes are again as the list's files say
    Reset(Named),
    /// Print the list in force, one info hash per line, with its comment
    Export,
    /// Show what a reload would change if these files were access.files: entries, swarms removed,
    /// and whether it would refuse them (exit status 1)
    Check {
        /// The files, in the format of access.files; - is standard input, and pipes are read, too
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Check them as a list of this mode, like the first one [default: the mode in force]
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(["allow", "deny"]))]
        mode: Option<String>,
    },
}

/// Info hashes as arguments or from a file.
#[derive(Clone, Debug, clap::Args)]
pub struct Named {
    /// 40 hexadecimal digits or 32 base32 characters
    #[arg(required_unless_present = "file")]
    pub info_hashes: Vec<String>,
    /// Read them from a file, one per line, # starts a comment; - is standard input. They are sent
    /// in chunks of 400 kB: if one fails, those before it are applied
    #[arg(long, value_name = "FILE", conflicts_with = "info_hashes")]
    pub file: Option<PathBuf>,
}

impl Named {
    /// All info hashes in chunks for one request each, with the comments of the file. Others get
    /// the `reason`, if there is one, behind the date of today, `now` in seconds since 1970.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not an info hash.
    pub fn chunks(&self, reason: Option<&str>, now: u64) -> Result<Vec<Vec<String>>, ClientError> {
        let mut comments = HashMap::new();
        let hashes = match &self.file {
            None => self.info_hashes.clone(),
            Some(file) => {
                let hashes = read_list(file, &mut |hash, comment| {
                    comments.insert(InfoHash(*hash).to_string(), comment.to_owned());
                })?;
                hashes.into_iter().map(|hash| InfoHash(hash).to_string()).collect()
            }
        };
        let reason = reason.map(|reason| format!("{} {reason}", date(now)));
        let (mut chunks, mut chunk, mut bytes) = (Vec::new(), Vec::new(), 0);
        for hash in hashes {
            let line = match comments.get(&hash).or(reason.as_ref()) {
                Some(comment) => format!("{hash} # {comment}"),
                None => hash,
            };
            if bytes + line.len() > CHUNK {
                chunks.push(std::mem::take(&mut chunk));
                bytes = 0;
            }
            bytes += line.len();
            chunk.push(line);
        }
        chunks.extend(Some(chunk).filter(|chunk| !chunk.is_empty()));
        Ok(chunks)
    }
}

/// The info hashes of a file or pipe; - is standard input. Calls `comment` for each that has one.
///
/// # Errors
/// When the file cannot be read, or a line is not an info hash.
pub fn read_list(
    path: &Path,
    comment: &mut dyn FnMut(&[u8; 20], &str),
) -> Result<Vec<[u8; 20]>, ClientError> {
    let read = if path.as_os_str() == "-" {
        let input = std::io::stdin().lock();
        read_stream(input, "standard input".as_ref(), &INFO_HASHES, comment)
    } else if path.metadata().is_ok_and(|it| it.file_type().is_fifo()) {
        let unreadable = |error| ListError { path: path.to_owned(), fault: ListFault::Read(error) };
        let pipe = File::open(path).map_err(unreadable);
        pipe.and_then(|pipe| read_stream(pipe, path, &INFO_HASHES, comment))
    } else {
        read_with_comments(path, usize::MAX, &INFO_HASHES, &mut || {}, comment)
    };
    read.map_err(|error| ClientError::Usage(format!("onrush: {error}\n")))
}

/// The query by which the tracker finds each of these files in the request for a check.
pub fn files_query(files: &[(&Path, usize)]) -> String {
    let file = |(path, entries): &(&Path, usize)| {
        let mut text = String::new();
        for byte in path.file_name().unwrap_or_default().as_encoded_bytes() {
            match byte.is_ascii_alphanumeric() || b"-._".contains(byte) {
                true => text.push(char::from(*byte)),
                false => drop(write!(text, "%{byte:02X}")),
            }
        }
        format!("{text}:{entries}")
    };
    files.iter().map(file).collect::<Vec<_>>().join("/")
}

/// Changes that other files of the list would make.
pub fn check(check: &ListCheck) -> String {
    let ListCheck { mode, entries, added, removed, swarms, peers, examined, .. } = check;
    let [entries, added, removed] = [entries, added, removed].map(|number| grouped(*number));
    let [swarms, examined, peers] = [swarms, examined, peers].map(|number| grouped(*number));
    let mut text = aligned(&[
        ("list", format!("{mode}, {entries} info hashes: {added} added, {removed} removed")),
        ("removes", format!("{swarms} of {examined} swarms, with {peers} peers")),
    ]);
    check.overrides.iter().for_each(|it| text.push_str(&format!("note: {it}\n")));
    check.refused.iter().for_each(|why| text.push_str(&format!("{why}\n")));
    text
}

/// The mode and length of the list, and what its parts have refused.
pub fn report(report: &ListReport) -> String {
    let list = &report.list;
    let entries = grouped(list.entries);
    let what = match list.mode.as_str() {
        "open" => "no list, every info hash is served".to_owned(),
        "allow" if list.entries == 1 => "only the 1 listed info hash is served".to_owned(),
        "allow" => format!("only the {entries} listed info hashes are served"),
        _ if list.entries == 1 => "every info hash except the 1 listed one is served".to_owned(),
        _ => format!("every info hash except the {entries} listed ones is served"),
    };
    let overrides = match list.overrides {
        0 => String::new(),
        some => format!("; overridden entries of its files: {}", grouped(some)),
    };
    let published = if list.published { "; it is published at /lists" } else { "" };
    let mut text = format!("{}: {what}{overrides}{published}\n", list.mode);
    if report.parts.is_empty() {
        return text;
    }
    let width = report.parts.iter().map(|part| part.name.len()).max().unwrap_or(0).max(7);
    let mut line = |name: &str, refused: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "{name:<width$} {refused:>15}");
    };
    line("refused", "since the start");
    report.parts.iter().for_each(|part| line(&part.name, &grouped(part.refused)));
    text
}

/// The state of one info hash: listed or not, served or not, and why.
pub fn entry(entry: &ListEntry) -> String {
    let ListEntry { info_hash, listed, served, comment, refused_by, change } = entry;
    let listed = if *listed { "listed" } else { "not listed" };
    let served = if *served { "served" } else { "not served" };
    let by = refused_by.as_ref().map(|list| format!(" ({list})")).unwrap_or_default();
    let comment = comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
    let overriding = change.as_ref().filter(|change| !change.listed);
    let overriding = overriding
        .map(|change| format!("; {change}, overrides a file: onrush ctl list reset"))
        .unwrap_or_default();
    format!("{info_hash} is {listed}, and {served}{by}{comment}{overriding}\n")
}

/// All changes, as a table.
pub fn changes(all: &ListChanges) -> String {
    let mut text = format!("{:<40} {:<25} {:<20} by\n", "info hash", "change", "time");
    for ChangedEntry { info_hash, listed, time, by, comment } in &all.changes {
        let change = if *listed { "added" } else { "removed, overrides a file" };
        let time = time.map_or_else(|| "unknown".to_owned(), date_time);
        let by = by.as_deref().unwrap_or("unknown");
        let comment = comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{info_hash} {change:<25} {time:<20} {by}{comment}");
    }
    let [total, overrides] = [all.total, all.overrides].map(grouped);
    let _ = writeln!(text, "changes: {total}; of them override a file: {overrides}");
    text
}

/// The result of a change of the list.
pub fn changed(changed: &ListUpdate) -> String {
    let ListUpdate { mode, entries, changed, lasting, unrecorded } = changed;
    let until = match unrecorded {
        Some(why) => format!("; in force until the restart or the next upgrade: {why}"),
        None if *lasting => String::new(),
        None => "; lost at the next restart, as there is no state directory".to_owned(),
    };
    format!("{changed} changed; the {mode} list has {entries} info hashes{until}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_control::api::admin::ListPart;
    use onrush_control::api::stats::ListState;

    /// The 23rd of November 2026, 14:00 UTC.
    const NOW: u64 = 1_795_442_400;

    #[test]
    fn each_part_has_its_refused_announces() {
        let list = ListState { mode: "deny".to_owned(), entries: 2_990, ..ListState::default() };
        let part = |name: &str, refused| ListPart { name: name.to_owned(), refused };
        let parts = vec![part("abuse.txt", 12_345), part("court.txt", 3)];
        assert_eq!(
            report(&ListReport { list, parts }),
            "\
deny: every info hash except the 2,990 listed ones is served
refused   since the start
abuse.txt          12,345
court.txt               3
"
        );
        let open = ListReport { list: ListState::default(), parts: Vec::new() };
        assert_eq!(report(&open).lines().count(), 1);
    }

    #[test]
    fn lines_get_the_reason_unless_they_have_a_comment() {
        let (one, two) = ("01".repeat(20), "02".repeat(20));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, format!("{one} # 2025-01-01 why\n{two}\n")).unwrap();
        let named = Named { info_hashes: Vec::new(), file: Some(file.path().to_owned()) };
        let lines = named.chunks(Some("ticket 7"), NOW).unwrap().concat();
        let expected = [format!("{one} # 2025-01-01 why"), format!("{two} # 2026-11-23 ticket 7")];
        assert_eq!(lines, expected);
        let named = Named { info_hashes: vec![one.clone()], file: None };
        assert_eq!(named.chunks(None, NOW).unwrap(), [[one]]);
    }

    #[test]
    fn a_query_has_the_encoded_name_and_the_length_of_each_file() {
        let files = [(Path::new("/x/a b:ü.txt"), 2), (Path::new("-"), 0)];
        assert_eq!(files_query(&files), "a%20b%3A%C3%BC.txt:2/-:0");
    }

    #[test]
    fn long_files_are_sent_in_chunks() {
        let named = Named { info_hashes: vec!["0".repeat(40); 25_000], file: None };
        let lengths: Vec<usize> = named.chunks(None, NOW).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [10_000, 10_000, 5_000]);
    }
}
