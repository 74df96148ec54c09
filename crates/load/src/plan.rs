//! The requests of a run: a population and a mix of requests, both functions of a seed, and the
//! current state of each peer.
//!
//! With one worker, two plans of the same seed, profile and addresses give the same requests.

mod peer_states;
pub mod population;
pub mod profile;
mod sizes;
pub mod tail;

use std::fmt::Display;

use onrush_proto::options::Options;
use onrush_proto::{Announce, Event, Family, PeerId};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

use peer_states::PeerStates;

pub use population::{Member, Population};
pub use profile::Profile;

/// A population and the requests of its peers.
#[derive(Debug)]
pub struct Plan {
    /// The swarms and their peers.
    pub population: Population,
    /// The profile.
    pub profile: Profile,
    /// Cumulative shares of the kinds in 65536, in the order of [`Kind`].
    kinds: [u32; 5],
    peer_states: PeerStates,
    /// Cumulative shares of unusual announces, port 0 and the largest swarm, and of usual ones.
    odd: [u32; 3],
    /// Cumulative shares of unusable ids: unknown, foreign, zero.
    unusable: [u32; 3],
    /// Cumulative shares of junk, in the order of [`Broken`].
    junk: [u32; 4],
    /// Cumulative shares of the scrape sizes.
    scrapes: Vec<u32>,
    /// Cumulative shares of the clients.
    clients: Vec<u32>,
    seed: u64,
}

/// The kinds of requests in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// A connect.
    Connect,
    /// An announce.
    Announce,
    /// A scrape.
    Scrape,
    /// An announce with an invalid connection id, which deserves silence (BEP 15, "Connect").
    #[strum(serialize = "unusable id")]
    Unusable,
    /// A malformed datagram, which deserves silence.
    Junk,
}

impl Kind {
    /// All kinds, in the order of a report.
    pub const ALL: [Self; 5] =
        [Self::Connect, Self::Announce, Self::Scrape, Self::Unusable, Self::Junk];

    /// Whether it deserves a reply.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Connect | Self::Announce | Self::Scrape)
    }
}

/// A request without connection and transaction id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlannedRequest {
    /// A connect.
    Connect,
    /// An announce.
    Announce {
        /// The peer's number in its family.
        peer: u32,
        /// The event.
        event: Event,
        /// Whether the peer is a seeder now.
        seeder: bool,
    },
    /// A scrape.
    Scrape {
        /// Random number that determines the swarms, see [`Plan::scraped`].
        draw: u64,
        /// Number of swarms.
        hashes: u8,
    },
    /// An announce with a connection id that the tracker did not issue.
    Unusable {
        /// The peer's number in its family.
        peer: u32,
        /// The connection id.
        id: u64,
    },
    /// An announce with a connection id of another source address.
    Foreign {
        /// The peer's number in its family.
        peer: u32,
        /// Random number that determines the other address.
        draw: u64,
    },
    /// An announce with port 0, to which an error reply is right.
    PortZero {
        /// The peer's number in its family.
        peer: u32,
    },
    /// A malformed datagram; the random number determines its fault, see [`Plan::broken`].
    Junk(u64),
}

/// The fault of a malformed datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Fewer than 16 bytes.
    Short,
    /// A connect with a wrong magic number.
    Magic,
    /// An undefined action.
    Action,
    /// An announce of fewer than 98 bytes.
    Cut,
}

impl PlannedRequest {
    /// The kind under which it is counted.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Connect => Kind::Connect,
            Self::Announce { .. } | Self::PortZero { .. } => Kind::Announce,
            Self::Scrape { .. } => Kind::Scrape,
            Self::Unusable { .. } | Self::Foreign { .. } => Kind::Unusable,
            Self::Junk(_) => Kind::Junk,
        }
    }
}

