//! Shards with random histories, shared by tests: swarms of a few peers and of thousands, peers
//! that announce, complete and stop.

use std::net::{Ipv4Addr, Ipv6Addr};

use onrush_proto::{Endpoint, Event, InfoHash, TransactionId};
use onrush_swarm::{Announce, Moment, Shard, ShardBatch, ShardSettings};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

/// A property test of as many cases, whose regressions are kept in a file beside its source.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let failure_persistence: Option<Box<dyn proptest::test_runner::FailurePersistence>> =
        Some(Box::new(FileFailurePersistence::WithSource("regressions")));
    ProptestConfig { cases, failure_persistence, ..ProptestConfig::default() }
}

/// Seconds that a peer is stored for.
pub(crate) const LIFETIME: u32 = 3600;

/// A shard whose keys and random sequence follow from `seed`.
pub(crate) fn shard(seed: u64, max_peers: u64) -> Shard {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let settings = ShardSettings { peer_lifetime: LIFETIME, max_peers, ..ShardSettings::default() };
    Shard::new(settings, key, seed)
}

/// The info hash of a swarm.
pub(crate) fn hash(number: u8) -> InfoHash {
    InfoHash([number; 20])
}

/// The endpoint of a peer.
pub(crate) fn endpoint(number: u16) -> Endpoint {
    // A third uses IPv6; an eighth announces port 1, which is never given to other peers.
    let port = if number % 8 == 7 { 1 } else { 6_881 };
    let [high, low] = number.to_be_bytes();
    match number % 3 {
        0 => Endpoint::v6(
            Ipv6Addr::from([0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]),
            port,
        ),
        _ => Endpoint::v4(Ipv4Addr::new(10, 0, high, low), port),
    }
}

/// Serves an announce of each peer.
pub(crate) fn serve(
    shard: &mut Shard,
    swarm: u8,
    peers: impl Iterator<Item = u16>,
    event: Event,
    now: u32,
) {
    let mut batch = ShardBatch::<(), ()>::new(512, 1, 64 << 10);
    for number in peers {
        let announce = Announce {
            info_hash: hash(swarm),
            endpoint: endpoint(number),
            event,
            seeder: number.wrapping_add(now as u16) % 5 < 2,
            want: 0,
            transaction_id: TransactionId(1),
        };
        if batch.push_announce(announce, ()).is_err() {
            shard.serve(&mut batch, Moment(now));
            batch.clear();
            batch.push_announce(announce, ()).unwrap();
        }
    }
    shard.serve(&mut batch, Moment(now));
}

/// A step of a history: `peers` are numbered from `from`.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Announce {
        event: Event,
        swarm: u8,
        from: u16,
        peers: u16,
    },
    Remove {
        swarm: u8,
    },
    /// Time passes, and a sweep removes expired peers.
    Wait {
        seconds: u32,
    },
    Walk {
        budget: usize,
    },
}

fn announces(event: Event) -> impl Strategy<Value = Step> {
    let peers = prop_oneof![3 => 1u16..6, 2 => 1u16..200, 2 => 200u16..2_000];
    (0u8..6, 0u16..1_500, peers).prop_map(move |(swarm, from, peers)| Step::Announce {
        event,
        swarm,
        from,
        peers,
    })
}

/// A history.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => announces(Event::Started),
        1 => announces(Event::Completed),
        3 => announces(Event::Stopped),
        1 => (0u8..6).prop_map(|swarm| Step::Remove { swarm }),
        1 => (0u32..2_500).prop_map(|seconds| Step::Wait { seconds }),
        6 => (1usize..400).prop_map(|budget| Step::Walk { budget }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Runs a step.
pub(crate) fn take(shard: &mut Shard, now: &mut u32, step: &Step) {
    match *step {
        Step::Announce { event, swarm, from, peers } => {
            serve(shard, swarm, from..from + peers, event, *now);
        }
        Step::Remove { swarm } => drop(shard.remove(&hash(swarm), Moment(*now))),
        Step::Wait { seconds } => {
            *now += seconds;
            shard.sweep(Moment(*now), 700);
        }
        Step::Walk { .. } => {}
    }
}
