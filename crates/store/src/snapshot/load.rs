//! From a file to shards. A file is read twice: nothing of one that is damaged anywhere gets into a shard.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};
use nix::fcntl::OFlag;
use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::{PeerView, Restored, Shard, ShardMap};
use thiserror::Error;

use super::format::{self, BlockHead, Damage, HEAD_LEN, Peers, Record, Records, SnapshotCounts};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;

/// Files that could not be used and are kept at most.
const MOST_ASIDE: usize = 3;
/// BlockReader that wait for a shard at most.
const WAITING: usize = 8;

/// Why there is nothing of a snapshot.
#[derive(Debug, Error)]
pub enum LoadError {
    /// There is none.
    #[error("there is no snapshot")]
    Absent,
    /// It cannot be read.
    #[error("{path}: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It was good when it was read for the first time, and could not be read again. What came before is in
    /// the shards.
    #[error("{path}: {cause}")]
    Lost {
        /// The file.
        path: PathBuf,
        /// What has happened.
        cause: ReadError,
    },
    /// It is not what was written.
    #[error("{path}: {damage}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        damage: Damage,
    },
}

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// What became of the peers.
    pub peers: Restored,
    /// Swarms that are there for their `completed`.
    pub idle: u64,
    /// Records of swarms that are not served.
    pub forbidden: u64,
    /// Seconds since it was written; 0 where that is in the future by this clock.
    pub age: u64,
}

impl std::ops::AddAssign for Loaded {
    fn add_assign(&mut self, other: Self) {
        self.peers += other.peers;
        self.idle += other.idle;
        self.forbidden += other.forbidden;
    }
}

/// BlockReader of a snapshot, one after the other, each as it was written.
#[derive(Debug)]
pub struct BlockReader<R> {
    from: R,
    read: SnapshotCounts,
    /// When it was written.
    pub unix: u64,
}

/// Why the next block is not there.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not what was written.
    #[error("{0}")]
    Damage(#[from] Damage),
}

impl ReadError {
    fn of(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Damage::Short.into(),
            _ => error.into(),
        }
    }
}

impl<R: Read> BlockReader<R> {
    /// Of a snapshot that begins here.
    ///
    /// # Errors
    /// When it does not.
    pub fn begin(mut from: R) -> Result<Self, ReadError> {
        let mut head = [0; HEAD_LEN];
        let mut read = 0;
        while read < HEAD_LEN {
            match from.read(&mut head[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if read < HEAD_LEN {
            let known = read.min(format::MAGIC.len());
            let ours = head[..known] == format::MAGIC[..known];
            return Err(if ours { Damage::Short } else { Damage::Foreign }.into());
        }
        Ok(Self { from, read: SnapshotCounts::default(), unix: format::read_head(&head)? })
    }

    /// Puts the next block's records into `rest`, and says when their ages were right; `None` at the end.
    ///
    /// # Errors
    /// When what there is cannot be read, or is not what was written.
    pub fn next(&mut self, rest: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        let mut head = [0; format::BLOCK_HEAD_LEN];
        self.from.read_exact(&mut head).map_err(ReadError::of)?;
        let head = BlockHead::read(head)?;
        rest.resize(head.len, 0);
        self.from.read_exact(rest).map_err(ReadError::of)?;
        head.check(rest)?;
        if head.is_end {
            let said = format::read_end(rest).ok_or(Damage::Length)?;
            return if said == self.read { Ok(None) } else { Err(Damage::Count.into()) };
        }
        self.read += Records::new(rest).tally()?;
        Ok(Some(head.unix))
    }

    /// What was read so far.
    pub fn read(&self) -> SnapshotCounts {
        self.read
    }
}

/// Looks at all of a snapshot without making anything of it.
///
/// # Errors
/// When it cannot be read, or is damaged anywhere.
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
        return Err(Damage::Long.into());
    }
    Ok(read)
}

/// Fills one shard.
pub struct ShardLoader<'a> {
    shard: &'a mut Shard,
    number: usize,
    map: ShardMap,
    access: &'a AccessList,
    now: Now,
    /// Seconds by which peers are taken for older than they are said to be.
    older: u32,
    /// Those without peers, or with such alone whose lifetime is over, with the seconds for which they have had none: they go in oldest first.
    idle: Vec<(u32, u32, InfoHash)>,
    loaded: Loaded,
}

