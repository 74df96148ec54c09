//! The part that every front shares, from checked requests to batches and from served batches to
//! replies: a socket worker has one for datagrams, another front one for its connections.

use std::slice;

use onrush_proto::scrape::HASH_LEN;
use onrush_proto::{InfoHash, TransactionId};
use onrush_swarm::{Announce, ShardMap};

use crate::access::AccessList;
use crate::lanes::Requests;
use crate::limits::WorkerSettings;
use crate::scrape_join::ScrapeJoin;
use crate::sorter::{Exhausted, Sorter};

/// The open batches, pending scrapes and served batches of one member. `R` is the token that
/// addresses a reply.
pub struct Producer<R> {
    map: ShardMap,
    sorter: Sorter<R>,
    join: ScrapeJoin<R>,
    /// Served batches whose replies are due.
    #[allow(clippy::vec_box, reason = "the same boxes travel over the lanes")]
    served: Vec<Box<Requests<R>>>,
}

impl<R: Copy> Producer<R> {
    /// For member number `home`, within the limits of `settings`.
    pub fn new(home: usize, map: ShardMap, settings: &WorkerSettings) -> Self {
        let shards = usize::from(map.shards());
        let (batches, requests) = (settings.batches_in_flight, settings.batch_requests);
        Self {
            map,
            sorter: Sorter::new(home, shards, batches, requests),
            join: ScrapeJoin::new(settings.scrapes_in_flight),
            served: Vec::with_capacity(batches),
        }
    }

    /// The shard of an info hash; a single shard needs no multiplications.
    #[inline]
    pub fn shard_of(&self, info_hash: &InfoHash) -> usize {
        if self.map.shards() == 1 { 0 } else { self.map.shard_of(info_hash) }
    }

    /// Adds an announce to the batch of its shard.
    ///
    /// # Errors
    /// [`Exhausted`] when no batch is free: the announce gets no reply.
    #[inline]
    pub fn announce(&mut self, announce: &Announce, token: &R) -> Result<(), Exhausted> {
        let shard = self.shard_of(&announce.info_hash);
        self.sorter.announce(shard, announce, token)
    }

    /// Splits a scrape over the shards of its info hashes, at most
    /// [`MAX_HASHES`](onrush_proto::scrape::MAX_HASHES); hashes that `access` forbids report zeros.
    ///
    /// # Errors
    /// [`Exhausted`] when no slot or no batch is free: the scrape gets no reply.
    #[inline(never)] // its loops need all registers
    pub fn scrape(
        &mut self,
        id: TransactionId,
        hashes: &[[u8; HASH_LEN]],
        access: &AccessList,
        token: &R,
    ) -> Result<(), Exhausted> {
        let mut open = self.join.open(id, hashes.len(), token).ok_or(Exhausted)?;
        let map = self.map;
        let sent = if access.is_open() && map.shards() == 1 {
            self.sorter.scrape(0, hashes, open.part(0))
        } else {
            hashes.iter().enumerate().try_for_each(|(position, hash)| {
                let info_hash = InfoHash(*hash);
                if !access.permits(info_hash) {
                    self.join.zero(&open, position);
                    return Ok(());
                }
                let part = open.part(position);
                self.sorter.scrape(map.shard_of(&info_hash), slice::from_ref(hash), part)
            })
        };
        if sent.is_err() {
            self.join.abort_open(&mut open);
        }
        if self.join.close(open) { Ok(()) } else { Err(Exhausted) }
    }

    /// The next batch for its shard. Batches for the shard `own` never stay open.
    #[inline]
    pub fn take_sorted(&mut self, own: Option<usize>) -> Option<Box<Requests<R>>> {
        self.sorter.take(own)
    }

    /// Accepts a served batch: its replies are among the next [`replies`](Self::replies).
    #[inline]
    pub fn accept_reply(&mut self, requests: Box<Requests<R>>) {
        for part in requests.batch.scrapes() {
            self.join.answer(part.place, part.counts);
        }
        self.served.push(requests);
    }

    /// Drops the requests of a batch that could not be sent, calling `lost` for each.
    #[cold]
    pub fn abort(&mut self, requests: Box<Requests<R>>, mut lost: impl FnMut(&R)) {
        for (_, token) in requests.batch.announces() {
            lost(token);
        }
        for part in requests.batch.scrapes() {
            if let Some(token) = self.join.abort(part.place) {
                lost(&token);
            }
        }
        self.sorter.recycle(requests);
    }

    /// Whether any reply is due.
    #[inline]
    pub fn has_replies(&self) -> bool {
        !self.served.is_empty() || self.join.has_complete()
    }

    /// The replies that are due, in wire form (BEP 15), each with the token of its request.
    #[inline]
    pub fn replies(&self) -> impl Iterator<Item = (&[u8], &R)> {
        let announces = self.served.iter().flat_map(|requests| requests.batch.replies());
        announces.chain(self.join.complete())
    }

    /// Ends the replies that were due, and returns their batches to the pool.
    #[inline]
    pub fn clear_replies(&mut self) {
        self.join.clear_complete();
        for requests in self.served.drain(..) {
            self.sorter.recycle(requests);
        }
    }

    /// Whether no request is open or in flight.
    pub fn is_idle(&self) -> bool {
        self.sorter.is_idle()
    }
}
