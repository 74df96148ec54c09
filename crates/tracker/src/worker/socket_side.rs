//! The socket side of a worker: from datagrams to sorted batches, and from served batches to
//! replies.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::time::Duration;

use crossbeam_channel::Sender;
use onrush_net::{Drops, QueueId, Received, Reply, Return, Socket};
use onrush_proto::connect::{self, ConnectResponse};
use onrush_proto::{Family, TransactionId, error};
use onrush_swarm::{Moment, ShardMap};

use crate::clock::Now;
use crate::intake::{Intake, Verdict};
use crate::kernel_filter::KernelFilter;
use crate::lanes::Requests;
use crate::limits::WorkerSettings;
use crate::metrics::{REPLIES, WorkerMetrics};
use crate::producer::Producer;
use crate::refusal::{MAX_ERROR_TEXT, Refusal};
use crate::rules::Rules;
use crate::source_sample::SourceSample;

/// The socket side of a worker.
pub struct SocketSide<S: Socket> {
    socket: S,
    intake: Intake,
    pub(super) producer: Producer<Return>,
    /// Connect responses and errors of this turn.
    answers: Answers,
    /// Datagrams per receive call at most.
    receive_batch: usize,
    /// The last time of the work that is done once a second.
    second: Option<Moment>,
    /// The kernel's drops that are counted, or that were before the first turn: while peers were
    /// loaded, and by the process that had the socket before.
    dropped: Option<Drops>,
    /// The filter at the socket under overload.
    filter: KernelFilter,
    receiving: Receiving,
    /// The sources of requests, while somebody asks for them.
    sample: Option<Box<SourceSample>>,
}

/// Whether datagrams are received, and the signal to send once they no longer are.
enum Receiving {
    /// Datagrams are received.
    Running,
    /// Receive until the socket is empty, then pause and signal.
    Draining(Sender<()>),
    /// Nothing is received. Signal once every request is answered.
    Pausing(Sender<()>),
    /// Nothing is received, and every request is answered.
    Paused,
}

impl<S: Socket> SocketSide<S> {
    /// For worker number `index`, which receives on `socket`.
    pub fn new(
        index: usize,
        socket: S,
        intake: Intake,
        map: ShardMap,
        settings: &WorkerSettings,
    ) -> Self {
        Self {
            socket,
            intake,
            producer: Producer::new(index, map, settings),
            answers: Answers::with_capacity(settings.receive_batch),
            receive_batch: settings.receive_batch,
            second: None,
            dropped: None,
            filter: KernelFilter::default(),
            receiving: Receiving::Running,
            sample: None,
        }
    }

    /// Uses `rules` from the next datagram on.
    pub fn update(&mut self, rules: &Rules) {
        self.intake.update(rules);
        if self.filter.switch(rules.kernel_filter) {
            // The filter follows in this turn.
            self.second = None;
        }
    }

    /// Stops receiving, and sends on `done` once every request received so far is answered.
    pub fn pause(&mut self, done: Sender<()>) {
        self.remove_filter();
        self.receiving = Receiving::Pausing(done);
    }

    /// Receives only at `addresses`, and from queues that are not `taken`, until nothing is left
    /// there, then pauses; sends on `done` once every request is answered.
    pub fn drain(&mut self, addresses: &[SocketAddr], taken: &[QueueId], done: Sender<()>) {
        self.socket.retain_addresses(&|address| addresses.contains(&address));
        self.socket.leave_queues(taken);
        self.receiving = Receiving::Draining(done);
    }

    /// Receives again.
    pub fn resume(&mut self) {
        self.receiving = Receiving::Running;
        self.filter.forget();
    }

    /// Finishes the sample of sources, and collects this one from the next datagram on.
    pub fn sample(&mut self, sample: Option<Box<SourceSample>>) {
        if let Some(former) = mem::replace(&mut self.sample, sample) {
            former.finish();
        }
    }

