//! Checks replies, by the protocol and by the population: which peers and counts are possible.
//!
//! There are two sorts of findings. A *wrong* reply violates a BEP or lists peers that do not
//! exist. A *different* reply deviates from most trackers within what the BEPs leave open; it
//! counts as wrong in strict mode only.

mod http;
mod ws;

use clap::Args;
use onrush_proto::announce::AnnounceHead;
use onrush_proto::response::Peers;
use onrush_proto::scrape::{HASH_LEN, MAX_HASHES};
use onrush_proto::{Event, Family, Response, ScrapeCounts};
use serde::{Deserialize, Serialize};

use crate::plan::population::Places;
use crate::plan::{Member, Plan, PlannedRequest, num_want};

/// Lists of up to this many peers are always checked in full.
pub const SHORT_LIST: usize = 16;

/// Number of peers that a tracker is expected to list on request, the default limit of
/// aquatic_udp. Trackers with a lower limit are reported as different.
const MIN_LIMIT: u32 = 30;

/// Defines the findings, with their texts in a report and in its order.
macro_rules! findings {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// A fault or a difference of a reply.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Finding { $($(#[$doc])* $name,)* }

        impl Finding {
            /// All findings with their texts.
            pub const ALL: [(Self, &'static str); [$($text),*].len()] = [$((Self::$name, $text)),*];
        }
    };
}

// Points that the BEPs leave open come last.
findings! {
    /// Its transaction id is not one of a request.
    UnknownTransaction: "transaction id of no request",
    /// A second reply to one request.
    AnsweredTwice: "second reply to one request",
    /// A reply to a request that deserves silence.
    NotSilent: "reply to junk or to an unusable connection id",
    /// Received from another address than the request was sent to, or on another socket.
    FromElsewhere: "reply from another address than the target's",
    /// Too short, with a partial peer or count, or with an undefined action.
    Layout: "malformed reply",
    /// The reply to another kind of request.
    OtherAction: "action of another request",
    /// An error packet, or a failure over HTTP, to a valid request.
    ErrorReply: "error reply to a valid request",
    /// A connection id of 0.
    ZeroId: "connection id 0",
    /// More peers counted than the swarm has.
    CountsTooHigh: "more peers counted than exist",
    /// More peers listed than counted.
    MorePeersThanCounted: "more peers listed than counted",
    /// More peers listed than wanted.
    MorePeersThanWanted: "more peers listed than wanted",
    /// A peer is listed twice.
    DuplicatePeer: "peer listed twice",
    /// A peer is listed that is not in this swarm.
    UnknownPeer: "peer that is not in the swarm",
    /// The number of entries is not that of the requested swarms.
    ScrapeEntries: "scrape with another number of entries than requested",
    /// A scrape counts more peers than the swarm has.
    ScrapeTooHigh: "scrape counts more peers than exist",
    /// A scrape has a swarm that was not requested (HTTP).
    ScrapeOthers: "scrape with swarms that were not requested",
    /// The head of a reply is malformed, or its length is (HTTP).
    HttpHead: "malformed head of a reply",
    /// The status is not 200 (HTTP).
    HttpStatus: "status other than 200",
    /// The body is no bencoding (HTTP).
    Bencoding: "invalid bencoding",
    /// The keys of a dictionary are not in ascending order, or not each once (HTTP).
    KeyOrder: "keys of a dictionary not in order",
    /// The connection ended within a reply (HTTP).
    CutShort: "connection ended within a reply",
    /// Bytes behind the replies to all requests of a connection (HTTP).
    Unasked: "reply without a request",
    /// A frame is malformed, masked, or no UTF-8 (WebSocket).
    Frame: "malformed or masked frame",
    /// A message is in a binary frame, which browsers do not read (WebSocket).
    BinaryFrame: "binary frame",
    /// A message is no JSON object (WebSocket).
    Json: "invalid JSON",
    /// An offer has the id of none that was sent (WebSocket).
    OfferUnknown: "offer that no peer has sent",
    /// An offer has another description, peer id or info hash than the one that was sent.
    OfferChanged: "offer changed on its way",
    /// An offer comes back to the connection that has sent it (WebSocket).
    OfferReturned: "offer back to its sender",
    /// An offer comes to a connection that is no member of its swarm (WebSocket).
    OfferElsewhere: "offer to a connection outside of the swarm",
    /// An offer comes to a second member (WebSocket).
    OfferTwice: "offer to a second peer",
    /// An answer is of an offer that was not sent, or not answered (WebSocket).
    AnswerUnknown: "answer that no peer has sent",
    /// An answer has another description, peer id or info hash than the one that was sent.
    AnswerChanged: "answer changed on its way",
    /// An answer comes to another connection than the one that has sent the offer (WebSocket).
    AnswerElsewhere: "answer to another peer than that of the offer",
    /// An answer comes a second time (WebSocket).
    AnswerTwice: "answer delivered twice",
    /// The announcing peer is in its own list.
    OwnPeer: "announcer in its own list",
    /// The announcing peer is not counted.
    AskerNotCounted: "announcer not counted",
    /// Fewer peers listed than wanted and available.
    FewerPeersThanThere: "fewer peers than wanted and available",
    /// A peer that stops got peers.
    PeersForLeaver: "peers for a peer that stops",
    /// A peer that wants no peers got some.
    PeersUnasked: "peers for a peer that wants none",
    /// The interval is 0.
    ZeroInterval: "interval of 0 seconds",
    /// An announce with port 0 was served.
    PortZero: "peer with port 0 served",
    /// Peers are not in the form that was requested: a string or a list (HTTP; BEP 23).
    OtherForm: "peers in another form than requested",
    /// A line end follows the dictionary (HTTP). aquatic_http sends it; clients do not read on.
    LineEnd: "line end behind the dictionary",
    /// The counts of the swarm are missing (HTTP, WebSocket).
    NoCounts: "counts missing",
    /// The offer of a seeder comes to a seeder (WebSocket).
    OfferToSeeder: "offer of a seeder for a seeder",
    /// A reply to an answer, as to an announce (WebSocket). aquatic_ws sends it.
    AnswerReply: "reply to an answer",
}

impl Finding {
    /// Whether the BEPs leave it open.
    pub const fn is_open(self) -> bool {
        self as usize >= Self::OwnPeer as usize
    }
}

/// Strictness of the checks. The comments are those of `--help`.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strictness {
    /// Tolerate peers of other load testers, which share the swarms of this seed.
    #[arg(long)]
    pub strangers: bool,

    /// Check one in N long peer lists in full, and the first 16 peers of the others.
    #[arg(
        long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub sample: u32,
}

