//! Sorts requests by shard: one open batch per shard, taken from a bounded pool.
//!
//! Batches are small while a shard keeps up. While two batches of a shard are in flight, the next
//! stays open and fills, so that messages become larger, and cheaper per request, when a shard
//! falls behind. A shard may have no more than its share of the pool; otherwise a slow shard would
//! take all of it.

use std::collections::VecDeque;

use onrush_proto::scrape::HASH_LEN;
use onrush_swarm::{Announce, Full, ShardBatch};

use crate::lanes::Requests;
use crate::scrape_join::Place;

/// Reply bytes per batch: room for fifty of the largest replies, or hundreds of usual ones.
const REPLY_BYTES: usize = 64 * 1024;

/// Minimum room of a batch for info hashes of scrapes: more than ten of the longest scrapes.
const SCRAPED: usize = 1024;

/// Batches of a shard in flight from which on a batch that is not full stays open.
const EAGER: usize = 2;

/// The open batches of one member, and its pool of empty ones.
pub struct Sorter<R> {
    shards: Vec<ShardQueue<R>>,
    /// Shards whose batch is open, in no particular order.
    touched: Vec<u16>,
    /// Batches that filled up before [`take`](Self::take), in that order, so that the requests of
    /// one client are served in the order of their arrival.
    full: VecDeque<Box<Requests<R>>>,
    #[allow(clippy::vec_box, reason = "the same boxes travel over the lanes")]
    pool: Vec<Box<Requests<R>>>,
    /// Batches allocated so far; allocated when first needed.
    allocated: usize,
    limits: Limits,
}

/// The open batch of one shard, and how many of its batches are in flight.
struct ShardQueue<R> {
    open: Option<Box<Requests<R>>>,
    /// Batches returned by [`Sorter::take`] and not recycled yet.
    in_flight: usize,
    /// Batches outside the pool: open, full and in flight.
    held: usize,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    home: usize,
    batches: usize,
    requests: usize,
    /// Batches that one shard may hold.
    share: usize,
}

/// The shard holds its whole share of batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl<R: Copy> Sorter<R> {
    /// For member number `home`: `batches` batches of at most `requests` requests each, for
    /// `shards` shards.
    pub fn new(home: usize, shards: usize, batches: usize, requests: usize) -> Self {
        let share = share(shards, batches);
        let queue = |_| ShardQueue { open: None, in_flight: 0, held: 0 };
        Self {
            shards: (0..shards).map(queue).collect(),
            touched: Vec::with_capacity(shards),
            full: VecDeque::with_capacity(batches),
            pool: Vec::with_capacity(batches),
            allocated: 0,
            limits: Limits { home, batches, requests, share },
        }
    }

    /// Adds an announce to the batch of `shard`.
    ///
    /// # Errors
    /// [`Exhausted`] when it needs a new batch and the shard has its share: the announce is
    /// dropped.
    #[inline]
    pub fn announce(
        &mut self,
        shard: usize,
        announce: &Announce,
        token: &R,
    ) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_announce(*announce, *token))
    }

    /// Adds a part of a scrape, consecutive info hashes, to the batch of `shard`.
    ///
    /// # Errors
    /// [`Exhausted`] when it needs a new batch and the shard has its share.
    #[inline]
    pub fn scrape(
        &mut self,
        shard: usize,
        hashes: &[[u8; HASH_LEN]],
        place: Place,
    ) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_scrape(hashes, place))
    }

    /// The next batch for its shard. Batches for the shard `own` never stay open.
    #[inline]
    pub fn take(&mut self, own: Option<usize>) -> Option<Box<Requests<R>>> {
        let requests = match self.full.pop_front() {
            Some(full) => full,
            None => {
                let ready = |shard: &u16| {
                    let shard = usize::from(*shard);
                    own == Some(shard) || self.shards[shard].in_flight < EAGER
                };
                let at = self.touched.iter().position(ready)?;
                let shard = self.touched.swap_remove(at);
                self.shards[usize::from(shard)].open.take()?
            }
        };
        self.shards[requests.shard].in_flight += 1;
        Some(requests)
    }

    /// Returns a batch to the pool.
    #[inline]
    pub fn recycle(&mut self, mut requests: Box<Requests<R>>) {
        let queue = &mut self.shards[requests.shard];
        queue.in_flight -= 1;
        queue.held -= 1;
        requests.batch.clear();
        self.pool.push(requests);
    }

    /// Whether no batch is open or in flight.
    pub fn is_idle(&self) -> bool {
        self.shards.iter().all(|queue| queue.held == 0)
    }

    /// Batches that are free.
    #[cfg(test)]
    fn free(&self) -> usize {
        self.pool.len() + self.limits.batches - self.allocated
    }

    #[inline]
    fn push(
        &mut self,
        shard: usize,
        add: impl Fn(&mut ShardBatch<R, Place>) -> Result<(), Full>,
    ) -> Result<(), Exhausted> {
        if let Some(requests) = &mut self.shards[shard].open
            && add(&mut requests.batch).is_ok()
        {
            return Ok(());
        }
        self.push_to_new(shard, add)
    }

    /// Adds to a new batch, as the shard has no open batch or a full one.
    fn push_to_new(
        &mut self,
        shard: usize,
        add: impl Fn(&mut ShardBatch<R, Place>) -> Result<(), Full>,
    ) -> Result<(), Exhausted> {
        if self.shards[shard].held == self.limits.share {
            return Err(Exhausted);
        }
        let mut new = self.empty_batch().ok_or(Exhausted)?;
        new.shard = shard;
        add(&mut new.batch).expect("an empty batch has room for any one request");
        let queue = &mut self.shards[shard];
        queue.held += 1;
        match queue.open.replace(new) {
            Some(full) => self.full.push_back(full),
            None => self.touched.push(shard as u16),
        }
        Ok(())
    }

    fn empty_batch(&mut self) -> Option<Box<Requests<R>>> {
        self.pool.pop().or_else(|| {
            let Limits { home, batches, requests, .. } = self.limits;
            (self.allocated < batches).then(|| {
                self.allocated += 1;
                let batch = ShardBatch::new(requests, requests.max(SCRAPED), REPLY_BYTES);
                Box::new(Requests { batch, shard: 0, home })
            })
        })
    }
}

