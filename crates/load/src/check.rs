//! Is the reply right? Everything that a client could know, and everything that only whoever
//! planned the population can know.
//!
//! Findings are of two sorts. A *wrong* reply breaks BEP 15 or names peers that do not exist. A
//! *different* one does what BEP 15 leaves open in another way than most trackers; it counts as
//! wrong only where that is asked for.

use onrush_proto::response::{BadResponse, Peers};
use onrush_proto::scrape::MAX_HASHES;
use onrush_proto::{Event, Family, Response};
use serde::{Deserialize, Serialize};

use crate::generator::packet::num_want;
use crate::plan::population::Places;
use crate::plan::{Member, Plan, PlannedRequest};

/// Lists of up to this many peers are always looked at in full.
pub const SHORT_LIST: usize = 16;

/// Every tracker is expected to hand out this many peers to who asks for as many: what
/// aquatic_udp does by default. Trackers with a lower limit show as different.
const LEAST_LIMIT: u32 = 30;

/// What can be the matter with a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Its transaction id belongs to nothing that was sent.
    UnknownTransaction,
    /// A second reply to one request.
    AnsweredTwice,
    /// It answers something that deserves silence.
    NotSilent,
    /// It came from another address than the request was sent to, or to another socket.
    FromElsewhere,
    /// Too short, not whole peers or counts, or an action that no reply has.
    Layout,
    /// Not the kind of reply that was asked for.
    OtherAction,
    /// An error packet to a good request.
    ErrorReply,
    /// A connection id of 0.
    ZeroId,
    /// More peers counted than the swarm has.
    CountsTooHigh,
    /// More peers listed than counted, the asker excluded.
    MorePeersThanCounted,
    /// More peers listed than asked for.
    MorePeersThanWanted,
    /// A peer is listed twice.
    DuplicatePeer,
    /// A peer is listed that is not in this swarm.
    UnknownPeer,
    /// Not as many entries as swarms asked for.
    ScrapeEntries,
    /// A scrape counts more peers than the swarm has.
    ScrapeTooHigh,
    /// The asker is in its own list.
    OwnPeer,
    /// The asker is not counted.
    AskerNotCounted,
    /// Fewer peers listed than asked for, though there are more.
    FewerPeersThanThere,
    /// A peer that leaves got peers.
    PeersForLeaver,
    /// A peer that asked for none got peers.
    PeersUnasked,
    /// The next announce is asked for at once.
    ZeroInterval,
    /// An announce with port 0 is served like any other.
    PortZero,
}

impl Finding {
    /// All, in the order in which they are counted.
    pub const ALL: [Self; 22] = [
        Self::UnknownTransaction,
        Self::AnsweredTwice,
        Self::NotSilent,
        Self::FromElsewhere,
        Self::Layout,
        Self::OtherAction,
        Self::ErrorReply,
        Self::ZeroId,
        Self::CountsTooHigh,
        Self::MorePeersThanCounted,
        Self::MorePeersThanWanted,
        Self::DuplicatePeer,
        Self::UnknownPeer,
        Self::ScrapeEntries,
        Self::ScrapeTooHigh,
        Self::OwnPeer,
        Self::AskerNotCounted,
        Self::FewerPeersThanThere,
        Self::PeersForLeaver,
        Self::PeersUnasked,
        Self::ZeroInterval,
        Self::PortZero,
    ];

    /// Whether BEP 15 leaves it open.
    pub const fn is_open(self) -> bool {
        matches!(
            self,
            Self::OwnPeer
                | Self::AskerNotCounted
                | Self::FewerPeersThanThere
                | Self::PeersForLeaver
                | Self::PeersUnasked
                | Self::ZeroInterval
                | Self::PortZero
        )
    }

    /// As people read it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownTransaction => "transaction id of nothing that was sent",
            Self::AnsweredTwice => "second reply to one request",
            Self::NotSilent => "reply to junk or to an unusable connection id",
            Self::FromElsewhere => "reply from another address than was asked",
            Self::Layout => "broken layout",
            Self::OtherAction => "action of another request",
            Self::ErrorReply => "error packet to a good request",
            Self::ZeroId => "connection id 0",
            Self::CountsTooHigh => "more peers counted than exist",
            Self::MorePeersThanCounted => "more peers listed than counted",
            Self::MorePeersThanWanted => "more peers listed than wanted",
            Self::DuplicatePeer => "peer listed twice",
            Self::UnknownPeer => "peer that is not in the swarm",
            Self::ScrapeEntries => "scrape entries are not as many as asked for",
            Self::ScrapeTooHigh => "scrape counts more peers than exist",
            Self::OwnPeer => "announcer in its own list",
            Self::AskerNotCounted => "announcer not counted",
            Self::FewerPeersThanThere => "fewer peers than wanted and there",
            Self::PeersForLeaver => "peers for a peer that leaves",
            Self::PeersUnasked => "peers for a peer that wants none",
            Self::ZeroInterval => "interval of 0 seconds",
            Self::PortZero => "peer with port 0 served",
        }
    }
}

