//! The population: swarms and their peers as a function of a seed, without memory per peer.
//!
//! Swarms are numbered by rank, largest first. Within each family peers are numbered swarm by
//! swarm, so the peers of a swarm are a range of numbers. Swarms of one size form a *class*; there
//! are some hundred classes for any number of peers, and a peer's swarm is found by a search over
//! the classes and one division.
//!
//! Peer number `n` announces from address number `n mod addresses`. The peers of a swarm at one
//! address differ by their ports, which count up from a keyed start. So an endpoint in a peer list
//! identifies the only peer of the swarm that may have it: address and port give the peer's place,
//! and an endpoint whose place is outside of the swarm is wrong.
//!
//! A table of peers would take tens of megabytes for a million swarms and a cache miss for each
//! peer that is checked. Random ports in a table would need a second table to find a peer by its
//! endpoint; ports with a checksum cannot tell two peers of one swarm apart. Info hashes depend on
//! the addresses and on all figures of the population: a tracker that still holds peers of an
//! earlier run would otherwise list and count them, which would look like a fault of the tracker.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use onrush_proto::{Family, InfoHash};

use super::profile::Swarms;

/// The lowest port of a peer.
const FIRST_PORT: u32 = 1024;
/// Number of ports, which bounds the peers of a swarm at one address.
const PORTS: u32 = 65_536 - FIRST_PORT;

/// Swarms and their peers.
#[derive(Debug)]
pub struct Population {
    key: u64,
    classes: Vec<Class>,
    /// Number of swarms.
    pub swarms: u32,
    /// Peers per family.
    peers: [u32; 2],
    /// Number of peers of one family in the largest swarm.
    pub largest: u32,
    /// The addresses of the peers.
    pub addresses: Addresses,
}

/// A peer's place in its swarm, and the swarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The swarm's number.
    pub swarm: u32,
    /// The swarm's peers per family, IPv4 and IPv6.
    pub sizes: [u32; 2],
    /// The peer's family.
    pub family: Family,
    /// The first peer's number in this family.
    pub first: u32,
    /// The peer's place among those of its family, from 0.
    pub place: u32,
}

impl Member {
    /// Peers of the swarm in both families.
    pub fn swarm_size(&self) -> u32 {
        self.sizes[0] + self.sizes[1]
    }
}

/// Swarms of one size.
#[derive(Clone, Copy, Debug)]
struct Class {
    first_swarm: u32,
    /// Peers per family before this class.
    first_peer: [u32; 2],
    /// Peers per family in each of its swarms.
    sizes: [u32; 2],
}

impl Population {
    /// A population of `swarms`, with the share `v6` (0 to 1) of peers at IPv6 addresses. A family
    /// without addresses has no peers. Info hashes depend on all figures of the population, so that
    /// peers of an earlier run with another population are in other swarms; with `strangers` they
    /// depend on the seed and the number of swarms only, so that several load testers share swarms.
    pub fn new(swarms: &Swarms, v6: f64, addresses: Addresses, seed: u64, strangers: bool) -> Self {
        let v6 = match (addresses.count(Family::V4), addresses.count(Family::V6)) {
            (_, 0) => 0.0,
            (0, _) => 1.0,
            _ => v6,
        };
        let mut key = mix(seed ^ mix(u64::from(swarms.count)));
        if !strangers {
            let tail = swarms.tail as u64;
            for part in [swarms.mean.to_bits(), swarms.exponent.to_bits(), tail, v6.to_bits()] {
                key = mix(key ^ part);
            }
            key = mix(key ^ addresses.fingerprint());
        }
        Self::of(swarms, (v6, PORTS), addresses, key)
    }

    /// A population of `swarms` in which each of `connections` has one peer of a swarm at most: in
    /// place of addresses it has their numbers, and all peers are of one family.
    pub fn of_connections(swarms: &Swarms, connections: u32, seed: u64) -> Self {
        let numbers = (0..connections).map(|number| Ipv4Addr::from_bits(number).into());
        let addresses = Addresses::new(&numbers.collect::<Vec<IpAddr>>());
        Self::of(swarms, (0.0, 1), addresses, mix(seed ^ mix(u64::from(connections))))
    }

    /// A population with up to `most` peers of a swarm at one address.
    fn of(swarms: &Swarms, (v6, most): (f64, u32), addresses: Addresses, key: u64) -> Self {
        let mut population =
            Self { key, classes: Vec::new(), swarms: 0, peers: [0; 2], largest: 0, addresses };
        // Fraction of an IPv6 peer that rounding has left over, below 1.
        let mut remainder = 0.0;
        for (size, count) in swarms.sizes() {
            population.add(size, count, (v6, most), &mut remainder);
        }
        population
    }

