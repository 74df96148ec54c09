//! When the full scrape is written to `export.file`: at an interval, and on request.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::periodic_file::PeriodicFile;
use onrush_config::export_format::of_name;
use onrush_config::settings::ExportSettings;
use onrush_control::api::admin::ExportReport;
use onrush_control::request::Responder;
use onrush_store::atomic_file::AtomicFile;
use onrush_store::export::count::{SwarmCounter, SwarmCounts};
use onrush_store::export::format::write;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::{ShardStream, StreamError};

/// Mode of the file: readable by all users.
const MODE: u32 = 0o644;
/// Replies to the request for an export.
pub type ExportResponder = Responder<Result<ExportReport, String>>;

/// The exports of a running tracker.
#[derive(Debug)]
pub(super) struct Exports {
    pub(super) settings: ExportSettings,
    pub(super) writer: PeriodicFile<ExportReport>,
    /// Dropping this aborts the export being written.
    keep: Option<Sender<()>>,
    /// Responders of the export being written.
    waiting: Vec<ExportResponder>,
}

impl Exports {
    /// The first export is due an interval from `now`.
    pub(super) fn new(settings: ExportSettings, now: Instant) -> Self {
        let writer = PeriodicFile::new("export", now);
        Self { settings, writer, keep: None, waiting: Vec::new() }
    }

    /// Call every second: starts an export when it is due, and reports a finished one.
    pub(super) fn tick(&mut self, orders: &Orders, now: Instant) {
        if let Some(result) = self.writer.finished(Duration::ZERO) {
            self.finish(result);
        }
        if self.settings.file.is_some() && self.writer.is_due(self.settings.every, now) {
            self.start(orders, None, now);
        }
    }

    /// Starts an export, unless one is being written. `responder` gets the result.
    pub(super) fn start(
        &mut self,
        orders: &Orders,
        responder: Option<ExportResponder>,
        now: Instant,
    ) {
        let Some(path) = self.settings.file.clone() else {
            let why = "no file is configured: name a file as export.file and reload";
            log::warn!("export failed: {why}");
            return responder.into_iter().for_each(|it| it.respond(Err(why.to_owned())));
        };
        self.waiting.extend(responder);
        if self.writer.is_writing() {
            return;
        }
        let (keep, aborted) = bounded(1);
        self.keep = Some(keep);
        let write = move |swarms| write_stream(&path, swarms, &aborted);
        if let Err(why) = self.writer.start(now, orders, SwarmCounter::default, write) {
            self.finish(Err(io::Error::other(why)));
        }
    }

    /// Aborts the export being written, since the tracker stops. A slow disk is not waited for: the
    /// final snapshot is still to be written. Waits for `limit` at most.
    pub(super) fn abort(&mut self, limit: Duration) {
        self.keep = None;
        if self.writer.is_writing() {
            let slow = "the disk is slow; the next export removes the temporary file";
            let result = self.writer.finished(limit);
            self.finish(result.unwrap_or_else(|| Err(io::Error::other(slow))));
        }
    }

    fn finish(&mut self, result: io::Result<ExportReport>) {
        let result = result.map_err(|error| error.to_string());
        match &result {
            Ok(export) => self.writer.succeeded(export, export.bytes, export.seconds),
            Err(why) => self.writer.failed(why),
        }
        self.waiting.drain(..).for_each(|responder| responder.respond(result.clone()));
    }
}

/// Writes the counts of all shards, unless the export is aborted.
fn write_stream(
    path: &Path,
    mut stream: ShardStream<Vec<SwarmCounts>>,
    aborted: &Receiver<()>,
) -> io::Result<ExportReport> {
    let began = Instant::now();
    let mut swarms = Vec::new();
    let failed = |error| match error {
        StreamError::Stopped => stopping(),
        StreamError::Interrupted => io::Error::other(error),
    };
    while let Some(mut counted) = stream.next(aborted).map_err(failed)? {
        swarms.append(&mut counted);
    }
    let bytes = write_swarms(path, &mut swarms, aborted)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let (path, swarms) = (path.display().to_string(), swarms.len() as u64);
    Ok(ExportReport { path, swarms, bytes, seconds: began.elapsed().as_secs_f64() })
}

fn write_swarms(
    path: &Path,
    swarms: &mut [SwarmCounts],
    aborted: &Receiver<()>,
) -> io::Result<u64> {
    let format = of_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let mut to = Abortable { file: AtomicFile::create(path, MODE)?, aborted };
    write(format, swarms, &mut to)?;
    to.file.finish()
}

fn stopping() -> io::Error {
    io::Error::other("the tracker is stopping")
}

/// A file whose writes fail once the export is aborted.
struct Abortable<'a> {
    file: AtomicFile,
    aborted: &'a Receiver<()>,
}

impl Write for Abortable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.aborted.try_recv() {
            Err(TryRecvError::Disconnected) => Err(stopping()),
            _ => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use onrush_proto::InfoHash;
    use onrush_tracker::stream::Part;

    use super::*;

    fn swarms() -> Vec<SwarmCounts> {
        let counts = |n: u8| SwarmCounts {
            info_hash: InfoHash([n; 20]),
            seeders: 1,
            leechers: 2,
            completed: 3,
        };
        (0..100).map(counts).collect()
    }

    /// In each format, while it waits for a shard and while it writes.
    #[test]
    fn an_aborted_export_leaves_the_previous_file_alone() {
        for name in ["a.txt", "a.txt.gz", "a.bencode.gz"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(name);
            let files = || std::fs::read_dir(directory.path()).unwrap().count();
            let (keep, aborted) = bounded(1);
            assert!(write_swarms(&path, &mut swarms(), &aborted).unwrap() > 0);
            assert_eq!(files(), 1);
            let former = std::fs::read(&path).unwrap();

            let (to, parts) = bounded(2);
            to.send(Part::Message(swarms())).unwrap();
            let waiting = thread::scope(|scope| {
                let stream = ShardStream::new(parts, 1);
                let waiting = scope.spawn(|| write_stream(&path, stream, &aborted));
                drop(keep);
                waiting.join().unwrap()
            });
            assert!(waiting.unwrap_err().to_string().contains("the tracker is stopping"));
            let writing = write_swarms(&path, &mut swarms()[..9], &aborted).unwrap_err();
            assert!(writing.to_string().contains("the tracker is stopping"), "{writing}");
            assert_eq!((files(), std::fs::read(&path).unwrap()), (1, former), "{name}");
        }
    }

    #[test]
    fn abort_waits_for_the_temporary_file_to_be_removed_and_responds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let (keep, aborted) = bounded::<()>(1);
        let file = AtomicFile::create(&path, MODE).unwrap();
        let mut exports =
            Exports { keep: Some(keep), ..Exports::new(ExportSettings::default(), Instant::now()) };
        let write = move || {
            let aborted = aborted.recv().is_err();
            drop(file);
            Err(io::Error::other(format!("aborted: {aborted}")))
        };
        exports.writer.spawn(Instant::now(), write).unwrap();
        let (sender, response) = bounded(1);
        exports.waiting.push(Responder::new(move |result| drop(sender.send(result))));
        exports.abort(Duration::from_secs(60));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(response.recv().unwrap(), Err("aborted: true".to_owned()));
        assert_eq!(exports.writer.writes().stats().failed, 1);
    }
}