/// A right reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Right {
    /// The connection id in it.
    pub connection_id: Option<u64>,
    /// Peers listed.
    pub peers: u32,
    /// Peers checked.
    pub peers_checked: u32,
    /// A difference within what BEP 15 leaves open.
    pub differs: Option<Finding>,
}

impl Right {
    /// A reply without anything that is counted.
    pub(crate) const PLAIN: Self =
        Self { connection_id: None, peers: 0, peers_checked: 0, differs: None };
}

/// Checks the replies of one worker.
#[derive(Debug)]
pub struct Checker {
    strictness: Strictness,
    /// A bit for each place in a swarm: listed in this reply.
    seen: Vec<u64>,
    /// The words of `seen` that this reply has changed.
    touched: Vec<u32>,
    long_lists: u32,
    /// The info hashes of a scrape over HTTP with the sizes of their swarms, sorted.
    asked: Vec<([u8; HASH_LEN], u32)>,
}

impl Checker {
    /// A checker of replies to the requests of `plan`.
    pub fn new(plan: &Plan, strictness: Strictness) -> Self {
        let words = plan.population.largest as usize / 64 + 1;
        Self {
            strictness,
            seen: vec![0; words],
            touched: Vec::with_capacity(16_384),
            long_lists: 0,
            asked: Vec::new(),
        }
    }

    /// Checks `reply`, which has the transaction id of `request`, sent over `family`.
    ///
    /// # Errors
    /// The first fault that is found.
    #[inline]
    pub fn check(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        family: Family,
        reply: &[u8],
    ) -> Result<Right, Finding> {
        let response = Response::parse(reply, family).map_err(|_| Finding::Layout)?;
        match (response, *request) {
            (Response::Error(..), request) if may_be_refused(&request) => Ok(Right::PLAIN),
            (Response::Error(..), _) => Err(Finding::ErrorReply),
            (Response::Announce(_, peers), PlannedRequest::PortZero { .. }) => {
                Ok(port_zero(&peers))
            }
            (Response::Connect(response), PlannedRequest::Connect) => {
                match response.connection_id.0 {
                    0 => Err(Finding::ZeroId),
                    id => Ok(Right { connection_id: Some(id), ..Right::PLAIN }),
                }
            }
            (Response::Announce(head, peers), PlannedRequest::Announce { .. }) => {
                self.announce(plan, request, family, &head, &peers)
            }
            (Response::Scrape(_, counts), PlannedRequest::Scrape { draw, hashes }) => {
                // Entries beyond those of one datagram may be missing.
                let hashes_due = usize::from(hashes).min(MAX_HASHES);
                if !(hashes_due..=usize::from(hashes)).contains(&counts.len()) {
                    return Err(Finding::ScrapeEntries);
                }
                let sizes = plan.scraped(draw, hashes).map(|member| member.swarm_size());
                self.sizes(counts.iter().zip(sizes))
            }
            _ => Err(Finding::OtherAction),
        }
    }

