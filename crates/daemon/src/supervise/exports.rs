//! When the full scrape is written to `export.file`: at an interval, and on request.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, select};

use onrush_config::export_format::of_name;
use onrush_config::settings::ExportSettings;
use onrush_control::files::FileWrites;
use onrush_control::request::{Exported, Responder};
use onrush_store::atomic_file::AtomicFile;
use onrush_store::export::count::{CountTask, SwarmCounts};
use onrush_store::export::format::{Packed, write};
use onrush_tracker::orders::Orders;

/// Mode of the file: readable by all users.
const MODE: u32 = 0o644;
/// Time for an aborted export to remove its temporary file.
const ABORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Replies to the request for an export.
pub(super) type ExportResponder = Responder<Result<Exported, String>>;

/// The exports of a running tracker.
#[derive(Debug)]
pub(super) struct Exports {
    last: Instant,
    writer: Option<Writer>,
    /// Responders of the export being written.
    waiting: Vec<ExportResponder>,
    writes: Arc<FileWrites>,
}

/// The thread that writes an export.
#[derive(Debug)]
struct Writer {
    thread: JoinHandle<io::Result<Exported>>,
    /// Dropping this aborts the export.
    keep: Sender<()>,
    /// Closed when the thread ends.
    ended: Receiver<()>,
}

impl Default for Exports {
    fn default() -> Self {
        Self { last: Instant::now(), writer: None, waiting: Vec::new(), writes: Arc::default() }
    }
}

impl Exports {
    /// Counters of exports written and failed.
    pub(super) fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// Call every second: starts an export when it is due, and reports a finished one.
    pub(super) fn tick(&mut self, settings: &ExportSettings, orders: &Orders, now: Instant) {
        if let Some(writer) = self.writer.take_if(|writer| writer.thread.is_finished()) {
            self.join(writer.thread);
        }
        let due = !settings.every.is_zero() && now.duration_since(self.last) >= settings.every;
        if due && settings.file.is_some() && self.writer.is_none() {
            self.start(settings, orders, None);
        }
    }

    /// Starts an export, unless one is being written. `responder` gets the result.
    pub(super) fn start(
        &mut self,
        settings: &ExportSettings,
        orders: &Orders,
        responder: Option<ExportResponder>,
    ) {
        let Some(path) = settings.file.clone() else {
            let why = "no file is configured: name a file as export.file and reload";
            log::warn!("export failed: {why}");
            return responder.into_iter().for_each(|it| it.respond(Err(why.to_owned())));
        };
        self.waiting.extend(responder);
        if self.writer.is_some() {
            return;
        }
        self.last = Instant::now();
        let (to, parts) = bounded(2 * orders.shards() + 2);
        if let Err(error) = orders.run_on_every_shard(|_| Box::new(CountTask::new(to.clone()))) {
            return self.finish(Err(error.to_string()));
        }
        drop(to);
        let shards = orders.shards();
        let (keep, aborted) = bounded(1);
        let (running, ended) = bounded(0);
        let write = move || {
            let _running = running;
            write_parts(&path, &parts, shards, &aborted)
        };
        match thread::Builder::new().name("export".into()).spawn(write) {
            Ok(thread) => self.writer = Some(Writer { thread, keep, ended }),
            Err(error) => self.finish(Err(format!("cannot start a thread: {error}"))),
        }
    }

    /// Aborts the export being written, since the tracker stops. A slow disk is not waited for: the
    /// final snapshot is still to be written.
    pub(super) fn abort(&mut self) {
        let Some(Writer { thread, keep, ended }) = self.writer.take() else { return };
        drop(keep);
        match ended.recv_timeout(ABORT_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => self.finish(Err(
                "the disk is slow; the next export removes the temporary file".to_owned(),
            )),
            _ => self.join(thread),
        }
    }

    fn join(&mut self, thread: JoinHandle<io::Result<Exported>>) {
        let result = match thread.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("its thread panicked".to_owned()),
        };
        self.finish(result);
    }

    fn finish(&mut self, result: Result<Exported, String>) {
        match &result {
            Ok(exported) => {
                self.writes.wrote(exported.bytes, exported.took);
                log::info!("export: {exported}");
            }
            Err(why) => {
                self.writes.failed.add(1);
                log::warn!("export failed; the previous one stays: {why}");
            }
        }
        self.waiting.drain(..).for_each(|responder| responder.respond(result.clone()));
    }
}

/// Writes the counts of all shards, unless the export is aborted.
fn write_parts(
    path: &Path,
    parts: &Receiver<Vec<SwarmCounts>>,
    shards: usize,
    aborted: &Receiver<()>,
) -> io::Result<Exported> {
    let began = Instant::now();
    let mut swarms = collect(parts, shards, aborted)?;
    let bytes = write_swarms(path, &mut swarms, aborted)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let swarms = swarms.len() as u64;
    Ok(Exported { path: path.to_owned(), swarms, bytes, took: began.elapsed() })
}

/// Receives the counts of all shards. An empty part is the last one of its shard.
fn collect(
    parts: &Receiver<Vec<SwarmCounts>>,
    shards: usize,
    aborted: &Receiver<()>,
) -> io::Result<Vec<SwarmCounts>> {
    let mut swarms = Vec::new();
    let mut done = 0;
    while done < shards {
        let part = select! {
            recv(parts) -> part => part,
            recv(aborted) -> _ => return Err(stopping()),
        };
        match part {
            Ok(part) if part.is_empty() => done += 1,
            Ok(mut part) => swarms.append(&mut part),
            Err(_) => return Err(io::Error::other("a worker has ended, or was too slow")),
        }
    }
    Ok(swarms)
}

fn write_swarms(
    path: &Path,
    swarms: &mut [SwarmCounts],
    aborted: &Receiver<()>,
) -> io::Result<u64> {
    let (content, packing) = of_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let file = Packed::new(packing, AtomicFile::create(path, MODE)?);
    let mut to = Abortable { file, aborted };
    write(content, swarms, &mut to)?;
    to.file.finish()
}

fn stopping() -> io::Error {
    io::Error::other("the tracker is stopping")
}

/// A file whose writes fail once the export is aborted.
struct Abortable<'a> {
    file: Packed,
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
    use onrush_proto::InfoHash;

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
            to.send(swarms()).unwrap();
            let waiting = thread::scope(|scope| {
                let waiting = scope.spawn(|| write_parts(&path, &parts, 1, &aborted));
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
        let (running, ended) = bounded(0);
        let thread = thread::spawn(move || {
            let _running: Sender<()> = running;
            let aborted = aborted.recv().is_err();
            drop(file);
            Err(io::Error::other(format!("aborted: {aborted}")))
        });
        let (sender, response) = bounded(1);
        let responder = Responder::new(move |result| drop(sender.send(result)));
        let mut exports = Exports {
            writer: Some(Writer { thread, keep, ended }),
            waiting: vec![responder],
            ..Exports::default()
        };
        exports.abort();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(response.recv().unwrap(), Err("aborted: true".to_owned()));
        assert_eq!(exports.writes.failed.get(), 1);
    }
}
