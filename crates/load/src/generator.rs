//! One worker: asks, listens, counts. Its time comes from outside, its network is any backend.
//!
//! A turn receives what is there, gives up what is overdue and sends what is due: in a closed
//! loop as many requests as replies are missing to a fixed number under way, in an open loop what
//! a schedule has due by now. A burst of requests leaves through one socket, as
//! batched sends are per socket.

mod describe;
pub mod flight;
pub mod pace;
pub mod packet;
mod recent;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::{Reply, Return, Socket};
use onrush_proto::{ConnectionId, Family, TransactionId};
use rand::rngs::SmallRng;

use crate::check::{Checker, Finding, Right, Strictness};
use crate::plan::{Kind, Plan, PlannedRequest};
use crate::tally::Tally;
use flight::{Flight, Nanos, Pending, ReplyMatch};
pub use pace::Pace;
use pace::Timetable;
use packet::Packets;
pub use recent::Recent;

/// A connection id is renewed when it is this old.
const RENEW: Nanos = 45_000_000_000;
/// A connection id is not used when it is older (BEP 15, "Connect": one minute).
const EXPIRED: Nanos = 60_000_000_000;
/// How often a lost announce or scrape is repeated.
const REPEATS: u8 = 2;
/// Lost requests that may wait for being repeated; more are only counted.
const MAX_REPEATS_WAITING: usize = 4096;
/// Datagrams per receive call: as many as the kernel backend's batch has.
const RECEIVE: usize = 128;
/// Receive calls before it is the senders' turn again.
const RECEIVE_CALLS: usize = 4;
/// Bursts sent before it is the receivers' turn again.
const SEND_BURSTS: usize = 64;
/// The whole table is searched for overdue requests this often.
const SEARCH_EVERY: Nanos = 50_000_000;
/// A worker waits until this long before the next request is due, and spins for the rest: a wait
/// ends late by the kernel's timer slack (50 us, prctl(2)) and by the time of a wake-up.
const SPIN_BEFORE_SEND: Nanos = if cfg!(target_os = "linux") { 100_000 } else { 2_000_000 };
/// A worker spins this long for the replies to a burst, as the time of a wake-up (some 20 us) would
/// be a large part of a fast tracker's latency.
const SPIN_AFTER_SEND: Nanos = 50_000;
/// At the limit of requests in flight a worker waits this long for replies.
const FULL_WAIT: Nanos = 4_000_000;
/// Without anything to do a worker sleeps for at most this long.
const LONGEST_WAIT: Nanos = 20_000_000;

/// A way to a tracker: from one of the backend's sockets to one of its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The way itself.
    pub to: Return,
    /// The tracker's address, which replies must come from.
    pub target: SocketAddr,
    /// Its family.
    pub family: Family,
    /// The number of the source address among those of its family.
    pub address: u32,
    /// The number of the connection id that is used on this way: one per target and source
    /// address, and those of one target and family in the order of the addresses.
    pub id: u32,
}

/// How a worker goes about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When requests leave; a schedule is that of all workers together.
    pub pace: Pace,
    /// Requests under way at most in an open loop; 1 to 2^20.
    pub limit: usize,
    /// Requests through one socket at a time, at least 1.
    pub burst: usize,
    /// Whether requests of one length are put next to each other for the kernel.
    pub group: bool,
    /// After so long a request is lost.
    pub timeout: Nanos,
    /// Share of traffic over IPv6 where there are routes of both families.
    pub v6: f64,
    /// How strict to be.
    pub strictness: Strictness,
    /// Whether what BEP 15 leaves open counts as wrong where it is done differently.
    pub strict: bool,
    /// Decides the transaction ids.
    pub seed: u64,
    /// The worker's number.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
}

/// When what is sent and received counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From here on.
    pub start: Nanos,
    /// Up to here; nothing is sent after it.
    pub end: Nanos,
}

/// What to do after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Something is due too soon to sleep.
    Again,
    /// Nothing is due for so long.
    Wait(Duration),
    /// All is sent, and answered or given up.
    Done,
}

/// A worker.
#[derive(Debug)]
pub struct Generator<'p, S> {
    socket: S,
    session: Session<'p>,
}

impl<'p, S: Socket> Generator<'p, S> {
    /// A worker that follows `plan` over `routes` through `socket`. Sends from time 0 on;
    /// what it sends within `window` counts.
    ///
    /// # Panics
    /// Without routes.
    pub fn new(
        socket: S,
        plan: &'p Plan,
        routes: Vec<Route>,
        settings: Settings,
        window: Window,
    ) -> Self {
        assert!(!routes.is_empty(), "there is a way to at least one target");
        Self { socket, session: Session::new(plan, routes, settings, window) }
    }

