//! One tracker per state directory. The kernel frees the lock when the process ends, however it
//! ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct StateLock {
    /// Always there until it is dropped.
    file: Option<Flock<File>>,
    /// Whether another process holds it too, and goes on holding it where this one fails.
    borrowed: bool,
}

/// Why the lock cannot be had.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the state directory {directory} is in use by another onrush (process {holder})\n  \
         stop that one, or give this one a directory of its own with --state-dir"
    )]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The other's process id, as it wrote it down.
        holder: String,
    },
    /// The file cannot be opened or locked.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl StateLock {
    /// A second descriptor of the lock: whoever has it holds the lock too, also in another process.
    ///
    /// # Errors
    /// When this process has no descriptors left.
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.file().as_fd().try_clone_to_owned()
    }

    /// The lock that another process has shared. Both hold it until both let go of it.
    ///
    /// # Errors
    /// When it is not what was shared.
    pub fn adopt(descriptor: OwnedFd) -> std::io::Result<Self> {
        match Flock::lock(File::from(descriptor), FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { file: Some(file), borrowed: true }),
            Err((_, errno)) => Err(errno.into()),
        }
    }

    /// The other process has let go, or will: from now on the lock ends with this one. Writes that down.
    pub fn own(&mut self) {
        self.borrowed = false;
        self.sign();
    }

    /// Writes down that this process holds it.
    fn sign(&mut self) {
        // The number only tells others who holds the lock: a full disk takes neither the
        // lock nor the key beside it away.
        let Some(file) = &mut self.file else { return };
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
    }

    /// Lets go of it in this process only, where it is shared with another.
    pub fn leave(mut self) {
        self.borrowed = true;
    }

    fn file(&self) -> &File {
        self.file.as_ref().expect("it is there until it is dropped")
    }

    /// Takes the lock of a state directory.
    ///
    /// # Errors
    /// [`LockError`]: what to do is part of its text.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let path = directory.join("lock");
        let failed = |source| LockError::Io { path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                let mut lock = Self { file: Some(file), borrowed: false };
                lock.sign();
                Ok(lock)
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                // Whoever holds it may be just about to write its number.
                let read = file.read_to_string(&mut holder);
                let holder = match (read, holder.trim()) {
                    (Ok(_), number) if !number.is_empty() => number.to_owned(),
                    _ => "unknown".to_owned(),
                };
                Err(LockError::Held { directory: directory.to_owned(), holder })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        if self.borrowed {
            // Unlocking would unlock it for all who share it (flock(2)); the process's end does not.
            std::mem::forget(self.file.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_adopted_it_and_fails_does_not_unlock_it_for_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateLock::take(directory.path()).unwrap();
        drop(StateLock::adopt(first.share().unwrap()).unwrap());
        assert!(StateLock::take(directory.path()).is_err(), "the first one holds it still");
        let mut second = StateLock::adopt(first.share().unwrap()).unwrap();
        second.own();
        first.leave();
        assert!(StateLock::take(directory.path()).is_err(), "the second one holds it");
        drop(second);
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn the_second_is_told_who_is_first_and_may_follow_when_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateLock::take(directory.path()).unwrap();
        let error = StateLock::take(directory.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        assert!(error.contains("--state-dir"), "{error}");
        drop(first);
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn a_lock_file_that_cannot_be_written_locks_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        // It stands for a full disk: it has no length that could be set.
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&directory.path().join("lock"), mode).unwrap();
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = StateLock::take(&directory.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/lock"), "{error}");
    }
}