/// How strict to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strictness {
    /// Whether peers that are not of the population, and counts above its own, are fine: other
    /// load testers use the same swarms.
    pub strangers: bool,
    /// Of lists longer than [`SHORT_LIST`], one in so many is looked at in full, of the others
    /// the first [`SHORT_LIST`] peers. At least 1.
    pub sample: u32,
}

/// A reply that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Right {
    /// The connection id in it.
    pub connection_id: Option<u64>,
    /// Peers listed.
    pub peers: u32,
    /// Peers looked at.
    pub peers_checked: u32,
    /// What BEP 15 leaves open and was done differently.
    pub differs: Option<Finding>,
}

/// One worker's judge.
#[derive(Debug)]
pub struct Checker {
    strictness: Strictness,
    /// A bit for each place in a swarm: handed out in this reply.
    seen: Vec<u64>,
    /// Which words of `seen` this reply has touched.
    touched: Vec<u32>,
    long_lists: u32,
}

impl Checker {
    /// A judge of replies to what `plan` asks.
    pub fn new(plan: &Plan, strictness: Strictness) -> Self {
        let words = plan.population.largest() as usize / 64 + 1;
        Self {
            strictness,
            seen: vec![0; words],
            touched: Vec::with_capacity(16_384),
            long_lists: 0,
        }
    }

    /// Judges `reply`, which has the transaction id of `ask`, sent over `family`.
    ///
    /// # Errors
    /// What is wrong with it: the first thing that is found.
    #[inline]
    pub fn check(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        family: Family,
        reply: &[u8],
    ) -> Result<Right, Finding> {
        let plain = Right { connection_id: None, peers: 0, peers_checked: 0, differs: None };
        let response = Response::parse(reply, family).map_err(|bad| match bad {
            BadResponse::Short | BadResponse::Length | BadResponse::Action => Finding::Layout,
        })?;
        match (response, *request) {
            (Response::Error(..), request) if may_be_refused(&request) => Ok(plain),
            (Response::Error(..), _) => Err(Finding::ErrorReply),
            (Response::Announce(_, peers), PlannedRequest::PortZero { .. }) => {
                let differs = Some(Finding::PortZero);
                Ok(Right { peers: peers.len() as u32, differs, ..plain })
            }
            (Response::Connect(response), PlannedRequest::Connect) => {
                match response.connection_id.0 {
                    0 => Err(Finding::ZeroId),
                    id => Ok(Right { connection_id: Some(id), ..plain }),
                }
            }
            (Response::Announce(head, peers), PlannedRequest::Announce { peer, event, seeder }) => {
                let announcer = Announcer {
                    member: plan.population.member(family, peer),
                    seeder,
                    stopped: event == Event::Stopped,
                    want: num_want(plan.client(family, peer).num_want, event),
                };
                let counted = Counted { leechers: head.leechers, seeders: head.seeders };
                self.counts(&announcer, counted, &peers)?;
                let checked = self.peers(plan, &announcer.member, &peers, reply)?;
                let differs = if checked.own {
                    Some(Finding::OwnPeer)
                } else if head.interval == 0 {
                    Some(Finding::ZeroInterval)
                } else {
                    announcer.differs(counted, peers.len() as u32)
                };
                let peers_checked = checked.at;
                Ok(Right { peers: peers.len() as u32, peers_checked, differs, ..plain })
            }
            (Response::Scrape(_, counts), PlannedRequest::Scrape { draw, hashes }) => {
                // Of more than a datagram's worth the rest may be left out.
                let hashes_due = usize::from(hashes).min(MAX_HASHES);
                if !(hashes_due..=usize::from(hashes)).contains(&counts.len()) {
                    return Err(Finding::ScrapeEntries);
                }
                if !self.strictness.strangers {
                    for (counts, member) in counts.iter().zip(plan.scraped(draw, hashes)) {
                        let all = u64::from(counts.seeders) + u64::from(counts.leechers);
                        if all > u64::from(member.swarm_size()) {
                            return Err(Finding::ScrapeTooHigh);
                        }
                    }
                }
                Ok(plain)
            }
            _ => Err(Finding::OtherAction),
        }
    }

