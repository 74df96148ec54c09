//! The change log against a naive model: a copy that applies the changes in their order has the
//! same peers as the shard.

use std::collections::{BTreeMap, BTreeSet};

use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::shard::change_log::CAPACITY;
use onrush_swarm::{
    ChangeKind, ChangeReader, Interest, Moment, PeerView, Shard, ShardChange, ShardSettings,
    SourceLimits, SwarmSummary, Verdict,
};
use proptest::prelude::*;

use crate::population::{LIFETIME, Step, config, endpoint, hash, serve, shard, steps, take};

/// The naive copy: for each peer, whether it is a seeder and when it announced last.
#[derive(Clone, Default, PartialEq, Debug)]
struct Copy {
    peers: BTreeMap<(InfoHash, Endpoint), (bool, i64)>,
    completed: BTreeMap<InfoHash, u32>,
}

impl Copy {
    fn apply(&mut self, change: &ShardChange) {
        let ShardChange { info_hash, at, completed, kind } = *change;
        match kind {
            ChangeKind::Announced { endpoint, seeder, age, .. } => {
                let seen = i64::from(at.0) - i64::from(age);
                self.peers.insert((info_hash, endpoint), (seeder, seen));
            }
            ChangeKind::Stopped { endpoint }
            | ChangeKind::Replaced { endpoint }
            | ChangeKind::Expired { endpoint } => {
                self.peers.remove(&(info_hash, endpoint));
            }
            ChangeKind::SwarmRemoved => {
                self.peers.retain(|(swarm, _), _| *swarm != info_hash);
                self.completed.remove(&info_hash);
            }
        }
        let greatest = self.completed.entry(info_hash).or_default();
        *greatest = completed.max(*greatest);
    }

    /// Reads all changes in pieces of `limit`.
    fn follow(&mut self, shard: &Shard, reader: &mut ChangeReader, limit: usize) {
        while shard.read_changes(reader, limit, |change| self.apply(change)).expect("none is lost")
        {
        }
    }

    /// Compares with the shard; ages are in ticks of eight seconds.
    fn assert_equals(&self, shard: &Shard, now: u32) {
        let mut peers = BTreeSet::new();
        for swarm in shard.swarms(Moment(now)) {
            for PeerView { endpoint, seeder, age } in swarm.peers {
                let (copied, seen) = self.peers[&(swarm.info_hash, endpoint)];
                assert_eq!(copied, seeder, "{endpoint:?}");
                let copied_age = i64::from(now) - seen;
                assert!((copied_age - i64::from(age)).abs() < 16, "{copied_age} and {age} seconds");
                peers.insert((swarm.info_hash, endpoint));
            }
            let completed = self.completed.get(&swarm.info_hash).copied().unwrap_or_default();
            assert_eq!(completed, swarm.completed, "{}", swarm.info_hash);
        }
        assert_eq!(self.peers.keys().copied().collect::<BTreeSet<_>>(), peers);
    }
}

/// A shard that never forgets `completed`, whose expiry is not logged.
fn retaining(seed: u64, max_peers: u64) -> Shard {
    let settings = ShardSettings {
        peer_lifetime: LIFETIME,
        completed_retention: u32::MAX,
        max_peers,
        // In a full shard, newcomers then replace peers of sources with more.
        sources: SourceLimits { peers: 1_000 * (seed % 2), ..SourceLimits::default() },
        ..ShardSettings::default()
    };
    Shard::new(settings, [seed as u8; 16], seed)
}

proptest! {
    #![proptest_config(config(48))]

    /// Two readers at their own pace, one of which subscribes later and copies the shard by a walk.
    #[test]
    fn replaying_the_log_onto_a_copy_gives_the_same_peers(
        seed: u64,
        before in steps(),
        then in steps(),
        limit in 1usize..500,
        max_peers in 100u64..4_000,
    ) {
        let mut shard = retaining(seed, max_peers);
        let mut now = 1_000_000;
        let (mut early, mut from_start) = (shard.subscribe(Interest::All), Copy::default());
        for step in &before {
            take(&mut shard, &mut now, step);
        }
        let (mut late, mut from_walk) = (shard.subscribe(Interest::All), Copy::default());
        for swarm in shard.swarms(Moment(now)) {
            for PeerView { endpoint, seeder, age } in swarm.peers {
                let seen = i64::from(now) - i64::from(age);
                from_walk.peers.insert((swarm.info_hash, endpoint), (seeder, seen));
            }
            from_walk.completed.insert(swarm.info_hash, swarm.completed);
        }
        for step in &then {
            take(&mut shard, &mut now, step);
            if let Step::Walk { budget } = *step {
                restore(&mut shard, budget, now);
                from_walk.follow(&shard, &mut late, limit);
                from_walk.assert_equals(&shard, now);
            }
        }
        from_start.follow(&shard, &mut early, limit);
        from_walk.follow(&shard, &mut late, limit);
        from_start.assert_equals(&shard, now);
        from_walk.assert_equals(&shard, now);
        shard.check();
    }
}

