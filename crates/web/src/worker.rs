//! A web worker: a thread with listeners, its connections, and an end of the lanes.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use onrush_net::stream::{Ready, Stream, Streams, has_no_descriptor};
use onrush_swarm::Shard;
use onrush_tracker::clock::Now;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Order;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::member::{MemberThread, Role};
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::{Addresses, Scheme};

use crate::connection::{Connection, Input, Queue, Reply, Step};
use crate::page::Page;
use crate::proxy::Origin;
use crate::service::{self, Service};
use crate::table::{Key, Table};
use crate::tls::Tls;
use crate::webtorrent::exchange::{Dropped, Exchange};
use crate::webtorrent::interval;

/// Connections that are accepted per turn at most, so that open ones are served meanwhile.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections whose steps may be costly that take some per turn at most.
const COSTLY_PER_TURN: usize = 64;

/// One web worker. Everything in it belongs to its thread.
pub struct WebWorker<S: Streams> {
    streams: S,
    /// The URL scheme of each listener, by the listener's number.
    listeners: Vec<Scheme>,
    table: Table<S::Stream>,
    service: Service,
    input: Input,
    /// Listeners at which connections may wait.
    accepting: VecDeque<usize>,
    /// Connections that may take steps, in order.
    ready: VecDeque<Key>,
    /// Those whose next steps may be of a TLS handshake, or cost as much.
    costly: VecDeque<Key>,
    /// Connections that wait for a free batch, by shard, and behind those for a free parcel, by web
    /// worker; those that have waited longest come first. A connection that has expired stays in
    /// its queue, and is left out there.
    starved: Vec<VecDeque<Key>>,
    /// Connections whose deadline is over, kept to reuse the memory.
    expired: Vec<Key>,
    /// The second of the last look at deadlines.
    second: u32,
    /// Whether the events of the last wait are to be taken.
    has_events: bool,
    /// Whether batches have come back since starved connections tried again.
    has_batches: bool,
    /// Signalled once no connection is open, while the worker is paused.
    paused: Option<Sender<()>>,
}

impl<S: Streams> WebWorker<S> {
    /// A worker that accepts connections from the `listeners` of `streams`, of a tracker that
    /// serves these addresses.
    pub fn new(
        front: Front,
        rules: &Rules,
        (streams, listeners): (S, Vec<Scheme>),
        limits: WebLimits,
        addresses: &Addresses,
    ) -> Self {
        let starved = (0..front.shards()).map(|_| VecDeque::new()).collect();
        Self {
            streams,
            listeners,
            table: Table::new(&limits),
            service: Service::new(
                front,
                rules,
                limits,
                Page::new(addresses, limits.webtorrent.is_some()),
            ),
            input: Input::new(),
            accepting: VecDeque::new(),
            ready: VecDeque::new(),
            costly: VecDeque::new(),
            starved,
            expired: Vec::new(),
            second: 0,
            has_events: false,
            has_batches: false,
            paused: None,
        }
    }

