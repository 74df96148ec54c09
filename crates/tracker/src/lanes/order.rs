//! Orders from the control side to one worker or front: new rules, pausing, samples of sources, and
//! background tasks over its shard.

use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_channel::Sender;
use onrush_net::QueueId;
use onrush_swarm::Shard;

use crate::clock::Now;
use crate::rules::Rules;
use crate::source_sample::SourceSample;

/// An order for one worker, applied at the start of its next turn.
pub enum Order {
    /// Use these rules from the next datagram on. All of them change at once.
    Rules(Arc<Rules>),
    /// Stop receiving, and signal once every request received so far is answered. A worker without
    /// a socket signals at once. A front stops accepting connections, closes those that are idle,
    /// and signals once all requests that have arrived are answered and their connections ended.
    Pause(Sender<()>),
    /// Receive only at these addresses, and from all queues but these, until nothing is left there;
    /// then stop receiving, and signal as after `Pause`.
    Drain(Arc<[SocketAddr]>, Arc<[QueueId]>, Sender<()>),
    /// Receive again; a front accepts again.
    Resume,
    /// Sample the sources of requests, or end that. The former sample is finished. A worker without
    /// a socket finishes an empty one.
    Sample(Option<Box<SourceSample>>),
    /// Run a background task over the worker's shard. A worker without a shard drops it.
    Task(Box<dyn ShardTask>),
}

/// A background task over a shard that takes longer than one turn may: it runs in steps, one after
/// each turn, so that no reply waits for it. Results go to the requester through a channel, sent
/// without blocking the worker.
///
/// A task that is dropped before its last step was interrupted: its worker has exited.
pub trait ShardTask: Send {
    /// Runs one step of about 10 us, at most 0.2 ms. Returns whether steps remain.
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool;

    /// Whether the next step depends on another thread, such as the reader of a full channel. The
    /// worker then sleeps between turns instead of polling.
    fn is_waiting(&self) -> bool {
        false
    }
}

/// A closure that runs a step, and never waits.
impl<F: FnMut(&mut Shard, Now) -> bool + Send> ShardTask for F {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        self(shard, now)
    }
}
