//! What outlives the process: the state directory, its lock, and the key of connection ids.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use thiserror::Error;

use crate::key_file::{KeyError, load_or_create};
use crate::lock::{LockError, StateLock};
use onrush_config::secret_file::readable_by_others;
use onrush_config::settings::Settings;
use onrush_tracker::connection::Keys;

/// The key's file name in the state directory.
pub const KEY_FILE: &str = "connection.key";

/// What was found or made at start.
#[derive(Debug)]
pub struct State {
    /// For connection ids.
    pub keys: Keys,
    /// What the operator should know.
    pub warnings: Vec<String>,
    /// Held while the tracker runs; `None` without a usable directory.
    pub lock: Option<StateLock>,
}

/// Why the tracker cannot start with this state.
#[derive(Debug, Error)]
pub enum StateError {
    /// Somebody else uses the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A key file that is there cannot be used, or one that was named does not work.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl State {
    /// Opens the state directory, making it where it is missing. Without a writable one the
    /// tracker goes on with a key in memory, and a warning.
    ///
    /// # Errors
    /// [`StateError`], when going on would do harm: two trackers on one directory, or a key file
    /// that would have to be overwritten.
    pub fn open(settings: &Settings) -> Result<Self, StateError> {
        Self::with_lock(settings, None)
    }

    /// The same, where the lock is held already.
    ///
    /// # Errors
    /// [`StateError`], as above.
    pub fn with_lock(settings: &Settings, lock: Option<StateLock>) -> Result<Self, StateError> {
        let mut state = Self { keys: Keys::random(), warnings: Vec::new(), lock };
        if let Some(directory) = settings.state_dir.as_ref().filter(|_| state.lock.is_none()) {
            state.enter(directory)?;
        }
        if let Some(path) = &settings.connection.key_file {
            state.keys = load_or_create(path)?;
            // A file that somebody placed may be shared with a group on purpose.
            state.warn_if_readable(path, true);
            return Ok(state);
        }
        match settings.state_dir.as_ref().map(|directory| directory.join(KEY_FILE)) {
            // A key that is there is good even where nothing can be written.
            Some(path) if state.lock.is_some() || path.is_file() => state.load_key(&path)?,
            Some(_) => {}
            None => state.warnings.push(in_memory("no state directory is known")),
        }
        Ok(state)
    }

    fn enter(&mut self, directory: &Path) -> Result<(), StateError> {
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
                "the key file {0} can be read by others; mend it with: chmod {right} {0}",
                path.display()
            ));
        }
    }
}

fn in_memory(why: &str) -> String {
    format!(
        "{why}: connection ids and peers will not survive a restart; name a writable directory with \
         --state-dir"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_config::file::Config;
    use onrush_config::flags::Flags;
    use onrush_config::settings::Host;
    use std::fs;

    fn settings(directory: &Path) -> Settings {
        let text = format!("state_dir = {directory:?}\n");
        let (config, host) = (Config::parse("test.toml", &text), Host::default());
        Settings::resolve(config, &Flags::default(), &host).expect("is right").0
    }

    #[test]
    fn the_second_start_finds_what_the_first_left() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(&root.path().join("a/b"));
        let first = State::open(&settings).unwrap();
        assert!(first.lock.is_some() && first.warnings.is_empty(), "{:?}", first.warnings);
        assert!(matches!(State::open(&settings), Err(StateError::Lock(LockError::Held { .. }))));
        let keys = first.keys;
        drop(first);
        assert_eq!(State::open(&settings).unwrap().keys, keys);
    }

    #[test]
    fn a_key_is_used_even_where_the_lock_cannot_be_had() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(root.path());
        let keys = State::open(&settings).unwrap().keys;
        // A directory in the lock's place cannot be opened for writing, not even by root.
        fs::remove_file(root.path().join("lock")).unwrap();
        fs::create_dir(root.path().join("lock")).unwrap();
        let state = State::open(&settings).unwrap();
        assert_eq!(state.keys, keys);
        assert!(state.lock.is_none() && state.warnings.len() == 1, "{:?}", state.warnings);
    }

    #[test]
    fn without_a_directory_the_key_lives_in_memory_and_a_warning_says_so() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        for settings in [settings(&file.join("below")), settings(Path::new("/proc/nope"))] {
            let state = State::open(&settings).unwrap();
            assert!(state.lock.is_none());
            assert!(state.warnings[0].contains("--state-dir"), "{:?}", state.warnings);
        }
    }
}
