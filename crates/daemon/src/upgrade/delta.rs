//! What came after the dump: who has stopped since, and everybody who was heard of since. The new process
//! serves already when it arrives, so it is merged with what that one has heard itself.
//!
//! On the stream: how many have stopped, as u32; of each its info hash, its family (4 or 6), address and port,
//! `completed` u32 and the seconds since u32; then a snapshot of what is younger than the dump.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{Change, ChangeKind, ChangeReader, Moment, Shard, ShardMap};

use super::outgoing::HandedOver;
use crate::process::notify;
use onrush_store::snapshot::encode::Encoder;
use onrush_store::snapshot::format::{Peers, Records, SnapshotCounts};
use onrush_store::snapshot::load::{BlockReader, peer_views};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::orders::{Chore, Orders};

/// What was dumped is taken for this many seconds older, so that the delta, where it has the same peer, counts as
/// the younger sighting: ages are in units of four seconds, by the clocks of two processes, and may be off by two units
/// each.
pub const OLDER_IN_DUMP: u32 = 32;
/// What is in the delta is taken for this many seconds older, so that what the new process has heard itself counts as
/// the younger.
const OLDER_IN_DELTA: u32 = 16;
/// Seconds that are added to the age of a stop, so that a peer that announced again since stays.
const OLDER_STOPS: u32 = 8;
/// Seconds by which stored ages are too coarse, twice.
const MARGIN: u32 = 8;
/// Swarms or stops that a running shard takes in a step.
const STEP: usize = 64;

/// Sends what the dump has not, from the shards of workers that have stopped.
///
/// # Errors
/// When the new process is gone.
pub fn send(
    handed_over: &mut HandedOver,
    shards: &mut [Shard],
    now: Now,
) -> io::Result<SnapshotCounts> {
    handed_over.stream.set_write_timeout(Some(PATIENCE))?;
    let mut to = BufWriter::with_capacity(256 << 10, &handed_over.stream);
    let mut stops = Vec::new();
    for shard in &*shards {
        for reader in handed_over.stops.iter_mut().filter(|reader| shard.has_reader(reader)) {
            read_stops(shard, reader, usize::MAX, now.moment, &mut stops);
        }
    }
    to.write_all(&(stops.len() as u32).to_be_bytes())?;
    for stop in &stops {
        write_stop(&mut to, stop)?;
    }
    let youngest = now.moment.since(handed_over.since) + MARGIN;
    let mut writer = SnapshotWriter::begin(to, now.unix)?;
    writer.shards(shards, now, || Encoder::since(youngest), &mut notify::progress())?;
    let (mut to, tally) = writer.end(now.unix)?;
    to.flush()?;
    Ok(tally)
}

/// A peer that stopped.
struct Stop {
    info_hash: InfoHash,
    endpoint: Endpoint,
    /// The swarm's `completed` after that.
    completed: u32,
    /// Seconds since.
    age: u32,
}

/// Reads up to `limit` stops of a shard; returns whether there are more.
fn read_stops(
    shard: &Shard,
    reader: &mut ChangeReader,
    limit: usize,
    now: Moment,
    stops: &mut Vec<Stop>,
) -> bool {
    let mut push = |change: &Change| {
        let Change { info_hash, at, completed, kind } = *change;
        if let ChangeKind::Stopped { endpoint } = kind {
            stops.push(Stop { info_hash, endpoint, completed, age: now.since(at) });
        }
    };
    match shard.read_changes(reader, limit, &mut push) {
        Ok(more) => more,
        Err(lost) => {
            log::warn!(
                "upgrade: {} changes of a shard were lost: peers that stopped among them stay until \
                 they expire",
                lost.changes
            );
            true
        }
    }
}