/// Restores some peers, of which some are known, as after an upgrade; removes one that stopped at
/// another tracker.
fn restore(shard: &mut Shard, number: usize, now: u32) {
    let first = number as u16 * 3;
    let view = |number| PeerView { endpoint: endpoint(number), seeder: number % 2 == 0, age: 40 };
    shard.restore(hash(1), 0, (first..first + 50).map(view), Moment(now));
    shard.remove_peer(&hash(1), &endpoint(first), 3, 0, Moment(now));
}

#[test]
fn a_walk_that_removes_swarms_logs_their_removal() {
    let mut shard = shard(1, 1_000);
    let mut reader = shard.subscribe(Interest::All);
    serve(&mut shard, 1, 0..300, onrush_proto::Event::Started, 10);
    serve(&mut shard, 2, 0..3, onrush_proto::Event::Started, 10);
    shard.begin_walk();
    let verdict = |swarm: &SwarmSummary| match swarm.info_hash == hash(1) {
        true => Verdict::Remove,
        false => Verdict::Keep,
    };
    assert!(!shard.walk(Moment(11), 10, verdict));
    let mut copy = Copy::default();
    copy.follow(&shard, &mut reader, 100);
    assert_eq!(copy.peers.len(), 3);
}

#[test]
fn a_reader_of_stops_is_shown_nothing_else() {
    let mut shard = shard(1, 1_000);
    let mut stops = shard.subscribe(Interest::Stops);
    let all = shard.subscribe(Interest::All);
    serve(&mut shard, 1, 0..5, onrush_proto::Event::Completed, 10);
    // A peer that is unknown here may be known to a replica.
    serve(&mut shard, 1, 3..6, onrush_proto::Event::Stopped, 11);
    drop(all);
    shard.sweep(Moment(12 + LIFETIME + 16), usize::MAX);
    let mut read = Vec::new();
    shard.read_changes(&mut stops, 100, |change| read.push(*change)).unwrap();
    let expected = (3..6).map(|number| ShardChange {
        info_hash: hash(1),
        at: Moment(11),
        completed: 2,
        kind: ChangeKind::Stopped { endpoint: endpoint(number) },
    });
    assert_eq!(read, expected.collect::<Vec<_>>());
}

/// The peer that was replaced may have completed the download, and a replica may know it from
/// before.
#[test]
fn a_replacement_carries_completed() {
    let sources = SourceLimits { peers: 1_000, ..SourceLimits::default() };
    let settings = ShardSettings { max_peers: 20, sources, ..ShardSettings::default() };
    let mut shard = Shard::new(settings, [7; 16], 1);
    let mut reader = shard.subscribe(Interest::Stops);
    // All peers are of one source, an IPv6 /64, and the newcomer is of another.
    serve(&mut shard, 1, (0..60).step_by(3), onrush_proto::Event::Completed, 10);
    serve(&mut shard, 1, 1..2, onrush_proto::Event::Started, 11);
    let mut read = Vec::new();
    shard.read_changes(&mut reader, 100, |change| read.push(*change)).unwrap();
    let [ShardChange { completed, kind: ChangeKind::Replaced { .. }, .. }] = read[..] else {
        panic!("{read:?}");
    };
    assert_eq!((u64::from(completed), shard.totals().replaced), (shard.totals().completed, 1));
    assert!(completed > 0);
}

/// A reader that never reads holds back neither the shard nor other readers.
#[test]
fn the_log_is_bounded() {
    let mut shard = shard(1, 1_000);
    let (mut idle, mut reader) = (shard.subscribe(Interest::All), shard.subscribe(Interest::All));
    let (mut read, mut served) = (0, 0);
    while served <= CAPACITY {
        serve(&mut shard, 1, 0..500, onrush_proto::Event::Started, 10);
        served += 500;
        shard.read_changes(&mut reader, 1_000, |_| read += 1).unwrap();
    }
    assert_eq!(read, served);
    let lost = shard.read_changes(&mut idle, 1, |_| {}).unwrap_err();
    assert_eq!(lost.changes as usize, served - CAPACITY);
    let mut left = 0;
    assert_eq!(shard.read_changes(&mut idle, usize::MAX, |_| left += 1), Ok(false));
    assert_eq!(left, CAPACITY);
}
