//! Opens the files of the state directory. Symbolic links are not followed: a user who
//! can write to the directory could otherwise make the tracker write to any file with its rights.
//! Nor are files opened that are not regular, such as a pipe, which would be waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use onrush_config::regular_file;
use serde::de::DeserializeOwned;

/// Opens a file to read it.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// Opens a file with these options.
///
/// # Errors
/// When the file cannot be opened, or is a link or not a regular file.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    regular_file::open_with(options, OFlag::O_NOFOLLOW, path).map_err(|error| {
        match error.raw_os_error() {
            Some(code) if code == Errno::ELOOP as i32 => {
                io::Error::other("a symbolic link, which is not followed in the state directory")
            }
            _ => error,
        }
    })
}

/// The text of a file.
///
/// # Errors
/// As [`open`], and when the file cannot be read or is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    io::read_to_string(open(path)?)
}

/// The value in a JSON file of at most `most` bytes.
///
/// # Errors
/// As [`open`], and [`is_damaged`] when the contents are not valid.
pub fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> io::Result<T> {
    let mut bytes = Vec::new();
    open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Whether [`read_json`] has read the file, and its contents are not valid.
pub fn is_damaged(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;
    use crate::atomic_file::AtomicFile;
    use crate::key_file;
    use crate::lists::journal::Journal;
    use crate::lock::StateLock;
    use nix::sys::stat::Mode;
    use onrush_proto::InfoHash;
    use onrush_tracker::access::ListKind;
    use onrush_tracker::access::overlay::ListChange;
    use std::io::Write as _;

    /// Opens a file; returns whether that was possible.
    type Opener = fn(PathBuf) -> bool;

    /// Everything that opens a file of the state directory, by the file's name.
    const OPENERS: [(&str, Opener); 5] = [
        ("read", |path| open(&path).is_ok()),
        ("text", |path| read_to_string(&path).is_ok()),
        ("lock", |path| StateLock::take(path.parent().unwrap()).is_ok()),
        ("connection.key", |path| key_file::load_or_create(&path, open).is_ok()),
        ("access.changes", |path| {
            let journal = Journal::new(path.parent().unwrap());
            let change = ListChange::new(InfoHash([1; 20]), true);
            let read = journal.read(ListKind::Deny).is_ok();
            journal.append(ListKind::Deny, &[change]).is_ok() || read
        }),
    ];

    #[test]
    fn links_and_pipes_are_refused_and_the_file_behind_a_link_is_unchanged() {
        for (name, opens) in OPENERS {
            let directory = tempfile::tempdir().unwrap();
            let (path, other) = (directory.path().join(name), directory.path().join("other"));
            for content in [Some("precious"), None] {
                match content {
                    Some(text) => fs::write(&other, text).unwrap(),
                    None => fs::remove_file(&other).unwrap(),
                }
                symlink(&other, &path).unwrap();
                assert!(!opens(path.clone()), "{name}, a link");
                assert_eq!(fs::read_to_string(&other).ok().as_deref(), content, "{name}");
                fs::remove_file(&path).unwrap();
            }
            nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
            assert!(!opens(path), "{name}, a pipe");
        }
    }

    /// The name of a draft is known, so others may have put a link there.
    #[test]
    fn a_draft_is_private_and_never_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let draft = format!("file.{}.new", std::process::id());
        fs::write(at("other"), "precious").unwrap();
        symlink(at("other"), at(&draft)).unwrap();
        symlink(at("other"), at("file")).unwrap();
        let mut file = AtomicFile::create(&at("file"), 0o600).unwrap();
        file.write_all(b"new").unwrap();
        assert!(fs::symlink_metadata(at(&draft)).unwrap().is_file());
        file.finish().unwrap();
        assert!(fs::symlink_metadata(at("file")).unwrap().is_file());
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "precious");
    }
}
