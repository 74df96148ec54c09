//! The part of a connection that serves WebRTC peers by WebSocket.

use std::net::SocketAddr;

use onrush_net::stream::Stream;
use onrush_proto::webtorrent::{
    Action, Answer, Offer, write_answer, write_counts, write_failure, write_offer, write_scrape,
};
use onrush_proto::{InfoHash, ScrapeCounts};
use onrush_tracker::clock::Now;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::lanes::Ticket;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::metrics::WebCounters;
use onrush_tracker::refusal::HttpRefusal;
use onrush_tracker::rules::Rules;
use rand::RngExt;

use super::{Connection, Input, Origin, Phase, Queue, Step, Timer, Upgrade, closing};
use crate::response::After;
use crate::service::messages::Handled;
use crate::service::{self, Replies, Service};
use crate::websocket::upgrade::{self, BadUpgrade};
use crate::websocket::{Assembler, CloseCode, Frame, write};
use crate::webtorrent::exchange::Delivery;
use crate::webtorrent::interval;
use crate::webtorrent::peer::Peer;
use crate::webtorrent::swarms::Socket;

/// The most bytes that wait for a client to which offers are still sent.
const MAX_QUEUED: usize = 64 * 1024;
/// The bytes from which on messages to a client are sent at once. Fewer wait for its next step, so
/// that messages of one turn are sent together; a reply that waits counts as an answer.
const SENT_AT_ONCE: usize = 16 * 1024;
/// The failure reason for a second peer id on the same connection.
const OTHER_PEER_ID: &str = "only one peer id can be used per torrent on a connection";

/// The state of a connection by WebSocket.
#[derive(Debug)]
pub(crate) struct WebSocket {
    frames: Assembler,
    peer: Peer,
    /// The second in which the wait for the next message began.
    silent_since: u32,
}

impl WebSocket {
    pub(super) fn buffered(&self) -> usize {
        self.frames.buffered() + self.peer.buffered()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.peer.awaited.is_some()
    }

    /// Whether a part of a message has arrived.
    pub(super) fn has_part(&self) -> bool {
        self.frames.is_partial()
    }

    pub(super) fn is_member(&self) -> bool {
        self.peer.is_member()
    }

    pub(super) fn silent_since(&self) -> u32 {
        self.silent_since
    }
}

/// The connection of a ticket, of web worker number `worker`.
fn socket_of(ticket: Ticket, worker: u16) -> Socket {
    Socket { worker, slot: ticket.slot, generation: ticket.generation }
}

impl<S: Stream> Connection<S> {
    /// Accepts an upgrade to WebSocket of a client, or refuses it.
    pub(super) fn upgrade(
        &mut self,
        upgrade: Upgrade<'_>,
        client: Option<SocketAddr>,
        service: &mut Service,
        now: Now,
    ) -> Option<Step> {
        let key = match upgrade {
            Ok(key) => key,
            Err(bad) => {
                let refusal = match bad {
                    BadUpgrade::Key => HttpRefusal::Upgrade,
                    BadUpgrade::Version => HttpRefusal::UpgradeVersion,
                };
                return self.refuse(refusal, "", service);
            }
        };
        let Some(client) = client else {
            return self.refuse(HttpRefusal::NoClient, "", service);
        };
        if let Err(refusal) = service.check_source(client) {
            let denied = service.close(refusal);
            return self.apply(denied, After::Close, service, now);
        }
        if self.origin.is_shared(service.proxies()) {
            // From now on the connection is of this client alone.
            return Some(Step::Named(client));
        }
        self.sequence += 1;
        service::answered(service.counters(), service.carrier);
        service.carrier.is_websocket = true;
        let (frames, peer) = (Assembler::default(), Peer::new(client));
        self.websocket = Some(Box::new(WebSocket { frames, peer, silent_since: 0 }));
        self.phase = Phase::WebSocket;
        self.begin_silence(&service.limits, now);
        upgrade::accept(key, &mut self.output);
        None
    }

