//! Writing a snapshot, block by block.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use onrush_swarm::Shard;

use crate::atomic_file::AtomicFile;

use super::encode::{Block, Encoder};
use super::format::{self, SnapshotCounts};
use onrush_tracker::clock::Now;

/// Swarms and peers that are shown in one go once nobody waits for replies.
const PIECE: usize = 4096;

/// Writes blocks as a snapshot.
#[derive(Debug)]
pub struct SnapshotWriter<W> {
    to: W,
    tally: SnapshotCounts,
}

impl<W: Write> SnapshotWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(mut to: W, unix: u64) -> io::Result<Self> {
        to.write_all(&format::head(unix))?;
        Ok(Self { to, tally: SnapshotCounts::default() })
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
        progress: &mut dyn FnMut(),
    ) -> io::Result<()> {
        for shard in shards {
            let mut encoder = encoder();
            shard.begin_walk();
            loop {
                progress();
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
    pub fn end(mut self, unix: u64) -> io::Result<(W, SnapshotCounts)> {
        self.to.write_all(&format::end(self.tally, unix))?;
        self.to.flush()?;
        Ok((self.to, self.tally))
    }
}

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// What is in it.
    pub tally: SnapshotCounts,
    /// Its length.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
}

impl std::fmt::Display for SnapshotSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SnapshotCounts { records, v4, v6 } = self.tally;
        let (peers, megabytes) = (v4 + v6, self.bytes as f64 / 1e6);
        let seconds = self.took.as_secs_f64();
        write!(f, "{peers} peers in {records} swarms, {megabytes:.1} MB in {seconds:.2} s")
    }
}

/// Writes shards that nobody else uses.
///
/// # Errors
/// When it cannot be written; what was there stays.
pub fn write_all(
    path: &Path,
    mut shards: Vec<Shard>,
    now: Now,
    progress: &mut dyn FnMut(),
) -> io::Result<SnapshotSummary> {
    let began = Instant::now();
    let mut writer = SnapshotWriter::begin(AtomicFile::create(path, 0o600)?, now.unix)?;
    writer.shards(&mut shards, now, Encoder::new, progress)?;
    // The process is about to end: its memory goes at once then.
    std::mem::forget(shards);
    let (draft, tally) = writer.end(now.unix)?;
    Ok(SnapshotSummary { tally, bytes: draft.finish()?, took: began.elapsed() })
}
