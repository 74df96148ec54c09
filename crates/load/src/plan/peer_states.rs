//! The current state of each peer, and its next announce.
//!
//! ```text
//!              started (share a of them)          stopped, or vanished
//!   absent ---------------------------> seeder ------------------------> absent
//!      \                                  ^
//!       \ started                         | completed
//!        \-------------------------> leecher ---- stopped, or vanished ---> absent
//! ```
//!
//! Two bits per peer, shared by all workers: 0 is the initial state, a function of the peer, so
//! that shares are stationary from the first second on. All shares are of announces with a valid
//! connection id. With d = stopped + vanished, S = seeders and c = completed:
//!
//! - an absent peer announces `started` next, so the share d of all announces does, and the share
//!   d of all peers is absent;
//! - seeders arrive at the rate d a + c and leave at d S, so a = S - c / d keeps S constant.

use std::sync::atomic::{AtomicU32, Ordering};

use onrush_proto::{Event, Family};

use super::population::mix;
use super::profile::Profile;

/// States in one word.
const PER_WORD: u64 = 16;

/// The state of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Leecher = 1,
    Seeder = 2,
    Absent = 3,
}

/// The states of all peers.
#[derive(Debug)]
pub(super) struct PeerStates {
    /// Empty where no peer ever changes.
    words: Vec<AtomicU32>,
    /// Number of IPv4 peers, which precede those of IPv6.
    four: u64,
    chances: Chances,
}

/// Cumulative shares in 65536.
#[derive(Debug)]
struct Chances {
    /// Absent peers at the start of the run, among all peers.
    absent: u64,
    /// Seeders at the start of the run, among present peers.
    seeders: u64,
    /// Seeders among arriving peers.
    arrives_as_seeder: u64,
    /// Stopped and vanished, among announces of present peers.
    leaves: [u64; 2],
    /// Completed and paused, above `leaves`, among announces of present leechers.
    leecher: [u64; 2],
}

impl Chances {
    fn new(profile: &Profile) -> Self {
        let (events, seeders) = (&profile.events, profile.seeders);
        let turnover = events.turnover();
        let present = 1.0 - turnover;
        let leechers = present * (1.0 - seeders);
        let of_leechers = |share: f64| if share > 0.0 { share / leechers } else { 0.0 };
        let end = |share: f64| (share * 65_536.0).round() as u64;
        let arrives = match turnover > 0.0 {
            true => seeders - events.completed / turnover,
            false => seeders,
        };
        let leaving = turnover / present;
        let completed = leaving + of_leechers(events.completed);
        Self {
            absent: end(turnover),
            seeders: end(seeders),
            arrives_as_seeder: end(arrives.max(0.0)),
            leaves: [end(events.stopped / present), end(leaving)],
            leecher: [end(completed), end(completed + of_leechers(events.paused))],
        }
    }

    /// The event that a peer in state `now` announces, whether as a seeder, and its next state.
    #[inline]
    fn step(&self, now: State, draw: u64) -> (Event, bool, State) {
        let chance = draw & 0xFFFF;
        let seeder = now == State::Seeder;
        if now == State::Absent {
            // Mixed, as the caller has used bits of `draw`.
            return match mix(draw) & 0xFFFF < self.arrives_as_seeder {
                true => (Event::Started, true, State::Seeder),
                false => (Event::Started, false, State::Leecher),
            };
        }
        if chance < self.leaves[1] {
            let stopped = chance < self.leaves[0];
            return (if stopped { Event::Stopped } else { Event::None }, seeder, State::Absent);
        }
        match now {
            State::Leecher if chance < self.leecher[0] => (Event::Completed, true, State::Seeder),
            State::Leecher if chance < self.leecher[1] => (Event::Paused, false, now),
            _ => (Event::None, seeder, now),
        }
    }
}

impl PeerStates {
    /// The states of `peers` peers per family.
    pub(super) fn new(profile: &Profile, peers: [u32; 2]) -> Self {
        let four = u64::from(peers[0]);
        let changes = profile.events.turnover() + profile.events.completed > 0.0;
        let all = if changes { four + u64::from(peers[1]) } else { 0 };
        let words = (0..all.div_ceil(PER_WORD)).map(|_| AtomicU32::new(0)).collect();
        Self { words, four, chances: Chances::new(profile) }
    }

