//! The turns of a worker with connections, over any protocol. A worker has a fixed number of
//! *slots*, each with at most one connection. A turn takes what has arrived, finds overdue
//! requests, plans those that are due, and sends at the end: all that a connection has to send in
//! one write.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use onrush_net::stream::mio::Backend;
use onrush_net::stream::{Ready, Streams as _};

use crate::connection::is_own_limit;
use crate::plan::Kind;
use crate::tally::ConnectionTally;
use crate::worker::pace::Progress;
use crate::worker::{Counts, LoadSettings, Nanos, Next, Pacer, Window, Worker};

/// Bytes received at once.
const SPACE: usize = 1 << 16;
/// Interval of the search for overdue requests and for slots that rest.
const SEARCH_EVERY: Nanos = 10_000_000;
/// Time for which a slot takes no request after its connection has failed.
const REST: Nanos = 50_000_000;

/// The part of a turn that depends on the protocol. Slots are named by their numbers.
pub(crate) trait Protocol {
    /// The state of the turns.
    fn turns(&mut self) -> &mut Turns;

    /// Takes what has arrived at a connection.
    fn event(&mut self, number: u32, of: Event, now: Nanos);

    /// Counts the overdue requests of a slot as lost.
    fn expire(&mut self, number: u32, now: Nanos);

    /// Requests that a slot takes now.
    fn room(&self, number: u32) -> usize;

    /// Whether the connection that a slot has or needs may be used now.
    fn may_connect(&self, _number: u32) -> bool {
        true
    }

    /// Plans a request of a slot.
    fn plan(&mut self, number: u32, now: Nanos);

    /// Writes the last `new` requests of a slot, for which it may open a connection.
    fn write(&mut self, number: u32, new: usize, now: Nanos);

    /// Sends what was written.
    fn flush(&mut self, number: u32, now: Nanos);

    /// The action once all requests have been sent, and answered or lost.
    fn end(&mut self, _now: Nanos) -> Next {
        Next::Done
    }

    /// Lets a slot take requests, if it has room and does not yet.
    fn list(&mut self, number: u32) {
        if !self.turns().slots[number as usize].is_listed && self.room(number) > 0 {
            let turns = self.turns();
            turns.slots[number as usize].is_listed = true;
            turns.free.push_back(number);
        }
    }
}

/// An event of a connection, as [`Ready`].
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) ended: bool,
}

/// The state of the turns.
pub(crate) struct Turns {
    pub(crate) backend: Backend,
    /// Whether the events of the last wait are still to be taken.
    has_waited: bool,
    pub(crate) counts: Counts,
    pub(crate) pacer: Pacer,
    slots: Vec<Slot>,
    /// Slots that take a request, each once.
    free: VecDeque<u32>,
    /// Slots that take none for a while.
    resting: VecDeque<(Nanos, u32)>,
    /// Slots with something to send, each once.
    unsent: Vec<u32>,
    in_flight: usize,
    pub(crate) sent_at: Nanos,
    searched: Nanos,
    /// Memory to receive into.
    pub(crate) space: Vec<u8>,
}

/// The state of a slot.
#[derive(Clone)]
struct Slot {
    /// Number of connections so far, which tells their events apart.
    generation: u32,
    /// Whether it is in `free` or `resting`.
    is_listed: bool,
    /// Whether it is in `unsent`.
    is_unsent: bool,
}

impl Turns {
    /// Those of worker number `number` with this number of slots.
    pub(crate) fn new(
        load: &LoadSettings,
        number: usize,
        window: Window,
        slots: usize,
    ) -> io::Result<Self> {
        let mut counts = Counts::new(window, load.strict);
        counts.tally.connections = Some(Box::default());
        Ok(Self {
            backend: Backend::new(Vec::new())?,
            has_waited: false,
            counts,
            pacer: Pacer::new(load, window, number),
            slots: vec![Slot { generation: 0, is_listed: true, is_unsent: false }; slots],
            free: (0..slots as u32).collect(),
            resting: VecDeque::new(),
            unsent: Vec::with_capacity(slots),
            in_flight: 0,
            sent_at: 0,
            searched: 0,
            space: vec![0; SPACE],
        })
    }

    /// Number of connections that a slot has had.
    pub(crate) fn generation(&self, number: u32) -> u32 {
        self.slots[number as usize].generation
    }

    /// The key of the events of the present connection of a slot.
    pub(crate) fn key(&self, number: u32) -> u64 {
        u64::from(self.generation(number)) << 32 | u64::from(number)
    }

    fn connections(&mut self) -> &mut ConnectionTally {
        self.counts.tally.connections.get_or_insert_default()
    }

    /// Counts a connection that was opened after this time.
    pub(crate) fn opened(&mut self, took: Nanos, now: Nanos) {
        if self.counts.within(now) {
            let connections = self.connections();
            connections.opened += 1;
            connections.handshake.0.saturating_record(took);
        }
    }

    /// Counts a connection that has failed.
    pub(crate) fn failed(&mut self, error: &io::Error, now: Nanos) {
        if self.counts.within(now) {
            let connections = self.connections();
            connections.failed += 1;
            connections.failure.get_or_insert_with(|| error.to_string());
        }
    }

    /// Counts a connection that could not even be begun. The slot rests.
    pub(crate) fn not_begun(&mut self, number: u32, error: &io::Error, now: Nanos) {
        // It is this host that has no port or no descriptor left.
        self.counts.tally.sent.unsent += u64::from(is_own_limit(error));
        self.failed(error, now);
        self.rest(number, now);
    }

