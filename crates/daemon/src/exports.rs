//! When an export is written: every so often, and whenever it is asked for.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, select};

use onrush_config::export_format::of_name;
use onrush_config::settings::ExportSettings;
use onrush_control::files::FileWrites;
use onrush_control::request::Exported;
use onrush_control::request::Responder;
use onrush_store::atomic_file::AtomicFile;
use onrush_store::export::count::{CountTask, SwarmCounts};
use onrush_store::export::format::{Packed, write};
use onrush_tracker::orders::Orders;

/// Anybody may read it.
const MODE: u32 = 0o644;

/// For how long the end of one that is given up is waited for.
const GRACE: Duration = Duration::from_secs(3);

/// Whoever asked is told.
pub type Told = Responder<Result<Exported, String>>;

/// An export that is being written.
#[derive(Debug)]
struct UnderWay {
    thread: JoinHandle<io::Result<Exported>>,
    /// When this goes it is given up.
    wanted: Sender<()>,
    /// Goes with the thread.
    ends: Receiver<()>,
}

/// The exports of a running tracker.
#[derive(Debug)]
pub struct Exports {
    last: Instant,
    under_way: Option<UnderWay>,
    /// Are told of the one that is under way.
    waiting: Vec<Told>,
    writes: Arc<FileWrites>,
}

impl Default for Exports {
    fn default() -> Self {
        Self { last: Instant::now(), under_way: None, waiting: Vec::new(), writes: Arc::default() }
    }
}

impl Exports {
    /// How they went.
    pub fn writes(&self) -> &Arc<FileWrites> {
        &self.writes
    }

    /// To be called every second: begins an export when it is time, and reports one that has ended.
    pub fn second(&mut self, settings: &ExportSettings, orders: &Orders, now: Instant) {
        if self.under_way.as_ref().is_some_and(|under_way| under_way.thread.is_finished()) {
            self.report();
        }
        let due = !settings.every.is_zero() && now.duration_since(self.last) >= settings.every;
        if due && settings.file.is_some() && self.under_way.is_none() {
            self.begin(settings, orders, None);
        }
    }

    /// Begins an export, unless one is under way; whoever asks is told how it ended.
    pub fn begin(&mut self, settings: &ExportSettings, orders: &Orders, answer: Option<Told>) {
        let Some(path) = settings.file.clone() else {
            let why = "there is nothing to be exported to: name a file as export.file and reload";
            log::warn!("no export: {why}");
            return answer.into_iter().for_each(|answer| answer.respond(Err(why.to_owned())));
        };
        self.waiting.extend(answer);
        if self.under_way.is_some() {
            return;
        }
        self.last = Instant::now();
        let (to, parts) = bounded(2 * orders.shards() + 2);
        if let Err(deaf) = orders.run_on_every_shard(|_| Box::new(CountTask::new(to.clone()))) {
            return self.ended(Err(deaf.to_string()));
        }
        drop(to);
        let shards = orders.shards();
        let (wanted, given_up) = bounded(1);
        let (at_work, ends) = bounded(0);
        let write = move || {
            let _at_work = at_work;
            write_parts(&path, &parts, shards, &given_up)
        };
        match thread::Builder::new().name("export".into()).spawn(write) {
            Ok(thread) => self.under_way = Some(UnderWay { thread, wanted, ends }),
            Err(error) => self.ended(Err(format!("no thread: {error}"))),
        }
    }

    /// The tracker is about to end: what is half written goes. A disk that takes long over it is not waited for, as
    /// there is more to be written.
    pub fn give_up(&mut self) {
        let Some(UnderWay { thread, wanted, ends }) = self.under_way.take() else { return };
        drop(wanted);
        match ends.recv_timeout(GRACE) {
            Err(RecvTimeoutError::Timeout) => {
                self.ended(
                    Err("the disk is not done with it; its draft goes with the next".into()),
                );
            }
            _ => self.joined(thread),
        }
    }

    /// What has become of the one that has ended.
    fn report(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            self.joined(under_way.thread);
        }
    }

    fn joined(&mut self, thread: JoinHandle<io::Result<Exported>>) {
        let result = match thread.join() {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("its thread panicked".to_owned()),
        };
        self.ended(result);
    }

    fn ended(&mut self, result: Result<Exported, String>) {
        match &result {
            Ok(exported) => {
                self.writes.wrote(exported.bytes, exported.took);
                log::info!("export: {exported}");
            }
            Err(why) => {
                self.writes.failed.add(1);
                log::warn!("no export, the former one stays: {why}");
            }
        }
        self.waiting.drain(..).for_each(|answer| answer.respond(result.clone()));
    }
}