    /// Whether a peer with these traits starts as a seeder, if it starts present.
    #[inline]
    pub(super) fn begins_as_seeder(&self, traits: u64) -> bool {
        traits & 0xFFFF < self.chances.seeders
    }

    /// The next announce of a peer: its event, and whether it is a seeder. `traits` are the peer's
    /// constant random bits; `draw` decides, mostly by its lowest 16 bits.
    #[inline]
    pub(super) fn next(&self, family: Family, peer: u32, traits: u64, draw: u64) -> (Event, bool) {
        let number = u64::from(peer) + if family == Family::V6 { self.four } else { 0 };
        let Some(word) = self.words.get((number / PER_WORD) as usize) else {
            let (event, seeder, _) = self.chances.step(self.beginning(traits), draw);
            return (event, seeder);
        };
        let shift = number % PER_WORD * 2;
        // Relaxed, as no other memory depends on this word.
        let mut found = word.load(Ordering::Relaxed);
        loop {
            let now = match found >> shift & 3 {
                1 => State::Leecher,
                2 => State::Seeder,
                3 => State::Absent,
                _ => self.beginning(traits),
            };
            let (event, seeder, then) = self.chances.step(now, draw);
            if then == now {
                return (event, seeder);
            }
            let changed = found & !(3 << shift) | (then as u32) << shift;
            match word.compare_exchange_weak(found, changed, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return (event, seeder),
                Err(by_another) => found = by_another,
            }
        }
    }