    /// Counts since the caller last emptied them, for a look at a run under way.
    pub fn recent(&mut self) -> &mut Recent {
        &mut self.session.recent
    }

    /// Counts so far.
    pub fn tally(&self) -> &Tally {
        &self.session.tally
    }

    /// Ends the window early, at `end`, which is still to come.
    pub fn end_at(&mut self, end: Nanos) {
        self.session.window.end = self.session.window.end.min(end);
    }

    /// Requests that wait for replies.
    pub fn in_flight(&self) -> usize {
        self.session.flight.len()
    }

    /// Datagrams that the kernel dropped on their way in, as the backend counts them.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped()
    }

    /// The network.
    pub fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }

    /// Receives, gives up, sends. Reads the time from `clock`, which never goes back.
    ///
    /// # Errors
    /// Only what makes the socket unusable.
    pub fn turn(&mut self, clock: &impl Fn() -> Nanos) -> io::Result<Next> {
        let mut received = false;
        for _ in 0..RECEIVE_CALLS {
            let batch = self.socket.receive(RECEIVE)?;
            if batch.is_empty() {
                break;
            }
            received = true;
            let now = clock();
            self.session.tally.batches += 1;
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

    /// Sleeps as [`turn`](Self::turn) said.
    ///
    /// # Errors
    /// Only what makes the socket unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.session.tally.waits += 1;
        self.socket.wait(timeout)
    }

    fn send(&mut self, clock: &impl Fn() -> Nanos) {
        let session = &mut self.session;
        session.stamp(clock());
        let to = &session.routes[session.route].to;
        let sent = self.socket.send(session.packets.iter().map(|bytes| Reply { bytes, to }));
        session.tally.sent += sent;
    }
}

/// Everything about a worker but its network.
#[derive(Debug)]
struct Session<'p> {
    plan: &'p Plan,
    routes: Vec<Route>,
    /// Routes of each family, by number.
    by_family: [Vec<u32>; 2],
    /// The next route of each family.
    turns: [usize; 2],
    /// Routes of the addresses that flood, per family.
    floods: [Vec<u32>; 2],
    /// Parts of a burst that floods are owed, below 1.
    flood_owed: f64,
    flood_turn: usize,
    /// Whether this burst is a flood's: connects and nothing else.
    flooding: bool,
    /// IPv6's share of bursts, and what it is owed so far.
    v6: f64,
    v6_owed: f64,
    /// The route of the burst in the making.
    route: usize,
    ids: Vec<Id>,
    settings: Settings,
    /// Closed loop: requests kept under way.
    in_flight: usize,
    window: Window,
    flight: Flight,
    packets: Packets,
    checker: Checker,
    chance: SmallRng,
    repeats: VecDeque<Pending>,
    /// Routes that had no id that could be used, and have got one: they ask next, as clients do
    /// that connect in order to ask. Waiting for their turn, they might have none again by then.
    newly_connected: VecDeque<u32>,
    tally: Tally,
    recent: Recent,
    /// Open loop: when requests are due.
    timetable: Option<Timetable>,
    /// Due times of the burst in the making.
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
    /// When it came.
    since: Nanos,
    /// Whether, and when, it was asked for last.
    asked: Option<Nanos>,
}

impl Id {
    /// Whether a client would still send it.
    fn is_usable(&self, now: Nanos) -> bool {
        self.number != 0 && now.saturating_sub(self.since) < EXPIRED
    }
}