/// Writes what tallies send, unless it is given up.
fn write_parts(
    path: &Path,
    parts: &Receiver<Vec<SwarmCounts>>,
    shards: usize,
    given_up: &Receiver<()>,
) -> io::Result<Exported> {
    let began = Instant::now();
    let mut swarms = collect(parts, shards, given_up)?;
    let bytes = write_swarms(path, &mut swarms, given_up)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let swarms = swarms.len() as u64;
    Ok(Exported { path: path.to_owned(), swarms, bytes, took: began.elapsed() })
}

fn collect(
    parts: &Receiver<Vec<SwarmCounts>>,
    shards: usize,
    given_up: &Receiver<()>,
) -> io::Result<Vec<SwarmCounts>> {
    let mut swarms = Vec::new();
    let mut through = 0;
    while through < shards {
        let part = select! {
            recv(parts) -> part => part,
            recv(given_up) -> _ => return Err(ending()),
        };
        match part {
            Ok(part) if part.is_empty() => through += 1,
            Ok(mut part) => swarms.append(&mut part),
            Err(_) => return Err(io::Error::other("a worker has ended, or others were slow")),
        }
    }
    Ok(swarms)
}

fn write_swarms(
    path: &Path,
    swarms: &mut [SwarmCounts],
    given_up: &Receiver<()>,
) -> io::Result<u64> {
    let (content, packing) = of_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let to = Packed::new(packing, AtomicFile::create(path, MODE)?);
    let mut wanted = Wanted { to, given_up };
    write(content, swarms, &mut wanted)?;
    wanted.to.finish()
}

fn ending() -> io::Error {
    io::Error::other("the tracker is stopping")
}

/// Writes as long as it is wanted.
struct Wanted<'a> {
    to: Packed,
    given_up: &'a Receiver<()>,
}

impl Write for Wanted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.given_up.try_recv() {
            Err(TryRecvError::Disconnected) => Err(ending()),
            _ => self.to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use onrush_proto::InfoHash;

    use super::*;

    fn swarms() -> Vec<SwarmCounts> {
        let counted = |n: u8| SwarmCounts {
            info_hash: InfoHash([n; 20]),
            seeders: 1,
            leechers: 2,
            completed: 3,
        };
        (0..100).map(counted).collect()
    }

    /// In each form, whether it waits for a shard then or writes.
    #[test]
    fn one_that_is_given_up_leaves_nothing_behind() {
        for name in ["a.txt", "a.txt.gz", "a.bencode.gz"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(name);
            let files = || std::fs::read_dir(directory.path()).unwrap().count();
            let (wanted, given_up) = bounded(1);
            assert!(write_swarms(&path, &mut swarms(), &given_up).unwrap() > 0);
            assert_eq!(files(), 1);
            let former = std::fs::read(&path).unwrap();

            let (to, parts) = bounded(2);
            to.send(swarms()).unwrap();
            let waiting = thread::scope(|scope| {
                let waiting = scope.spawn(|| write_parts(&path, &parts, 1, &given_up));
                drop(wanted);
                waiting.join().unwrap()
            });
            assert!(waiting.unwrap_err().to_string().contains("the tracker is stopping"));
            let writing = write_swarms(&path, &mut swarms()[..9], &given_up).unwrap_err();
            assert!(writing.to_string().contains("the tracker is stopping"), "{writing}");
            assert_eq!((files(), std::fs::read(&path).unwrap()), (1, former), "{name}");
        }
    }

    /// Whoever asked is told, and the thread is gone before the process is.
    #[test]
    fn giving_up_waits_for_the_draft_to_be_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.txt");
        let (wanted, given_up) = bounded::<()>(1);
        let draft = AtomicFile::create(&path, MODE).unwrap();
        let (at_work, ends) = bounded(0);
        let thread = thread::spawn(move || {
            let _at_work: Sender<()> = at_work;
            let gone = given_up.recv().is_err();
            drop(draft);
            Err(io::Error::other(format!("given up: {gone}")))
        });
        let (tell, answered) = bounded(1);
        let answer = Responder::new(move |told| drop(tell.send(told)));
        let mut exports = Exports {
            under_way: Some(UnderWay { thread, wanted, ends }),
            waiting: vec![answer],
            ..Exports::default()
        };
        exports.give_up();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(answered.recv().unwrap(), Err("given up: true".to_owned()));
        assert_eq!(exports.writes.failed.get(), 1);
    }
}
