//! A background task that sends a whole shard, as blocks of a snapshot, to a thread that writes
//! them to a file or a socket.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use onrush_swarm::{Moment, Shard};

use crate::snapshot::encode::{Block, Encoder};
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::orders::{Orders, WorkerUnresponsive};

/// Swarms and peers per step: about 20 us when they are not in the CPU caches.
const STEP: usize = 192;
/// Seconds after which a dump ends whose receiver takes no block: other tasks wait behind it.
const SEND_TIMEOUT: u32 = 120;

/// A message of a dump.
#[derive(Debug)]
pub enum DumpMessage {
    /// Swarms with their peers.
    Block(Block),
    /// The end of one shard.
    Done,
}

/// The dump of one shard.
#[derive(Debug)]
pub struct DumpTask {
    encoder: Encoder,
    to: Sender<DumpMessage>,
    /// A message that the full channel has not taken yet.
    pending: Option<DumpMessage>,
    started: bool,
    finished: bool,
    blocked_since: Option<Moment>,
}

impl DumpTask {
    /// A dump to `to`.
    pub fn new(to: Sender<DumpMessage>) -> Self {
        Self {
            encoder: Encoder::new(),
            to,
            pending: None,
            started: false,
            finished: false,
            blocked_since: None,
        }
    }

    /// Starts a dump of every shard. The dump is complete after one [`DumpMessage::Done`] per
    /// shard; a channel that closes before means that a worker has exited.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], when a worker did not take the order.
    pub fn of_all(orders: &Orders) -> Result<Receiver<DumpMessage>, WorkerUnresponsive> {
        let (to, messages) = bounded(2 * orders.shards() + 2);
        orders.run_on_every_shard(|_| Box::new(Self::new(to.clone())))?;
        Ok(messages)
    }

    /// Sends the pending message, if there is one.
    fn send_pending(&mut self, now: Now) -> Sent {
        let Some(part) = self.pending.take() else { return Sent::Yes };
        match self.to.try_send(part) {
            Ok(()) => {
                self.blocked_since = None;
                Sent::Yes
            }
            Err(TrySendError::Disconnected(_)) => Sent::Never,
            Err(TrySendError::Full(part)) => {
                self.pending = Some(part);
                let since = *self.blocked_since.get_or_insert(now.moment);
                if now.moment.since(since) > SEND_TIMEOUT { Sent::Never } else { Sent::NotYet }
            }
        }
    }
}

enum Sent {
    /// Nothing is pending.
    Yes,
    /// The channel is full.
    NotYet,
    /// The receiver is gone, or took nothing for [`SEND_TIMEOUT`].
    Never,
}

impl ShardTask for DumpTask {
    fn is_waiting(&self) -> bool {
        self.blocked_since.is_some()
    }

    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        match self.send_pending(now) {
            Sent::Yes if self.finished => return false,
            Sent::Yes => {}
            Sent::NotYet => return true,
            Sent::Never => return false,
        }
        if !self.started {
            self.started = true;
            shard.begin_walk();
        }
        let more = shard.walk_with_peers(now.moment, STEP, &mut self.encoder);
        match self.encoder.block(now.unix, !more) {
            Some(block) => self.pending = Some(DumpMessage::Block(block)),
            None if !more => {
                self.pending = Some(DumpMessage::Done);
                self.finished = true;
            }
            None => {}
        }
        true
    }
}
