//! Showing the counts of all swarms of a shard, to a thread that writes them down.

use crossbeam_channel::{Sender, TrySendError};
use onrush_proto::InfoHash;
use onrush_swarm::{Moment, Shard, Verdict};

use onrush_tracker::clock::Now;
use onrush_tracker::orders::Chore;

/// Swarms looked at in a step: out of the caches they take some 10 us.
const STEP: usize = 128;
/// Swarms in a part.
const PART: usize = 4096;
/// Seconds for which this waits for whoever takes its parts: other chores wait behind it.
const PATIENCE: u32 = 120;

/// The counts of a swarm, in 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwarmCounts {
    /// Its name.
    pub info_hash: InfoHash,
    /// Peers that miss nothing.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// How often a peer became a seeder.
    pub completed: u32,
}

/// What a tally sends: some swarms, or, empty, that it is through.
pub type Part = Vec<SwarmCounts>;

/// A tally of one shard.
#[derive(Debug)]
pub struct CountTask {
    to: Sender<Part>,
    part: Part,
    begun: bool,
    over: bool,
    waits_since: Option<Moment>,
}

impl CountTask {
    /// To this way. It is whole when an empty part has come of every shard.
    pub fn new(to: Sender<Part>) -> Self {
        let part = Vec::with_capacity(PART + STEP);
        Self { to, part, begun: false, over: false, waits_since: None }
    }

    /// Sends what there is; `None` when nobody takes it any more, else whether it was taken.
    fn send(&mut self, now: Now) -> Option<bool> {
        match self.to.try_send(std::mem::take(&mut self.part)) {
            Ok(()) => {
                self.waits_since = None;
                Some(true)
            }
            Err(TrySendError::Disconnected(_)) => None,
            Err(TrySendError::Full(part)) => {
                self.part = part;
                let since = *self.waits_since.get_or_insert(now.moment);
                (now.moment.since(since) <= PATIENCE).then_some(false)
            }
        }
    }
}

impl Chore for CountTask {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        if self.part.len() >= PART || self.over {
            let through = self.over && self.part.is_empty();
            return match self.send(now) {
                Some(taken) => !(taken && through),
                None => false,
            };
        }
        let part = &mut self.part;
        self.over = !shard.walk(now.moment, STEP, |met| {
            let (info_hash, completed) = (met.info_hash, met.completed);
            let (seeders, leechers) = (met.seeders, met.leechers);
            part.push(SwarmCounts { info_hash, seeders, leechers, completed });
            Verdict::Keep
        });
        true
    }
}
