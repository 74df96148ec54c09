//! The key file: two secrets of 16 bytes, the current and the previous one.
//!
//! ```text
//! # comment
//! current  00112233445566778899aabbccddeeff
//! previous ffeeddccbbaa99887766554433221100
//! ```
//!
//! Rotation over several hosts: on each, make `current` the new `previous` and put the new secret
//! in as `current`; ids of either key are accepted everywhere meanwhile.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A secret. Its `Debug` form does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Makes ids and checks them.
    pub current: Key,
    /// Only checks them.
    pub previous: Option<Key>,
}

/// Why there are no keys.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("cannot create the key file {path}: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not hold keys.
    #[error(
        "{path}:{line}: {problem}\n  a key file has a line `current` and maybe a line `previous`, \
         each with 32 hexadecimal digits; remove the file to have a new one made"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
}

impl Keys {
    /// Fresh keys from the system's random source, for a process that keeps them to itself.
    pub fn random() -> Self {
        Self { current: Key(rand::random()), previous: None }
    }

    /// The keys in `path`; where there is no such file, fresh ones, written there readable for
    /// nobody else.
    ///
    /// # Errors
    /// [`KeyError`]: what to do is part of its text.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|(line, problem)| KeyError::Content {
                path: path.to_owned(),
                line,
                problem,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let keys = Self::random();
                keys.create(path)
                    .map(|()| keys)
                    .map_err(|source| KeyError::Create { path: path.to_owned(), source })
            }
            Err(source) => Err(KeyError::Read { path: path.to_owned(), source }),
        }
    }

    /// Whether users may read the file who are not its owner nor, if that is allowed, in its
    /// group.
    pub fn readable_by_others(path: &Path, group_may: bool) -> bool {
        let others = if group_may { 0o007 } else { 0o077 };
        fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & others != 0)
    }

    /// Written beside and renamed, so that a crash leaves either no key or a whole one.
    fn create(&self, path: &Path) -> io::Result<()> {
        let beside = path.with_extension("new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(self.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    }

    fn to_text(self) -> String {
        let mut text = String::from(
            "# Secrets of connection ids. Give the same file to every host that answers for one name.\n",
        );
        text += &format!("current {}\n", hex(&self.current));
        if let Some(previous) = &self.previous {
            text += &format!("previous {}\n", hex(previous));
        }
        text
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
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
                other => return Err(wrong(format!("`{other}` is no name of a key"))),
            };
            let key = unhex(digits.trim())
                .ok_or_else(|| wrong(format!("the {name} key is not 32 hexadecimal digits")))?;
            if place.replace(key).is_some() {
                return Err(wrong(format!("a second {name} key")));
            }
        }
        let current = current.ok_or((text.lines().count().max(1), "no current key".to_owned()))?;
        Ok(Self { current, previous })
    }
}

fn hex(key: &Key) -> String {
    key.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Key> {
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(|number| Key(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_file_is_private_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connection.key");
        let keys = Keys::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!Keys::readable_by_others(&path, false));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Keys::readable_by_others(&path, false) && !Keys::readable_by_others(&path, true));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Keys::readable_by_others(&path, true));
        assert_eq!(Keys::load_or_create(&path).unwrap(), keys);
        assert_ne!(Keys::random(), keys);
    }

    #[test]
    fn both_keys_round_trip() {
        let keys = Keys { current: Key([0xAB; 16]), previous: Some(Key([1; 16])) };
        assert_eq!(Keys::parse(&keys.to_text()), Ok(keys));
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
            assert_eq!(Keys::parse(&text).unwrap_err().0, line, "{text:?}");
        }
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connection.key");
        fs::write(&path, "current zzz\n").unwrap();
        let error = Keys::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("connection.key:1:"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "current zzz\n");
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        assert_eq!(format!("{:?}", Key([0xAB; 16])), "Key(..)");
    }
}
