//! Sorts requests by shard: one open batch for each, taken from a pool that never outgrows its
//! limit.
//!
//! Small batches are for idle hours: while two of a shard's batches are under way the next one
//! stays open and fills up, so that messages get larger, and cheaper, just when a shard falls
//! behind. No shard may have more than its share of the pool, or a slow one would end up with all of
//! it.

use std::collections::VecDeque;

use onrush_net::Return;
use onrush_proto::scrape::HASH_LEN;
use onrush_swarm::{Announce, Full, ShardBatch};

use crate::lanes::{Contents, Parcel};
use crate::scrape_join::Place;

/// Bytes of replies that a batch has room for: fifty of the largest, or hundreds of usual ones.
const REPLY_BYTES: usize = 64 * 1024;

/// Info hashes of scrapes that a batch has room for at least: more than ten of the longest scrapes.
const SCRAPED: usize = 1024;

/// Batches of a shard that may be under way before one that is not full waits for them.
const EAGER: usize = 2;

/// The open batches of one worker, and its stock of empty ones.
pub struct Sorter {
    shards: Vec<ShardQueue>,
    /// Shards whose batch is open, in no particular order.
    touched: Vec<u16>,
    /// Batches that were full before the receive batch was through, in the order in which they
    /// filled up: what one client sends is served in the order in which it came.
    full: VecDeque<Parcel>,
    pool: Vec<Parcel>,
    /// Batches that exist; they are made when they are first needed.
    made: usize,
    limits: Limits,
}

/// What there is of one shard.
#[derive(Default)]
struct ShardQueue {
    open: Option<Parcel>,
    /// Batches taken by [`Sorter::take`] and not recycled yet.
    in_flight: usize,
    /// All batches that are not in the pool because of this shard.
    held: usize,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    home: usize,
    parcels: usize,
    requests: usize,
    /// Batches that one shard may hold.
    share: usize,
}

/// The shard's share of batches is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Sorter {
    /// For worker number `home`: `parcels` batches of at most `requests` requests each, for
    /// `shards` shards.
    pub fn new(home: usize, shards: usize, parcels: usize, requests: usize) -> Self {
        let share = share(shards, parcels);
        Self {
            shards: (0..shards).map(|_| ShardQueue::default()).collect(),
            touched: Vec::with_capacity(shards),
            full: VecDeque::with_capacity(parcels),
            pool: Vec::with_capacity(parcels),
            made: 0,
            limits: Limits { home, parcels, requests, share },
        }
    }

    /// Adds an announce to the batch of `shard`.
    ///
    /// # Errors
    /// [`Exhausted`] when it needs a new batch and there is none: the announce is dropped.
    #[inline]
    pub fn announce(
        &mut self,
        shard: usize,
        announce: &Announce,
        to: &Return,
    ) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_announce(*announce, *to))
    }

    /// Adds a part of a scrape, info hashes in a row, to the batch of `shard`.
    ///
    /// # Errors
    /// [`Exhausted`] when it needs a new batch and there is none.
    #[inline]
    pub fn scrape(
        &mut self,
        shard: usize,
        hashes: &[[u8; HASH_LEN]],
        place: Place,
    ) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_scrape(hashes, place))
    }

    /// Takes the next batch that is to be sent off; `None` when nothing is left, or what is left
    /// had better wait for more. Batches for the shard `own` never wait: they are served at once.
    #[inline]
    pub fn take(&mut self, own: Option<usize>) -> Option<Parcel> {
        let parcel = match self.full.pop_front() {
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
        self.shards[parcel.shard].in_flight += 1;
        Some(parcel)
    }

    /// Takes back a batch that is done with.
    #[inline]
    pub fn recycle(&mut self, mut parcel: Parcel) {
        let queue = &mut self.shards[parcel.shard];
        queue.in_flight -= 1;
        queue.held -= 1;
        parcel.batch.clear();
        self.pool.push(parcel);
    }

    /// Whether no batch is open or under way.
    pub fn is_idle(&self) -> bool {
        self.shards.iter().all(|queue| queue.held == 0)
    }

    /// Batches that are not in use.
    #[cfg(test)]
    fn in_stock(&self) -> usize {
        self.pool.len() + self.limits.parcels - self.made
    }

    #[inline]
    fn push(
        &mut self,
        shard: usize,
        add: impl Fn(&mut ShardBatch<Return, Place>) -> Result<(), Full>,
    ) -> Result<(), Exhausted> {
        if let Some(parcel) = &mut self.shards[shard].open
            && add(&mut parcel.batch).is_ok()
        {
            return Ok(());
        }
        self.push_to_fresh(shard, add)
    }

    /// The batch of this shard is not open, or has no room.
    fn push_to_fresh(
        &mut self,
        shard: usize,
        add: impl Fn(&mut ShardBatch<Return, Place>) -> Result<(), Full>,
    ) -> Result<(), Exhausted> {
        if self.shards[shard].held == self.limits.share {
            return Err(Exhausted);
        }
        let mut fresh = self.fresh().ok_or(Exhausted)?;
        fresh.shard = shard;
        add(&mut fresh.batch).expect("an empty batch has room for any one request");
        let queue = &mut self.shards[shard];
        queue.held += 1;
        match queue.open.replace(fresh) {
            Some(full) => self.full.push_back(full),
            None => self.touched.push(shard as u16),
        }
        Ok(())
    }

    /// An empty batch.
    fn fresh(&mut self) -> Option<Parcel> {
        self.pool.pop().or_else(|| {
            let Limits { home, parcels, requests, .. } = self.limits;
            (self.made < parcels).then(|| {
                self.made += 1;
                let batch = ShardBatch::new(requests, requests.max(SCRAPED), REPLY_BYTES);
                Box::new(Contents { batch, shard: 0, home })
            })
        })
    }
}

