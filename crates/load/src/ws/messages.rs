//! What a worker does with the messages of a tracker.

use std::io;

use onrush_proto::webtorrent::client::{
    Failure, Forwarded, Reply, Type, first_bytes, is_forwarded, write_answer,
};
use onrush_proto::{Event, Family};
use rand::RngExt as _;

use super::answers::Whose;
use super::board::{Known, Offer, Phase};
use super::client::{Frame, message, pong};
use super::worker::{Membership, Pending, WsWorker};
use crate::check::{Finding, Right, may_be_refused};
use crate::plan::population::Member;
use crate::plan::{Kind, PlannedRequest};
use crate::tally::{Exchanged, WsTally};
use crate::worker::Nanos;

/// An offer that has arrived, or whose answer has.
struct Arrival {
    offer: Offer,
    known: Known,
    /// The peer that has sent the offer.
    from: Member,
    /// Whether the content is as it was sent. Another form of the same JSON is as good.
    is_same: bool,
}

impl WsWorker<'_> {
    /// Takes the whole frames that a connection has received.
    pub(super) fn receive(&mut self, number: u32, now: Nanos) {
        let Some(client) = &mut self.slots[number as usize].client else { return };
        if !client.is_open {
            return;
        }
        let mut input = std::mem::take(&mut client.connection.input);
        let mut frames = std::mem::take(&mut client.frames);
        let (mut at, mut done) = (0, Ok(()));
        while done.is_ok() && at < input.len() {
            let rest = &input[at..];
            let (len, frame) = match frames.read(rest) {
                Ok(Some(read)) => read,
                Ok(None) => break,
                Err(finding) => {
                    self.turns.counts.stray(finding, rest, now);
                    done = Err(io::Error::other("a malformed frame"));
                    break;
                }
            };
            at += len;
            match frame {
                Frame::Message(text) => done = self.message(number, text, now),
                Frame::Ping(payload) => {
                    if let Some(client) = &mut self.slots[number as usize].client {
                        pong(&mut client.connection.out, payload);
                    }
                }
                Frame::Nothing => {}
                Frame::Close => done = Err(io::Error::other("closed by the tracker")),
            }
            if self.slots[number as usize].client.as_ref().is_none_or(|client| client.ends) {
                break;
            }
        }
        self.turns.counts.bytes(at, now);
        if let Some(client) = &mut self.slots[number as usize].client {
            input.drain(..at);
            client.connection.input = input;
            client.frames = frames;
            if !client.connection.out.is_empty() {
                self.turns.send(number);
            }
        }
        if let Err(error) = done {
            self.failed(number, &error, now);
        }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When it is not UTF-8, which ends its connection (RFC 6455, section 8.1).
    fn message(&mut self, number: u32, text: &[u8], now: Nanos) -> io::Result<()> {
        if self.turns.counts.within(now) {
            self.ws().messages[1] += 1;
        }
        if let Some(it) = self.recognized(text) {
            match it.known.phase {
                Phase::Sent => self.take_offer(number, &it, text, now),
                _ => self.take_answer(number, &it, text, now),
            }
            return Ok(());
        }
        let Ok(decoded) = str::from_utf8(text) else {
            self.turns.counts.stray(Finding::Frame, text, now);
            return Err(io::Error::other("a malformed frame"));
        };
        let mut reader = std::mem::take(&mut self.reader);
        match reader.read(decoded) {
            Err(bad) => self.turns.counts.stray(bad.into(), text, now),
            Ok(Reply::Offer(offer)) => self.offer(number, &offer, text, now),
            Ok(Reply::Answer(answer)) => self.answer(number, &answer, text, now),
            Ok(reply) => self.reply(number, &reply, text, now),
        }
        self.reader = reader;
        Ok(())
    }

    /// The arrival in a message that is byte for byte as it should be. Most are, and are not read
    /// as JSON, which costs several times as much.
    fn recognized(&mut self, text: &[u8]) -> Option<Arrival> {
        let id = self.offer_id.find(text)? + self.offer_id.needle().len();
        let offer = self.board.by_first_bytes(first_bytes(&text[id..])?)?;
        let (it, seed) = (self.arrival(offer)?, self.board.seed(offer));
        let (kind, by, seed) = match it.known.phase {
            Phase::Sent => (Type::Offer, it.known.from, seed),
            Phase::Answered => (Type::Answer, it.known.to, !seed),
            Phase::Delivered | Phase::Returned => return None,
        };
        let info_hash = self.plan.population.info_hash(it.from.swarm);
        let ids = (&info_hash, &self.peer_id(by), &self.board.id(offer));
        let sdp = |out: &mut Vec<u8>| self.descriptions.write(seed, out);
        let is_same = is_forwarded(text, ids, (kind, sdp), &mut self.expected);
        is_same.then_some(Arrival { is_same, ..it })
    }

    /// The arrival of an offer, or of its answer; `None` where the offer is older than all that
    /// is known.
    fn arrival(&self, offer: Offer) -> Option<Arrival> {
        let known = self.board.known(offer)?;
        let from = self.plan.population.member(Family::V4, known.from);
        Some(Arrival { offer, known, from, is_same: false })
    }

    /// Counts the reply to a request.
    fn reply(&mut self, number: u32, reply: &Reply<'_>, text: &[u8], now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let is_of = |pending: &Pending| match reply {
            Reply::Announce(it) => it.info_hash == pending.info_hash,
            Reply::Failure(Failure { info_hash: Some(hash), .. }) => *hash == pending.info_hash,
            Reply::Failure(_) => true,
            _ => pending.request.kind() == Kind::Scrape,
        };
        // Replies come in the order of the requests.
        let (overdue, pending) = (slot.overdue.filter(is_of), slot.pending.filter(is_of));
        let request = overdue.or(pending).map(|pending| pending.number);
        let (answers, known) = (&mut slot.answers, &mut self.answers_have_replies);
        let whose = match reply {
            Reply::Announce(it) => answers.whose((it.info_hash, false), request, known),
            Reply::Failure(Failure { info_hash: Some(hash), .. }) => {
                answers.whose((*hash, true), request, known)
            }
            _ => answers.of_request(request, known),
        };
        match whose {
            Whose::Answer => return self.turns.counts.differs(Finding::AnswerReply, text, now),
            Whose::Unasked => return self.turns.counts.stray(Finding::Unasked, text, now),
            Whose::Request | Whose::Either => {}
        }
        let Some(pending) = pending.filter(|_| overdue.is_none()) else {
            slot.overdue = None;
            return self.turns.counts.late(now);
        };
        let verdict = match (reply, pending.request) {
            // Its counts may be from before the announce.
            _ if whose == Whose::Either => Ok(Right::PLAIN),
            (Reply::Failure(failure), request) => match failure.retry_in {
                _ if may_be_refused(&request) => Ok(Right::PLAIN),
                // As a tracker under overload sends it (BEP 31).
                Some(_) => {
                    self.turns.counts.lost(request.kind(), pending.sent);
                    return self.answered(number, now);
                }
                None => Err(Finding::ErrorReply),
            },
            (Reply::Announce(it), request) => self.checker.check_announced(self.plan, &request, it),
            (Reply::Scrape(_), PlannedRequest::Scrape { hashes: 0, .. }) => Ok(Right::PLAIN),
            (Reply::Scrape(files), PlannedRequest::Scrape { draw, hashes }) => {
                self.checker.files(self.plan, (draw, hashes), files)
            }
            _ => Err(Finding::OtherAction),
        };
        if let (Reply::Announce(it), Ok(_)) = (reply, &verdict) {
            let since = if whose == Whose::Either { Nanos::MAX } else { now };
            self.announced(number, &pending, (it.seeders, it.leechers), since);
        }
        let slot = &self.slots[number as usize];
        let (connection, url) = (slot.number, &self.target.urls[slot.url]);
        let asked = || format!("{:?} of connection {connection} to {url}", pending.request);
        let of = (pending.request.kind(), pending.sent);
        self.turns.counts.reply(of, now, verdict, text, asked);
        self.answered(number, now);
    }

    /// Notes what the tracker knows of a peer now, and how many of the offers are due.
    fn announced(
        &mut self,
        number: u32,
        pending: &Pending,
        (seeders, leechers): (Option<u32>, Option<u32>),
        since: Nanos,
    ) {
        let PlannedRequest::Announce { peer, event, seeder } = pending.request else { return };
        let place = self.place(peer);
        let membership =
            Membership { is_member: event != Event::Stopped, is_seeder: seeder, since };
        self.slots[number as usize].memberships[place] = membership;
        // A seeder is of no use to seeders.
        let others = match (seeders, leechers) {
            (Some(_), Some(leechers)) if seeder => leechers,
            (Some(seeders), Some(leechers)) => seeders.saturating_add(leechers).saturating_sub(1),
            _ => 0,
        };
        let due = u64::from(others.min(pending.offers));
        self.due += due;
        if self.turns.counts.within(pending.sent) {
            self.ws().offers.due += due;
        }
    }

    /// Takes an offer in any form.
    fn offer(&mut self, number: u32, it: &Forwarded<'_>, text: &[u8], now: Nanos) {
        let Some(offer) = self.board.offer(&it.offer_id) else {
            return self.turns.counts.stray(Finding::OfferUnknown, text, now);
        };
        let Some(mut arrival) = self.arrival(offer) else {
            self.ws().offers.late += 1;
            return;
        };
        arrival.is_same = self.is_same(&arrival, it, arrival.known.from, self.board.seed(offer));
        self.take_offer(number, &arrival, text, now);
    }

    /// Checks an offer, and answers it or not.
    fn take_offer(&mut self, number: u32, it: &Arrival, text: &[u8], now: Nanos) {
        let Arrival { offer, known, from, .. } = *it;
        self.board.arrived(offer);
        let answers = self.chance.random_bool(self.target.settings.answers);
        let (to, answers, differs) = match self.check_offer(number, it, answers) {
            Ok(found) => found,
            Err(finding) => return self.turns.counts.stray(finding, text, now),
        };
        if let Some(finding) = differs {
            self.turns.counts.differs(finding, text, now);
        }
        self.exchanged(known.sent, now, |ws| &mut ws.offers);
        if !answers {
            return;
        }
        let info_hash = self.plan.population.info_hash(from.swarm);
        let peers = (self.peer_id(to), self.peer_id(known.from));
        let Self { slots, board, descriptions, .. } = self;
        let slot = &mut slots[number as usize];
        slot.answers.send(info_hash);
        if let Some(client) = &mut slot.client {
            message(&mut client.connection.out, |out| {
                let sdp = |out: &mut Vec<u8>| descriptions.write(!board.seed(offer), out);
                write_answer(&info_hash, (&peers.0, &peers.1), &board.id(offer), sdp, out);
            });
        }
        self.sent_message(now);
        if self.turns.counts.within(known.sent) {
            let answers = &mut self.ws().answers;
            answers.sent += 1;
            answers.due += 1;
        }
    }

    /// The peer of this connection that gets an offer, whether it answers, as far as it may, and
    /// what differs from most trackers.
    fn check_offer(
        &self,
        number: u32,
        it: &Arrival,
        answers: bool,
    ) -> Result<(u32, bool, Option<Finding>), Finding> {
        if !it.is_same {
            return Err(Finding::OfferChanged);
        }
        let (slot, known) = (&self.slots[number as usize], &it.known);
        let to = self.plan.population.peer_at(slot.number, &it.from);
        let to = to.ok_or(Finding::OfferElsewhere)?;
        if to == known.from {
            return Err(Finding::OfferReturned);
        }
        let membership = slot.memberships[self.place(to)];
        // The tracker knew that when the offer was sent.
        let is_sure = membership.since < known.sent;
        if is_sure && !membership.is_member {
            return Err(Finding::OfferElsewhere);
        }
        // As real clients: to some trackers an answer makes its sender a member again.
        let answers = answers && membership.is_member;
        if !self.board.deliver(it.offer, to, answers) {
            return Err(Finding::OfferTwice);
        }
        let is_to_seeder = is_sure && membership.is_seeder && known.is_seeder;
        Ok((to, answers, is_to_seeder.then_some(Finding::OfferToSeeder)))
    }

    /// Takes an answer in any form.
    fn answer(&mut self, number: u32, it: &Forwarded<'_>, text: &[u8], now: Nanos) {
        let Some(offer) = self.board.offer(&it.offer_id) else {
            return self.turns.counts.stray(Finding::AnswerUnknown, text, now);
        };
        let Some(mut arrival) = self.arrival(offer) else {
            self.ws().answers.late += 1;
            return;
        };
        arrival.is_same = self.is_same(&arrival, it, arrival.known.to, !self.board.seed(offer));
        self.take_answer(number, &arrival, text, now);
    }

    /// Checks an answer.
    fn take_answer(&mut self, number: u32, it: &Arrival, text: &[u8], now: Nanos) {
        match self.check_answer(number, it) {
            Ok(()) => {
                self.returned += 1;
                self.exchanged(it.known.sent, now, |ws| &mut ws.answers);
            }
            Err(finding) => self.turns.counts.stray(finding, text, now),
        }
    }

    fn check_answer(&self, number: u32, it: &Arrival) -> Result<(), Finding> {
        let connections = self.target.settings.connections as u32;
        match it.known.phase {
            _ if it.known.from % connections != self.slots[number as usize].number => {
                return Err(Finding::AnswerElsewhere);
            }
            Phase::Returned => return Err(Finding::AnswerTwice),
            Phase::Sent | Phase::Delivered => return Err(Finding::AnswerUnknown),
            Phase::Answered if !it.is_same => return Err(Finding::AnswerChanged),
            Phase::Answered => {}
        }
        match self.board.advance(it.offer, Phase::Answered, Phase::Returned) {
            true => Ok(()),
            false => Err(Finding::AnswerTwice),
        }
    }

    /// Whether this is the content of what the peer `by` has sent, with the description of this
    /// seed.
    fn is_same(&mut self, of: &Arrival, it: &Forwarded<'_>, by: u32, seed: u64) -> bool {
        self.expected.clear();
        self.descriptions.write(seed, &mut self.expected);
        let is_same = self.expected == it.sdp.as_bytes() || {
            let decoded =
                |text: &[u8]| serde_json::from_slice::<String>(&[b"\"", text, b"\""].concat()).ok();
            let expected = decoded(&self.expected);
            expected.is_some() && expected == decoded(it.sdp.as_bytes())
        };
        let info_hash = self.plan.population.info_hash(of.from.swarm);
        is_same && it.info_hash == info_hash && it.peer_id == self.peer_id(by)
    }

    /// Counts an offer or an answer that has arrived right.
    fn exchanged(
        &mut self,
        sent: Nanos,
        now: Nanos,
        of: impl FnOnce(&mut WsTally) -> &mut Exchanged,
    ) {
        if !self.turns.counts.within(sent) {
            return;
        }
        let (latency, timeout) = (now.saturating_sub(sent), self.turns.pacer.timeout);
        let exchanged = of(self.ws());
        match latency <= timeout {
            true => {
                exchanged.arrived += 1;
                exchanged.latency.0.saturating_record(latency);
            }
            false => exchanged.late += 1,
        }
    }
}
