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
//! nothing to do sleeps; see [`sleep`] for how nobody sleeps through a message.

pub mod order;
pub mod sleep;
pub mod wake;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use crossbeam_utils::CachePadded;
use onrush_net::Return;
use onrush_swarm::ShardBatch;

use crate::scrape_join::Place;
pub use order::{Order, ShardTask};
pub use wake::{SocketWaker, Waker};

use sleep::SleepFlag;

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
    sleeper: Arc<CachePadded<SleepFlag>>,
    waker: Arc<dyn Waker>,
}

// A derived one would ask that what is sent can be cloned.
impl<T> Clone for Lane<T> {
    fn clone(&self) -> Self {
        let Self { sender, sleeper, waker } = self;
        Self { sender: sender.clone(), sleeper: sleeper.clone(), waker: waker.clone() }
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
        if self.sleeper.must_wake() {
            self.waker.wake();
        }
        Ok(())
    }

    /// How many wait in it, and how many may.
    pub fn depth(&self) -> (usize, usize) {
        (self.sender.len(), self.sender.capacity().unwrap_or(usize::MAX))
    }

    /// Rings for a reason other than a parcel: the process is about to stop.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// One worker's end of the lanes.
pub struct Inbox {
    requests: Receiver<Parcel>,
    returns: Receiver<Parcel>,
    orders: Receiver<Order>,
    sleeper: Arc<CachePadded<SleepFlag>>,
}

impl Inbox {
    /// The next thing that the control side wants done.
    #[inline]
    pub fn order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// The next parcel to be served.
    #[inline]
    pub fn request(&self) -> Option<Parcel> {
        self.requests.try_recv().ok()
    }

    /// The next own parcel that came back.
    #[inline]
    pub fn returned(&self) -> Option<Parcel> {
        self.returns.try_recv().ok()
    }

    /// Sleeps by `wait` unless a parcel or an order is here; from the first line on, whoever sends
    /// one rings.
    pub fn sleep(&self, wait: impl FnOnce()) {
        let has_mail =
            || !self.requests.is_empty() || !self.returns.is_empty() || !self.orders.is_empty();
        self.sleeper.sleep(has_mail, wait);
    }
}

/// The mailboxes to one worker: with work, home with what it sent out, and with orders.
#[derive(Clone)]
pub struct Mailbox {
    /// Parcels that it is to serve.
    pub requests: Lane,
    /// Its own parcels, served.
    pub returns: Lane,
    /// What the control side wants done.
    pub orders: Lane<Order>,
}

/// The lanes to a worker that is woken by `waker`: at most `work_room` parcels wait to be served,
/// and `own_parcels` is how many it can have under way.
pub fn lanes_to(waker: Arc<dyn Waker>, work_room: usize, own_parcels: usize) -> (Mailbox, Inbox) {
    let sleeper = Arc::new(CachePadded::new(SleepFlag::new()));
    let (work_sender, requests) = bounded(work_room.max(1));
    let (home_sender, returns) = bounded(own_parcels.max(1));
    let (orders_sender, orders) = bounded(ORDERS_ROOM);
    let lane = |sender| Lane { sender, sleeper: sleeper.clone(), waker: waker.clone() };
    let orders_lane =
        Lane { sender: orders_sender, sleeper: sleeper.clone(), waker: waker.clone() };
    let mailboxes =
        Mailbox { requests: lane(work_sender), returns: lane(home_sender), orders: orders_lane };
    (mailboxes, Inbox { requests, returns, orders, sleeper })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);

    impl Waker for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn parcel(shard: usize) -> Parcel {
        Box::new(Contents { batch: ShardBatch::new(1, 1, 64), shard, home: 0 })
    }

    #[test]
    fn a_full_lane_hands_the_parcel_back() {
        let (mailboxes, inbox) = lanes_to(Arc::new(Count(AtomicUsize::new(0))), 1, 4);
        assert!(mailboxes.requests.try_send(parcel(1)).is_ok());
        assert_eq!(mailboxes.requests.try_send(parcel(2)).unwrap_err().shard, 2);
        assert_eq!(inbox.request().unwrap().shard, 1);
        assert!(inbox.request().is_none());
        assert!(
            (0..4).all(|n| mailboxes.returns.try_send(parcel(n)).is_ok()),
            "room for every one of its own"
        );
    }

    #[test]
    fn only_a_sleeper_is_rung_and_only_once() {
        let waker = Arc::new(Count(AtomicUsize::new(0)));
        let rings = || waker.0.load(Ordering::SeqCst);
        let (mailboxes, inbox) = lanes_to(waker.clone(), 4, 4);
        mailboxes.requests.try_send(parcel(0)).unwrap();
        assert_eq!(rings(), 0, "awake");
        inbox.sleep(|| panic!("a parcel is waiting: no sleep"));
        inbox.request().unwrap();
        inbox.sleep(|| {
            mailboxes.requests.try_send(parcel(0)).unwrap();
            mailboxes.returns.try_send(parcel(0)).unwrap();
        });
        assert_eq!(rings(), 1, "asleep, then told");
        mailboxes.requests.try_send(parcel(0)).unwrap();
        assert_eq!(rings(), 1, "awake again");
    }
}
