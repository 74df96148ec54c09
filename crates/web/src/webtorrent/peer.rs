//! What one connection by WebSocket is to the swarms of WebRTC peers.

use std::collections::VecDeque;
use std::net::SocketAddr;

use onrush_proto::webtorrent::{Answer, OfferId};
use onrush_proto::{InfoHash, PeerId};

use super::swarms::Socket;

/// Offers that a connection is known to have got; older ones cannot be answered any more.
const MAX_OFFERS: usize = 64;
/// How many of them may be of one connection in one swarm, which otherwise could displace those of
/// others.
const MAX_OFFERS_OF_ONE: usize = 4;
/// Seconds in which an offer can be answered.
const OFFER_LIFETIME: u32 = 120;

/// A request whose reply has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Of an announce to this swarm.
    Announce(InfoHash),
    /// Of a scrape.
    Scrape,
}

/// An offer that was sent to the client. Only its peer can answer: another one, which may know the
/// peer ids of a swarm, cannot.
#[derive(Debug)]
struct Offered {
    from: Socket,
    info_hash: InfoHash,
    peer_id: PeerId,
    offer_id: OfferId,
    second: u32,
}

/// The client of a connection by WebSocket.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) client: SocketAddr,
    /// The request in flight.
    pub(crate) awaited: Option<Awaited>,
    /// A message that waits for a free parcel.
    pub(crate) waiting: Option<Box<str>>,
    memberships: Vec<InfoHash>,
    /// The oldest first.
    offers: VecDeque<Offered>,
}

impl Peer {
    pub(crate) fn new(client: SocketAddr) -> Self {
        let (memberships, offers) = (Vec::new(), VecDeque::new());
        Self { client, awaited: None, waiting: None, memberships, offers }
    }

    /// Whether it may become a member of a swarm, if it may be in `most` swarms.
    pub(crate) fn may_join(&self, info_hash: InfoHash, most: usize) -> bool {
        self.memberships.len() < most || self.memberships.contains(&info_hash)
    }

    /// Notes that it is a member of a swarm.
    pub(crate) fn join(&mut self, info_hash: InfoHash) {
        if !self.memberships.contains(&info_hash) {
            self.memberships.push(info_hash);
        }
    }

    /// Notes that it is no member of a swarm. Whether it was one.
    pub(crate) fn forget(&mut self, info_hash: InfoHash) -> bool {
        let at = self.memberships.iter().position(|it| *it == info_hash);
        at.map(|at| self.memberships.swap_remove(at)).is_some()
    }

    /// Ends all memberships, with the one that is requested. Returns their swarms.
    pub(crate) fn leave(&mut self) -> impl Iterator<Item = InfoHash> {
        let requested = match self.awaited {
            Some(Awaited::Announce(info_hash)) => Some(info_hash),
            _ => None,
        };
        self.memberships.drain(..).chain(requested)
    }

    /// Remembers an offer that is sent to the client.
    pub(crate) fn offered(
        &mut self,
        from: Socket,
        (info_hash, peer_id, offer_id): (InfoHash, PeerId, OfferId),
        second: u32,
    ) {
        self.forget_old_offers(second);
        let is_of_one = |it: &&Offered| it.from == from && it.info_hash == info_hash;
        let displaced = match self.offers.iter().filter(is_of_one).count() {
            MAX_OFFERS_OF_ONE => self.offers.iter().position(|it| is_of_one(&it)),
            _ => (self.offers.len() == MAX_OFFERS).then_some(0),
        };
        displaced.and_then(|at| self.offers.remove(at));
        self.offers.push_back(Offered { from, info_hash, peer_id, offer_id, second });
    }

    fn forget_old_offers(&mut self, second: u32) {
        let is_old = |it: &Offered| second.saturating_sub(it.second) > OFFER_LIFETIME;
        while self.offers.front().is_some_and(is_old) {
            self.offers.pop_front();
        }
    }

