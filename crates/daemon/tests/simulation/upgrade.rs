//! An upgrade in mid-flight: a successor receives sockets and peers while requests go on, with the
//! parts that the daemon uses, one step at a time.

use std::io::Cursor;
use std::sync::Arc;

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use onrush_replica::delta::{self, Delta, OLDER_IN_DUMP, Since, own_stops, start_on_shards};
use onrush_replica::dump::{self, DumpError, load_options};
use onrush_replica::handoff::IntervalCommitment;
use onrush_store::snapshot::encode::{Block, Encoder};
use onrush_store::snapshot::write::SnapshotWriter;
use onrush_swarm::{ChangeReader, Interest, Shard, ShardMap};
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::gather::Gather;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::stream::{Part, StreamTask};

use super::clock::Time;
use super::process::{Process, Starting};

/// Seconds by which peers may count as older after an upgrade, besides the time that the dump has
/// taken: of the dump, of stored ages and of clocks.
const OLDER: i64 = OLDER_IN_DUMP as i64 + 16;

/// When an upgrade fails, if it does: the process that serves goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// While the peers are sent.
    InDump,
    /// After the workers have stopped receiving.
    Paused,
}

/// An upgrade in progress.
pub(crate) struct Upgrade {
    pub(crate) stage: Stage,
    /// When the dump began.
    begun: Time,
    /// When the successor has started.
    pub(crate) started: u64,
    /// Seconds by which peers may count as older: ages are loaded as if the dump took no time,
    /// and it waits for stalled workers.
    pub(crate) older: i64,
    pub(crate) failure: Option<Failure>,
    /// The commitment of the predecessor, once it is final.
    pub(crate) commitment: Option<IntervalCommitment>,
    /// Peers of the process that serves.
    held: u64,
    /// Readers of the stops since then, of the process that serves.
    stops: Vec<ChangeReader>,
    /// Shards of the successor.
    own: Vec<ChangeReader>,
}

/// How far it is.
pub(crate) enum Stage {
    Subscribing(Gather<(ChangeReader, u64)>),
    Dumping(Receiver<Part<Block>>, usize, Option<SnapshotWriter<Vec<u8>>>),
    /// The successor has loaded the dump, and waits until this second.
    Loaded(Box<Starting>, u64),
    /// The workers stop receiving, until this second.
    Pausing(Box<Starting>, Gather<()>, u64),
    /// The successor serves; the delta arrives at this second.
    Released {
        delta: Vec<u8>,
        at: Time,
        arrival: u64,
    },
    Merging(Box<Delta<Cursor<Vec<u8>>>>, Option<Gather<()>>),
    OwnStops(Gather<()>),
}

impl Upgrade {
    /// The process that serves learns of the successor.
    pub(crate) fn begin(
        serving: &Process,
        now: Time,
        started: u64,
        failure: Option<Failure>,
    ) -> Self {
        let subscribe = |shard: &mut Shard, _: Now| {
            Some((shard.subscribe(Interest::Stops), shard.totals().peers()))
        };
        let subscribed = serving.orders().gather(|_| subscribe);
        let stage = Stage::Subscribing(subscribed.expect("a worker takes its orders"));
        let (stops, own) = (Vec::new(), Vec::new());
        let commitment = None;
        Self { stage, begun: now, started, older: OLDER, failure, commitment, held: 0, stops, own }
    }

    /// Starts the dump once every shard has been subscribed to. Returns whether it has.
    pub(crate) fn start_dump(&mut self, serving: &Process, now: Time) -> bool {
        let Stage::Subscribing(subscribed) = &mut self.stage else { return false };
        let Some(subscribed) = subscribed.poll().expect("workers run") else { return false };
        for (stops, peers) in subscribed {
            self.stops.push(stops);
            self.held += peers;
        }
        let orders = serving.orders();
        // As ShardStream, which waits.
        let (to, parts) = bounded(2);
        let task =
            |_| -> Box<dyn ShardTask> { Box::new(StreamTask::new(Encoder::default(), to.clone())) };
        orders.run_on_every_shard(task).expect("a worker takes its orders");
        let writer = SnapshotWriter::begin(Vec::new(), now.unix).expect("memory");
        self.stage = Stage::Dumping(parts, orders.shards(), Some(writer));
        true
    }

