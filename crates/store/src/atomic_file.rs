//! Files that are whole or absent: written under a temporary name, synced, then renamed into place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::state_file;

/// Bytes after which the data is synced to the disk. One sync at the end of a file of gigabytes
/// could take longer than a service manager waits for a sign of progress.
const SYNC_EVERY: usize = 64 << 20;

/// Upper bound on the gap between creating a temporary file and locking it.
const LOCK_GAP: Duration = Duration::from_secs(60);

/// A temporary file, renamed into place by [`finish`](Self::finish) and deleted on drop.
#[derive(Debug)]
pub struct AtomicFile {
    file: BufWriter<File>,
    /// Marks the temporary file as being written; `None` where the file system has no locks.
    _lock: Option<Flock<File>>,
    /// Empty once the file was renamed.
    temporary: PathBuf,
    path: PathBuf,
    /// Bytes written since the last sync.
    unsynced: usize,
}

impl AtomicFile {
    /// Creates a temporary file beside `path` with the permissions `mode`, and removes those that
    /// killed processes left.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        // The process id is part of the name: during an upgrade two processes write the same file.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = path.with_file_name(name);
        remove_orphans(path);
        // `create_new` (O_EXCL) neither follows a link nor opens a file that others have opened.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        // `mode` counts, not the umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        // Non-blocking: every user who can read the file could lock it.
        let lock = Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock).ok();
        let file = BufWriter::with_capacity(256 << 10, file);
        Ok(Self { file, _lock: lock, temporary, path: path.to_owned(), unsynced: 0 })
    }

    /// Gives the file to another user and group.
    ///
    /// # Errors
    /// When this user may not.
    pub fn set_owner(&self, user: u32, group: u32) -> io::Result<()> {
        fchown(self.file.get_ref(), Some(user), Some(group))
    }

    /// Syncs the file and renames it into place. Returns its length in bytes. A directory that
    /// cannot be synced is logged: the file is in place, but a power failure may restore the
    /// previous one.
    ///
    /// # Errors
    /// When the file cannot be written; the previous file stays.
    pub fn finish(mut self) -> io::Result<u64> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let len = self.file.get_ref().metadata()?.len();
        self.rename()?;
        if let Err(error) = sync_directory_of(&self.path) {
            log::warn!(
                "{} is written, but its directory cannot be synced, so a power failure may restore \
                 the previous file: {error}",
                self.path.display()
            );
        }
        Ok(len)
    }

    /// Renames the file into place without waiting for the disk: after a power failure it may be
    /// empty.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_without_sync(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.rename()
    }

    fn rename(&mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.temporary = PathBuf::new();
        Ok(())
    }
}

/// Writes a whole file with the permissions `mode`, synced; returns its length in bytes.
///
/// # Errors
/// When the file cannot be written; the previous file stays.
pub fn write(path: &Path, mode: u32, contents: &[u8]) -> io::Result<u64> {
    let mut file = AtomicFile::create(path, mode)?;
    file.write_all(contents)?;
    file.finish()
}

/// Checks that files can be written in a directory, by creating one for a moment.
///
/// # Errors
/// The errors that [`AtomicFile::create`] would return there.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    AtomicFile::create(&directory.join("onrush-check"), 0o600).map(drop)
}

/// Syncs the directory of `path`, so that a new or renamed file survives a power failure.
///
/// # Errors
/// When the directory cannot be opened or synced.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

/// The files beside `path` whose names are its name, `middle`, a number and `end`, each with its
/// number.
pub(crate) fn numbered_files(path: &Path, middle: &str, end: &str) -> Vec<(u64, PathBuf)> {
    let prefix = format!("{}{middle}", path.file_name().unwrap_or_default().to_string_lossy());
    let entries = fs::read_dir(directory_of(path)).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(end)?;
        Some((number.parse().ok()?, entry.path()))
    });
    numbered.collect()
}

/// Removes temporary files for `path` whose processes were killed.
fn remove_orphans(path: &Path) {
    for (process, file) in numbered_files(path, ".", ".new") {
        if is_orphan(&file, process) {
            let _ = fs::remove_file(file);
        }
    }
}

/// Whether no process writes this temporary file, which process number `process` created. The
/// number alone does not decide: after a reboot another process may have it.
fn is_orphan(path: &Path, process: u64) -> bool {
    let lives = Path::new("/proc").join(process.to_string()).exists();
    let own_or_gone = process == u64::from(std::process::id()) || !lives;
    match state_file::open(path).map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
        Ok(Err((_, Errno::EWOULDBLOCK))) => false,
        // A process that has just created it may be about to lock it.
        Ok(Ok(file)) => own_or_gone || age(&file).is_some_and(|age| age > LOCK_GAP),
        // It cannot be opened, or the file system has no locks.
        Ok(Err(_)) | Err(_) => own_or_gone,
    }
}

/// The time since a file was last written.
fn age(file: &File) -> Option<Duration> {
    file.metadata().ok()?.modified().ok()?.elapsed().ok()
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            self.file.get_ref().sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.temporary != Path::new("") {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Process 1 always exists, like a process that got the number of a killed one.
    #[test]
    fn orphaned_temporary_files_are_removed_and_locked_ones_kept() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let own = format!("file.{}.new", std::process::id());
        for name in ["file.1.new", "file.4294967295.new", "file.x.new", "other.1.new", &own] {
            fs::write(at(name), "half").unwrap();
        }
        // file.1.new is younger than LOCK_GAP: its process may be about to lock it.
        let file = AtomicFile::create(&at("file"), 0o600).unwrap();
        assert_eq!(names(directory.path()), ["file.1.new", &own, "file.x.new", "other.1.new"]);
        // An old file that is locked is still being written.
        let old = SystemTime::now() - 2 * LOCK_GAP;
        let other = OpenOptions::new().write(true).open(at("file.1.new")).unwrap();
        other.set_modified(old).unwrap();
        let locked = Flock::lock(other, FlockArg::LockExclusive).unwrap();
        remove_orphans(&at("file"));
        assert!(at("file.1.new").exists());
        drop(locked);
        remove_orphans(&at("file"));
        assert_eq!(names(directory.path()), [&own, "file.x.new", "other.1.new"]);
        // An unfinished file is locked, and deleted on drop.
        let same = Flock::lock(File::open(at(&own)).unwrap(), FlockArg::LockExclusiveNonblock);
        assert!(matches!(same, Err((_, Errno::EWOULDBLOCK))));
        drop(file);
        assert_eq!(names(directory.path()), ["file.x.new", "other.1.new"]);
    }

    /// A directory that can be written but not read, by a thread without capabilities.
    #[test]
    fn a_file_is_in_place_although_its_directory_cannot_be_synced() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode));
        let path = directory.path().join("file");
        fs::write(&path, "former").unwrap();
        mode(0o300).unwrap();
        let written = std::thread::scope(|scope| {
            let write = || {
                caps::clear(None, caps::CapSet::Effective).unwrap();
                assert!(sync_directory_of(&path).is_err());
                let mut file = AtomicFile::create(&path, 0o600).unwrap();
                file.write_all(b"new").unwrap();
                file.finish()
            };
            scope.spawn(write).join().unwrap()
        });
        mode(0o700).unwrap();
        assert_eq!(written.unwrap(), 3);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["file"]);
    }
}