    /// Adds `count` swarms of `size` peers, of which the share `v6` is at IPv6 addresses on
    /// average.
    fn add(&mut self, size: u32, count: u32, (v6, most): (f64, u32), remainder: &mut f64) {
        let each = f64::from(size) * v6;
        let low = each.floor();
        let more = (each - low) * f64::from(count) + *remainder;
        let with_more = (more.round() as u32).min(count);
        *remainder = more - f64::from(with_more);
        let low = low as u32;
        let cap = |family, size: u32| size.min(self.addresses.count(family).saturating_mul(most));
        for (six, swarms) in [(low, count - with_more), (low + 1, with_more)] {
            if swarms == 0 {
                continue;
            }
            let sizes = [cap(Family::V4, size.saturating_sub(six)), cap(Family::V6, six)];
            self.classes.push(Class { first_swarm: self.swarms, first_peer: self.peers, sizes });
            self.swarms += swarms;
            self.largest = self.largest.max(sizes[0]).max(sizes[1]);
            for (peers, size) in self.peers.iter_mut().zip(sizes) {
                *peers += size * swarms;
            }
        }
    }

    /// Number of peers of a family.
    pub fn peers(&self, family: Family) -> u32 {
        self.peers[family as usize]
    }

    /// Number of addresses of a family without peers.
    pub fn unused(&self, family: Family) -> u32 {
        self.addresses.count(family).saturating_sub(self.peers(family))
    }

    /// A uniformly random peer at address number `address`; `None` when no peer has this address.
    #[inline]
    pub fn pick(&self, family: Family, address: u32, draw: u32) -> Option<u32> {
        self.pick_below(self.peers[family as usize], family, address, draw)
    }

    /// A random peer of the largest swarm at address number `address`; `None` when it has none.
    #[inline]
    pub fn pick_hot(&self, family: Family, address: u32, draw: u32) -> Option<u32> {
        let largest = self.classes.first()?.sizes[family as usize];
        self.pick_below(largest, family, address, draw)
    }

    /// A random one of the first `peers` peers that have this address.
    #[inline]
    fn pick_below(&self, peers: u32, family: Family, address: u32, draw: u32) -> Option<u32> {
        let addresses = self.addresses.count(family);
        let here = peers.checked_sub(address + 1)? / addresses + 1;
        // Multiply and shift picks below `here` without a division (Lemire, 2019).
        let nth = ((u64::from(draw) * u64::from(here)) >> 32) as u32;
        Some(address + nth * addresses)
    }

    /// A uniformly random peer of either family.
    #[inline]
    pub fn random_member(&self, draw: u64) -> Member {
        let all = u64::from(self.peers[0]) + u64::from(self.peers[1]);
        let nth = (((draw >> 32) * all) >> 32) as u32;
        match nth.checked_sub(self.peers[0]) {
            None => self.member(Family::V4, nth),
            Some(nth) => self.member(Family::V6, nth),
        }
    }

    /// The swarm and place of a peer. Panics when there is no such peer.
    #[inline]
    pub fn member(&self, family: Family, peer: u32) -> Member {
        let f = family as usize;
        let after = self.classes.partition_point(|class| class.first_peer[f] <= peer);
        let class = &self.classes[after - 1];
        let within = peer - class.first_peer[f];
        let (nth, place) = (within / class.sizes[f], within % class.sizes[f]);
        Member {
            swarm: class.first_swarm + nth,
            sizes: class.sizes,
            family,
            first: peer - place,
            place,
        }
    }

    /// The peer of a swarm at address number `address`, in a population of connections.
    #[inline]
    pub fn peer_at(&self, address: u32, of: &Member) -> Option<u32> {
        let count = self.addresses.count(of.family);
        let place = (address + count - of.first % count) % count;
        (place < of.sizes[of.family as usize]).then_some(of.first + place)
    }

    /// The info hash of a swarm.
    #[inline]
    pub fn info_hash(&self, swarm: u32) -> InfoHash {
        let mut bytes = [0; 24];
        for (n, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            let word = mix(self.key ^ (u64::from(swarm) << 8 | n as u64));
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        InfoHash(*bytes.first_chunk().expect("20 of 24 bytes"))
    }

    /// Writes the info hash of every swarm, a line of 40 hexadecimal digits each: the format of
    /// opentracker's `access.whitelist` and of aquatic's access list.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_hashes(&self, file: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(file)?);
        for swarm in 0..self.swarms {
            writeln!(file, "{}", self.info_hash(swarm))?;
        }
        file.flush()
    }