impl<'p> Session<'p> {
    fn new(plan: &'p Plan, routes: Vec<Route>, settings: Settings, window: Window) -> Self {
        let of = |family| {
            let of_family = routes.iter().enumerate().filter(move |(_, r)| r.family == family);
            of_family.map(|(n, _)| n as u32).collect::<Vec<_>>()
        };
        let by_family = [of(Family::V4), of(Family::V6)];
        let mut floods = by_family.clone();
        for of_family in &mut floods {
            // The lowest of the addresses that this worker has.
            let address = |route: &u32| routes[*route as usize].address;
            let first = of_family.iter().map(address).min().unwrap_or(0);
            let few = plan.profile().flood.addresses;
            of_family.retain(|route| address(route) - first < few);
        }
        let v6 = match (by_family[0].len(), by_family[1].len()) {
            (_, 0) => 0.0,
            (0, _) => 1.0,
            _ => settings.v6,
        };
        let ids = routes.iter().map(|route| route.id as usize + 1).max().unwrap_or(0);
        let (room, timetable) = match &settings.pace {
            Pace::InFlight(count) => (*count, None),
            Pace::Open(schedule) => {
                let Settings { worker, workers, seed, .. } = settings;
                let timetable = Timetable::new(schedule, window.start, worker, workers, seed);
                (settings.limit, Some(timetable))
            }
        };
        Self {
            by_family,
            turns: [0; 2],
            floods,
            flood_owed: 0.0,
            flood_turn: 0,
            flooding: false,
            v6,
            v6_owed: 0.0,
            route: 0,
            ids: vec![Id::default(); ids],
            in_flight: room,
            window,
            flight: Flight::new(room, crate::plan::population::mix(settings.seed) as u32),
            packets: Packets::new(settings.burst),
            checker: Checker::new(plan, settings.strictness),
            chance: plan.chance(settings.worker),
            repeats: VecDeque::with_capacity(MAX_REPEATS_WAITING),
            newly_connected: VecDeque::with_capacity(routes.len()),
            tally: Tally::default(),
            recent: Recent::default(),
            timetable,
            due: Vec::with_capacity(settings.burst),
            sent_at: 0,
            searched: 0,
            settings,
            plan,
            routes,
        }
    }

    fn counts(&self, sent: Nanos) -> bool {
        (self.window.start..self.window.end).contains(&sent)
    }

    /// Takes a reply.
    #[inline]
    fn accept_reply(&mut self, reply: &[u8], source: SocketAddr, socket: u16, now: Nanos) {
        let in_window = self.counts(now);
        if in_window {
            self.tally.replies_in_window += 1;
            self.tally.bytes_in_window += reply.len() as u64;
        }
        let Some(head) = reply.first_chunk::<8>() else {
            return self.finding(Finding::Layout, reply, in_window, None);
        };
        let transaction = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let pending = match self.flight.close(TransactionId(transaction)) {
            ReplyMatch::Open(pending) if now <= pending.deadline => pending,
            ReplyMatch::Open(pending) => {
                self.tally.late += u64::from(in_window);
                return self.lost(pending);
            }
            ReplyMatch::Late => {
                self.tally.late += u64::from(in_window);
                return;
            }
            ReplyMatch::Twice => {
                return self.finding(Finding::AnsweredTwice, reply, in_window, None);
            }
            ReplyMatch::Unexpected => {
                return self.finding(Finding::NotSilent, reply, in_window, None);
            }
            ReplyMatch::Unknown => {
                return self.finding(Finding::UnknownTransaction, reply, in_window, None);
            }
        };
        self.answer(&pending, reply, source, socket, now);
    }

