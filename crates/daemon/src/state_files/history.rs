//! The history of rates, peers and swarms on disk: JSON in the state directory, written every five
//! minutes, for a successor, and at the end.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::first_failure::FirstFailure;
use super::periodic_file::PeriodicFile;
use onrush_control::api::history as api;
use onrush_control::history::History;
use onrush_store::damaged_file::set_aside;
use onrush_store::{atomic_file, state_file};

/// The file's name in the state directory.
pub const FILE: &str = "history.json";
/// Permissions of the file.
const MODE: u32 = 0o600;
/// How often the file is written: what a kill loses.
const WRITE_EVERY: Duration = Duration::from_secs(300);
/// Bytes of a file that are read. Values in the millions make 0.5 MB.
const MAX_LENGTH: u64 = 4 << 20;
/// Seconds of the history: what ended before is out of its range.
const SPAN: u64 = 31 * 24 * 3_600;

/// The file of the history.
#[derive(Debug)]
pub struct HistoryFile {
    path: PathBuf,
    writer: PeriodicFile<u64>,
    failure: FirstFailure,
}

impl HistoryFile {
    /// The file in this state directory.
    pub fn new(state_dir: &Path, now: Instant) -> Self {
        let (writer, failure) = (PeriodicFile::new("history", now), FirstFailure::default());
        Self { path: state_dir.join(FILE), writer, failure }
    }

    /// Restores the history of the previous process; `unix` is the time in seconds since 1970.
    /// Returns a warning for the operator if there is one that cannot be used. A file that is read
    /// and not valid, or that ended more than a month ago, is renamed.
    pub fn load(&self, history: &History, now: Instant, unix: u64) -> Option<String> {
        let why = match state_file::read_json::<api::History>(&self.path, MAX_LENGTH) {
            Ok(saved) => match unix.saturating_sub(saved.hour.until) {
                // A clock that is ahead looks the same. The file stays for when it is set right.
                ended if ended > SPAN => format!(
                    "it ended {} days ago, so all of it is out of range; if this host's clock is \
                     ahead, set it, stop the tracker and rename the file back",
                    ended / 86_400
                ),
                _ => history.restore(&saved, now, unix).err()?,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) if state_file::is_damaged(&error) => error.to_string(),
            Err(error) => {
                let path = self.path.display();
                let text = format!("history not loaded: {path}: {error}; the next one replaces it");
                return Some(text);
            }
        };
        Some(set_aside("history", &self.path, &why, unix))
    }

    /// Call every second: starts a write when it is due. Returns a warning for the operator when
    /// the file cannot be written for the first time since it was last written.
    pub fn tick(&mut self, history: &History, now: Instant, unix: u64) -> Option<String> {
        let warning = self.finished(Duration::ZERO);
        if !self.writer.is_due(WRITE_EVERY, now) {
            return warning;
        }
        let not_started = self.start(history, now, unix);
        warning.or(not_started)
    }

    /// Writes the file, and waits for the disk up to `limit`. Returns a warning for the operator if
    /// it is not written by then.
    pub fn write(
        &mut self,
        history: &History,
        now: Instant,
        unix: u64,
        limit: Duration,
    ) -> Option<String> {
        // A write in progress has an older history, so its result does not matter.
        let _ = self.finished(limit);
        self.failure = FirstFailure::default();
        if !self.writer.is_writing() {
            let failed = self.start(history, now, unix).or_else(|| self.finished(limit));
            if failed.is_some() {
                return failed;
            }
        }
        self.writer.is_writing().then(|| self.warning("the disk is slow"))
    }

    /// Starts a thread that writes the file.
    fn start(&mut self, history: &History, now: Instant, unix: u64) -> Option<String> {
        let (saved, path) = (history.report(now, unix), self.path.clone());
        let why = self.writer.spawn(now, move || write_file(&path, &saved)).err()?;
        self.warn_once(Some(why))
    }

    /// Takes the result of the write in progress, if there is one within `limit`.
    fn finished(&mut self, limit: Duration) -> Option<String> {
        let result = self.writer.finished(limit)?;
        self.warn_once(result.err().map(|error| error.to_string()))
    }

    fn warn_once(&mut self, why: Option<String>) -> Option<String> {
        self.failure.of(why).map(|why| self.warning(&why))
    }

    fn warning(&self, why: &str) -> String {
        format!(
            "{}: the history cannot be written: {why}; after a restart the charts lack what came \
             since the last one",
            self.path.display()
        )
    }
}