    /// Frees memory that offers have taken which cannot be answered any more.
    pub(crate) fn shrink(&mut self, second: u32) {
        self.forget_old_offers(second);
        self.offers.shrink_to_fit();
        self.memberships.shrink_to_fit();
    }

    /// Whether it is a member of any swarm.
    pub(crate) fn is_member(&self) -> bool {
        !self.memberships.is_empty()
    }

    /// The connection that an answer is for: the one that has sent the offer. Each offer can be
    /// answered once.
    pub(crate) fn answered(
        &mut self,
        info_hash: InfoHash,
        answer: &Answer<'_>,
        second: u32,
    ) -> Option<Socket> {
        let at = self.offers.iter().position(|it| {
            it.offer_id == answer.offer_id
                && it.peer_id == answer.to_peer_id
                && it.info_hash == info_hash
        })?;
        let offered = self.offers.remove(at)?;
        (second.saturating_sub(offered.second) <= OFFER_LIFETIME).then_some(offered.from)
    }

    /// Bytes of what waits.
    pub(crate) fn buffered(&self) -> usize {
        self.waiting.as_ref().map_or(0, |text| text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId([7; 20]);

    fn hash(number: u8) -> InfoHash {
        InfoHash([number; 20])
    }

    fn socket(slot: u32) -> Socket {
        Socket { worker: 0, slot, generation: 1 }
    }

    fn answer(to_peer_id: PeerId, number: u8) -> Answer<'static> {
        Answer { to_peer_id, offer_id: OfferId([number; 20]), answer: "{}" }
    }

    fn peer() -> Peer {
        Peer::new("198.51.100.1:5".parse().unwrap())
    }

    #[test]
    fn only_what_was_offered_can_be_answered_once_and_for_two_minutes() {
        let mut peer = peer();
        for number in 0..70 {
            peer.offered(socket(number.into()), (hash(1), PEER, OfferId([number; 20])), 100);
        }
        assert_eq!(peer.answered(hash(1), &answer(PEER, 5), 100), None, "64 are known");
        assert_eq!(peer.answered(hash(1), &answer(PEER, 6), 220), Some(socket(6)));
        assert_eq!(peer.answered(hash(1), &answer(PEER, 6), 220), None);
        assert_eq!(peer.answered(hash(2), &answer(PEER, 7), 220), None);
        assert_eq!(peer.answered(hash(1), &answer(PeerId([8; 20]), 7), 220), None);
        assert_eq!(peer.answered(hash(1), &answer(PEER, 7), 221), None);
        peer.offered(socket(1), (hash(1), PEER, OfferId([1; 20])), 221);
        assert_eq!(peer.offers.len(), 1, "those of more than two minutes ago are forgotten");
        peer.shrink(342);
        assert_eq!(peer.offers.capacity(), 0);
    }

    #[test]
    fn a_connection_that_offers_often_displaces_its_own_offers() {
        let mut peer = peer();
        for number in 0..20 {
            let (from, swarm) = (socket(u32::from(number != 0)), hash(number % 2));
            peer.offered(from, (swarm, PEER, OfferId([number; 20])), 100);
        }
        let mut answer = |number| peer.answered(hash(number % 2), &answer(PEER, number), 100);
        assert_eq!(answer(0), Some(socket(0)));
        assert_eq!((answer(11), answer(10)), (None, None));
        assert_eq!((answer(12), answer(13)), (Some(socket(1)), Some(socket(1))));
    }

    #[test]
    fn memberships_end_together_with_the_one_requested() {
        let mut peer = peer();
        for number in [1, 2, 2, 3] {
            assert!(peer.may_join(hash(number), 3));
            peer.join(hash(number));
        }
        assert!(peer.may_join(hash(3), 3) && !peer.may_join(hash(4), 3));
        assert_eq!([1, 9].map(|number| peer.forget(hash(number))), [true, false]);
        peer.awaited = Some(Awaited::Announce(hash(4)));
        let mut left: Vec<_> = peer.leave().map(|hash| hash.0[0]).collect();
        left.sort_unstable();
        assert_eq!(left, [2, 3, 4]);
    }
}
