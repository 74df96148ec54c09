//! The message of a lane: requests for one shard from one member, with the tokens of its clients.

use onrush_net::Return;
use onrush_swarm::{Moment, Shard, ShardBatch};

use crate::scrape_join::Place;

/// Requests for one shard, with a token `R` per request that addresses the reply.
#[derive(Debug)]
pub struct Requests<R> {
    /// The requests and, once served, their replies.
    pub batch: ShardBatch<R, Place>,
    /// The shard that serves them.
    pub shard: usize,
    /// The member that sent the batch and gets it back: the number of a worker or, behind those,
    /// of a front.
    pub home: usize,
}

/// The token of a request from a web connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The connection's place in its front's table.
    pub slot: u32,
    /// Counts the connections of the slot: a ticket of an earlier connection is outdated.
    pub generation: u32,
    /// The request's number within its connection.
    pub sequence: u64,
}

/// A batch on its way to its shard or back, by the front that it comes from. Boxed, so that a
/// channel moves 16 bytes.
#[derive(Debug)]
pub enum Batch {
    /// From datagrams; a reply goes to a UDP return address.
    Udp(Box<Requests<Return>>),
    /// From web connections.
    Web(Box<Requests<Ticket>>),
}

impl Batch {
    /// Requests in the batch: announces and info hashes of scrapes.
    #[allow(clippy::len_without_is_empty, reason = "an empty batch is never sent")]
    pub fn len(&self) -> usize {
        match self {
            Self::Udp(requests) => requests.batch.len(),
            Self::Web(requests) => requests.batch.len(),
        }
    }

    /// Serves every request of the batch. Returns the member that the batch goes back to.
    pub fn serve(&mut self, shard: &mut Shard, now: Moment) -> usize {
        match self {
            Self::Udp(requests) => {
                shard.serve(&mut requests.batch, now);
                requests.home
            }
            Self::Web(requests) => {
                shard.serve(&mut requests.batch, now);
                requests.home
            }
        }
    }
}
