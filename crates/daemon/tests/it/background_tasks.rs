//! Tasks over whole shards run in steps short enough not to delay replies, and are correct while
//! swarms are created and removed. The work of a step is counted, not timed: over many swarms, and
//! over a swarm with many peers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::unbounded;
use onrush::access::purge::swarm_removal::{remove_forbidden, remove_named};
use onrush_config::settings::{Access, Listed};
use onrush_net::Socket;
use onrush_net::memory::{Conditions, Endpoint as Client, Network};
use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_store::export::count::SwarmCounter;
use onrush_store::snapshot::encode::Encoder;
use onrush_swarm::{Announce, PeerView, Shard, ShardBatch, ShardSettings};
use onrush_testing::memory_tracker::{TestTracker, announce, at, connect, secrets, send, settings};
use onrush_tracker::access::AccessList;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::orders::Orders;
use onrush_tracker::stream::{Part, StreamTask};
use onrush_tracker::worker::{SwarmSide, Worker};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Number of small swarms.
const SWARMS: u32 = 100_000;
/// Peers of the large swarm.
const LARGE_PEERS: u32 = 200_000;
/// Number of the large swarm; its info hash sorts between the small ones.
const LARGE: u32 = u32::MAX;

/// Upper bound on the swarms that a step visits: some 20 us without cache hits.
const MAX_VISITED: usize = 256;
/// Upper bound on the swarms and peers that a step emits: 192 and the rest of a chunk of each kind.
const MAX_EMITTED: u64 = 192 + 3 * 165;
/// Upper bound on the peers that a step removes: 2,048 of a large swarm and the rest of a chunk;
/// fewer of small swarms.
const MAX_REMOVED: u64 = 2_048 + 165;

fn name(number: u32) -> InfoHash {
    let mut name = [7; 20];
    name[..4].copy_from_slice(&number.to_be_bytes());
    InfoHash(name)
}

fn endpoint(number: u32) -> Endpoint {
    // One in fifty has port 0.
    let port = if number % 50 == 49 { 1 } else { 6_881 };
    match number % 3 {
        0 => Endpoint::v6(Ipv6Addr::from((0x2001 << 112) | u128::from(number)), port),
        _ => Endpoint::v4(Ipv4Addr::from(number), port),
    }
}

/// The peers of a swarm, by number: one or two in a small swarm.
fn peers(swarm: u32) -> std::ops::Range<u32> {
    if swarm == LARGE { 0..LARGE_PEERS } else { swarm..swarm + 1 + swarm % 2 }
}

/// Without retention a swarm is removed with its last peer.
fn completed(swarm: u32) -> u32 {
    if swarm == LARGE { 0 } else { swarm % 4 }
}

fn is_forbidden(swarm: u32) -> bool {
    swarm == LARGE || swarm % 3 == 1
}

fn forbidding_list() -> Arc<AccessList> {
    let hashes = (0..SWARMS).chain([LARGE]).filter(|swarm| is_forbidden(*swarm)).map(name);
    let listed = Listed { hashes: hashes.collect(), ..Listed::default() };
    Arc::new(onrush_store::lists::access_list(&Access::Deny(listed), 0, &mut || {}).unwrap())
}

fn fill(shard: &mut Shard) {
    let (before, after) = (0..SWARMS / 2, SWARMS / 2..SWARMS);
    for swarm in before.chain([LARGE]).chain(after) {
        let peer =
            |n| PeerView { endpoint: endpoint(n), seeder: n.is_multiple_of(2), age: n % 100 };
        shard.restore(name(swarm), completed(swarm), peers(swarm).map(peer), at(1_000).moment);
    }
}

/// A worker's shard with a task that runs step by step while swarms are created and removed.
struct ShardWithTask {
    side: SwarmSide,
    rng: SmallRng,
    begun: bool,
    steps: usize,
    /// Small swarms that lost all of their peers.
    left: BTreeSet<u32>,
    /// The number of the next new swarm.
    next: u32,
}

impl ShardWithTask {
    fn new() -> Self {
        let settings = ShardSettings {
            interval: 1_800,
            interval_jitter_percent: 5,
            peer_lifetime: 3_600,
            completed_retention: 86_400,
            max_peers: 2_000_000,
            max_idle_swarms: 1_000_000,
            ..ShardSettings::default()
        };
        let mut shard = Shard::new(settings, [1; 16], 1);
        fill(&mut shard);
        Self {
            side: SwarmSide::new(0, shard, Duration::from_secs(120)),
            rng: SmallRng::seed_from_u64(1),
            begun: false,
            steps: 0,
            left: BTreeSet::new(),
            next: SWARMS,
        }
    }

