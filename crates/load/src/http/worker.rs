//! A worker over HTTP.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use onrush_proto::Family;
use onrush_proto::http::client::{Body, BodyReader, ReplyHead};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rustls::pki_types::ServerName;

use super::Target;
use super::request::Template;
use crate::check::{Checker, Finding, Right, may_be_refused};
use crate::connection::Connection;
use crate::plan::{Plan, PlannedRequest};
use crate::routes::{Route, Routes};
use crate::tally::HttpTally;
use crate::turns::{Event, Protocol, Turns};
use crate::worker::{LoadSettings, Nanos, Prepared, Window};

/// A worker.
pub struct HttpWorker<'p> {
    plan: &'p Plan,
    target: Target,
    templates: Vec<Template>,
    names: Vec<ServerName<'static>>,
    turns: Turns,
    checker: Checker,
    chance: SmallRng,
    reader: BodyReader,
    slots: Vec<Slot>,
    /// Chunks of a body, put together.
    joined: Vec<u8>,
}

/// A place for a connection.
struct Slot {
    connection: Option<Connection>,
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
        let mut turns = Turns::new(&load, number, window, slots.len())?;
        turns.counts.tally.http = Some(Box::default());
        Ok(HttpWorker {
            plan,
            templates: self.urls.iter().map(|url| Template::new(url, keep_alive)).collect(),
            names: self.urls.iter().map(|url| url.server_name()).collect(),
            target: self,
            turns,
            checker: Checker::new(plan, load.strictness),
            chance: plan.chance(number),
            reader: BodyReader::default(),
            slots,
            joined: Vec::new(),
        })
    }
}

/// The slots of worker number `worker`.
fn slots(plan: &Plan, target: &Target, worker: usize, workers: usize) -> Vec<Slot> {
    let sources = &plan.population.addresses;
    let routes = Routes::new(&target.urls, sources, plan.profile.v6);
    let slot = |Route { family, address, of_family, url, .. }| Slot {
        connection: None,
        family,
        address,
        step: of_family % sources.count(family),
        url,
        waiting: VecDeque::new(),
        first_byte: None,
    };
    routes.of_worker(worker, workers, target.settings.connections).map(slot).collect()
}

impl Protocol for HttpWorker<'_> {
    fn turns(&mut self) -> &mut Turns {
        &mut self.turns
    }

    fn event(&mut self, number: u32, event: Event, now: Nanos) {
        let generation = self.turns.generation(number);
        let Some(connection) = &mut self.slots[number as usize].connection else { return };
        let mut done = if event.writable { connection.flush() } else { Ok(()) };
        if event.readable && done.is_ok() {
            done = connection.receive(&mut self.turns.space, false);
        }
        self.opened(number, now);
        self.replies(number, now);
        // A whole reply may have ended the connection, whose input needs no further read then.
        if event.ended
            && done.is_ok()
            && self.turns.generation(number) == generation
            && let Some(connection) = &mut self.slots[number as usize].connection
        {
            done = connection.receive(&mut self.turns.space, true);
            self.replies(number, now);
        }
        let connection = &self.slots[number as usize].connection;
        match done {
            // It is closed, and what it left unanswered may be on another one.
            _ if self.turns.generation(number) != generation => {}
            Err(error) => self.failed(number, &error, now),
            Ok(()) if connection.as_ref().is_some_and(|it| it.ended) => self.ended(number, now),
            Ok(()) => self.list(number),
        }
    }

    /// An overdue request ends its connection: replies to later requests could not be told from the
    /// one that is missing.
    fn expire(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        if slot.waiting.front().is_some_and(|pending| pending.deadline <= now) {
            slot.waiting.iter_mut().for_each(|pending| pending.is_repeat = true);
            self.close(number, now);
        }
    }

    /// In a closed loop the requests of a pipeline leave together, once all of the former ones have
    /// their replies: a write and a read each serve many.
    fn room(&self, number: u32) -> usize {
        let waiting = self.slots[number as usize].waiting.len();
        match self.turns.pacer.is_open() || waiting == 0 {
            true => self.target.settings.pipeline - waiting,
            false => 0,
        }
    }

    fn plan(&mut self, number: u32, now: Nanos) {
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
        let sent = self.turns.begin(request.kind(), now);
        let deadline = now + self.turns.pacer.timeout;
        slot.waiting.push_back(Pending { request, compact, sent, deadline, is_repeat: false });
    }

    /// Writes the last `new` requests of a slot, or all of them on a new connection.
    fn write(&mut self, number: u32, new: usize, now: Nanos) {
        let is_new = self.slots[number as usize].connection.is_none();
        if is_new && let Err(error) = self.open(number) {
            for pending in std::mem::take(&mut self.slots[number as usize].waiting) {
                self.lost(&pending);
            }
            return self.turns.not_begun(number, &error, now);
        }
        let slot = &mut self.slots[number as usize];
        let Some(connection) = &mut slot.connection else { return };
        let skipped = if is_new { 0 } else { slot.waiting.len() - new };
        for pending in slot.waiting.iter().skip(skipped) {
            let of = (slot.family, pending.compact);
            self.templates[slot.url].write(self.plan, &pending.request, of, &mut connection.out);
        }
        self.turns.send(number);
    }

    fn flush(&mut self, number: u32, now: Nanos) {
        let Some(connection) = &mut self.slots[number as usize].connection else { return };
        let sent = connection.flush();
        self.opened(number, now);
        if let Err(error) = sent {
            self.failed(number, &error, now);
        }
    }
}

