//! When the full scrape is written to `export.file`: at an interval, and on request.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::periodic_file::PeriodicFile;
use onrush_config::export_format::of_name;
use onrush_config::settings::ExportSettings;
use onrush_control::api::admin::ExportReport;
use onrush_control::request::Responder;
use onrush_store::atomic_file::AtomicFile;
use onrush_store::export::count::{SwarmCounter, SwarmCounts};
use onrush_store::export::format::write;
use onrush_tracker::gather::ResultMissing;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::ShardStream;

/// Mode of the file: readable by all users.
const MODE: u32 = 0o644;
/// Replies to the request for an export.
pub type ExportResponder = Responder<Result<ExportReport, String>>;

/// The exports of a running tracker.
#[derive(Debug)]
pub(super) struct Exports {
    pub(super) settings: ExportSettings,
    pub(super) writer: PeriodicFile<ExportReport>,
    /// Responders of the export being written.
    waiting: Vec<ExportResponder>,
}

impl Exports {
    /// The first export is due an interval from `now`.
    pub(super) fn new(settings: ExportSettings, now: Instant) -> Self {
        let writer = PeriodicFile::new("export", now);
        Self { settings, writer, waiting: Vec::new() }
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
        let write = move |swarms| write_stream(&path, swarms);
        if let Err(why) = self.writer.start(now, orders, SwarmCounter::default, write) {
            self.finish(Err(io::Error::other(why)));
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

/// Writes the counts of all shards. When the process ends meanwhile, the next export removes the
/// temporary file.
fn write_stream(
    path: &Path,
    mut stream: ShardStream<Vec<SwarmCounts>>,
) -> io::Result<ExportReport> {
    let began = Instant::now();
    let mut swarms = Vec::new();
    let missing = |_| io::Error::other(ResultMissing);
    while let Some(mut counted) = stream.next_by(Receiver::recv).map_err(missing)? {
        swarms.append(&mut counted);
    }
    let bytes = write_swarms(path, &mut swarms)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let (path, swarms) = (path.display().to_string(), swarms.len() as u64);
    Ok(ExportReport { path, swarms, bytes, seconds: began.elapsed().as_secs_f64() })
}

fn write_swarms(path: &Path, swarms: &mut [SwarmCounts]) -> io::Result<u64> {
    let format = of_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let mut file = AtomicFile::create(path, MODE)?;
    write(format, swarms, &mut file)?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;
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

    #[test]
    fn an_interrupted_export_leaves_the_previous_file_alone() {
        for name in ["a.txt", "a.txt.gz", "a.bencode.gz"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(name);
            assert!(write_swarms(&path, &mut swarms()).unwrap() > 0);
            let former = std::fs::read(&path).unwrap();
            let (to, parts) = bounded(1);
            to.send(Part::Message(swarms())).unwrap();
            drop(to);
            let interrupted = write_stream(&path, ShardStream::new(parts, 1)).unwrap_err();
            assert!(interrupted.to_string().contains("a worker has ended"), "{interrupted}");
            let files = std::fs::read_dir(directory.path()).unwrap().count();
            assert_eq!((files, std::fs::read(&path).unwrap()), (1, former), "{name}");
        }
    }
}
