//! What a snapshot is made of. All numbers are big endian.
//!
//! ```text
//! snapshot  head, blocks, end
//! head      "onrush snapshot\n", version u16, 0 u16, written u64 (seconds since 1970), crc32 of the 28 bytes
//! block     length of what follows its head u32, time u64 (seconds since 1970), crc32 of all but itself; records
//! record    info hash 20, completed u32, v4 u32, v6 u32; v4 times 6 + 2 bytes; v6 times 18 + 2 bytes
//! end       a block whose length has its highest bit set: records u64, IPv4 peers u64, IPv6 peers u64
//! ```
//!
//! The two bytes behind a peer's address and port are 15 bits of age, at the block's time and in units of four
//! seconds, and one bit that is set for seeders. A swarm without peers has all bits of `v4` set, and in `v6` the seconds
//! since it lost the last of them. A swarm may stand there in several records; of its numbers of `completed`
//! the greatest counts.
//!
//! There is nothing of how many workers there were, nor any key: whoever reads it may have others.

use onrush_proto::InfoHash;
use thiserror::Error;

/// What a snapshot begins with.
pub const MAGIC: [u8; 16] = *b"onrush snapshot\n";
/// The only version there is so far.
pub const VERSION: u16 = 1;
/// Bytes before the first block.
pub const HEAD_LEN: usize = 32;
/// Bytes before what is in a block.
pub const BLOCK_HEAD_LEN: usize = 16;
/// Bytes of a record without its peers.
pub const RECORD_LEN: usize = 32;
/// A block may be so long at most, in bytes.
pub const MAX_BLOCK: usize = 1 << 20;
/// Seconds to a unit of age.
pub const UNIT: u32 = 4;

const END: u32 = 1 << 31;
const END_LEN: usize = 24;
const IDLE: u32 = u32::MAX;

/// An address and port of IPv4 with age and kind.
pub type RowV4 = [u8; 8];
/// An address and port of IPv6 with age and kind.
pub type RowV6 = [u8; 20];

/// Why some bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// It begins with something else.
    #[error("it is not a snapshot of onrush's")]
    Foreign,
    /// It is of a version that this build does not know.
    #[error(
        "it is of version {0}, and this onrush reads version {VERSION}: another version has written it"
    )]
    Version(
        /// Its version.
        u16,
    ),
    /// A checksum does not agree.
    #[error("a checksum does not agree with what is there")]
    Checksum,
    /// A length leads beyond what there is, or beyond what there may be.
    #[error("a length is wrong")]
    Length,
    /// It ends before its end.
    #[error("it ends too early")]
    Short,
    /// There is something behind its end.
    #[error("something follows behind its end")]
    Long,
    /// It has not as many swarms or peers as it says.
    #[error("it has another number of swarms or peers than it says")]
    Count,
}

/// How many there are of what.
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

/// The first bytes of a snapshot.
pub fn head(unix: u64) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..16].copy_from_slice(&MAGIC);
    head[16..18].copy_from_slice(&VERSION.to_be_bytes());
    head[20..28].copy_from_slice(&unix.to_be_bytes());
    let checksum = crc32fast::hash(&head[..28]);
    head[28..].copy_from_slice(&checksum.to_be_bytes());
    head
}

/// When a snapshot with this head was written.
///
/// # Errors
/// When it is no head of a snapshot that can be read here.
pub fn read_head(head: &[u8; HEAD_LEN]) -> Result<u64, Damage> {
    if head[..16] != MAGIC {
        return Err(Damage::Foreign);
    }
    if crc32fast::hash(&head[..28]).to_be_bytes() != head[28..] {
        return Err(Damage::Checksum);
    }
    match u16::from_be_bytes([head[16], head[17]]) {
        VERSION => Ok(u64::from_be_bytes(part(head, 20))),
        other => Err(Damage::Version(other)),
    }
}

/// Fills in the head of a block: `block` is the whole of it, with room for the head.
///
/// # Panics
/// When it is longer than a block may be.
pub fn close_block(block: &mut [u8], unix: u64) {
    let len = block.len() - BLOCK_HEAD_LEN;
    assert!(len <= MAX_BLOCK, "a block of {len} bytes");
    close(block, len as u32, unix);
}