/// Batches that one of `shards` shards may hold of a pool of `batches`: the capacity that a lane to
/// the shard needs per member.
pub fn share(shards: usize, batches: usize) -> usize {
    (batches / shards.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_net::Return;
    use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};

    fn announce(want: u16) -> Announce {
        Announce {
            info_hash: InfoHash([1; 20]),
            endpoint: Endpoint::V4([192, 0, 2, 1, 0, 80]),
            event: Event::None,
            seeder: false,
            want,
            transaction_id: TransactionId(1),
        }
    }

    fn to() -> Return {
        Return::to("192.0.2.1:1000".parse().unwrap(), 0)
    }

    /// Shard and length of every batch taken; each is recycled before the next.
    fn taken(sorter: &mut Sorter<Return>) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = std::iter::from_fn(|| {
            let requests = sorter.take(None)?;
            let seen = (requests.shard, requests.batch.len());
            sorter.recycle(requests);
            Some(seen)
        })
        .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn requests_are_batched_by_shard() {
        let mut sorter = Sorter::new(0, 4, 8, 16);
        for shard in [2, 0, 2, 2] {
            sorter.announce(shard, &announce(10), &to()).unwrap();
        }
        assert_eq!(sorter.free(), 6);
        assert_eq!(taken(&mut sorter), [(0, 1), (2, 3)]);
        assert_eq!(sorter.free(), 8);
        sorter.announce(2, &announce(10), &to()).unwrap();
        assert_eq!(taken(&mut sorter), [(2, 1)], "a taken batch is not filled further");
    }

    #[test]
    fn a_shard_gets_batches_up_to_its_share() {
        let mut sorter = Sorter::new(0, 2, 4, 3);
        assert!((0..6).all(|_| sorter.announce(1, &announce(10), &to()).is_ok()));
        assert_eq!(sorter.announce(1, &announce(10), &to()), Err(Exhausted));
        assert_eq!(
            sorter.announce(0, &announce(10), &to()),
            Ok(()),
            "the other shard has its own share"
        );
        let batches: Vec<_> = std::iter::from_fn(|| sorter.take(None)).collect();
        let seen: Vec<_> = batches.iter().map(|p| (p.shard, p.batch.len())).collect();
        assert_eq!(seen, [(1, 3), (1, 3), (0, 1)]);
        assert_eq!(
            sorter.announce(1, &announce(10), &to()),
            Err(Exhausted),
            "all batches are in flight"
        );
        batches.into_iter().for_each(|requests| sorter.recycle(requests));
        assert_eq!(sorter.free(), 4);
        assert!(sorter.announce(1, &announce(10), &to()).is_ok());
        assert_eq!(taken(&mut sorter), [(1, 1)], "a recycled batch is empty");
    }

    #[test]
    fn a_shard_that_falls_behind_gets_fuller_batches() {
        let mut sorter = Sorter::new(0, 1, 32, 128);
        let mut sizes = Vec::new();
        let mut in_flight = Vec::new();
        for _ in 0..1_000 {
            sorter.announce(0, &announce(10), &to()).unwrap();
            while let Some(requests) = sorter.take(None) {
                sizes.push(requests.batch.len());
                in_flight.push(requests);
            }
        }
        assert_eq!(sizes, [1, 1, 128, 128, 128, 128, 128, 128, 128]);
        in_flight.drain(..).for_each(|requests| sorter.recycle(requests));
        assert_eq!(
            taken(&mut sorter),
            [(0, 1_000 - 2 - 7 * 128)],
            "the open batch is ready once the others are recycled"
        );
    }

    #[test]
    fn batches_for_the_own_shard_never_stay_open() {
        let mut sorter = Sorter::new(0, 2, 32, 128);
        for _ in 0..10 {
            sorter.announce(1, &announce(10), &to()).unwrap();
            assert_eq!(sorter.take(Some(1)).map(|requests| requests.batch.len()), Some(1));
        }
    }

    #[test]
    fn batches_of_a_shard_leave_in_the_order_of_their_requests() {
        let mut sorter = Sorter::new(0, 1, 8, 2);
        for number in 0..7 {
            let transaction_id = TransactionId(number);
            sorter.announce(0, &Announce { transaction_id, ..announce(10) }, &to()).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| sorter.take(Some(0)))
            .flat_map(|p| {
                p.batch.announces().iter().map(|(a, _)| a.transaction_id.0).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_batch_is_full_when_the_largest_replies_could_overflow_it() {
        let mut sorter = Sorter::new(0, 1, 8, 1_000);
        for _ in 0..150 {
            sorter.announce(0, &announce(200), &to()).unwrap();
        }
        let sizes = taken(&mut sorter);
        assert!(sizes.len() > 2, "{sizes:?}");
        assert!(sizes.iter().all(|(_, len)| len * (20 + 200 * 6) <= REPLY_BYTES));
        assert_eq!(sizes.iter().map(|(_, len)| len).sum::<usize>(), 150);
    }
}
