//! Messages of clients.
//!
//! Unknown fields are ignored, and values of an unexpected type are as good as missing ones. Of a
//! repeated field the last one counts.

use serde_core::de::{DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::read::{Into, Read, Word, is_string, next_key, read, skip_list};
use super::{Action, OfferId};
use crate::announce::Event;
use crate::id::{InfoHash, PeerId};
use crate::scrape::HASH_LEN;

/// A message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// An announce.
    Announce(Announce<'a>),
    /// A scrape of these info hashes, sorted, each once. There may be none: the tracker decides
    /// whether to answer such a request.
    Scrape(Vec<[u8; HASH_LEN]>),
}

/// An announce over WebSocket. Amounts of bytes, `key` and `trackerid` are not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announce<'a> {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The client's peer id, which its answers are addressed by.
    pub peer_id: PeerId,
    /// Whether the peer misses nothing: `left` is 0. `None` without a number, as in answers: the
    /// peer is what it was. `completed` without `left` is of a seeder.
    pub seeder: Option<bool>,
    /// The event; texts that BEP 3 and BEP 21 do not define are none.
    pub event: Event,
    /// How many peers may get an offer, at most as many as there are offers; [`usize::MAX`] without
    /// a `numwant` of at least 0.
    pub num_want: usize,
    /// Offers to other peers. Those without an id or a valid description are left out: libtorrent
    /// up to 2.1.0 disconnects when it gets an invalid description.
    pub offers: Vec<Offer<'a>>,
    /// The answer to an offer of another peer.
    pub answer: Option<Answer<'a>>,
}

/// An offer: a WebRTC session description for whichever peer gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer<'a> {
    /// Its id.
    pub offer_id: OfferId,
    /// The description as it was sent: a JSON object of strings, `sdp` among them.
    pub offer: &'a str,
}

/// An answer: the WebRTC session description of the peer that got an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The peer that sent the offer.
    pub to_peer_id: PeerId,
    /// The offer.
    pub offer_id: OfferId,
    /// The description as it was sent: a JSON object of strings, `sdp` among them.
    pub answer: &'a str,
}

/// How much of a message is taken; what is beyond is skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Offers of an announce.
    pub offers: usize,
    /// Info hashes of a scrape.
    pub hashes: usize,
}

/// A message that is not valid, with what the reply to it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// Why it is not valid.
    pub reason: BadMessage,
    /// Its action, if that could be read.
    pub action: Option<Action>,
    /// Its info hash, if that could be read and it has only one.
    pub info_hash: Option<InfoHash>,
}

/// Why a message is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BadMessage {
    /// It is no JSON object.
    Json,
    /// The action is missing or unknown.
    Action,
    /// The info hash is missing in an announce, or one has not 20 characters up to U+00FF.
    InfoHash,
    /// The peer id is missing, or has not 20 characters up to U+00FF.
    PeerId,
    /// An answer lacks a valid description, peer id or offer id.
    Answer,
}

impl BadMessage {
    /// The failure reason for the client.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Json => "a message has to be a JSON object",
            Self::Action => "action has to be announce or scrape",
            Self::InfoHash => "info_hash has to be 20 bytes",
            Self::PeerId => "peer_id has to be 20 bytes",
            Self::Answer => "an answer has to have an sdp, and to_peer_id and offer_id of 20 bytes",
        }
    }
}

/// Reads a message.
///
/// # Errors
/// [`Rejected`]: of several faults the one that is listed first in [`BadMessage`].
pub fn parse(text: &str, limits: Limits) -> Result<Message<'_>, Rejected> {
    let mut fields = Fields {
        action: None,
        hashes: Hashes { max: limits.hashes, ..Hashes::default() },
        peer_id: None,
        left: Number(None),
        event: None,
        num_want: Number(None),
        offers: Offers { max: limits.offers, ..Offers::default() },
        answer: None,
        to_peer_id: None,
        offer_id: None,
        is_object: false,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Into(&mut fields).deserialize(&mut json).and_then(|()| json.end());
    let (action, info_hash) = (fields.action, fields.hashes.single.map(InfoHash));
    let message = match result {
        Ok(()) if fields.is_object => fields.message(),
        _ => Err(BadMessage::Json),
    };
    message.map_err(|reason| Rejected { reason, action, info_hash })
}

/// The fields of a message.
struct Fields<'a> {
    action: Option<Action>,
    hashes: Hashes,
    peer_id: Option<[u8; 20]>,
    left: Number,
    event: Option<Event>,
    num_want: Number,
    offers: Offers<'a>,
    answer: Option<&'a RawValue>,
    to_peer_id: Option<[u8; 20]>,
    offer_id: Option<[u8; 20]>,
    is_object: bool,
}

impl<'a> Fields<'a> {
    fn message(self) -> Result<Message<'a>, BadMessage> {
        match self.action.ok_or(BadMessage::Action)? {
            Action::Announce => self.announce().map(Message::Announce),
            Action::Scrape if self.hashes.is_bad => Err(BadMessage::InfoHash),
            Action::Scrape => {
                let mut hashes = self.hashes.list;
                hashes.extend(self.hashes.single.filter(|_| self.hashes.max > 0));
                hashes.sort_unstable();
                hashes.dedup();
                Ok(Message::Scrape(hashes))
            }
        }
    }

    fn announce(self) -> Result<Announce<'a>, BadMessage> {
        let info_hash = InfoHash(self.hashes.single.ok_or(BadMessage::InfoHash)?);
        let peer_id = PeerId(self.peer_id.ok_or(BadMessage::PeerId)?);
        let answer = self.answer.filter(|answer| answer.get() != "null");
        let event = self.event.unwrap_or_default();
        let completed = (event == Event::Completed).then_some(true);
        let num_want = self.num_want.0.filter(|number| *number >= 0.0);
        Ok(Announce {
            info_hash,
            peer_id,
            seeder: self.left.0.map(|left| left == 0.0).or(completed),
            event,
            num_want: num_want.map_or(usize::MAX, |number| number as usize),
            offers: self.offers.list,
            answer: match answer {
                Some(text) => Some(Answer {
                    to_peer_id: PeerId(self.to_peer_id.ok_or(BadMessage::Answer)?),
                    offer_id: OfferId(self.offer_id.ok_or(BadMessage::Answer)?),
                    answer: description(text).ok_or(BadMessage::Answer)?,
                }),
                None => None,
            },
        })
    }
}