impl Plan {
    /// A plan of `profile` over `population`.
    pub fn new(profile: Profile, population: Population, seed: u64) -> Self {
        let peers = [Family::V4, Family::V6].map(|family| population.peers(family));
        let peer_states = PeerStates::new(&profile, peers);
        let (port_zero, hot) = (profile.odd.port_zero, profile.odd.hot);
        Self {
            population,
            kinds: ends_of(profile.mix.weights()),
            peer_states,
            odd: ends_of([port_zero, hot, 1.0 - port_zero - hot]),
            unusable: ends_of(profile.unusable.weights()),
            junk: ends_of(profile.junk.weights()),
            scrapes: ends(profile.scrapes.iter().map(|scrape| scrape.weight)),
            clients: ends(profile.clients.iter().map(|client| client.weight)),
            profile,
            seed,
        }
    }

    /// The random number generator of worker number `worker`.
    pub fn chance(&self, worker: usize) -> SmallRng {
        SmallRng::seed_from_u64(population::mix(self.seed ^ (worker as u64 + 1)))
    }

    /// The next request from address number `address` of `family`; `None` when the population has
    /// no peers there.
    #[inline]
    pub fn next(
        &self,
        chance: &mut SmallRng,
        family: Family,
        address: u32,
    ) -> Option<PlannedRequest> {
        let draw: u64 = chance.random();
        let kind = draw as u32 & 0xFFFF;
        let peer = || self.population.pick(family, address, (draw >> 32) as u32);
        Some(match self.kinds.iter().position(|&end| kind < end) {
            Some(0) => PlannedRequest::Connect,
            Some(2) => {
                let size = (draw >> 16) as u32 & 0xFFFF;
                let nth = self.scrapes.iter().position(|&end| size < end)?;
                let hashes = self.profile.scrapes[nth].hashes;
                PlannedRequest::Scrape { draw: chance.random(), hashes }
            }
            Some(3) => self.unusable(peer()?, (draw >> 16) as u32 & 0xFFFF, chance.random()),
            Some(4) => PlannedRequest::Junk(chance.random()),
            _ => {
                let mut peer = peer()?;
                if self.odd[1] > 0 {
                    let odd: u64 = chance.random();
                    match self.odd.iter().position(|&end| (odd as u32 & 0xFFFF) < end) {
                        Some(0) => return Some(PlannedRequest::PortZero { peer }),
                        Some(1) => {
                            let hot = self.population.pick_hot(family, address, (odd >> 32) as u32);
                            peer = hot.unwrap_or(peer);
                        }
                        _ => {}
                    }
                }
                let traits = self.population.trait_of(family, peer);
                let (event, seeder) = self.peer_states.next(family, peer, traits, draw >> 16);
                PlannedRequest::Announce { peer, event, seeder }
            }
        })
    }

    fn unusable(&self, peer: u32, which: u32, draw: u64) -> PlannedRequest {
        match self.unusable.iter().position(|&end| which < end) {
            Some(1) => PlannedRequest::Foreign { peer, draw },
            Some(2) => PlannedRequest::Unusable { peer, id: 0 },
            _ => PlannedRequest::Unusable { peer, id: draw },
        }
    }

    /// The fault of a malformed datagram.
    #[inline]
    pub fn broken(&self, draw: u64) -> Broken {
        let which = (draw >> 48) as u32;
        let nth = self.junk.iter().position(|&end| which < end).unwrap_or(0);
        [Broken::Short, Broken::Magic, Broken::Action, Broken::Cut][nth]
    }

    /// The client software of a peer, which is constant.
    #[inline]
    pub fn client(&self, family: Family, peer: u32) -> &profile::Client {
        self.client_of(self.population.trait_of(family, peer))
    }

    /// [`Self::client`] by the peer's [`trait_of`](Population::trait_of).
    #[inline]
    pub fn client_of(&self, own: u64) -> &profile::Client {
        let draw = (own >> 16) as u32 & 0xFFFF;
        let at = self.clients.iter().position(|&end| draw < end).unwrap_or(0);
        &self.profile.clients[at]
    }

