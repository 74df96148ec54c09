//! The format of a snapshot. All numbers are big endian.
//!
//! ```text
//! snapshot  head, blocks, end
//! head      "onrush snapshot\n", version u16, 0 u16, time written u64, crc32 of the 28 bytes
//! block     length of the records u32, time of ages u64, crc32 of all but itself; records
//! record    info hash 20, completed u32, v4 u32, v6 u32; v4 x (6 + 2) bytes; v6 x (18 + 2) bytes
//! end       a block with the highest bit of its length set: records u64, IPv4 u64, IPv6 peers u64
//! ```
//!
//! Times are seconds since 1970. The two bytes after a peer's address and port are 15 bits of age,
//! at the block's time and in units of four seconds, and one bit that is set for seeders. A swarm
//! without peers has all bits of `v4` set, and `v6` holds the seconds since its last peer left. A
//! swarm may have several records; the greatest of their `completed` counts.
//!
//! Neither the number of workers nor a key is part of it: a process with other workers and other
//! keys can read it.

use onrush_proto::InfoHash;
use thiserror::Error;

/// The first bytes of a snapshot.
pub const MAGIC: [u8; 16] = *b"onrush snapshot\n";
/// The version of the format.
pub const VERSION: u16 = 1;
/// Bytes of the head of a snapshot.
pub const HEAD_LEN: usize = 32;
/// Bytes of the head of a block.
pub const BLOCK_HEAD_LEN: usize = 16;
/// Bytes of a record without its peers.
pub const RECORD_LEN: usize = 32;
/// Maximum bytes of a block after its head.
pub const MAX_BLOCK: usize = 1 << 20;
/// Seconds per unit of age.
pub const UNIT: u32 = 4;

const END: u32 = 1 << 31;
const END_LEN: usize = 24;
const IDLE: u32 = u32::MAX;

/// An IPv4 peer: address, port, and a [`stamp`] of its age and kind.
pub type RowV4 = [u8; 8];
/// An IPv6 peer: address, port, and a [`stamp`] of its age and kind.
pub type RowV6 = [u8; 20];

/// Why bytes are not a valid snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// The first bytes are not [`MAGIC`].
    #[error("not a snapshot of onrush")]
    Magic,
    /// A version that this build cannot read.
    #[error("a snapshot of version {0}; this build reads version {VERSION}")]
    Version(
        /// The version of the snapshot.
        u16,
    ),
    /// A checksum does not match.
    #[error("a checksum does not match its data")]
    Checksum,
    /// A length exceeds the data or the limit of its field.
    #[error("a length is out of range")]
    Length,
    /// The end block is missing.
    #[error("the file is truncated")]
    Truncated,
    /// Bytes follow the end block.
    #[error("bytes follow the end of the snapshot")]
    TrailingBytes,
    /// The end block states other numbers of swarms or peers than the blocks hold.
    #[error("the numbers of swarms and peers differ from those in the end block")]
    Count,
}

/// Numbers of swarms and peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Records of swarms.
    pub records: u64,
    /// IPv4 peers.
    pub v4: u64,
    /// IPv6 peers.
    pub v6: u64,
}

impl std::ops::AddAssign for SnapshotCounts {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.v4 += other.v4;
        self.v6 += other.v6;
    }
}

/// The head of a snapshot that was written at `unix`, in seconds since 1970.
pub fn head(unix: u64) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..16].copy_from_slice(&MAGIC);
    head[16..18].copy_from_slice(&VERSION.to_be_bytes());
    head[20..28].copy_from_slice(&unix.to_be_bytes());
    let checksum = crc32fast::hash(&head[..28]);
    head[28..].copy_from_slice(&checksum.to_be_bytes());
    head
}

/// Reads the head of a snapshot; returns when it was written, in seconds since 1970.
///
/// # Errors
/// [`Damage::Magic`], [`Damage::Checksum`] or [`Damage::Version`].
pub fn read_head(head: &[u8; HEAD_LEN]) -> Result<u64, Damage> {
    if head[..16] != MAGIC {
        return Err(Damage::Magic);
    }
    if crc32fast::hash(&head[..28]).to_be_bytes() != head[28..] {
        return Err(Damage::Checksum);
    }
    match u16::from_be_bytes([head[16], head[17]]) {
        VERSION => Ok(u64::from_be_bytes(part(head, 20))),
        other => Err(Damage::Version(other)),
    }
}

/// Writes the head of a block into the first bytes of `block`, which are reserved for it.
///
/// # Panics
/// When the block exceeds [`MAX_BLOCK`].
pub fn close_block(block: &mut [u8], unix: u64) {
    let len = block.len() - BLOCK_HEAD_LEN;
    assert!(len <= MAX_BLOCK, "a block of {len} bytes");
    close(block, len as u32, unix);
}

/// The end block.
pub fn end(counts: SnapshotCounts, unix: u64) -> [u8; BLOCK_HEAD_LEN + END_LEN] {
    let mut end = [0; BLOCK_HEAD_LEN + END_LEN];
    for (at, number) in [counts.records, counts.v4, counts.v6].into_iter().enumerate() {
        end[BLOCK_HEAD_LEN + 8 * at..][..8].copy_from_slice(&number.to_be_bytes());
    }
    close(&mut end, END | END_LEN as u32, unix);
    end
}

