//! Writing a snapshot, block by block.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Instant;

use nix::sys::statvfs::statvfs;
use onrush_swarm::Shard;

use crate::atomic_file::AtomicFile;

use super::encode::{Block, Encoder};
use super::format::{self, SnapshotCounts};
use onrush_text::numbers::grouped;
use onrush_tracker::clock::Now;

/// Swarms and peers per step of a walk after the workers have stopped.
const STEP: usize = 4096;

/// Writes the blocks of a snapshot to a file or a socket.
#[derive(Debug)]
pub struct SnapshotWriter<W> {
    to: W,
    counts: SnapshotCounts,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes the head of a snapshot; `unix` is the time in seconds since 1970.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub fn begin(mut to: W, unix: u64) -> io::Result<Self> {
        to.write_all(&format::head(unix))?;
        Ok(Self { to, counts: SnapshotCounts::default() })
    }

    /// Writes a block.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub fn block(&mut self, block: &Block) -> io::Result<()> {
        self.to.write_all(&block.bytes)?;
        self.counts += block.counts;
        Ok(())
    }

    /// Writes whole shards after their workers have stopped. Calls `progress` once per step.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub fn shards(
        &mut self,
        shards: &mut [Shard],
        now: Now,
        mut encoder: Encoder,
        progress: &mut dyn FnMut(),
    ) -> io::Result<()> {
        for shard in shards {
            shard.begin_walk();
            loop {
                progress();
                let more = shard.walk_with_peers(now.moment, STEP, &mut encoder);
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

    /// Writes the end block; returns the numbers of records and peers written.
    ///
    /// # Errors
    /// When `to` cannot be written.
    pub fn end(mut self, unix: u64) -> io::Result<(W, SnapshotCounts)> {
        self.to.write_all(&format::end(self.counts, unix))?;
        self.to.flush()?;
        Ok((self.to, self.counts))
    }
}

/// A snapshot that was written to a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotSummary {
    /// The records and peers in it.
    pub counts: SnapshotCounts,
    /// Its length in bytes.
    pub bytes: u64,
    /// The seconds that writing took.
    pub seconds: f64,
}

impl std::fmt::Display for SnapshotSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { counts: SnapshotCounts { records, v4, v6 }, bytes, seconds } = *self;
        let (peers, records) = (grouped(v4 + v6), grouped(records));
        let size = onrush_text::numbers::bytes(bytes);
        write!(f, "{peers} peers in {records} swarms, {size} in {seconds:.2} s")
    }
}

/// Writes a snapshot file at `unix`, with the blocks that `write` writes.
///
/// # Errors
/// When the file cannot be written, or `write` fails; the previous one stays. The text names the
/// file.
pub fn write_file(
    path: &Path,
    unix: u64,
    write: impl FnOnce(&mut SnapshotWriter<AtomicFile>) -> io::Result<()>,
) -> io::Result<SnapshotSummary> {
    let began = Instant::now();
    let written = || {
        let mut writer = SnapshotWriter::begin(AtomicFile::create(path, 0o600)?, unix)?;
        write(&mut writer)?;
        let (file, counts) = writer.end(unix)?;
        Ok((file.finish()?, counts))
    };
    let (bytes, counts) = written().map_err(|error: io::Error| {
        let room = missing_room(&error, path).unwrap_or_default();
        io::Error::new(error.kind(), format!("{}: {error}{room}", path.display()))
    })?;
    Ok(SnapshotSummary { counts, bytes, seconds: began.elapsed().as_secs_f64() })
}

/// On a full disk: how much room there is, after the incomplete file was removed.
fn missing_room(error: &io::Error, path: &Path) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        return None;
    }
    let disk = statvfs(path.parent()?).ok()?;
    let free = disk.blocks_available() * disk.fragment_size();
    let former = fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
    Some(format!(
        "; the new file needs more than the {free} bytes that are free beside the previous one of \
         {former} bytes: the disk needs room for both"
    ))
}

/// Writes shards to a snapshot file after their workers have stopped.
///
/// # Errors
/// When the file cannot be written; the previous one stays.
pub fn write_all(
    path: &Path,
    mut shards: Vec<Shard>,
    now: Now,
    progress: &mut dyn FnMut(),
) -> io::Result<SnapshotSummary> {
    let summary = write_file(path, now.unix, |writer| {
        writer.shards(&mut shards, now, Encoder::default(), progress)
    });
    // The process is about to exit, which frees the memory faster than dropping the shards.
    std::mem::forget(shards);
    summary
}
