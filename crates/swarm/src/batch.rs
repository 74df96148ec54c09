//! Requests for a shard, and their replies, in one object that travels between workers.
//!
//! A [`ShardBatch`] is filled with requests for one shard, served in place (replies are written in
//! wire form into the batch's own memory), read, cleared and filled again. Its memory is allocated
//! once, at construction. `R` is a token that routes a reply; a shard neither copies nor interprets
//! it.

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::scrape::{COUNTS_LEN, HASH_LEN};
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};

/// An announce that has passed all checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announce {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The peer: source address and announced port. The port is never 0; port 1 counts as a peer
    /// but is never given to others.
    pub endpoint: Endpoint,
    /// The event.
    pub event: Event,
    /// Whether `left` was 0.
    pub seeder: bool,
    /// The most peers in the reply: `num_want` after default and cap.
    pub want: u16,
    /// Echoed in the reply.
    pub transaction_id: TransactionId,
}

/// A part of a scrape: consecutive info hashes, and their answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrapePart<'b, P> {
    /// The swarms.
    pub info_hashes: &'b [[u8; HASH_LEN]],
    /// The place of the first one in its pending scrape: opaque here, see the tracker's
    /// `scrape_join`.
    pub place: P,
    /// The answers in the same order and in wire form ([`ScrapeCounts`]); none until served.
    ///
    /// [`ScrapeCounts`]: onrush_proto::ScrapeCounts
    pub counts: &'b [[u8; COUNTS_LEN]],
}

/// The batch has no space for this request: send it and open another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Requests for one shard and their replies. `R` routes the reply to an announce, `P` identifies
/// the place of a scrape's part.
#[derive(Debug)]
pub struct ShardBatch<R, P> {
    pub(crate) announces: Vec<(Announce, R)>,
    /// The info hashes of all parts of scrapes, in sequence.
    pub(crate) scraped: Vec<[u8; HASH_LEN]>,
    /// The answers to `scraped`, once served.
    pub(crate) counts: Vec<[u8; COUNTS_LEN]>,
    /// For each part of a scrape, its place and where its hashes end in `scraped`.
    parts: Vec<(P, u32)>,
    pub(crate) replies: Vec<u8>,
    /// For each served announce, where its reply ends in `replies`; it starts where the one before
    /// it ends.
    pub(crate) ends: Vec<u32>,
    /// The most bytes that the replies to `announces` can take.
    reserved: usize,
}

impl<R: Copy, P: Copy> ShardBatch<R, P> {
    /// An empty batch for at most `announces` announces, whose replies take at most `reply_bytes`
    /// together, and for `scraped` info hashes in parts of scrapes.
    pub fn new(announces: usize, scraped: usize, reply_bytes: usize) -> Self {
        Self {
            announces: Vec::with_capacity(announces),
            scraped: Vec::with_capacity(scraped),
            counts: Vec::with_capacity(scraped),
            parts: Vec::with_capacity(scraped),
            replies: Vec::with_capacity(reply_bytes),
            ends: Vec::with_capacity(announces),
            reserved: 0,
        }
    }

    /// Adds an announce.
    ///
    /// # Errors
    /// [`Full`] when there is no space for it or for its largest reply.
    #[inline]
    pub fn push_announce(&mut self, announce: Announce, reply_to: R) -> Result<(), Full> {
        let largest = HEAD_LEN + usize::from(announce.want) * announce.endpoint.family().peer_len();
        if self.announces.len() == self.announces.capacity()
            || self.reserved + largest > self.replies.capacity()
        {
            return Err(Full);
        }
        self.reserved += largest;
        self.announces.push((announce, reply_to));
        Ok(())
    }

    /// Adds a part of a scrape: at least one info hash.
    ///
    /// # Errors
    /// [`Full`] when there is no space for all of it.
    #[inline]
    pub fn push_scrape(&mut self, info_hashes: &[[u8; HASH_LEN]], place: P) -> Result<(), Full> {
        // A part has at least one hash, so there are never more parts than hashes.
        debug_assert!(!info_hashes.is_empty());
        if self.scraped.capacity() - self.scraped.len() < info_hashes.len() {
            return Err(Full);
        }
        self.scraped.extend_from_slice(info_hashes);
        self.parts.push((place, self.scraped.len() as u32));
        Ok(())
    }

    /// The announces in the order of adding, with the tokens of their replies.
    pub fn announces(&self) -> &[(Announce, R)] {
        &self.announces
    }

    /// The parts of scrapes in the order of adding; answered once served.
    #[inline]
    pub fn scrapes(&self) -> impl Iterator<Item = ScrapePart<'_, P>> {
        let mut start = 0;
        self.parts.iter().map(move |&(place, end)| {
            let these = start..end as usize;
            start = these.end;
            let counts = self.counts.get(these.clone()).unwrap_or_default();
            ScrapePart { info_hashes: &self.scraped[these], place, counts }
        })
    }

    /// The replies to the announces, once served: bytes in wire form, and their tokens.
    #[inline]
    pub fn replies(&self) -> impl Iterator<Item = (&[u8], &R)> {
        let mut start = 0;
        self.ends.iter().zip(&self.announces).map(move |(&end, (_, reply_to))| {
            let bytes = &self.replies[start..end as usize];
            start = end as usize;
            (bytes, reply_to)
        })
    }

    /// Requests in the batch: announces and info hashes of scrapes.
    pub fn len(&self) -> usize {
        self.announces.len() + self.scraped.len()
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.announces.is_empty() && self.scraped.is_empty()
    }

    /// Removes requests and replies, keeps the memory.
    pub fn clear(&mut self) {
        self.announces.clear();
        self.scraped.clear();
        self.counts.clear();
        self.parts.clear();
        self.replies.clear();
        self.ends.clear();
        self.reserved = 0;
    }
}
