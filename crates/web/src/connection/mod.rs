//! One connection: which request is next, what is sent, and when it closes.
//!
//! Its requests are served one after the other. While one is with a shard, nothing is read, so that
//! a client that does not wait for replies is slowed down by TCP.

mod input;
mod timer;
mod tls;
mod websocket;

use std::io::{self, ErrorKind};
use std::mem;
use std::net::SocketAddr;

use onrush_net::stream::Stream;
use onrush_tracker::clock::Now;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::lanes::Ticket;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::metrics::WebCounters;
use onrush_tracker::refusal::HttpRefusal;
use onrush_tracker::running::Scheme;

use crate::head::{self, Head};
use crate::proxy::header::{self, NoHeader};
use crate::proxy::{self, Origin};
use crate::response::{After, OK, TEXT};
use crate::service::{Carrier, InFlight, Replies, Served, Service};
use crate::transport::Transport;
use crate::websocket::upgrade::{self, BadUpgrade, Key};

pub(crate) use input::Input;
use timer::Timer;
use websocket::WebSocket;

/// The upgrade that a request asks for.
type Upgrade<'a> = Result<Key<'a>, BadUpgrade>;

/// The client of a request, if that is known, and the upgrade that it asks for.
type FromFields<'a> = (Option<SocketAddr>, Option<Upgrade<'a>>);

/// Steps of one connection per turn, so that others come to their turn.
const STEPS_PER_TURN: usize = 32;
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// The result of the steps that a connection could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for its stream or for time.
    Wait,
    /// It waits for a shard.
    InFlight,
    /// It waits for a free batch for this shard, or a free parcel: web workers are numbered behind
    /// the shards.
    Starved(usize),
    /// Its proxy has named the client. If the client may have the connection, it becomes the
    /// origin, and the connection can take more steps; see [`Connection::deny`].
    Named(SocketAddr),
    /// It can take more steps.
    Again,
    /// It is closed.
    Closed(CloseCause),
}

/// The queue of its worker that holds a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    None,
    /// It may take steps.
    Ready,
    /// It waits for a free batch or parcel.
    Starved,
}

/// The order in which connections are closed for others: `false` before `true`, then by the second
/// in which the wait began.
pub(crate) type Rank = (bool, u32);

#[derive(Debug)]
enum Phase {
    /// The header of a proxy is read.
    Proxy,
    /// The next request is read.
    Head,
    /// A shard serves the request.
    InFlight(InFlight, After),
    /// Messages are read.
    WebSocket,
    /// Nothing more is served; whether FIN was sent.
    Closing { cause: CloseCause, is_finished: bool },
}

/// A connection over a stream.
pub(crate) struct Connection<S> {
    pub(crate) transport: Transport<S>,
    /// The URL scheme that its listener serves.
    pub(crate) scheme: Scheme,
    /// Whose requests it carries.
    pub(crate) origin: Origin,
    /// Whether its stream is watched for events.
    pub(crate) is_watched: bool,
    /// Where it is queued for its next step.
    pub(crate) queue: Queue,
    phase: Phase,
    timer: Timer,
    /// The second in which the timer was begun.
    since: u32,
    /// The second at which it ends.
    deadline: u32,
    /// Input behind the last request.
    input: Vec<u8>,
    /// Output that the kernel has not taken yet.
    output: Vec<u8>,
    readable: bool,
    writable: bool,
    /// Whether the client has ended its direction.
    at_end: bool,
    /// The number of the last request.
    sequence: u64,
    /// Whether the next request has waited for a batch as long as it may.
    has_waited: bool,
    /// Whether TLS begins with the next bytes.
    awaits_tls: bool,
    /// From the upgrade to WebSocket on.
    websocket: Option<Box<WebSocket>>,
}

impl<S: Stream> Connection<S> {
    /// A connection that was accepted from `peer`, which is not IPv4-mapped.
    pub(crate) fn new(
        stream: S,
        (peer, scheme): (SocketAddr, Scheme),
        service: &Service,
        now: Now,
    ) -> Self {
        let (origin, phase) = match proxy::begins_with_header(peer, service.proxies()) {
            true => (Origin::Unnamed, Phase::Proxy),
            false => (Origin::Peer(peer), Phase::Head),
        };
        let mut connection = Self {
            transport: Transport::new(stream),
            scheme,
            origin,
            is_watched: false,
            queue: Queue::None,
            phase,
            timer: Timer::Shard,
            since: now.moment.0,
            deadline: u32::MAX,
            input: Vec::new(),
            output: Vec::new(),
            // It has most often sent its request when it is accepted.
            readable: true,
            writable: true,
            at_end: false,
            sequence: 0,
            has_waited: false,
            awaits_tls: scheme == Scheme::Https,
            websocket: None,
        };
        connection.begin_timer(Timer::Head, &service.limits, now);
        connection
    }

