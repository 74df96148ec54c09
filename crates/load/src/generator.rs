//! One worker: sends requests, checks replies, counts. Time is an argument, the network any
//! backend.
//!
//! A turn receives the available replies, expires overdue requests and sends the due ones: in a
//! closed loop as many as are missing to a fixed number in flight, in an open loop those that a
//! schedule has due by now. A burst of requests leaves through one socket, as batched sends are per
//! socket.

pub mod flight;
pub mod pace;
pub mod packet;
mod recent;
mod settings;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::{Reply, Socket};
use onrush_proto::{ConnectionId, Family, TransactionId};
use rand::rngs::SmallRng;

use crate::check::{Checker, Finding, Right};
use crate::plan::{Kind, Plan, PlannedRequest, num_want};
use crate::tally::Tally;
use flight::{Flight, Nanos, Pending, ReplyMatch};
pub use pace::Pace;
use pace::Timetable;
use packet::Packets;
pub use recent::Recent;
pub use settings::{LoadSettings, Next, Route, Window};

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
/// A worker waits until this long before the next request is due, and spins for the rest: a wait
/// ends late by the kernel's timer slack (50 us, prctl(2)) and by the time of a wake-up.
const SPIN_BEFORE_SEND: Nanos = 100_000;
/// A worker spins this long for the replies to a burst, as the time of a wake-up (some 20 us) would
/// be a large part of a fast tracker's latency.
const SPIN_AFTER_SEND: Nanos = 50_000;
/// At the limit of requests in flight a worker waits this long for replies.
const FULL_WAIT: Nanos = 4_000_000;
/// Upper bound on a wait.
const LONGEST_WAIT: Nanos = 20_000_000;

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

    /// Counts since the caller last reset them, for the progress of a run.
    pub fn recent(&mut self) -> &mut Recent {
        &mut self.session.recent
    }

    /// Counts so far.
    pub fn tally(&self) -> &Tally {
        &self.session.tally
    }

    /// Ends the window early, at `end`; after the last request that was sent, where this worker is
    /// late and has sent some since.
    pub fn end_at(&mut self, end: Nanos) {
        let Session { window, sent_at, .. } = &mut self.session;
        window.end = window.end.min(end.max(*sent_at + 1));
    }

    /// Received datagrams that the kernel dropped, as the backend counts them.
    pub fn dropped(&self) -> u64 {
        self.socket.dropped().all()
    }

    /// Receives, expires, sends. Reads the time from `clock`, which is monotonic.
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

    /// Waits as [`turn`](Self::turn) has returned.
    ///
    /// # Errors
    /// Only what makes the socket unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
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
    timeout: Nanos,
    /// Closed loop: requests to keep in flight; open loop: their limit.
    in_flight: usize,
    window: Window,
    flight: Flight,
    packets: Packets,
    checker: Checker,
    chance: SmallRng,
    repeats: VecDeque<Pending>,
    /// Routes that have just got a usable connection id. They send next, as clients connect in
    /// order to announce; by their turn the id might have expired.
    newly_connected: VecDeque<u32>,
    tally: Tally,
    recent: Recent,
    /// Open loop: the due times of requests.
    timetable: Option<Timetable>,
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
        let timetable = match &settings.pace {
            Pace::InFlight(_) => None,
            Pace::Open(schedule) => {
                let LoadSettings { workers, seed, .. } = settings;
                Some(Timetable::new(schedule, window.start, worker, workers, seed))
            }
        };
        Self {
            by_family,
            turns: [0; 2],
            v6,
            v6_due: 0.0,
            route: 0,
            ids: vec![Id::default(); ids],
            in_flight,
            window,
            flight: Flight::new(in_flight, crate::plan::population::mix(settings.seed) as u32),
            packets: Packets::new(settings.burst),
            checker: Checker::new(plan, settings.strictness),
            chance: plan.chance(worker),
            repeats: VecDeque::with_capacity(MAX_REPEATS_WAITING),
            newly_connected: VecDeque::with_capacity(routes.len()),
            tally: Tally::default(),
            recent: Recent::default(),
            timetable,
            due: Vec::with_capacity(settings.burst),
            sent_at: 0,
            searched: 0,
            timeout: (settings.timeout * 1e9).round() as Nanos,
            settings,
            plan,
            routes,
        }
    }

    fn counts(&self, sent: Nanos) -> bool {
        (self.window.start..self.window.end).contains(&sent)
    }

    /// Matches a reply with its request, and counts it.
    #[inline]
    fn accept_reply(&mut self, reply: &[u8], source: SocketAddr, socket: u16, now: Nanos) {
        let in_window = self.counts(now);
        if in_window {
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
            ReplyMatch::Wrong(finding) => return self.finding(finding, reply, in_window, None),
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
        let counts = self.counts(pending.sent);
        let same = source.ip() == route.target.ip() && source.port() == route.target.port();
        let from_target = same && socket == route.to.socket();
        let verdict = match from_target {
            true => self.checker.check(self.plan, &pending.request, route.family, reply),
            false => Err(Finding::FromElsewhere),
        };
        let kind = pending.request.kind();
        let latency = now.saturating_sub(pending.sent);
        self.recent.latency.0.saturating_record(latency);
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
                    *id = Id { number, since: now, requested: None };
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
            of_kind.latency.0.saturating_record(latency);
        }
    }

    #[cold]
    fn finding(&mut self, finding: Finding, reply: &[u8], counts: bool, pending: Option<&Pending>) {
        // Replies to a request in flight are counted with the request.
        self.recent.wrong += u64::from(pending.is_none());
        if counts {
            let (plan, routes) = (self.plan, &self.routes);
            self.tally.finding(finding, reply, || match pending {
                Some(pending) => described(plan, routes, pending),
                None => "no request in flight".into(),
            });
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
        self.recent.lost += 1;
        if self.counts(pending.sent) {
            self.tally.kinds[pending.request.kind() as usize].lost += 1;
        }
        let again = pending.tries < REPEATS && pending.request.kind() != Kind::Connect;
        if again && self.repeats.len() < MAX_REPEATS_WAITING {
            self.repeats.push_back(pending);
        }
    }

    /// Number of requests to send now, in one burst.
    #[inline]
    fn wanted(&mut self, now: Nanos) -> usize {
        let (end, burst) = (self.window.end, self.settings.burst);
        match &mut self.timetable {
            None if now >= end => 0,
            None => {
                let missing = self.in_flight.saturating_sub(self.flight.len());
                // Whole bursts of at most a quarter of the requests in flight: a burst that waited
                // for all replies would be stopped for the timeout by a single lost one.
                let min = burst.min((self.in_flight / 4).max(1));
                if missing >= min { missing.min(burst) } else { 0 }
            }
            // Requests due within the window are still sent for a timeout after it.
            Some(_) if now >= end + self.timeout => 0,
            Some(timetable) => timetable.ready(now.min(end - 1), burst),
        }
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
            self.tally.no_room += u64::from(wanted > 0 && now >= self.window.start);
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
        let requested = id.requested.is_some_and(|at| now < at + self.timeout);
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
        let closed = self.timetable.is_none();
        self.sent_at = now;
        if let Some(&(_, first)) = self.due.first().filter(|(_, due)| !closed && self.counts(*due))
        {
            // The delay of the burst's first request stands for the whole burst.
            let behind = now.saturating_sub(first);
            self.tally.behind.0.saturating_record_n(behind, self.due.len() as u64);
        }
        for &(transaction, due) in &self.due {
            // A request is counted by its due time, so the time of sending of a closed loop must
            // stay on the same side of the window's edges.
            let sent = if closed && self.counts(due) == self.counts(now) { now } else { due };
            self.flight.stamp(transaction, sent, now + self.timeout);
        }
    }

    /// The action until the next request is due.
    fn next(&mut self, now: Nanos, received: bool) -> Next {
        if now >= self.window.end {
            let due = self.wanted(now) > 0;
            if self.flight.is_empty() && !due {
                let unsent = self.timetable.as_ref().map(|due| due.left(self.window.end));
                self.tally.unsent = unsent.unwrap_or(0);
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
}

/// Describes a request, for the examples of wrong replies.
fn described(plan: &Plan, routes: &[Route], pending: &Pending) -> String {
    let route = &routes[pending.route as usize];
    let source = plan.population.addresses.get(route.family, route.address);
    match pending.request {
        PlannedRequest::Announce { peer, event, seeder } => {
            let member = plan.population.member(route.family, peer);
            format!(
                "announce from {source} port {} to {}, {event:?}, left {}, num_want {}, {} of a \
                 swarm of {}",
                plan.population.port(&member),
                route.target,
                u8::from(!seeder),
                num_want(plan.client(route.family, peer).num_want, event),
                plan.population.info_hash(member.swarm),
                member.swarm_size(),
            )
        }
        PlannedRequest::Scrape { hashes, .. } => {
            format!("scrape of {hashes} swarms from {source} to {}", route.target)
        }
        request => format!("{} from {source} to {}", request.kind().as_ref(), route.target),
    }
}

#[cfg(test)]
mod tests;
