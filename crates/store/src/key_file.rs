//! The key file: secrets of 16 bytes.
//!
//! ```text
//! # comment
//! current  00112233445566778899aabbccddeeff
//! previous ffeeddccbbaa99887766554433221100
//! next     0123456789abcdeffedcba9876543210
//! ```
//!
//! Ids are issued under `current`, and accepted under all of them. A host refuses ids of a key that
//! its file does not have yet, so a new key is distributed as `next` before any host makes it
//! `current`, and the former one stays as `previous` until its ids have expired.

use std::fs::File;
use std::io;
use std::path::Path;

use onrush_tracker::connection::{Key, Keys};
use thiserror::Error;

use crate::atomic_file::{self, check_directory};

/// Why no keys could be loaded.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be created.
    #[error("{0}")]
    Create(String),
    /// The file cannot be read, or a line of it is not a key.
    #[error("{0}")]
    Unusable(String),
}

/// The keys in `path`, which `open` opens: a file of the state directory or one that the operator
/// has named. A missing file is created with fresh keys, readable by its owner only.
///
/// # Errors
/// [`KeyError`], whose text names the remedy.
pub fn load_or_create(path: &Path, open: fn(&Path) -> io::Result<File>) -> Result<Keys, KeyError> {
    if let Some(keys) = load(path, open)? {
        return Ok(keys);
    }
    let keys = Keys::random();
    match atomic_file::write(path, 0o600, to_text(&keys).as_bytes()) {
        Ok(_) => Ok(keys),
        Err(error) => Err(not_created(path, &error)),
    }
}

/// Checks that [`load_or_create`] would succeed, and creates no file.
///
/// # Errors
/// The [`KeyError`] that it would return.
pub fn check(path: &Path, open: fn(&Path) -> io::Result<File>) -> Result<(), KeyError> {
    let is_there = load(path, open)?.is_some();
    let directory = path.parent().filter(|_| !is_there);
    directory.map_or(Ok(()), check_directory).map_err(|error| not_created(path, &error))
}

fn not_created(path: &Path, error: &io::Error) -> KeyError {
    KeyError::Create(format!("cannot create the key file {}: {error}", path.display()))
}

/// The keys in a file; `None` if there is none.
fn load(path: &Path, open: fn(&Path) -> io::Result<File>) -> Result<Option<Keys>, KeyError> {
    let shown = path.display();
    match open(path).and_then(io::read_to_string) {
        Ok(text) => parse(&text).map(Some).map_err(|(line, problem)| {
            KeyError::Unusable(format!(
                "{shown}:{line}: {problem}\n  a key file has a line `current` and maybe lines \
                 `previous` and `next`, each with 32 random hexadecimal digits (head -c16 \
                 /dev/urandom | xxd -p); remove the file to create a new one"
            ))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KeyError::Unusable(format!(
            "cannot read the key file {shown}: {error}\n  it must be a regular file that the \
             tracker's user can read; connection.key_file names one elsewhere"
        ))),
    }
}

fn to_text(keys: &Keys) -> String {
    let mut text = String::from(
        "# Secrets of connection ids. Copy this file to every host of the same tracker.\n",
    );
    text += &format!("current {}\n", hex(&keys.current));
    for (name, key) in [("previous", &keys.previous), ("next", &keys.next)] {
        text.extend(key.iter().map(|key| format!("{name} {}\n", hex(key))));
    }
    text
}

fn parse(text: &str) -> Result<Keys, (usize, String)> {
    let (mut current, mut previous, mut next) = (None, None, None);
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
            "next" => &mut next,
            other => {
                return Err(wrong(format!(
                    "`{other}` is not a key name: write `current`, `previous` or `next`"
                )));
            }
        };
        let key = unhex(digits.trim())
            .ok_or_else(|| wrong(format!("the {name} key is not 32 hexadecimal digits")))?;
        if key.0.iter().all(|byte| *byte == key.0[0]) {
            return Err(wrong(format!("the {name} key repeats one byte, which anybody can guess")));
        }
        if place.replace(key).is_some() {
            return Err(wrong(format!("a second {name} key")));
        }
    }
    let current = current.ok_or((text.lines().count().max(1), "no current key".to_owned()))?;
    Ok(Keys { current, previous, next })
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
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::state_file;
    use onrush_config::secret_file::readable_by_others;

    fn load(path: &Path) -> Result<Keys, KeyError> {
        load_or_create(path, state_file::open)
    }

    #[test]
    fn a_created_file_is_private_and_can_be_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("connection.key");
        let keys = load(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!readable_by_others(&path, false));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(readable_by_others(&path, false) && !readable_by_others(&path, true));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(readable_by_others(&path, true));
        assert_eq!(load(&path).unwrap(), keys);
        assert_ne!(Keys::random(), keys);
    }

    #[test]
    fn all_keys_round_trip() {
        let current = Keys::random().current;
        for previous in [None, Some(Keys::random().current)] {
            for next in [None, Some(Keys::random().current)] {
                let keys = Keys { current, previous, next };
                assert_eq!(parse(&to_text(&keys)), Ok(keys));
            }
        }
    }

    #[test]
    fn keys_of_one_repeated_byte_are_refused() {
        let good = "00112233445566778899aabbccddeeff";
        assert!(parse(&format!("current {good}\n")).is_ok());
        for byte in ["00", "ff", "5a"] {
            for name in ["current", "previous", "next"] {
                let text = format!("{name} {}\ncurrent {good}\n", byte.repeat(16));
                let (line, problem) = parse(&text).unwrap_err();
                assert!(line == 1 && problem.contains(name), "{problem}");
            }
        }
    }

    #[test]
    fn errors_name_the_line() {
        let digits = "01".repeat(16).replacen("01", "23", 1);
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
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("connection.key:1:"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "current zzz\n");
    }
}
