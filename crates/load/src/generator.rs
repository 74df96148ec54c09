//! One worker over UDP: sends requests, checks replies, counts. Time is an argument, the network
//! any backend.
//!
//! A turn receives the available replies, expires overdue requests and sends the due ones: in a
//! closed loop as many as are missing to a fixed number in flight, in an open loop those that a
//! schedule has due by now. A burst of requests leaves through one socket, as batched sends are per
//! socket.

pub mod flight;
pub mod packet;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::{Reply, Return, Socket};
use onrush_proto::{ConnectionId, Family, TransactionId};
use rand::rngs::SmallRng;

use crate::check::{Checker, Finding};
use crate::plan::{Kind, Plan, PlannedRequest};
use crate::tally::QueueTally;
use crate::worker::pace::Progress;
use crate::worker::{Counts, LoadSettings, Nanos, Next, Pacer, Window, Worker};
use flight::{Flight, Pending, ReplyMatch};
use packet::Packets;

/// Age at which a connection id is renewed.
const RENEW: Nanos = 45_000_000_000;
/// Age above which a connection id is not used (BEP 15, "Connect": one minute).
const EXPIRED: Nanos = 60_000_000_000;
/// Number of repeats of a lost announce or scrape.
const REPEATS: u8 = 2;
/// Upper bound on queued repeats; further lost requests are not repeated.
const MAX_REPEATS_WAITING: usize = 4096;
/// Datagrams per receive call: the batch size of the kernel backend.
const RECEIVE: usize = 128;
/// Upper bound on receive calls per turn.
const RECEIVE_CALLS: usize = 4;
/// Upper bound on bursts sent per turn.
const SEND_BURSTS: usize = 64;
/// Time in which the whole table is searched for overdue requests once.
const SEARCH_EVERY: Nanos = 50_000_000;
/// A worker spins this long for the replies to a burst, as the time of a wake-up (some 20 us) would
/// be a large part of a fast tracker's latency.
const SPIN_AFTER_SEND: Nanos = 50_000;
/// A path from one of the backend's sockets to one address of the tracker.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Socket and destination.
    pub to: Return,
    /// The tracker's address, which replies must come from.
    pub target: SocketAddr,
    /// Its family.
    pub family: Family,
    /// The number of the source address among those of its family.
    pub address: u32,
    /// The number of the connection id of this path: one per target and source address; those of
    /// one target and family are in the order of the addresses.
    pub id: u32,
}

/// A worker.
#[derive(Debug)]
pub struct Generator<'p, S> {
    socket: S,
    session: Session<'p>,
}

impl<'p, S: Socket> Generator<'p, S> {
    /// A worker that sends `plan` over `routes` through `socket`, from time 0 on. Requests within
    /// `window` count.
    ///
    /// # Panics
    /// Without routes.
    pub fn new(
        socket: S,
        plan: &'p Plan,
        routes: Vec<Route>,
        settings: LoadSettings,
        worker: usize,
        window: Window,
    ) -> Self {
        assert!(!routes.is_empty(), "at least one route is needed");
        Self { socket, session: Session::new(plan, routes, settings, worker, window) }
    }

    fn send(&mut self, clock: &impl Fn() -> Nanos) {
        let session = &mut self.session;
        session.stamp(clock());
        let to = &session.routes[session.route].to;
        let sent = self.socket.send(session.packets.iter().map(|bytes| Reply { bytes, to }));
        session.counts.tally.sent += sent;
    }
}

impl<S: Socket> Worker for Generator<'_, S> {
    fn counts(&mut self) -> &mut Counts {
        &mut self.session.counts
    }

    fn end_at(&mut self, end: Nanos) {
        self.session.counts.end_at(end, self.session.sent_at);
    }

    fn dropped(&self) -> u64 {
        self.socket.dropped().all()
    }

    fn queues(&mut self) -> Vec<QueueTally> {
        let mut all = Vec::new();
        self.socket.report_queues(&mut |report| all.push(QueueTally::new(&report)));
        all
    }

    fn turn(&mut self, clock: &impl Fn() -> Nanos) -> io::Result<Next> {
        let mut received = false;
        for _ in 0..RECEIVE_CALLS {
            let batch = self.socket.receive(RECEIVE)?;
            if batch.is_empty() {
                break;
            }
            received = true;
            let now = clock();
            for (bytes, slot) in batch.iter() {
                self.session.accept_reply(bytes, slot.source, slot.reply_to.socket(), now);
            }
        }
        let now = clock();
        self.session.expire_requests(now);
        for _ in 0..SEND_BURSTS {
            if !self.session.fill(clock()) {
                break;
            }
            self.send(clock);
        }
        Ok(self.session.next(clock(), received))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.socket.wait(timeout)
    }
}

