//! Swarms of WebRTC peers: any sequence of operations has the result of a naive model.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use onrush_proto::{InfoHash, PeerId, ScrapeCounts};
use onrush_testing::memory_tracker::{rules, settings};
use onrush_web::webtorrent::interval;
use onrush_web::webtorrent::swarms::{Announce, Announced, OtherPeerId, Socket, Swarms, Totals};
use proptest::collection::vec;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

#[derive(Clone, Debug)]
enum Step {
    Announce(Announce),
    /// Consecutive connections to a swarm, with peer ids of their own, every third one a seeder.
    Crowd(u8, Range<u8>),
    Remove(Socket, InfoHash),
    /// At most so many members.
    Choose(Socket, InfoHash, usize),
    /// So many seconds.
    Wait(u32),
    /// Looks at so many members and swarms.
    Sweep(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (swarm, socket) = (&|| (0u8..3).prop_map(hash), &|| (0u8..60).prop_map(socket));
    let numbers = (0u8..3, 0u8..60, 0u8..4);
    let step = prop_oneof![
        8 => (numbers, any::<Option<bool>>(), any::<bool>())
            .prop_map(|((swarm, socket, peer_id), seeder, completed)| {
                Step::Announce(Announce { completed, ..announce(swarm, socket, peer_id, seeder) })
            }),
        2 => (0u8..3, 0u8..60, 0u8..40)
            .prop_map(|(swarm, from, members)| Step::Crowd(swarm, from..from + members)),
        8 => (socket(), swarm()).prop_map(|(socket, hash)| Step::Remove(socket, hash)),
        4 => (socket(), swarm(), 0usize..30)
            .prop_map(|(socket, hash, want)| Step::Choose(socket, hash, want)),
        2 => (0u32..400).prop_map(Step::Wait),
        2 => prop_oneof![0usize..40, Just(ALL)].prop_map(Step::Sweep),
    ];
    vec(step, 0..120)
}

fn hash(swarm: u8) -> InfoHash {
    InfoHash([swarm; 20])
}

fn socket(number: u8) -> Socket {
    let number = u32::from(number);
    Socket { worker: (number % 2) as u16, slot: number / 3, generation: number % 3 }
}

/// Six connections have the same address.
fn client(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, number / 6).into()
}

