//! Writing a file that is whole or not there: beside its place, then renamed into it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

/// After so many bytes the disk is waited for, so that whoever watches over the writing of gigabytes sees it go on:
/// in one go at the end it could take longer than a service manager waits.
const SYNC_EVERY: usize = 64 << 20;

/// Longer than a draft that was just made is without its lock.
const BEGINNING: Duration = Duration::from_secs(60);

/// A file that is not in its place yet. One that is dropped before it is there goes.
#[derive(Debug)]
pub struct Draft {
    file: Option<BufWriter<File>>,
    /// Tells others that somebody writes it; `None` where the file system has no locks.
    _lock: Option<Flock<File>>,
    beside: PathBuf,
    place: PathBuf,
    /// Bytes since the disk was last waited for.
    unsynced: usize,
}

impl Draft {
    /// Begins a file for `place` with these permissions.
    ///
    /// # Errors
    /// When nothing can be written beside it.
    pub fn begin(place: &Path, mode: u32) -> io::Result<Self> {
        // Of its own process: in an upgrade there are two that write.
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let beside = place.with_file_name(name);
        remove_orphans(place);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        // Whatever the umask says, which is there for files that nobody has thought of.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        // Nobody is waited for: one that others can read they can lock as well.
        let lock = Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock).ok();
        let file = Some(BufWriter::with_capacity(256 << 10, file));
        Ok(Self { file, _lock: lock, beside, place: place.to_owned(), unsynced: 0 })
    }

    /// Puts it in its place, once all of it is on the disk. Returns its length. Where only its name may not outlast a
    /// failure of power the log says so.
    ///
    /// # Errors
    /// When it cannot be written; what was in its place stays.
    pub fn finish(mut self) -> io::Result<u64> {
        let file = self.file.take().expect("it is finished once");
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let len = file.metadata()?.len();
        fs::rename(&self.beside, &self.place)?;
        self.beside = PathBuf::new();
        if let Err(error) = sync_name(&self.place) {
            // It is there, and whoever looks finds it: all that is not known is what a power failure leaves.
            log::warn!(
                "{} is written and in its place, but a failure of power may bring the former one back: its \
                 directory cannot be synced: {error}",
                self.place.display()
            );
        }
        Ok(len)
    }
}

/// Waits until the name of a file that is new there is on the disk, as its content is already.
///
/// # Errors
/// When its directory cannot be written.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    File::open(if directory == Path::new("") { Path::new(".") } else { directory })?.sync_all()
}

/// Removes drafts for this place whose processes were killed, and an own one that was left.
fn remove_orphans(place: &Path) {
    let (Some(directory), Some(name)) = (place.parent(), place.file_name()) else { return };
    let directory = if directory == Path::new("") { Path::new(".") } else { directory };
    let prefix = format!("{}.", name.to_string_lossy());
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let file = file.to_string_lossy();
        let process = file.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".new"));
        let Some(Ok(process)) = process.map(str::parse::<u32>) else { continue };
        if is_orphan(&entry.path(), process) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether nobody writes this draft, which a process of this number has begun. The number alone does not tell: after a
/// restart of the host it may be another process's.
fn is_orphan(path: &Path, process: u32) -> bool {
    let lives = Path::new("/proc").join(process.to_string()).exists();
    let own_or_gone = process == std::process::id() || !lives;
    // Whatever it is, opening it does not wait.
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    match opened.map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
        Ok(Err((_, Errno::EWOULDBLOCK))) => false,
        // Who has just made it may be about to lock it.
        Ok(Ok(file)) => own_or_gone || age(&file).is_some_and(|age| age > BEGINNING),
        // It cannot be looked at, or there are no locks here.
        Ok(Err(_)) | Err(_) => own_or_gone,
    }
}

/// How long ago a file was written to.
fn age(file: &File) -> Option<Duration> {
    file.metadata().ok()?.modified().ok()?.elapsed().ok()
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = self.file.as_mut().expect("it is not finished");
        let written = file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_EVERY {
            self.unsynced = 0;
            file.get_ref().sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().expect("it is not finished").flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.beside != Path::new("") {
            let _ = fs::remove_file(&self.beside);
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

    /// Process 1 is always there, as is whoever got the number of one that was killed.
    #[test]
    fn drafts_that_nobody_writes_go_whoever_has_their_number_now() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let own = format!("place.{}.new", std::process::id());
        for name in ["place.1.new", "place.4294967295.new", "place.x.new", "other.1.new", &own] {
            fs::write(at(name), "half").unwrap();
        }
        // One that was just made may not have its lock yet.
        let draft = Draft::begin(&at("place"), 0o600).unwrap();
        assert_eq!(names(directory.path()), ["other.1.new", "place.1.new", &own, "place.x.new"]);
        // It is whoever has locked it who writes it, however long that takes.
        let old = SystemTime::now() - 2 * BEGINNING;
        let file = OpenOptions::new().write(true).open(at("place.1.new")).unwrap();
        file.set_modified(old).unwrap();
        let written = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        remove_orphans(&at("place"));
        assert!(at("place.1.new").exists());
        drop(written);
        remove_orphans(&at("place"));
        assert_eq!(names(directory.path()), ["other.1.new", &own, "place.x.new"]);
        // The draft itself is locked while it is written, and gone without an end.
        let same = Flock::lock(File::open(at(&own)).unwrap(), FlockArg::LockExclusiveNonblock);
        assert!(matches!(same, Err((_, Errno::EWOULDBLOCK))));
        drop(draft);
        assert_eq!(names(directory.path()), ["other.1.new", "place.x.new"]);
    }

    /// In a directory that may be written and not read, for who has no more power than its owner.
    #[test]
    fn what_is_in_its_place_is_written_whatever_becomes_of_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode));
        let place = directory.path().join("place");
        fs::write(&place, "former").unwrap();
        mode(0o300).unwrap();
        let written = std::thread::scope(|scope| {
            let write = || {
                // Of this thread alone.
                caps::clear(None, caps::CapSet::Effective).unwrap();
                assert!(sync_name(&place).is_err());
                let mut draft = Draft::begin(&place, 0o600).unwrap();
                draft.write_all(b"new").unwrap();
                draft.finish()
            };
            scope.spawn(write).join().unwrap()
        });
        mode(0o700).unwrap();
        assert_eq!(written.unwrap(), 3);
        assert_eq!(fs::read(&place).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["place"]);
    }
}