/// The state of a worker without its network.
#[derive(Debug)]
struct Session<'p> {
    plan: &'p Plan,
    routes: Vec<Route>,
    /// Routes of each family, by number.
    by_family: [Vec<u32>; 2],
    /// The next route of each family, round robin.
    turns: [usize; 2],
    /// IPv6's share of bursts, and the fraction of an IPv6 burst that is due.
    v6: f64,
    v6_due: f64,
    /// The route of the current burst.
    route: usize,
    ids: Vec<Id>,
    settings: LoadSettings,
    pacer: Pacer,
    /// Closed loop: requests to keep in flight; open loop: their limit.
    in_flight: usize,
    flight: Flight,
    packets: Packets,
    checker: Checker,
    chance: SmallRng,
    repeats: VecDeque<Pending>,
    /// Routes that have just got a usable connection id. They send next, as clients connect in
    /// order to announce; by their turn the id might have expired.
    newly_connected: VecDeque<u32>,
    counts: Counts,
    /// Due times of the current burst.
    due: Vec<(TransactionId, Nanos)>,
    /// When the last burst left.
    sent_at: Nanos,
    searched: Nanos,
}

/// A connection id.
#[derive(Clone, Copy, Debug, Default)]
struct Id {
    /// 0 for none.
    number: u64,
    /// When it was received.
    since: Nanos,
    /// When a connect was last sent for it.
    requested: Option<Nanos>,
}

impl Id {
    /// Whether a client may still use it.
    fn is_usable(&self, now: Nanos) -> bool {
        self.number != 0 && now.saturating_sub(self.since) < EXPIRED
    }
}

impl<'p> Session<'p> {
    fn new(
        plan: &'p Plan,
        routes: Vec<Route>,
        settings: LoadSettings,
        worker: usize,
        window: Window,
    ) -> Self {
        let of = |family| {
            let of_family = routes.iter().enumerate().filter(move |(_, r)| r.family == family);
            of_family.map(|(n, _)| n as u32).collect::<Vec<_>>()
        };
        let by_family = [of(Family::V4), of(Family::V6)];
        let v6 = match (by_family[0].len(), by_family[1].len()) {
            (_, 0) => 0.0,
            (0, _) => 1.0,
            _ => plan.profile.v6,
        };
        let ids = routes.iter().map(|route| route.id as usize + 1).max().unwrap_or(0);
        let in_flight = settings.in_flight();
        Self {
            by_family,
            turns: [0; 2],
            v6,
            v6_due: 0.0,
            route: 0,
            ids: vec![Id::default(); ids],
            in_flight,
            pacer: Pacer::new(&settings, window, worker),
            flight: Flight::new(in_flight, crate::plan::population::mix(settings.seed) as u32),
            packets: Packets::new(settings.burst),
            checker: Checker::new(plan, settings.strictness),
            chance: plan.chance(worker),
            repeats: VecDeque::with_capacity(MAX_REPEATS_WAITING),
            newly_connected: VecDeque::with_capacity(routes.len()),
            counts: Counts::new(window, settings.strict),
            due: Vec::with_capacity(settings.burst),
            sent_at: 0,
            searched: 0,
            settings,
            plan,
            routes,
        }
    }

    /// Matches a reply with its request, and counts it.
    #[inline]
    fn accept_reply(&mut self, reply: &[u8], source: SocketAddr, socket: u16, now: Nanos) {
        let counts = &mut self.counts;
        counts.bytes(reply.len(), now);
        let Some(head) = reply.first_chunk::<8>() else {
            return counts.stray(Finding::Layout, reply, now);
        };
        let transaction = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let pending = match self.flight.close(TransactionId(transaction)) {
            ReplyMatch::Open(pending) if now <= pending.deadline => pending,
            ReplyMatch::Open(pending) => {
                counts.late(now);
                return self.lost(pending);
            }
            ReplyMatch::Late => return counts.late(now),
            ReplyMatch::Wrong(finding) => return counts.stray(finding, reply, now),
        };
        self.answer(&pending, reply, source, socket, now);
    }

