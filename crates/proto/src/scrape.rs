//! Scrape: counts of several swarms, no peers (BEP 15, "Scrape"; the terms are those of BEP 48).
//!
//! ```text
//! request                                     response
//! 0               8        12       16        0        4        8
//! +---------------+--------+--------+-----    +--------+--------+---------------------------
//! | connection id | 2      | trans. | info    | 2      | trans. | per hash, in order: seeders,
//! +---------------+--------+--------+ hashes  +--------+--------+ completed, leechers (4 bytes)
//! ```

use crate::id::{ConnectionId, InfoHash, TransactionId};
use crate::wire;

/// The action number of a scrape, in requests and responses.
pub const ACTION: u32 = 2;
/// Bytes of a scrape request before its info hashes.
pub const REQUEST_HEAD_LEN: usize = 16;
/// Bytes of an info hash in a request.
pub const HASH_LEN: usize = 20;
/// Bytes of a scrape response before its counts.
pub const HEAD_LEN: usize = 8;
/// Bytes of one swarm's counts in a response.
pub const COUNTS_LEN: usize = 12;
/// The number of info hashes that BEP 15 ("Scrape") allows in one request: as many as fit one
/// Ethernet frame.
pub const MAX_HASHES: usize = 74;
/// Bytes of a request with [`MAX_HASHES`]. A receive buffer of this size truncates nothing that
/// matters, except an announce with longer options.
pub const MAX_REQUEST_LEN: usize = REQUEST_HEAD_LEN + MAX_HASHES * HASH_LEN;
/// Bytes of the response to such a request.
pub const MAX_RESPONSE_LEN: usize = HEAD_LEN + MAX_HASHES * COUNTS_LEN;

const _: () = assert!(MAX_RESPONSE_LEN <= wire::MAX_RESPONSE_LEN);

/// A scrape request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scrape<'a> {
    /// From a connect response.
    pub connection_id: ConnectionId,
    /// Echoed in the response.
    pub transaction_id: TransactionId,
    hashes: &'a [[u8; HASH_LEN]],
}

impl<'a> Scrape<'a> {
    /// Reads a datagram whose action is known to be [`ACTION`]; `None` when it is shorter than
    /// [`REQUEST_HEAD_LEN`]. Trailing bytes that are no whole hash are ignored. There may be no
    /// hash at all: the tracker decides whether to answer such a request.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (head, rest) = datagram.split_first_chunk::<REQUEST_HEAD_LEN>()?;
        Some(Self {
            connection_id: ConnectionId(wire::u64(head, 0)),
            transaction_id: TransactionId(wire::u32(head, 12)),
            hashes: rest.as_chunks().0,
        })
    }

    /// The info hashes in the order asked for, all of them: the limit is the tracker's.
    #[inline]
    pub fn info_hashes(&self) -> impl ExactSizeIterator<Item = InfoHash> + Clone + use<'a> {
        self.hashes.iter().map(|hash| InfoHash(*hash))
    }

    /// The info hashes as they lie in the request.
    #[inline]
    pub fn wire_hashes(&self) -> &'a [[u8; HASH_LEN]] {
        self.hashes
    }

    /// The same request without the hashes behind the first `limit`.
    #[inline]
    pub fn cut(self, limit: usize) -> Self {
        Self { hashes: &self.hashes[..limit.min(self.hashes.len())], ..self }
    }

    /// Writes a request and returns its length.
    ///
    /// # Panics
    /// When `into` is shorter than [`REQUEST_HEAD_LEN`] and the hashes together.
    pub fn write(
        connection_id: ConnectionId,
        transaction_id: TransactionId,
        info_hashes: &[InfoHash],
        into: &mut [u8],
    ) -> usize {
        wire::put(into, 0, connection_id.0.to_be_bytes());
        wire::put(into, 8, ACTION.to_be_bytes());
        wire::put(into, 12, transaction_id.0.to_be_bytes());
        let mut end = REQUEST_HEAD_LEN;
        for hash in info_hashes {
            wire::put(into, end, hash.0);
            end += HASH_LEN;
        }
        end
    }
}

/// The counts of one swarm. All zero for an unknown swarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrapeCounts {
    /// Peers that miss nothing.
    pub seeders: u32,
    /// How many peers became seeders by the event `completed`.
    pub completed: u32,
    /// Peers that miss something.
    pub leechers: u32,
}

impl ScrapeCounts {
    /// Writes the counts in their order on the wire: seeders, completed, leechers.
    #[inline]
    pub fn write(&self, into: &mut [u8; COUNTS_LEN]) {
        wire::put(into, 0, self.seeders.to_be_bytes());
        wire::put(into, 4, self.completed.to_be_bytes());
        wire::put(into, 8, self.leechers.to_be_bytes());
    }

    /// Reads counts.
    pub fn parse(from: &[u8; COUNTS_LEN]) -> Self {
        Self {
            seeders: wire::u32(from, 0),
            completed: wire::u32(from, 4),
            leechers: wire::u32(from, 8),
        }
    }
}

/// Writes the first [`HEAD_LEN`] bytes of a response; counts follow.
#[inline]
pub fn write_head(transaction_id: TransactionId, into: &mut [u8; HEAD_LEN]) {
    wire::put(into, 0, ACTION.to_be_bytes());
    wire::put(into, 4, transaction_id.0.to_be_bytes());
}
