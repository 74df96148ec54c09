//! What web workers send each other about WebRTC peers, and the parcels that carry it.

use std::slice;
use std::vec::Drain;

use onrush_proto::scrape::HASH_LEN;
use onrush_proto::webtorrent::{Offer, OfferId};
use onrush_proto::{InfoHash, PeerId, ScrapeCounts};

use super::swarms::{Announce, Socket};

/// The counts of a swarm, by its info hash.
pub type File = ([u8; HASH_LEN], ScrapeCounts);

/// A message for a connection. `T` is the text of a session description; in a parcel, its
/// length in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivery<T> {
    /// The reply to an announce.
    Announced {
        /// The swarm.
        info_hash: InfoHash,
        /// Its counts.
        counts: ScrapeCounts,
        /// Whether the connection is a member now; false after `stopped`.
        is_member: bool,
    },
    /// The reply to an announce of a member with another peer id. It has changed nothing.
    Refused {
        /// The swarm.
        info_hash: InfoHash,
    },
    /// The connection is no member any more: it was silent, or another one has replaced it.
    Forget {
        /// The swarm.
        info_hash: InfoHash,
    },
    /// An offer of another member.
    Offer {
        /// The swarm.
        info_hash: InfoHash,
        /// The connection that the answer goes to.
        from: Socket,
        /// The peer that offers.
        peer_id: PeerId,
        /// The id of the offer.
        offer_id: OfferId,
        /// The session description.
        offer: T,
    },
    /// The answer to an offer of the connection.
    Answer {
        /// The swarm.
        info_hash: InfoHash,
        /// The peer that answers.
        peer_id: PeerId,
        /// The peer that has sent the offer.
        to_peer_id: PeerId,
        /// The id of the offer.
        offer_id: OfferId,
        /// The session description.
        answer: T,
    },
    /// The reply to a scrape: its info hashes in their order.
    Scraped(Vec<File>),
}

impl<T> Delivery<T> {
    /// The text of an offer or an answer.
    pub fn text(&self) -> Option<&T> {
        match self {
            Self::Offer { offer: text, .. } | Self::Answer { answer: text, .. } => Some(text),
            _ => None,
        }
    }

    /// The same with another form of the text.
    fn map<U>(self, form: impl FnOnce(T) -> U) -> Delivery<U> {
        use Delivery::*;
        match self {
            Announced { info_hash, counts, is_member } => {
                Announced { info_hash, counts, is_member }
            }
            Refused { info_hash } => Refused { info_hash },
            Forget { info_hash } => Forget { info_hash },
            Offer { info_hash, from, peer_id, offer_id, offer } => {
                Offer { info_hash, from, peer_id, offer_id, offer: form(offer) }
            }
            Answer { info_hash, peer_id, to_peer_id, offer_id, answer } => {
                Answer { info_hash, peer_id, to_peer_id, offer_id, answer: form(answer) }
            }
            Scraped(files) => Scraped(files),
        }
    }
}

/// A message to the worker that owns the swarm, or the connection.
pub(super) enum Message {
    /// An announce with so many offers.
    Announce(Announce, usize),
    /// The connection is no member any more. `replies` if its client has announced that.
    Remove { socket: Socket, info_hash: InfoHash, replies: bool },
    /// A scrape. The workers before this one have filled in the counts of their swarms.
    Scrape(Socket, Vec<File>),
    /// For a connection.
    Deliver(Socket, Delivery<usize>),
}

/// Messages to one worker. The same boxes travel over the lanes.
#[derive(Default)]
pub(super) struct Parcel {
    /// The worker that it belongs to.
    pub(super) from: u16,
    /// The worker that it is for.
    pub(super) to: u16,
    /// Its [size](Self::size) when it was sent to another worker.
    pub(super) sent: usize,
    messages: Vec<Message>,
    /// The ids of the offers of all announces, in order, with the lengths of their texts in bytes.
    offers: Vec<(OfferId, usize)>,
    /// The texts of all offers and answers, in order.
    text: String,
}

impl Parcel {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Its size in bytes; info hashes of scrapes are not counted.
    pub(super) fn size(&self) -> usize {
        size_of_val(&self.messages[..]) + size_of_val(&self.offers[..]) + self.text.len()
    }

    /// Adds a message without text.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Adds an announce.
    pub(super) fn announce(&mut self, announce: &Announce, offers: &[Offer<'_>]) {
        self.push(Message::Announce(*announce, offers.len()));
        for Offer { offer_id, offer } in offers {
            self.offers.push((*offer_id, offer.len()));
            self.text.push_str(offer);
        }
    }

    /// Adds a delivery to a connection.
    pub(super) fn deliver(&mut self, to: Socket, delivery: Delivery<&str>) {
        let delivery = delivery.map(|text| {
            self.text.push_str(text);
            text.len()
        });
        self.push(Message::Deliver(to, delivery));
    }

    /// Takes the messages out, in order; their texts have to be taken in the same order.
    pub(super) fn take(&mut self) -> (Drain<'_, Message>, Texts<'_>) {
        let Self { messages, offers, text, .. } = self;
        (messages.drain(..), Texts { offers: offers.iter(), text })
    }

    /// Removes all contents, and memory beyond the usual size of `bytes`.
    pub(super) fn clear(&mut self, bytes: usize) {
        self.messages.clear();
        self.messages.shrink_to(bytes / size_of::<Message>());
        self.offers.clear();
        self.offers.shrink_to(bytes / size_of::<(OfferId, usize)>());
        self.text.clear();
        self.text.shrink_to(bytes);
    }
}

/// The texts of a parcel that are not taken yet.
pub(super) struct Texts<'a> {
    offers: slice::Iter<'a, (OfferId, usize)>,
    text: &'a str,
}

impl<'a> Texts<'a> {
    /// The next offer of an announce.
    pub(super) fn offer(&mut self) -> Option<Offer<'a>> {
        let (offer_id, length) = *self.offers.next()?;
        Some(Offer { offer_id, offer: self.text(length) })
    }

    /// The next delivery with its text.
    pub(super) fn of(&mut self, delivery: Delivery<usize>) -> Delivery<&'a str> {
        delivery.map(|length| self.text(length))
    }

    fn text(&mut self, length: usize) -> &'a str {
        let (text, rest) = self.text.split_at(length);
        self.text = rest;
        text
    }
}
