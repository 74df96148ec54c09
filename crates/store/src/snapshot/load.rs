//! Loads a snapshot into shards. A file is read twice, so that a damaged one changes no shard.

use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{PeerView, Restored, Shard, ShardMap};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::format::{
    self, BlockHead, Damage, HEAD_LEN, MAGIC, Peers, Record, Records, SnapshotCounts,
};
use crate::damaged_file::set_aside;
use crate::state_file;
use onrush_text::numbers::grouped;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;

/// Blocks queued for a shard at most.
const QUEUED_BLOCKS: usize = 8;

/// Why a snapshot was not loaded.
#[derive(Debug)]
pub struct LoadError {
    /// The cause.
    pub cause: ReadError,
    /// Whether the file was valid when it was verified, and failed while it was loaded: the blocks
    /// before the failure are in the shards.
    pub partly: bool,
}

/// Options of a load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Maps info hashes to the shards.
    pub map: ShardMap,
    /// Permits the swarms that are loaded.
    pub access: &'a AccessList,
    /// The time.
    pub now: Now,
    /// Seconds added to the age of every peer.
    pub extra_age: u32,
}

/// The result of loading a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Peers stored, expired, and above the limit.
    pub peers: Restored,
    /// Records of swarms that the access list refuses.
    pub forbidden: u64,
    /// Seconds since the snapshot was written; 0 if that is in the future by this clock.
    pub age: u64,
}

impl std::ops::AddAssign for Loaded {
    fn add_assign(&mut self, other: Self) {
        self.peers += other.peers;
        self.forbidden += other.forbidden;
    }
}

/// Reads a snapshot block by block and checks each of them.
#[derive(Debug)]
pub struct BlockReader<R> {
    from: R,
    read: SnapshotCounts,
    /// When the snapshot was written, in seconds since 1970.
    pub unix: u64,
}

/// Why a block could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The source failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes are not a valid snapshot.
    #[error("{0}")]
    Damage(#[from] Damage),
}

impl ReadError {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Damage::Truncated.into(),
            _ => error.into(),
        }
    }
}

impl<R: Read> BlockReader<R> {
    /// Reads the head of a snapshot.
    ///
    /// # Errors
    /// When the source fails, or the head is not valid.
    pub fn begin(mut from: R) -> Result<Self, ReadError> {
        let mut head = Vec::with_capacity(HEAD_LEN);
        from.by_ref().take(HEAD_LEN as u64).read_to_end(&mut head)?;
        let Ok(head) = head.as_slice().try_into() else {
            let ours = head.starts_with(&MAGIC) || MAGIC.starts_with(&head);
            return Err(if ours { Damage::Truncated } else { Damage::Magic }.into());
        };
        Ok(Self { from, read: SnapshotCounts::default(), unix: format::read_head(head)? })
    }

    /// Reads the records of the next block into `records`; returns the time that their ages refer
    /// to, in seconds since 1970, and `None` at the end block.
    ///
    /// # Errors
    /// When the source fails, or the block is not valid.
    pub fn next(&mut self, records: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        let mut head = [0; format::BLOCK_HEAD_LEN];
        self.from.read_exact(&mut head).map_err(ReadError::of)?;
        let head = BlockHead::read(head)?;
        records.resize(head.len, 0);
        self.from.read_exact(records).map_err(ReadError::of)?;
        head.check(records)?;
        if head.is_end {
            let stated = format::read_end(records).ok_or(Damage::Length)?;
            return if stated == self.read { Ok(None) } else { Err(Damage::Count.into()) };
        }
        self.read += Records::new(records).count()?;
        Ok(Some(head.unix))
    }

    /// Records and peers read so far.
    pub fn read(&self) -> SnapshotCounts {
        self.read
    }
}

/// Reads a whole snapshot and checks it; returns its numbers of records and peers. Calls `progress`
/// once per block.
///
/// # Errors
/// When the source fails, or the snapshot is damaged anywhere.
pub fn verify(
    mut from: impl Read,
    progress: &mut dyn FnMut(),
) -> Result<SnapshotCounts, ReadError> {
    let mut blocks = BlockReader::begin(&mut from)?;
    let mut rest = Vec::new();
    while blocks.next(&mut rest)?.is_some() {
        progress();
    }
    let read = blocks.read();
    if from.read(&mut [0])? != 0 {
        return Err(Damage::TrailingBytes.into());
    }
    Ok(read)
}

/// A swarm without live peers: seconds since the last one left, `completed`, info hash.
pub type IdleSwarm = (u32, u32, InfoHash);

