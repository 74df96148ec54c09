//! From a message of a WebRTC peer to the exchange, or to a reply without it.

use std::net::IpAddr;

use onrush_proto::scrape::HASH_LEN;
use onrush_proto::webtorrent::{
    self, Action, Announce, BadMessage, Limits, Message, Rejected, write_failure,
};
use onrush_proto::{Event, InfoHash, TransactionId};
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::intake::{AnnounceFields, Source, SourceAddress};
use onrush_tracker::limits::WebTorrentLimits;
use onrush_tracker::refusal::{HttpRefusal, Refusal};

use super::{BUSY, RETRY_MINUTES, Service};
use crate::webtorrent::exchange::Exhausted;
use crate::webtorrent::peer::{Awaited, Peer};
use crate::webtorrent::swarms::{self, Socket};

/// The port of WebRTC peers, which have none: each announce needs a valid one.
const PORT: u16 = u16::MAX;

/// The result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The text of the reply is written.
    Replied,
    /// The reply will come from the owner of the swarm.
    InFlight,
    /// There is no reply.
    Done,
    /// It has to wait until there is room for this worker. Nothing was counted.
    Exhausted(usize),
    /// The connection is closed.
    Close(CloseCause),
}

impl Service {
    /// Handles a message that the connection `socket` has sent. A request without room on its way
    /// is refused unless it `may_wait`.
    pub(crate) fn message(
        &mut self,
        text: &str,
        peer: &mut Peer,
        socket: Socket,
        may_wait: bool,
        now: u32,
    ) -> Handled {
        let Some(limits) = self.limits.webtorrent else { return Handled::Done };
        if let Err(refusal) = self.check_source(peer.client) {
            self.refused(refusal);
            return Handled::Close(super::cause_of(refusal));
        }
        let most = Limits { offers: limits.max_offers, hashes: self.admission.rules.max_hashes };
        let message = match webtorrent::parse(text, most) {
            Ok(message) => message,
            Err(rejected) => return self.reject(rejected),
        };
        let port = peer.client.port();
        match peer.client.ip() {
            IpAddr::V4(ip) => {
                self.serve(message, Source { ip, port }, (peer, socket), limits, may_wait, now)
            }
            IpAddr::V6(ip) => {
                self.serve(message, Source { ip, port }, (peer, socket), limits, may_wait, now)
            }
        }
    }

    fn serve<A: SourceAddress>(
        &mut self,
        message: Message<'_>,
        source: Source<A>,
        (peer, socket): (&mut Peer, Socket),
        limits: WebTorrentLimits,
        may_wait: bool,
        now: u32,
    ) -> Handled {
        let (action, info_hash, sent) = match message {
            Message::Scrape(hashes) => {
                (Action::Scrape, None, self.scrape_message(&hashes, source, (peer, socket)))
            }
            Message::Announce(announce) => (
                Action::Announce,
                Some(announce.info_hash),
                self.announce_message(&announce, source, (peer, socket), limits, now),
            ),
        };
        match sent {
            Ok(handled) => handled,
            Err(Exhausted(worker)) if may_wait => Handled::Exhausted(worker),
            Err(Exhausted(_)) => {
                self.admission
                    .of(source, self.metrics.incoming.of(A::FAMILY))
                    .refused(Refusal::Busy);
                let retry_in = Some(RETRY_MINUTES);
                write_failure(action, info_hash.as_ref(), BUSY, retry_in, &mut self.replies.text);
                self.refused(Refusal::Busy);
                Handled::Replied
            }
        }
    }

    fn scrape_message<A: SourceAddress>(
        &mut self,
        hashes: &[[u8; HASH_LEN]],
        source: Source<A>,
        (peer, socket): (&mut Peer, Socket),
    ) -> Result<Handled, Exhausted> {
        let checks = self.admission.of(source, self.metrics.incoming.of(A::FAMILY));
        if hashes.is_empty() {
            let refusal = checks.refused(Refusal::NoHash);
            return Ok(self.refuse_message(refusal, Action::Scrape, None));
        }
        let Some(exchange) = &mut self.exchange else { return Ok(Handled::Done) };
        exchange.scrape(socket, hashes)?;
        // It has hashes.
        let _ = checks.scrape(hashes.len());
        peer.awaited = Some(Awaited::Scrape);
        Ok(Handled::InFlight)
    }