impl<'a> Read<'a> for Fields<'a> {
    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        self.is_object = true;
        while let Some(key) = next_key(&mut fields)? {
            match key {
                Key::Action => read(&mut fields, &mut self.action)?,
                Key::InfoHash => read(&mut fields, &mut self.hashes)?,
                Key::PeerId => read(&mut fields, &mut self.peer_id)?,
                Key::Left => read(&mut fields, &mut self.left)?,
                Key::Event => read(&mut fields, &mut self.event)?,
                Key::NumWant => read(&mut fields, &mut self.num_want)?,
                Key::Offers => read(&mut fields, &mut self.offers)?,
                Key::Answer => self.answer = Some(fields.next_value()?),
                Key::ToPeerId => read(&mut fields, &mut self.to_peer_id)?,
                Key::OfferId => read(&mut fields, &mut self.offer_id)?,
                Key::Offer | Key::Sdp | Key::Other => _ = fields.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// One info hash, or a list of them.
#[derive(Default)]
struct Hashes {
    max: usize,
    single: Option<[u8; HASH_LEN]>,
    list: Vec<[u8; HASH_LEN]>,
    is_bad: bool,
}

impl<'a> Read<'a> for Hashes {
    fn clear(&mut self) {
        *self = Self { max: self.max, is_bad: true, ..Self::default() };
    }

    fn text(&mut self, text: &str) {
        self.single = Word::of(text);
        self.is_bad = self.single.is_none();
    }

    fn list<A: SeqAccess<'a>>(&mut self, mut list: A) -> Result<(), A::Error> {
        self.is_bad = false;
        let mut hash: Option<[u8; HASH_LEN]> = None;
        while list.next_element_seed(Into(&mut hash))?.is_some() {
            self.is_bad |= hash.is_none();
            self.list.extend(hash.filter(|_| self.list.len() < self.max));
        }
        Ok(())
    }
}

/// The offers of an announce.
#[derive(Default)]
struct Offers<'a> {
    max: usize,
    list: Vec<Offer<'a>>,
}

impl<'a> Read<'a> for Offers<'a> {
    fn clear(&mut self) {
        self.list.clear();
    }

    fn list<A: SeqAccess<'a>>(&mut self, mut list: A) -> Result<(), A::Error> {
        let mut fields = OfferFields { id: None, description: None };
        while self.list.len() < self.max {
            if list.next_element_seed(Into(&mut fields))?.is_none() {
                return Ok(());
            }
            let OfferFields { id, description: text } = fields;
            let valid = id.map(OfferId).zip(text.and_then(description));
            self.list.extend(valid.map(|(offer_id, offer)| Offer { offer_id, offer }));
        }
        skip_list(list)
    }
}

/// The fields of one offer.
struct OfferFields<'a> {
    id: Option<[u8; 20]>,
    description: Option<&'a RawValue>,
}

impl<'a> Read<'a> for OfferFields<'a> {
    fn clear(&mut self) {
        *self = Self { id: None, description: None };
    }

    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key(&mut fields)? {
            match key {
                Key::OfferId => read(&mut fields, &mut self.id)?,
                Key::Offer => self.description = Some(fields.next_value()?),
                _ => _ = fields.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// The text of a session description, if it is a valid one: an object of strings, among them `sdp`.
/// Objects and lists in it are refused, as parsers differ in the depth that they allow.
fn description(json: &RawValue) -> Option<&str> {
    let mut found = Description { has_sdp: false, is_bad: false };
    Into(&mut found).deserialize(&mut serde_json::Deserializer::from_str(json.get())).ok()?;
    (found.has_sdp && !found.is_bad).then_some(json.get())
}

struct Description {
    has_sdp: bool,
    is_bad: bool,
}

impl<'a> Read<'a> for Description {
    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key::<_, Key>(&mut fields)? {
            self.has_sdp |= key == Key::Sdp;
            self.is_bad |= !is_string(fields.next_value()?);
        }
        Ok(())
    }
}

/// The known keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Action,
    InfoHash,
    PeerId,
    Left,
    Event,
    NumWant,
    Offers,
    Offer,
    OfferId,
    Answer,
    ToPeerId,
    Sdp,
    Other,
}

impl Word for Key {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "action" => Self::Action,
            "info_hash" => Self::InfoHash,
            "peer_id" => Self::PeerId,
            "left" => Self::Left,
            "event" => Self::Event,
            "numwant" => Self::NumWant,
            "offers" => Self::Offers,
            "offer" => Self::Offer,
            "offer_id" => Self::OfferId,
            "answer" => Self::Answer,
            "to_peer_id" => Self::ToPeerId,
            "sdp" => Self::Sdp,
            _ => Self::Other,
        })
    }
}

impl Word for Event {
    fn of(text: &str) -> Option<Self> {
        Some(Self::from_text(text.as_bytes()))
    }
}

/// A number, if there is one.
struct Number(Option<f64>);

impl Read<'_> for Number {
    fn clear(&mut self) {
        self.0 = None;
    }

    fn number(&mut self, number: f64) {
        self.0 = Some(number);
    }
}
