//! Writing a file that is whole or not there: beside its place, then renamed into it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use onrush_swarm::Shard;

use super::encode::{Block, Encoder};
use super::format::{self, Tally};
use crate::clock::Now;
use crate::process::service::Patience;

/// Swarms and peers that are shown in one go once nobody waits for replies.
const PIECE: usize = 4096;

/// After so many bytes the disk is waited for, so that whoever watches over the writing of gigabytes sees it go on:
/// in one go at the end it could take longer than a service manager waits.
const SYNC_EVERY: usize = 64 << 20;

/// A file that is not in its place yet. One that is dropped before it is there goes.
#[derive(Debug)]
pub struct Draft {
    file: Option<BufWriter<File>>,
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
        let file = Some(BufWriter::with_capacity(256 << 10, file));
        Ok(Self { file, beside, place: place.to_owned(), unsynced: 0 })
    }

    /// Puts it in its place, once all of it is on the disk. Returns its length.
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
        sync_name(&self.place)?;
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
        let lives = Path::new("/proc").join(process.to_string()).exists();
        if process == std::process::id() || !lives {
            let _ = fs::remove_file(entry.path());
        }
    }
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

/// Writes blocks as a snapshot.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    tally: Tally,
}

impl<W: Write> Writer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(mut to: W, unix: u64) -> io::Result<Self> {
        to.write_all(&format::head(unix))?;
        Ok(Self { to, tally: Tally::default() })
    }

    /// Writes a block.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn block(&mut self, block: &Block) -> io::Result<()> {
        self.to.write_all(&block.bytes)?;
        self.tally += block.tally;
        Ok(())
    }

    /// Writes shards that nobody else uses, each with an encoder of its own.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn shards(
        &mut self,
        shards: &mut [Shard],
        now: Now,
        encoder: impl Fn() -> Encoder,
    ) -> io::Result<()> {
        let mut patience = Patience::new();
        for shard in shards {
            let mut encoder = encoder();
            shard.begin_walk();
            loop {
                patience.step(Instant::now());
                let more = shard.walk_with_peers(now.moment, PIECE, &mut encoder);
                if let Some(block) = encoder.block(now.unix, !more) {
                    self.block(&block)?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Ends it; what is in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(mut self, unix: u64) -> io::Result<(W, Tally)> {
        self.to.write_all(&format::end(self.tally, unix))?;
        self.to.flush()?;
        Ok((self.to, self.tally))
    }
}