    /// Takes what has been dumped. Returns whether anything has, and the whole dump at its end.
    pub(crate) fn dump(&mut self, now: Time) -> (bool, Option<Vec<u8>>) {
        let Stage::Dumping(parts, unfinished, writer) = &mut self.stage else {
            return (false, None);
        };
        let mut moved = false;
        loop {
            match parts.try_recv() {
                Ok(Part::Message(block)) => {
                    writer.as_mut().expect("not ended").block(&block).expect("memory");
                }
                Ok(Part::End) => *unfinished -= 1,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            moved = true;
        }
        let ended = (*unfinished == 0).then(|| writer.take()).flatten();
        self.older = OLDER + (now.second - self.begun.second) as i64;
        (moved, ended.map(|writer| writer.end(now.unix).expect("memory").0))
    }

    /// The successor loads the dump, and serves after `until`. Returns whether it has room for the
    /// peers: `limit` is `limits.peers`.
    pub(crate) fn load(
        &mut self,
        mut new: Starting,
        dump: &[u8],
        map: ShardMap,
        limit: u64,
        until: u64,
    ) -> bool {
        let (now, access) = (self.begun.since(self.started), new.access().clone());
        let mut shards = new.shards();
        self.own = shards.iter_mut().map(|shard| shard.subscribe(Interest::Stops)).collect();
        let options = load_options(map, &access, now);
        match dump::load(dump, self.held, shards, options, (limit, false), &mut || {}) {
            Ok(()) => self.stage = Stage::Loaded(Box::new(new), until),
            // An upgrade shortly before has left more than the limit.
            Err(DumpError::TooManyPeers { .. }) => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }

    /// Asks the workers to stop receiving, and gives up at `deadline`.
    pub(crate) fn pause(&mut self, serving: &Process, deadline: u64) {
        let paused = serving.orders().pause().expect("a worker takes its orders");
        let Stage::Loaded(new, _) = self.take_stage() else { panic!("the dump is not loaded") };
        self.stage = Stage::Pausing(new, paused, deadline);
    }

    /// The successor serves. `serving` has stopped, and sends the delta.
    pub(crate) fn release(&mut self, serving: &mut Process, now: Time, arrival: u64) -> Starting {
        let sides = serving.workers.iter_mut().filter_map(|worker| worker.swarm_side.take());
        let mut shards: Vec<Shard> = sides.map(|side| side.shard).collect();
        let mut bytes = Vec::new();
        let at = now.since(serving.started);
        let begun = self.begun.since(serving.started).moment;
        let mut since = Since { begun, stops: std::mem::take(&mut self.stops) };
        delta::write(&mut bytes, &mut shards, &mut since, at, &mut || {}).expect("memory");
        let Stage::Pausing(new, ..) = self.take_stage() else { panic!("workers still receive") };
        self.stage = Stage::Released { delta: bytes, at: now, arrival };
        *new
    }

    /// Merges what has arrived. Returns whether there was anything to do, and whether all is done.
    pub(crate) fn merge(
        &mut self,
        serving: &Process,
        (map, access): (ShardMap, &Arc<AccessList>),
        now: Time,
    ) -> (bool, bool) {
        let orders = serving.orders();
        let clock = || now.since(serving.started);
        let start = |steps| start_on_shards(&orders, steps).expect("a worker takes its orders");
        match &mut self.stage {
            Stage::Released { delta, at, arrival } if *arrival <= now.second => {
                let from = Cursor::new(std::mem::take(delta));
                let delta = Delta::new(from, map, access.clone(), at.since(serving.started));
                self.stage = Stage::Merging(Box::new(delta), None);
            }
            Stage::Merging(delta, running) => {
                if running.as_mut().is_some_and(|running| !is_done(running)) {
                    return (false, false);
                }
                match delta.next(&clock).expect("a valid delta") {
                    Some(steps) => *running = Some(start(steps)),
                    None => {
                        let steps = own_stops(std::mem::take(&mut self.own), orders.shards());
                        self.stage = Stage::OwnStops(start(steps));
                    }
                }
            }
            Stage::OwnStops(running) => return (false, is_done(running)),
            _ => return (false, false),
        }
        (true, false)
    }

    fn take_stage(&mut self) -> Stage {
        let at = self.begun;
        let nothing = Stage::Released { delta: Vec::new(), at, arrival: u64::MAX };
        std::mem::replace(&mut self.stage, nothing)
    }
}

/// Whether every shard or worker has answered.
pub(crate) fn is_done(answers: &mut Gather<()>) -> bool {
    answers.poll().expect("workers run").is_some()
}