    fn announce_message<A: SourceAddress>(
        &mut self,
        announce: &Announce<'_>,
        source: Source<A>,
        (peer, socket): (&mut Peer, Socket),
        limits: WebTorrentLimits,
        now: u32,
    ) -> Result<Handled, Exhausted> {
        let checks = self.admission.of(source, self.metrics.incoming.of(A::FAMILY));
        let Announce { info_hash, peer_id, seeder, event, .. } = *announce;
        let fields = AnnounceFields {
            info_hash,
            peer_id,
            port: PORT,
            seeder: seeder.unwrap_or(false),
            event,
            num_want: -1,
            transaction_id: TransactionId(0),
        };
        if let Err(refusal) = checks.check_announce(fields) {
            // It was perhaps forbidden after the client has become a member.
            if let Some(exchange) = &mut self.exchange
                && refusal == Refusal::Forbidden
                && peer.forget(info_hash)
            {
                exchange.remove(socket, info_hash);
            }
            return Ok(self.refuse_message(refusal, Action::Announce, Some(info_hash)));
        }
        let Some(exchange) = &mut self.exchange else { return Ok(Handled::Done) };
        if let Some(answer) = &announce.answer {
            match peer.answered(info_hash, answer, now) {
                Some(to) => exchange.answer(to, info_hash, peer_id, answer),
                None => self.metrics.web.webrtc_answers_dropped.add(1),
            }
            return Ok(Handled::Done);
        }
        if event == Event::Stopped {
            exchange.stop(socket, info_hash)?;
        } else if peer.may_join(info_hash, limits.memberships) {
            let (client, completed) = (source.ip.into(), event == Event::Completed);
            let member = swarms::Announce { info_hash, socket, client, peer_id, seeder, completed };
            exchange.announce(&member, &announce.offers, announce.num_want)?;
        } else {
            self.count_refused(HttpRefusal::Memberships);
            return Ok(Handled::Close(CloseCause::Memberships));
        }
        checks.count_announce(fields);
        peer.awaited = Some(Awaited::Announce(info_hash));
        Ok(Handled::InFlight)
    }

    /// Refuses a message that is invalid.
    fn reject(&mut self, rejected: Rejected) -> Handled {
        let Rejected { reason, action, info_hash } = rejected;
        let refusal = match reason {
            BadMessage::Json | BadMessage::Action => HttpRefusal::Message,
            BadMessage::InfoHash => HttpRefusal::InfoHash,
            BadMessage::PeerId => HttpRefusal::PeerId,
            BadMessage::Answer => HttpRefusal::Answer,
        };
        // Browsers disconnect without an action.
        let action = action.unwrap_or(Action::Announce);
        write_failure(action, info_hash.as_ref(), reason.text(), None, &mut self.replies.text);
        self.count_refused(refusal);
        Handled::Replied
    }

    /// Refuses a message that admission has refused.
    fn refuse_message(
        &mut self,
        refusal: Refusal,
        action: Action,
        info_hash: Option<InfoHash>,
    ) -> Handled {
        let text = self.admission.error_text(refusal, info_hash).unwrap_or_default();
        write_failure(action, info_hash.as_ref(), text, None, &mut self.replies.text);
        self.refused(refusal);
        Handled::Replied
    }

    /// Ends the memberships of a connection.
    pub(crate) fn leave(&mut self, peer: &mut Peer, socket: Socket) {
        if let Some(exchange) = &mut self.exchange {
            peer.leave().for_each(|info_hash| exchange.remove(socket, info_hash));
        }
    }
}