    /// The port that a peer announces: never below 1024.
    #[inline]
    pub fn port(&self, member: &Member) -> u16 {
        let count = self.addresses.count(member.family);
        let number = member.first + member.place;
        let (nth, address) = (number / count, number % count);
        // `below`: peers at this address with numbers below the swarm's first one.
        let (below, rest) = (member.first / count, member.first % count);
        let nth = nth - below - u32::from(address < rest);
        (FIRST_PORT + (self.port_start(member.swarm) + nth) % PORTS) as u16
    }

    /// Finds the places of endpoints in `of`'s swarm and family.
    #[inline]
    pub fn places(&self, of: &Member) -> Places<'_> {
        let count = self.addresses.count(of.family);
        Places {
            addresses: &self.addresses,
            family: of.family,
            port_start: self.port_start(of.swarm),
            // Peers per address with numbers below the swarm's first one; the addresses below
            // `rest` have one more.
            below: of.first / count,
            rest: of.first % count,
            count,
            first: of.first,
            size: of.sizes[of.family as usize],
        }
    }

    /// Constant random bits of a peer: its client software, whether it starts as a seeder.
    #[inline]
    pub fn trait_of(&self, family: Family, peer: u32) -> u64 {
        mix(!self.key ^ (u64::from(peer) << 1 | family as u64))
    }

    #[inline]
    fn port_start(&self, swarm: u32) -> u32 {
        let draw = mix(self.key ^ (u64::from(swarm) << 8 | 0xFF)) as u32;
        ((u64::from(draw) * u64::from(PORTS)) >> 32) as u32
    }
}

/// Finds the places of endpoints in one swarm and family.
#[derive(Clone, Copy, Debug)]
pub struct Places<'p> {
    addresses: &'p Addresses,
    family: Family,
    port_start: u32,
    below: u32,
    rest: u32,
    count: u32,
    first: u32,
    size: u32,
}

impl Places<'_> {
    /// The place of an endpoint in wire form (6 or 18 bytes by family); `None` when the swarm has
    /// no such peer.
    #[inline]
    pub fn of(&self, endpoint: &[u8]) -> Option<u32> {
        let (ip, port) = endpoint.split_last_chunk::<2>()?;
        let address = self.addresses.find(self.family, ip)?;
        let port = u32::from(u16::from_be_bytes(*port)).checked_sub(FIRST_PORT)?;
        // Both are below PORTS, so one conditional subtraction is the remainder.
        let nth = port + PORTS - self.port_start;
        let nth = if nth >= PORTS { nth - PORTS } else { nth };
        let below = self.below + u32::from(address < self.rest);
        let number = u64::from(nth + below) * u64::from(self.count) + u64::from(address);
        let place = number.checked_sub(u64::from(self.first))?;
        (place < u64::from(self.size)).then_some(place as u32)
    }
}

/// The addresses of the peers, numbered per family.
#[derive(Clone, Debug)]
pub struct Addresses([Numbers; 2]);

impl Addresses {
    /// From addresses of both families; a repeated one counts once.
    pub fn new(all: &[IpAddr]) -> Self {
        let mut found = Self([Numbers::new(all.len()), Numbers::new(all.len())]);
        for address in all {
            match address {
                IpAddr::V4(ip) => found.0[Family::V4 as usize].add(ip.to_bits().into()),
                IpAddr::V6(ip) => found.0[Family::V6 as usize].add(ip.to_bits()),
            }
        }
        found
    }

    /// Number of addresses of a family.
    #[inline]
    pub fn count(&self, family: Family) -> u32 {
        self.0[family as usize].all.len() as u32
    }

    /// The address with this number. Panics when there is none.
    pub fn get(&self, family: Family, number: u32) -> IpAddr {
        let bits = self.0[family as usize].all[number as usize];
        match family {
            Family::V4 => Ipv4Addr::from_bits(bits as u32).into(),
            Family::V6 => Ipv6Addr::from_bits(bits).into(),
        }
    }

    /// The number of an address in wire form: 4 or 16 bytes.
    #[inline]
    pub fn find(&self, family: Family, ip: &[u8]) -> Option<u32> {
        let bits = match family {
            Family::V4 => u32::from_be_bytes(ip.try_into().ok()?).into(),
            Family::V6 => u128::from_be_bytes(ip.try_into().ok()?),
        };
        self.0[family as usize].find(bits).ok()
    }

