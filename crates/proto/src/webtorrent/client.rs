//! The client's side of WebTorrent: messages as clients send them, and a strict reader of those of
//! a tracker, for tests of trackers.
//!
//! Session descriptions are passed as they are within a JSON string, so that neither side escapes
//! them once more.

use serde_core::de::{DeserializeSeed as _, Error, IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::read::{Into, Read, Word, id_of, is_string, next_key, read, take};
use super::reply::{begin, id};
use super::{Action, OfferId};
use crate::announce::Announce;
use crate::http::client::Files;
use crate::http::decimal;
use crate::id::{InfoHash, PeerId};
use crate::response::Counts;
use crate::scrape::{COUNTS_LEN, HASH_LEN, ScrapeCounts};

/// A message of a tracker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The reply to an announce.
    Announce(Announced),
    /// The reply to a scrape.
    Scrape(Files<'a>),
    /// An offer of another peer.
    Offer(Forwarded<'a>),
    /// The answer of another peer to an offer.
    Answer(Forwarded<'a>),
    /// The failure of a request.
    Failure(Failure),
}

/// The reply to an announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// The swarm.
    pub info_hash: InfoHash,
    /// Seconds until the next regular announce.
    pub interval: u32,
    /// `complete`, the peers that miss nothing. Not all trackers send it.
    pub seeders: Option<u32>,
    /// `incomplete`, the peers that miss something. Not all trackers send it.
    pub leechers: Option<u32>,
}

/// An offer or an answer that a tracker passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarded<'a> {
    /// The swarm.
    pub info_hash: InfoHash,
    /// The peer that has sent it.
    pub peer_id: PeerId,
    /// The id of the offer.
    pub offer_id: OfferId,
    /// The session description, as it is within a JSON string.
    pub sdp: &'a str,
}

/// The type of a session description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// Of an offer.
    Offer,
    /// Of an answer.
    Answer,
}

/// A failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The action of the request.
    pub action: Action,
    /// The swarm of the request, if it was an announce.
    pub info_hash: Option<InfoHash>,
    /// The reason.
    pub reason: String,
    /// The minutes after which the client may try again (BEP 31).
    pub retry_in: Option<u32>,
}

/// Why a text is not a message of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum BadReply {
    /// It is no JSON object.
    Json,
    /// The action is missing or unknown: a browser closes the connection.
    Action,
    /// A field that the message needs is missing, has a value of another type, or is repeated.
    Value,
}

/// Reads messages, with memory for scrapes that is used again.
#[derive(Debug, Default)]
pub struct ReplyReader {
    files: Vec<File>,
    hashes: Vec<[u8; HASH_LEN]>,
    counts: Vec<[u8; COUNTS_LEN]>,
}

/// A swarm of a scrape with its counts in wire form.
type File = ([u8; HASH_LEN], [u8; COUNTS_LEN]);

impl ReplyReader {
    /// Reads a message. Unknown fields are ignored.
    ///
    /// # Errors
    /// Of several faults the one that is listed first in [`BadReply`].
    pub fn read<'a>(&'a mut self, text: &'a str) -> Result<Reply<'a>, BadReply> {
        let mut fields = Fields { files: std::mem::take(&mut self.files), ..Fields::default() };
        fields.files.clear();
        let mut json = serde_json::Deserializer::from_str(text);
        let result = Into(&mut fields).deserialize(&mut json).and_then(|()| json.end());
        self.files = std::mem::take(&mut fields.files);
        match result {
            Ok(()) if fields.is_object => self.reply(fields),
            _ => Err(BadReply::Json),
        }
    }

    fn reply<'a>(&'a mut self, fields: Fields<'a>) -> Result<Reply<'a>, BadReply> {
        let action = fields.action.required().map_err(|_| BadReply::Action)?;
        let info_hash = fields.info_hash.optional()?.map(InfoHash);
        if let Some(Text(reason)) = fields.failure.optional()? {
            // `never` is a text (BEP 31).
            let retry_in = fields.retry_in.value;
            return Ok(Reply::Failure(Failure { action, info_hash, reason, retry_in }));
        }
        if action == Action::Scrape {
            fields.has_files.required()?;
            return self.scrape().map(Reply::Scrape);
        }
        let info_hash = info_hash.ok_or(BadReply::Value)?;
        let (offer, answer) = (fields.offer.optional()?, fields.answer.optional()?);
        if offer.is_some() || answer.is_some() {
            let (peer_id, offer_id) = (fields.peer_id.required()?, fields.offer_id.required()?);
            let (peer_id, offer_id) = (PeerId(peer_id), OfferId(offer_id));
            let forwarded = |sdp| Forwarded { info_hash, peer_id, offer_id, sdp };
            return match (offer, answer) {
                (Some((Type::Offer, sdp)), None) => Ok(Reply::Offer(forwarded(sdp))),
                (None, Some((Type::Answer, sdp))) => Ok(Reply::Answer(forwarded(sdp))),
                _ => Err(BadReply::Value),
            };
        }
        Ok(Reply::Announce(Announced {
            info_hash,
            interval: fields.interval.required()?,
            seeders: fields.seeders.optional()?,
            leechers: fields.leechers.optional()?,
        }))
    }

