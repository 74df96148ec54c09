//! Bounded channels between the members of a tracker: workers and fronts. A batch is one message;
//! the same boxes come back to their sender.
//!
//! ```text
//!   front or socket side                         swarm side
//!   pool ── fill ──▶ Lane ══ requests (bounded) ══▶ Inbox ── serve
//!    ▲                                                        │
//!    └── send, clear ── Inbox ◀══ returns (room for all) ══ Lane
//! ```
//!
//! No thread blocks on a channel. The sender of a batch that a full lane refuses drops and counts
//! it; the lane of returns has room for every batch of its member. A member without work sleeps;
//! [`sleep`] shows why it misses no message.

mod batch;
pub mod order;
pub mod sleep;

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use crossbeam_utils::CachePadded;

pub use batch::{Batch, Requests, Ticket};
pub use onrush_net::Waker;
pub use order::{Order, ShardTask};

use sleep::SleepFlag;

/// Capacity of the lane of orders. A member takes all of them in each turn, so that more than a
/// few wait only while it is stalled.
const ORDERS_CAPACITY: usize = 1024;

/// The sending end of a channel to one member. Clones send to the same channel.
pub struct Lane<T = Batch> {
    sender: Sender<T>,
    sleep_flag: Arc<CachePadded<SleepFlag>>,
    waker: Arc<dyn Waker>,
}

// A derived implementation would require that messages can be cloned.
impl<T> Clone for Lane<T> {
    fn clone(&self) -> Self {
        let Self { sender, sleep_flag, waker } = self;
        Self { sender: sender.clone(), sleep_flag: sleep_flag.clone(), waker: waker.clone() }
    }
}

impl<T> Lane<T> {
    /// Sends a message and wakes the member if it sleeps. Returns the message when the lane is
    /// full or its member has exited.
    #[inline]
    pub fn try_send(&self, message: T) -> Result<(), T> {
        self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        })?;
        if self.sleep_flag.must_wake() {
            self.waker.wake();
        }
        Ok(())
    }

    /// A further channel to the same member, for `capacity` messages (at least 1) of another kind,
    /// with its receiving end. [`Inbox::sleep_unless`] has to be told whether any message is
    /// waiting in it.
    pub fn beside<U>(&self, capacity: usize) -> (Lane<U>, Receiver<U>) {
        let (sender, receiver) = bounded(capacity.max(1));
        let Self { sleep_flag, waker, .. } = self;
        (Lane { sender, sleep_flag: sleep_flag.clone(), waker: waker.clone() }, receiver)
    }

    /// How many messages wait in the lane, and its capacity.
    pub fn depth(&self) -> (usize, usize) {
        (self.sender.len(), self.sender.capacity().unwrap_or(usize::MAX))
    }

    /// Wakes the member without a message, such as when the process is about to stop.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// The receiving ends of one member's lanes.
pub struct Inbox {
    requests: Receiver<Batch>,
    returns: Receiver<Batch>,
    orders: Receiver<Order>,
    sleep_flag: Arc<CachePadded<SleepFlag>>,
}

impl Inbox {
    /// The next order of the control side.
    #[inline]
    pub fn order(&self) -> Option<Order> {
        self.orders.try_recv().ok()
    }

    /// The next batch to serve.
    #[inline]
    pub fn request(&self) -> Option<Batch> {
        self.requests.try_recv().ok()
    }

    /// The next of this member's own batches that came back served.
    #[inline]
    pub fn returned(&self) -> Option<Batch> {
        self.returns.try_recv().ok()
    }

    /// Sleeps by calling `wait`, unless a message is waiting. From the start of this call until its
    /// end, senders wake the member.
    pub fn sleep(&self, wait: impl FnOnce()) {
        self.sleep_unless(|| false, wait);
    }

    /// The same for a member with further lanes: `has_more` tells whether a message is waiting
    /// [beside](Lane::beside) the inbox.
    pub fn sleep_unless(&self, has_more: impl FnOnce() -> bool, wait: impl FnOnce()) {
        let has_mail = || {
            !self.requests.is_empty()
                || !self.returns.is_empty()
                || !self.orders.is_empty()
                || has_more()
        };
        self.sleep_flag.sleep(has_mail, wait);
    }
}