impl<'a> ShardLoader<'a> {
    /// Of shard `number` of `map`, from what `access` permits.
    pub fn new(
        shard: &'a mut Shard,
        number: usize,
        map: ShardMap,
        access: &'a AccessList,
        now: Now,
    ) -> Self {
        let (older, idle, loaded) = (0, Vec::new(), Loaded::default());
        Self { shard, number, map, access, now, older, idle, loaded }
    }

    /// Takes this shard's part of a block.
    pub fn take(&mut self, rest: &[u8], unix: u64) {
        // A clock that went backwards: as if no time had passed.
        let since = u32::try_from(self.now.unix.saturating_sub(unix)).unwrap_or(u32::MAX);
        for record in Records::new(rest).map_while(Result::ok) {
            if self.map.shard_of(&record.info_hash) != self.number {
                continue;
            }
            if !self.access.permits(record.info_hash) {
                self.loaded.forbidden += 1;
                continue;
            }
            let Record { info_hash, completed, peers } = record;
            match peers {
                Peers::Idle(idle_for) => {
                    self.idle.push((idle_for.saturating_add(since), completed, info_hash));
                }
                Peers::Rows(v4, v6) => {
                    let peers = peer_views(v4, v6, since.saturating_add(self.older));
                    let restored = self.shard.restore(info_hash, completed, peers, self.now.moment);
                    self.loaded.peers += restored;
                    let idle = restored.idle_for.map(|idle_for| (idle_for, completed, info_hash));
                    self.idle.extend(idle);
                }
            }
        }
    }

    /// That was all.
    pub fn end(mut self) -> Loaded {
        self.idle.sort_unstable_by_key(|(idle_for, ..)| std::cmp::Reverse(*idle_for));
        // There is room for the youngest.
        for (idle_for, completed, info_hash) in self.idle {
            self.shard.restore_idle(info_hash, completed, idle_for, self.now.moment);
        }
        self.loaded.idle = self.shard.totals().idle_swarms;
        self.loaded
    }
}

/// Peers as a shard takes them, `since` seconds later.
pub fn peer_views<'a>(
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

/// Loads a snapshot into all shards of `map`, in order, each on a thread of its own.
///
/// # Errors
/// [`LoadError`]: the shards are as they were, but for [`LoadError::Lost`].
pub fn load(
    path: &Path,
    shards: Vec<&mut Shard>,
    map: ShardMap,
    access: &AccessList,
    now: Now,
    progress: &mut dyn FnMut(),
) -> Result<Loaded, LoadError> {
    let failed = |error| match error {
        ReadError::Io(cause) if cause.kind() == ErrorKind::NotFound => LoadError::Absent,
        ReadError::Io(cause) => LoadError::Unreadable { path: path.to_owned(), cause },
        ReadError::Damage(damage) => LoadError::Damaged { path: path.to_owned(), damage },
    };
    // Not a pipe that nobody writes to.
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let open = || File::options().read(true).custom_flags(nonblocking).open(path);
    let mut file = open().map_err(|error| failed(error.into()))?;
    verify(BufReader::with_capacity(256 << 10, &file), progress).map_err(failed)?;
    file.rewind().map_err(|error| failed(error.into()))?;
    let lost = |cause| LoadError::Lost { path: path.to_owned(), cause };
    let blocks = BlockReader::begin(BufReader::with_capacity(256 << 10, &file)).map_err(lost)?;
    let age = now.unix.saturating_sub(blocks.unix);
    let loaders = shards.into_iter().enumerate();
    let loaders =
        loaders.map(|(number, shard)| ShardLoader::new(shard, number, map, access, now)).collect();
    let loaded = fill(blocks, loaders, progress).map_err(lost)?;
    Ok(Loaded { age, ..loaded })
}