    /// The connection of a slot has ended: further events of it are ignored.
    pub(crate) fn ended(&mut self, number: u32) {
        let generation = &mut self.slots[number as usize].generation;
        *generation = generation.wrapping_add(1) & (u32::MAX >> 1);
    }

    /// Sends what a slot has written at the end of the turn.
    pub(crate) fn send(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if !slot.is_unsent {
            slot.is_unsent = true;
            self.unsent.push(number);
        }
    }

    /// Lets a slot take no requests for a while.
    pub(crate) fn rest(&mut self, number: u32, now: Nanos) {
        self.free.retain(|free| *free != number);
        if !self.resting.iter().any(|(_, resting)| *resting == number) {
            self.resting.push_back((now + REST, number));
            self.slots[number as usize].is_listed = true;
        }
    }

    /// Counts a request, and returns the time from which its latency counts: when it is due (open
    /// loop), or now.
    pub(crate) fn begin(&mut self, kind: Kind, now: Nanos) -> Nanos {
        let due = self.pacer.take(now);
        self.counts.request(kind, due, false);
        if self.pacer.is_open() {
            self.counts.behind(due, now, 1);
        }
        self.in_flight += 1;
        due
    }

    /// A request has its reply.
    pub(crate) fn answered(&mut self) {
        self.in_flight -= 1;
    }

    /// Counts a request of this time as lost.
    pub(crate) fn lost(&mut self, kind: Kind, sent: Nanos) {
        self.in_flight -= 1;
        self.counts.lost(kind, sent);
    }
}

impl<P: Protocol> Worker for P {
    fn counts(&mut self) -> &mut Counts {
        &mut self.turns().counts
    }

    fn end_at(&mut self, end: Nanos) {
        let turns = self.turns();
        turns.counts.end_at(end, turns.sent_at);
    }

    fn dropped(&self) -> u64 {
        0
    }

    fn turn(&mut self, clock: &impl Fn() -> Nanos) -> io::Result<Next> {
        let turns = self.turns();
        if !std::mem::take(&mut turns.has_waited) {
            turns.backend.wait(Duration::ZERO)?;
        }
        while let Some(ready) = self.turns().backend.ready() {
            if let Ready::Stream { key, readable, writable, ended } = ready
                && self.turns().key(key as u32) == key
            {
                self.event(key as u32, Event { readable, writable, ended }, clock());
            }
        }
        search(self, clock());
        fill(self, clock);
        send(self, clock());
        let now = clock();
        let turns = self.turns();
        let (in_flight, has_room) = (turns.in_flight > 0, !turns.free.is_empty());
        let end = turns.counts.window.end;
        let next = turns.pacer.next(now, end, Progress { in_flight, has_room, is_busy: false });
        if next != Next::Done {
            return Ok(next);
        }
        turns.counts.tally.unsent = turns.pacer.unsent(end);
        Ok(self.end(now))
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let turns = self.turns();
        turns.has_waited = true;
        match turns.pacer.is_open() {
            true => turns.backend.wait_exactly(timeout),
            false => turns.backend.wait(timeout),
        }
    }
}

/// Finds overdue requests, and slots that have rested.
fn search(worker: &mut impl Protocol, now: Nanos) {
    let turns = worker.turns();
    if now.saturating_sub(turns.searched) < SEARCH_EVERY {
        return;
    }
    turns.searched = now;
    for number in 0..turns.slots.len() as u32 {
        worker.expire(number, now);
    }
    while let Some(&(_, number)) = worker.turns().resting.front().filter(|(until, _)| *until <= now)
    {
        let turns = worker.turns();
        turns.resting.pop_front();
        turns.slots[number as usize].is_listed = false;
        worker.list(number);
    }
}

/// Plans and writes the due requests.
fn fill(worker: &mut impl Protocol, clock: &impl Fn() -> Nanos) {
    // A slot whose connection fails at once does not return within a turn.
    for _ in 0..worker.turns().free.len() {
        let now = clock();
        let Some(&number) = worker.turns().free.front() else { break };
        if !worker.may_connect(number) {
            break;
        }
        let room = worker.room(number);
        let turns = worker.turns();
        let most = if turns.pacer.is_open() { 1 } else { room };
        let wanted = turns.pacer.wanted(now, turns.counts.window.end, room, most);
        if wanted == 0 {
            return;
        }
        turns.free.pop_front();
        turns.slots[number as usize].is_listed = false;
        turns.sent_at = now;
        for _ in 0..wanted {
            worker.plan(number, now);
        }
        worker.write(number, wanted, now);
        if worker.turns().pacer.is_open() {
            // The next request is late by what this one takes.
            worker.flush(number, now);
        }
        worker.list(number);
    }
    let (now, turns) = (clock(), worker.turns());
    let Counts { tally, window, .. } = &mut turns.counts;
    if turns.free.is_empty() && turns.pacer.is_open() && now >= window.start {
        tally.no_room += u64::from(turns.pacer.wanted(now, window.end, 0, 1) > 0);
    }
}

/// Sends what was written in this turn. Where that fails, requests may be written once more.
fn send(worker: &mut impl Protocol, now: Nanos) {
    let mut at = 0;
    while let Some(&number) = worker.turns().unsent.get(at) {
        worker.turns().slots[number as usize].is_unsent = false;
        worker.flush(number, now);
        at += 1;
    }
    worker.turns().unsent.clear();
}
