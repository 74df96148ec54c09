//! Walks with peers, and restores of what they have shown, against naive models: with any changes
//! between the steps, and restored in any order.

use std::collections::{BTreeMap, BTreeSet};

use onrush_proto::{Endpoint, Event, InfoHash};
use onrush_swarm::{
    ChangeKind, Interest, Moment, PeerView, Restored, Shard, ShardSettings, SwarmSummary,
    SwarmView, Verdict, Visitor,
};
use proptest::prelude::*;

use crate::population::{self, LIFETIME, Step, config, endpoint, hash, serve, steps, take};

type Peer = (InfoHash, Endpoint);

/// The swarms and peers that a walk has shown.
#[derive(Default)]
struct Seen {
    at: Option<(InfoHash, bool)>,
    pieces: Vec<(SwarmSummary, Vec<PeerView>)>,
    begun: Vec<InfoHash>,
    peers: Vec<Peer>,
    /// The current time.
    now: u32,
    /// When each part was shown.
    shown: Vec<u32>,
}

impl Visitor for Seen {
    fn swarm(&mut self, swarm: &SwarmSummary, continued: bool) {
        if !continued {
            self.begun.push(swarm.info_hash);
        }
        self.at = Some((swarm.info_hash, false));
        self.pieces.push((*swarm, Vec::new()));
        self.shown.push(self.now);
    }

    fn peer(&mut self, endpoint: &Endpoint, seeder: bool, age: u32) {
        let (info_hash, v6) = self.at.as_mut().expect("a swarm comes first");
        let is_v6 = matches!(endpoint, Endpoint::V6(_));
        assert!(is_v6 || !*v6, "IPv4 peers come first");
        *v6 = is_v6;
        self.peers.push((*info_hash, *endpoint));
        self.pieces.last_mut().unwrap().1.push(PeerView { endpoint: *endpoint, seeder, age });
    }
}

fn peers_of(shard: &Shard, now: u32) -> BTreeMap<Peer, PeerView> {
    let swarms = shard.swarms(Moment(now));
    let peers = swarms.flat_map(|SwarmView { info_hash, peers, .. }| {
        peers.into_iter().map(move |peer| ((info_hash, peer.endpoint), peer))
    });
    peers.collect()
}

fn names(shard: &Shard) -> BTreeSet<InfoHash> {
    shard.swarms(Moment(0)).map(|swarm| swarm.info_hash).collect()
}

fn walk_all(shard: &mut Shard, now: u32, budget: usize) -> Seen {
    let mut seen = Seen::default();
    shard.begin_walk();
    while shard.walk_with_peers(Moment(now), budget, &mut seen) {}
    seen
}

/// All swarms with their peers, sorted.
fn sorted_swarms(shard: &Shard, now: u32) -> Vec<SwarmView> {
    let mut swarms: Vec<_> = shard.swarms(Moment(now)).collect();
    swarms.iter_mut().for_each(|swarm| swarm.peers.sort_unstable_by_key(|peer| peer.endpoint));
    swarms.sort_unstable_by_key(|swarm| swarm.info_hash);
    swarms
}

fn populated(seed: u64, steps: &[Step]) -> (Shard, u32) {
    let mut shard = population::shard(seed, 100_000);
    let mut now = 1_000_000;
    for step in steps {
        take(&mut shard, &mut now, step);
    }
    (shard, now)
}