    /// Takes a step of a connection by WebSocket.
    pub(super) fn step_websocket(
        &mut self,
        service: &mut Service,
        input: &mut Input,
        ticket: Ticket,
        now: Now,
    ) -> Option<Step> {
        let Some(limits) = service.limits.webtorrent else {
            return Some(Step::Closed(CloseCause::Stop));
        };
        let Some(mut websocket) = self.websocket.take() else {
            return Some(Step::Closed(CloseCause::Reset));
        };
        let socket = socket_of(ticket, service.worker());
        let WebSocket { frames, peer, .. } = &mut *websocket;
        let may_wait = !self.has_waited;
        let message = |service: &mut Service, peer: &mut Peer, text: &str| {
            let handled = service.message(text, peer, socket, may_wait, now.moment.0);
            if let Handled::Exhausted(_) = handled {
                peer.waiting = Some(text.into());
            }
            Received::Message(handled)
        };
        let received = if service.is_paused {
            Received::Close(Some(CloseCode::Restart), CloseCause::Stop)
        } else if let Some(text) = peer.waiting.take() {
            message(service, peer, &text)
        } else {
            let (consumed, received) = match frames.read(input.unread_mut(), limits.max_message) {
                Ok((consumed, frame)) => (
                    consumed,
                    match frame {
                        None => Received::Part,
                        Some(Frame::Message(text)) => message(service, peer, text),
                        Some(Frame::Ping(payload)) => {
                            write::pong(payload, &mut self.output);
                            Received::Control
                        }
                        Some(Frame::Pong) => Received::Control,
                        Some(Frame::Close(code)) => Received::Close(code, CloseCause::Client),
                    },
                ),
                Err(code) => (0, Received::Close(Some(code), CloseCause::Frame)),
            };
            input.start += consumed;
            frames.release();
            received
        };
        self.websocket = Some(websocket);
        self.received(received, service, input, now)
    }

    /// Does what follows from input of a client.
    fn received(
        &mut self,
        received: Received,
        service: &mut Service,
        input: &mut Input,
        now: Now,
    ) -> Option<Step> {
        match received {
            Received::Part => self.read(service, input, now),
            Received::Control => {
                // The rest of a message has to arrive in time all the same.
                if !self.websocket.as_ref().is_some_and(|it| it.has_part()) {
                    self.begin_silence(&service.limits, now);
                }
                None
            }
            Received::Close(code, cause) => self.close_websocket(code, cause),
            Received::Message(handled) => {
                self.has_waited &= matches!(handled, Handled::Exhausted(_));
                match handled {
                    Handled::Replied | Handled::Done => {
                        self.begin_silence(&service.limits, now);
                        if handled == Handled::Replied {
                            service.replies.end_message(&mut self.output);
                        }
                        None
                    }
                    Handled::InFlight => {
                        self.begin_timer(Timer::Shard, &service.limits, now);
                        Some(Step::InFlight)
                    }
                    Handled::Exhausted(worker) => {
                        self.begin_timer(Timer::Batch, &service.limits, now);
                        Some(Step::Starved(service.front.shards() + worker))
                    }
                    Handled::Close(cause @ CloseCause::Memberships) => {
                        self.close_websocket(Some(CloseCode::Policy), cause)
                    }
                    Handled::Close(cause) => Some(Step::Closed(cause)),
                }
            }
        }
    }

    /// Sends a close frame, and ends the connection.
    fn close_websocket(&mut self, code: Option<CloseCode>, cause: CloseCause) -> Option<Step> {
        write::close(code, &mut self.output);
        self.phase = closing(cause);
        None
    }

