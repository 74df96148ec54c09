//! The delta of an upgrade: peers that have stopped and peers that have announced since the dump.
//! It arrives when the new process serves already, and is merged with that process's own peers.
//!
//! On the stream: the number of stops (u32); for each its info hash, family (4 or 6), address and
//! port, the swarm's `completed` (u32) and the seconds since (u32); then a snapshot of all peers
//! that are younger than the dump.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{Change, ChangeKind, ChangeReader, Moment, Shard, ShardMap};

use super::collect_from_shards;
use super::message::read_array;
use super::outgoing::HandedOver;
use crate::process::notify::{self, NotifyState};
use onrush_store::snapshot::encode::Encoder;
use onrush_store::snapshot::format::{Peers, Record, Records, SnapshotCounts};
use onrush_store::snapshot::load::{BlockReader, peer_views};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::{Clock, Now};
use onrush_tracker::orders::Orders;

/// Seconds added to the ages of the dump, so that the same peer in the delta counts as more recent:
/// ages have units of four seconds and clocks of two processes, and may be off by two units each.
pub const OLDER_IN_DUMP: u32 = 32;
/// Seconds added to the ages of the delta, so that an announce to the new process counts as more
/// recent.
const OLDER_IN_DELTA: u32 = 16;
/// Seconds added to the age of a stop, so that a peer that has announced again since stays.
const OLDER_STOPS: u32 = 8;
/// Twice the unit of stored ages, seconds.
const MARGIN: u32 = 8;
/// Swarms, peers or stops merged per step.
const STEP: usize = 64;
/// Time for each write of the outgoing process, and for all shards to merge a part.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends the delta, from the shards of stopped workers.
///
/// # Errors
/// When the new process has exited, or does not read in time.
pub fn send(
    handed_over: &mut HandedOver,
    shards: &mut [Shard],
    now: Now,
) -> io::Result<SnapshotCounts> {
    handed_over.stream.set_write_timeout(Some(TIMEOUT))?;
    let mut to = BufWriter::with_capacity(256 << 10, &handed_over.stream);
    let mut stops = Vec::new();
    for shard in &*shards {
        for reader in handed_over.stops.iter_mut().filter(|reader| shard.has_reader(reader)) {
            while read_stops(shard, reader, usize::MAX, now.moment, &mut stops) {}
        }
    }
    to.write_all(&(stops.len() as u32).to_be_bytes())?;
    for stop in &stops {
        write_stop(&mut to, stop)?;
    }
    let youngest = now.moment.since(handed_over.since) + MARGIN;
    let mut writer = SnapshotWriter::begin(to, now.unix)?;
    writer.shards(shards, now, Encoder::since(youngest), &mut notify::progress())?;
    let (mut to, counts) = writer.end(now.unix)?;
    to.flush()?;
    Ok(counts)
}

/// A peer that has stopped.
struct Stop {
    info_hash: InfoHash,
    endpoint: Endpoint,
    /// The swarm's `completed` after the stop.
    completed: u32,
    /// Seconds since the stop.
    age: u32,
}

/// Reads up to `limit` changes of a shard, and keeps the stops. Returns whether there are more,
/// also after a gap.
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
                "upgrade: {} changes of a shard were lost: peers that stopped among them stay \
                 until they expire",
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
    Ok(Stop {
        info_hash: InfoHash(read_array(from)?),
        endpoint: match read_array(from)? {
            [4] => Endpoint::V4(read_array(from)?),
            _ => Endpoint::V6(read_array(from)?),
        },
        completed: u32::from_be_bytes(read_array(from)?),
        age: u32::from_be_bytes(read_array(from)?),
    })
}

/// Starts a thread that receives the delta and merges it into the shards of running workers. It
/// waits for the list in force, which permits the swarms, and clears `merging` when it ends.
/// `stops` are the readers of this process's own stops, one for each shard.
///
/// # Errors
/// When the thread cannot be started.
pub fn receive(
    stream: UnixStream,
    orders: Orders,
    map: ShardMap,
    clock: Clock,
    merging: Arc<AtomicBool>,
    stops: Vec<ChangeReader>,
) -> io::Result<Sender<Arc<AccessList>>> {
    let (start, started) = bounded(1);
    let receive = move || {
        // The sender is dropped if the sockets were not acquired.
        let Ok(access) = started.recv() else { return };
        let merged = Merge { orders, map, access, clock }.run(&stream, stops);
        merging.store(false, Ordering::Release);
        match merged {
            Ok(counts) => log::info!(
                "upgrade: the rest has arrived, {} peers in {} swarms",
                counts.v4 + counts.v6,
                counts.records
            ),
            Err(error) => log::warn!(
                "upgrade: the peers since the dump have not all arrived, and return with their \
                 next announces: {error}"
            ),
        }
    };
    thread::Builder::new().name("upgrade".into()).spawn(receive)?;
    Ok(start)
}

/// The thread that merges a delta.
struct Merge {
    orders: Orders,
    map: ShardMap,
    access: Arc<AccessList>,
    clock: Clock,
}

