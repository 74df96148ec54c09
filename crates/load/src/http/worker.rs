//! A worker over HTTP.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::time::Duration;

use onrush_net::stream::mio::Backend;
use onrush_net::stream::{Ready, Streams as _};
use onrush_proto::Family;
use onrush_proto::http::client::{Body, BodyReader, ReplyHead};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rustls::pki_types::ServerName;

use super::Target;
use super::request::Template;
use crate::check::{Checker, Finding, Right, may_be_refused};
use crate::connection::{Connection, is_own_limit};
use crate::plan::{Plan, PlannedRequest};
use crate::routes::{Route, Routes};
use crate::tally::HttpTally;
use crate::worker::pace::Progress;
use crate::worker::{Counts, LoadSettings, Nanos, Next, Pacer, Prepared, Window, Worker};

/// Bytes received at once.
const SPACE: usize = 1 << 16;
/// Interval of the search for overdue requests and for slots that rest.
const SEARCH_EVERY: Nanos = 10_000_000;
/// Time for which a slot takes no request after a connection could not be opened.
const REST: Nanos = 50_000_000;

/// A worker.
pub struct HttpWorker<'p> {
    plan: &'p Plan,
    target: Target,
    templates: Vec<Template>,
    names: Vec<ServerName<'static>>,
    backend: Backend,
    /// Whether the events of the last wait are still to be taken.
    has_waited: bool,
    counts: Counts,
    pacer: Pacer,
    checker: Checker,
    chance: SmallRng,
    reader: BodyReader,
    slots: Vec<Slot>,
    /// Slots that take a request, each once.
    free: VecDeque<u32>,
    /// Slots that take none for a while.
    resting: VecDeque<(Nanos, u32)>,
    in_flight: usize,
    sent_at: Nanos,
    searched: Nanos,
    space: Vec<u8>,
    joined: Vec<u8>,
    bytes: Vec<u8>,
}

/// A place for a connection.
struct Slot {
    connection: Option<Connection>,
    /// Number of connections so far, which tells their events apart.
    generation: u32,
    family: Family,
    /// The number of the source address among those of its family.
    address: u32,
    /// The distance to the next source address, without keep-alive.
    step: u32,
    /// The number of the URL.
    url: usize,
    /// Requests without a reply, in their order.
    waiting: VecDeque<Pending>,
    /// When the first byte of the next reply came.
    first_byte: Option<Nanos>,
    /// Whether it is in `free` or `resting`.
    is_listed: bool,
}

/// A request without a reply.
#[derive(Clone, Copy)]
struct Pending {
    request: PlannedRequest,
    compact: bool,
    /// When it was sent (closed loop) or due (open loop).
    sent: Nanos,
    deadline: Nanos,
    is_repeat: bool,
}

impl Prepared for Target {
    type Worker<'p> = HttpWorker<'p>;

    fn start(
        self,
        plan: &Plan,
        load: LoadSettings,
        number: usize,
        window: Window,
    ) -> io::Result<HttpWorker<'_>> {
        let slots = slots(plan, &self, number, load.workers);
        let keep_alive = self.settings.keep_alive;
        let mut counts = Counts::new(window, load.strict);
        counts.tally.http = Some(Box::default());
        Ok(HttpWorker {
            plan,
            templates: self.urls.iter().map(|url| Template::new(url, keep_alive)).collect(),
            names: self.urls.iter().map(|url| url.server_name()).collect(),
            target: self,
            backend: Backend::new(Vec::new())?,
            has_waited: false,
            counts,
            pacer: Pacer::new(&load, window, number),
            checker: Checker::new(plan, load.strictness),
            chance: plan.chance(number),
            reader: BodyReader::default(),
            free: (0..slots.len() as u32).collect(),
            slots,
            resting: VecDeque::new(),
            in_flight: 0,
            sent_at: 0,
            searched: 0,
            space: vec![0; SPACE],
            joined: Vec::new(),
            bytes: Vec::new(),
        })
    }
}

