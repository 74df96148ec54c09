//! The state directory, opened at start: its lock and the key of connection ids.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use thiserror::Error;

use crate::atomic_file::check_directory;
use crate::key_file::{self, KeyError, load_or_create};
use crate::lock::{self, LockError, StateLock};
use crate::{snapshot, state_file};
use onrush_config::regular_file;
use onrush_config::secret_file::readable_by_others;
use onrush_config::{Refused, Settings};
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
    /// Other users can write to the directory.
    #[error(
        "other users can write to the state directory {0}, and so replace the key and the peers\n  \
         fix: chmod go-w {0}, or name a directory below it with --state-dir, which is created"
    )]
    Writable(
        /// The directory.
        PathBuf,
    ),
    /// The directory belongs to another user.
    #[error(
        "the state directory {directory} belongs to user {owner}, who can replace the key and the \
         peers; the tracker runs as user {user}\n  name that user as `user`, name another \
         directory with --state-dir, or change its owner: chown -R {user} {directory}"
    )]
    Owner {
        /// The directory.
        directory: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The user id of this process.
        user: u32,
    },
}

/// Permissions of other users to create, rename and remove files in a directory. The sticky bit
/// does not protect files that do not exist yet.
const OTHERS_WRITE: u32 = 0o022;

impl State {
    /// Opens the state directory and creates it if missing. Without a writable directory the key is
    /// kept in memory, with a warning. `lock` is that of the directory, if it is held already.
    ///
    /// # Errors
    /// [`StateError`], when starting would do damage: two trackers on one directory, a directory in
    /// which other users can replace files, or a key file that would have to be overwritten.
    pub fn open(settings: &Settings, lock: Option<StateLock>) -> Result<Self, StateError> {
        let mut state = Self { keys: Keys::random(), warnings: Vec::new(), lock };
        if let Some(directory) = &settings.state_dir {
            state.prepare_directory(directory)?;
        }
        if let Some(path) = &settings.connection.key_file {
            state.keys = load_or_create(path, regular_file::open)?;
            // The operator may share a configured file with a group on purpose.
            state.warn_if_readable(path, true);
            return Ok(state);
        }
        match settings.state_dir.as_ref().map(|directory| directory.join(KEY_FILE)) {
            // An existing key is used even if the directory cannot be written.
            Some(path) if state.lock.is_some() || path.symlink_metadata().is_ok() => {
                state.load_key(&path)?;
            }
            Some(_) => {}
            None => state.warnings.push(in_memory("no state directory is configured")),
        }
        Ok(state)
    }

    /// The problem that prevents [`open`](Self::open) from creating a missing state directory, for
    /// the current user. Creates a file beside it for a moment.
    pub fn check_creation(settings: &Settings) -> Option<Refused> {
        let directory = settings.state_dir.as_deref().filter(|directory| is_missing(directory))?;
        let parent = directory.ancestors().find(|directory| !is_missing(directory))?;
        let error = check_directory(parent).err()?;
        let directory = directory.display();
        let what = format!("{directory} cannot be created in {}: {error}", parent.display());
        Some(unusable(&format!("{what}\n  create it for the tracker's user, or {ANOTHER}")))
    }

    /// The problem for which [`open`](Self::open) would not use the state directory: the current
    /// user cannot use it or its files. Creates a file in it for a moment.
    pub fn check_use(settings: &Settings) -> Option<Refused> {
        let directory = settings.state_dir.as_deref().filter(|directory| !is_missing(directory))?;
        // Others refuse it.
        check_writers(directory).ok()?;
        check_files(directory, settings.snapshot.enabled)
    }

    /// Problems for which [`open`](Self::open) would fail, for the current user and without locking
    /// anything.
    pub fn check(settings: &Settings) -> Vec<Refused> {
        let directory = settings.state_dir.as_deref().filter(|directory| !is_missing(directory));
        let writers = directory.and_then(|directory| check_writers(directory).err());
        let mut refused: Vec<_> = writers.iter().map(unusable).collect();
        let key = match (&settings.connection.key_file, directory) {
            (Some(path), _) => key_file::check(path, regular_file::open)
                .map_err(|error| Refused::new("connection.key_file", &error)),
            // Where none can be created the key is kept in memory.
            (None, Some(directory)) if directory.join(KEY_FILE).symlink_metadata().is_ok() => {
                key_file::check(&directory.join(KEY_FILE), state_file::open)
                    .map_err(|error| unusable(&error))
            }
            (None, _) => Ok(()),
        };
        // One finding for the directory.
        refused.extend(key.err().filter(|key| !refused.iter().any(|other| other.key == key.key)));
        refused
    }