    /// The swarms of a scrape in ascending order, as over HTTP.
    fn scrape(&mut self) -> Result<Files<'_>, BadReply> {
        self.files.sort_unstable();
        let is_repeated = |pair: &[File]| pair[0].0 == pair[1].0;
        if self.files.windows(2).any(is_repeated) {
            return Err(BadReply::Value);
        }
        self.hashes.clear();
        self.counts.clear();
        for (hash, counts) in &self.files {
            self.hashes.push(*hash);
            self.counts.push(*counts);
        }
        Ok(Files { hashes: &self.hashes, counts: Counts(&self.counts) })
    }
}

/// Whether a message is the one that passes on this offer or answer, in the form that trackers
/// usually write: without spaces, with the escapes of `JSON.stringify`, and fields in any order.
/// It is far cheaper than [`ReplyReader`], which reads every form. `sdp` appends the description,
/// as it is within a JSON string; `memory` is used again.
pub fn is_forwarded(
    message: &[u8],
    (info_hash, peer_id, offer_id): (&InfoHash, &PeerId, &OfferId),
    (kind, sdp): (Type, impl FnOnce(&mut Vec<u8>)),
    memory: &mut Vec<u8>,
) -> bool {
    const ACTION: &[u8] = br#""action":"announce""#;
    memory.clear();
    let mut ends = [0; 3];
    for (end, (key, value)) in ends.iter_mut().zip([
        (&br#""info_hash":"#[..], &info_hash.0),
        (br#""peer_id":"#, &peer_id.0),
        (br#""offer_id":"#, &offer_id.0),
    ]) {
        memory.extend_from_slice(key);
        id(value, memory);
        *end = memory.len();
    }
    memory.extend_from_slice(match kind {
        Type::Offer => &br#""offer":{"type":"offer","sdp":""#[..],
        Type::Answer => br#""answer":{"type":"answer","sdp":""#,
    });
    sdp(memory);
    memory.extend_from_slice(br#""}"#);
    let [hash, peer, offer] = ends;
    let ids = [&memory[..hash], &memory[hash..peer], &memory[peer..offer]];
    let mut fields = [ACTION, ids[0], ids[1], ids[2], &memory[offer..]].map(Some);
    let mut rest = message;
    for before in b"{,,,," {
        let field = rest.split_first().filter(|(first, _)| *first == before).and_then(|(_, at)| {
            let is_next = |field: &&mut Option<&[u8]>| field.is_some_and(|it| at.starts_with(it));
            Some(&at[fields.iter_mut().find(is_next)?.take()?.len()..])
        });
        let Some(behind) = field else { return false };
        rest = behind;
    }
    rest == b"}"
}

/// The first eight bytes of the id at the start of `text`, the rest of a message behind the
/// quotation mark. What follows is not looked at.
pub fn first_bytes(mut text: &[u8]) -> Option<[u8; 8]> {
    take(&mut text)
}

/// Appends an announce with these offers. `sdp` appends the description of an offer, as it is
/// within a JSON string. What BEP 15 alone has is not in it.
pub fn write_announce(
    announce: &Announce<'_>,
    offers: &[OfferId],
    mut sdp: impl FnMut(&OfferId, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    begin(Action::Announce, Some(&announce.info_hash), out);
    out.extend_from_slice(br#","peer_id":"#);
    id(&announce.peer_id.0, out);
    for (key, number) in [
        (&br#","uploaded":"#[..], announce.uploaded),
        (br#","downloaded":"#, announce.downloaded),
        (br#","left":"#, announce.left),
        (br#","numwant":"#, offers.len() as u64),
    ] {
        out.extend_from_slice(key);
        decimal(number, out);
    }
    if let Some(event) = announce.event.to_text() {
        out.extend_from_slice(br#","event":""#);
        out.extend_from_slice(event.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(br#","offers":["#);
    for (nth, offer_id) in offers.iter().enumerate() {
        let begin = br#",{"offer":{"type":"offer","sdp":""#;
        out.extend_from_slice(&begin[usize::from(nth == 0)..]);
        sdp(offer_id, out);
        out.extend_from_slice(br#""},"offer_id":"#);
        id(&offer_id.0, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}");
}

/// Appends the answer of the peer `from` to an offer of the peer `to`. `sdp` appends its
/// description, as it is within a JSON string.
pub fn write_answer(
    info_hash: &InfoHash,
    (from, to): (&PeerId, &PeerId),
    offer_id: &OfferId,
    sdp: impl FnOnce(&mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    begin(Action::Announce, Some(info_hash), out);
    for (key, value) in [
        (&br#","peer_id":"#[..], &from.0),
        (br#","to_peer_id":"#, &to.0),
        (br#","offer_id":"#, &offer_id.0),
    ] {
        out.extend_from_slice(key);
        id(value, out);
    }
    out.extend_from_slice(br#","answer":{"type":"answer","sdp":""#);
    sdp(out);
    out.extend_from_slice(br#""}}"#);
}

/// Appends a scrape of these swarms.
pub fn write_scrape(info_hashes: impl Iterator<Item = InfoHash>, out: &mut Vec<u8>) {
    begin(Action::Scrape, None, out);
    out.extend_from_slice(br#","info_hash":["#);
    for (nth, hash) in info_hashes.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        id(&hash.0, out);
    }
    out.extend_from_slice(b"]}");
}

/// The fields of a message.
#[derive(Default)]
struct Fields<'a> {
    is_object: bool,
    action: Field<Action>,
    info_hash: Field<[u8; 20]>,
    peer_id: Field<[u8; 20]>,
    offer_id: Field<[u8; 20]>,
    interval: Field<u32>,
    seeders: Field<u32>,
    leechers: Field<u32>,
    offer: Field<Sdp<'a>>,
    answer: Field<Sdp<'a>>,
    has_files: Field<()>,
    files: Vec<File>,
    failure: Field<Text>,
    retry_in: Field<u32>,
}

/// A value that has to be of its type, and there once.
struct Field<T> {
    value: Option<T>,
    /// How often it was there.
    times: usize,
}

impl<T> Default for Field<T> {
    fn default() -> Self {
        Self { value: None, times: 0 }
    }
}

impl<T> Field<T> {
    fn optional(self) -> Result<Option<T>, BadReply> {
        match (self.times, self.value) {
            (0, _) => Ok(None),
            (1, Some(value)) => Ok(Some(value)),
            _ => Err(BadReply::Value),
        }
    }

    fn required(self) -> Result<T, BadReply> {
        self.optional()?.ok_or(BadReply::Value)
    }

    /// Begins to read its value.
    fn begin(&mut self) {
        self.times += 1;
        self.value = None;
    }
}

impl Field<[u8; 20]> {
    /// Reads an id.
    fn id<E: Error>(&mut self, json: &RawValue) -> Result<(), E> {
        self.begin();
        self.value = id_of(json);
        // A string with half a pair of surrogates is none.
        match self.value.is_some() || !json.get().starts_with('"') || is_string(json) {
            true => Ok(()),
            false => Err(E::custom("an invalid string")),
        }
    }
}

impl<T: Word> Read<'_> for Field<T> {
    fn clear(&mut self) {
        self.begin();
    }

    fn text(&mut self, text: &str) {
        self.value = T::of(text);
    }

    fn number(&mut self, number: f64) {
        self.value = T::of_number(number);
    }
}

impl<'a> Read<'a> for Fields<'a> {
    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        self.is_object = true;
        while let Some(key) = next_key(&mut fields)? {
            let fields = &mut fields;
            match key {
                Key::Action => read(fields, &mut self.action)?,
                Key::InfoHash => self.info_hash.id(fields.next_value()?)?,
                Key::PeerId => self.peer_id.id(fields.next_value()?)?,
                Key::OfferId => self.offer_id.id(fields.next_value()?)?,
                Key::Interval => read(fields, &mut self.interval)?,
                Key::Complete => read(fields, &mut self.seeders)?,
                Key::Incomplete => read(fields, &mut self.leechers)?,
                Key::Offer => read(fields, &mut Description(&mut self.offer))?,
                Key::Answer => read(fields, &mut Description(&mut self.answer))?,
                Key::Failure => read(fields, &mut self.failure)?,
                Key::RetryIn => read(fields, &mut self.retry_in)?,
                Key::Files => {
                    read(fields, &mut ScrapeFiles(&mut self.has_files, &mut self.files))?;
                }
                _ => _ = fields.next_value::<IgnoredAny>()?,
            }
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
    OfferId,
    Interval,
    Complete,
    Incomplete,
    Downloaded,
    Offer,
    Answer,
    Failure,
    RetryIn,
    Files,
    Type,
    Sdp,
    Other,
}

impl Word for Key {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "action" => Self::Action,
            "info_hash" => Self::InfoHash,
            "peer_id" => Self::PeerId,
            "offer_id" => Self::OfferId,
            "interval" => Self::Interval,
            "complete" => Self::Complete,
            "incomplete" => Self::Incomplete,
            "downloaded" => Self::Downloaded,
            "offer" => Self::Offer,
            "answer" => Self::Answer,
            "failure reason" => Self::Failure,
            "retry in" => Self::RetryIn,
            "files" => Self::Files,
            "type" => Self::Type,
            "sdp" => Self::Sdp,
            _ => Self::Other,
        })
    }
}

/// Any text.
struct Text(String);

impl Word for Text {
    fn of(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

/// A session description with its type.
type Sdp<'a> = (Type, &'a str);

impl Word for Type {
    fn of(text: &str) -> Option<Self> {
        match text {
            "offer" => Some(Self::Offer),
            "answer" => Some(Self::Answer),
            _ => None,
        }
    }
}

/// A number of 32 bits.
impl Word for u32 {
    fn of(_: &str) -> Option<Self> {
        None
    }

    fn of_number(number: f64) -> Option<Self> {
        let whole = number as Self;
        (f64::from(whole) == number).then_some(whole)
    }
}

/// The place of a session description: an object with `type` and `sdp`.
struct Description<'f, 'a>(&'f mut Field<Sdp<'a>>);

impl<'a> Read<'a> for Description<'_, 'a> {
    fn clear(&mut self) {
        self.0.begin();
    }

    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        let (mut kind, mut sdp) = (Field::<Type>::default(), Field::<&'a str>::default());
        while let Some(key) = next_key(&mut fields)? {
            match key {
                Key::Type => read(&mut fields, &mut kind)?,
                Key::Sdp => {
                    let value: &'a RawValue = fields.next_value()?;
                    let text = is_string(value).then(|| value.get());
                    sdp.begin();
                    sdp.value = text.map(|text| &text[1..text.len() - 1]);
                }
                _ => _ = fields.next_value::<IgnoredAny>()?,
            }
        }
        self.0.value = kind.required().ok().zip(sdp.required().ok());
        Ok(())
    }
}

/// The place of the counts of a scrape.
struct ScrapeFiles<'f>(&'f mut Field<()>, &'f mut Vec<File>);

impl<'a> Read<'a> for ScrapeFiles<'_> {
    fn clear(&mut self) {
        self.0.begin();
    }

    fn object<A: MapAccess<'a>>(&mut self, mut files: A) -> Result<(), A::Error> {
        let mut is_valid = true;
        while let Some(hash) = {
            let mut hash: Option<[u8; HASH_LEN]> = None;
            files.next_key_seed(Into(&mut hash))?.map(|()| hash)
        } {
            let mut counts = FileCounts::default();
            read(&mut files, &mut counts)?;
            match hash.zip(counts.value()) {
                Some(file) => self.1.push(file),
                None => is_valid = false,
            }
        }
        self.0.value = is_valid.then_some(());
        Ok(())
    }
}

/// The counts of one swarm.
#[derive(Default)]
struct FileCounts {
    seeders: Field<u32>,
    completed: Field<u32>,
    leechers: Field<u32>,
}

impl FileCounts {
    fn value(self) -> Option<[u8; COUNTS_LEN]> {
        let (seeders, leechers) = (self.seeders.required().ok()?, self.leechers.required().ok()?);
        let completed = self.completed.optional().ok()?.unwrap_or(0);
        let mut counts = [0; COUNTS_LEN];
        ScrapeCounts { seeders, completed, leechers }.write(&mut counts);
        Some(counts)
    }
}

impl<'a> Read<'a> for FileCounts {
    fn object<A: MapAccess<'a>>(&mut self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key(&mut fields)? {
            match key {
                Key::Complete => read(&mut fields, &mut self.seeders)?,
                Key::Downloaded => read(&mut fields, &mut self.completed)?,
                Key::Incomplete => read(&mut fields, &mut self.leechers)?,
                _ => _ = fields.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}