    /// Swarms with and without peers.
    fn swarms(&self) -> u64 {
        let totals = self.side.shard.totals();
        totals.swarms + totals.idle_swarms
    }

    /// Runs a step of the task and counts its work; false once the task is complete.
    fn step(&mut self) -> bool {
        let before = self.side.shard.totals().peers();
        let due = match self.begun {
            true => self.side.shard.walk_remaining(),
            false => self.swarms() as usize,
        };
        let unfinished = self.side.run_tasks(at(1_000));
        (self.begun, self.steps) = (true, self.steps + 1);
        let met = due - self.side.shard.walk_remaining();
        assert!(met <= MAX_VISITED, "{met} swarms in step {}", self.steps);
        let forgotten = before - self.side.shard.totals().peers();
        assert!(forgotten <= MAX_REMOVED, "{forgotten} peers in step {}", self.steps);
        unfinished
    }

    /// Removes all peers of some swarms and creates others.
    fn change_swarms(&mut self) {
        let mut batch = ShardBatch::<(), ()>::new(8, 1, 8 << 10);
        let leaves = self.rng.random_range(0..SWARMS);
        self.left.insert(leaves);
        for (swarm, event) in [(leaves, Event::Stopped), (self.next, Event::Started)] {
            for peer in peers(swarm) {
                let announce = Announce {
                    info_hash: name(swarm),
                    endpoint: endpoint(peer),
                    event,
                    seeder: false,
                    want: 0,
                    transaction_id: TransactionId(0),
                };
                batch.push_announce(announce, ()).unwrap();
            }
        }
        self.side.shard.serve(&mut batch, at(1_000).moment);
        self.next += 1;
    }

    /// Whether a small swarm existed during all steps.
    fn stayed(&self, swarm: u32) -> bool {
        !self.left.contains(&swarm) || completed(swarm) > 0
    }
}

#[test]
fn a_snapshot_is_encoded_in_short_steps() {
    let mut busy = ShardWithTask::new();
    let (to, parts) = unbounded();
    busy.side.add_task(Box::new(StreamTask::new(Encoder::default(), to)));
    let (mut steps, mut emitted, mut unfinished) = (0, 0, true);
    while unfinished {
        unfinished = busy.step();
        busy.change_swarms();
        steps += 1;
        for part in parts.try_iter() {
            let Part::Message(block) = part else { continue };
            let shown = block.counts.records + block.counts.v4 + block.counts.v6;
            assert!(shown <= steps * MAX_EMITTED, "{shown} swarms and peers in {steps} steps");
            (steps, emitted) = (0, emitted + shown);
        }
    }
    assert!(busy.left.len() > 500, "only {} swarms were emptied meanwhile", busy.left.len());
    assert!(emitted > u64::from(SWARMS + LARGE_PEERS), "{emitted}");
}

#[test]
fn a_purge_removes_forbidden_swarms_in_short_steps() {
    let mut busy = ShardWithTask::new();
    let (sender, receiver) = unbounded();
    let list = forbidding_list();
    busy.side.add_task(Box::new(remove_forbidden(list, Arc::default(), sender)));
    while busy.step() {
        busy.change_swarms();
    }
    let removed = receiver.try_recv().expect("the count of a finished purge");
    let forbidden = (0..SWARMS).chain([LARGE]).filter(|swarm| is_forbidden(*swarm));
    let (stayed, left): (Vec<_>, Vec<_>) = forbidden.partition(|swarm| busy.stayed(*swarm));
    assert!(left.len() > 20 && busy.steps > 500, "{} of {}", left.len(), busy.steps);
    assert!((stayed.len()..=stayed.len() + left.len()).contains(&(removed as usize)));
    let shard = &busy.side.shard;
    shard.check();
    for swarm in 0..SWARMS {
        let present = shard.summary(&name(swarm), at(1_000).moment).is_some();
        assert_eq!(present, busy.stayed(swarm) && !is_forbidden(swarm), "{swarm}");
    }
    assert_eq!(shard.summary(&name(LARGE), at(1_000).moment), None);
    // Those of the large swarm are removed.
    assert!(shard.totals().peers() < 2 * u64::from(SWARMS));
}