/// Loads a snapshot that comes in one go, with peers that are taken for `older` than they are said to be, by so
/// many seconds. What came before an error is in the shards.
///
/// # Errors
/// When it cannot be read, or is damaged.
pub fn from_stream(
    from: impl Read,
    shards: Vec<&mut Shard>,
    map: ShardMap,
    access: &AccessList,
    now: Now,
    older: u32,
    progress: &mut dyn FnMut(),
) -> Result<Loaded, ReadError> {
    let loaders = shards.into_iter().enumerate();
    let loader = |(number, shard)| ShardLoader {
        older,
        ..ShardLoader::new(shard, number, map, access, now)
    };
    let loaders = loaders.map(loader).collect();
    fill(BlockReader::begin(from)?, loaders, progress)
}

/// The records of a block, with the time at which their ages were right.
type Part = (Arc<Vec<u8>>, u64);

/// Has all shards take their parts of each block.
fn fill(
    mut blocks: BlockReader<impl Read>,
    loaders: Vec<ShardLoader<'_>>,
    progress: &mut dyn FnMut(),
) -> Result<Loaded, ReadError> {
    thread::scope(|scope| {
        let mut ways = Vec::new();
        let mut threads = Vec::new();
        for mut loader in loaders {
            let (way, parts): (_, Receiver<Part>) = bounded(WAITING);
            ways.push(way);
            threads.push(scope.spawn(move || {
                parts.iter().for_each(|(rest, unix)| loader.take(&rest, unix));
                loader.end()
            }));
        }
        loop {
            progress();
            let mut rest = Vec::new();
            let Some(unix) = blocks.next(&mut rest)? else { break };
            let rest = Arc::new(rest);
            for way in &ways {
                // It ends before the end only by a panic, which is passed on below.
                let _ = way.send((rest.clone(), unix));
            }
        }
        drop(ways);
        let mut loaded = Loaded::default();
        for thread in threads {
            loaded += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(loaded)
    })
}

/// Renames a file that cannot be used, so that it is neither read again nor written over. Where it is now.
///
/// # Errors
/// When it cannot be renamed.
pub fn set_aside(path: &Path, unix: u64) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{unix}"));
    let aside = path.with_file_name(name);
    fs::rename(path, &aside)?;
    // Without these things are as well as with them.
    let _ = forget_older(path);
    Ok(aside)
}

/// Removes all but the youngest few that were set aside: a snapshot may be large, and who starts again and again
/// must not fill the disk.
fn forget_older(path: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let begins = format!("{}.damaged-", name.to_string_lossy());
    let mut aside = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let time = name.to_str().and_then(|name| name.strip_prefix(&begins)?.parse::<u64>().ok());
        aside.extend(time.map(|time| (time, entry.path())));
    }
    aside.sort_unstable();
    let many = aside.len().saturating_sub(MOST_ASIDE);
    aside.iter().take(many).try_for_each(|(_, path)| fs::remove_file(path))
}

/// Loads what the last process has left, and says in the log how that went. Returns what the operator should
/// know.
pub fn load_at_start(
    path: &Path,
    shards: Vec<&mut Shard>,
    map: ShardMap,
    access: &AccessList,
    now: Now,
    progress: &mut dyn FnMut(),
) -> Option<String> {
    let began = Instant::now();
    let error = match load(path, shards, map, access, now, progress) {
        Ok(loaded) => {
            log::info!("{loaded} in {:.2} s", began.elapsed().as_secs_f64());
            return None;
        }
        Err(LoadError::Absent) => return None,
        // It was whole a moment ago: the disk may be about to fail, the file is not to blame.
        Err(error @ LoadError::Lost { .. }) => {
            return Some(format!("only some of the peers from before are back: {error}"));
        }
        Err(error) => error,
    };
    Some(match set_aside(path, now.unix) {
        Ok(aside) => format!(
            "no peers from before: {error}; the file is {} now, and may be removed",
            aside.display()
        ),
        Err(cause) => format!("no peers from before: {error}; nor can it be renamed: {cause}"),
    })
}

impl std::fmt::Display for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Restored { stored, expired, full, .. } = self.peers;
        write!(f, "{stored} peers of {} s ago are back", self.age)?;
        if expired > 0 {
            write!(f, ", {expired} were too old")?;
        }
        if full > 0 {
            write!(f, ", {full} are more than limits.peers")?;
        }
        if self.forbidden > 0 {
            write!(f, ", {} swarms are not permitted any more", self.forbidden)?;
        }
        Ok(())
    }
}
