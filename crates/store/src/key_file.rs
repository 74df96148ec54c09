//! The key file: two secrets of 16 bytes, the current and the previous one.
//!
//! ```text
//! # comment
//! current  00112233445566778899aabbccddeeff
//! previous ffeeddccbbaa99887766554433221100
//! ```
//!
//! To rotate the key on several hosts, rename `current` to `previous` on each and add the new
//! secret as `current`; meanwhile every host accepts ids of both keys.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use onrush_tracker::connection::{Key, Keys};
use thiserror::Error;

use crate::atomic_file::AtomicFile;

/// Why no keys could be loaded.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("cannot create the key file {path}: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A line is not a key.
    #[error(
        "{path}:{line}: {problem}\n  a key file has a line `current` and maybe a line `previous`, \
         each with 32 hexadecimal digits; remove the file to create a new one"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The fault in that line.
        problem: String,
    },
}

/// The keys in `path`. A missing file is created with fresh keys, readable by its owner only.
///
/// # Errors
/// [`KeyError`], whose text names the remedy.
pub fn load_or_create(path: &Path) -> Result<Keys, KeyError> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|(line, problem)| KeyError::Content {
            path: path.to_owned(),
            line,
            problem,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let keys = Keys::random();
            create(&keys, path)
                .map(|()| keys)
                .map_err(|source| KeyError::Create { path: path.to_owned(), source })
        }
        Err(source) => Err(KeyError::Read { path: path.to_owned(), source }),
    }
}

fn create(keys: &Keys, path: &Path) -> io::Result<()> {
    let mut file = AtomicFile::create(path, 0o600)?;
    file.write_all(to_text(keys).as_bytes())?;
    file.finish().map(drop)
}

fn to_text(keys: &Keys) -> String {
    let mut text = String::from(
        "# Secrets of connection ids. Copy this file to every host of the same tracker.\n",
    );
    text += &format!("current {}\n", hex(&keys.current));
    if let Some(previous) = &keys.previous {
        text += &format!("previous {}\n", hex(previous));
    }
    text
}

fn parse(text: &str) -> Result<Keys, (usize, String)> {
    let (mut current, mut previous) = (None, None);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: String| (at + 1, problem);
        let (name, digits) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let place = match name {
            "current" => &mut current,
            "previous" => &mut previous,
            other => {
                return Err(wrong(format!(
                    "`{other}` is not a key name: write `current` or `previous`"
                )));
            }
        };
        let key = unhex(digits.trim())
            .ok_or_else(|| wrong(format!("the {name} key is not 32 hexadecimal digits")))?;
        if place.replace(key).is_some() {
            return Err(wrong(format!("a second {name} key")));
        }
    }
    let current = current.ok_or((text.lines().count().max(1), "no current key".to_owned()))?;
    Ok(Keys { current, previous })
}

fn hex(key: &Key) -> String {
    format!("{:032x}", u128::from_be_bytes(key.0))
}

fn unhex(digits: &str) -> Option<Key> {
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(|number| Key(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use onrush_config::secret_file::readable_by_others;

    #[test]
    fn a_created_file_is_private_and_can_be_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connection.key");
        let keys = load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!readable_by_others(&path, false));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(readable_by_others(&path, false) && !readable_by_others(&path, true));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(readable_by_others(&path, true));
        assert_eq!(load_or_create(&path).unwrap(), keys);
        assert_ne!(Keys::random(), keys);
    }

    #[test]
    fn both_keys_round_trip() {
        let keys = Keys { current: Key([0xAB; 16]), previous: Some(Key([1; 16])) };
        assert_eq!(parse(&to_text(&keys)), Ok(keys));
    }

    #[test]
    fn errors_name_the_line() {
        let digits = "0".repeat(32);
        for (text, line) in [
            (String::new(), 1),
            ("# only a comment\n".to_owned(), 1),
            (format!("current {digits}\nolder {digits}\n"), 2),
            ("current 12\n".to_owned(), 1),
            (format!("\ncurrent +{}\n", "0".repeat(31)), 2),
            (format!("current {digits}\ncurrent {digits}\n"), 2),
        ] {
            assert_eq!(parse(&text).unwrap_err().0, line, "{text:?}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connection.key");
        fs::write(&path, "current zzz\n").unwrap();
        let error = load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("connection.key:1:"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "current zzz\n");
    }
}