    /// Writes what has come for its client, and sends it at once where memory `is_scarce`. Returns
    /// whether the connection has to take a step.
    pub(crate) fn deliver(
        &mut self,
        delivery: Delivery<&str>,
        replies: &mut Replies,
        (counters, rules): (&WebCounters, &Rules),
        limits: &WebLimits,
        is_scarce: bool,
        now: Now,
    ) -> bool {
        let carrier = self.carrier();
        let (is_open, queued) = (matches!(self.phase, Phase::WebSocket), self.output.len());
        let has_room = |text: &str| is_open && (queued == 0 || queued + text.len() <= MAX_QUEUED);
        let (Some(websocket), Some(webtorrent)) = (&mut self.websocket, limits.webtorrent) else {
            return false;
        };
        if delivery.text().is_some_and(|text| !has_room(text)) {
            service::dropped(counters, &delivery);
            return false;
        }
        let peer = &mut websocket.peer;
        let is_answer = matches!(delivery, Delivery::Announced { .. } | Delivery::Scraped(_));
        let is_refusal = matches!(delivery, Delivery::Refused { .. });
        let out = &mut replies.text;
        match delivery {
            Delivery::Forget { info_hash } => {
                peer.forget(info_hash);
                return false;
            }
            Delivery::Offer { info_hash, from, peer_id, offer_id, offer } => {
                counters.webrtc_offers.add(1);
                peer.offered(from, (info_hash, peer_id, offer_id), now.moment.0);
                write_offer(&info_hash, &peer_id, &Offer { offer_id, offer }, out);
            }
            Delivery::Answer { info_hash, peer_id, to_peer_id, offer_id, answer } => {
                counters.webrtc_answers.add(1);
                write_answer(&info_hash, &peer_id, &Answer { to_peer_id, offer_id, answer }, out);
            }
            Delivery::Announced { info_hash, counts, is_member } => {
                match is_member {
                    true => peer.join(info_hash),
                    false => _ = peer.forget(info_hash),
                }
                let intervals = interval::in_force(webtorrent.interval, rules);
                write_counts(&info_hash, replies.rng.random_range(intervals), &counts, out);
            }
            Delivery::Refused { info_hash } => {
                write_failure(Action::Announce, Some(&info_hash), OTHER_PEER_ID, None, out);
            }
            Delivery::Scraped(files) => {
                // A list may forbid what has members.
                let counts = |(hash, counts)| match rules.access.permits(InfoHash(hash)) {
                    true => (hash, counts),
                    false => (hash, ScrapeCounts::default()),
                };
                write_scrape(files.into_iter().map(counts), out);
            }
        }
        if is_answer || is_refusal {
            peer.awaited = None;
            match is_refusal {
                true => service::refused(counters, carrier, HttpRefusal::OtherPeerId),
                false => service::answered(counters, carrier),
            }
            self.begin_silence(limits, now);
        }
        replies.end_message(&mut self.output);
        if is_scarce || self.output.len() > SENT_AT_ONCE || self.queue == Queue::Starved {
            // A failure shows in the next step, too.
            let _ = self.flush(counters);
        }
        true
    }

    /// Refuses an upgrade of a client that may not have the connection.
    pub(crate) fn deny(&mut self, cause: CloseCause, service: &mut Service) -> Step {
        if self.origin == Origin::Unnamed {
            return Step::Closed(cause);
        }
        let denied = service.refuse_http(HttpRefusal::SourceLimit, "");
        self.phase = closing(cause);
        self.respond_to(denied, After::Close, service).unwrap_or(Step::Again)
    }

    /// If the tracker closes the connection, discards what the client has sent, and by WebSocket
    /// sends a close frame if the client can take one at once.
    pub(crate) fn send_close(
        &mut self,
        cause: CloseCause,
        input: &mut Input,
        counters: &WebCounters,
    ) {
        let code = match cause {
            CloseCause::Stop => CloseCode::Restart,
            CloseCause::Replaced | CloseCause::Memory => CloseCode::Policy,
            _ => return,
        };
        self.discard_input(input);
        if matches!(self.phase, Phase::WebSocket) {
            write::close(Some(code), &mut self.output);
            let _ = self.flush(counters);
        }
    }

    /// Ends the memberships of its client, when it is closed.
    pub(crate) fn leave(&mut self, service: &mut Service, ticket: Ticket) {
        if let Some(websocket) = &mut self.websocket {
            service.leave(&mut websocket.peer, socket_of(ticket, service.worker()));
        }
    }

    /// Waits for the next message, after one has come.
    fn begin_silence(&mut self, limits: &WebLimits, now: Now) {
        self.begin_timer(Timer::Silence, limits, now);
        if let Some(websocket) = &mut self.websocket {
            websocket.silent_since = self.since;
        }
    }

    /// Waits for the next request or message again, after the client has taken all output.
    pub(super) fn resume(&mut self, limits: &WebLimits, now: Now) {
        let (Phase::WebSocket, Some(websocket)) = (&self.phase, &self.websocket) else {
            return self.begin_timer(Timer::Idle, limits, now);
        };
        self.set_timer(Timer::Silence, websocket.silent_since, limits);
        if self.deadline <= now.moment.0 {
            self.ping(limits, now);
        }
    }

    /// Begins to find out whether a client that has been silent is still there.
    pub(super) fn ping(&mut self, limits: &WebLimits, now: Now) -> Step {
        if let Some(websocket) = &mut self.websocket {
            websocket.peer.shrink(now.moment.0);
        }
        write::ping(&mut self.output);
        self.begin_timer(Timer::Pong, limits, now);
        Step::Again
    }
}

/// The next input of a client.
enum Received {
    /// A part of a frame.
    Part,
    /// A ping or a pong, whose answer is written.
    Control,
    /// The end, or what causes it, with the code for the client.
    Close(Option<CloseCode>, CloseCause),
    Message(Handled),
}
