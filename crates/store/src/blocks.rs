//! Blocks of sources that were made while the tracker ran: JSON in the state directory, so that
//! they survive a restart and an upgrade until they expire.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::damaged_file::set_aside;
use crate::{atomic_file, state_file};
use onrush_tracker::access::addresses::network;
use onrush_tracker::access::blocks::IpNet;

/// The file's name in the state directory.
pub const FILE: &str = "blocks.json";
/// Blocks at most. Longer lists belong into `access.blocked_file`.
pub const MAX_BLOCKS: usize = 10_000;
/// Characters of a reason at most.
pub const MAX_REASON: usize = 200;
/// The longest duration of a block in seconds: ten years. Without a duration it does not end.
pub const MAX_SECONDS: u64 = 10 * 365 * 86_400;

/// Permissions of the file.
const MODE: u32 = 0o600;
/// Bytes of a valid file at most: [`MAX_BLOCKS`] with the longest reasons.
const MAX_LENGTH: u64 = 20 << 20;
/// Bits of the widest prefix that is blocked without force.
const WIDEST: [(bool, u8); 2] = [(true, 8), (false, 16)];

/// A block of sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The sources. Bits behind the prefix are zero.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub prefix: IpNet,
    /// When it was made, in seconds since 1970.
    pub since: u64,
    /// How long it lasts from then on, in seconds; without end if `None`.
    pub seconds: Option<u64>,
    /// The reason given by its author; may be empty.
    pub reason: String,
    /// Its author.
    pub by: String,
}

fn as_text<S: Serializer>(prefix: &IpNet, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(prefix)
}

