//! A conforming WebTorrent tracker with one fault at a time: a thread per connection, and one lock
//! around all swarms.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use onrush_proto::webtorrent::{
    Action, Announce, Answer, Limits, Message, Offer, OfferId, parse, write_answer, write_counts,
    write_failure, write_offer, write_scrape,
};
use onrush_proto::{Event, InfoHash, PeerId, ScrapeCounts};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::counted::Counted;
use super::over_tcp::Listener;

/// A fault. Those of offers and answers are of all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WsFault {
    Nothing,
    /// No fault: messages have spaces.
    Spaces,
    /// No fault: a ping precedes each message.
    Pings,
    /// An offer comes back to its connection.
    OfferReturned,
    /// An offer goes to a connection outside of its swarm.
    OfferElsewhere,
    /// An offer goes to all members.
    OfferToAll,
    /// An offer has another description.
    OfferByte,
    /// An offer has another fingerprint of the certificate.
    OfferCertificate,
    /// An offer has the id of none.
    OfferId,
    /// An offer has the peer id of another peer.
    OfferPeer,
    /// An offer has the info hash of another swarm.
    OfferHash,
    /// Seeders get offers of seeders.
    OfferToSeeder,
    /// No offer is delivered.
    NoOffers,
    /// An answer goes to all other connections.
    AnswerElsewhere,
    AnswerByte,
    /// An answer has another fingerprint of the certificate.
    AnswerCertificate,
    AnswerId,
    AnswerTwice,
    /// No answer is delivered.
    NoAnswers,
    /// An answer makes its sender a member, as of bittorrent-tracker; the first offer to each
    /// member is held back until it stops.
    AnswerJoins,
    CountsTooHigh,
    CountsZero,
    NoCounts,
    ZeroInterval,
    /// Announces get the counts of another swarm.
    OtherSwarm,
    /// A scrape has a further swarm.
    ScrapeMore,
    Error,
    /// `retry in` to each third announce.
    Defers,
    /// No reply to each tenth announce.
    Silent,
    /// The end in place of each tenth reply.
    Closes,
    /// A delay before each reply.
    Slow,
    /// Messages without their last byte.
    Json,
    /// Messages without their action.
    NoAction,
    Binary,
    Masked,
    /// Messages that are not UTF-8.
    Utf8,
    /// No upgrade.
    Forbidden,
}

/// A tracker over WebSocket at an unused port of 127.0.0.1.
pub(crate) struct WsServer {
    listener: Listener,
}

struct State {
    fault: WsFault,
    shared: Mutex<Shared>,
    counts: Sender<usize>,
    /// Connections so far.
    accepted: AtomicU64,
}

#[derive(Default)]
struct Shared {
    connections: HashMap<u64, TcpStream>,
    swarms: HashMap<InfoHash, Vec<Member>>,
    /// Where offers have come from.
    offers: HashMap<OfferId, u64>,
    /// Offers that are held back, by swarm and receiver.
    held: HashMap<(InfoHash, u64), Vec<u8>>,
    announces: u64,
}

#[derive(Clone, Copy)]
struct Member {
    connection: u64,
    peer_id: PeerId,
    is_seeder: bool,
}

