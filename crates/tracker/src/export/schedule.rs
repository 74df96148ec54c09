//! When an export is written: every so often, and whenever it is asked for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};

use super::format::{Packed, of_name, write};
use crate::chores::tally::{Part, Tally};
use crate::metrics::FileWrites;
use crate::orders::Orders;
use crate::settings::ExportSettings;
use crate::snapshot::write::Draft;
use crate::supervise::ask::Answer;

/// Anybody may read it.
const MODE: u32 = 0o644;

/// An export that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Where.
    pub path: PathBuf,
    /// How many swarms are in it.
    pub swarms: u64,
    /// Its length.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
}

impl std::fmt::Display for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (swarms, bytes, seconds) = (self.swarms, self.bytes, self.took.as_secs_f64());
        write!(f, "{swarms} swarms to {}, {bytes} bytes in {seconds:.2} s", self.path.display())
    }
}

/// Whoever asked is told.
pub type Told = Answer<Result<Exported, String>>;

/// The exports of a running tracker.
#[derive(Debug)]
pub struct Exports {
    last: Instant,
    under_way: Option<JoinHandle<io::Result<Exported>>>,
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
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) {
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
            return answer.into_iter().for_each(|answer| answer.tell(Err(why.to_owned())));
        };
        self.waiting.extend(answer);
        if self.under_way.is_some() {
            return;
        }
        self.last = Instant::now();
        let (to, parts) = bounded(2 * orders.shards() + 2);
        if let Err(deaf) = orders.every_shard(|_| Box::new(Tally::new(to.clone()))) {
            return self.ended(Err(deaf.to_string()));
        }
        drop(to);
        let shards = orders.shards();
        let write = move || write_parts(&path, &parts, shards);
        match thread::Builder::new().name("export".into()).spawn(write) {
            Ok(thread) => self.under_way = Some(thread),
            Err(error) => self.ended(Err(format!("no thread: {error}"))),
        }
    }

    fn report(&mut self) {
        let Some(thread) = self.under_way.take() else { return };
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
        self.waiting.drain(..).for_each(|answer| answer.tell(result.clone()));
    }
}

/// Writes what tallies send.
fn write_parts(path: &Path, parts: &Receiver<Part>, shards: usize) -> io::Result<Exported> {
    let began = Instant::now();
    let (content, packing) = of_name(path).ok_or(io::ErrorKind::InvalidFilename)?;
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut swarms = Vec::new();
    let mut through = 0;
    while through < shards {
        match parts.recv() {
            Ok(part) if part.is_empty() => through += 1,
            Ok(mut part) => swarms.append(&mut part),
            Err(_) => return Err(io::Error::other("a worker has ended, or others were slow")),
        }
    }
    let mut packed = Packed::new(packing, Draft::begin(path, MODE).map_err(at)?)?;
    write(content, &mut swarms, &mut packed).map_err(at)?;
    let bytes = packed.finish().map_err(at)?;
    let swarms = swarms.len() as u64;
    Ok(Exported { path: path.to_owned(), swarms, bytes, took: began.elapsed() })
}
