//! The lock of a state directory: one tracker per directory. The kernel releases it when the
//! process exits, also after a crash (flock(2)).

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use thiserror::Error;

use crate::state_file;

/// File name of the lock in the state directory.
pub(crate) const FILE: &str = "lock";
/// Permissions with which other users could open a directory, and lock it themselves.
const OTHERS_READ: u32 = 0o044;
/// Attempts to lock a file that is replaced meanwhile.
const ATTEMPTS: usize = 10;

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct StateLock {
    /// The locks of the directory, if only its owner can open it, and of its file `lock`, which is
    /// the last. Without the first, a tracker would start beside another one whose file was
    /// removed. Empty once released.
    locks: Vec<Flock<File>>,
    /// Whether another process shares the lock, so that dropping it here must not unlock it.
    shared: bool,
}

/// Why the lock could not be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds it.
    #[error(
        "the state directory {directory} is in use by another onrush (process {holder})\n  \
         stop that one, or give this one a directory of its own with --state-dir"
    )]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The process id in the lock file, or "unknown".
        holder: String,
    },
    /// The file cannot be opened or locked.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

impl StateLock {
    /// Further descriptors of the lock, for another process: both processes then hold the lock.
    ///
    /// # Errors
    /// When no descriptor is left (RLIMIT_NOFILE).
    pub fn share(&self) -> std::io::Result<Vec<OwnedFd>> {
        self.locks.iter().map(|lock| lock.as_fd().try_clone_to_owned()).collect()
    }

    /// The lock from the descriptors that another process made with [`share`](Self::share). The
    /// directory is locked until both processes have released it.
    ///
    /// # Errors
    /// When there is none, or one of them is not that of a lock.
    pub fn adopt(descriptors: Vec<OwnedFd>) -> std::io::Result<Self> {
        let lock = |descriptor| {
            Flock::lock(File::from(descriptor), FlockArg::LockExclusiveNonblock)
                .map_err(|(_, errno)| errno)
        };
        let locks = descriptors.into_iter().map(lock).collect::<Result<Vec<_>, _>>()?;
        match locks.as_slice() {
            [] => Err(std::io::Error::other("the state lock is missing")),
            _ => Ok(Self { locks, shared: true }),
        }
    }

    /// Makes this process the owner of a shared lock: it unlocks on drop. Writes its process id to
    /// the lock file.
    pub fn take_ownership(&mut self) {
        self.shared = false;
        self.write_process_id();
    }

    fn write_process_id(&mut self) {
        // The number is for error messages only: a full disk must not cost the lock.
        let Some(file) = self.locks.last_mut() else { return };
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
    }

    /// Releases the lock in this process only; the process that shares it keeps it.
    pub fn release_to_other(mut self) {
        self.shared = true;
    }

    /// Takes the lock of a state directory.
    ///
    /// # Errors
    /// [`LockError`], whose text names the remedy.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let mut locks = Vec::new();
        locks.extend(lock_directory(directory)?);
        locks.push(lock_file(directory)?);
        let mut lock = Self { locks, shared: false };
        lock.write_process_id();
        Ok(lock)
    }
}

/// The process that last took the lock of a directory, by the lock file. It may have ended.
///
/// # Errors
/// When the file cannot be read, or has no number.
pub fn last_holder(directory: &Path) -> std::io::Result<u32> {
    let number = state_file::read_to_string(&directory.join(FILE))?;
    number.trim().parse().map_err(std::io::Error::other)
}

/// Locks the directory itself. `None` where other users could do so as well, and where the file
/// system cannot (NFS): there the lock of the file has to suffice.
fn lock_directory(directory: &Path) -> Result<Option<Flock<File>>, LockError> {
    let opened = File::options().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(directory);
    let Ok(file) = opened else { return Ok(None) };
    if file.metadata().map_or(true, |metadata| metadata.mode() & OTHERS_READ != 0) {
        return Ok(None);
    }
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => {
            let file = state_file::open(&directory.join(FILE)).ok();
            Err(held(directory, file))
        }
        Err(_) => Ok(None),
    }
}

