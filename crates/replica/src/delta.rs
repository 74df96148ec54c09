//! The delta of an upgrade: peers that have stopped and peers that have announced since the dump.
//! It arrives when the successor serves already, and is merged with the successor's own peers.
//!
//! On the stream: a byte when the service manager follows the successor; the number of stops (u32);
//! for each its info hash, family (4 or 6), address and port, the swarm's `completed` (u32) and the
//! seconds since (u32); then a snapshot of all peers that are younger than the dump.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{ChangeKind, ChangeReader, Moment, Shard, ShardChange, ShardMap};

use crate::handoff::read_array;
use crate::link::{DeltaWriter, Link};
use onrush_store::snapshot::encode::Encoder;
use onrush_store::snapshot::format::{Records, SnapshotCounts};
use onrush_store::snapshot::load::{BlockReader, LoadOptions, load_records};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_text::numbers::grouped;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::orders::Orders;

/// Seconds added to the ages of the dump, so that the same peer in the delta counts as more recent:
/// ages have units of eight seconds and clocks of two processes, and may be off by two units each.
pub const OLDER_IN_DUMP: u32 = 64;
/// Seconds added to the ages of the delta, so that an announce to the successor counts as more
/// recent.
const OLDER_IN_DELTA: u32 = 32;
/// Seconds added to the age of a stop, so that a peer that has announced again since stays.
const OLDER_STOPS: u32 = 16;
/// Twice the unit of stored ages, seconds.
const MARGIN: u32 = 16;
/// Swarms, peers or stops merged per step.
const STEP: usize = 64;
/// Time for each shard to merge a part.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A dump that has been sent, for the delta that follows it.
#[derive(Debug)]
pub struct Since {
    /// When the dump began.
    pub begun: Moment,
    /// For each shard, the peers that have stopped since then.
    pub stops: Vec<ChangeReader>,
}

/// A completed handoff of the sockets. The delta since the dump is still to be sent.
#[derive(Debug)]
pub struct CompletedHandoff {
    /// The connection to the successor.
    pub to: DeltaWriter,
    /// The successor's process id.
    pub process: i32,
    /// The dump that the delta continues.
    pub since: Since,
}

/// Tells the successor that the service manager follows it from now on. The delta is written next.
///
/// # Errors
/// When `to` cannot be written: the delta cannot be written either.
pub fn begin(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0])?;
    to.flush()
}

/// Writes the delta, from the shards of stopped workers.
///
/// # Errors
/// When `to` cannot be written: the successor has exited, or does not read in time.
pub fn write(
    mut to: impl Write,
    shards: &mut [Shard],
    since: &mut Since,
    now: Now,
) -> io::Result<SnapshotCounts> {
    let mut stops = Vec::new();
    for shard in &*shards {
        for reader in since.stops.iter_mut().filter(|reader| shard.has_reader(reader)) {
            while collect_stops(shard, reader, usize::MAX, now.moment, &mut stops) {}
        }
    }
    write_stops(&mut to, &stops)?;
    let youngest = now.moment.since(since.begun) + MARGIN;
    let mut writer = SnapshotWriter::begin(to, now.unix)?;
    writer.shards(shards, now, Encoder::since(youngest), &mut || {})?;
    let (mut to, counts) = writer.end(now.unix)?;
    to.flush()?;
    Ok(counts)
}

/// A peer that has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Its swarm.
    pub info_hash: InfoHash,
    /// Its address and port.
    pub endpoint: Endpoint,
    /// The swarm's `completed` after the stop.
    pub completed: u32,
    /// Seconds since the stop.
    pub age: u32,
}

/// Reads up to `limit` changes of a shard, and keeps the stops. Returns whether there are more,
/// also after a gap.
fn collect_stops(
    shard: &Shard,
    reader: &mut ChangeReader,
    limit: usize,
    now: Moment,
    stops: &mut Vec<Stop>,
) -> bool {
    let mut push = |change: &ShardChange| {
        let ShardChange { info_hash, at, completed, kind } = *change;
        if let ChangeKind::Stopped { endpoint } | ChangeKind::Replaced { endpoint } = kind {
            stops.push(Stop { info_hash, endpoint, completed, age: now.since(at) });
        }
    };
    match shard.read_changes(reader, limit, &mut push) {
        Ok(more) => more,
        Err(lost) => {
            log::warn!(
                "upgrade: {} changes of a shard were lost: peers that stopped or were replaced \
                 among them stay until they expire",
                lost.changes
            );
            true
        }
    }
}

