//! What travels between whoever receives requests and whoever owns a shard.
//!
//! A [`ShardBatch`] is filled with requests for one shard, served in place (replies are written,
//! in wire form, into the batch's own memory), read out, cleared and filled again. Its memory is
//! taken once, at construction. `R` is a token that says how to return a reply; a shard copies it
//! nowhere and cannot look inside.

use onrush_proto::announce::HEAD_LEN;
use onrush_proto::{Endpoint, Event, InfoHash, ScrapeCounts, TransactionId};

/// An announce that has passed every check, as a shard sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announce {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The peer: source address and announced port. The port is never 0; port 1 is counted as a
    /// peer but never handed out.
    pub endpoint: Endpoint,
    /// What happened.
    pub event: Event,
    /// Whether `left` was 0.
    pub seeder: bool,
    /// How many peers may be handed out at most: `num_want` after default and cap.
    pub want: u16,
    /// Echoed in the reply.
    pub transaction_id: TransactionId,
}

/// One question of a scrape: the counts of one swarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrapePart<R> {
    /// The swarm.
    pub info_hash: InfoHash,
    /// Which place in which pending scrape it belongs to: opaque here, see the tracker's
    /// `scrape_join`.
    pub place: R,
    /// The answer, all zero until served.
    pub counts: ScrapeCounts,
}

/// The batch has no room for this request: send it off and open another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Requests for one shard and their replies. `R` returns the reply to an announce, `P` finds the
/// place of a scrape's part.
#[derive(Debug)]
pub struct ShardBatch<R, P> {
    pub(crate) announces: Vec<(Announce, R)>,
    pub(crate) scrapes: Vec<ScrapePart<P>>,
    pub(crate) replies: Vec<u8>,
    /// For each served announce, where its reply ends in `replies`; it starts where the one
    /// before it ends.
    pub(crate) ends: Vec<u32>,
    /// Bytes that the replies to `announces` may take in the worst case.
    promised: usize,
}

impl<R: Copy, P: Copy> ShardBatch<R, P> {
    /// An empty batch for at most `announces` announces and `scrapes` parts of scrapes, whose
    /// replies take at most `reply_bytes` together.
    pub fn new(announces: usize, scrapes: usize, reply_bytes: usize) -> Self {
        Self {
            announces: Vec::with_capacity(announces),
            scrapes: Vec::with_capacity(scrapes),
            replies: Vec::with_capacity(reply_bytes),
            ends: Vec::with_capacity(announces),
            promised: 0,
        }
    }

    /// Adds an announce.
    ///
    /// # Errors
    /// [`Full`] when there is no room for it or for the largest reply it may get.
    #[inline]
    pub fn push_announce(&mut self, announce: Announce, reply_to: R) -> Result<(), Full> {
        let largest = HEAD_LEN + usize::from(announce.want) * announce.endpoint.family().peer_len();
        if self.announces.len() == self.announces.capacity()
            || self.promised + largest > self.replies.capacity()
        {
            return Err(Full);
        }
        self.promised += largest;
        self.announces.push((announce, reply_to));
        Ok(())
    }

    /// Adds one question of a scrape.
    ///
    /// # Errors
    /// [`Full`] when there is no room for it.
    #[inline]
    pub fn push_scrape(&mut self, info_hash: InfoHash, place: P) -> Result<(), Full> {
        if self.scrapes.len() == self.scrapes.capacity() {
            return Err(Full);
        }
        self.scrapes.push(ScrapePart { info_hash, place, counts: ScrapeCounts::default() });
        Ok(())
    }

    /// The announces in the order they were added, with how to return their replies.
    pub fn announces(&self) -> &[(Announce, R)] {
        &self.announces
    }

    /// The parts of scrapes in the order they were added; answered once served.
    pub fn scrapes(&self) -> &[ScrapePart<P>] {
        &self.scrapes
    }

    /// The replies to the announces, once served: bytes in wire form, and where they go.
    #[inline]
    pub fn replies(&self) -> impl Iterator<Item = (&[u8], &R)> {
        let mut start = 0;
        self.ends.iter().zip(&self.announces).map(move |(&end, (_, reply_to))| {
            let bytes = &self.replies[start..end as usize];
            start = end as usize;
            (bytes, reply_to)
        })
    }

    /// Requests in the batch: announces and parts of scrapes.
    pub fn len(&self) -> usize {
        self.announces.len() + self.scrapes.len()
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.announces.is_empty() && self.scrapes.is_empty()
    }

    /// Forgets requests and replies, keeps the memory.
    pub fn clear(&mut self) {
        self.announces.clear();
        self.scrapes.clear();
        self.replies.clear();
        self.ends.clear();
        self.promised = 0;
    }
}