/// Batches that one of `shards` shards may hold of a pool of `parcels`: what a lane to it needs
/// room for.
pub fn share(shards: usize, parcels: usize) -> usize {
    (parcels / shards.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// Shard and length of every batch that leaves, each back before the next.
    fn taken(sorter: &mut Sorter) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = std::iter::from_fn(|| {
            let parcel = sorter.take(None)?;
            let seen = (parcel.shard, parcel.batch.len());
            sorter.recycle(parcel);
            Some(seen)
        })
        .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn one_batch_for_each_shard_that_was_asked() {
        let mut sorter = Sorter::new(0, 4, 8, 16);
        for shard in [2, 0, 2, 2] {
            sorter.announce(shard, &announce(10), &to()).unwrap();
        }
        assert_eq!(sorter.in_stock(), 6);
        assert_eq!(taken(&mut sorter), [(0, 1), (2, 3)]);
        assert_eq!(sorter.in_stock(), 8);
        sorter.announce(2, &announce(10), &to()).unwrap();
        assert_eq!(taken(&mut sorter), [(2, 1)], "a taken batch is not filled further");
    }

    #[test]
    fn a_full_batch_is_followed_by_another_until_the_shards_share_is_used_up() {
        let mut sorter = Sorter::new(0, 2, 4, 3);
        assert!((0..6).all(|_| sorter.announce(1, &announce(10), &to()).is_ok()));
        assert_eq!(sorter.announce(1, &announce(10), &to()), Err(Exhausted));
        assert_eq!(sorter.announce(0, &announce(10), &to()), Ok(()), "the other has its own share");
        let parcels: Vec<_> = std::iter::from_fn(|| sorter.take(None)).collect();
        let seen: Vec<_> = parcels.iter().map(|p| (p.shard, p.batch.len())).collect();
        assert_eq!(seen, [(1, 3), (1, 3), (0, 1)]);
        assert_eq!(sorter.announce(1, &announce(10), &to()), Err(Exhausted), "still under way");
        parcels.into_iter().for_each(|parcel| sorter.recycle(parcel));
        assert_eq!(sorter.in_stock(), 4);
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
            while let Some(parcel) = sorter.take(None) {
                sizes.push(parcel.batch.len());
                in_flight.push(parcel);
            }
        }
        assert_eq!(sizes, [1, 1, 128, 128, 128, 128, 128, 128, 128]);
        in_flight.drain(..).for_each(|parcel| sorter.recycle(parcel));
        assert_eq!(taken(&mut sorter), [(0, 1_000 - 2 - 7 * 128)], "what waited leaves at once");
    }

    #[test]
    fn the_own_shard_never_waits() {
        let mut sorter = Sorter::new(0, 2, 32, 128);
        for _ in 0..10 {
            sorter.announce(1, &announce(10), &to()).unwrap();
            assert_eq!(sorter.take(Some(1)).map(|parcel| parcel.batch.len()), Some(1));
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
    fn replies_of_the_largest_size_split_a_batch_before_they_overflow_it() {
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