#[test]
fn a_superseded_purge_stops_without_a_result() {
    let mut busy = ShardWithTask::new();
    let (sender, receiver) = unbounded();
    let superseded = Arc::new(AtomicBool::new(false));
    let first = remove_forbidden(forbidding_list(), superseded.clone(), sender.clone());
    busy.side.add_task(Box::new(first));
    assert!(busy.step());
    let before = busy.swarms();
    superseded.store(true, Ordering::Relaxed);
    assert!(!busy.step());
    assert_eq!((busy.swarms(), receiver.try_recv().ok()), (before, None));
    // The next one begins anew, and sends the exact number.
    busy.begun = false;
    busy.side.add_task(Box::new(remove_forbidden(forbidding_list(), Arc::default(), sender)));
    while busy.step() {}
    assert_eq!(receiver.try_recv(), Ok(before - busy.swarms()));
}

#[test]
fn single_swarms_of_any_size_are_removed_in_short_steps() {
    let mut busy = ShardWithTask::new();
    let (sender, receiver) = unbounded();
    let names: Arc<[InfoHash]> = (0..1_000).chain([LARGE]).chain(1_000..2_000).map(name).collect();
    busy.side.shard.begin_walk();
    busy.side.add_task(Box::new(remove_named(names, sender)));
    busy.begun = true;
    while busy.step() {}
    assert_eq!(receiver.try_recv(), Ok(2_001));
    assert!(busy.steps as u64 > u64::from(LARGE_PEERS) / MAX_REMOVED, "{} steps", busy.steps);
    busy.side.shard.check();
}

/// The tasks run for thousands of turns, and the worker replies to requests in each of them.
#[test]
fn the_worker_replies_between_two_steps() {
    let text = "[workers]\nplacement = \"colocated\"\ntotal = 1\n";
    let network = Network::new(1, Conditions::default());
    let mut world = TestTracker::new(&settings(text), &secrets(1), &network, |socket| socket);
    let mut client = network.bind(&["198.51.100.1:6881".parse().unwrap()]).unwrap();
    let id = connect(&mut world, &mut client, 0, at(1_000));
    let worker = &mut world.workers[0];
    fill(&mut worker.swarm_side.as_mut().unwrap().shard);
    let (sender, receiver) = unbounded();
    let (to, parts) = unbounded();
    let (dump_to, dumped) = unbounded();
    let orders = Orders::new(&worker.mailboxes, 1, worker.owners.clone());
    let run = |task: Box<dyn ShardTask>| orders.run_on_shard(0, task).unwrap();
    run(Box::new(StreamTask::new(SwarmCounter::default(), to)));
    run(Box::new(StreamTask::new(Encoder::default(), dump_to)));
    let mut walked = orders.gather_walk(|| 0, |swarms, _| *swarms += 1).unwrap();
    run(Box::new(remove_forbidden(forbidding_list(), Arc::default(), sender)));
    let mut request = [0; 98];
    announce(id, name(0)).write(&mut request);
    let mut turns = 0;
    while receiver.is_empty() {
        turns += 1;
        replies_in_one_turn(worker, &mut client, &request);
    }
    let steps = 4 * u64::from(SWARMS) / MAX_VISITED as u64;
    assert!(turns > steps, "{turns} turns");
    assert!(parts.iter().any(|part| matches!(part, Part::End)), "the export is complete");
    assert!(dumped.iter().any(|part| matches!(part, Part::End)), "the snapshot is complete");
    assert_eq!(walked.poll().unwrap(), Some(vec![SWARMS + 1]));
}

/// Sends a request; the next turn serves it and runs a short step of a task.
fn replies_in_one_turn(worker: &mut Worker<Client>, client: &mut Client, request: &[u8]) {
    let unmet = |worker: &Worker<_>| worker.swarm_side.as_ref().unwrap().shard.walk_remaining();
    send(client, 0, request);
    let before = unmet(worker);
    worker.turn(at(1_000)).unwrap();
    assert_eq!(client.receive(8).unwrap().iter().count(), 1, "one reply");
    let met = before.saturating_sub(unmet(worker));
    assert!(met <= MAX_VISITED, "{met} swarms in a turn");
}