/// The last block.
pub fn end(tally: SnapshotCounts, unix: u64) -> [u8; BLOCK_HEAD_LEN + END_LEN] {
    let mut end = [0; BLOCK_HEAD_LEN + END_LEN];
    for (at, number) in [tally.records, tally.v4, tally.v6].into_iter().enumerate() {
        end[BLOCK_HEAD_LEN + 8 * at..][..8].copy_from_slice(&number.to_be_bytes());
    }
    close(&mut end, END | END_LEN as u32, unix);
    end
}

fn close(block: &mut [u8], len: u32, unix: u64) {
    block[..4].copy_from_slice(&len.to_be_bytes());
    block[4..12].copy_from_slice(&unix.to_be_bytes());
    let checksum =
        checksum(block.first_chunk().expect("room for its head"), &block[BLOCK_HEAD_LEN..]);
    block[12..BLOCK_HEAD_LEN].copy_from_slice(&checksum.to_be_bytes());
}

fn checksum(head: &[u8; BLOCK_HEAD_LEN], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..12]);
    hasher.update(rest);
    hasher.finalize()
}

/// A block's head, as read.
#[derive(Clone, Copy, Debug)]
pub struct BlockHead {
    bytes: [u8; BLOCK_HEAD_LEN],
    /// Bytes that follow.
    pub len: usize,
    /// When its ages were right.
    pub unix: u64,
    /// Whether it is the last one.
    pub is_end: bool,
}

impl BlockHead {
    /// Reads a head.
    ///
    /// # Errors
    /// When its length cannot be right.
    pub fn read(bytes: [u8; BLOCK_HEAD_LEN]) -> Result<Self, Damage> {
        let word = u32::from_be_bytes(part(&bytes, 0));
        let (len, is_end) = ((word & !END) as usize, word & END != 0);
        if len > MAX_BLOCK || is_end && len != END_LEN {
            return Err(Damage::Length);
        }
        Ok(Self { bytes, len, unix: u64::from_be_bytes(part(&bytes, 4)), is_end })
    }

    /// Whether what follows is what was written.
    ///
    /// # Errors
    /// When it is not.
    pub fn check(&self, rest: &[u8]) -> Result<(), Damage> {
        let right = checksum(&self.bytes, rest).to_be_bytes() == self.bytes[12..];
        if right { Ok(()) } else { Err(Damage::Checksum) }
    }
}

/// What the last block says.
pub fn read_end(rest: &[u8]) -> Option<SnapshotCounts> {
    let rest: &[u8; END_LEN] = rest.try_into().ok()?;
    let number = |at| u64::from_be_bytes(part(rest, at));
    Some(SnapshotCounts { records: number(0), v4: number(8), v6: number(16) })
}

/// A swarm, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its name.
    pub info_hash: InfoHash,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Its peers, or for how many seconds it has had none.
    pub peers: Peers<'a>,
}

/// What a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers<'a> {
    /// Nobody for so many seconds.
    Idle(u32),
    /// Peers of both families.
    Rows(&'a [RowV4], &'a [RowV6]),
}

/// The first bytes of a record; `counts` are its peers by family, or for how long there have been none.
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

/// The age and kind of a peer in two bytes. Ages beyond 36 hours count as these.
pub fn stamp(age: u32, seeder: bool) -> [u8; 2] {
    let units = (age / UNIT).min((1 << 15) - 1) as u16;
    ((units << 1) | u16::from(seeder)).to_be_bytes()
}

/// Age in seconds, and whether it is a seeder.
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
    /// Of what follows a block's head.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// How many there are of what.
    ///
    /// # Errors
    /// When a length leads beyond the block.
    pub fn tally(self) -> Result<SnapshotCounts, Damage> {
        let mut tally = SnapshotCounts::default();
        for record in self {
            tally.records += 1;
            if let Peers::Rows(v4, v6) = record?.peers {
                tally.v4 += v4.len() as u64;
                tally.v6 += v6.len() as u64;
            }
        }
        Ok(tally)
    }

    /// Bytes that were not read yet.
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
