//! The lock of a state directory: one tracker per directory. The kernel releases it when the
//! process exits, also after a crash (flock(2)).

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
    /// `Some` until dropped.
    file: Option<Flock<File>>,
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
    /// A second descriptor of the lock, for another process: both processes then hold the lock.
    ///
    /// # Errors
    /// When no descriptor is left (RLIMIT_NOFILE).
    pub fn share(&self) -> std::io::Result<OwnedFd> {
        self.file.as_ref().expect("the file is open until dropped").as_fd().try_clone_to_owned()
    }

    /// The lock from a descriptor that another process made with [`share`](Self::share). The
    /// directory is locked until both processes have released it.
    ///
    /// # Errors
    /// When the descriptor is not that of a lock file.
    pub fn adopt(descriptor: OwnedFd) -> std::io::Result<Self> {
        match Flock::lock(File::from(descriptor), FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { file: Some(file), shared: true }),
            Err((_, errno)) => Err(errno.into()),
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
        let Some(file) = &mut self.file else { return };
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
                let mut lock = Self { file: Some(file), shared: false };
                lock.write_process_id();
                Ok(lock)
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut number = String::new();
                // The other process may not have written its number yet.
                let _ = file.read_to_string(&mut number);
                let holder = if number.is_empty() { "unknown" } else { number.trim() };
                Err(LockError::Held { directory: directory.to_owned(), holder: holder.to_owned() })
            }
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        if self.shared {
            // LOCK_UN would unlock it for the other process too (flock(2)); closing at exit does
            // not.
            std::mem::forget(self.file.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_an_adopted_lock_keeps_it_locked_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
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
        drop(first);
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn a_lock_file_that_cannot_be_written_can_be_locked() {
        let directory = tempfile::tempdir().unwrap();
        // A pipe in its place cannot be truncated, like a file on a full disk.
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::unistd::mkfifo(&directory.path().join("lock"), mode).unwrap();
        StateLock::take(directory.path()).unwrap();
    }

    #[test]
    fn an_error_names_a_missing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let error = StateLock::take(&directory.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/lock"), "{error}");
    }
}