    /// Creates and locks the directory, unless the lock is held already, and checks who may write
    /// to it.
    fn prepare_directory(&mut self, directory: &Path) -> Result<(), StateError> {
        if self.lock.is_some() {
            return check_writers(directory);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        check_writers(directory)?;
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
        match load_or_create(path, state_file::open) {
            Ok(keys) => self.keys = keys,
            Err(error @ KeyError::Create(_)) => {
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

/// The remedy that names another state directory.
const ANOTHER: &str = "name another directory as `state_dir` (or --state-dir)";

fn is_missing(directory: &Path) -> bool {
    matches!(directory.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// The first permission problem that keeps the current user from using a state directory and its
/// files.
fn check_files(directory: &Path, snapshots: bool) -> Option<Refused> {
    let remedy = format!("make it usable for the tracker's user, or {ANOTHER}");
    let refused = |path: &Path, lacks: &str, error| {
        unusable(&format!("{} cannot be {lacks}: {error}\n  {remedy}", path.display()))
    };
    if let Err(error) = check_directory(directory) {
        return Some(refused(directory, "written", error));
    }
    let (mut read, mut write) = (File::options(), File::options());
    read.read(true);
    write.read(true).write(true);
    let mut files = vec![(lock::FILE, &mut write)];
    if snapshots {
        files.push((snapshot::FILE, &mut read));
    }
    let mut files = files.into_iter().map(|(name, options)| (directory.join(name), options));
    files.find_map(|(path, options)| match state_file::open_with(options, &path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Some(refused(&path, "opened", error))
        }
        _ => None,
    })
}

fn unusable(error: &impl std::fmt::Display) -> Refused {
    Refused::new("state_dir", error)
}

/// Fails if users other than root and that of this process can write to the directory. The last
/// component of the path may be a link, as under systemd with `DynamicUser=`.
fn check_writers(directory: &Path) -> Result<(), StateError> {
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => {
            check_permissions(directory, found.mode(), found.uid(), Uid::effective().as_raw())
        }
        // Locking fails with the reason.
        _ => Ok(()),
    }
}

fn check_permissions(directory: &Path, mode: u32, owner: u32, user: u32) -> Result<(), StateError> {
    let directory = directory.to_owned();
    if mode & OTHERS_WRITE != 0 {
        Err(StateError::Writable(directory))
    } else if owner != user && owner != 0 {
        Err(StateError::Owner { directory, owner, user })
    } else {
        Ok(())
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
    use std::os::unix::fs::PermissionsExt;

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

    /// Findings of a check, which must leave the directory as it was.
    fn checked(settings: &Settings, root: &Path) -> Vec<Refused> {
        let names = || fs::read_dir(root).unwrap().count();
        let before = names();
        let found = State::check_creation(settings)
            .into_iter()
            .chain(State::check_use(settings))
            .chain(State::check(settings));
        let found = found.collect();
        assert_eq!(names(), before, "a file is left");
        found
    }

    #[test]
    fn a_check_finds_what_open_would_and_creates_nothing() {
        let root = tempfile::tempdir().unwrap();
        for directory in [root.path().to_owned(), root.path().join("a/b")] {
            assert_eq!(checked(&settings(&directory), root.path()), []);
        }
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        for (directory, part) in [
            (Path::new("/proc/nope"), "/proc/nope cannot be created in /proc: "),
            (&file, "/file cannot be written: "),
            (&file.join("below"), "/file/below cannot be "),
        ] {
            let found = checked(&settings(directory), root.path());
            assert!(found.len() == 1 && found[0].key == "state_dir", "{found:?}");
            assert!(found[0].what.contains(part), "{found:?}");
            assert!(found[0].remedy.as_ref().unwrap().contains("--state-dir"), "{found:?}");
        }
        let state = root.path().join("state");
        drop(State::open(&settings(&state), None).unwrap());
        assert_eq!(checked(&settings(&state), &state), []);
        // A directory of that name cannot be opened for writing, not even by root.
        fs::remove_file(state.join("lock")).unwrap();
        fs::create_dir(state.join("lock")).unwrap();
        let found = checked(&settings(&state), &state);
        assert!(found[0].what.contains("state/lock cannot be opened"), "{found:?}");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let found = checked(&settings(&state), &state);
        assert!(found[0].what.contains("other users can write"), "{found:?}");
        assert!(found[0].remedy.as_ref().unwrap().contains("chmod go-w"), "{found:?}");
    }

    #[test]
    fn a_check_reads_the_key() {
        let root = tempfile::tempdir().unwrap();
        let key = root.path().join("key");
        let named = Settings::for_test(&format!("[connection]\nkey_file = {key:?}\n"));
        assert_eq!(checked(&named, root.path()), []);
        fs::write(&key, "current 00\n").unwrap();
        let found = checked(&named, root.path());
        assert_eq!((found.len(), found[0].key.as_str()), (1, "connection.key_file"));
        assert!(found[0].what.contains("key:1: the current key"), "{found:?}");
        fs::rename(&key, root.path().join(KEY_FILE)).unwrap();
        let found = checked(&settings(root.path()), root.path());
        assert_eq!((found.len(), found[0].key.as_str()), (1, "state_dir"));
        let elsewhere = Settings::for_test("[connection]\nkey_file = \"/proc/nope/key\"\n");
        let found = checked(&elsewhere, root.path());
        assert!(found[0].what.contains("cannot create the key file /proc/nope/key"), "{found:?}");
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused_with_the_command() {
        let root = tempfile::tempdir().unwrap();
        let settings = settings(root.path());
        let fix = format!("chmod go-w {}", root.path().display());
        for (mode, good) in [
            (0o777, false),
            (0o1777, false),
            (0o770, false),
            (0o702, false),
            (0o755, true),
            (0o700, true),
        ] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            match State::open(&settings, None) {
                Ok(_) => assert!(good, "{mode:o}"),
                Err(error) => {
                    assert!(!good && error.to_string().contains(&fix), "{mode:o} {error}")
                }
            }
        }
        // A successor, which gets the lock, checks too.
        let lock = StateLock::take(root.path()).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(State::open(&settings, Some(lock)), Err(StateError::Writable(_))));
    }

    #[test]
    fn a_directory_of_another_user_is_refused_unless_that_is_root() {
        let check = |owner, user| check_permissions(Path::new("state"), 0o755, owner, user);
        assert!(check(7, 7).is_ok() && check(0, 7).is_ok());
        for user in [0, 8] {
            let error = check(7, user).unwrap_err().to_string();
            assert!(error.contains("user 7,") && error.contains("--state-dir"), "{error}");
        }
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
