//! Requests as bytes: the datagrams of a burst in one buffer.
//!
//! Requests are written whole, not patched into templates: a template of an announce is a copy of
//! 98 to 130 bytes in which eleven of thirteen fields change, and writing an announce takes 93
//! instructions (callgrind, classic mix). Packets stored per peer would cost 100 bytes and a cache
//! miss each, more than the instructions they save.

use onrush_proto::announce::Announce;
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_proto::{Connect, ConnectionId, Event, Family, TransactionId};

use crate::plan::profile::{MAX_HASHES, MAX_OPTIONS};
use crate::plan::{Broken, Plan, PlannedRequest};

/// Bytes of the largest request: a scrape of more swarms than trackers answer.
const LARGEST: usize = REQUEST_HEAD_LEN + HASH_LEN * MAX_HASHES as usize;
// An announce with the most options of a profile is not longer.
const _: () = assert!(onrush_proto::announce::REQUEST_LEN + MAX_OPTIONS <= LARGEST);

/// Offset of an announce's port (BEP 15, "IPv4 announce request").
const PORT_AT: usize = 96;

/// Requests for one burst.
#[derive(Debug)]
pub struct Packets {
    bytes: Vec<u8>,
    /// Complement of the length, and position, of each request as one number that sorts by
    /// descending length, then by position, as UDP_SEGMENT needs. Sorting plain numbers takes half
    /// the time of sorting by a key.
    spans: Vec<u64>,
    end: usize,
}

impl Packets {
    /// A buffer for `count` requests.
    pub fn new(count: usize) -> Self {
        Self { bytes: vec![0; count * LARGEST], spans: Vec::with_capacity(count), end: 0 }
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.end = 0;
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Appends a request. Panics when the buffer is full.
    #[inline]
    pub fn push(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        family: Family,
        id: ConnectionId,
        transaction: TransactionId,
    ) {
        let into = &mut self.bytes[self.end..self.end + LARGEST];
        let len = match *request {
            PlannedRequest::Connect => {
                let into = into.first_chunk_mut().expect("the buffer holds the largest request");
                Connect { transaction_id: transaction }.write(into);
                into.len()
            }
            PlannedRequest::Announce { peer, event, seeder } => {
                announce(plan, family, (peer, event, seeder), id, transaction, into)
            }
            PlannedRequest::Scrape { draw, hashes } => {
                let mut len = onrush_proto::Scrape::write(id, transaction, &[], into);
                for member in plan.scraped(draw, hashes) {
                    let hash = plan.population.info_hash(member.swarm).0;
                    into[len..len + HASH_LEN].copy_from_slice(&hash);
                    len += HASH_LEN;
                }
                len
            }
            PlannedRequest::Unusable { peer, .. } | PlannedRequest::Foreign { peer, .. } => {
                let seeder = plan.begins_as_seeder(family, peer);
                announce(plan, family, (peer, Event::None, seeder), id, transaction, into)
            }
            PlannedRequest::PortZero { peer } => {
                let state = (peer, Event::None, false);
                let len = announce(plan, family, state, id, transaction, into);
                into[PORT_AT..PORT_AT + 2].fill(0);
                len
            }
            PlannedRequest::Junk(draw) => junk(plan.broken(draw), draw, transaction, into),
        };
        self.spans.push(!(len as u64) << 32 | self.end as u64);
        self.end += len;
    }

    /// Sorts requests by length, longest first: the kernel sends equally long ones as segments of
    /// one buffer, whose last segment may be shorter (UDP_SEGMENT, udp(7)).
    pub fn group_by_len(&mut self) {
        self.spans.sort_unstable();
    }

    /// The bytes of each request.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = |span: &u64| {
            let (start, len) = (*span as u32 as usize, !((span >> 32) as u32) as usize);
            &self.bytes[start..][..len]
        };
        self.spans.iter().map(bytes)
    }
}

/// Writes the announce of a peer with its event, as a seeder or not.
#[inline]
fn announce(
    plan: &Plan,
    family: Family,
    (peer, event, seeder): (u32, Event, bool),
    id: ConnectionId,
    transaction: TransactionId,
    into: &mut [u8],
) -> usize {
    let announce = plan.announced(family, peer, event, seeder);
    Announce { connection_id: id, transaction_id: transaction, ..announce }.write(into)
}