    /// The same with TLS for its listeners of HTTPS.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.service.tls = Some(tls);
        self
    }

    /// The same with WebTorrent. All workers of a tracker have it, or none.
    #[must_use]
    pub fn with_exchange(mut self, exchange: Exchange) -> Self {
        self.starved.extend((0..exchange.workers()).map(|_| VecDeque::new()));
        self.service.exchange = Some(exchange);
        self
    }

    /// Does one turn of work without blocking. Returns whether more work may be waiting.
    ///
    /// # Errors
    /// When events of the streams cannot be received any more.
    pub fn turn(&mut self, now: Now) -> io::Result<bool> {
        while let Some(order) = self.service.front.order() {
            self.apply(order, now);
        }
        if !mem::take(&mut self.has_events) {
            self.streams.wait(Duration::ZERO)?;
        }
        let mut busy = self.take_events();
        busy |= self.accept(now);
        self.retry_starved(now);
        busy |= self.advance(now);
        self.dispatch();
        busy |= self.receive(now);
        if self.second != now.moment.0 {
            self.second = now.moment.0;
            self.expire(now);
            self.service.counters().accept_queue.set(self.streams.accept_queue() as u64);
        }
        // It sends what all of these have for other workers.
        busy |= self.exchange(now);
        self.show();
        self.service.metrics.turns.add(1);
        if self.accepting.is_empty()
            && self.table.serving() == 0
            && let Some(done) = self.paused.take()
        {
            // The receiver may be gone after its own timeout.
            let _ = done.try_send(());
        }
        Ok(busy || !self.ready.is_empty() || !self.costly.is_empty())
    }

    /// Sets the gauges.
    fn show(&self) {
        let counters = self.service.counters();
        self.table.show_open(counters);
        counters.buffered_bytes.set(self.service.buffered as u64);
        if let Some(exchange) = &self.service.exchange {
            let totals = exchange.totals();
            counters.webrtc_swarms.set(totals.swarms as u64);
            counters.webrtc_seeders.set(totals.seeders as u64);
            counters.webrtc_leechers.set(totals.leechers as u64);
        }
    }

    fn apply(&mut self, order: Order, now: Now) {
        let all = 0..self.listeners.len();
        match order {
            Order::Rules(rules) => self.service.admission.rules = (*rules).clone(),
            Order::Pause(done) => {
                self.accepting.clear();
                self.pause(done, now);
            }
            Order::Drain(addresses, _, done) => {
                let at = |of: &usize| {
                    self.streams.address(*of).is_ok_and(|address| addresses.contains(&address))
                };
                self.accepting = all.filter(at).collect();
                self.pause(done, now);
            }
            Order::Resume => {
                (self.service.is_paused, self.paused) = (false, None);
                // No event repeats what has arrived meanwhile.
                self.accepting = all.collect();
            }
            // Only workers get these.
            Order::Sample(_) | Order::Task(_) => {}
        }
    }

    /// From now on accepts only what is being accepted, and lets every connection end after the
    /// requests that have arrived. Then sends on `done`.
    fn pause(&mut self, done: Sender<()>, now: Now) {
        self.service.is_paused = true;
        self.paused = Some(done);
        for key in self.table.keys() {
            let Self { table, service, input, .. } = self;
            let Some(connection) = table.get(key) else { continue };
            match connection.pause(service, input, now) {
                Step::Closed(cause) => self.close(key, cause),
                _ => {
                    connection.end_starved();
                    enqueue(connection, key, (&mut self.ready, &mut self.costly));
                    self.table.update(key, &mut self.service.buffered);
                }
            }
        }
    }

    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.streams.ready() {
            any = true;
            match event {
                Ready::Listener(_) if self.service.is_paused => {}
                Ready::Listener(listener) if self.accepting.contains(&listener) => {}
                Ready::Listener(listener) => self.accepting.push_back(listener),
                Ready::Stream { key, readable, writable, .. } => {
                    let key = Key::of_bits(key);
                    if let Some(connection) = self.table.get(key) {
                        connection.wake(readable, writable);
                        let queues = (&mut self.ready, &mut self.costly);
                        enqueue(connection, key, queues);
                    }
                }
            }
        }
        any
    }

    /// Accepts connections, of each listener in turn. Returns whether there may be more.
    fn accept(&mut self, now: Now) -> bool {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.accepting.pop_front() else { return false };
            match self.streams.accept(listener) {
                Ok(None) => continue,
                Ok(Some((stream, client))) => {
                    self.admit(stream, (client, self.listeners[listener]), now);
                }
                // Without descriptors or memory.
                Err(error) => {
                    self.service.counters().accept_errors.add(1);
                    log::debug!("no connection can be accepted: {error}");
                    self.accepting.push_front(listener);
                    return has_no_descriptor(&error) && self.close_idle(now);
                }
            }
            self.accepting.push_back(listener);
        }
        true
    }

    fn admit(&mut self, stream: S::Stream, (peer, scheme): (SocketAddr, Scheme), now: Now) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        match scheme {
            Scheme::Http => self.service.counters().accepted.add(1),
            Scheme::Https => self.service.counters().https_accepted.add(1),
        }
        // What applies to sources applies to the clients that a proxy names.
        let client = Some(peer).filter(|it| !self.service.proxies().contain(it.ip()));
        let admitted = client.map_or(Ok(()), |client| self.check(client));
        let admitted = admitted.and_then(|()| match self.table.is_full() {
            false => Ok(()),
            true if self.close_idle(now) => Ok(()),
            true => Err(CloseCause::Full),
        });
        if let Err(cause) = admitted {
            self.service.counters().closed[cause as usize].add(1);
            return;
        }
        let connection = Connection::new(stream, (peer, scheme), &self.service, now);
        let key = self.table.insert(connection, client.map(|it| it.ip()));
        let Some(connection) = self.table.get(key) else { return };
        enqueue(connection, key, (&mut self.ready, &mut self.costly));
    }

    /// Checks whether a client may have another connection.
    fn check(&self, client: SocketAddr) -> Result<(), CloseCause> {
        self.service.check_source(client).map_err(service::cause_of)?;
        self.table.admit(client.ip())
    }

    /// Makes a client whom a proxy has named the origin of a connection, if the client may have it.
    fn name(&mut self, key: Key, client: SocketAddr) -> Step {
        let checked = self.check(client);
        let Some(connection) = self.table.get(key) else { return Step::Wait };
        match checked {
            Ok(()) => {
                connection.origin = Origin::Named(client);
                self.table.count(key, client.ip());
                Step::Again
            }
            Err(cause) => connection.deny(cause, &mut self.service),
        }
    }

    /// Closes a connection that lingers or is idle, for another. Whether there was any.
    fn close_idle(&mut self, now: Now) -> bool {
        if self.close_lingering() {
            return true;
        }
        let idle = self.table.first_idle(now.moment.0);
        idle.map(|idle| self.close(idle, CloseCause::Replaced)).is_some()
    }

    /// Closes the connection that has lingered longest. Whether there was any.
    fn close_lingering(&mut self) -> bool {
        let Some((key, connection)) = self.table.longest_lingering() else { return false };
        let step = connection.end_linger(&mut self.input);
        self.settle(key, step);
        true
    }

    /// Lets connections take steps.
    fn advance(&mut self, now: Now) -> bool {
        self.service.handshake_cost = 0;
        let ready = self.ready.len();
        for _ in 0..ready {
            let Some(key) = self.ready.pop_front() else { break };
            self.take_steps(key, now);
        }
        let costly = self.costly.len().min(COSTLY_PER_TURN);
        if costly == 0 {
            return ready > 0;
        }
        let most = self.service.tls.as_ref().map_or(usize::MAX, Tls::handshakes_per_turn);
        // Most are cheap: a part of a message, or the client's end of a handshake.
        for _ in 0..costly {
            if self.service.handshake_cost >= most {
                break;
            }
            let Some(key) = self.costly.pop_front() else { break };
            self.take_steps(key, now);
        }
        true
    }

    /// Lets one connection take steps, if it is open. Returns the last one.
    fn take_steps(&mut self, key: Key, now: Now) -> Option<Step> {
        let Self { table, service, input, .. } = self;
        let connection = table.get(key)?;
        connection.queue = Queue::None;
        let step = connection.advance(service, input, key.ticket(), now);
        self.settle(key, step);
        Some(step)
    }

    /// Does what follows from the last step of a connection.
    fn settle(&mut self, key: Key, step: Step) {
        let step = match step {
            Step::Named(client) => self.name(key, client),
            step => step,
        };
        if let Step::Closed(cause) = step {
            return self.close(key, cause);
        }
        let Some(connection) = self.table.get(key) else { return };
        match step {
            Step::Again => enqueue(connection, key, (&mut self.ready, &mut self.costly)),
            Step::Starved(shard) => {
                connection.queue = Queue::Starved;
                self.starved[shard].push_back(key);
            }
            Step::Wait | Step::InFlight | Step::Named(_) | Step::Closed(_) => {}
        }
        // Most requests have arrived when their connection is accepted. If it closes after the
        // reply, its stream needs no events.
        if connection.is_lingering() {
            self.table.linger(key);
        } else if step != Step::InFlight
            && !mem::replace(&mut connection.is_watched, true)
            && self.streams.watch(&mut connection.transport.stream, key.to_bits()).is_err()
        {
            return self.close(key, CloseCause::Reset);
        }
        self.table.update(key, &mut self.service.buffered);
        while self.service.buffered > self.service.limits.buffer_memory {
            let slowest = self.table.slowest().unwrap_or(key);
            // Others may hold messages that they send in their next step.
            if self.table.get(slowest).is_none_or(|it| it.buffered() == 0) {
                return;
            }
            self.close(slowest, CloseCause::Memory);
        }
    }

    fn close(&mut self, key: Key, cause: CloseCause) {
        if let Some(connection) = self.table.get(key) {
            connection.send_close(cause, &mut self.input, self.service.counters());
            connection.leave(&mut self.service, key.ticket());
        }
        let Service { buffered, metrics, .. } = &mut self.service;
        self.table.close(key, cause, buffered, &metrics.web);
    }

    /// Sends requests to their shards.
    fn dispatch(&mut self) {
        // Fails only if the shard's worker has exited, and the process is about to.
        self.service.front.dispatch(|_| ());
    }

    /// Sends the replies of shards.
    fn receive(&mut self, now: Now) -> bool {
        let Self { service, table, ready, costly, .. } = self;
        let Service { front, replies, metrics, limits, .. } = service;
        let counters = &metrics.web;
        let mut failed = Vec::new();
        let any = front.receive(|bytes, ticket| {
            let key = Key::of(ticket);
            // The end of its connection has counted an abandoned request.
            let Some(connection) = table.get(key) else { return };
            let carrier = connection.carrier();
            match connection.reply(bytes, ticket, replies, counters, limits, now) {
                Reply::Sent => {
                    service::answered(counters, carrier);
                    enqueue(connection, key, (ready, costly));
                }
                Reply::Failed => {
                    service::abandoned(counters, carrier);
                    failed.push(key);
                }
                Reply::Abandoned => service::abandoned(counters, carrier),
            }
        });
        for key in failed {
            self.close(key, CloseCause::Reset);
        }
        self.has_batches |= any;
        any
    }

    /// Exchanges messages of WebRTC peers with other web workers. Returns whether any has come.
    fn exchange(&mut self, now: Now) -> bool {
        let Self { service, table, ready, costly, .. } = self;
        let Service { exchange, replies, metrics, limits, admission, buffered, .. } = service;
        let (Some(exchange), Some(webtorrent)) = (exchange, limits.webtorrent) else {
            return false;
        };
        let shared = (&metrics.web, &admission.rules);
        let silence = interval::max_silence(webtorrent.interval, &admission.rules);
        let any = exchange.receive(now.moment.0, silence, |socket, delivery| {
            let key = Key { slot: socket.slot, generation: socket.generation };
            let Some(connection) = table.get(key) else {
                return service::dropped(&metrics.web, &delivery);
            };
            let is_scarce = *buffered > limits.buffer_memory / 2;
            if connection.deliver(delivery, replies, shared, limits, is_scarce, now) {
                enqueue(connection, key, (ready, costly));
                table.update(key, buffered);
            }
        });
        let Dropped { offers, answers } = exchange.take_dropped();
        metrics.web.webrtc_offers_dropped.add(offers);
        metrics.web.webrtc_answers_dropped.add(answers);
        exchange.flush();
        self.has_batches |= any;
        any
    }

    /// Lets connections that wait for a batch try again, before others.
    fn retry_starved(&mut self, now: Now) {
        if !mem::take(&mut self.has_batches) {
            return;
        }
        for owner in 0..self.starved.len() {
            let worker = owner.checked_sub(self.service.front.shards());
            if let (Some(worker), Some(exchange)) = (worker, &mut self.service.exchange)
                && !exchange.has_room(worker)
            {
                continue;
            }
            while let Some(key) = self.starved[owner].pop_front() {
                let waits = self.table.get(key).is_some_and(|it| it.queue == Queue::Starved);
                if waits && self.take_steps(key, now) == Some(Step::Starved(owner)) {
                    // It keeps its place.
                    self.starved[owner].rotate_right(1);
                    break;
                }
            }
        }
    }

    /// Ends what has taken too long.
    fn expire(&mut self, now: Now) {
        let mut expired = mem::take(&mut self.expired);
        self.table.expired(now.moment.0, &mut expired);
        for key in expired.drain(..) {
            let Some(connection) = self.table.get(key) else { continue };
            let step = connection.expire(&mut self.input, &self.service.limits, now);
            connection.end_starved();
            self.settle(key, step);
        }
        self.expired = expired;
    }
}