proptest! {
    #![proptest_config(config(48))]

    /// Every peer that stays is shown once, with its state at some time of the walk; no peer is
    /// shown that was never stored.
    #[test]
    fn every_peer_that_stays_is_shown_once(seed: u64, before in steps(), steps in steps()) {
        let (mut shard, mut now) = populated(seed, &before);
        shard.begin_walk();
        let mut seen = Seen::default();
        let mut stayed = peers_of(&shard, now);
        let mut swarms_stayed = names(&shard);
        let mut ever: BTreeSet<Peer> = stayed.keys().copied().collect();
        for step in &steps {
            take(&mut shard, &mut now, step);
            let current = peers_of(&shard, now);
            ever.extend(current.keys());
            stayed.retain(|peer, _| current.contains_key(peer));
            let current = names(&shard);
            swarms_stayed.retain(|name| current.contains(name));
            if let Step::Walk { budget } = *step {
                let (pieces, peers) = (seen.pieces.len(), seen.peers.len());
                shard.walk_with_peers(Moment(now), budget, &mut seen);
                let shown = seen.pieces.len() - pieces + seen.peers.len() - peers;
                prop_assert!(shown <= budget + 3 * 165, "{} of {}", shown, budget);
            }
            shard.check();
        }
        while shard.walk_with_peers(Moment(now), 50, &mut seen) {}
        prop_assert!(!shard.walk_with_peers(Moment(now), 50, &mut seen), "the walk is over");
        let mut met: BTreeMap<Peer, usize> = BTreeMap::new();
        seen.peers.iter().for_each(|peer| *met.entry(*peer).or_default() += 1);
        for peer in stayed.keys() {
            prop_assert_eq!(met.get(peer), Some(&1), "{:?} stayed", peer);
        }
        prop_assert!(met.keys().all(|peer| ever.contains(peer)));
        for name in &swarms_stayed {
            let begun = seen.begun.iter().filter(|begun| *begun == name).count();
            // It may have been created during the walk.
            prop_assert!(begun <= 1, "{:?} begun {} times", name, begun);
        }
    }

    /// A walk without changes in between, restored into an empty shard in any order, gives the same
    /// swarms.
    #[test]
    fn a_restored_walk_gives_the_same_shard(
        seed: u64, steps in steps(), budget in 1usize..500, reversed: bool, later in 0u32..3_000,
    ) {
        let (mut shard, now) = populated(seed, &steps);
        shard.sweep(Moment(now), usize::MAX);
        let mut seen = walk_all(&mut shard, now, budget);
        prop_assert_eq!(seen.peers.len() as u64, shard.totals().peers());
        if reversed {
            seen.pieces.reverse();
        }
        // The copy has another clock and other keys.
        let (mut other, start) = (population::shard(seed ^ 1, 100_000), 5_000_000);
        let aged = |peer: &PeerView| PeerView { age: peer.age + later / 8 * 8, ..*peer };
        let (mut stored, mut expired) = (0, 0);
        let (idle, busy): (Vec<_>, Vec<_>) =
            seen.pieces.iter().partition(|(met, _)| met.idle_for.is_some());
        let mut longest_first: Vec<_> = idle;
        longest_first.sort_by_key(|(met, _)| std::cmp::Reverse(met.idle_for));
        for (met, _) in longest_first {
            let idle_for = met.idle_for.unwrap() + later / 8 * 8;
            other.restore_idle(met.info_hash, met.completed, idle_for, Moment(start));
        }
        for (met, peers) in busy {
            let restored = restore(&mut other, met, peers.iter().map(aged), start);
            prop_assert_eq!(restored.full, 0);
            stored += restored.stored;
            expired += restored.expired;
        }
        other.check();
        prop_assert_eq!(stored, other.totals().peers());
        prop_assert_eq!(stored + expired, shard.totals().peers());
        let mut expected = sorted_swarms(&shard, now);
        for swarm in &mut expected {
            let youngest = swarm.peers.iter().map(|peer| aged(peer).age).min();
            swarm.peers = swarm.peers.iter().map(aged).filter(|p| p.age <= LIFETIME).collect();
            swarm.idle_for = match (swarm.idle_for, youngest) {
                (Some(idle_for), _) => Some(idle_for + later / 8 * 8),
                (None, Some(youngest)) if swarm.peers.is_empty() => Some(youngest - LIFETIME),
                _ => None,
            };
        }
        expected.retain(|swarm| !swarm.peers.is_empty() || swarm.completed > 0);
        let mut got = sorted_swarms(&other, start);
        // Swarms whose peers have all expired are restored in no order: see `restore_idle`.
        for (got, expected) in got.iter_mut().zip(&expected) {
            if let (Some(got), Some(expected)) = (&mut got.idle_for, expected.idle_for) {
                prop_assert!(*got <= expected);
                *got = expected;
            }
        }
        prop_assert_eq!(got, expected);
    }

    /// Restoring twice has no further effect, and the younger sighting counts.
    #[test]
    fn restored_swarms_are_merged(seed: u64, first in steps(), then in steps()) {
        let (mut old, now) = populated(seed, &first);
        let shown = walk_all(&mut old, now, 333);
        let mut later = now + 10;
        for step in &then {
            take(&mut old, &mut later, step);
        }
        old.sweep(Moment(later), usize::MAX);
        let live = sorted_swarms(&old, later);
        let (peers_before, seen_before) = (old.totals().peers(), peers_of(&old, later));
        for _ in 0..2 {
            for (met, peers) in &shown.pieces {
                let older = (later - now) / 8 * 8;
                let aged = peers.iter().map(|peer| PeerView { age: peer.age + older, ..*peer });
                restore(&mut old, met, aged, later);
            }
        }
        old.check();
        let merged = peers_of(&old, later);
        prop_assert!(old.totals().peers() >= peers_before);
        for (peer, view) in seen_before {
            let got = merged[&peer];
            // An age is in ticks of eight seconds, rounded twice.
            prop_assert!(got.age <= view.age, "{:?} is {:?}", view, got);
            prop_assert!(got == view || got.age < view.age);
        }
        for swarm in live {
            let mut swarms = sorted_swarms(&old, later).into_iter();
            let got = swarms.find(|other| other.info_hash == swarm.info_hash);
            prop_assert!(got.is_some_and(|got| got.completed >= swarm.completed));
        }
    }

    /// The dump, later changes and stops together give the same shard: this is how an upgrade takes
    /// over. Of sightings in the same tick the later one wins because the earlier one is restored
    /// as older.
    #[test]
    fn a_dump_with_later_changes_gives_the_same_shard(
        seed: u64, before in steps(), during in steps(), budget in 1usize..200,
    ) {
        let (mut old, mut now) = populated(seed, &before);
        let mut new = population::shard(seed ^ 1, 100_000);
        let mut stops = old.subscribe(Interest::Stops);
        old.begin_walk();
        let mut dump = Seen::default();
        let began = now;
        // No swarm is removed and no peer expires meanwhile.
        let stays = |step: &&Step| !matches!(step, Step::Remove { .. } | Step::Wait { .. });
        for step in during.iter().filter(stays) {
            take(&mut old, &mut now, step);
            if matches!(step, Step::Walk { .. }) {
                dump.now = now;
                old.walk_with_peers(Moment(now), budget, &mut dump);
            }
            now += 1;
        }
        dump.now = now;
        while old.walk_with_peers(Moment(now), budget, &mut dump) {}
        for ((met, peers), shown) in dump.pieces.iter().zip(&dump.shown) {
            let older = now - shown + 64;
            let aged = peers.iter().map(|peer| PeerView { age: peer.age + older, ..*peer });
            restore(&mut new, met, aged, now);
        }
        let more = old.read_changes(&mut stops, usize::MAX, |change| {
            let ChangeKind::Stopped { endpoint } = change.kind else { panic!("{change:?}") };
            let age = now - change.at.0 + 16;
            new.remove_peer(&change.info_hash, &endpoint, change.completed, age, Moment(now));
        });
        prop_assert_eq!(more, Ok(false));
        for (met, peers) in &walk_all(&mut old, now, 1_000).pieces {
            // Peers younger than the dump, with a tick to spare.
            let young = peers.iter().filter(|peer| peer.age <= now - began + 8);
            let young = young.map(|peer| PeerView { age: peer.age + 32, ..*peer });
            restore(&mut new, met, young, now);
        }
        new.check();
        // Peers about to expire on the old side, where all are youngest, may have expired on the
        // new one.
        let seen = peers_of(&old, now);
        let expires = |peer: &Peer| seen.get(peer).is_some_and(|view| view.age + 80 > LIFETIME);
        let fresh = |shard: &Shard| -> BTreeMap<Peer, bool> {
            let peers = peers_of(shard, now).into_iter().filter(|(peer, _)| !expires(peer));
            peers.map(|(peer, view)| (peer, view.seeder)).collect()
        };
        prop_assert_eq!(fresh(&new), fresh(&old));
        let busy: BTreeSet<InfoHash> = fresh(&old).keys().map(|(name, _)| *name).collect();
        let completed = |shard: &Shard| -> Vec<_> {
            let swarms = sorted_swarms(shard, now).into_iter();
            let busy = swarms.filter(|swarm| busy.contains(&swarm.info_hash));
            busy.map(|swarm| (swarm.info_hash, swarm.completed)).collect()
        };
        prop_assert_eq!(completed(&new), completed(&old));
    }
}