/// Loads records of a block into shard `number`, until `limit` swarms and peers of it are loaded.
/// The ages of the block refer to `unix`, in seconds since 1970. Swarms without live peers are not
/// stored, but added to `idle`.
pub fn load_records(
    records: &mut Records<'_>,
    unix: u64,
    (shard, number): (&mut Shard, usize),
    options: LoadOptions<'_>,
    limit: usize,
    idle: &mut Vec<IdleSwarm>,
) -> Loaded {
    let LoadOptions { map, access, now, extra_age } = options;
    // A clock that was set back counts as no time passed.
    let since = u32::try_from(now.unix.saturating_sub(unix)).unwrap_or(u32::MAX);
    let (mut loaded, mut done) = (Loaded::default(), 0);
    while done < limit
        && let Some(Ok(Record { info_hash, completed, peers })) = records.next()
    {
        if map.shard_of(&info_hash) != number {
            continue;
        }
        done += 1;
        if !access.permits(info_hash) {
            loaded.forbidden += 1;
            continue;
        }
        match peers {
            Peers::Idle(idle_for) => {
                idle.push((idle_for.saturating_add(since), completed, info_hash));
            }
            Peers::Rows(v4, v6) => {
                done += v4.len() + v6.len();
                let peers = peer_views(v4, v6, since.saturating_add(extra_age));
                let restored = shard.restore(info_hash, completed, peers, now.moment);
                loaded.peers += restored;
                idle.extend(restored.idle_for.map(|idle_for| (idle_for, completed, info_hash)));
            }
        }
    }
    loaded
}

/// Stores the swarms without peers, once all blocks are loaded: oldest first.
fn restore_idle(shard: &mut Shard, mut idle: Vec<IdleSwarm>, now: Now) {
    idle.sort_unstable_by_key(|(idle_for, ..)| std::cmp::Reverse(*idle_for));
    // The youngest come last and stay if there are more than fit.
    for (idle_for, completed, info_hash) in idle {
        shard.restore_idle(info_hash, completed, idle_for, now.moment);
    }
}

/// The peers of a record, `since` seconds older.
fn peer_views<'a>(
    v4: &'a [format::RowV4],
    v6: &'a [format::RowV6],
    since: u32,
) -> impl Iterator<Item = PeerView> + 'a {
    let view = move |endpoint, bytes| {
        let (age, seeder) = format::read_stamp(bytes);
        PeerView { endpoint, seeder, age: age.saturating_add(since) }
    };
    let v4 = v4
        .iter()
        .map(move |&[a, b, c, d, p, q, s, t]| view(Endpoint::V4([a, b, c, d, p, q]), [s, t]));
    let v6 = v6.iter().map(move |row| {
        let (endpoint, stamp) = row.split_first_chunk().expect("18 of 20");
        view(Endpoint::V6(*endpoint), [stamp[0], stamp[1]])
    });
    v4.chain(v6)
}

/// Upper bound of the peers in a dump of shards that store `limit` in all: it has both the peers
/// that were replaced after they had been written, and the newcomers that replaced them.
pub fn max_peers_in_dump(limit: u64) -> u64 {
    limit.saturating_add((limit / 8).max(1_000))
}

/// Lets each of the shards, which share `limit` peers equally, load all peers of a dump: a large
/// swarm may exceed the share of its shard.
pub fn reserve(shards: &mut [&mut Shard], limit: u64) {
    shards.iter_mut().for_each(|shard| shard.reserve_for_restore(max_peers_in_dump(limit)));
}

/// Loads a snapshot file into all shards, in order, each on its own thread. They share `limit`
/// peers equally, which a shard may exceed if the file is a dump of no more peers in all.
///
/// # Errors
/// [`LoadError`]; the shards are unchanged unless it is `partly` loaded.
pub fn load(
    path: &Path,
    mut shards: Vec<&mut Shard>,
    limit: u64,
    options: LoadOptions<'_>,
    progress: &mut dyn FnMut(),
) -> Result<Loaded, LoadError> {
    let unusable = |cause| LoadError { cause, partly: false };
    let mut file = state_file::open(path).map_err(|error| unusable(error.into()))?;
    let counts = verify(BufReader::with_capacity(256 << 10, &file), progress).map_err(unusable)?;
    file.rewind().map_err(|error| unusable(error.into()))?;
    if counts.v4 + counts.v6 <= max_peers_in_dump(limit) {
        reserve(&mut shards, limit);
    }
    from_stream(BufReader::with_capacity(256 << 10, &file), shards, options, progress)
        .map_err(|cause| LoadError { cause, partly: true })
}