/// Queues a connection for its next step, once.
fn enqueue<S: Stream>(
    connection: &mut Connection<S>,
    key: Key,
    (ready, costly): (&mut VecDeque<Key>, &mut VecDeque<Key>),
) {
    if connection.queue == Queue::None {
        connection.queue = Queue::Ready;
        if connection.is_costly() { costly } else { ready }.push_back(key);
    }
}

impl<S: Streams + Send + 'static> MemberThread for WebWorker<S>
where
    S::Stream: Send,
{
    fn role(&self) -> Role {
        Role::Web
    }

    fn metrics(&self) -> &Arc<WorkerMetrics> {
        &self.service.metrics
    }

    fn turn(&mut self, now: Now) -> io::Result<bool> {
        Self::turn(self, now)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut result = Ok(());
        let (Service { front, exchange, .. }, streams) = (&self.service, &mut self.streams);
        let has_mail = || exchange.as_ref().is_some_and(Exchange::has_mail);
        front.sleep_unless(has_mail, || result = streams.wait(timeout));
        self.has_events = true;
        result
    }

    fn end(&mut self) -> Option<Shard> {
        while self.service.front.order().is_some() {}
        while self.close_lingering() {}
        for key in self.table.keys() {
            self.close(key, CloseCause::Stop);
        }
        self.show();
        None
    }
}