impl HttpWorker<'_> {
    fn http(&mut self) -> &mut HttpTally {
        self.turns.counts.tally.http.get_or_insert_default()
    }

    /// Counts a connection once it is open.
    fn opened(&mut self, number: u32, now: Nanos) {
        let Some(connection) = &mut self.slots[number as usize].connection else { return };
        let Some(took) = connection.took.take() else { return };
        let is_resumed = connection.is_resumed() && self.turns.counts.within(now);
        self.http().resumed += u64::from(is_resumed);
        self.turns.opened(took.as_nanos() as Nanos, now);
    }

    /// Takes the whole replies that a connection has received.
    fn replies(&mut self, number: u32, now: Nanos) {
        while let Some(keeps) = self.reply(number, now) {
            if !(keeps && self.target.settings.keep_alive) {
                if self.slots[number as usize].waiting.is_empty() {
                    // Bytes behind the last reply belong to no request.
                    self.reply(number, now);
                }
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
            self.turns.counts.stray(Finding::Unasked, &connection.input, now);
            connection.input.clear();
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
        self.turns.counts.bytes(len, now);
        match verdict {
            Some(verdict) => {
                let url = &self.target.urls[slot.url];
                let (plan, family, address) = (self.plan, slot.family, slot.address);
                let asked = || plan.describe(&pending.request, family, address, url);
                self.turns.counts.reply((kind, pending.sent), now, verdict, shown, asked);
            }
            None => self.turns.counts.lost(kind, pending.sent),
        }
        let is_deferred = verdict.is_none();
        connection.input.drain(..len);
        slot.first_byte = (!connection.input.is_empty()).then_some(now);
        slot.waiting.pop_front();
        self.turns.answered();
        if self.turns.counts.within(pending.sent) {
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
        self.turns.ended(number);
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
            self.write(number, 0, now);
        }
        self.list(number);
    }

    fn lost(&mut self, pending: &Pending) {
        self.turns.lost(pending.request.kind(), pending.sent);
    }

    /// The input of a connection has ended.
    fn ended(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let Some(connection) = &slot.connection else { return };
        let (is_open, is_used) = (connection.is_open, connection.is_used);
        if !connection.input.is_empty()
            && let Some(pending) = slot.waiting.pop_front()
        {
            self.turns.answered();
            let of = (pending.request.kind(), pending.sent);
            let url = &self.target.urls[slot.url];
            let (plan, family, address) = (self.plan, slot.family, slot.address);
            let asked = || plan.describe(&pending.request, family, address, url);
            self.turns.counts.reply(of, now, Err(Finding::CutShort), &connection.input, asked);
        } else if !slot.waiting.is_empty() && !is_used {
            let error = io::Error::new(ErrorKind::UnexpectedEof, "closed without a reply");
            return self.failed(number, &error, now);
        }
        self.close(number, now);
        if !is_open {
            self.turns.rest(number, now);
        }
    }

    /// A connection has failed.
    fn failed(&mut self, number: u32, error: &io::Error, now: Nanos) {
        let slot = &self.slots[number as usize];
        let connection = slot.connection.as_ref();
        let has_served = connection.is_some_and(|connection| connection.is_used);
        // An idle connection that the tracker has closed is none that failed.
        if !(has_served && self.target.settings.keep_alive) {
            self.turns.failed(error, now);
        }
        self.close(number, now);
        if !has_served {
            self.turns.rest(number, now);
        }
    }

    fn open(&mut self, number: u32) -> io::Result<()> {
        let slot = &mut self.slots[number as usize];
        let key = self.turns.key(number);
        let source = self.plan.population.addresses.get(slot.family, slot.address);
        let ways = (source, self.target.urls[slot.url].address);
        let tls = self.target.tls.as_ref().map(|config| (config, &self.names[slot.url]));
        slot.connection = Some(Connection::begin(&mut self.turns.backend, key, ways, tls)?);
        Ok(())
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