/// A shard that evicts idle swarms early, with one peer in each of these swarms.
fn with_swarms(swarms: impl Iterator<Item = u8>) -> Shard {
    let settings = ShardSettings { max_idle_swarms: 50, ..ShardSettings::default() };
    let mut shard = Shard::new(settings, [7; 16], 1);
    swarms.for_each(|swarm| serve(&mut shard, swarm, 1..2, Event::Started, 10));
    shard
}

/// A history of 80 swarms of one peer at most.
fn small_steps() -> impl Strategy<Value = Vec<Step>> {
    let announces =
        |event| (0u8..80).prop_map(move |swarm| Step::Announce { event, swarm, from: 1, peers: 1 });
    let step = prop_oneof![
        2 => announces(Event::Started),
        1 => announces(Event::Completed),
        2 => announces(Event::Stopped),
        2 => (1usize..12).prop_map(|budget| Step::Walk { budget }),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(config(256))]

    /// Swarms that stay are visited once, removed ones at most once, and later ones never.
    #[test]
    fn every_swarm_that_stays_is_visited_once(before: [u8; 40], steps in small_steps()) {
        let mut shard = with_swarms(before.iter().map(|number| number % 80));
        shard.begin_walk();
        // The swarms at the beginning, and those that existed all the time.
        let at_first = names(&shard);
        let mut stayed = at_first.clone();
        let mut visited: BTreeMap<InfoHash, usize> = BTreeMap::new();
        let mut visit = |swarm: &SwarmSummary| {
            *visited.entry(swarm.info_hash).or_default() += 1;
            Verdict::Keep
        };
        for step in steps {
            take(&mut shard, &mut 10, &step);
            if let Step::Walk { budget } = step {
                shard.walk(Moment(10), budget, &mut visit);
            }
            shard.check();
            let now = names(&shard);
            stayed.retain(|name| now.contains(name));
        }
        while shard.walk(Moment(10), 3, &mut visit) {}
        prop_assert!(!shard.walk(Moment(10), 3, &mut visit), "the walk is over");
        for name in &stayed {
            prop_assert_eq!(visited.get(name), Some(&1), "{:?}", name);
        }
        for (name, times) in &visited {
            prop_assert!(*times == 1 || !stayed.contains(name));
            prop_assert!(at_first.contains(name), "{:?} was created later", name);
        }
    }

    /// Swarms with the verdict `Remove` are removed with their peers; the others are unchanged.
    #[test]
    fn swarms_with_the_verdict_remove_are_removed(numbers: [u8; 60], odd in 0u8..2) {
        let mut shard = with_swarms(numbers.into_iter());
        shard.begin_walk();
        let verdict = |swarm: &SwarmSummary| match swarm.info_hash.0[0] % 2 == odd {
            true => Verdict::Remove,
            false => Verdict::Keep,
        };
        while shard.walk(Moment(10), 7, verdict) {
            shard.check();
        }
        shard.check();
        let kept = numbers.into_iter().filter(|number| number % 2 != odd);
        prop_assert_eq!(names(&shard), kept.map(hash).collect());
    }
}

