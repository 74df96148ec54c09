//! A background task that sends the counts of all swarms of a shard to a thread that writes them to
//! a file.

use crossbeam_channel::{Sender, TrySendError};
use onrush_proto::InfoHash;
use onrush_swarm::{Moment, Shard, Verdict};

use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms per step: about 10 us when they are not in the CPU caches.
const STEP: usize = 128;
/// Swarms in a message.
const MESSAGE: usize = 4096;
/// Seconds after which a task ends whose receiver takes no message: other tasks wait behind it.
const SEND_TIMEOUT: u32 = 120;

/// The counts of a swarm, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwarmCounts {
    /// The info hash.
    pub info_hash: InfoHash,
    /// Peers with all pieces.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// Peers that became seeders by the event `completed`.
    pub completed: u32,
}

/// Counts the swarms of one shard.
#[derive(Debug)]
pub struct CountTask {
    to: Sender<Vec<SwarmCounts>>,
    counted: Vec<SwarmCounts>,
    started: bool,
    finished: bool,
    blocked_since: Option<Moment>,
}

impl CountTask {
    /// A task that sends swarms to `to`. An empty message is the end of the shard.
    pub fn new(to: Sender<Vec<SwarmCounts>>) -> Self {
        let counted = Vec::with_capacity(MESSAGE + STEP);
        Self { to, counted, started: false, finished: false, blocked_since: None }
    }

    /// Sends the counted swarms. Returns whether the channel took them; `None` when the receiver is
    /// gone or took nothing for [`SEND_TIMEOUT`].
    fn send(&mut self, now: Now) -> Option<bool> {
        match self.to.try_send(std::mem::take(&mut self.counted)) {
            Ok(()) => {
                self.blocked_since = None;
                Some(true)
            }
            Err(TrySendError::Disconnected(_)) => None,
            Err(TrySendError::Full(counted)) => {
                self.counted = counted;
                let since = *self.blocked_since.get_or_insert(now.moment);
                (now.moment.since(since) <= SEND_TIMEOUT).then_some(false)
            }
        }
    }
}

impl ShardTask for CountTask {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if !self.started {
            self.started = true;
            shard.begin_walk();
        }
        if self.counted.len() >= MESSAGE || self.finished {
            let last = self.finished && self.counted.is_empty();
            return match self.send(now) {
                Some(taken) => !(taken && last),
                None => false,
            };
        }
        let counted = &mut self.counted;
        self.finished = !shard.walk(now.moment, STEP, |met| {
            let (info_hash, completed) = (met.info_hash, met.completed);
            let (seeders, leechers) = (met.seeders, met.leechers);
            counted.push(SwarmCounts { info_hash, seeders, leechers, completed });
            Verdict::Keep
        });
        true
    }
}