    /// Checks the reply to an announce.
    #[inline]
    fn announce(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        family: Family,
        head: &AnnounceHead,
        peers: &Peers<'_>,
    ) -> Result<Right, Finding> {
        let PlannedRequest::Announce { peer, event, seeder } = *request else {
            return Err(Finding::OtherAction);
        };
        let announcer = Announcer {
            member: plan.population.member(family, peer),
            seeder,
            stopped: event == Event::Stopped,
            want: num_want(plan.client(family, peer).num_want, event),
        };
        self.counts(&announcer, head, peers)?;
        let (peers_checked, own) = self.peers(plan, &announcer.member, peers)?;
        let differs = if own {
            Some(Finding::OwnPeer)
        } else if head.interval == 0 {
            Some(Finding::ZeroInterval)
        } else {
            announcer.differs(head, peers.len() as u32)
        };
        Ok(Right { peers: peers.len() as u32, peers_checked, differs, ..Right::PLAIN })
    }

    /// Checks that the counts of a scrape do not exceed the sizes of its swarms.
    fn sizes(&self, counts: impl Iterator<Item = (ScrapeCounts, u32)>) -> Result<Right, Finding> {
        let mut too_high = counts.filter(|(counts, size)| {
            u64::from(counts.seeders) + u64::from(counts.leechers) > u64::from(*size)
        });
        match !self.strictness.strangers && too_high.next().is_some() {
            true => Err(Finding::ScrapeTooHigh),
            false => Ok(Right::PLAIN),
        }
    }

    /// Checks the counts and the length of the list.
    #[inline]
    fn counts(
        &self,
        announcer: &Announcer,
        counted: &AnnounceHead,
        peers: &Peers<'_>,
    ) -> Result<(), Finding> {
        let listed = peers.len() as u64;
        let all_counted = u64::from(counted.leechers) + u64::from(counted.seeders);
        if !self.strictness.strangers && all_counted > u64::from(announcer.member.swarm_size()) {
            return Err(Finding::CountsTooHigh);
        }
        // BEP 15 leaves open if the announcing peer is counted, so it is not subtracted.
        if listed > all_counted {
            return Err(Finding::MorePeersThanCounted);
        }
        // BEP 15 defines a default for -1 only; 0 is checked in `differs`.
        if announcer.want > 0 && listed > announcer.want as u64 {
            return Err(Finding::MorePeersThanWanted);
        }
        Ok(())
    }

    /// Checks the peers, or a part of a long list. Returns how many it has checked, and whether the
    /// announcing peer was one of them.
    #[inline]
    fn peers(
        &mut self,
        plan: &Plan,
        announcer: &Member,
        peers: &Peers<'_>,
    ) -> Result<(u32, bool), Finding> {
        let mut count = peers.len();
        if count > SHORT_LIST {
            self.long_lists = self.long_lists.wrapping_add(1);
            if !self.long_lists.is_multiple_of(self.strictness.sample) {
                count = SHORT_LIST;
            }
        }
        let list = peers.as_bytes();
        let places = plan.population.places(announcer);
        // The length of an endpoint is a constant per family, so the compiler removes checks.
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
        verdict.map(|own| (count as u32, own))
    }

    /// Checks each peer of `list`, and returns whether the peer at `announcer` is in it. Marks the
    /// peers in `seen`.
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

/// The reply with peers to an announce with port 0.
fn port_zero(peers: &Peers<'_>) -> Right {
    let differs = Some(Finding::PortZero);
    Right { peers: peers.len() as u32, differs, ..Right::PLAIN }
}

/// Whether an error reply is right: to an announce with port 0, and to scrapes of no swarm or of
/// more swarms than BEP 15 allows ("Scrape": up to about 74).
pub(crate) fn may_be_refused(request: &PlannedRequest) -> bool {
    match *request {
        PlannedRequest::PortZero { .. } => true,
        PlannedRequest::Scrape { hashes, .. } => hashes == 0 || usize::from(hashes) > MAX_HASHES,
        _ => false,
    }
}

/// The announcing peer.
struct Announcer {
    member: Member,
    seeder: bool,
    stopped: bool,
    want: i32,
}

impl Announcer {
    /// The difference of a reply within what BEP 15 leaves open, if any.
    #[inline]
    fn differs(&self, counted: &AnnounceHead, listed: u32) -> Option<Finding> {
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
        // The number of peers of the announcer's family is known only where the swarm has one
        // family.
        let [four, six] = self.member.sizes;
        if four > 0 && six > 0 {
            return None;
        }
        // Seeders are of no use to a seeder.
        let useful = if self.seeder {
            counted.leechers
        } else {
            (counted.leechers - 1).saturating_add(counted.seeders)
        };
        let wanted = if self.want < 0 { MIN_LIMIT } else { self.want as u32 };
        (listed < useful.min(wanted).min(MIN_LIMIT)).then_some(Finding::FewerPeersThanThere)
    }
}

#[cfg(test)]
mod tests;