/// The records of a block, and the time that their ages refer to.
type TimedRecords = (Arc<Vec<u8>>, u64);

/// Loads a snapshot from a stream: each block is sent to the threads of all shards, each of which
/// picks the records of its shard. After an error the blocks before it are in the shards.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub fn from_stream(
    from: impl Read,
    shards: Vec<&mut Shard>,
    options: LoadOptions<'_>,
    progress: &mut dyn FnMut(),
) -> Result<Loaded, ReadError> {
    let mut blocks = BlockReader::begin(from)?;
    let age = options.now.unix.saturating_sub(blocks.unix);
    thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut threads = Vec::new();
        for (number, shard) in shards.into_iter().enumerate() {
            let (sender, blocks): (_, Receiver<TimedRecords>) = bounded(QUEUED_BLOCKS);
            senders.push(sender);
            threads.push(scope.spawn(move || {
                let (mut loaded, mut idle) = (Loaded::default(), Vec::new());
                for (records, unix) in &blocks {
                    let (mut records, shard) = (Records::new(&records), (&mut *shard, number));
                    let all = usize::MAX;
                    loaded += load_records(&mut records, unix, shard, options, all, &mut idle);
                }
                restore_idle(shard, idle, options.now);
                loaded
            }));
        }
        loop {
            progress();
            let mut records = Vec::new();
            let Some(unix) = blocks.next(&mut records)? else { break };
            let records = Arc::new(records);
            for sender in &senders {
                // Sending fails only after a panic, which is resumed below.
                let _ = sender.send((records.clone(), unix));
            }
        }
        drop(senders);
        let mut loaded = Loaded { age, ..Loaded::default() };
        for thread in threads {
            loaded += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(loaded)
    })
}

/// Loads the snapshot of the last process at start, as [`load`], and logs the result. Returns a
/// warning for the operator if peers were lost. A file that is read and not valid is renamed. One
/// that cannot be read may be valid: it stays, and must not be overwritten.
///
/// # Errors
/// [`Unread`], as long as such a file is there.
pub fn load_at_start(
    path: &Path,
    shards: Vec<&mut Shard>,
    limit: u64,
    options: LoadOptions<'_>,
    progress: &mut dyn FnMut(),
) -> Result<Option<String>, Unread> {
    let began = Instant::now();
    let LoadError { cause, partly } = match load(path, shards, limit, options, progress) {
        Ok(loaded) => {
            log::info!("{loaded} in {:.2} s", began.elapsed().as_secs_f64());
            return Ok(None);
        }
        Err(error) => error,
    };
    match cause {
        ReadError::Io(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // A file that was valid a moment ago is kept: the disk may be failing.
        ReadError::Damage(damage) if !partly => {
            Ok(Some(set_aside("snapshot", path, &damage, options.now.unix)))
        }
        cause => Err(Unread { path: path.to_owned(), cause: cause.to_string(), partly }),
    }
}

/// A snapshot that could not be read, and is not overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error(
    "{path} could not be read{}: {cause}; it is not overwritten, so no snapshot is written: make \
     it readable for the tracker's user and restart, which loads it, or move it away, and the next \
     snapshot is written",
    if *.partly { " to its end" } else { "" }
)]
pub struct Unread {
    /// The file. Not part of a handoff: each process has its own path to it.
    #[serde(skip)]
    pub path: PathBuf,
    /// Why it could not be read.
    pub cause: String,
    /// Whether peers of it were loaded.
    pub partly: bool,
}

impl Unread {
    /// The snapshot at `path`, if there is one that cannot be opened.
    pub fn at(path: &Path) -> Option<Self> {
        match state_file::open(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Some(Self { path: path.to_owned(), cause: error.to_string(), partly: false })
            }
            _ => None,
        }
    }

    /// Whether the file is still there.
    pub fn is_there(&self) -> bool {
        !matches!(self.path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound)
    }
}

impl std::fmt::Display for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Restored { stored, expired, full, .. } = self.peers;
        write!(f, "loaded {} peers of a snapshot from {} s ago", grouped(stored), self.age)?;
        for (number, what) in [
            (expired, "expired"),
            (full, "above limits.peers"),
            (self.forbidden, "swarms refused by the access list"),
        ] {
            if number > 0 {
                write!(f, ", {} {what}", grouped(number))?;
            }
        }
        Ok(())
    }
}