impl Merge {
    fn run(&self, stream: &UnixStream, stops: Vec<ChangeReader>) -> io::Result<SnapshotCounts> {
        let result = self.merge_stream(stream);
        // A peer that stopped here meanwhile may have been stored again by the merge.
        let mut stops = stops.into_iter();
        self.every_shard(|_| apply_own_stops(stops.next()))?;
        result
    }

    fn merge_stream(&self, stream: &UnixStream) -> io::Result<SnapshotCounts> {
        let mut from = BufReader::with_capacity(256 << 10, stream);
        let count = u32::from_be_bytes(read_array(&mut from)?);
        // Before its first byte, the outgoing process has named this one as the main process.
        // Earlier notifications were ignored (NotifyAccess=main).
        notify::send(&[NotifyState::Ready, NotifyState::Watchdog]);
        let mut stops: Vec<Vec<Stop>> = Vec::new();
        stops.resize_with(self.orders.shards(), Vec::new);
        for _ in 0..count {
            let stop = read_stop(&mut from)?;
            stops[self.map.shard_of(&stop.info_hash)].push(stop);
        }
        let received = self.clock.now();
        self.every_shard(|shard| apply_stops(std::mem::take(&mut stops[shard]), received))?;
        let mut blocks = BlockReader::begin(from).map_err(io::Error::other)?;
        loop {
            let mut block = Vec::new();
            let unix = blocks.next(&mut block).map_err(io::Error::other)?;
            let Some(unix) = unix else { return Ok(blocks.read()) };
            let block = Arc::new(block);
            self.every_shard(|shard| self.merge_block(block.clone(), unix, shard))?;
        }
    }

    /// Runs a task on every shard, and waits until all are done.
    fn every_shard<T>(&self, mut task: impl FnMut(usize) -> T) -> io::Result<()>
    where
        T: FnMut(&mut Shard, Now) -> bool + Send + 'static,
    {
        collect_from_shards(&self.orders, TIMEOUT, |shard| {
            let mut step = task(shard);
            move |shard: &mut Shard, now: Now| (!step(shard, now)).then_some(())
        })?;
        Ok(())
    }

    /// Merges the records of a block that belong to a shard. The block has the records of all
    /// shards, whose ages were right at `unix`, seconds since 1970.
    fn merge_block(
        &self,
        block: Arc<Vec<u8>>,
        unix: u64,
        number: usize,
    ) -> impl FnMut(&mut Shard, Now) -> bool + use<> {
        let (map, access, mut at) = (self.map, self.access.clone(), 0);
        move |shard, now| {
            let since = now.unix.saturating_sub(unix) as u32;
            let mut records = Records::new(&block[at..]);
            let mut merged = 0;
            while merged < STEP
                && let Some(Ok(Record { info_hash, completed, peers })) = records.next()
            {
                if map.shard_of(&info_hash) != number || !access.permits(info_hash) {
                    continue;
                }
                merged += 1;
                let idle_for = match peers {
                    Peers::Idle(idle_for) => Some(idle_for.saturating_add(since)),
                    Peers::Rows(v4, v6) => {
                        merged += v4.len() + v6.len();
                        let peers = peer_views(v4, v6, since.saturating_add(OLDER_IN_DELTA));
                        shard.restore(info_hash, completed, peers, now.moment).idle_for
                    }
                };
                if let Some(idle_for) = idle_for {
                    shard.restore_idle(info_hash, completed, idle_for, now.moment);
                }
            }
            at = block.len() - records.rest();
            at < block.len()
        }
    }
}

/// Removes peers that have stopped at the outgoing process. Their ages were right when they were
/// `received`.
fn apply_stops(mut stops: Vec<Stop>, received: Now) -> impl FnMut(&mut Shard, Now) -> bool {
    move |shard, now| {
        let since = now.moment.since(received.moment);
        for stop in stops.drain(stops.len().saturating_sub(STEP)..) {
            apply(shard, &stop, since, now.moment);
        }
        !stops.is_empty()
    }
}

/// Removes peers by the stops in the shard's own change log, up to the position that the log has at
/// the first step: later stops meet peers that are merged already.
fn apply_own_stops(mut reader: Option<ChangeReader>) -> impl FnMut(&mut Shard, Now) -> bool {
    let mut end = None;
    move |shard, now| {
        let Some(reader) = &mut reader else { return false };
        let end = *end.get_or_insert_with(|| shard.change_position());
        let mut stops = Vec::new();
        let more = read_stops(shard, reader, STEP, now.moment, &mut stops);
        stops.iter().for_each(|stop| apply(shard, stop, 0, now.moment));
        more && reader.position() < end
    }
}

/// Removes a peer that has stopped. The age of its stop was right `since` seconds ago.
fn apply(shard: &mut Shard, stop: &Stop, since: u32, now: Moment) {
    let Stop { info_hash, endpoint, completed, age } = stop;
    let age = age.saturating_add(since + OLDER_STOPS);
    shard.remove_peer(info_hash, endpoint, *completed, age, now);
}