    /// Checks and counts a reply to a request in flight.
    #[inline]
    fn answer(
        &mut self,
        pending: &Pending,
        reply: &[u8],
        source: SocketAddr,
        socket: u16,
        now: Nanos,
    ) {
        let route = &self.routes[pending.route as usize];
        let same = source.ip() == route.target.ip() && source.port() == route.target.port();
        let from_target = same && socket == route.to.socket();
        let verdict = match from_target {
            true => self.checker.check(self.plan, &pending.request, route.family, reply),
            false => Err(Finding::FromElsewhere),
        };
        let of = (pending.request.kind(), pending.sent);
        let asked =
            || self.plan.describe(&pending.request, route.family, route.address, &route.target);
        let right = self.counts.reply(of, now, verdict, reply, asked);
        if let Some(number) = right.and_then(|right| right.connection_id) {
            let id = &mut self.ids[route.id as usize];
            if !id.is_usable(now) {
                self.newly_connected.push_back(pending.route);
            }
            *id = Id { number, since: now, requested: None };
        }
    }

    /// Counts overdue requests as lost. Searches a part of the table in proportion to the time that
    /// has passed.
    fn expire_requests(&mut self, now: Nanos) {
        let passed = now.saturating_sub(self.searched);
        let capacity = self.flight.capacity() as u64;
        let steps = (passed.min(SEARCH_EVERY) * capacity / SEARCH_EVERY) as usize;
        if steps == 0 {
            return;
        }
        self.searched = now;
        for _ in 0..steps {
            if let Some(pending) = self.flight.expire_next(now) {
                self.lost(pending);
            }
        }
    }

    /// Counts a request as lost and queues a repeat.
    fn lost(&mut self, pending: Pending) {
        self.counts.lost(pending.request.kind(), pending.sent);
        let again = pending.tries < REPEATS && pending.request.kind() != Kind::Connect;
        if again && self.repeats.len() < MAX_REPEATS_WAITING {
            self.repeats.push_back(pending);
        }
    }

    /// Number of requests to send now, in one burst.
    #[inline]
    fn wanted(&mut self, now: Nanos) -> usize {
        let burst = self.settings.burst;
        let missing = self.in_flight.saturating_sub(self.flight.len());
        // Whole bursts of at most a quarter of the requests in flight: a burst that waited for all
        // replies would be stopped for the timeout by a single lost one.
        let min = burst.min((self.in_flight / 4).max(1));
        let missing = if missing >= min { missing } else { 0 };
        self.pacer.wanted(now, self.counts.window.end, missing, burst)
    }

    /// Number of requests that may be sent before the limit in flight.
    #[inline]
    fn room(&self) -> usize {
        self.in_flight.saturating_sub(self.flight.len()).min(self.flight.room())
    }

    /// Writes the next burst; false when no request is to be sent now.
    #[inline]
    fn fill(&mut self, now: Nanos) -> bool {
        self.packets.clear();
        self.due.clear();
        let (wanted, room) = (self.wanted(now), self.room());
        let count = wanted.min(room);
        if count == 0 {
            let Counts { tally, window, .. } = &mut self.counts;
            tally.no_room += u64::from(wanted > 0 && now >= window.start);
            return false;
        }
        // A route that waits for a connection id has no requests.
        for _ in 0..self.routes.len() {
            self.route = self.choose(now);
            self.compose(count, now);
            if !self.packets.is_empty() {
                if self.settings.bursts {
                    self.packets.group_by_len();
                }
                return true;
            }
        }
        false
    }

    /// The route of the next burst: that of the next repeat, then one with a new connection id,
    /// else round robin with IPv6's share.
    #[inline]
    fn choose(&mut self, now: Nanos) -> usize {
        if let Some(pending) = self.repeats.front() {
            let id = &self.ids[self.routes[pending.route as usize].id as usize];
            // A repeat without a usable id would block all others; its route connects in its turn.
            if id.is_usable(now) {
                return pending.route as usize;
            }
        }
        if let Some(route) = self.newly_connected.pop_front() {
            return route as usize;
        }
        self.v6_due += self.v6;
        let family = usize::from(self.v6_due >= 1.0);
        self.v6_due -= family as f64;
        let of_family = &self.by_family[family];
        self.turns[family] = (self.turns[family] + 1) % of_family.len();
        of_family[self.turns[family]] as usize
    }