    /// Whether a peer begins as a seeder.
    #[inline]
    pub fn begins_as_seeder(&self, family: Family, peer: u32) -> bool {
        self.peer_states.begins_as_seeder(self.population.trait_of(family, peer))
    }

    /// The swarms of a scrape in order: those of random peers, as clients scrape their own swarms.
    #[inline]
    pub fn scraped(&self, draw: u64, hashes: u8) -> impl Iterator<Item = Member> + '_ {
        (0..u64::from(hashes))
            .map(move |n| self.population.random_member(population::mix(draw ^ n)))
    }
}

impl Plan {
    /// The announce of a peer with its event, as a seeder or not, without ids of BEP 15.
    #[inline]
    pub fn announced(&self, family: Family, peer: u32, event: Event, seeder: bool) -> Announce<'_> {
        let population = &self.population;
        let member = population.member(family, peer);
        let own = population.trait_of(family, peer);
        let client = self.client_of(own);
        let mut peer_id = [b'0'; 20];
        peer_id[..8].copy_from_slice(&client.prefix);
        peer_id[8..16].copy_from_slice(&own.to_be_bytes());
        Announce {
            info_hash: population.info_hash(member.swarm),
            peer_id: PeerId(peer_id),
            downloaded: own >> 34,
            left: if seeder { 0 } else { 1 + (own >> 40) },
            uploaded: own >> 36,
            event,
            key: own as u32,
            num_want: num_want(client.num_want, event),
            port: population.port(&member),
            options: Options(&client.options),
            ..Announce::default()
        }
    }

    /// Describes a request from address number `address`, for the examples of wrong replies.
    pub fn describe(
        &self,
        request: &PlannedRequest,
        family: Family,
        address: u32,
        target: &dyn Display,
    ) -> String {
        let source = self.population.addresses.get(family, address);
        match *request {
            PlannedRequest::Announce { peer, event, seeder } => {
                let member = self.population.member(family, peer);
                format!(
                    "announce from {source} port {} to {target}, {event:?}, left {}, num_want {}, \
                     {} of a swarm of {}",
                    self.population.port(&member),
                    u8::from(!seeder),
                    num_want(self.client(family, peer).num_want, event),
                    self.population.info_hash(member.swarm),
                    member.swarm_size(),
                )
            }
            PlannedRequest::Scrape { hashes, .. } => {
                format!("scrape of {hashes} swarms from {source} to {target}")
            }
            request => format!("{} from {source} to {target}", request.kind().as_ref()),
        }
    }
}

/// The number of peers wanted: 0 for a peer that stops.
#[inline]
pub fn num_want(of_client: i32, event: Event) -> i32 {
    if event == Event::Stopped { 0 } else { of_client }
}

/// Cumulative shares of `weights` in 65536; all 0 where these are 0.
fn ends(weights: impl Iterator<Item = f64> + Clone) -> Vec<u32> {
    let scale = 65_536.0 / weights.clone().sum::<f64>().max(1e-9);
    let mut sum = 0.0;
    let running = |weight: f64| {
        sum += weight * scale;
        sum.round() as u32
    };
    weights.map(running).collect()
}

/// [`ends`] of a fixed number of weights.
fn ends_of<const N: usize>(weights: [f64; N]) -> [u32; N] {
    ends(weights.into_iter()).try_into().expect("as many shares as weights")
}

#[cfg(test)]
mod tests {
    use super::population::Addresses;
    use super::profile::Swarms;
    use super::*;
    use proptest::prelude::*;

    fn plan(profile: Profile, seed: u64) -> Plan {
        let addresses: Vec<_> = (1..=8u8).map(|n| [127, 0, 0, n].into()).collect();
        let swarms = Swarms { count: 10_000, ..profile.swarms };
        let population = Population::new(&swarms, 0.0, Addresses::new(&addresses), seed, false);
        Plan::new(profile, population, seed)
    }