/// Writes a malformed request.
fn junk(broken: Broken, draw: u64, transaction: TransactionId, into: &mut [u8]) -> usize {
    let noise = crate::plan::population::mix(draw).to_be_bytes();
    into[..8].copy_from_slice(&noise);
    into[8..12].copy_from_slice(&0u32.to_be_bytes());
    into[12..16].copy_from_slice(&transaction.0.to_be_bytes());
    match broken {
        Broken::Short => 1 + (draw >> 8) as usize % 15,
        Broken::Magic => 16,
        Broken::Cut => {
            into[8..12].copy_from_slice(&1u32.to_be_bytes());
            into[16..98].fill(noise[0]);
            16 + (draw >> 24) as usize % 82
        }
        Broken::Action => {
            into[8..12].copy_from_slice(&(4 + (draw >> 8) as u32 % 1000).to_be_bytes());
            into[16..64].fill(noise[0]);
            16 + (draw >> 24) as usize % 48
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Profile;
    use crate::plan::population::{Addresses, Population};
    use crate::plan::profile::Swarms;
    use onrush_proto::Request;
    use onrush_proto::announce::REQUEST_LEN;
    use onrush_proto::endpoint::Endpoint;

    fn plan() -> Plan {
        plan_of(Profile::real())
    }

    fn plan_of(profile: Profile) -> Plan {
        let addresses = Addresses::new(&["127.0.0.1".parse().unwrap()]);
        let swarms = Swarms { count: 100, ..profile.swarms };
        Plan::new(profile, Population::new(&swarms, 0.0, addresses, 1, false), 1)
    }

    fn write(request: PlannedRequest) -> Vec<u8> {
        write_of(&plan(), request)
    }

    fn write_of(plan: &Plan, request: PlannedRequest) -> Vec<u8> {
        let mut packets = Packets::new(1);
        packets.push(plan, &request, Family::V4, ConnectionId(77), TransactionId(0x0102_0304));
        packets.iter().next().unwrap().to_vec()
    }

    #[test]
    fn announces_follow_the_plan() {
        let plan = plan();
        for peer in 0..100 {
            let event = if peer % 2 == 0 { Event::Stopped } else { Event::None };
            let seeder = peer % 3 == 0;
            let bytes = write(PlannedRequest::Announce { peer, event, seeder });
            let Ok(Request::Announce(announce)) = Request::parse(&bytes) else { panic!() };
            let member = plan.population.member(Family::V4, peer);
            let client = plan.client(Family::V4, peer);
            assert_eq!(announce.connection_id, ConnectionId(77));
            assert_eq!(announce.transaction_id, TransactionId(0x0102_0304));
            assert_eq!(announce.info_hash, plan.population.info_hash(member.swarm));
            assert_eq!(announce.left == 0, seeder);
            assert_eq!(announce.num_want, if peer % 2 == 0 { 0 } else { client.num_want });
            assert_eq!(announce.event, event);
            assert_eq!(bytes.len(), REQUEST_LEN + client.options.len());
            let wire = Endpoint::new("127.0.0.1".parse().unwrap(), announce.port);
            assert_eq!(plan.population.places(&member).of(wire.as_bytes()), Some(member.place));
        }
    }

    #[test]
    fn scrapes_name_the_expected_swarms() {
        let plan = plan();
        let bytes = write(PlannedRequest::Scrape { draw: 5, hashes: 60 });
        let Ok(Request::Scrape(scrape)) = Request::parse(&bytes) else { panic!() };
        let meant: Vec<_> =
            plan.scraped(5, 60).map(|member| plan.population.info_hash(member.swarm)).collect();
        assert_eq!(scrape.info_hashes().collect::<Vec<_>>(), meant);
    }

    #[test]
    fn junk_does_not_parse() {
        let plan = plan_of(Profile::named("abuse").unwrap());
        let mut cut = 0;
        for draw in 0..3000 {
            let bytes = write_of(&plan, PlannedRequest::Junk(crate::plan::population::mix(draw)));
            assert!(Request::parse(&bytes).is_err(), "{bytes:?}");
            assert!(!bytes.is_empty());
            cut += usize::from(bytes.len() >= 16 && bytes[8..12] == [0, 0, 0, 1]);
        }
        assert!(cut > 500, "{cut} announces cut short");
    }

    #[test]
    fn an_announce_with_port_zero_is_otherwise_valid() {
        let bytes = write(PlannedRequest::PortZero { peer: 3 });
        let Ok(Request::Announce(announce)) = Request::parse(&bytes) else { panic!() };
        assert_eq!((announce.port, announce.connection_id), (0, ConnectionId(77)));
    }

    #[test]
    fn the_longest_requests_fit_the_buffer() {
        let mut profile = Profile::real();
        profile.clients.truncate(1);
        profile.clients[0].options = vec![7; MAX_OPTIONS];
        let plan = plan_of(profile);
        let event = Event::None;
        let bytes = write_of(&plan, PlannedRequest::Announce { peer: 0, event, seeder: false });
        assert_eq!(bytes.len(), 98 + MAX_OPTIONS);
        let bytes = write_of(&plan, PlannedRequest::Scrape { draw: 1, hashes: MAX_HASHES });
        assert_eq!(bytes.len(), LARGEST);
    }

    #[test]
    fn requests_are_grouped_by_length() {
        let plan = plan();
        let mut packets = Packets::new(40);
        let mut chance = plan.chance(0);
        for n in 0..40 {
            let request = plan.next(&mut chance, Family::V4, 0).unwrap();
            packets.push(&plan, &request, Family::V4, ConnectionId(1), TransactionId(n));
        }
        packets.group_by_len();
        let lens: Vec<_> = packets.iter().map(<[u8]>::len).collect();
        assert!(lens.is_sorted_by(|a, b| a >= b));
        assert_eq!(lens.len(), 40);
    }
}