    /// Receives one batch of datagrams and sorts its requests.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn receive(&mut self, now: Now, metrics: &WorkerMetrics) -> io::Result<bool> {
        if matches!(self.receiving, Receiving::Pausing(_) | Receiving::Paused) {
            return Ok(false);
        }
        let received = self.socket.receive(self.receive_batch)?;
        if received.is_empty() {
            if let Receiving::Draining(done) = &self.receiving {
                self.receiving = Receiving::Pausing(done.clone());
            }
            return Ok(false);
        }
        metrics.receives.observe(received.len() as u64);
        self.intake.ids.prepare(now.unix);
        if !self.intake.rules().access.is_open() {
            self.intake.prefetch(received.iter().map(|(datagram, _)| datagram));
        }
        let mut rest = received;
        while let Some(part) = next_part(&mut rest, &mut self.sample, metrics) {
            for (datagram, slot) in part.iter() {
                match self.intake.check(datagram, &slot.source, now.unix, metrics) {
                    Verdict::Connect(response) => self.answers.connect(&response, &slot.reply_to),
                    Verdict::Announce(announce) => {
                        if self.producer.announce(&announce, &slot.reply_to).is_err() {
                            count_busy(metrics, announce.endpoint.family());
                        }
                    }
                    Verdict::Scrape(scrape) => {
                        let rules = self.intake.rules();
                        let (id, scrape) = (scrape.transaction_id, scrape.cut(rules.max_hashes));
                        let (hashes, access) = (scrape.wire_hashes(), &rules.access);
                        if self.producer.scrape(id, hashes, access, &slot.reply_to).is_err() {
                            count_busy(metrics, Family::of(slot.source.ip()));
                        }
                    }
                    Verdict::Error(transaction_id, text) => {
                        self.answers.error(transaction_id, text, &slot.reply_to);
                    }
                    Verdict::Silence => {}
                }
            }
        }
        Ok(true)
    }

    /// Drops the requests of a batch that could not be sent to its shard.
    pub fn abort(&mut self, requests: Box<Requests<Return>>, metrics: &WorkerMetrics) {
        self.producer.abort(requests, |to| count_busy(metrics, Family::of(to.peer().ip())));
    }

    /// Sends all replies that are due, and returns their batches to the pool.
    pub fn send(&mut self, metrics: &WorkerMetrics) {
        if self.answers.is_empty() && !self.producer.has_replies() {
            return;
        }
        let of_shards = self.producer.replies().map(|(bytes, to)| Reply { bytes, to });
        let replies = self.answers.iter().chain(of_shards);
        let mut kinds = [[0; REPLIES.len()]; 2];
        let sent = self.socket.send(replies.inspect(|reply| {
            // The action is the first four bytes; the last of them identifies all actions.
            kinds[usize::from(reply.to.is_ipv4())][usize::from(reply.bytes[3]) % REPLIES.len()] +=
                1;
        }));
        for (incoming, kinds) in [&metrics.incoming.v6, &metrics.incoming.v4].into_iter().zip(kinds)
        {
            incoming.replies.iter().zip(kinds).for_each(|(counter, replies)| counter.add(replies));
        }
        metrics.sent.add(sent.datagrams);
        metrics.sent_bytes.add(sent.bytes);
        if sent.unsent > 0 {
            metrics.unsent.iter().zip(sent.causes).for_each(|(counter, count)| counter.add(count));
        }
        metrics.send_calls.add(sent.calls);
        self.answers.clear();
        self.producer.clear_replies();
    }

    /// Signals a pause that is complete; once per second, counts the kernel's drops, copies the
    /// state of queues, and renews the kernel's filter.
    pub fn maintain(&mut self, now: Now, metrics: &WorkerMetrics) {
        if let Receiving::Pausing(done) = &self.receiving
            && self.producer.is_idle()
        {
            self.socket.release();
            // The receiver may be gone after its own timeout.
            let _ = done.try_send(());
            self.receiving = Receiving::Paused;
        }
        if self.second != Some(now.moment) {
            self.second = Some(now.moment);
            let dropped = self.socket.dropped();
            let before = self.dropped.replace(dropped).unwrap_or(dropped);
            metrics.kernel_drops.add(dropped.full_buffer - before.full_buffer);
            metrics.checksum_errors.add(dropped.checksum - before.checksum);
            metrics.kernel_shed.add(dropped.filter - before.filter);
            metrics.set_queues(&mut self.socket);
            // Otherwise another process may serve the sockets by now.
            if matches!(self.receiving, Receiving::Running) {
                let tags = self.intake.valid_tags(now.unix);
                self.filter.renew(&mut self.socket, tags, &metrics.filter_refusal);
            }
        }
    }

    fn remove_filter(&mut self) {
        if matches!(self.receiving, Receiving::Running) {
            self.filter.remove(&mut self.socket);
        }
    }

    /// Sleeps in the socket.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.receiving {
            Receiving::Running | Receiving::Draining(_) => self.socket.wait(timeout),
            // Another process serves what arrives meanwhile.
            Receiving::Pausing(_) | Receiving::Paused => self.socket.wait_for_wake(timeout),
        }
    }
}

impl<S: Socket> Drop for SocketSide<S> {
    fn drop(&mut self) {
        self.remove_filter();
    }
}

/// The datagrams to check next: all, or one if there is a sample that has to see what the counters
/// say of each. The loop over datagrams has neither a test for a sample nor a second copy, which
/// would cost instructions without a sample as well.
#[inline(never)]
fn next_part<'a>(
    rest: &mut Received<'a>,
    sample: &mut Option<Box<SourceSample>>,
    metrics: &WorkerMetrics,
) -> Option<Received<'a>> {
    let part = match sample {
        None => rest.take_first(rest.len()),
        Some(sample) if sample.is_of_all() => {
            sample.observe_all(rest);
            rest.take_first(rest.len())
        }
        Some(sample) => {
            let part = rest.take_first(1);
            sample.observe((!part.is_empty()).then(|| part.source(0)), metrics);
            part
        }
    };
    (!part.is_empty()).then_some(part)
}

fn count_busy(metrics: &WorkerMetrics, family: Family) {
    metrics.incoming.of(family).refused[Refusal::Busy as usize].add(1);
}

/// Replies that need no shard, in memory that every turn reuses.
struct Answers {
    bytes: Vec<u8>,
    entries: Vec<(u32, Return)>,
}

impl Answers {
    fn with_capacity(replies: usize) -> Self {
        const LARGEST: usize = error::HEAD_LEN + MAX_ERROR_TEXT;
        const _: () = assert!(LARGEST >= connect::RESPONSE_LEN);
        Self { bytes: Vec::with_capacity(replies * LARGEST), entries: Vec::with_capacity(replies) }
    }

    #[inline]
    fn connect(&mut self, response: &ConnectResponse, to: &Return) {
        let mut bytes = [0; connect::RESPONSE_LEN];
        response.write(&mut bytes);
        self.bytes.extend_from_slice(&bytes);
        self.entries.push((self.bytes.len() as u32, *to));
    }

    fn error(&mut self, transaction_id: TransactionId, text: &str, to: &Return) {
        let mut bytes = [0; error::HEAD_LEN + MAX_ERROR_TEXT];
        let len = error::write(transaction_id, text, &mut bytes);
        self.bytes.extend_from_slice(&bytes[..len]);
        self.entries.push((self.bytes.len() as u32, *to));
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Reply<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |(end, to)| {
            let bytes = &self.bytes[start..*end as usize];
            start = *end as usize;
            Reply { bytes, to }
        })
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}