fn write_stop(to: &mut impl Write, stop: &Stop) -> io::Result<()> {
    let Stop { info_hash, endpoint, completed, age } = stop;
    to.write_all(&info_hash.0)?;
    to.write_all(&[if matches!(endpoint, Endpoint::V4(_)) { 4 } else { 6 }])?;
    to.write_all(endpoint.as_bytes())?;
    to.write_all(&completed.to_be_bytes())?;
    to.write_all(&age.to_be_bytes())
}

fn read_stop(from: &mut impl Read) -> io::Result<Stop> {
    let (mut name, mut family, mut numbers) = ([0; 20], [0], [0; 8]);
    from.read_exact(&mut name)?;
    from.read_exact(&mut family)?;
    let endpoint = if family == [4] {
        let mut row = [0; 6];
        from.read_exact(&mut row)?;
        Endpoint::V4(row)
    } else {
        let mut row = [0; 18];
        from.read_exact(&mut row)?;
        Endpoint::V6(row)
    };
    from.read_exact(&mut numbers)?;
    let (words, _) = numbers.as_chunks::<4>();
    let [completed, age] = [words[0], words[1]].map(u32::from_be_bytes);
    Ok(Stop { info_hash: InfoHash(name), endpoint, completed, age })
}

/// Gets ready to receive it, on a thread of its own, and to have running shards take it; they note departures until
/// then. It begins when it is given the list in force, and is not `under_way` any more when it has ended; what came of it goes to the
/// log.
///
/// # Errors
/// When there can be no thread.
pub fn receive(
    stream: UnixStream,
    orders: Orders,
    map: ShardMap,
    clock: Clock,
    under_way: Arc<AtomicBool>,
    stops: Vec<ChangeReader>,
) -> io::Result<Sender<Arc<AccessList>>> {
    let (begin, begun) = bounded(1);
    let receive = move || {
        // Nobody begins where the sockets were not taken.
        let Ok(access) = begun.recv() else { return };
        let merging = Merging { orders, map, access, clock };
        let merged = merging.all(&stream, stops);
        under_way.store(false, Ordering::Release);
        match merged {
            Ok(tally) => log::info!(
                "upgrade: the rest has arrived, {} peers in {} swarms",
                tally.v4 + tally.v6,
                tally.records
            ),
            Err(error) => log::warn!(
                "upgrade: what came after the dump has not all arrived, and comes with the next \
                 announces: {error}"
            ),
        }
    };
    thread::Builder::new().name("upgrade".into()).spawn(receive)?;
    Ok(begin)
}

/// How long the shards may take for a part.
const PATIENCE: Duration = Duration::from_secs(60);

struct Merging {
    orders: Orders,
    map: ShardMap,
    access: Arc<AccessList>,
    clock: Clock,
}

impl Merging {
    fn all(&self, stream: &UnixStream, stops: Vec<ChangeReader>) -> io::Result<SnapshotCounts> {
        let result = self.parts(stream);
        // A peer that stopped here meanwhile may have been stored again by the merge.
        let mut stops = stops.into_iter();
        self.every_shard(|_| Part::Own(stops.next()))?;
        result
    }

    fn parts(&self, stream: &UnixStream) -> io::Result<SnapshotCounts> {
        let mut from = BufReader::with_capacity(256 << 10, stream);
        let mut number = [0; 4];
        from.read_exact(&mut number)?;
        // The old process has said which one is to be watched over before it said anything here.
        notify::took_over();
        let mut stops: Vec<Vec<Stop>> = Vec::new();
        stops.resize_with(self.orders.shards(), Vec::new);
        for _ in 0..u32::from_be_bytes(number) {
            let stop = read_stop(&mut from)?;
            stops[self.map.shard_of(&stop.info_hash)].push(stop);
        }
        let heard = self.clock.now();
        self.every_shard(|shard| Part::Stops(std::mem::take(&mut stops[shard]), heard))?;
        let mut blocks =
            BlockReader::begin(from).map_err(|error| io::Error::other(error.to_string()))?;
        loop {
            let mut rest = Vec::new();
            let unix = blocks.next(&mut rest).map_err(|e| io::Error::other(e.to_string()))?;
            let Some(unix) = unix else { return Ok(blocks.read()) };
            let rest = Arc::new(rest);
            self.every_shard(|_| Part::Block(rest.clone(), unix))?;
        }
    }

