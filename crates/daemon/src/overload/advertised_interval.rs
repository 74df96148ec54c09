//! What clients were told under pressure, kept over a restart: a line in the state directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Promise;

/// The file's name.
pub const FILE: &str = "overload.promise";
/// How often it is written while clients are told something that has to be kept: whoever is told so later waits for as
/// much longer.
const EVERY: Duration = Duration::from_secs(60);

/// The file, and when it was written last.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    /// `None` before there was anything to write.
    written: Option<Instant>,
}

impl Kept {
    /// In this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE), written: None }
    }

    /// What a process before this one has promised, as far as it is not over at this time (seconds since 1970).
    pub fn read(&self, unix: u64) -> Option<Promise> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (lifetime, until) = text.trim_end().split_once(' ')?;
        let left = until.parse::<u64>().ok()?.checked_sub(unix).filter(|left| *left > 0)?;
        // A clock that was set back must not make it last for ever.
        let seconds = u32::try_from(left).ok()?.min(2 * super::LONGEST_LIFETIME);
        Some(Promise { lifetime: lifetime.parse().ok()?, seconds })
    }

    /// To be called every second: writes it down where it is time to, or at once where that is `anew`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn second(
        &mut self,
        promise: Option<Promise>,
        anew: bool,
        unix: u64,
        now: Instant,
    ) -> io::Result<()> {
        let due = self.written.is_none_or(|written| now.duration_since(written) >= EVERY);
        match promise {
            Some(promise) if due || anew => {
                self.written = Some(now);
                self.write(promise, unix)
            }
            _ => Ok(()),
        }
    }

    /// Written beside and renamed: there is always a whole one.
    fn write(&self, promise: Promise, unix: u64) -> io::Result<()> {
        let Promise { lifetime, seconds } = promise;
        let beside = self.path.with_extension("promise.new");
        fs::write(&beside, format!("{lifetime} {}\n", unix + u64::from(seconds)))?;
        fs::rename(&beside, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_ends_in_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(directory.path());
        let start = Instant::now();
        assert_eq!(kept.read(1000), None);
        kept.second(None, true, 1000, start).unwrap();
        assert_eq!(kept.read(1000), None);
        let promise = Promise { lifetime: 7200, seconds: 3780 };
        kept.second(Some(promise), false, 1000, start).unwrap();
        assert_eq!(kept.read(1000), Some(promise));
        assert_eq!(kept.read(4000), Some(Promise { lifetime: 7200, seconds: 780 }));
        assert_eq!((kept.read(4780), kept.read(9000)), (None, None));
        // Every minute, or at once.
        let later = start + Duration::from_secs(30);
        kept.second(Some(promise), false, 1030, later).unwrap();
        assert_eq!(kept.read(4780), None);
        kept.second(Some(promise), true, 1030, later).unwrap();
        assert_eq!(kept.read(4780), Some(Promise { lifetime: 7200, seconds: 30 }));
        kept.second(Some(promise), false, 1090, later + EVERY).unwrap();
        assert_eq!(kept.read(4780).unwrap().seconds, 90);
        for nonsense in ["", "7200", "x 5000\n", "7200 later\n"] {
            fs::write(directory.path().join(FILE), nonsense).unwrap();
            assert_eq!(kept.read(1000), None, "{nonsense:?}");
        }
    }
}
