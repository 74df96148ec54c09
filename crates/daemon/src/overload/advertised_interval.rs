//! Interval commitments on disk: a line in the state directory, so that they survive a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::IntervalCommitment;

/// The file's name in the state directory.
pub const FILE: &str = "overload.interval";
/// How often the file is rewritten: each reply with a longer interval extends the commitment.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// The file of the commitment: `LIFETIME UNTIL`, seconds and seconds since 1970.
#[derive(Debug)]
pub struct CommitmentFile {
    path: PathBuf,
    /// `None` until the first write.
    written: Option<Instant>,
}

impl CommitmentFile {
    /// The file in this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE), written: None }
    }

    /// The commitment of the previous process, if it has not expired at `unix` (seconds since
    /// 1970).
    pub fn read(&self, unix: u64) -> Option<IntervalCommitment> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (lifetime, until) = text.trim_end().split_once(' ')?;
        let left = until.parse::<u64>().ok()?.checked_sub(unix).filter(|left| *left > 0)?;
        // After the clock was set back, the file's end may be years away.
        let seconds = u32::try_from(left).ok()?.min(2 * super::LONGEST_LIFETIME);
        Some(IntervalCommitment { lifetime: lifetime.parse().ok()?, seconds })
    }

    /// Call every second: writes the commitment once a minute, or at once if it has `changed`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tick(
        &mut self,
        commitment: Option<IntervalCommitment>,
        changed: bool,
        unix: u64,
        now: Instant,
    ) -> io::Result<()> {
        let due = self.written.is_none_or(|written| now.duration_since(written) >= WRITE_EVERY);
        match commitment {
            Some(commitment) if due || changed => {
                self.written = Some(now);
                self.write(commitment, unix)
            }
            _ => Ok(()),
        }
    }

    /// Writes a temporary file and renames it, so that the file is always complete.
    fn write(&self, commitment: IntervalCommitment, unix: u64) -> io::Result<()> {
        let IntervalCommitment { lifetime, seconds } = commitment;
        let temporary = self.path.with_extension("interval.new");
        fs::write(&temporary, format!("{lifetime} {}\n", unix + u64::from(seconds)))?;
        fs::rename(&temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commitment_expires_and_is_rewritten_every_minute() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = CommitmentFile::new(directory.path());
        let start = Instant::now();
        assert_eq!(file.read(1000), None);
        file.tick(None, true, 1000, start).unwrap();
        assert_eq!(file.read(1000), None);
        let commitment = IntervalCommitment { lifetime: 7200, seconds: 3780 };
        file.tick(Some(commitment), false, 1000, start).unwrap();
        assert_eq!(file.read(1000), Some(commitment));
        assert_eq!(file.read(4000), Some(IntervalCommitment { lifetime: 7200, seconds: 780 }));
        assert_eq!((file.read(4780), file.read(9000)), (None, None));
        // Rewritten every minute, or at once after a change.
        let later = start + Duration::from_secs(30);
        file.tick(Some(commitment), false, 1030, later).unwrap();
        assert_eq!(file.read(4780), None);
        file.tick(Some(commitment), true, 1030, later).unwrap();
        assert_eq!(file.read(4780), Some(IntervalCommitment { lifetime: 7200, seconds: 30 }));
        file.tick(Some(commitment), false, 1090, later + WRITE_EVERY).unwrap();
        assert_eq!(file.read(4780).unwrap().seconds, 90);
        for malformed in ["", "7200", "x 5000\n", "7200 later\n"] {
            fs::write(directory.path().join(FILE), malformed).unwrap();
            assert_eq!(file.read(1000), None, "{malformed:?}");
        }
    }
}