    fn shares(plan: &Plan, draws: usize) -> [f64; 5] {
        let mut chance = plan.chance(0);
        let mut counts = [0usize; 5];
        for n in 0..draws {
            let request = plan.next(&mut chance, Family::V4, n as u32 % 8).unwrap();
            counts[request.kind() as usize] += 1;
        }
        counts.map(|count| count as f64 / draws as f64)
    }

    #[test]
    fn mixes_have_their_shares() {
        for (name, shares_of, meant) in [
            ("real", Profile::real(), [0.22, 0.70, 0.02, 0.04, 0.02]),
            (
                "classic",
                Profile::named("classic").unwrap(),
                [50.0, 50.0, 1.0, 0.0, 0.0].map(|part| part / 101.0),
            ),
        ] {
            let found = shares(&plan(shares_of, 1), 200_000);
            for (found, meant) in found.into_iter().zip(meant) {
                assert!((found - meant).abs() < 0.004, "{name}: {found} is not {meant}");
            }
        }
    }

    #[test]
    fn events_and_clients_have_the_shares_of_the_profile() {
        let plan = plan(Profile::real(), 5);
        let mut chance = plan.chance(0);
        let (mut announces, mut plain, mut seeders) = (0.0, 0.0, 0.0);
        let mut lengths = std::collections::BTreeMap::new();
        for n in 0..200_000 {
            let Some(PlannedRequest::Announce { peer, event, seeder }) =
                plan.next(&mut chance, Family::V4, n % 8)
            else {
                continue;
            };
            announces += 1.0;
            plain += f64::from(u8::from(event == Event::None));
            seeders += f64::from(u8::from(seeder));
            *lengths.entry(plan.client(Family::V4, peer).options.len()).or_insert(0.0) += 1.0;
        }
        let profile = &plan.profile;
        let events = &profile.events;
        let with_event = events.turnover() + events.stopped + events.completed + events.paused;
        assert!((plain / announces - (1.0 - with_event)).abs() < 0.004, "{plain} of {announces}");
        // The variance of a population of 13,000 peers exceeds that of the draws.
        assert!((seeders / announces - profile.seeders).abs() < 0.02);
        for (len, count) in &lengths {
            let of_len = profile.clients.iter().filter(|client| client.options.len() == *len);
            let meant: f64 = of_len.map(|client| client.weight).sum::<f64>() / 100.0;
            assert!((count / announces - meant).abs() < 0.02, "{len} bytes of options");
        }
        assert_eq!(lengths.keys().copied().collect::<Vec<_>>(), [0, 2, 11, 32]);
    }

    proptest! {
        #[test]
        fn a_seed_determines_all_requests(seed: u64, worker in 0usize..4) {
            let (one, two) = (plan(Profile::real(), seed), plan(Profile::real(), seed));
            let (mut a, mut b) = (one.chance(worker), two.chance(worker));
            for n in 0..200 {
                let request = one.next(&mut a, Family::V4, n % 8);
                prop_assert_eq!(request, two.next(&mut b, Family::V4, n % 8));
                if let Some(PlannedRequest::Announce { peer, .. }) = request {
                    let hash = |plan: &Plan| {
                        let member = plan.population.member(Family::V4, peer);
                        (plan.population.info_hash(member.swarm), plan.population.port(&member))
                    };
                    prop_assert_eq!(hash(&one), hash(&two));
                }
            }
        }

        #[test]
        fn another_seed_is_another_plan(seed: u64) {
            let (one, two) = (plan(Profile::real(), seed), plan(Profile::real(), seed ^ 1));
            prop_assert_ne!(one.population.info_hash(0), two.population.info_hash(0));
            let (mut a, mut b) = (one.chance(0), two.chance(0));
            let mut differs = false;
            for n in 0..50 {
                let (a, b) = (
                    one.next(&mut a, Family::V4, n % 8),
                    two.next(&mut b, Family::V4, n % 8),
                );
                differs |= a != b;
            }
            prop_assert!(differs);
        }
    }
}
