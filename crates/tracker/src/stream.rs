//! Sends the contents of running shards, message by message, to a thread that writes them to a file
//! or a socket.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use onrush_swarm::{Moment, Shard};

use crate::clock::Now;
use crate::lanes::ShardTask;
use crate::orders::{Orders, WorkerUnresponsive};

/// Seconds after which a task ends whose receiver takes no message: other tasks wait behind it.
const SEND_TIMEOUT: u32 = 120;

/// Reads a shard step by step.
pub trait ShardReader: Send + 'static {
    /// The type of its messages.
    type Message: Send;

    /// Reads the next swarms of the shard's walk. Returns a message if there is enough for one, or
    /// if this was the last step, and whether swarms remain.
    fn read(&mut self, shard: &mut Shard, now: Now) -> (Option<Self::Message>, bool);
}

/// A background task that sends what a reader reads from one shard.
#[derive(Debug)]
pub struct StreamTask<R: ShardReader> {
    reader: R,
    to: Sender<Part<R::Message>>,
    /// A part that the channel has not taken yet.
    pending: Option<Part<R::Message>>,
    started: bool,
    finished: bool,
    blocked_since: Option<Moment>,
}

/// A message of a [`StreamTask`], or the end of its shard.
#[derive(Debug)]
pub enum Part<M> {
    /// Some swarms.
    Message(M),
    /// The end of the shard.
    End,
}

impl<R: ShardReader> StreamTask<R> {
    /// A task that sends to `to`.
    pub fn new(reader: R, to: Sender<Part<R::Message>>) -> Self {
        Self { reader, to, pending: None, started: false, finished: false, blocked_since: None }
    }
}

impl<R: ShardReader> ShardTask for StreamTask<R> {
    fn is_waiting(&self) -> bool {
        self.blocked_since.is_some()
    }

    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if let Some(part) = self.pending.take() {
            let is_end = matches!(part, Part::End);
            return match self.to.try_send(part) {
                Ok(()) => {
                    self.blocked_since = None;
                    !is_end
                }
                Err(TrySendError::Disconnected(_)) => false,
                Err(TrySendError::Full(part)) => {
                    self.pending = Some(part);
                    let since = *self.blocked_since.get_or_insert(now.moment);
                    now.moment.since(since) <= SEND_TIMEOUT
                }
            };
        }
        if !self.started {
            self.started = true;
            shard.begin_walk();
        }
        if self.finished {
            self.pending = Some(Part::End);
        } else {
            let (message, more) = self.reader.read(shard, now);
            self.pending = message.map(Part::Message);
            self.finished = !more;
        }
        true
    }
}

/// The messages of all shards.
#[derive(Debug)]
pub struct ShardStream<M> {
    parts: Receiver<Part<M>>,
    unfinished: usize,
}

impl<M: Send + 'static> ShardStream<M> {
    /// Starts a task on every shard.
    ///
    /// # Errors
    /// [`WorkerUnresponsive`], when a worker did not take the order.
    pub fn start<R: ShardReader<Message = M>>(
        orders: &Orders,
        reader: impl Fn() -> R,
    ) -> Result<Self, WorkerUnresponsive> {
        let (to, parts) = bounded(2 * orders.shards() + 2);
        orders.run_on_every_shard(|_| Box::new(StreamTask::new(reader(), to.clone())))?;
        Ok(Self::new(parts, orders.shards()))
    }

    /// The messages that tasks on this many shards send to `parts`.
    pub fn new(parts: Receiver<Part<M>>, shards: usize) -> Self {
        Self { parts, unfinished: shards }
    }

    /// Waits for the next message by `receive`; `None` after the last one of all shards.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn next_by<E>(
        &mut self,
        mut receive: impl FnMut(&Receiver<Part<M>>) -> Result<Part<M>, E>,
    ) -> Result<Option<M>, E> {
        while self.unfinished > 0 {
            match receive(&self.parts)? {
                Part::Message(message) => return Ok(Some(message)),
                Part::End => self.unfinished -= 1,
            }
        }
        Ok(None)
    }
}