/// The slots of worker number `worker`.
fn slots(plan: &Plan, target: &Target, worker: usize, workers: usize) -> Vec<Slot> {
    let sources = &plan.population.addresses;
    let routes = Routes::new(&target.urls, sources, plan.profile.v6);
    let slot = |Route { family, address, of_family, url, .. }| Slot {
        connection: None,
        generation: 0,
        family,
        address,
        step: of_family % sources.count(family),
        url,
        waiting: VecDeque::new(),
        first_byte: None,
        is_listed: true,
    };
    routes.of_worker(worker, workers, target.settings.connections).map(slot).collect()
}

impl Worker for HttpWorker<'_> {
    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    fn end_at(&mut self, end: Nanos) {
        self.counts.end_at(end, self.sent_at);
    }

    fn dropped(&self) -> u64 {
        0
    }

    fn turn(&mut self, clock: &impl Fn() -> Nanos) -> io::Result<Next> {
        if !self.has_waited {
            self.backend.wait(Duration::ZERO)?;
        }
        self.has_waited = false;
        while let Some(ready) = self.backend.ready() {
            if let Ready::Stream { key, readable, writable } = ready {
                let (number, generation) = (key as u32, (key >> 32) as u32);
                if self.slots[number as usize].generation == generation {
                    self.event(number, (readable, writable), clock());
                }
            }
        }
        self.search(clock());
        self.fill(clock);
        let now = clock();
        let (in_flight, has_room) = (self.in_flight > 0, !self.free.is_empty());
        let end = self.counts.window.end;
        let next = self.pacer.next(now, end, Progress { in_flight, has_room, is_busy: false });
        if next == Next::Done {
            self.counts.tally.unsent = self.pacer.unsent(end);
        }
        Ok(next)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.has_waited = true;
        match self.pacer.is_open() {
            true => self.backend.wait_exactly(timeout),
            false => self.backend.wait(timeout),
        }
    }
}

