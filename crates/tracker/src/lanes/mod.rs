//! How batches travel between workers: bounded crossbeam channels, one message per shard and
//! receive batch, and the same boxes come home.
//!
//! ```text
//!   socket side                                swarm side
//!   pool ── fill ──▶ Lane ══ work (bounded) ══▶ Inbox ── serve
//!    ▲                                                     │
//!    └── send, clear ── Inbox ◀══ home (room for all) ══ Lane
//! ```
//!
//! Nobody ever blocks on a channel: work that a full lane does not take is dropped and counted by
//! the sender, and the way home has room for every batch that its owner has. A worker that has
//! nothing to do sleeps; see [`sleeper`] for how nobody sleeps through a message.

pub mod bell;
pub mod sleeper;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use crossbeam_utils::CachePadded;
use onrush_net::Return;
use onrush_swarm::ShardBatch;

use crate::orders::Order;
use crate::scrape_join::Place;
use bell::Bell;
use sleeper::Sleeper;

/// A batch on its way to its shard or back. Boxed, so that a channel moves eight bytes.
pub type Parcel = Box<Contents>;

/// Requests for one shard, and where they come from.
#[derive(Debug)]
pub struct Contents {
    /// The requests and, once served, their replies.
    pub batch: ShardBatch<Return, Place>,
    /// The shard it is for.
    pub shard: usize,
    /// The worker it belongs to and returns to.
    pub home: usize,
}

/// Orders that wait for a worker at most. It takes them all in each turn, so that more than a few
/// wait only where it stands still.
const ORDERS_ROOM: usize = 1024;

/// The way to one worker's inbox. Clones lead to the same one.
pub struct Lane<T = Parcel> {
    sender: Sender<T>,
    sleeper: Arc<CachePadded<Sleeper>>,
    bell: Arc<dyn Bell>,
}

// A derived one would ask that what is sent can be cloned.
impl<T> Clone for Lane<T> {
    fn clone(&self) -> Self {
        let Self { sender, sleeper, bell } = self;
        Self { sender: sender.clone(), sleeper: sleeper.clone(), bell: bell.clone() }
    }
}

impl<T> Lane<T> {
    /// Sends a parcel and wakes the worker if it sleeps; hands the parcel back when the lane is
    /// full, or its worker gone.
    #[inline]
    pub fn try_send(&self, parcel: T) -> Result<(), T> {
        self.sender.try_send(parcel).map_err(|error| match error {
            TrySendError::Full(parcel) | TrySendError::Disconnected(parcel) => parcel,
        })?;
        if self.sleeper.must_ring() {
            self.bell.ring();
        }
        Ok(())
    }

    /// How many wait in it, and how many may.
    pub fn depth(&self) -> (usize, usize) {
        (self.sender.len(), self.sender.capacity().unwrap_or(usize::MAX))
    }

    /// Rings for a reason other than a parcel: the process is about to stop.
    pub fn ring(&self) {
        self.bell.ring();
    }
}

/// One worker's end of the lanes.
pub struct Inbox {
    work: Receiver<Parcel>,
    home: Receiver<Parcel>,
    orders: Receiver<Order>,
    sleeper: Arc<CachePadded<Sleeper>>,
}

impl Inbox {
    /// The next thing that the control side wants done.
    #[inline]
    pub fn order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// The next parcel to be served.
    #[inline]
    pub fn work(&self) -> Option<Parcel> {
        self.work.try_recv().ok()
    }

    /// The next own parcel that came back.
    #[inline]
    pub fn home(&self) -> Option<Parcel> {
        self.home.try_recv().ok()
    }

    /// Sleeps by `wait` unless a parcel or an order is here; from the first line on, whoever sends
    /// one rings.
    pub fn sleep(&self, wait: impl FnOnce()) {
        let has_mail = || !self.work.is_empty() || !self.home.is_empty() || !self.orders.is_empty();
        self.sleeper.sleep(has_mail, wait);
    }
}

/// The ways to one worker: with work, home with what it sent out, and with orders.
#[derive(Clone)]
pub struct Ways {
    /// Parcels that it is to serve.
    pub work: Lane,
    /// Its own parcels, served.
    pub home: Lane,
    /// What the control side wants done.
    pub orders: Lane<Order>,
}

/// The lanes to a worker that is woken by `bell`: at most `work_room` parcels wait to be served,
/// and `own_parcels` is how many it can have under way.
pub fn lanes_to(bell: Arc<dyn Bell>, work_room: usize, own_parcels: usize) -> (Ways, Inbox) {
    let sleeper = Arc::new(CachePadded::new(Sleeper::new()));
    let (work_sender, work) = bounded(work_room.max(1));
    let (home_sender, home) = bounded(own_parcels.max(1));
    let (orders_sender, orders) = bounded(ORDERS_ROOM);
    let lane = |sender| Lane { sender, sleeper: sleeper.clone(), bell: bell.clone() };
    let orders_lane = Lane { sender: orders_sender, sleeper: sleeper.clone(), bell: bell.clone() };
    let ways = Ways { work: lane(work_sender), home: lane(home_sender), orders: orders_lane };
    (ways, Inbox { work, home, orders, sleeper })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);

    impl Bell for Count {
        fn ring(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn parcel(shard: usize) -> Parcel {
        Box::new(Contents { batch: ShardBatch::new(1, 1, 64), shard, home: 0 })
    }

    #[test]
    fn a_full_lane_hands_the_parcel_back() {
        let (ways, inbox) = lanes_to(Arc::new(Count(AtomicUsize::new(0))), 1, 4);
        assert!(ways.work.try_send(parcel(1)).is_ok());
        assert_eq!(ways.work.try_send(parcel(2)).unwrap_err().shard, 2);
        assert_eq!(inbox.work().unwrap().shard, 1);
        assert!(inbox.work().is_none());
        assert!(
            (0..4).all(|n| ways.home.try_send(parcel(n)).is_ok()),
            "room for every one of its own"
        );
    }

    #[test]
    fn only_a_sleeper_is_rung_and_only_once() {
        let bell = Arc::new(Count(AtomicUsize::new(0)));
        let rings = || bell.0.load(Ordering::SeqCst);
        let (ways, inbox) = lanes_to(bell.clone(), 4, 4);
        ways.work.try_send(parcel(0)).unwrap();
        assert_eq!(rings(), 0, "awake");
        inbox.sleep(|| panic!("a parcel is waiting: no sleep"));
        inbox.work().unwrap();
        inbox.sleep(|| {
            ways.work.try_send(parcel(0)).unwrap();
            ways.home.try_send(parcel(0)).unwrap();
        });
        assert_eq!(rings(), 1, "asleep, then told");
        ways.work.try_send(parcel(0)).unwrap();
        assert_eq!(rings(), 1, "awake again");
    }
}