fn lock_file(directory: &Path) -> Result<Flock<File>, LockError> {
    let path = directory.join(FILE);
    let failed = |source| LockError::Io { path: path.clone(), source };
    for _ in 0..ATTEMPTS {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = state_file::open_with(&mut options, &path).map_err(failed)?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((file, Errno::EWOULDBLOCK)) => return Err(held(directory, Some(file))),
            Err((_, errno)) => return Err(failed(errno.into())),
        };
        // The file may have been removed before it was locked.
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let here = fs::symlink_metadata(&path).map(id).ok();
        if here == lock.metadata().map(id).ok() {
            return Ok(lock);
        }
    }
    Err(failed(std::io::Error::other("it is removed again and again")))
}

/// `file` is the lock file, if there is one.
fn held(directory: &Path, file: Option<File>) -> LockError {
    let mut number = String::new();
    // The other process may not have written its number yet.
    let _ = file.map(|mut file| file.read_to_string(&mut number));
    let holder = if number.is_empty() { "unknown" } else { number.trim() };
    LockError::Held { directory: directory.to_owned(), holder: holder.to_owned() }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        if self.shared {
            // LOCK_UN would unlock it for the other process too (flock(2)); closing at exit does
            // not.
            self.locks.drain(..).for_each(std::mem::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory that others cannot open.
    fn private() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        directory
    }

    #[test]
    fn dropping_an_adopted_lock_keeps_it_locked_for_its_owner() {
        let directory = private();
        let first = StateLock::take(directory.path()).unwrap();
        drop(StateLock::adopt(first.share().unwrap()).unwrap());
        assert!(StateLock::take(directory.path()).is_err(), "the first process holds it");
        let mut second = StateLock::adopt(first.share().unwrap()).unwrap();
        second.take_ownership();
        first.release_to_other();
        assert!(StateLock::take(directory.path()).is_err(), "the second process holds it");
        drop(second);
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn a_held_lock_names_its_holder_and_can_be_taken_once_released() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateLock::take(directory.path()).unwrap();
        let error = StateLock::take(directory.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("--state-dir"), "{error}");
        assert_eq!(last_holder(directory.path()).unwrap(), std::process::id());
        drop(first);
        StateLock::take(directory.path()).unwrap();
    }

    /// Also after a handoff.
    #[test]
    fn a_removed_lock_file_does_not_admit_a_second_tracker() {
        let directory = private();
        let file = directory.path().join(FILE);
        let first = StateLock::take(directory.path()).unwrap();
        fs::remove_file(&file).unwrap();
        assert!(matches!(StateLock::take(directory.path()), Err(LockError::Held { .. })));
        let second = StateLock::adopt(first.share().unwrap()).unwrap();
        first.release_to_other();
        assert!(matches!(StateLock::take(directory.path()), Err(LockError::Held { .. })));
        second.release_to_other();
    }

    /// Every user who can open a directory could lock it, and prevent a start.
    #[test]
    fn a_directory_that_others_can_read_is_not_locked_itself() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let opened = File::open(directory.path()).unwrap();
        let locked = Flock::lock(opened, FlockArg::LockExclusiveNonblock).unwrap();
        let lock = StateLock::take(directory.path()).unwrap();
        assert!(matches!(StateLock::take(directory.path()), Err(LockError::Held { .. })));
        drop((lock, locked));
    }

    /// Versions without a lock of the directory hold and pass on that of the file alone.
    #[test]
    fn the_lock_of_the_file_alone_counts_and_can_be_adopted() {
        let directory = private();
        let mut lock = StateLock::take(directory.path()).unwrap();
        drop(lock.locks.remove(0));
        assert!(matches!(StateLock::take(directory.path()), Err(LockError::Held { .. })));
        let file = lock.share().unwrap().pop().into_iter().collect();
        let mut adopted = StateLock::adopt(file).unwrap();
        adopted.take_ownership();
        lock.release_to_other();
        drop(adopted);
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn an_error_names_a_missing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let error = StateLock::take(&directory.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/lock"), "{error}");
    }
}