    /// Notes what its stream has become.
    pub(crate) fn wake(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Bytes of partial input and unsent output.
    pub(crate) fn buffered(&self) -> usize {
        let websocket = self.websocket.as_ref().map_or(0, |it| it.buffered());
        self.input.capacity() + self.output.capacity() + self.transport.buffered() + websocket
    }

    /// The second at which [`expire`](Self::expire) is due.
    pub(crate) fn deadline(&self) -> u32 {
        self.deadline
    }

    /// If it waits for the next request, of which nothing has arrived: its rank among those that
    /// may be closed for others. The one idle longest comes first; members of swarms come last.
    pub(crate) fn idle_rank(&self) -> Option<Rank> {
        let (is_member, since) = match (self.timer, &self.phase, &self.websocket) {
            (Timer::Idle, Phase::Head, _) => (false, self.since),
            (Timer::Silence | Timer::Pong, Phase::WebSocket, Some(it)) => {
                (it.is_member(), it.silent_since())
            }
            _ => return None,
        };
        (!self.readable && self.buffered() == 0).then_some((is_member, since))
    }

    /// Whether all is sent, and the client's end of the connection is waited for.
    pub(crate) fn is_lingering(&self) -> bool {
        self.timer == Timer::Linger
    }

    /// If it waits with memory in use: its rank among those that are closed where memory is scarce.
    /// The one that has waited longest for its client comes first; those whose requests wait for
    /// the tracker come last.
    pub(crate) fn slow_rank(&self) -> Option<Rank> {
        let waits_for_tracker = match self.timer {
            Timer::Head | Timer::Output | Timer::Pong => false,
            Timer::Batch => true,
            _ => return None,
        };
        (self.buffered() > 0).then_some((waits_for_tracker, self.since))
    }

    /// Prepares for the end of the connection after the requests that have arrived: the last reply
    /// tells the client. Further steps have to follow, unless it is closed.
    pub(crate) fn pause(&mut self, service: &mut Service, input: &mut Input, now: Now) -> Step {
        // The event of what has arrived was perhaps not taken yet.
        self.readable = true;
        if self.websocket.is_some() || !self.is_in_flight() || !self.input.is_empty() {
            return Step::Again;
        }
        input.load(&[]);
        if self.may_have_more()
            && let Some(closed @ Step::Closed(_)) = self.read(service, input, now)
        {
            return closed;
        }
        self.input = input.unread().into();
        let has_part = self.has_part(input);
        if let Phase::InFlight(_, after) = &mut self.phase
            && !has_part
        {
            *after = After::Close;
        }
        Step::Again
    }

    /// Whether bytes may have arrived that were not read.
    fn may_have_more(&self) -> bool {
        self.readable && !self.at_end
    }

    /// Whether a part of the next request has arrived.
    fn has_part(&self, input: &Input) -> bool {
        let has_frame = self.websocket.as_ref().is_some_and(|it| it.has_part());
        !input.unread().is_empty() || self.transport.unread() > 0 || has_frame
    }

    /// Whether a shard serves its request.
    pub(crate) fn is_in_flight(&self) -> bool {
        let is_awaited = self.websocket.as_ref().is_some_and(|it| it.is_in_flight());
        matches!(self.phase, Phase::InFlight(..)) || is_awaited
    }

    /// How it carries its requests.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier { scheme: self.scheme, is_websocket: self.websocket.is_some() }
    }

    /// Ends its wait for a free batch or parcel.
    pub(crate) fn end_starved(&mut self) {
        if self.queue == Queue::Starved {
            self.queue = Queue::None;
        }
    }

    /// Whether its next steps may be those of a TLS handshake, or cost as much.
    pub(crate) fn is_costly(&self) -> bool {
        let begins_tls = self.awaits_tls && !matches!(self.phase, Phase::Proxy);
        begins_tls || self.transport.is_handshaking() || self.transport.is_costly()
    }