/// Writes the stops, with which a delta begins.
///
/// # Errors
/// When they cannot be written.
pub fn write_stops(to: &mut impl Write, stops: &[Stop]) -> io::Result<()> {
    to.write_all(&(stops.len() as u32).to_be_bytes())?;
    for Stop { info_hash, endpoint, completed, age } in stops {
        to.write_all(&info_hash.0)?;
        to.write_all(&[if matches!(endpoint, Endpoint::V4(_)) { 4 } else { 6 }])?;
        to.write_all(endpoint.as_bytes())?;
        to.write_all(&completed.to_be_bytes())?;
        to.write_all(&age.to_be_bytes())?;
    }
    Ok(())
}

/// Reads the stops, with which a delta begins.
///
/// # Errors
/// When they cannot be read, or one is not valid.
pub fn read_stops(from: &mut impl Read, mut each: impl FnMut(Stop)) -> io::Result<()> {
    let count = u32::from_be_bytes(read_array(from)?);
    for _ in 0..count {
        each(Stop {
            info_hash: InfoHash(read_array(from)?),
            endpoint: match read_array(from)? {
                [4] => Endpoint::V4(read_array(from)?),
                [6] => Endpoint::V6(read_array(from)?),
                [other] => {
                    let why = format!("a stop of address family {other}");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            },
            completed: u32::from_be_bytes(read_array(from)?),
            age: u32::from_be_bytes(read_array(from)?),
        });
    }
    Ok(())
}

/// Starts a thread that receives the delta and merges it into the shards of running workers. It
/// waits for the list in force, which permits the swarms, and clears `merging` when it ends.
/// `stops` are the readers of this process's own stops, one for each shard. The thread calls
/// `begun` when the service manager follows this process, or the predecessor has ended before.
///
/// # Errors
/// When the thread cannot be started.
pub fn start_merge(
    link: impl Link,
    shards: (Orders, ShardMap),
    merging: Arc<AtomicBool>,
    stops: Vec<ChangeReader>,
    begun: impl FnOnce() + Send + 'static,
) -> io::Result<Sender<Arc<AccessList>>> {
    let (start, started) = bounded(1);
    let receive = move || {
        // The sender is dropped if the sockets were not acquired.
        let Ok(access) = started.recv() else { return };
        let merged = merge(&link, shards, access, stops, begun);
        merging.store(false, Ordering::Release);
        log_merged(merged);
    };
    thread::Builder::new().name("upgrade".into()).spawn(receive)?;
    Ok(start)
}

/// Receives the delta and merges it, as [`start_merge`] does on a thread.
///
/// # Errors
/// When it does not arrive, is not a delta, or a worker does not merge it in time.
pub fn merge(
    link: &impl Link,
    (orders, map): (Orders, ShardMap),
    access: Arc<AccessList>,
    stops: Vec<ChangeReader>,
    begun: impl FnOnce(),
) -> io::Result<Merged> {
    let mut from = BufReader::with_capacity(256 << 10, link.reader());
    let named = from.read_exact(&mut [0]);
    begun();
    let delta = Delta::new(from, map, access, link.now());
    let merged = named.and_then(|()| merge_parts(delta, &orders, link));
    // A peer that stopped here meanwhile may have been stored again by the merge.
    let mut stops = stops.into_iter();
    let steps = (0..orders.shards()).map(|_| apply_own_stops(stops.next())).collect();
    let stopped = run_on_shards(&orders, link, steps);
    merged.and_then(|merged| stopped.map(|()| merged))
}

/// Merges all parts of a delta.
fn merge_parts(
    mut delta: Delta<impl Read>,
    orders: &Orders,
    link: &impl Link,
) -> io::Result<Merged> {
    while let Some(steps) = delta.next(&|| link.now())? {
        run_on_shards(orders, link, steps)?;
    }
    Ok(Merged { counts: delta.counts, full: delta.full() })
}

fn log_merged(merged: io::Result<Merged>) {
    match merged {
        Ok(Merged { counts: SnapshotCounts { records, v4, v6 }, full }) => {
            let (peers, swarms) = (grouped(v4 + v6), grouped(records));
            log::info!("upgrade: delta merged: {peers} peers in {swarms} swarms");
            if full > 0 {
                log::warn!(
                    "upgrade: {} of these peers were not stored, because their workers have no \
                     room by limits.peers: raise limits.peers",
                    grouped(full)
                );
            }
        }
        Err(error) => log::warn!(
            "upgrade: the peers since the dump have not all arrived, and return with their next \
             announces: {error}"
        ),
    }
}

/// A delta that has been merged.
#[derive(Debug)]
pub struct Merged {
    /// Records and peers that have arrived.
    counts: SnapshotCounts,
    /// Peers that were not stored, because their shard was full.
    full: u64,
}

/// Runs the steps, one for each shard, and waits until all are done.
fn run_on_shards(orders: &Orders, link: &impl Link, steps: Vec<ShardStep>) -> io::Result<()> {
    let mut steps = steps.into_iter();
    let started = orders.gather(|_| {
        let mut step = steps.next().expect("one for each shard");
        move |shard: &mut Shard, now: Now| (!step(shard, now)).then_some(())
    });
    let done = started.map_err(io::Error::other)?;
    done.wait_by(|results| link.wait(results, TIMEOUT)).map_err(io::Error::other)?;
    Ok(())
}

/// An incremental task of a shard. Returns whether work remains.
pub type ShardStep = Box<dyn FnMut(&mut Shard, Now) -> bool + Send>;

/// A delta that arrives, part by part.
pub struct Delta<R> {
    part: Part<R>,
    map: ShardMap,
    access: Arc<AccessList>,
    /// When this process has begun to serve; the delta was written later.
    began: Moment,
    counts: SnapshotCounts,
    /// Peers that were not stored, because their shard was full.
    full: Arc<AtomicU64>,
}

/// The next part of the stream.
enum Part<R> {
    Stops(R),
    Peers(BlockReader<R>),
    End,
}

impl<R: Read> Delta<R> {
    /// A delta for shards by `map` and swarms that `access` permits, written after `began`.
    pub fn new(from: R, map: ShardMap, access: Arc<AccessList>, began: Now) -> Self {
        let (part, counts) = (Part::Stops(from), SnapshotCounts::default());
        Self { part, map, access, began: began.moment, counts, full: Arc::default() }
    }

    /// Reads the next part. Returns what merges it into each shard, in order; all of it has to be
    /// done before the next part. `None` after the last part. `clock` reads the time.
    ///
    /// # Errors
    /// When the source fails, or its bytes are not a delta.
    pub fn next(&mut self, clock: &dyn Fn() -> Now) -> io::Result<Option<Vec<ShardStep>>> {
        match std::mem::replace(&mut self.part, Part::End) {
            Part::Stops(mut from) => {
                let mut stops = vec![Vec::new(); self.map.shards().into()];
                let each = |stop: Stop| stops[self.map.shard_of(&stop.info_hash)].push(stop);
                read_stops(&mut from, each)?;
                let received = clock();
                self.part = Part::Peers(BlockReader::begin(from).map_err(io::Error::other)?);
                Ok(Some(stops.into_iter().map(|stops| apply_stops(stops, received)).collect()))
            }
            Part::Peers(mut blocks) => {
                let mut block = Vec::new();
                let unix = blocks.next(&mut block).map_err(io::Error::other)?;
                self.counts = blocks.read();
                let Some(unix) = unix else { return Ok(None) };
                self.part = Part::Peers(blocks);
                let block = Arc::new(block);
                let merge = |number| self.merge_block(block.clone(), unix, number);
                Ok(Some((0..self.map.shards().into()).map(merge).collect()))
            }
            Part::End => Ok(None),
        }
    }

    /// Merges the records of a block that belong to the shard with this number, and counts their
    /// peers that are not stored. The block has the records of all shards, whose ages were right at
    /// `unix`, seconds since 1970.
    fn merge_block(&self, block: Arc<Vec<u8>>, unix: u64, number: usize) -> ShardStep {
        let (map, began) = (self.map, self.began);
        let (access, full) = (self.access.clone(), self.full.clone());
        let (mut at, mut idle) = (0, Vec::new());
        Box::new(move |shard, now| {
            let options = LoadOptions { map, access: &access, now, extra_age: OLDER_IN_DELTA };
            // The wall clock may have been set meanwhile, the monotonic clock has not.
            let longest = u64::from(now.moment.since(began)) + u64::from(MARGIN);
            let unix = unix.max(now.unix.saturating_sub(longest));
            let (mut records, own) = (Records::new(&block[at..]), (&mut *shard, number));
            let loaded = load_records(&mut records, unix, own, options, STEP, &mut idle);
            full.fetch_add(loaded.peers.full, Ordering::Relaxed);
            for (idle_for, completed, info_hash) in idle.drain(..) {
                shard.restore_idle(info_hash, completed, idle_for, now.moment);
            }
            at = block.len() - records.rest();
            at < block.len()
        })
    }

    /// Peers that were not stored, because their shard was full.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

/// Removes peers that have stopped at the predecessor. Their ages were right when they were
/// `received`.
fn apply_stops(mut stops: Vec<Stop>, received: Now) -> ShardStep {
    Box::new(move |shard, now| {
        let since = now.moment.since(received.moment);
        for stop in stops.drain(stops.len().saturating_sub(STEP)..) {
            apply(shard, &stop, since, now.moment);
        }
        !stops.is_empty()
    })
}

/// Removes the peers that have stopped at this process since its dump was loaded, by the reader of
/// that time, up to the position that the change log has at the first step: later stops meet peers
/// that are merged already.
fn apply_own_stops(mut reader: Option<ChangeReader>) -> ShardStep {
    let mut end = None;
    Box::new(move |shard, now| {
        let Some(reader) = &mut reader else { return false };
        let end = *end.get_or_insert_with(|| shard.change_position());
        let mut stops = Vec::new();
        let more = collect_stops(shard, reader, STEP, now.moment, &mut stops);
        stops.iter().for_each(|stop| apply(shard, stop, 0, now.moment));
        more && reader.position() < end
    })
}

/// Removes a peer that has stopped. The age of its stop was right `since` seconds ago.
fn apply(shard: &mut Shard, stop: &Stop, since: u32, now: Moment) {
    let Stop { info_hash, endpoint, completed, age } = stop;
    let age = age.saturating_add(since + OLDER_STOPS);
    shard.remove_peer(info_hash, endpoint, *completed, age, now);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onrush_proto::{Event, TransactionId};
    use onrush_swarm::{Announce, Interest, PeerView, ShardBatch, ShardSettings, SourceLimits};

    use super::*;
    use crate::dump::load_options;
    use onrush_store::snapshot::load::from_stream;

    const INFO_HASH: InfoHash = InfoHash([7; 20]);
    const NOW: Now = Now { moment: Moment(1 << 20), unix: 1_800_000_000 };

    fn shard() -> Shard {
        shard_of(10)
    }

    fn shard_of(max_peers: u64) -> Shard {
        // At the limit, newcomers replace peers of sources that occupy more.
        let sources = SourceLimits { peers: 100, ..SourceLimits::default() };
        let settings =
            ShardSettings { peer_lifetime: 1_800, max_peers, sources, ..ShardSettings::default() };
        Shard::new(settings, [1; 16], 1)
    }

    fn shard_with_a_peer() -> Shard {
        let mut shard = shard();
        restore(&mut shard, 80, 0);
        shard
    }

    fn restore(shard: &mut Shard, port: u8, age: u32) {
        let endpoint = Endpoint::V4([192, 0, 2, 1, 0, port]);
        let peer = PeerView { endpoint, seeder: true, age };
        shard.restore(INFO_HASH, 1, [peer].into_iter(), NOW.moment);
    }

    fn endpoints(shard: &Shard) -> BTreeSet<Endpoint> {
        shard.swarms(NOW.moment).flat_map(|it| it.peers).map(|peer| peer.endpoint).collect()
    }

    /// Merges a delta; returns the number of peers for which there was no room.
    fn merge(bytes: &[u8], shard: &mut Shard, clock: &dyn Fn() -> Now) -> u64 {
        let map = ShardMap::new([1; 5], 1);
        let mut delta = Delta::new(bytes, map, Arc::new(AccessList::Open), NOW);
        while let Some(steps) = delta.next(clock).unwrap() {
            for mut part in steps {
                while part(shard, clock()) {}
            }
        }
        delta.full()
    }

    /// The delta of these shards since now.
    fn delta_of(shards: &mut [Shard], stops: Vec<ChangeReader>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut since = Since { begun: NOW.moment, stops };
        write(&mut bytes, shards, &mut since, NOW).unwrap();
        bytes
    }

    /// Two seconds later, after the wall clock was set by this many seconds.
    fn later(step: i64) -> Now {
        Now { moment: Moment(NOW.moment.0 + 2), unix: NOW.unix.saturating_add_signed(2 + step) }
    }

    const STEPS: [i64; 5] = [0, 3_600, -3_600, 315_360_000, -1_800_000_000];

    #[test]
    fn a_delta_is_merged_whatever_the_wall_clock_is_set_to() {
        let bytes = delta_of(&mut [shard_with_a_peer()], Vec::new());
        for step in STEPS {
            let mut shard = shard();
            merge(&bytes, &mut shard, &|| later(step));
            assert_eq!(shard.totals().peers(), 1, "after a step by {step} s");
        }
    }

    #[test]
    fn a_peer_that_was_replaced_after_the_dump_is_replaced_in_the_successor() {
        // Restored peers are settled, and weigh an eighth of their source's.
        let (mut old, mut new) = (shard_of(40), shard_of(40));
        for port in 0..40 {
            restore(&mut old, port, 100);
            restore(&mut new, port, 100);
        }
        let reader = old.subscribe(Interest::Stops);
        let newcomer = Announce {
            info_hash: INFO_HASH,
            endpoint: Endpoint::V4([203, 0, 113, 9, 0, 80]),
            event: Event::Started,
            seeder: false,
            want: 0,
            transaction_id: TransactionId(1),
        };
        let mut batch = ShardBatch::<(), ()>::new(1, 0, 4_096);
        batch.push_announce(newcomer, ()).unwrap();
        old.serve(&mut batch, NOW.moment);
        assert_eq!((old.totals().replaced, old.totals().peers()), (1, 40));
        let bytes = delta_of(std::slice::from_mut(&mut old), vec![reader]);
        assert_eq!(merge(&bytes, &mut new, &|| later(0)), 0);
        assert_eq!(endpoints(&new), endpoints(&old));
    }

    #[test]
    fn peers_of_a_delta_without_room_are_counted() {
        let (mut old, mut new) = (shard(), shard());
        (0..7).for_each(|port| restore(&mut old, port, 0));
        (100..106).for_each(|port| restore(&mut new, port, 0));
        let bytes = delta_of(&mut [old], Vec::new());
        assert_eq!((merge(&bytes, &mut new, &|| later(0)), new.totals().peers()), (3, 10));
    }

    #[test]
    fn a_dump_is_loaded_whatever_the_wall_clock_is_set_to() {
        let map = ShardMap::new([1; 5], 1);
        for step in STEPS {
            // Loading begins before the dump is written.
            let mut writer = SnapshotWriter::begin(Vec::new(), later(step).unix).unwrap();
            let mut source = [shard_with_a_peer()];
            writer.shards(&mut source, later(step), Encoder::default(), &mut || {}).unwrap();
            let (dump, _) = writer.end(later(step).unix).unwrap();
            let mut shard = shard();
            let options = load_options(map, &AccessList::Open, NOW);
            from_stream(dump.as_slice(), vec![&mut shard], options, &mut || {}).unwrap();
            assert_eq!(shard.totals().peers(), 1, "after a step by {step} s");
        }
    }

    #[test]
    fn stops_are_read_as_written_and_damaged_ones_are_errors() {
        let stops = [Endpoint::V4([1; 6]), Endpoint::V6([2; 18])].map(|endpoint| Stop {
            info_hash: InfoHash([7; 20]),
            endpoint,
            completed: u32::MAX,
            age: 9,
        });
        let mut bytes = Vec::new();
        write_stops(&mut bytes, &stops).unwrap();
        let read = |bytes: &[u8]| {
            let (mut from, mut read) = (bytes, Vec::new());
            let result = read_stops(&mut from, |stop| read.push(stop));
            result.map(|()| (read, from.len()))
        };
        // The bytes behind them are not read.
        let more = [&bytes[..], b"snapshot"].concat();
        assert_eq!(read(&more).unwrap(), (stops.to_vec(), 8));
        assert!((0..bytes.len()).all(|len| read(&bytes[..len]).is_err()));
        bytes[4 + 20] = 5;
        assert_eq!(read(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Memory follows what arrives, not the number that is stated.
        assert!(read(&[0xFF; 500]).is_err());
    }
}