impl WsServer {
    /// A tracker, and the messages that come.
    pub(crate) fn start(fault: WsFault) -> Counted<Self> {
        let (counts, received) = channel();
        let (shared, accepted) = (Mutex::default(), AtomicU64::new(0));
        let state = State { fault, shared, counts, accepted };
        let listener = Listener::start("127.0.0.1", move |stream| state.serve(stream));
        Counted { server: Self { listener: listener.unwrap() }, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/", self.listener.address)
    }

    pub(crate) fn target(&self) -> String {
        format!("--target={}", self.url())
    }
}

impl State {
    /// Serves a connection to its end.
    fn serve(&self, mut stream: TcpStream) {
        let number = self.accepted.fetch_add(1, Ordering::Relaxed);
        if self.fault == WsFault::Forbidden {
            drop(stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"));
            return;
        }
        let writer = stream.try_clone().unwrap();
        let Ok(mut socket) = tungstenite::accept(stream) else { return };
        self.shared.lock().unwrap().connections.insert(number, writer);
        while let Ok(message) = socket.read() {
            if let tungstenite::Message::Text(text) = message
                && !self.message(&text, number)
            {
                break;
            }
        }
        let mut shared = self.shared.lock().unwrap();
        shared.connections.remove(&number);
        shared.swarms.values_mut().for_each(|swarm| swarm.retain(|it| it.connection != number));
    }

    /// Handles a message; returns whether the connection continues.
    fn message(&self, text: &str, from: u64) -> bool {
        let _ = self.counts.send(1);
        let limits = Limits { offers: 100, hashes: 100 };
        let mut shared = self.shared.lock().unwrap();
        match parse(text, limits).unwrap() {
            Message::Scrape(hashes) => {
                let mut hashes: Vec<_> = hashes.into_iter().map(InfoHash).collect();
                if self.fault == WsFault::ScrapeMore {
                    hashes.push(InfoHash([0xFF; 20]));
                }
                let files: Vec<_> = hashes.iter().map(|it| (it.0, shared.counts(it))).collect();
                self.send(&shared, from, |out| write_scrape(files, out));
                true
            }
            Message::Announce(Announce { answer: Some(answer), info_hash, peer_id, .. }) => {
                self.answer(&mut shared, &answer, (info_hash, peer_id), from);
                true
            }
            Message::Announce(announce) => {
                shared.announces += 1;
                let number = shared.announces;
                match self.fault {
                    WsFault::Closes if number.is_multiple_of(10) => return false,
                    WsFault::Slow => {
                        drop(shared);
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "slow replies are the subject of the test"
                        )]
                        std::thread::sleep(Duration::from_millis(20));
                        shared = self.shared.lock().unwrap();
                    }
                    _ => {}
                }
                self.announce(&mut shared, &announce, number, from);
                true
            }
        }
    }

    fn announce(&self, shared: &mut Shared, announce: &Announce<'_>, number: u64, from: u64) {
        let Announce { info_hash, peer_id, seeder, event, .. } = *announce;
        let is_seeder = seeder.unwrap_or(false);
        if event == Event::Stopped
            && let Some(mut held) = shared.held.remove(&(info_hash, from))
        {
            self.send(shared, from, |out| out.append(&mut held));
        }
        let swarm = shared.swarms.entry(info_hash).or_default();
        // A client may have a new connection before the end of its old one is known.
        swarm.retain(|member| member.peer_id != peer_id);
        if event != Event::Stopped {
            swarm.push(Member { connection: from, peer_id, is_seeder });
        }
        let mut counts = shared.counts(&info_hash);
        match self.fault {
            WsFault::CountsTooHigh => counts.leechers += 100,
            WsFault::CountsZero => counts = ScrapeCounts::default(),
            _ => {}
        }
        let interval = if self.fault == WsFault::ZeroInterval { 0 } else { 120 };
        let hash = if self.fault == WsFault::OtherSwarm { InfoHash([1; 20]) } else { info_hash };
        match self.fault {
            WsFault::Silent if number.is_multiple_of(10) => {}
            WsFault::Error => self.fail(shared, from, &hash, None),
            WsFault::Defers if number.is_multiple_of(3) => self.fail(shared, from, &hash, Some(1)),
            _ => self.send(shared, from, |out| write_counts(&hash, interval, &counts, out)),
        }
        let others = shared.others(&info_hash, (from, is_seeder), self.fault);
        for (nth, offer) in announce.offers.iter().enumerate() {
            shared.offers.insert(offer.offer_id, from);
            // Each member gets one of the offers.
            let to: Vec<u64> = match self.fault {
                WsFault::NoOffers => vec![],
                WsFault::OfferReturned => vec![from],
                WsFault::OfferToAll => others.clone(),
                WsFault::OfferElsewhere => shared.outside(&info_hash).into_iter().take(1).collect(),
                _ => others.get(nth).copied().into_iter().collect(),
            };
            for to in to {
                self.offer(shared, to, (info_hash, peer_id), offer);
            }
        }
    }

    fn fail(&self, shared: &Shared, to: u64, hash: &InfoHash, retry_in: Option<u32>) {
        self.send(shared, to, |out| {
            write_failure(Action::Announce, Some(hash), "no", retry_in, out);
        });
    }

    fn offer(&self, shared: &mut Shared, to: u64, from: (InfoHash, PeerId), offer: &Offer<'_>) {
        let (mut info_hash, mut peer_id) = from;
        let Offer { mut offer_id, offer } = *offer;
        let mut text = offer.to_owned();
        match self.fault {
            WsFault::OfferByte => text = text.replace("IP6 ::", "IP6 :1"),
            WsFault::OfferCertificate => change_certificate(&mut text),
            WsFault::OfferId => offer_id.0[19] ^= 1,
            WsFault::OfferPeer => peer_id.0[19] ^= 1,
            WsFault::OfferHash => info_hash.0[19] ^= 1,
            _ => {}
        }
        let offer = Offer { offer_id, offer: &text };
        let mut text = Vec::new();
        write_offer(&info_hash, &peer_id, &offer, &mut text);
        if self.fault == WsFault::AnswerJoins
            && let Entry::Vacant(held) = shared.held.entry((info_hash, to))
        {
            held.insert(text);
        } else {
            self.send(shared, to, |out| out.append(&mut text));
        }
    }

