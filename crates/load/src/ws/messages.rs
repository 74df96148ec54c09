//! What a worker does with the messages of a tracker.

use std::io;

use onrush_proto::webtorrent::client::{Failure, Forwarded, Reply, write_answer};
use onrush_proto::{Event, Family};
use rand::RngExt as _;

use super::board::{Known, Offer, Phase};
use super::client::{Frame, message, pong};
use super::worker::{Membership, Pending, WsWorker};
use crate::check::{Finding, Right, may_be_refused};
use crate::plan::{Kind, PlannedRequest};
use crate::tally::{Exchanged, WsTally};
use crate::worker::Nanos;

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
                Frame::Message(text) => self.message(number, text, now),
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

    fn message(&mut self, number: u32, text: &str, now: Nanos) {
        if self.turns.counts.within(now) {
            self.ws().messages[1] += 1;
        }
        let mut reader = std::mem::take(&mut self.reader);
        match reader.read(text) {
            Err(bad) => self.turns.counts.stray(bad.into(), text.as_bytes(), now),
            Ok(Reply::Offer(offer)) => self.offer(number, &offer, text, now),
            Ok(Reply::Answer(answer)) => self.answer(number, &answer, text, now),
            Ok(reply) => self.reply(number, &reply, text, now),
        }
        self.reader = reader;
    }

    /// Counts the reply to a request.
    fn reply(&mut self, number: u32, reply: &Reply<'_>, text: &str, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let is_of = |pending: &Pending| match reply {
            Reply::Announce(it) => it.info_hash == pending.info_hash,
            Reply::Failure(Failure { info_hash: Some(hash), .. }) => *hash == pending.info_hash,
            Reply::Failure(_) => true,
            _ => pending.request.kind() == Kind::Scrape,
        };
        // Replies come in the order of the requests.
        if slot.overdue.take_if(|pending| is_of(pending)).is_some() {
            return self.turns.counts.late(now);
        }
        let Some(pending) = slot.pending.filter(is_of) else {
            return self.turns.counts.stray(Finding::Unasked, text.as_bytes(), now);
        };
        let verdict = match (reply, pending.request) {
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
            self.announced(number, &pending, (it.seeders, it.leechers), now);
        }
        let slot = &self.slots[number as usize];
        let (connection, url) = (slot.number, &self.target.urls[slot.url]);
        let asked = || format!("{:?} of connection {connection} to {url}", pending.request);
        let of = (pending.request.kind(), pending.sent);
        self.turns.counts.reply(of, now, verdict, text.as_bytes(), asked);
        self.answered(number, now);
    }

    /// Notes what the tracker knows of a peer now, and how many of the offers are due.
    fn announced(
        &mut self,
        number: u32,
        pending: &Pending,
        (seeders, leechers): (Option<u32>, Option<u32>),
        now: Nanos,
    ) {
        let PlannedRequest::Announce { peer, event, seeder } = pending.request else { return };
        let place = self.place(peer);
        let membership =
            Membership { is_member: event != Event::Stopped, is_seeder: seeder, since: now };
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

    /// Checks an offer, and answers it or not.
    fn offer(&mut self, number: u32, it: &Forwarded<'_>, text: &str, now: Nanos) {
        let Some(offer) = self.board.offer(&it.offer_id) else {
            return self.turns.counts.stray(Finding::OfferUnknown, text.as_bytes(), now);
        };
        let Some(known) = self.board.known(offer) else {
            // It is older than all that is known.
            self.ws().offers.late += 1;
            return;
        };
        self.board.arrived(offer);
        let answers = self.chance.random_bool(self.target.settings.answers);
        let (to, differs) = match self.check_offer(number, it, (offer, known), answers) {
            Ok(found) => found,
            Err(finding) => return self.turns.counts.stray(finding, text.as_bytes(), now),
        };
        if let Some(finding) = differs {
            self.turns.counts.differs(finding, text.as_bytes(), now);
        }
        self.exchanged(known.sent, now, |ws| &mut ws.offers);
        if !answers {
            return;
        }
        let peers = (self.peer_id(to), self.peer_id(known.from));
        let Self { slots, board, descriptions, .. } = self;
        if let Some(client) = &mut slots[number as usize].client {
            message(&mut client.connection.out, |out| {
                let sdp = |out: &mut Vec<u8>| descriptions.write(!board.seed(offer), out);
                write_answer(&it.info_hash, (&peers.0, &peers.1), &it.offer_id, sdp, out);
            });
        }
        self.sent_message(now);
        if self.turns.counts.within(known.sent) {
            let answers = &mut self.ws().answers;
            answers.sent += 1;
            answers.due += 1;
        }
    }

    /// The peer of this connection that gets an offer, and what differs from most trackers.
    fn check_offer(
        &mut self,
        number: u32,
        it: &Forwarded<'_>,
        (offer, known): (Offer, Known),
        answers: bool,
    ) -> Result<(u32, Option<Finding>), Finding> {
        self.check_content(it, known.from, known.from, self.board.seed(offer))
            .map_err(|()| Finding::OfferChanged)?;
        let slot = &self.slots[number as usize];
        let population = &self.plan.population;
        let member = population.member(Family::V4, known.from);
        let to = population.peer_at(slot.number, &member).ok_or(Finding::OfferElsewhere)?;
        if to == known.from {
            return Err(Finding::OfferReturned);
        }
        let membership = slot.memberships[self.place(to)];
        // The tracker knew that when the offer was sent.
        let is_sure = membership.since < known.sent;
        if is_sure && !membership.is_member {
            return Err(Finding::OfferElsewhere);
        }
        if !self.board.deliver(offer, to, answers) {
            return Err(Finding::OfferTwice);
        }
        let is_to_seeder = is_sure && membership.is_seeder && known.is_seeder;
        Ok((to, is_to_seeder.then_some(Finding::OfferToSeeder)))
    }

    /// Checks an answer.
    fn answer(&mut self, number: u32, it: &Forwarded<'_>, text: &str, now: Nanos) {
        let checked = match self.board.offer(&it.offer_id) {
            None => Err(Finding::AnswerUnknown),
            Some(offer) => match self.board.known(offer) {
                None => {
                    self.ws().answers.late += 1;
                    return;
                }
                Some(known) => self.check_answer(number, it, offer, known).map(|()| known),
            },
        };
        match checked {
            Ok(known) => {
                self.returned += 1;
                self.exchanged(known.sent, now, |ws| &mut ws.answers);
            }
            Err(finding) => self.turns.counts.stray(finding, text.as_bytes(), now),
        }
    }

    fn check_answer(
        &mut self,
        number: u32,
        it: &Forwarded<'_>,
        offer: Offer,
        known: Known,
    ) -> Result<(), Finding> {
        let connections = self.target.settings.connections as u32;
        match known.phase {
            _ if known.from % connections != self.slots[number as usize].number => {
                return Err(Finding::AnswerElsewhere);
            }
            Phase::Returned => return Err(Finding::AnswerTwice),
            Phase::Sent | Phase::Delivered => return Err(Finding::AnswerUnknown),
            Phase::Answered => {}
        }
        self.check_content(it, known.from, known.to, !self.board.seed(offer))
            .map_err(|()| Finding::AnswerChanged)?;
        match self.board.advance(offer, Phase::Answered, Phase::Returned) {
            true => Ok(()),
            false => Err(Finding::AnswerTwice),
        }
    }

    /// Checks the content of an offer or an answer of the peer `by`, in the swarm of the peer `of`,
    /// with the description of this seed. Another form of the same JSON string is as good.
    fn check_content(&mut self, it: &Forwarded<'_>, of: u32, by: u32, seed: u64) -> Result<(), ()> {
        let population = &self.plan.population;
        let info_hash = population.info_hash(population.member(Family::V4, of).swarm);
        self.expected.clear();
        self.descriptions.write(seed, &mut self.expected);
        let is_same = self.expected == it.sdp.as_bytes() || {
            let decoded =
                |text: &[u8]| serde_json::from_slice::<String>(&[b"\"", text, b"\""].concat()).ok();
            let expected = decoded(&self.expected);
            expected.is_some() && expected == decoded(it.sdp.as_bytes())
        };
        let is_right = it.info_hash == info_hash && it.peer_id == self.peer_id(by) && is_same;
        is_right.then_some(()).ok_or(())
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
