//! The state directory, opened at start: its lock and the key of connection ids.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use thiserror::Error;

use crate::key_file::{KeyError, load_or_create};
use crate::lock::{LockError, StateLock};
use onrush_config::Settings;
use onrush_config::secret_file::readable_by_others;
use onrush_tracker::connection::Keys;

/// The key's file name in the state directory.
pub const KEY_FILE: &str = "connection.key";

/// The state found or created at start.
#[derive(Debug)]
pub struct State {
    /// Secrets of connection ids.
    pub keys: Keys,
    /// Warnings for the operator, each with its remedy.
    pub warnings: Vec<String>,
    /// Held while the tracker runs; `None` without a writable directory.
    pub lock: Option<StateLock>,
}

/// Why the tracker must not start.
#[derive(Debug, Error)]
pub enum StateError {
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The key file is damaged, or the configured one cannot be read or created.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl State {
    /// Opens the state directory and creates it if missing. Without a writable directory the key is
    /// kept in memory, with a warning. `lock` is that of the directory, if it is held already.
    ///
    /// # Errors
    /// [`StateError`], when starting would do damage: two trackers on one directory, or a key file
    /// that would have to be overwritten.
    pub fn open(settings: &Settings, lock: Option<StateLock>) -> Result<Self, StateError> {
        let mut state = Self { keys: Keys::random(), warnings: Vec::new(), lock };
        if let Some(directory) = settings.state_dir.as_ref().filter(|_| state.lock.is_none()) {
            state.lock_directory(directory)?;
        }
        if let Some(path) = &settings.connection.key_file {
            state.keys = load_or_create(path)?;
            // The operator may share a configured file with a group on purpose.
            state.warn_if_readable(path, true);
            return Ok(state);
        }
        match settings.state_dir.as_ref().map(|directory| directory.join(KEY_FILE)) {
            // An existing key is used even if the directory cannot be written.
            Some(path) if state.lock.is_some() || path.is_file() => state.load_key(&path)?,
            Some(_) => {}
            None => state.warnings.push(in_memory("no state directory is configured")),
        }
        Ok(state)
    }

    fn lock_directory(&mut self, directory: &Path) -> Result<(), StateError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let locked = match made {
            Ok(()) => StateLock::take(directory),
            Err(source) => Err(LockError::Io { path: directory.to_owned(), source }),
        };
        match locked {
            Ok(lock) => self.lock = Some(lock),
            Err(held @ LockError::Held { .. }) => return Err(held.into()),
            Err(error) => self.warnings.push(in_memory(&error.to_string())),
        }
        Ok(())
    }

    fn load_key(&mut self, path: &Path) -> Result<(), StateError> {
        match load_or_create(path) {
            Ok(keys) => self.keys = keys,
            Err(error @ KeyError::Create { .. }) => {
                self.warnings.push(in_memory(&error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        self.warn_if_readable(path, false);
        Ok(())
    }

    fn warn_if_readable(&mut self, path: &Path, group_may: bool) {
        if readable_by_others(path, group_may) {
            let right = if group_may { "o-rwx" } else { "600" };
            self.warnings.push(format!(
                "other users can read the key file {0}; fix: chmod {right} {0}",
                path.display()
            ));
        }
    }
}

fn in_memory(why: &str) -> String {
    format!(
        "{why}: connection ids and peers will not survive a restart; name a writable directory \
         with --state-dir"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn settings(directory: &Path) -> Settings {
        let text = format!("state_dir = {directory:?}\n");
        Settings::for_test(&text)
    }

    #[test]
    fn a_second_start_reads_the_key_of_the_first() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(&root.path().join("a/b"));
        let first = State::open(&settings, None).unwrap();
        assert!(first.lock.is_some() && first.warnings.is_empty(), "{:?}", first.warnings);
        assert!(matches!(
            State::open(&settings, None),
            Err(StateError::Lock(LockError::Held { .. }))
        ));
        let keys = first.keys;
        drop(first);
        assert_eq!(State::open(&settings, None).unwrap().keys, keys);
    }

    #[test]
    fn an_existing_key_is_used_without_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(root.path());
        let keys = State::open(&settings, None).unwrap().keys;
        // A directory of that name cannot be opened for writing, not even by root.
        fs::remove_file(root.path().join("lock")).unwrap();
        fs::create_dir(root.path().join("lock")).unwrap();
        let state = State::open(&settings, None).unwrap();
        assert_eq!(state.keys, keys);
        assert!(state.lock.is_none() && state.warnings.len() == 1, "{:?}", state.warnings);
    }

    #[test]
    fn without_a_directory_the_key_is_in_memory_and_a_warning_names_the_flag() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        for settings in [settings(&file.join("below")), settings(Path::new("/proc/nope"))] {
            let state = State::open(&settings, None).unwrap();
            assert!(state.lock.is_none());
            assert!(state.warnings[0].contains("--state-dir"), "{:?}", state.warnings);
        }
    }
}
