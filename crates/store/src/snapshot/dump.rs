//! Showing all of a shard, as blocks of a snapshot, to a thread that writes them down or sends them on.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use onrush_swarm::{Moment, Shard};

use crate::snapshot::encode::{Block, Encoder};
use onrush_tracker::clock::Now;
use onrush_tracker::orders::{Chore, Deaf, Orders};

/// Swarms and peers shown in a step: out of the caches they take some 20 us.
const STEP: usize = 192;
/// Seconds for which a dump waits for whoever takes its blocks, before it gives up: other chores wait behind it.
const PATIENCE: u32 = 120;

/// What a dump sends.
#[derive(Debug)]
pub enum DumpMessage {
    /// Some swarms.
    Block(Block),
    /// That was the whole shard.
    Done,
}

/// A dump of one shard.
#[derive(Debug)]
pub struct DumpTask {
    encoder: Encoder,
    to: Sender<DumpMessage>,
    /// Could not be sent yet.
    ready: Option<DumpMessage>,
    begun: bool,
    over: bool,
    note_departures: bool,
    waits_since: Option<Moment>,
}

impl DumpTask {
    /// A dump to `to`. Where departures are noted, the shard does so from the beginning of the walk on.
    pub fn new(to: Sender<DumpMessage>, note_departures: bool) -> Self {
        Self {
            encoder: Encoder::new(),
            to,
            ready: None,
            begun: false,
            over: false,
            note_departures,
            waits_since: None,
        }
    }

    /// Has every shard dumped. What comes out of the receiver is whole when as many parts as there are
    /// shards say that they are done; when it ends before, a worker has gone or did not take the order.
    ///
    /// # Errors
    /// [`Deaf`], when a worker did not take the order.
    pub fn of_all(orders: &Orders, note_departures: bool) -> Result<Receiver<DumpMessage>, Deaf> {
        let (to, parts) = bounded(2 * orders.shards() + 2);
        orders.every_shard(|_| Box::new(Self::new(to.clone(), note_departures)))?;
        Ok(parts)
    }

    /// Whether there is nothing left to be sent, or nobody to send it to.
    fn sent(&mut self, now: Now) -> Sent {
        let Some(part) = self.ready.take() else { return Sent::All };
        match self.to.try_send(part) {
            Ok(()) => {
                self.waits_since = None;
                Sent::All
            }
            Err(TrySendError::Disconnected(_)) => Sent::Nobody,
            Err(TrySendError::Full(part)) => {
                self.ready = Some(part);
                let since = *self.waits_since.get_or_insert(now.moment);
                if now.moment.since(since) > PATIENCE { Sent::Nobody } else { Sent::Waits }
            }
        }
    }
}

enum Sent {
    All,
    Waits,
    Nobody,
}

impl Chore for DumpTask {
    fn waits(&self) -> bool {
        self.waits_since.is_some()
    }

    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        match self.sent(now) {
            Sent::All if self.over => return false,
            Sent::All => {}
            Sent::Waits => return true,
            Sent::Nobody => return false,
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
            if self.note_departures {
                shard.note_departures();
            }
        }
        let more = shard.walk_with_peers(now.moment, STEP, &mut self.encoder);
        match self.encoder.block(now.unix, !more) {
            Some(block) => self.ready = Some(DumpMessage::Block(block)),
            None if !more => {
                self.ready = Some(DumpMessage::Done);
                self.over = true;
            }
            None => {}
        }
        true
    }
}