    /// Takes all steps that are possible. `ticket` addresses it.
    pub(crate) fn advance(
        &mut self,
        service: &mut Service,
        input: &mut Input,
        ticket: Ticket,
        now: Now,
    ) -> Step {
        if self.is_in_flight() {
            // Offers to its client do not wait for the reply.
            let flushed = self.flush(service.counters());
            return flushed.map_or(Step::Closed(CloseCause::Reset), |_| Step::InFlight);
        }
        service.carrier = self.carrier();
        input.load(&mem::take(&mut self.input));
        let mut step = Step::Again;
        for _ in 0..STEPS_PER_TURN {
            if let Some(last) = self.step(service, input, ticket, now) {
                step = last;
                break;
            }
        }
        match self.phase {
            Phase::Closing { .. } => self.leave(service, ticket),
            _ => self.input = input.unread().into(),
        }
        step
    }

    /// Takes a step; `None` if another one may follow.
    fn step(
        &mut self,
        service: &mut Service,
        input: &mut Input,
        ticket: Ticket,
        now: Now,
    ) -> Option<Step> {
        match self.flush(service.counters()) {
            Ok(true) if self.timer == Timer::Output => {
                self.resume(&service.limits, now);
                return None;
            }
            Ok(true) => {}
            Ok(false) => {
                // The time for a request includes that of a handshake, and of what comes between
                // the parts of a message. Offers are no sign of life.
                if !matches!(self.timer, Timer::Head | Timer::Pong) {
                    self.begin_timer(Timer::Output, &service.limits, now);
                }
                return Some(Step::Wait);
            }
            Err(_) => return Some(Step::Closed(CloseCause::Reset)),
        }
        match self.phase {
            Phase::InFlight(..) => Some(Step::InFlight),
            Phase::WebSocket => self.step_websocket(service, input, ticket, now),
            Phase::Closing { cause, .. } => self.linger(cause, service, input, now),
            Phase::Proxy => match header::parse(input.unread()) {
                Ok(Some(header)) => {
                    input.start += header.len;
                    self.phase = Phase::Head;
                    if self.awaits_tls {
                        service.counters().http_received_bytes.add(header.len as u64);
                    }
                    // A proxy that names a proxy names no client.
                    let source = header.source.filter(|it| !service.proxies().contain(it.ip()));
                    Some(source.map_or(Step::Again, Step::Named))
                }
                Ok(None) => self.read(service, input, now),
                Err(NoHeader) => Some(Step::Closed(CloseCause::ProxyHeader)),
            },
            Phase::Head if self.awaits_tls && !input.unread().is_empty() => {
                self.begin_tls(service, input)
            }
            Phase::Head if self.begins_tls_over_http(input) => Some(Step::Closed(CloseCause::Tls)),
            Phase::Head => match self.parse_head(input, service) {
                Ok(Some((head, (client, upgrade)))) => {
                    let (len, mut after) = (head.len, after(&head, &service.limits));
                    if let Some(upgrade) = upgrade.filter(|_| !head.is_1_0) {
                        let step = self.upgrade(upgrade, client, service, now);
                        if !matches!(step, Some(Step::Named(_))) {
                            input.start += len;
                        }
                        return step;
                    }
                    if service.is_paused && head.is_last && self.transport.unread() == 0 {
                        if self.may_have_more() {
                            return self.read(service, input, now);
                        }
                        after = After::Close;
                    }
                    self.sequence += 1;
                    let ticket = Ticket { sequence: self.sequence, ..ticket };
                    let may_wait = !self.has_waited;
                    let served = service.request(&head, client, ticket, may_wait);
                    if !matches!(served, Served::Exhausted(_)) {
                        input.start += len;
                        self.has_waited = false;
                    }
                    self.apply(served, after, service, now)
                }
                Ok(None) => self.read(service, input, now),
                Err(refusal) => self.refuse(refusal, "", service),
            },
        }
    }

    /// Whether TLS begins on a port for HTTP.
    fn begins_tls_over_http(&self, input: &Input) -> bool {
        let is_first = self.scheme == Scheme::Http && self.sequence == 0;
        is_first && input.unread().first() == Some(&TLS_HANDSHAKE)
    }