    /// The initial state of a peer.
    #[inline]
    fn beginning(&self, traits: u64) -> State {
        if traits >> 32 & 0xFFFF < self.chances.absent {
            State::Absent
        } else if self.begins_as_seeder(traits) {
            State::Seeder
        } else {
            State::Leecher
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::profile::{Events, consistency};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn profile(seeders: f64, events: Events) -> Profile {
        Profile { seeders, events, ..Profile::real() }
    }

    /// Announces of random peers: the peer, the event, whether as a seeder.
    fn announces(profile: &Profile, peers: u32, count: u64) -> Vec<(u32, Event, bool)> {
        let peer_states = PeerStates::new(profile, [peers, 0]);
        let one = |n: u64| {
            let peer = (mix(n) % u64::from(peers)) as u32;
            let (event, seeder) =
                peer_states.next(Family::V4, peer, mix(!u64::from(peer)), mix(mix(n)));
            (peer, event, seeder)
        };
        (0..count).map(one).collect()
    }

    fn share(of: &[(u32, Event, bool)], which: impl Fn(&(u32, Event, bool)) -> bool) -> f64 {
        of.iter().filter(|one| which(one)).count() as f64 / of.len() as f64
    }

    /// The state of a peer as a tracker can infer it from the announces alone.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Inferred {
        Unknown,
        Present { seeder: bool, may_be_absent: bool },
        Absent,
    }

    /// The inferred state after an announce; `None` when the announce contradicts the state.
    fn infer(state: Inferred, event: Event, seeder: bool) -> Option<Inferred> {
        use Inferred::{Absent, Present, Unknown};
        let present = |seeder, may_be_absent| Some(Present { seeder, may_be_absent });
        match (state, event) {
            (Unknown | Absent, Event::Started) => present(seeder, false),
            (Present { may_be_absent: true, .. }, Event::Started) => present(seeder, false),
            (Present { .. }, Event::Started) => None,
            (Absent, _) => None,
            (Present { seeder: true, .. }, Event::Completed | Event::Paused) => None,
            (_, Event::Completed) => seeder.then_some(Present { seeder, may_be_absent: false }),
            (Present { seeder: was, .. }, _) if was != seeder => None,
            (_, Event::Stopped) => Some(Absent),
            (_, Event::Paused) if seeder => None,
            (_, Event::Paused) => present(false, false),
            (_, Event::None) => present(seeder, true),
        }
    }

    #[test]
    fn shares_are_those_of_the_profile_from_the_start() {
        let profile = Profile::real();
        let all = announces(&profile, 20_000, 1_000_000);
        for part in all.chunks(200_000) {
            let near = |found: f64, meant: f64, by: f64| {
                assert!((found - meant).abs() < by, "{found} is not {meant}");
            };
            let of = |event| share(part, |one| one.1 == event);
            near(of(Event::Started), 0.03, 0.003);
            near(of(Event::Stopped), 0.02, 0.003);
            near(of(Event::Completed), 0.01, 0.002);
            near(of(Event::Paused), 0.01, 0.002);
            // The variance of the population exceeds that of the draws.
            near(share(part, |one| one.2), profile.seeders, 0.015);
        }
    }

    #[test]
    fn without_turnover_no_peer_changes() {
        let events = Events { stopped: 0.0, vanished: 0.0, completed: 0.0, paused: 0.0 };
        let profile = profile(0.75, events);
        let all = announces(&profile, 500, 50_000);
        let mut was = HashMap::new();
        for (peer, event, seeder) in all {
            assert_eq!(event, Event::None);
            assert_eq!(*was.entry(peer).or_insert(seeder), seeder);
        }
        assert!(PeerStates::new(&profile, [500, 0]).words.is_empty(), "states are stored");
    }

    #[test]
    fn workers_share_the_states() {
        let peer_states = PeerStates::new(&Profile::real(), [64, 0]);
        let counts = std::thread::scope(|scope| {
            let run = |worker: u64| {
                let peer_states = &peer_states;
                move || {
                    let mut counts = [0i64; 64];
                    for n in 0..200_000 {
                        let draw = mix(worker << 40 | n);
                        let peer = (draw >> 32) as u32 % 64;
                        let traits = mix(!u64::from(peer));
                        let (event, _) = peer_states.next(Family::V4, peer, traits, mix(draw));
                        counts[peer as usize] += match event {
                            Event::Started => 1,
                            Event::Stopped => -1,
                            _ => 0,
                        };
                    }
                    counts
                }
            };
            let workers: Vec<_> = (0..2).map(|worker| scope.spawn(run(worker))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
        });
        // Each stop follows a start, except for peers that were present at first.
        for (one, two) in counts[0].iter().zip(&counts[1]) {
            assert!(one + two >= -1, "{one} {two}");
        }
    }

    proptest! {
        #[test]
        fn announces_of_a_peer_are_consistent(
            seeders in 0.0f64..1.0, stopped in 0.0f64..0.2, vanished in 0.0f64..0.2,
            part in 0.0f64..1.0, peers in 1u32..200,
        ) {
            let events = Events { stopped, vanished, completed: 1.0, paused: 0.3 };
            let mut profile = profile(0.0, events);
            profile.set_seeders(seeders);
            profile.events.completed *= part;
            prop_assert_eq!(consistency::contradictions(&profile), []);
            let mut states = HashMap::new();
            for (peer, event, seeder) in announces(&profile, peers, 20_000) {
                let was = states.entry(peer).or_insert(Inferred::Unknown);
                let now = infer(*was, event, seeder);
                prop_assert!(now.is_some(), "{:?} announces {:?}, seeder {}", was, event, seeder);
                *was = now.unwrap();
            }
        }
    }

    proptest! {
        // A case has 400,000 announces.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_share_of_seeders_is_stationary(
            seeders in 0.05f64..0.95, turnover in 0.02f64..0.3, part in 0.0f64..1.0,
        ) {
            let half = turnover / 2.0;
            let events = Events { stopped: half, vanished: half, completed: 1.0, paused: 0.0 };
            let mut profile = profile(0.0, events);
            profile.set_seeders(seeders);
            profile.events.completed *= part;
            let all = announces(&profile, 5_000, 400_000);
            let late = &all[200_000..];
            let found = share(late, |one| one.2);
            prop_assert!((found - seeders).abs() < 0.03, "{} seeders, not {}", found, seeders);
            let found = share(late, |one| one.1 == Event::Completed);
            prop_assert!((found - profile.events.completed).abs() < 0.01);
        }
    }
}