    fn answer(
        &self,
        shared: &mut Shared,
        answer: &Answer<'_>,
        (info_hash, peer_id): (InfoHash, PeerId),
        by: u64,
    ) {
        let Some(&to) = shared.offers.get(&answer.offer_id) else { return };
        let Answer { to_peer_id, mut offer_id, answer } = *answer;
        let mut text = answer.to_owned();
        match self.fault {
            WsFault::AnswerByte => text = text.replace("IP6 ::", "IP6 :1"),
            WsFault::AnswerCertificate => change_certificate(&mut text),
            WsFault::AnswerId => offer_id.0[0] ^= 1,
            _ => {}
        }
        if self.fault == WsFault::AnswerJoins {
            let swarm = shared.swarms.entry(info_hash).or_default();
            if swarm.iter().all(|member| member.peer_id != peer_id) {
                swarm.push(Member { connection: by, peer_id, is_seeder: false });
            }
        }
        let receivers = match self.fault {
            WsFault::NoAnswers => vec![],
            WsFault::AnswerTwice => vec![to, to],
            WsFault::AnswerElsewhere => vec![by],
            _ => vec![to],
        };
        let answer = Answer { to_peer_id, offer_id, answer: &text };
        for to in receivers {
            self.send(shared, to, |out| write_answer(&info_hash, &peer_id, &answer, out));
        }
    }

    /// Sends a message to a connection, if it is open.
    fn send(&self, shared: &Shared, to: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let Some(mut stream) = shared.connections.get(&to) else { return };
        let mut text = Vec::new();
        write(&mut text);
        match self.fault {
            WsFault::Json => drop(text.pop()),
            WsFault::NoAction => text[3] = b'x',
            WsFault::Utf8 => text[3] = 0xFF,
            WsFault::Spaces => text.insert(1, b' '),
            WsFault::NoCounts if text.starts_with(br#"{"action":"announce""#) => {
                let found = String::from_utf8(text).unwrap().replace("\"complete\"", "\"x\"");
                text = found.into_bytes();
            }
            _ => {}
        }
        let data = if self.fault == WsFault::Binary { Data::Binary } else { Data::Text };
        let mask = (self.fault == WsFault::Masked).then_some([0; 4]);
        let mut frame = Vec::new();
        if self.fault == WsFault::Pings {
            let opcode = OpCode::Control(Control::Ping);
            FrameHeader { opcode, ..FrameHeader::default() }.format(0, &mut frame).unwrap();
        }
        let header = FrameHeader { opcode: OpCode::Data(data), mask, ..FrameHeader::default() };
        header.format(text.len() as u64, &mut frame).unwrap();
        frame.extend_from_slice(&text);
        // The other end may have closed.
        drop(stream.write_all(&frame));
    }
}

/// Changes the fingerprint in a description.
fn change_certificate(text: &mut String) {
    let at = text.find("sha-256 ").unwrap() + "sha-256 ".len();
    let other = if text[at..].starts_with("00") { "01" } else { "00" };
    text.replace_range(at..at + 2, other);
}

impl Shared {
    fn counts(&self, info_hash: &InfoHash) -> ScrapeCounts {
        let members = self.swarms.get(info_hash).map_or(&[][..], Vec::as_slice);
        let seeders = members.iter().filter(|member| member.is_seeder).count() as u32;
        ScrapeCounts { seeders, completed: 0, leechers: members.len() as u32 - seeders }
    }

    /// The other members of a swarm; for a seeder, those that are none.
    fn others(&self, hash: &InfoHash, (from, is_seeder): (u64, bool), fault: WsFault) -> Vec<u64> {
        let is_useful = |member: &&Member| {
            let is_pair = is_seeder && member.is_seeder && fault != WsFault::OfferToSeeder;
            member.connection != from && !is_pair
        };
        self.swarms[hash].iter().filter(is_useful).map(|member| member.connection).collect()
    }

    /// The connections that are not members of a swarm.
    fn outside(&self, info_hash: &InfoHash) -> Vec<u64> {
        let is_member = |it: &u64| self.swarms[info_hash].iter().any(|m| m.connection == *it);
        self.connections.keys().copied().filter(|it| !is_member(it)).collect()
    }
}