    /// Takes a reply to a request.
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
        let counts = self.counts(pending.sent);
        let same = source.ip() == route.target.ip() && source.port() == route.target.port();
        let from_there = same && socket == route.to.socket();
        let verdict = match from_there {
            true => self.checker.check(self.plan, &pending.request, route.family, reply),
            false => Err(Finding::FromElsewhere),
        };
        let kind = pending.request.kind();
        let latency = now.saturating_sub(pending.sent);
        self.recent.latency.saturating_record(latency);
        let strict = self.settings.strict;
        match verdict {
            Ok(Right { differs: Some(finding), .. }) if strict => {
                self.wrong(kind, latency, counts);
                self.finding(finding, reply, counts, Some(pending));
            }
            Ok(right) => {
                self.recent.right += 1;
                if let Some(number) = right.connection_id {
                    let id = &mut self.ids[route.id as usize];
                    if !id.is_usable(now) {
                        self.newly_connected.push_back(pending.route);
                    }
                    *id = Id { number, since: now, asked: None };
                }
                self.tally.right_in_window += u64::from(self.counts(now));
                if counts {
                    self.tally.right(kind, latency, &right);
                }
                if let Some(finding) = right.differs {
                    self.finding(finding, reply, counts, Some(pending));
                }
            }
            Err(finding) => {
                self.wrong(kind, latency, counts);
                self.finding(finding, reply, counts, Some(pending));
            }
        }
    }

    #[cold]
    fn wrong(&mut self, kind: Kind, latency: Nanos, counts: bool) {
        self.recent.wrong += 1;
        if counts {
            let of_kind = &mut self.tally.kinds[kind as usize];
            of_kind.wrong += 1;
            of_kind.latency.saturating_record(latency);
        }
    }

    #[cold]
    fn finding(&mut self, finding: Finding, reply: &[u8], counts: bool, pending: Option<&Pending>) {
        // Those to a request have been counted with it.
        self.recent.wrong += u64::from(pending.is_none());
        if counts {
            let (plan, routes) = (self.plan, &self.routes);
            self.tally.finding(finding, reply, || match pending {
                Some(pending) => describe::request(plan, routes, pending),
                None => "nothing that waits for a reply".into(),
            });
        }
    }

    /// Counts overdue requests as lost. Searches a part of the table, in proportion to the time
    /// that has passed.
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

    /// Counts a request as lost and has it repeated.
    fn lost(&mut self, pending: Pending) {
        self.recent.lost += 1;
        if self.counts(pending.sent) {
            self.tally.kinds[pending.request.kind() as usize].lost += 1;
        }
        let again = pending.tries < REPEATS && pending.request.kind() != Kind::Connect;
        if again && self.repeats.len() < MAX_REPEATS_WAITING {
            self.repeats.push_back(pending);
        }
    }

    /// Requests to be sent now, in one burst.
    #[inline]
    fn wanted(&mut self, now: Nanos) -> usize {
        let (end, burst) = (self.window.end, self.settings.burst);
        match &mut self.timetable {
            None if now >= end => 0,
            None => {
                let missing = self.in_flight.saturating_sub(self.flight.len());
                // Whole bursts, but of a quarter of what may be under way at most: where a burst
                // waited for all replies, a single lost one would stop it for the timeout.
                let least = burst.min((self.in_flight / 4).max(1));
                if missing >= least { missing.min(burst) } else { 0 }
            }
            // What was due within the window is still sent after it, but not for ever.
            Some(_) if now >= end + self.settings.timeout => 0,
            Some(timetable) => timetable.ready(now.min(end - 1), burst),
        }
    }

    /// Requests that may be sent before too many are under way.
    #[inline]
    fn room(&self) -> usize {
        self.in_flight.saturating_sub(self.flight.len()).min(self.flight.room())
    }

    /// Writes the next burst; false when nothing is to be sent now.
    #[inline]
    fn fill(&mut self, now: Nanos) -> bool {
        self.packets.clear();
        self.due.clear();
        let (wanted, room) = (self.wanted(now), self.room());
        let count = wanted.min(room);
        if count == 0 {
            self.tally.no_room += u64::from(wanted > 0 && now >= self.window.start);
            return false;
        }
        // A route that has no id yet, and has asked for one, has nothing to say.
        for _ in 0..self.routes.len() {
            self.route = self.choose(now);
            self.compose(count, now);
            if !self.packets.is_empty() {
                if self.settings.group {
                    self.packets.group_by_len();
                }
                return true;
            }
        }
        false
    }

    /// The route of the next burst: that of the next repeat, then one with a new id, else each in
    /// turn, with IPv6 having its share.
    #[inline]
    fn choose(&mut self, now: Nanos) -> usize {
        self.flood_owed += self.plan.profile().flood.share;
        self.flooding = self.flood_owed >= 1.0;
        self.flood_owed -= f64::from(u8::from(self.flooding));
        if self.flooding {
            let family = self.family();
            self.flood_turn = self.flood_turn.wrapping_add(1);
            let floods = &self.floods[family];
            return floods[self.flood_turn % floods.len()] as usize;
        }
        if let Some(pending) = self.repeats.front() {
            let id = &self.ids[self.routes[pending.route as usize].id as usize];
            // Without an id it would hold up all others: its route's turn brings one.
            if id.is_usable(now) {
                return pending.route as usize;
            }
        }
        if let Some(route) = self.newly_connected.pop_front() {
            return route as usize;
        }
        let family = self.family();
        let of_family = &self.by_family[family];
        self.turns[family] = (self.turns[family] + 1) % of_family.len();
        of_family[self.turns[family]] as usize
    }

    /// The family of the next burst: IPv6 has its share.
    #[inline]
    fn family(&mut self) -> usize {
        self.v6_owed += self.v6;
        if self.v6_owed >= 1.0 {
            self.v6_owed -= 1.0;
            1
        } else {
            usize::from(self.by_family[0].is_empty())
        }
    }

    /// Writes up to `count` requests for the chosen route.
    #[inline]
    fn compose(&mut self, count: usize, now: Nanos) {
        let route = self.routes[self.route];
        if self.flooding {
            return (0..count).for_each(|_| self.push(PlannedRequest::Connect, 0, &route, now));
        }
        let id = self.ids[route.id as usize];
        let age = now.saturating_sub(id.since);
        let known = id.is_usable(now);
        let asked = id.asked.is_some_and(|asked| now < asked + self.settings.timeout);
        let renew = (!known || age >= RENEW) && !asked;
        if renew {
            self.push(PlannedRequest::Connect, 0, &route, now);
        }
        if !known {
            return;
        }
        while self.packets.len() < count {
            let repeat = self.repeats.front().is_some_and(|next| next.route as usize == self.route);
            match if repeat { self.repeats.pop_front() } else { None } {
                Some(pending) => self.push(pending.request, pending.tries + 1, &route, now),
                None => match self.plan.next(&mut self.chance, route.family, route.address) {
                    Some(request) => self.push(request, 0, &route, now),
                    // Nobody lives at this address: it only ever connects.
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
            _ => ConnectionId(self.ids[route.id as usize].number),
        };
        let id = &mut self.ids[route.id as usize];
        if request == PlannedRequest::Connect {
            id.asked = Some(now);
        }
        let due = self.timetable.as_mut().map_or(now, Timetable::take);
        self.recent.sent += 1;
        let kind = request.kind();
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
        if self.counts(due) {
            let of_kind = &mut self.tally.kinds[kind as usize];
            of_kind.requests += 1;
            of_kind.repeats += u64::from(tries > 0);
        }
        self.packets.push(self.plan, &request, route.family, number, transaction);
    }

    /// An id that this target gave to another address; one that nobody gave where there is none.
    #[cold]
    fn foreign(&self, route: &Route, draw: u64) -> ConnectionId {
        let addresses = self.plan.population.addresses();
        let count = addresses.count(route.family);
        let step = 1 + draw % u64::from(count.max(2) - 1);
        let other = (u64::from(route.address) + step) % u64::from(count);
        // Ids of one target and family are numbered by address: see [`Route::id`].
        let id = (u64::from(route.id) + other).checked_sub(u64::from(route.address));
        let known = id.and_then(|id| self.ids.get(id as usize)).map_or(0, |id| id.number);
        let own = self.ids[route.id as usize].number;
        ConnectionId(if known == 0 || known == own { draw } else { known })
    }

    /// Notes when the burst leaves. Only in an open loop that is not when its latency begins.
    #[inline]
    fn stamp(&mut self, now: Nanos) {
        let closed = self.timetable.is_none();
        self.sent_at = now;
        if let Some(&(_, first)) = self.due.first().filter(|(_, due)| !closed && self.counts(*due))
        {
            // As late as the first of them: one reading per burst is enough.
            let behind = now.saturating_sub(first);
            self.tally.behind.saturating_record_n(behind, self.due.len() as u64);
        }
        for &(transaction, due) in &self.due {
            // A request counts by when it was due, so a closed loop's stamp must not leave the
            // window in which it was counted.
            let sent = if closed && self.counts(due) == self.counts(now) { now } else { due };
            self.flight.stamp(transaction, sent, now + self.settings.timeout);
        }
    }

    /// How long there is nothing to do.
    fn next(&mut self, now: Nanos, received: bool) -> Next {
        if now >= self.window.end {
            let due = self.wanted(now) > 0;
            if self.flight.is_empty() && !due {
                self.close();
                return Next::Done;
            }
            if due && self.room() > 0 {
                return Next::Again;
            }
            return Next::Wait(Duration::from_nanos(LONGEST_WAIT / 4));
        }
        let replies_due = !self.flight.is_empty() && now < self.sent_at + SPIN_AFTER_SEND;
        if received || self.timetable.is_some() && replies_due {
            return Next::Again;
        }
        let until = match &self.timetable {
            None => LONGEST_WAIT,
            Some(timetable) if self.room() > 0 => timetable.next().saturating_sub(now),
            Some(_) => FULL_WAIT,
        };
        match until.min(self.window.end - now).min(LONGEST_WAIT) {
            soon if soon <= SPIN_BEFORE_SEND => Next::Again,
            later => Next::Wait(Duration::from_nanos(later - SPIN_BEFORE_SEND)),
        }
    }

    /// Counts what was due and could not be sent.
    fn close(&mut self) {
        if let Some(timetable) = &self.timetable {
            self.tally.unsent = timetable.left(self.window.end);
        }
    }
}

#[cfg(test)]
mod tests;