fn close(block: &mut [u8], len: u32, unix: u64) {
    block[..4].copy_from_slice(&len.to_be_bytes());
    block[4..12].copy_from_slice(&unix.to_be_bytes());
    let checksum = checksum(
        block.first_chunk().expect("the block has room for its head"),
        &block[BLOCK_HEAD_LEN..],
    );
    block[12..BLOCK_HEAD_LEN].copy_from_slice(&checksum.to_be_bytes());
}

fn checksum(head: &[u8; BLOCK_HEAD_LEN], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..12]);
    hasher.update(rest);
    hasher.finalize()
}

/// The head of a block, as read.
#[derive(Clone, Copy, Debug)]
pub struct BlockHead {
    bytes: [u8; BLOCK_HEAD_LEN],
    /// Bytes after the head.
    pub len: usize,
    /// The time that ages refer to, in seconds since 1970.
    pub unix: u64,
    /// Whether this is the end block.
    pub is_end: bool,
}

impl BlockHead {
    /// Reads a head.
    ///
    /// # Errors
    /// [`Damage::Length`].
    pub fn read(bytes: [u8; BLOCK_HEAD_LEN]) -> Result<Self, Damage> {
        let word = u32::from_be_bytes(part(&bytes, 0));
        let (len, is_end) = ((word & !END) as usize, word & END != 0);
        if len > MAX_BLOCK || is_end && len != END_LEN {
            return Err(Damage::Length);
        }
        Ok(Self { bytes, len, unix: u64::from_be_bytes(part(&bytes, 4)), is_end })
    }

    /// Checks the bytes after the head against the checksum.
    ///
    /// # Errors
    /// [`Damage::Checksum`].
    pub fn check(&self, rest: &[u8]) -> Result<(), Damage> {
        let right = checksum(&self.bytes, rest).to_be_bytes() == self.bytes[12..];
        if right { Ok(()) } else { Err(Damage::Checksum) }
    }
}

/// The numbers in the end block; `None` if its length is wrong.
pub fn read_end(rest: &[u8]) -> Option<SnapshotCounts> {
    let rest: &[u8; END_LEN] = rest.try_into().ok()?;
    let number = |at| u64::from_be_bytes(part(rest, at));
    Some(SnapshotCounts { records: number(0), v4: number(8), v6: number(16) })
}

/// A swarm, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The info hash.
    pub info_hash: InfoHash,
    /// Peers that became seeders by the event `completed`.
    pub completed: u32,
    /// The peers, or the seconds since the last of them left.
    pub peers: Peers<'a>,
}

/// The peers of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers<'a> {
    /// None, for this many seconds.
    Idle(u32),
    /// Peers over IPv4 and over IPv6.
    Rows(&'a [RowV4], &'a [RowV6]),
}

/// The head of a record. `counts` are its IPv4 and IPv6 peers, or as an error the seconds since the
/// last of them left.
pub fn record_head(
    info_hash: &InfoHash,
    completed: u32,
    counts: Result<(u32, u32), u32>,
) -> [u8; RECORD_LEN] {
    let (v4, v6) = counts.unwrap_or_else(|idle_for| (IDLE, idle_for));
    let mut head = [0; RECORD_LEN];
    head[..20].copy_from_slice(&info_hash.0);
    for (at, number) in [completed, v4, v6].into_iter().enumerate() {
        head[20 + 4 * at..][..4].copy_from_slice(&number.to_be_bytes());
    }
    head
}

/// The age (in seconds) and kind of a peer in two bytes. Ages above 36 hours are stored as 36
/// hours.
pub fn stamp(age: u32, seeder: bool) -> [u8; 2] {
    let units = (age / UNIT).min((1 << 15) - 1) as u16;
    ((units << 1) | u16::from(seeder)).to_be_bytes()
}

/// The age in seconds, and whether the peer is a seeder.
pub fn read_stamp(bytes: [u8; 2]) -> (u32, bool) {
    let word = u16::from_be_bytes(bytes);
    (u32::from(word >> 1) * UNIT, word & 1 == 1)
}

/// The records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records in the bytes after the head of a block.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Counts the records and their peers.
    ///
    /// # Errors
    /// [`Damage::Length`], when a length exceeds the block.
    pub fn count(self) -> Result<SnapshotCounts, Damage> {
        let mut counts = SnapshotCounts::default();
        for record in self {
            counts.records += 1;
            if let Peers::Rows(v4, v6) = record?.peers {
                counts.v4 += v4.len() as u64;
                counts.v6 += v6.len() as u64;
            }
        }
        Ok(counts)
    }

    /// Bytes not read yet.
    pub fn rest(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Option<Record<'a>> {
        let (head, rest) = self.rest.split_first_chunk::<RECORD_LEN>()?;
        let number = |at| u32::from_be_bytes(part(head, at));
        let (v4, v6) = (number(24), number(28));
        let peers = if v4 == IDLE {
            self.rest = rest;
            Peers::Idle(v6)
        } else {
            let (rows_v4, rest) = rest.split_at_checked((v4 as usize).checked_mul(8)?)?;
            let (rows_v6, rest) = rest.split_at_checked((v6 as usize).checked_mul(20)?)?;
            self.rest = rest;
            Peers::Rows(rows_v4.as_chunks().0, rows_v6.as_chunks().0)
        };
        Some(Record { info_hash: InfoHash(part(head, 0)), completed: number(20), peers })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.read().ok_or_else(|| {
            self.rest = &[];
            Damage::Length
        }))
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