/// The sending ends of one member's lanes.
#[derive(Clone)]
pub struct Mailbox {
    /// Batches for the member's shard.
    pub requests: Lane,
    /// The member's own batches, served.
    pub returns: Lane,
    /// Orders of the control side.
    pub orders: Lane<Order>,
}

/// The lanes to a member that `waker` wakes: `requests_capacity` batches may wait to be served, and
/// `own_batches` is how many batches of its own the member may have in flight.
pub fn lanes_to(
    waker: Arc<dyn Waker>,
    requests_capacity: usize,
    own_batches: usize,
) -> (Mailbox, Inbox) {
    let sleep_flag = Arc::new(CachePadded::new(SleepFlag::new()));
    let (requests_sender, requests) = bounded(requests_capacity.max(1));
    let (returns_sender, returns) = bounded(own_batches.max(1));
    let (orders_sender, orders) = bounded(ORDERS_CAPACITY);
    let lane = |sender| Lane { sender, sleep_flag: sleep_flag.clone(), waker: waker.clone() };
    let mailbox = Mailbox {
        requests: lane(requests_sender),
        returns: lane(returns_sender),
        orders: Lane {
            sender: orders_sender,
            sleep_flag: sleep_flag.clone(),
            waker: waker.clone(),
        },
    };
    (mailbox, Inbox { requests, returns, orders, sleep_flag })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_swarm::ShardBatch;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct CountingWaker(AtomicUsize);

    impl Waker for CountingWaker {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn batch(shard: usize) -> Batch {
        Batch::Udp(Box::new(Requests { batch: ShardBatch::new(1, 1, 64), shard, home: 0 }))
    }

    fn shard_of(batch: &Batch) -> usize {
        match batch {
            Batch::Udp(requests) => requests.shard,
            Batch::Web(requests) => requests.shard,
        }
    }

    #[test]
    fn a_full_lane_returns_the_batch() {
        let (mailbox, inbox) = lanes_to(Arc::new(CountingWaker(AtomicUsize::new(0))), 1, 4);
        assert!(mailbox.requests.try_send(batch(1)).is_ok());
        assert_eq!(shard_of(&mailbox.requests.try_send(batch(2)).unwrap_err()), 2);
        assert_eq!(shard_of(&inbox.request().unwrap()), 1);
        assert!(inbox.request().is_none());
        assert!((0..4).all(|n| mailbox.returns.try_send(batch(n)).is_ok()), "room for all its own");
    }

    #[test]
    fn only_a_sleeping_member_is_woken_and_only_once() {
        let waker = Arc::new(CountingWaker(AtomicUsize::new(0)));
        let wakes = || waker.0.load(Ordering::SeqCst);
        let (mailbox, inbox) = lanes_to(waker.clone(), 4, 4);
        mailbox.requests.try_send(batch(0)).unwrap();
        assert_eq!(wakes(), 0, "awake");
        inbox.sleep(|| panic!("a batch is waiting: no sleep"));
        inbox.request().unwrap();
        inbox.sleep(|| {
            mailbox.requests.try_send(batch(0)).unwrap();
            mailbox.returns.try_send(batch(0)).unwrap();
        });
        assert_eq!(wakes(), 1, "two messages to a sleeping member, one wake");
        mailbox.requests.try_send(batch(0)).unwrap();
        assert_eq!(wakes(), 1, "awake again");
    }

    #[test]
    fn a_further_lane_wakes_the_same_member() {
        let waker = Arc::new(CountingWaker(AtomicUsize::new(0)));
        let (mailbox, inbox) = lanes_to(waker.clone(), 1, 1);
        let (lane, further) = mailbox.orders.beside(1);
        let has_more = || !further.is_empty();
        inbox.sleep_unless(has_more, || lane.try_send("message").unwrap());
        assert_eq!(waker.0.load(Ordering::SeqCst), 1);
        inbox.sleep_unless(has_more, || panic!("a message is waiting: no sleep"));
        assert_eq!((lane.try_send("another"), further.recv()), (Err("another"), Ok("message")));
    }
}