fn announce(swarm: u8, number: u8, peer_id: u8, seeder: Option<bool>) -> Announce {
    Announce {
        info_hash: hash(swarm),
        socket: socket(number),
        client: client(number),
        peer_id: PeerId([peer_id; 20]),
        seeder,
        completed: false,
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ModelMember {
    client: IpAddr,
    peer_id: PeerId,
    is_seeder: bool,
    announced: u32,
}

#[derive(Default)]
pub(crate) struct Model(BTreeMap<InfoHash, (u32, BTreeMap<Socket, ModelMember>)>);

impl Model {
    pub(crate) fn announce(&mut self, it: &Announce, now: u32) -> Result<Announced, OtherPeerId> {
        let (completed, members) = self.0.entry(it.info_hash).or_default();
        let own = members.get(&it.socket).copied();
        if own.is_some_and(|own| own.peer_id != it.peer_id) {
            return Err(OtherPeerId);
        }
        let is_same =
            |other: &ModelMember| (other.client, other.peer_id) == (it.client, it.peer_id);
        let earlier = members.iter().find(|(_, other)| is_same(other));
        let earlier = earlier.map(|(socket, member)| (*socket, *member));
        let was_seeder = earlier.is_some_and(|(_, earlier)| earlier.is_seeder);
        let is_seeder = it.seeder.unwrap_or(was_seeder);
        if let Some((socket, _)) = earlier {
            members.remove(&socket);
        }
        let Announce { client, peer_id, .. } = *it;
        members.insert(it.socket, ModelMember { client, peer_id, is_seeder, announced: now });
        let was_leecher = earlier.is_some() && !was_seeder;
        *completed += u32::from(it.completed && is_seeder && was_leecher);
        let replaced = earlier.map(|(socket, _)| socket).filter(|socket| *socket != it.socket);
        Ok(Announced { replaced, counts: self.counts(&it.info_hash) })
    }

    pub(crate) fn remove(&mut self, socket: Socket, info_hash: &InfoHash) -> bool {
        let Some((_, members)) = self.0.get_mut(info_hash) else { return false };
        let removed = members.remove(&socket).is_some();
        self.0.retain(|_, (_, members)| !members.is_empty());
        removed
    }

    pub(crate) fn counts(&self, info_hash: &InfoHash) -> ScrapeCounts {
        let Some((completed, members)) = self.0.get(info_hash) else {
            return ScrapeCounts::default();
        };
        let seeders = members.values().filter(|member| member.is_seeder).count();
        let leechers = (members.len() - seeders) as u32;
        ScrapeCounts { seeders: seeders as u32, completed: *completed, leechers }
    }

    fn totals(&self) -> Totals {
        let members = || self.0.values().flat_map(|(_, members)| members.values());
        let seeders = members().filter(|member| member.is_seeder).count();
        Totals { swarms: self.0.len(), seeders, leechers: members().count() - seeders }
    }

    pub(crate) fn candidates(&self, info_hash: &InfoHash, socket: Socket) -> BTreeSet<Socket> {
        let Some((_, members)) = self.0.get(info_hash) else { return BTreeSet::new() };
        let Some(own) = members.get(&socket) else { return BTreeSet::new() };
        let others = members
            .iter()
            .filter(|(other, member)| **other != socket && !(own.is_seeder && member.is_seeder));
        others.map(|(other, _)| *other).collect()
    }

    fn silent(&self, now: u32, silence: u32) -> BTreeSet<(Socket, InfoHash)> {
        let members = self.0.iter().flat_map(|(hash, (_, members))| {
            members.iter().map(|(socket, member)| ((*socket, *hash), member.announced))
        });
        members.filter(|(_, announced)| now - announced > silence).map(|(it, _)| it).collect()
    }
}

const SILENCE: u32 = 700;
/// More than all members and swarms.
const ALL: usize = 1_000;

proptest! {
    #[test]
    fn swarms_are_like_the_model(steps in steps(), key: [u8; 16], seed: u64) {
        let (mut swarms, mut model) = (Swarms::new(key), Model::default());
        let (mut rng, mut now) = (SmallRng::seed_from_u64(seed), 5_000);
        for step in steps {
            match step {
                Step::Announce(it) => {
                    prop_assert_eq!(swarms.announce(&it, now), model.announce(&it, now));
                }
                Step::Crowd(swarm, members) => for number in members {
                    let it = announce(swarm, number, 100 + number, Some(number % 3 == 0));
                    prop_assert_eq!(swarms.announce(&it, now), model.announce(&it, now));
                },
                Step::Remove(socket, hash) => {
                    prop_assert_eq!(swarms.remove(socket, &hash), model.remove(socket, &hash));
                }
                Step::Choose(socket, hash, want) => {
                    let mut chosen = Vec::new();
                    swarms.choose(&hash, socket, want, &mut rng, |it| chosen.push(it));
                    let candidates = model.candidates(&hash, socket);
                    let different = chosen.iter().copied().collect::<BTreeSet<_>>();
                    prop_assert!(different.is_subset(&candidates), "{different:?}, {candidates:?}");
                    prop_assert_eq!(different.len(), want.min(candidates.len()));
                    prop_assert_eq!(different.len(), chosen.len());
                }
                Step::Wait(seconds) => now += seconds,
                Step::Sweep(work) => {
                    let mut expired = Vec::new();
                    swarms.sweep(now, SILENCE, work, &mut expired);
                    let silent = model.silent(now, SILENCE);
                    let removed = expired.iter().copied().collect::<BTreeSet<_>>();
                    prop_assert!(removed.is_subset(&silent) && removed.len() == expired.len());
                    prop_assert!(work < ALL || removed == silent);
                    for (socket, hash) in removed {
                        model.remove(socket, &hash);
                    }
                }
            }
            prop_assert_eq!(swarms.totals(), model.totals());
            for swarm in 0..3 {
                prop_assert_eq!(swarms.counts(&hash(swarm)), model.counts(&hash(swarm)));
            }
        }
    }
}

#[test]
fn each_other_member_is_chosen_equally_often() {
    let (mut swarms, mut rng) = (Swarms::new([7; 16]), SmallRng::seed_from_u64(1));
    for number in 0..40 {
        swarms.announce(&announce(0, number, number, Some(number < 20)), 0).unwrap();
    }
    for (announcer, candidates, expected) in [(3, 20..40, 5_000), (23, 0..40, 2_564)] {
        let mut counts = BTreeMap::new();
        for _ in 0..20_000 {
            swarms.choose(&hash(0), socket(announcer), 5, &mut rng, |it| {
                *counts.entry(it).or_insert(0) += 1;
            });
        }
        for number in candidates.filter(|number| *number != announcer) {
            let count: i32 = counts.remove(&socket(number)).unwrap_or(0);
            // The deviation is 61 at most.
            assert!(count.abs_diff(expected) < 400, "{number} was chosen {count} times");
        }
        assert!(counts.is_empty(), "others were chosen: {counts:?}");
    }
}

/// In steps of bounded work, each member is looked at once: 900 members of 30 swarms.
#[test]
fn a_pass_of_sweeps_finds_all() {
    let mut swarms = Swarms::new([7; 16]);
    for number in 0..900u32 {
        let socket = Socket { worker: 0, slot: number, generation: 1 };
        let peer_id = PeerId([number as u8; 20]);
        let client = IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
        let info_hash = hash((number % 30) as u8);
        let (seeder, completed) = (Some(number % 7 == 0), false);
        let announce = Announce { info_hash, socket, client, peer_id, seeder, completed };
        swarms.announce(&announce, number % 2 * 1_000).unwrap();
    }
    let mut expired = Vec::new();
    swarms.sweep(1_000, 1_000, 930, &mut expired);
    assert_eq!(expired, []);
    for _ in 0..930 / 10 {
        let before = expired.len();
        swarms.sweep(1_000, 999, 10, &mut expired);
        assert!(expired.len() - before <= 10);
    }
    assert_eq!(expired.len(), 450);
    assert!(expired.iter().all(|(socket, _)| socket.slot % 2 == 0));
    assert_eq!(swarms.totals().seeders + swarms.totals().leechers, 450);
}

#[test]
fn intervals_and_silence_become_longer_with_those_of_other_peers() {
    let mut rules = rules(&settings("[announce]\ninterval = 1_000\npeer_lifetime = 3_000\n"));
    rules.shard.interval_jitter_percent = 5;
    assert_eq!(interval::in_force(120, &rules), 114..=126);
    let silences = [0, 120, 201, u32::MAX].map(|of| interval::max_silence(of, &rules));
    assert_eq!(silences, [600, 600, 633, u32::MAX]);
    (rules.shard.interval, rules.shard.peer_lifetime) = (3_000, 9_000);
    assert_eq!(interval::in_force(120, &rules), 342..=378);
    assert_eq!(interval::max_silence(120, &rules), 1_800);
    // Peers have been sent longer intervals than the present one.
    rules.shard.interval = 1_000;
    assert_eq!(interval::max_silence(300, &rules), 2_700);
}