/// Writes the file; returns its length in bytes.
fn write_file(path: &Path, saved: &api::History) -> io::Result<u64> {
    let mut json = serde_json::to_vec(saved)?;
    json.push(b'\n');
    atomic_file::write(path, MODE, &json)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use onrush_tracker::metrics::Summary;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A history of ten seconds with 70 swarms, and the time of its end.
    fn ten_seconds() -> (History, Instant) {
        let start = Instant::now();
        let history = History::new(start);
        for second in 0..=10 {
            let sum = Summary { swarms: 70, ..Summary::default() };
            history.record(&sum, start + Duration::from_secs(second));
        }
        (history, start + Duration::from_secs(10))
    }

    /// The swarms of the last seconds of what `file` holds, and the warning of loading it.
    fn loaded(file: &HistoryFile, unix: u64) -> (Vec<Option<f32>>, Option<String>) {
        let now = Instant::now();
        let history = History::new(now);
        let warning = file.load(&history, now, unix);
        let report = history.report(now, unix);
        (report.hour.values["swarms"].clone(), warning)
    }

    #[test]
    fn a_history_is_written_and_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        assert_eq!(loaded(&file, 1_000), (vec![], None), "a first start");
        assert_eq!(file.write(&history, now, 1_000, LIMIT), None);
        let metadata = fs::metadata(directory.path().join(FILE)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        assert_eq!(loaded(&file, 1_000), (vec![Some(70.0); 10], None));
        let with_gap = [vec![Some(70.0); 10], vec![None; 5]].concat();
        assert_eq!(loaded(&file, 1_005), (with_gap, None));
        assert_eq!(loaded(&file, 900), (vec![Some(70.0); 10], None), "the clock was set back");
    }

    #[test]
    fn the_file_is_written_every_five_minutes() {
        let directory = tempfile::tempdir().unwrap();
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        assert_eq!(file.tick(&history, now + WRITE_EVERY / 2, 1_000), None);
        assert!(!file.writer.is_writing());
        assert_eq!(file.tick(&history, now + WRITE_EVERY, 1_000), None);
        assert_eq!(file.finished(LIMIT), None);
        assert!(directory.path().join(FILE).is_file());
        assert_eq!(file.tick(&history, now + WRITE_EVERY + LIMIT, 1_000), None);
        assert!(!file.writer.is_writing());
    }

    #[test]
    fn damaged_files_are_renamed_and_others_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        assert_eq!(file.write(&history, now, 1_000, LIMIT), None);
        let whole = fs::read_to_string(&path).unwrap();
        let newer = whole.replacen("\"version\":1", "\"version\":2", 1);
        assert_ne!(newer, whole);
        for (at, damaged) in (2_000..).zip(["", "null", &whole[..whole.len() / 2], &newer]) {
            fs::write(&path, damaged).unwrap();
            let (swarms, warning) = loaded(&file, at);
            assert_eq!(swarms, []);
            let renamed = directory.path().join(format!("{FILE}.damaged-{at}"));
            assert!(warning.unwrap().contains(&renamed.display().to_string()));
            assert_eq!(fs::read_to_string(renamed).unwrap(), damaged);
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_history_out_of_range_is_kept_aside_until_the_clock_is_right() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        assert_eq!(file.write(&history, now, 1_000, LIMIT), None);
        let ahead = 1_000 + SPAN + 86_400;
        let (swarms, warning) = loaded(&file, ahead);
        let renamed = directory.path().join(format!("{FILE}.damaged-{ahead}"));
        let warning = warning.unwrap();
        assert!(warning.contains("32 days") && warning.contains("clock"), "{warning}");
        assert_eq!((swarms, path.exists()), (vec![], false));
        fs::rename(renamed, &path).unwrap();
        assert_eq!(loaded(&file, 1_000), (vec![Some(70.0); 10], None));
        // Within the range there is a gap, and no warning.
        assert_eq!(loaded(&file, 1_000 + SPAN).1, None);
    }

    #[test]
    fn links_and_pipes_are_not_read_and_links_not_written_through() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        assert_eq!(file.write(&history, now, 1_000, LIMIT), None);
        fs::rename(at(FILE), at("other")).unwrap();
        let other = fs::read(at("other")).unwrap();
        symlink("other", at(FILE)).unwrap();
        let (swarms, warning) = loaded(&file, 1_000);
        assert_eq!(swarms, []);
        assert!(warning.unwrap().contains(FILE));
        let later = now + Duration::from_secs(1);
        assert_eq!(file.write(&history, later, 1_001, LIMIT), None);
        assert!(fs::symlink_metadata(at(FILE)).unwrap().is_file());
        assert_eq!(fs::read(at("other")).unwrap(), other);
        fs::remove_file(at(FILE)).unwrap();
        nix::unistd::mkfifo(&at(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(loaded(&file, 1_000).1.unwrap().contains(FILE));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_warned_of_once() {
        let directory = tempfile::tempdir().unwrap();
        let (history, now) = ten_seconds();
        let mut file = HistoryFile::new(directory.path(), now);
        let mut warns = |minutes: u32| {
            let now = now + minutes * Duration::from_secs(60);
            let started = file.tick(&history, now, 1_000);
            started.or(file.finished(LIMIT)).is_some_and(|warning| warning.contains(FILE))
        };
        // A file cannot replace a directory.
        fs::create_dir(directory.path().join(FILE)).unwrap();
        assert_eq!([5, 10, 15].map(&mut warns), [true, false, false]);
        fs::remove_dir(directory.path().join(FILE)).unwrap();
        assert!(!warns(20));
        fs::remove_file(directory.path().join(FILE)).unwrap();
        fs::create_dir(directory.path().join(FILE)).unwrap();
        assert_eq!([25, 30].map(&mut warns), [true, false]);
    }
}