impl HttpWorker<'_> {
    fn http(&mut self) -> &mut HttpTally {
        self.counts.tally.http.get_or_insert_default()
    }

    /// Sends and receives on a connection that is ready.
    fn event(&mut self, number: u32, (readable, writable): (bool, bool), now: Nanos) {
        let to_end = !self.target.settings.keep_alive;
        let slot = &mut self.slots[number as usize];
        let generation = slot.generation;
        let Some(connection) = &mut slot.connection else { return };
        let flushed = if writable { connection.flush() } else { Ok(()) };
        let mut done = match readable {
            true => flushed.and_then(|()| connection.receive(&mut self.space, to_end)),
            false => flushed,
        };
        self.opened(number, now);
        self.replies(number, now);
        // The input is a part of a reply. Its end may be that of the connection.
        if let Some(connection) = &mut self.slots[number as usize].connection
            && !(to_end || connection.ended || connection.input.is_empty())
            && done.is_ok()
        {
            done = connection.receive(&mut self.space, true);
            self.replies(number, now);
        }
        let slot = &self.slots[number as usize];
        match done {
            // It is closed, and what it left unanswered may be on another one.
            _ if slot.generation != generation => {}
            Err(error) => self.failed(number, &error, now),
            Ok(()) if slot.connection.as_ref().is_some_and(|it| it.ended) => {
                self.ended(number, now)
            }
            Ok(()) => self.list(number),
        }
    }

    /// Counts a connection once it is open.
    fn opened(&mut self, number: u32, now: Nanos) {
        let Some(connection) = &mut self.slots[number as usize].connection else { return };
        let Some(took) = connection.took.take() else { return };
        let is_resumed = connection.is_resumed();
        if self.counts.within(now) {
            let http = self.http();
            http.opened += 1;
            http.resumed += u64::from(is_resumed);
            http.handshake.0.saturating_record(took.as_nanos() as Nanos);
        }
    }

    /// Takes the whole replies that a connection has received.
    fn replies(&mut self, number: u32, now: Nanos) {
        while let Some(keeps) = self.reply(number, now) {
            if !(keeps && self.target.settings.keep_alive) {
                self.close(number, now);
                break;
            }
        }
    }

    /// Takes the next reply, if it is whole; returns whether the connection takes further requests.
    fn reply(&mut self, number: u32, now: Nanos) -> Option<bool> {
        let slot = &mut self.slots[number as usize];
        let connection = slot.connection.as_mut()?;
        if connection.input.is_empty() {
            return None;
        }
        let Some(&pending) = slot.waiting.front() else {
            self.counts.stray(Finding::Unasked, &connection.input, now);
            return Some(false);
        };
        connection.is_used = true;
        let first = *slot.first_byte.get_or_insert(now);
        let input = &connection.input[..];
        let found = ReplyHead::parse(input).and_then(|head| match head {
            Some(head) => {
                let body = head.body(input, connection.ended, &mut self.joined)?;
                Ok(body.map(|(body, len)| (head, body, len)))
            }
            None => Ok(None),
        });
        let (verdict, shown, len, keeps) = match found {
            Ok(None) => return None,
            Ok(Some((head, body, len))) => {
                let of = (slot.family, pending.compact);
                let checker = &mut self.checker;
                let verdict = verdict(
                    self.plan,
                    checker,
                    &mut self.reader,
                    &pending.request,
                    of,
                    &head,
                    body,
                );
                let shown = if head.status == 200 { body } else { input };
                (verdict, shown, len, head.keep_alive)
            }
            Err(bad) => (Some(Err(bad.into())), input, input.len(), false),
        };
        let kind = pending.request.kind();
        self.counts.bytes(len, now);
        match verdict {
            Some(verdict) => {
                let url = &self.target.urls[slot.url];
                let (plan, family, address) = (self.plan, slot.family, slot.address);
                let asked = || plan.describe(&pending.request, family, address, url);
                self.counts.reply((kind, pending.sent), now, verdict, shown, asked);
            }
            None => self.counts.lost(kind, pending.sent),
        }
        let is_deferred = verdict.is_none();
        connection.input.drain(..len);
        slot.first_byte = (!connection.input.is_empty()).then_some(now);
        slot.waiting.pop_front();
        self.in_flight -= 1;
        if self.counts.within(pending.sent) {
            let http = self.http();
            http.deferred += u64::from(is_deferred);
            http.first_byte.0.saturating_record(first.saturating_sub(pending.sent));
        }
        Some(keeps)
    }

    /// A connection has ended, or ends here: what it has not answered is repeated or lost.
    fn close(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let Some(connection) = slot.connection.take() else { return };
        slot.generation = slot.generation.wrapping_add(1) & (u32::MAX >> 1);
        slot.first_byte = None;
        if !self.target.settings.keep_alive {
            let addresses = self.plan.population.addresses.count(slot.family);
            slot.address = (slot.address + slot.step) % addresses;
        }
        // The tracker may have closed the connection as the requests were sent.
        let may_repeat = connection.is_used && self.target.settings.keep_alive;
        let left = std::mem::take(&mut slot.waiting);
        drop(connection);
        for mut pending in left {
            if may_repeat && !pending.is_repeat && pending.deadline > now {
                pending.is_repeat = true;
                self.slots[number as usize].waiting.push_back(pending);
            } else {
                self.lost(&pending);
            }
        }
        if !self.slots[number as usize].waiting.is_empty() {
            self.send(number, 0, now);
        }
        self.list(number);
    }

    fn lost(&mut self, pending: &Pending) {
        self.in_flight -= 1;
        self.counts.lost(pending.request.kind(), pending.sent);
    }

    /// The input of a connection has ended.
    fn ended(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let Some(connection) = &slot.connection else { return };
        let (is_open, is_used) = (connection.is_open, connection.is_used);
        if !connection.input.is_empty()
            && let Some(pending) = slot.waiting.pop_front()
        {
            self.in_flight -= 1;
            let of = (pending.request.kind(), pending.sent);
            let url = &self.target.urls[slot.url];
            let (plan, family, address) = (self.plan, slot.family, slot.address);
            let asked = || plan.describe(&pending.request, family, address, url);
            self.counts.reply(of, now, Err(Finding::CutShort), &connection.input, asked);
        } else if !slot.waiting.is_empty() && !is_used {
            let error = io::Error::new(ErrorKind::UnexpectedEof, "closed without a reply");
            return self.failed(number, &error, now);
        }
        self.close(number, now);
        if !is_open {
            self.rest(number, now);
        }
    }

    /// A connection has failed.
    fn failed(&mut self, number: u32, error: &io::Error, now: Nanos) {
        let slot = &self.slots[number as usize];
        let connection = slot.connection.as_ref();
        let has_served = connection.is_some_and(|connection| connection.is_used);
        // An idle connection that the tracker has closed is none that failed.
        if !(has_served && self.target.settings.keep_alive) {
            self.note(error, now);
        }
        self.close(number, now);
        if !has_served {
            self.rest(number, now);
        }
    }

    fn note(&mut self, error: &io::Error, now: Nanos) {
        if self.counts.within(now) {
            let http = self.http();
            http.failed += 1;
            http.failure.get_or_insert_with(|| error.to_string());
        }
    }

    /// Lets a slot take requests, if it has room and does not yet.
    fn list(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if !slot.is_listed && slot.waiting.len() < self.target.settings.pipeline {
            slot.is_listed = true;
            self.free.push_back(number);
        }
    }

    /// Lets a slot take no requests for a while.
    fn rest(&mut self, number: u32, now: Nanos) {
        self.free.retain(|free| *free != number);
        if !self.resting.iter().any(|(_, resting)| *resting == number) {
            self.resting.push_back((now + REST, number));
            self.slots[number as usize].is_listed = true;
        }
    }

    /// Finds overdue requests, which end their connections, and slots that have rested.
    fn search(&mut self, now: Nanos) {
        if now.saturating_sub(self.searched) < SEARCH_EVERY {
            return;
        }
        self.searched = now;
        for number in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[number as usize];
            if slot.waiting.front().is_some_and(|pending| pending.deadline <= now) {
                // Replies to later requests could not be told from the one that is missing.
                slot.waiting.iter_mut().for_each(|pending| pending.is_repeat = true);
                self.close(number, now);
            }
        }
        while let Some(&(_, number)) = self.resting.front().filter(|(until, _)| *until <= now) {
            self.resting.pop_front();
            self.slots[number as usize].is_listed = false;
            self.list(number);
        }
    }

    /// Sends the due requests.
    fn fill(&mut self, clock: &impl Fn() -> Nanos) {
        // A slot whose connection fails at once does not return within a turn.
        for _ in 0..self.free.len() {
            let now = clock();
            let Some(&number) = self.free.front() else { break };
            let room = self.target.settings.pipeline - self.slots[number as usize].waiting.len();
            let most = if self.pacer.is_open() { 1 } else { room };
            let wanted = self.pacer.wanted(now, self.counts.window.end, room, most);
            if wanted == 0 {
                return;
            }
            self.free.pop_front();
            self.slots[number as usize].is_listed = false;
            for _ in 0..wanted {
                self.compose(number, now);
            }
            self.sent_at = now;
            self.send(number, wanted, now);
            self.list(number);
        }
        let now = clock();
        let Counts { tally, window, .. } = &mut self.counts;
        if self.free.is_empty() && self.pacer.is_open() && now >= window.start {
            tally.no_room += u64::from(self.pacer.wanted(now, window.end, 0, 1) > 0);
        }
    }

    /// Plans a request of a slot.
    fn compose(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let planned = self.plan.next(&mut self.chance, slot.family, slot.address);
        // An address without peers scrapes.
        let scrape =
            |chance: &mut SmallRng| PlannedRequest::Scrape { draw: chance.random(), hashes: 1 };
        let request = planned.unwrap_or_else(|| scrape(&mut self.chance));
        let compact = match request {
            PlannedRequest::Announce { peer, .. } => {
                let own = self.plan.population.trait_of(slot.family, peer);
                f64::from((own >> 48) as u16) >= self.target.settings.lists * 65_536.0
            }
            _ => true,
        };
        let due = self.pacer.take(now);
        self.counts.request(request.kind(), due, false);
        if self.pacer.is_open() {
            self.counts.behind(due, now, 1);
        }
        let deadline = now + self.pacer.timeout;
        let pending = Pending { request, compact, sent: due, deadline, is_repeat: false };
        slot.waiting.push_back(pending);
        self.in_flight += 1;
    }

    /// Sends the last `new` requests of a slot, or all of them on a new connection.
    fn send(&mut self, number: u32, new: usize, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let is_new = slot.connection.is_none();
        let skipped = if is_new { 0 } else { slot.waiting.len() - new };
        self.bytes.clear();
        for pending in slot.waiting.iter().skip(skipped) {
            let of = (slot.family, pending.compact);
            self.templates[slot.url].write(self.plan, &pending.request, of, &mut self.bytes);
        }
        if is_new && let Err(error) = self.open(number) {
            // It is this host that has no port or no descriptor left.
            self.counts.tally.sent.unsent += u64::from(is_own_limit(&error));
            return self.failed_to_begin(number, &error, now);
        }
        let slot = &mut self.slots[number as usize];
        let Some(connection) = &mut slot.connection else { return };
        connection.out.extend_from_slice(&self.bytes);
        let sent = connection.flush();
        self.opened(number, now);
        if let Err(error) = sent {
            self.failed(number, &error, now);
        }
    }

    fn open(&mut self, number: u32) -> io::Result<()> {
        let slot = &mut self.slots[number as usize];
        let key = u64::from(slot.generation) << 32 | u64::from(number);
        let source: IpAddr = self.plan.population.addresses.get(slot.family, slot.address);
        let ways = (source, self.target.urls[slot.url].address);
        let tls = self.target.tls.as_ref().map(|config| (config, &self.names[slot.url]));
        slot.connection = Some(Connection::begin(&mut self.backend, key, ways, tls)?);
        Ok(())
    }

    /// A connection could not even be begun.
    fn failed_to_begin(&mut self, number: u32, error: &io::Error, now: Nanos) {
        self.note(error, now);
        for pending in std::mem::take(&mut self.slots[number as usize].waiting) {
            self.lost(&pending);
        }
        self.rest(number, now);
    }
}

/// The verdict on a reply; `None` for a failure after which the client should try later, as a
/// tracker under overload sends it (BEP 31).
fn verdict(
    plan: &Plan,
    checker: &mut Checker,
    reader: &mut BodyReader,
    request: &PlannedRequest,
    of: (Family, bool),
    head: &ReplyHead,
    body: &[u8],
) -> Option<Result<Right, Finding>> {
    if head.status != 200 && !may_be_refused(request) {
        return Some(Err(Finding::HttpStatus));
    }
    let dictionary = body.strip_suffix(b"\r\n");
    let line_end = dictionary.map(|_| Finding::LineEnd);
    let body = match reader.read(dictionary.unwrap_or(body)) {
        Ok(body) => body,
        Err(_) if head.status != 200 => return Some(Ok(Right::PLAIN)),
        Err(bad) => return Some(Err(bad.into())),
    };
    match body {
        Body::Failure(failure) if failure.retry_in.is_some() && !may_be_refused(request) => None,
        body => {
            let checked = checker.check_body(plan, request, of, &body);
            Some(checked.map(|right| Right { differs: right.differs.or(line_end), ..right }))
        }
    }
}
