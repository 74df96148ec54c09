//! Sorts requests by shard: one open batch for each, taken from a pool that never grows.

use std::collections::VecDeque;

use onrush_net::Return;
use onrush_proto::InfoHash;
use onrush_swarm::{Announce, Full, ShardBatch};

use crate::lanes::{Contents, Parcel};
use crate::scrape_join::Place;

/// Bytes of replies that a batch has room for: fifty of the largest, or hundreds of usual ones.
/// Pages that are never written cost no memory.
const REPLY_BYTES: usize = 64 * 1024;

/// The open batches of one worker, and its stock of empty ones.
pub struct Sorter {
    open: Vec<Option<Parcel>>,
    /// Shards whose batch is open, in the order of their first request.
    touched: Vec<u16>,
    /// Batches that were full before the receive batch was through, in the order in which they
    /// filled up: what one client sends is served in the order in which it came.
    full: VecDeque<Parcel>,
    pool: Vec<Parcel>,
}

/// All batches are under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Sorter {
    /// For worker number `home`: `parcels` batches of at most `requests` requests each, for
    /// `shards` shards.
    pub fn new(home: usize, shards: usize, parcels: usize, requests: usize) -> Self {
        let parcel = || {
            let batch = ShardBatch::new(requests, requests, REPLY_BYTES);
            Box::new(Contents { batch, shard: 0, home })
        };
        Self {
            open: (0..shards).map(|_| None).collect(),
            touched: Vec::with_capacity(shards),
            full: VecDeque::with_capacity(parcels),
            pool: (0..parcels).map(|_| parcel()).collect(),
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
        announce: Announce,
        to: Return,
    ) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_announce(announce, to))
    }

    /// Adds a part of a scrape to the batch of `shard`.
    ///
    /// # Errors
    /// [`Exhausted`] when it needs a new batch and there is none.
    #[inline]
    pub fn scrape(&mut self, shard: usize, hash: InfoHash, place: Place) -> Result<(), Exhausted> {
        self.push(shard, |batch| batch.push_scrape(hash, place))
    }

    /// Takes the next batch that is to be sent off; `None` when nothing is left.
    #[inline]
    pub fn take(&mut self) -> Option<Parcel> {
        self.full.pop_front().or_else(|| {
            let shard = self.touched.pop()?;
            self.open[usize::from(shard)].take()
        })
    }

    /// Takes back a batch that is done with.
    #[inline]
    pub fn recycle(&mut self, mut parcel: Parcel) {
        parcel.batch.clear();
        self.pool.push(parcel);
    }

    /// Batches in stock.
    pub fn in_stock(&self) -> usize {
        self.pool.len()
    }

    #[inline]
    fn push(
        &mut self,
        shard: usize,
        add: impl Fn(&mut ShardBatch<Return, Place>) -> Result<(), Full>,
    ) -> Result<(), Exhausted> {
        if let Some(parcel) = &mut self.open[shard]
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
        let mut fresh = self.pool.pop().ok_or(Exhausted)?;
        fresh.shard = shard;
        add(&mut fresh.batch).expect("an empty batch has room for any one request");
        match self.open[shard].replace(fresh) {
            Some(full) => self.full.push_back(full),
            None => self.touched.push(shard as u16),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::{Endpoint, Event, TransactionId};

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

    fn taken(sorter: &mut Sorter) -> Vec<(usize, usize)> {
        let mut all: Vec<_> =
            std::iter::from_fn(|| sorter.take().map(|p| (p.shard, p.batch.len()))).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn one_batch_for_each_shard_that_was_asked() {
        let mut sorter = Sorter::new(0, 4, 8, 16);
        for shard in [2, 0, 2, 2] {
            sorter.announce(shard, announce(10), to()).unwrap();
        }
        assert_eq!(taken(&mut sorter), [(0, 1), (2, 3)]);
        assert_eq!(sorter.in_stock(), 6);
        sorter.announce(2, announce(10), to()).unwrap();
        assert_eq!(taken(&mut sorter), [(2, 1)], "a taken batch is not filled further");
    }

    #[test]
    fn a_full_batch_is_followed_by_another_until_the_pool_is_empty() {
        let mut sorter = Sorter::new(0, 2, 2, 3);
        assert!((0..6).all(|_| sorter.announce(1, announce(10), to()).is_ok()));
        assert_eq!(sorter.announce(1, announce(10), to()), Err(Exhausted));
        assert_eq!(sorter.announce(0, announce(10), to()), Err(Exhausted));
        let parcels: Vec<_> = std::iter::from_fn(|| sorter.take()).collect();
        assert_eq!(
            parcels.iter().map(|p| (p.shard, p.batch.len())).collect::<Vec<_>>(),
            [(1, 3); 2]
        );
        parcels.into_iter().for_each(|parcel| sorter.recycle(parcel));
        assert_eq!(sorter.in_stock(), 2);
        assert!(sorter.announce(0, announce(10), to()).is_ok(), "a recycled batch is empty");
    }

    #[test]
    fn batches_of_a_shard_leave_in_the_order_of_their_requests() {
        let mut sorter = Sorter::new(0, 1, 8, 2);
        for number in 0..7 {
            let transaction_id = TransactionId(number);
            sorter.announce(0, Announce { transaction_id, ..announce(10) }, to()).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| sorter.take())
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
            sorter.announce(0, announce(200), to()).unwrap();
        }
        let sizes = taken(&mut sorter);
        assert!(sizes.len() > 2, "{sizes:?}");
        assert!(sizes.iter().all(|(_, len)| len * (20 + 200 * 6) <= REPLY_BYTES));
        assert_eq!(sizes.iter().map(|(_, len)| len).sum::<usize>(), 150);
    }
}