    fn fingerprint(&self) -> u64 {
        let all = self.0.iter().flat_map(|of_family| &of_family.all);
        all.fold(0, |sum, bits| mix(sum ^ fold(*bits)))
    }
}

/// Addresses as bits, and a hash table of their numbers. Every listed peer is looked up in it: with
/// hashbrown's a worker takes 3.5 % more instructions per reply (callgrind, classic mix).
#[derive(Clone, Debug)]
struct Numbers {
    all: Vec<u128>,
    /// Open addressing, at most a quarter full: number plus one, 0 for a free slot.
    slots: Vec<u32>,
}

impl Numbers {
    /// A table for `count` addresses.
    fn new(count: usize) -> Self {
        Self { all: Vec::new(), slots: vec![0; (count * 4).next_power_of_two().max(8)] }
    }

    /// Adds an address, unless it is in the table.
    fn add(&mut self, bits: u128) {
        if let Err(free) = self.find(bits) {
            self.all.push(bits);
            self.slots[free] = self.all.len() as u32;
        }
    }

    /// The number of an address, or the slot for it.
    #[inline]
    fn find(&self, bits: u128) -> Result<u32, usize> {
        let hash = fold(bits).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let mut at = hash as usize & (self.slots.len() - 1);
        while let Some(number) = self.slots[at].checked_sub(1) {
            if self.all[number as usize] == bits {
                return Ok(number);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        Err(at)
    }
}

#[inline]
fn fold(bits: u128) -> u64 {
    bits as u64 ^ (bits >> 64) as u64
}

/// A bijection of 64 bits in which every output bit depends on every input bit (the finaliser of
/// SplitMix64, Steele, Lea and Flood, 2014).
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onrush_proto::Endpoint;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    /// Swarms whose sizes fall by Zipf's law.
    pub(crate) fn zipf(count: u32, mean: f64) -> Swarms {
        Swarms { count, mean, exponent: 1.0, ..Swarms::default() }
    }

    /// The number of the address that a peer announces from.
    pub(crate) fn address_of(population: &Population, family: Family, peer: u32) -> u32 {
        peer % population.addresses.count(family)
    }

    fn addresses(v4: u32, v6: u32) -> Addresses {
        let four = (0..v4).map(|n| IpAddr::V4(Ipv4Addr::from_bits(0x7F01_0001 + n)));
        let six = (0..v6).map(|n| IpAddr::V6(Ipv6Addr::from_bits(0xFD00 << 112 | u128::from(n))));
        Addresses::new(&four.chain(six).collect::<Vec<_>>())
    }

    #[test]
    fn a_connection_has_one_peer_of_a_swarm() {
        let population = Population::of_connections(&zipf(40, 7.0), 16, 3);
        let peers = population.peers(Family::V4);
        assert!(peers > 100 && population.largest == 16, "{peers} {}", population.largest);
        for peer in 0..peers {
            let member = population.member(Family::V4, peer);
            let peers_at = (0..16).filter_map(|address| population.peer_at(address, &member));
            let found: HashSet<_> = peers_at.collect();
            assert!(found.contains(&peer) && found.len() == member.swarm_size() as usize);
            assert_eq!(population.peer_at(peer % 16, &member), Some(peer));
        }
    }

    fn endpoint(population: &Population, family: Family, peer: u32) -> Endpoint {
        let member = population.member(family, peer);
        let ip = population.addresses.get(family, address_of(population, family, peer));
        Endpoint::new(ip, population.port(&member))
    }

    #[test]
    fn families_have_their_shares() {
        let swarms = zipf(100_000, 1.3);
        let population = Population::new(&swarms, 0.2, addresses(64, 1), 3, false);
        let (four, six) = (population.peers(Family::V4), population.peers(Family::V6));
        let share = f64::from(six) / f64::from(four + six);
        assert!((share - 0.2).abs() < 0.005, "{share}");
        let alone = Population::new(&swarms, 0.2, addresses(64, 0), 3, false);
        assert_eq!(alone.peers(Family::V6), 0);
        let alone = Population::new(&swarms, 0.2, addresses(0, 2), 3, false);
        assert_eq!(alone.peers(Family::V4), 0);
    }

    #[test]
    fn addresses_without_peers_are_counted() {
        let alone = Population::new(&zipf(1, 1.0), 0.0, addresses(64, 0), 3, false);
        let unused = (0..64).filter(|n| alone.pick(Family::V4, *n, 7).is_none()).count();
        assert_eq!((alone.unused(Family::V4), unused), (63, 63));
        assert_eq!(alone.unused(Family::V6), 0);
        let many = Population::new(&zipf(64, 1.0), 0.0, addresses(64, 0), 3, false);
        assert_eq!(many.unused(Family::V4), 0);
    }

    #[test]
    fn endpoints_of_a_swarm_are_distinct_and_lead_back() {
        let swarms = zipf(2_000, 3.0);
        let population = Population::new(&swarms, 0.3, addresses(5, 2), 9, false);
        for family in [Family::V4, Family::V6] {
            let mut seen: HashMap<u32, HashSet<Endpoint>> = HashMap::new();
            for peer in 0..population.peers(family) {
                let member = population.member(family, peer);
                let endpoint = endpoint(&population, family, peer);
                assert_eq!(population.places(&member).of(endpoint.as_bytes()), Some(member.place));
                assert!(seen.entry(member.swarm).or_default().insert(endpoint), "{endpoint:?}");
            }
        }
    }

    #[test]
    fn endpoints_of_other_swarms_are_strange() {
        let swarms = zipf(2_000, 3.0);
        let population = Population::new(&swarms, 0.0, addresses(5, 0), 9, false);
        let last = population.peers(Family::V4) - 1;
        let (mut strange, mut all) = (0, 0);
        for peer in last - 500..last {
            let here = population.member(Family::V4, peer);
            let other = endpoint(&population, Family::V4, last - 1000 + (last - peer));
            all += 1;
            strange += u32::from(population.places(&here).of(other.as_bytes()).is_none());
        }
        assert!(strange >= all - 1, "{strange} of {all}");
    }

    #[test]
    fn unknown_addresses_and_low_ports_are_strange() {
        let swarms = zipf(10, 1.0);
        let population = Population::new(&swarms, 0.5, addresses(2, 1), 9, false);
        let member = population.member(Family::V4, 0);
        let known = endpoint(&population, Family::V4, 0);
        let ip = known.ip();
        for port in 0..FIRST_PORT as u16 {
            let wire = Endpoint::new(ip, port);
            assert_eq!(population.places(&member).of(wire.as_bytes()), None);
        }
        let elsewhere = Endpoint::new("192.0.2.1".parse().unwrap(), known.port());
        assert_eq!(population.places(&member).of(elsewhere.as_bytes()), None);
        assert_eq!(population.places(&member).of(&[0; 18]), None, "the other family's form");
    }

    #[test]
    fn another_population_has_other_hashes_unless_shared() {
        let swarms = zipf(10, 1.0);
        let hash = |addresses, strangers| {
            Population::new(&swarms, 0.0, addresses, 7, strangers).info_hash(3)
        };
        assert_ne!(hash(addresses(2, 0), false), hash(addresses(3, 0), false));
        assert_eq!(hash(addresses(2, 0), true), hash(addresses(3, 0), true));
    }

    #[test]
    fn every_swarm_has_a_line_in_the_file_of_hashes() {
        let swarms = zipf(100, 1.3);
        let population = Population::new(&swarms, 0.0, addresses(1, 0), 7, false);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hashes");
        population.write_hashes(&path).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), population.swarms as usize);
        for (swarm, line) in lines.iter().enumerate() {
            let bytes = population.info_hash(swarm as u32).0;
            let wanted: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(*line, wanted);
        }
    }

    proptest! {
        #[test]
        fn everybody_is_somewhere(
            count in 1u32..3_000, mean in 1.0f64..4.0, v6 in 0.0f64..1.0,
            four in 1u32..9, six in 1u32..4, draw: u64,
        ) {
            let swarms = zipf(count, mean);
            let population = Population::new(&swarms, v6, addresses(four, six), draw, false);
            prop_assert_eq!(population.swarms, count);
            let member = population.random_member(draw);
            prop_assert!(member.swarm < count && member.swarm_size() >= 1);
            for (family, addresses) in [(Family::V4, four), (Family::V6, six)] {
                for address in 0..addresses {
                    if let Some(peer) = population.pick(family, address, draw as u32) {
                        prop_assert!(peer < population.peers(family));
                        prop_assert_eq!(address_of(&population, family, peer), address);
                        let member = population.member(family, peer);
                        prop_assert!(member.place < member.sizes[family as usize]);
                        let wire = endpoint(&population, family, peer);
                        prop_assert_eq!(
                            population.places(&member).of(wire.as_bytes()), Some(member.place)
                        );
                    }
                }
            }
        }
    }
}