    /// The head of the next request, and the request's client.
    fn parse_head<'i>(
        &self,
        input: &'i mut Input,
        service: &Service,
    ) -> Result<Option<(Head<'i>, FromFields<'i>)>, HttpRefusal> {
        let (origin, proxies) = (self.origin, service.proxies());
        let is_on = service.exchange.is_some();
        head::parse_with(input.skip_line_ends(), |fields| {
            let upgrade = is_on.then(|| upgrade::requested(fields).transpose()).flatten();
            (origin.client(fields, proxies), upgrade)
        })
    }

    /// Refuses what is no valid request, with this text, and closes the connection.
    fn refuse(&mut self, refusal: HttpRefusal, text: &str, service: &mut Service) -> Option<Step> {
        let served = service.refuse_http(refusal, text);
        self.phase = closing(CloseCause::BadRequest);
        self.respond_to(served, After::Close, service)
    }

    /// Applies the result of a request.
    fn apply(
        &mut self,
        served: Served,
        after: After,
        service: &mut Service,
        now: Now,
    ) -> Option<Step> {
        match served {
            Served::InFlight(request) => {
                self.phase = Phase::InFlight(request, after);
                self.begin_timer(Timer::Shard, &service.limits, now);
                Some(Step::InFlight)
            }
            Served::Exhausted(shard) => {
                self.begin_timer(Timer::Batch, &service.limits, now);
                Some(Step::Starved(shard))
            }
            // Other clients use the connection, too.
            Served::Close(_) if self.origin.is_shared(service.proxies()) => {
                let forbidden = service.forbid();
                self.apply(forbidden, after, service, now)
            }
            Served::Close(cause) => Some(Step::Closed(cause)),
            Served::Reply { .. } => {
                self.end_request(after, &service.limits, now);
                self.respond_to(served, after, service)
            }
        }
    }

    /// The phase after a request.
    fn end_request(&mut self, after: After, limits: &WebLimits, now: Now) {
        self.phase = match after {
            After::Close => closing(CloseCause::Served),
            After::Keep | After::KeepOf1_0 => Phase::Head,
        };
        self.begin_timer(Timer::Idle, limits, now);
    }

    fn respond_to(&mut self, served: Served, after: After, service: &mut Service) -> Option<Step> {
        let Served::Reply { status, content_type } = served else { return None };
        let bytes = service.replies.response.finish(status, content_type, after);
        let sent = self.send(bytes, &service.metrics.web);
        sent.is_err().then_some(Step::Closed(CloseCause::Reset))
    }

    /// Reads more input.
    fn read(&mut self, service: &mut Service, input: &mut Input, now: Now) -> Option<Step> {
        if self.at_end {
            return Some(Step::Closed(CloseCause::Client));
        }
        let limits = &service.limits;
        let may_begin = matches!(self.timer, Timer::Idle | Timer::Silence | Timer::Pong);
        if may_begin && self.has_part(input) {
            self.begin_timer(Timer::Head, limits, now);
        }
        if !self.readable {
            return Some(match service.is_paused && self.timer == Timer::Idle {
                true => Step::Closed(CloseCause::Stop),
                false => Step::Wait,
            });
        }
        let result = input.read(&mut self.transport);
        self.count_tls(service);
        match result {
            Ok(0) => self.at_end = true,
            // TLS or the header of a proxy begins with them.
            Ok(_) if self.awaits_tls => {}
            Ok(read) => service.counters().http_received_bytes.add(read as u64),
            Err(error) => {
                if let Some(step) = self.fail_reading(&error) {
                    return Some(step);
                }
            }
        }
        self.transport.is_costly().then_some(Step::Again)
    }

    /// Notes that nothing is left to read; otherwise the connection is broken.
    fn pause_reading(&mut self, error: &io::Error) -> Result<(), CloseCause> {
        match error.kind() {
            ErrorKind::WouldBlock => self.readable = false,
            ErrorKind::Interrupted => {}
            _ => return Err(CloseCause::Reset),
        }
        Ok(())
    }

    /// Ends the connection: after FIN, input is discarded until the client ends it too. A stream
    /// that is not watched yet stays so, which saves system calls: the kernel takes the input.
    fn linger(
        &mut self,
        cause: CloseCause,
        service: &Service,
        input: &mut Input,
        now: Now,
    ) -> Option<Step> {
        if self.at_end {
            return Some(Step::Closed(cause));
        }
        if !matches!(self.phase, Phase::Closing { is_finished: true, .. }) {
            match self.transport.finish() {
                Ok(()) => {}
                // It is sent by the next step after the stream has become writable.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(_) => return Some(Step::Closed(cause)),
            }
            self.phase = Phase::Closing { cause, is_finished: true };
            self.begin_timer(Timer::Linger, &service.limits, now);
        }
        if !self.readable || !self.is_watched {
            return Some(Step::Wait);
        }
        // It is discarded as it is, without TLS.
        input.load(&[]);
        match input.read(&mut self.transport.stream) {
            Ok(0) => Some(Step::Closed(cause)),
            Ok(_) => None,
            Err(error) => self.pause_reading(&error).err().map(|_| Step::Closed(cause)),
        }
    }

    /// Sends a reply in wire form (BEP 15) that a shard has returned for the request in flight,
    /// unless `ticket` is of another one.
    pub(crate) fn reply(
        &mut self,
        reply: &[u8],
        ticket: Ticket,
        replies: &mut Replies,
        counters: &WebCounters,
        limits: &WebLimits,
        now: Now,
    ) -> Reply {
        if ticket.sequence != self.sequence {
            return Reply::Abandoned;
        }
        let (request, after) = match mem::replace(&mut self.phase, Phase::Head) {
            Phase::InFlight(request, after) => (request, after),
            other => {
                self.phase = other;
                return Reply::Abandoned;
            }
        };
        replies.write(reply, request);
        self.end_request(after, limits, now);
        let bytes = replies.response.finish(OK, TEXT, after);
        self.send(bytes, counters).map_or(Reply::Failed, |()| Reply::Sent)
    }

    /// Ends what has taken too long. The connection is closed, or may be advanced.
    pub(crate) fn expire(&mut self, input: &mut Input, limits: &WebLimits, now: Now) -> Step {
        match (self.timer, &self.phase) {
            (Timer::Batch, _) => {
                self.has_waited = true;
                Step::Again
            }
            (Timer::Linger, _) => self.end_linger(input),
            (Timer::Idle, _) => Step::Closed(CloseCause::Idle),
            (Timer::Silence, _) => self.ping(limits, now),
            _ => Step::Closed(CloseCause::Timeout),
        }
    }

    /// Reads what has arrived, before the connection is closed: unread input would reset it.
    fn discard_input(&mut self, input: &mut Input) {
        input.load(&[]);
        let _ = input.read(&mut self.transport.stream);
    }

    /// Ends a connection that lingers.
    pub(crate) fn end_linger(&mut self, input: &mut Input) -> Step {
        self.discard_input(input);
        match self.phase {
            Phase::Closing { cause, .. } => Step::Closed(cause),
            _ => Step::Closed(CloseCause::Served),
        }
    }

    /// Sends bytes behind those that are already waiting.
    fn send(&mut self, bytes: &[u8], counters: &WebCounters) -> io::Result<()> {
        let mut sent = 0;
        if self.output.is_empty() && self.writable {
            sent = self.write(bytes, counters)?;
        }
        self.output.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what waits; whether all of it is sent.
    fn flush(&mut self, counters: &WebCounters) -> io::Result<bool> {
        if self.transport.is_blocked() {
            self.writable = self.writable && self.transport.flush()?;
            if !self.writable {
                return Ok(false);
            }
        }
        if self.writable && !self.output.is_empty() {
            let output = mem::take(&mut self.output);
            let sent = self.write(&output, counters);
            self.output = output[*sent.as_ref().unwrap_or(&0)..].into();
            sent?;
        }
        Ok(self.output.is_empty() && !self.transport.is_blocked())
    }

    /// Writes as many bytes as the kernel takes; returns and counts them.
    fn write(&mut self, bytes: &[u8], counters: &WebCounters) -> io::Result<usize> {
        let mut sent = 0;
        let is_last = matches!(self.phase, Phase::Closing { .. });
        while sent < bytes.len() {
            match self.transport.write(&bytes[sent..], is_last) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.writable &= !self.transport.is_blocked();
        counters.http_sent_bytes.add(sent as u64);
        Ok(sent)
    }

    /// Begins to wait for something else. What it waits for already keeps its deadline, however
    /// slowly it arrives.
    fn begin_timer(&mut self, timer: Timer, limits: &WebLimits, now: Now) {
        if self.timer == timer && !matches!(timer, Timer::Idle | Timer::Silence) {
            return;
        }
        self.set_timer(timer, now.moment.0, limits);
    }

    /// Waits for something since this second.
    fn set_timer(&mut self, timer: Timer, since: u32, limits: &WebLimits) {
        (self.timer, self.since) = (timer, since);
        self.deadline = timer.deadline(since, limits);
    }
}

/// The result of a shard's reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It was sent or waits to be sent.
    Sent,
    /// The connection is broken.
    Failed,
    /// No request of this connection waits for it.
    Abandoned,
}

fn closing(cause: CloseCause) -> Phase {
    Phase::Closing { cause, is_finished: false }
}

/// What follows the reply to a request with this head.
fn after(head: &Head<'_>, limits: &WebLimits) -> After {
    match head.keep_alive && limits.keep_alive > 0 {
        false => After::Close,
        true if head.is_1_0 => After::KeepOf1_0,
        true => After::Keep,
    }
}