    /// Writes up to `count` requests for the chosen route.
    #[inline]
    fn compose(&mut self, count: usize, now: Nanos) {
        let route = self.routes[self.route];
        let id = self.ids[route.id as usize];
        let age = now.saturating_sub(id.since);
        let usable = id.is_usable(now);
        let requested = id.requested.is_some_and(|at| now < at + self.pacer.timeout);
        let renew = (!usable || age >= RENEW) && !requested;
        if renew {
            self.push(PlannedRequest::Connect, 0, &route, now);
        }
        if !usable {
            return;
        }
        while self.packets.len() < count {
            let repeat = self.repeats.front().is_some_and(|next| next.route as usize == self.route);
            match if repeat { self.repeats.pop_front() } else { None } {
                Some(pending) => self.push(pending.request, pending.tries + 1, &route, now),
                None => match self.plan.next(&mut self.chance, route.family, route.address) {
                    Some(request) => self.push(request, 0, &route, now),
                    // An address without peers only connects.
                    None => self.push(PlannedRequest::Connect, 0, &route, now),
                },
            }
        }
    }

    /// Adds one request to the burst.
    #[inline]
    fn push(&mut self, request: PlannedRequest, tries: u8, route: &Route, now: Nanos) {
        let number = match request {
            PlannedRequest::Foreign { draw, .. } => self.foreign(route, draw),
            PlannedRequest::Unusable { id, .. } => ConnectionId(id),
            _ => ConnectionId(self.ids[route.id as usize].number),
        };
        let id = &mut self.ids[route.id as usize];
        if request == PlannedRequest::Connect {
            id.requested = Some(now);
        }
        let due = self.pacer.take(now);
        let kind = request.kind();
        self.counts.request(kind, due, tries > 0);
        let transaction = if kind.is_answered() {
            let pending =
                Pending { request, sent: due, deadline: 0, route: self.route as u32, tries };
            self.flight.open(pending).expect("bursts are no larger than the room")
        } else {
            self.flight.silent()
        };
        if kind.is_answered() {
            self.due.push((transaction, due));
        }
        self.packets.push(self.plan, &request, route.family, number, transaction);
    }

    /// A connection id that this target issued to another address; a random one where there is
    /// none.
    #[cold]
    fn foreign(&self, route: &Route, draw: u64) -> ConnectionId {
        let addresses = &self.plan.population.addresses;
        let count = addresses.count(route.family);
        let step = 1 + draw % u64::from(count.max(2) - 1);
        let other = (u64::from(route.address) + step) % u64::from(count);
        // Connection ids of one target and family are numbered by address, see [`Route::id`].
        let id = (u64::from(route.id) + other).checked_sub(u64::from(route.address));
        let known = id.and_then(|id| self.ids.get(id as usize)).map_or(0, |id| id.number);
        let own = self.ids[route.id as usize].number;
        ConnectionId(if known == 0 || known == own { draw } else { known })
    }

    /// Notes when the burst leaves. In a closed loop its latency starts then, in an open loop at
    /// the due time.
    #[inline]
    fn stamp(&mut self, now: Nanos) {
        let closed = !self.pacer.is_open();
        self.sent_at = now;
        if let Some(&(_, first)) = self.due.first().filter(|_| !closed) {
            // The delay of the burst's first request stands for the whole burst.
            self.counts.behind(first, now, self.due.len() as u64);
        }
        for &(transaction, due) in &self.due {
            // A request is counted by its due time, so the time of sending of a closed loop must
            // stay on the same side of the window's edges.
            let same_side = self.counts.within(due) == self.counts.within(now);
            let sent = if closed && same_side { now } else { due };
            self.flight.stamp(transaction, sent, now + self.pacer.timeout);
        }
    }

    /// The action until the next request is due.
    fn next(&mut self, now: Nanos, received: bool) -> Next {
        let in_flight = !self.flight.is_empty();
        let replies_due = in_flight && now < self.sent_at + SPIN_AFTER_SEND;
        let is_busy = received || self.pacer.is_open() && replies_due;
        let end = self.counts.window.end;
        let progress = Progress { in_flight, has_room: self.room() > 0, is_busy };
        let next = self.pacer.next(now, end, progress);
        if next == Next::Done {
            self.counts.tally.unsent = self.pacer.unsent(end);
        }
        next
    }
}

#[cfg(test)]
mod tests;