fn from_text<'de, D: Deserializer<'de>>(from: D) -> Result<IpNet, D::Error> {
    network(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl Block {
    /// Checks duration and texts.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn check(&self) -> Result<(), String> {
        if self.seconds.is_some_and(|seconds| seconds == 0 || seconds > MAX_SECONDS) {
            return Err(format!(
                "a block lasts from 1 s to {MAX_SECONDS} s (ten years), or without a duration \
                 until it is removed"
            ));
        }
        for (name, text) in [("reason", &self.reason), ("by", &self.by)] {
            if text.chars().count() > MAX_REASON {
                return Err(format!("the {name} has more than {MAX_REASON} characters"));
            }
            if text.chars().any(char::is_control) {
                return Err(format!("the {name} contains a control character, such as a line end"));
            }
        }
        Ok(())
    }

    /// Whether so many addresses belong to it that it needs force: IPv4 beyond a /8, IPv6 beyond a
    /// /16.
    pub fn is_too_wide(&self) -> bool {
        let family = (self.prefix.addr().is_ipv4(), self.prefix.prefix_len());
        WIDEST.into_iter().any(|(v4, bits)| family.0 == v4 && family.1 < bits)
    }

    /// Seconds until it ends at `unix`, seconds since 1970: 0 if it has ended, and never more than
    /// its duration, also if the clock was set back. `None` without an end.
    pub fn ends_in(&self, unix: u64) -> Option<u64> {
        let seconds = self.seconds?;
        Some(self.since.saturating_add(seconds).saturating_sub(unix).min(seconds))
    }
}

/// The file of blocks.
#[derive(Clone, Debug)]
pub struct BlockFile {
    path: PathBuf,
}

impl BlockFile {
    /// The file in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE) }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The blocks of the file that have not ended at `unix`, seconds since 1970. A missing file has
    /// none. What cannot be used as a whole is renamed and not used at all; the second value is
    /// then the error for the operator.
    pub fn load(&self, unix: u64) -> (Vec<Block>, Option<String>) {
        let why = match self.read() {
            Ok(mut blocks) => {
                blocks.retain(|block| block.ends_in(unix) != Some(0));
                return (blocks, None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
            Err(why) => why,
        };
        let error = set_aside("blocks", &self.path, &why, unix);
        let lost = "no source is blocked by `onrush ctl block`; repeat the blocks that are needed";
        (Vec::new(), Some(format!("{error}\n  {lost}")))
    }

    fn read(&self) -> io::Result<Vec<Block>> {
        let blocks: Vec<Block> = state_file::read_json(&self.path, MAX_LENGTH)?;
        if blocks.len() > MAX_BLOCKS {
            return Err(io::Error::other(format!("it has more than {MAX_BLOCKS} blocks")));
        }
        for block in &blocks {
            let wrong = |why| io::Error::other(format!("{}: {why}", block.prefix));
            block.check().map_err(wrong)?;
        }
        Ok(blocks)
    }

    /// Writes the blocks and syncs them to the disk.
    ///
    /// # Errors
    /// When they cannot be written; the former file stays.
    pub fn write(&self, blocks: &[Block]) -> io::Result<()> {
        let mut json = serde_json::to_vec_pretty(blocks)?;
        json.push(b'\n');
        atomic_file::write(&self.path, MODE, &json).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn block(prefix: &str, seconds: Option<u64>) -> Block {
        let (reason, by) = ("flood \"x\" ü".to_owned(), "user 0".to_owned());
        Block { prefix: network(prefix).unwrap(), since: NOW, seconds, reason, by }
    }

    fn file() -> (tempfile::TempDir, BlockFile) {
        let directory = tempfile::tempdir().unwrap();
        let file = BlockFile::new(directory.path());
        (directory, file)
    }

    #[test]
    fn blocks_are_read_back_until_they_end() {
        let (_directory, file) = file();
        assert_eq!(file.load(NOW), (Vec::new(), None), "a missing file");
        let blocks = [block("192.0.2.0/24", Some(60)), block("2001:db8::/32", None)];
        file.write(&blocks).unwrap();
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(file.load(NOW + 59), (blocks.to_vec(), None));
        assert_eq!(file.load(NOW + 60), (blocks[1..].to_vec(), None));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_lengthen_a_block() {
        let block = block("192.0.2.0/24", Some(60));
        let ends_in = [0, NOW, NOW + 20, NOW + 60, u64::MAX].map(|unix| block.ends_in(unix));
        assert_eq!(ends_in, [60, 60, 40, 0, 0].map(Some));
        assert_eq!(Block { seconds: None, ..block }.ends_in(u64::MAX), None);
    }

    #[test]
    fn a_file_that_is_not_valid_is_renamed_with_an_error() {
        let long = " ".repeat(MAX_LENGTH as usize + 1);
        let one = |prefix: &str, seconds: u64, reason: &str| {
            format!(
                "[{{\"prefix\":\"{prefix}\",\"since\":1,\"seconds\":{seconds},\
                 \"reason\":\"{reason}\",\"by\":\"\"}}]"
            )
        };
        let many = (0..=MAX_BLOCKS).map(|_| one("192.0.2.1", 1, "")[1..].replace(']', ""));
        let many = format!("[{}]", many.collect::<Vec<_>>().join(","));
        let reason = "x".repeat(MAX_REASON + 1);
        for (text, part) in [
            ("", "EOF"),
            ("[{", "EOF"),
            (&one("192.0.2.1/24", 1, ""), "192.0.2.0/24"),
            (&one("192.0.2.1", 0, ""), "ten years"),
            (&one("192.0.2.1", 1, "\\u001b"), "control character"),
            (&one("192.0.2.1", 1, &reason), "200"),
            (&long, "bytes"),
            (&many, "10000 blocks"),
        ] {
            let (directory, file) = file();
            fs::write(&file.path, text).unwrap();
            let (blocks, error) = file.load(NOW);
            let error = error.unwrap();
            assert!(blocks.is_empty() && error.contains(part), "{part}: {error}");
            let renamed = directory.path().join(format!("{FILE}.damaged-{NOW}"));
            assert!(renamed.is_file() && !file.path.exists(), "{part}");
        }
    }

    #[test]
    fn a_link_is_neither_read_nor_written_through() {
        let (directory, file) = file();
        let other = directory.path().join("other");
        fs::write(&other, "[]").unwrap();
        symlink(&other, &file.path).unwrap();
        assert!(file.load(NOW).1.unwrap().contains("symbolic link"));
        symlink(&other, &file.path).unwrap();
        file.write(&[block("192.0.2.1", None)]).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "[]");
        assert_eq!(file.load(NOW).0.len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error_and_stays() {
        let file = BlockFile::new(Path::new("/proc/nope"));
        assert!(file.write(&[]).is_err());
    }

    #[test]
    fn wide_prefixes_need_force() {
        for (prefix, wide) in [
            ("10.0.0.0/8", false),
            ("10.0.0.0/7", true),
            ("0.0.0.0/0", true),
            ("2001::/16", false),
            ("2000::/15", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(block(prefix, None).is_too_wide(), wide, "{prefix}");
        }
    }
}