#[test]
fn a_known_swarm_is_found_by_its_info_hash() {
    let shard = with_swarms(1..2);
    let found = shard.summary(&hash(1), Moment(20)).unwrap();
    assert_eq!((found.info_hash, found.seeders, found.leechers), (hash(1), 1, 0));
    assert_eq!(found.idle_for, None);
    assert_eq!(shard.summary(&hash(2), Moment(20)), None);
}

/// Restores a swarm, or a part of it; as an idle swarm if all of its peers have expired.
fn restore(
    shard: &mut Shard,
    met: &SwarmSummary,
    peers: impl Iterator<Item = PeerView>,
    now: u32,
) -> Restored {
    let restored = shard.restore(met.info_hash, met.completed, peers, Moment(now));
    if let Some(idle_for) = restored.idle_for {
        shard.restore_idle(met.info_hash, met.completed, idle_for, Moment(now));
    }
    restored
}

#[test]
fn peers_beyond_the_ceilings_are_counted_and_not_stored() {
    let settings = ShardSettings {
        peer_lifetime: LIFETIME,
        max_peers: 10,
        max_idle_swarms: 2,
        ..ShardSettings::default()
    };
    let mut shard = Shard::new(settings, [1; 16], 1);
    let peers = (0..13).map(|n| PeerView { endpoint: endpoint(n), seeder: true, age: 0 });
    let restored = shard.restore(hash(1), 5, peers, Moment(9));
    assert_eq!((restored.stored, restored.full, restored.expired), (10, 3, 0));
    let one = |age| [PeerView { endpoint: endpoint(1), seeder: true, age }].into_iter();
    assert_eq!(shard.restore(hash(2), 5, one(0), Moment(9)).full, 1);
    let old = shard.restore(hash(3), 5, one(LIFETIME + 100), Moment(9));
    assert_eq!((old.expired, old.idle_for), (1, Some(100)));
    assert!(shard.restore_idle(hash(3), 5, 100, Moment(9)));
    assert!(shard.restore_idle(hash(4), 1, 0, Moment(9)));
    assert!(!shard.restore_idle(hash(5), 1, 0, Moment(9)), "the shard is full");
    assert!(!shard.restore_idle(hash(6), 0, 0, Moment(9)), "it has no `completed`");
    shard.check();
    let totals = shard.totals();
    assert_eq!((totals.swarms, totals.idle_swarms, totals.peers()), (1, 2, 10));
    assert_eq!(totals.completed, 0, "restores do not count as downloads");
}
