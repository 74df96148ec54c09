//! A front that is no socket worker: a thread that puts announces and scrapes of its clients into
//! the lanes, and takes their replies out.
//!
//! Each turn of a front takes its [`orders`](Front::order), adds requests, calls
//! [`dispatch`](Front::dispatch) and [`receive`](Front::receive), and then
//! [`sleep_unless`](Front::sleep_unless). A front is dropped when its thread exits: its replies are
//! then dropped and counted by the workers, which are not affected otherwise.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use onrush_proto::scrape::HASH_LEN;
use onrush_proto::{InfoHash, TransactionId};
use onrush_swarm::Announce;

use crate::access::AccessList;
use crate::lanes::{Batch, Inbox, Lane, Mailbox, Order, Ticket};
use crate::metrics::WorkerMetrics;
use crate::producer::Producer;
use crate::sorter::Exhausted;

/// One front's end of the lanes. Everything in it belongs to one thread.
pub struct Front {
    /// Its number among all members: workers come first.
    pub index: usize,
    /// Its counters, for [admission](crate::intake::Admission).
    pub metrics: Arc<WorkerMetrics>,
    pub(crate) producer: Producer<Ticket>,
    pub(crate) inbox: Inbox,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) owners: Arc<[usize]>,
}

impl Front {
    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.owners.len()
    }

    /// The shard that serves an info hash.
    pub fn shard_of(&self, info_hash: &InfoHash) -> usize {
        self.producer.shard_of(info_hash)
    }

    /// Adds an announce that was admitted.
    ///
    /// # Errors
    /// [`Exhausted`] when no batch is free: the announce gets no reply.
    pub fn announce(&mut self, announce: &Announce, ticket: Ticket) -> Result<(), Exhausted> {
        self.producer.announce(announce, &ticket)
    }

    /// Adds a scrape that was admitted, of at most
    /// [`MAX_HASHES`](onrush_proto::scrape::MAX_HASHES) info hashes; hashes that `access` forbids
    /// report zeros.
    ///
    /// # Errors
    /// [`Exhausted`] when no slot or no batch is free: the scrape gets no reply.
    pub fn scrape(
        &mut self,
        id: TransactionId,
        hashes: &[[u8; HASH_LEN]],
        access: &AccessList,
        ticket: Ticket,
    ) -> Result<(), Exhausted> {
        self.producer.scrape(id, hashes, access, &ticket)
    }

    /// Sends the open batches to their shards. Calls `lost` for each request of a batch that a lane
    /// refused; it gets no reply.
    pub fn dispatch(&mut self, mut lost: impl FnMut(Ticket)) {
        while let Some(requests) = self.producer.take_sorted(None) {
            let lane = &self.mailboxes[self.owners[requests.shard]].requests;
            if let Err(Batch::Web(requests)) = lane.try_send(Batch::Web(requests)) {
                self.metrics.lane_full.add(1);
                self.producer.abort(requests, |ticket| lost(*ticket));
            }
        }
    }

    /// Calls `reply` for each reply that has arrived, in wire form (BEP 15). Returns whether there
    /// was any.
    pub fn receive(&mut self, mut reply: impl FnMut(&[u8], Ticket)) -> bool {
        while let Some(Batch::Web(requests)) = self.inbox.returned() {
            self.producer.accept_reply(requests);
        }
        let any = self.producer.has_replies();
        self.producer.replies().for_each(|(bytes, ticket)| reply(bytes, *ticket));
        self.producer.clear_replies();
        any
    }

    /// The next order of the control side.
    pub fn order(&self) -> Option<Order> {
        self.inbox.order()
    }

    /// Whether no request is open or in flight.
    pub fn is_idle(&self) -> bool {
        self.producer.is_idle()
    }

    /// Sleeps by calling `wait`, unless a reply or an order is waiting, or `has_more` tells that a
    /// message is waiting in a [`lane`](Self::lane). The waker that the front was assembled with
    /// has to end `wait`.
    pub fn sleep_unless(&self, has_more: impl FnOnce() -> bool, wait: impl FnOnce()) {
        self.inbox.sleep_unless(has_more, wait);
    }

    /// A further lane to this front, for `capacity` messages that fronts send each other, with its
    /// receiving end. [`sleep_unless`](Self::sleep_unless) has to be told whether any is waiting.
    pub fn lane<T>(&self, capacity: usize) -> (Lane<T>, Receiver<T>) {
        self.mailboxes[self.index].orders.beside(capacity)
    }
}