    /// Has every shard take its part, and waits until all have.
    fn every_shard(&self, mut part: impl FnMut(usize) -> Part) -> io::Result<()> {
        let (tell, told) = bounded(self.orders.shards());
        let merge = |number| -> Box<dyn Chore> {
            let (map, access) = (self.map, self.access.clone());
            Box::new(Merge { part: part(number), number, map, access, at: 0, tell: tell.clone() })
        };
        self.orders.every_shard(merge).map_err(io::Error::other)?;
        for _ in 0..self.orders.shards() {
            told.recv_timeout(PATIENCE).map_err(|_| io::Error::other("a worker stands still"))?;
        }
        Ok(())
    }
}

/// What a running shard is to take.
enum Part {
    /// These have stopped elsewhere, so many seconds before then.
    Stops(Vec<Stop>, Now),
    /// Records, with the time at which their ages were right.
    Block(Arc<Vec<u8>>, u64),
    /// The stops in its own change log.
    Own(Option<ChangeReader>),
}

struct Merge {
    part: Part,
    number: usize,
    map: ShardMap,
    access: Arc<AccessList>,
    /// Records that were looked at.
    at: usize,
    tell: Sender<()>,
}

impl Chore for Merge {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        let more = match &mut self.part {
            Part::Own(None) => false,
            Part::Own(Some(reader)) => {
                let mut stops = Vec::new();
                let more = read_stops(shard, reader, STEP, now.moment, &mut stops);
                stops.iter().for_each(|stop| apply(shard, stop, 0, now.moment));
                more
            }
            Part::Stops(stops, heard) => {
                let since = now.moment.since(heard.moment);
                for stop in stops.drain(stops.len().saturating_sub(STEP)..) {
                    apply(shard, &stop, since, now.moment);
                }
                !stops.is_empty()
            }
            Part::Block(rest, unix) => {
                let since = now.unix.saturating_sub(*unix) as u32;
                let rest = rest.clone();
                let mut records = Records::new(&rest[self.at..]);
                let mut taken = 0;
                while taken < STEP
                    && let Some(Ok(record)) = records.next()
                {
                    let own = self.map.shard_of(&record.info_hash) == self.number;
                    if !own || !self.access.permits(record.info_hash) {
                        continue;
                    }
                    taken += 1;
                    let now = now.moment;
                    match record.peers {
                        Peers::Idle(idle_for) => drop(shard.restore_idle(
                            record.info_hash,
                            record.completed,
                            idle_for.saturating_add(since),
                            now,
                        )),
                        Peers::Rows(v4, v6) => {
                            taken += v4.len() + v6.len();
                            let peers = peer_views(v4, v6, since.saturating_add(OLDER_IN_DELTA));
                            let (name, completed) = (record.info_hash, record.completed);
                            let restored = shard.restore(name, completed, peers, now);
                            if let Some(idle_for) = restored.idle_for {
                                shard.restore_idle(name, completed, idle_for, now);
                            }
                        }
                    }
                }
                self.at = rest.len() - records.rest();
                self.at < rest.len()
            }
        };
        if !more {
            // Nobody may be waiting any more.
            let _ = self.tell.send(());
        }
        more
    }
}

/// Removes a peer that stopped, `since` seconds after the age of its stop was right.
fn apply(shard: &mut Shard, stop: &Stop, since: u32, now: Moment) {
    let Stop { info_hash, endpoint, completed, age } = stop;
    let age = age.saturating_add(since + OLDER_STOPS);
    shard.remove_peer(info_hash, endpoint, *completed, age, now);
}