    /// What the numbers alone tell.
    #[inline]
    fn counts(
        &self,
        announcer: &Announcer,
        counted: Counted,
        peers: &Peers<'_>,
    ) -> Result<(), Finding> {
        let listed = peers.len() as u64;
        let there = counted.all();
        if !self.strictness.strangers && there > u64::from(announcer.member.swarm_size()) {
            return Err(Finding::CountsTooHigh);
        }
        // Whether the asker itself is counted is left open, so it is not taken off here.
        if listed > there {
            return Err(Finding::MorePeersThanCounted);
        }
        // BEP 15 gives only -1 a meaning; 0 is looked at in `differs`.
        if announcer.want > 0 && listed > announcer.want as u64 {
            return Err(Finding::MorePeersThanWanted);
        }
        Ok(())
    }

    /// Looks at the peers, or at some of a long list.
    #[inline]
    fn peers(
        &mut self,
        plan: &Plan,
        announcer: &Member,
        peers: &Peers<'_>,
        reply: &[u8],
    ) -> Result<CheckedPeers, Finding> {
        let mut count = peers.len();
        if count > SHORT_LIST {
            self.long_lists = self.long_lists.wrapping_add(1);
            if !self.long_lists.is_multiple_of(self.strictness.sample) {
                count = SHORT_LIST;
            }
        }
        let list = &reply[onrush_proto::announce::HEAD_LEN..];
        let places = plan.population.places(announcer);
        // Each family's length as a constant: the compiler then leaves out what it can prove.
        let verdict = match announcer.family {
            Family::V4 => {
                self.check_peers(&places, announcer.place, &list.as_chunks::<6>().0[..count])
            }
            Family::V6 => {
                self.check_peers(&places, announcer.place, &list.as_chunks::<18>().0[..count])
            }
        };
        for word in self.touched.drain(..) {
            self.seen[word as usize] = 0;
        }
        verdict.map(|own| CheckedPeers { at: count as u32, own })
    }

    /// Looks at each of `list`, which the peer at `asker` got, and tells whether that one is in it;
    /// notes in `seen` whom it has seen.
    #[inline]
    fn check_peers<const N: usize>(
        &mut self,
        places: &Places<'_>,
        announcer: u32,
        list: &[[u8; N]],
    ) -> Result<bool, Finding> {
        let mut own = false;
        for endpoint in list {
            match places.of(endpoint) {
                Some(place) => {
                    own |= place == announcer;
                    let (at, bit) = (place / 64, 1 << (place % 64));
                    let word = &mut self.seen[at as usize];
                    if *word & bit != 0 {
                        return Err(Finding::DuplicatePeer);
                    }
                    if *word == 0 {
                        self.touched.push(at);
                    }
                    *word |= bit;
                }
                None if self.strictness.strangers => {}
                None => return Err(Finding::UnknownPeer),
            }
        }
        Ok(own)
    }
}

/// What was seen in a list of peers without a fault.
#[derive(Clone, Copy)]
struct CheckedPeers {
    /// Peers looked at.
    at: u32,
    /// Whether the asker was one of them.
    own: bool,
}

/// Whether an error reply is as right as any other: to an announce with port 0, and to scrapes
/// of nothing or of more swarms than BEP 15 allows ("Scrape": up to about 74).
fn may_be_refused(request: &PlannedRequest) -> bool {
    match *request {
        PlannedRequest::PortZero { .. } => true,
        PlannedRequest::Scrape { hashes, .. } => hashes == 0 || usize::from(hashes) > MAX_HASHES,
        _ => false,
    }
}

/// Who asked for peers, and for how many.
struct Announcer {
    member: Member,
    seeder: bool,
    stopped: bool,
    want: i32,
}

/// What an announce response counts.
#[derive(Clone, Copy)]
struct Counted {
    leechers: u32,
    seeders: u32,
}

impl Counted {
    fn all(self) -> u64 {
        u64::from(self.leechers) + u64::from(self.seeders)
    }
}

impl Announcer {
    /// What BEP 15 leaves open and this reply does differently.
    #[inline]
    fn differs(&self, counted: Counted, listed: u32) -> Option<Finding> {
        if self.stopped {
            return (listed > 0).then_some(Finding::PeersForLeaver);
        }
        let alike = if self.seeder { counted.seeders } else { counted.leechers };
        if alike == 0 {
            return Some(Finding::AskerNotCounted);
        }
        if self.want == 0 {
            return (listed > 0).then_some(Finding::PeersUnasked);
        }
        // How many there are of the asker's own family is known where there is no other family.
        let [four, six] = self.member.sizes;
        if four > 0 && six > 0 {
            return None;
        }
        // A seeder needs no seeders.
        let useful = if self.seeder {
            counted.leechers
        } else {
            (counted.leechers - 1).saturating_add(counted.seeders)
        };
        let wanted = if self.want < 0 { LEAST_LIMIT } else { self.want as u32 };
        (listed < useful.min(wanted).min(LEAST_LIMIT)).then_some(Finding::FewerPeersThanThere)
    }
}

#[cfg(test)]
mod tests;
