//! The socket side of a worker: from datagrams to sorted batches, and from served batches to
//! replies.

use std::io;
use std::net::SocketAddr;
use std::slice;
use std::time::Duration;

use crossbeam_channel::Sender;
use onrush_net::{Reply, Return, Socket};
use onrush_proto::connect::{self, ConnectResponse};
use onrush_proto::{Family, InfoHash, Scrape, TransactionId, error};
use onrush_swarm::{Moment, ShardMap};

use crate::clock::Now;
use crate::intake::{Intake, Verdict};
use crate::lanes::Parcel;
use crate::limits::WorkerSettings;
use crate::metrics::{REPLIES, WorkerMetrics};
use crate::refusal::{MAX_ERROR_TEXT, Refusal};
use crate::rules::Rules;
use crate::scrape_join::ScrapeJoin;
use crate::sorter::Sorter;

/// The socket side of a worker.
pub struct SocketSide<S> {
    socket: S,
    intake: Intake,
    map: ShardMap,
    sorter: Sorter,
    join: ScrapeJoin,
    /// Connect responses and errors of this turn.
    answers: Answers,
    /// Parcels whose replies go out this turn.
    served: Vec<Parcel>,
    /// Datagrams per receive call at most.
    batch: usize,
    max_hashes: usize,
    /// When the kernel was last asked what it dropped.
    asked_drops: Option<Moment>,
    rest: Rest,
}

/// Whether anything is received.
enum Rest {
    /// It is.
    Busy,
    /// It is until nothing comes any more, and then this is told once everything is answered.
    Last(Sender<()>),
    /// It is not, and this is told once everything is answered.
    Wanted(Sender<()>),
    /// It is not, and nothing is left to be answered.
    Told,
}

impl<S: Socket> SocketSide<S> {
    /// For worker number `index`, which receives on `socket`.
    pub fn new(
        index: usize,
        socket: S,
        intake: Intake,
        map: ShardMap,
        settings: &WorkerSettings,
        max_hashes: usize,
    ) -> Self {
        let shards = usize::from(map.shards());
        Self {
            socket,
            intake,
            map,
            sorter: Sorter::new(index, shards, settings.batches_in_flight, settings.batch_requests),
            join: ScrapeJoin::new(settings.scrapes_in_flight),
            answers: Answers::with_room_for(settings.receive_batch),
            served: Vec::with_capacity(settings.batches_in_flight),
            batch: settings.receive_batch,
            max_hashes,
            asked_drops: None,
            rest: Rest::Busy,
        }
    }

    /// Goes by other rules from the next datagram on.
    pub fn update(&mut self, rules: &Rules) {
        self.intake.update(rules);
        self.max_hashes = rules.max_hashes;
    }

    /// Receives nothing more, and tells once all that was received is answered.
    pub fn pause(&mut self, tell: Sender<()>) {
        self.rest = Rest::Wanted(tell);
    }

    /// Receives what is left at addresses that nobody serves any more, and tells once all of it is answered.
    pub fn drain(&mut self, left: &[SocketAddr], tell: Sender<()>) {
        self.socket.retain_addresses(&|address| left.contains(&address));
        self.rest = Rest::Last(tell);
    }

    /// Receives again.
    pub fn resume(&mut self) {
        self.rest = Rest::Busy;
    }

    /// Receives one batch of datagrams and sorts what is in it.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn receive(&mut self, now: Now, metrics: &WorkerMetrics) -> io::Result<bool> {
        if matches!(self.rest, Rest::Wanted(_) | Rest::Told) {
            return Ok(false);
        }
        let received = self.socket.receive(self.batch)?;
        if received.is_empty() {
            if let Rest::Last(tell) = &self.rest {
                self.rest = Rest::Wanted(tell.clone());
            }
            return Ok(false);
        }
        metrics.receives.observe(received.len() as u64);
        self.intake.prepare(now.unix);
        if !self.intake.access().is_open() {
            self.intake.prefetch(received.iter().map(|(datagram, _)| datagram));
        }
        for (datagram, slot) in received.iter() {
            match self.intake.judge(datagram, &slot.source, now.unix, metrics) {
                Verdict::Connect(response) => self.answers.connect(&response, &slot.reply_to),
                Verdict::Announce(announce) => {
                    let shard = shard_of(&self.map, &announce.info_hash);
                    if self.sorter.announce(shard, &announce, &slot.reply_to).is_err() {
                        count_busy(metrics, announce.endpoint.family());
                    }
                }
                Verdict::Scrape(scrape) => {
                    let scraping = Scraping {
                        join: &mut self.join,
                        sorter: &mut self.sorter,
                        intake: &self.intake,
                        map: &self.map,
                    };
                    if !scraping.start(&scrape.cut(self.max_hashes), &slot.reply_to) {
                        count_busy(metrics, Family::of(slot.source.ip()));
                    }
                }
                Verdict::Error(transaction_id, refusal) => {
                    self.answers.error(transaction_id, refusal, &slot.reply_to);
                }
                Verdict::Silence => {}
            }
        }
        Ok(true)
    }

    /// The next batch that is to be sent to its shard. Those for the shard `own` never wait.
    pub fn take_sorted(&mut self, own: Option<usize>) -> Option<Parcel> {
        self.sorter.take(own)
    }

    /// A parcel is served: its replies go out with the next [`send`](Self::send).
    pub fn accept_reply(&mut self, parcel: Parcel) {
        for part in parcel.batch.scrapes() {
            self.join.answer(part.place, part.counts);
        }
        self.served.push(parcel);
    }

    /// A parcel could not be sent to its shard: its requests get no reply.
    pub fn abort(&mut self, parcel: Parcel, metrics: &WorkerMetrics) {
        for (announce, _) in parcel.batch.announces() {
            count_busy(metrics, announce.endpoint.family());
        }
        for part in parcel.batch.scrapes() {
            if let Some(to) = self.join.abort(part.place) {
                count_busy(metrics, Family::of(to.peer().ip()));
            }
        }
        self.sorter.recycle(parcel);
    }

    /// Sends all replies that are ready and takes their batches back into the pool.
    pub fn send(&mut self, metrics: &WorkerMetrics) {
        if self.answers.is_empty() && self.served.is_empty() && !self.join.has_complete() {
            return;
        }
        let of_shards = self
            .served
            .iter()
            .flat_map(|parcel| parcel.batch.replies().map(|(bytes, to)| Reply { bytes, to }));
        let replies = self.answers.iter().chain(of_shards).chain(self.join.complete());
        let mut kinds = [[0; REPLIES.len()]; 2];
        let sent = self.socket.send(replies.inspect(|reply| {
            // The action is the first four bytes, of which the last one tells all there are.
            kinds[usize::from(reply.to.is_ipv4())][usize::from(reply.bytes[3]) % REPLIES.len()] +=
                1;
        }));
        for (incoming, kinds) in [&metrics.incoming.v6, &metrics.incoming.v4].into_iter().zip(kinds)
        {
            incoming.replies.iter().zip(kinds).for_each(|(counter, replies)| counter.add(replies));
        }
        metrics.sent.add(sent.datagrams);
        metrics.sent_bytes.add(sent.bytes);
        metrics.send_blocked.add(sent.blocked);
        metrics.send_failed.add(sent.failed);
        metrics.send_calls.add(sent.calls);
        self.answers.clear();
        self.join.clear_complete();
        for parcel in self.served.drain(..) {
            self.sorter.recycle(parcel);
        }
    }

    /// Once a second: asks the kernel what it dropped.
    pub fn maintain(&mut self, now: Now, metrics: &WorkerMetrics) {
        if let Rest::Wanted(tell) = &self.rest
            && self.sorter.is_idle()
        {
            // Nobody may be waiting any more.
            let _ = tell.try_send(());
            self.rest = Rest::Told;
        }
        if self.asked_drops != Some(now.moment) {
            self.asked_drops = Some(now.moment);
            metrics.kernel_drops.set(self.socket.dropped());
        }
    }

    /// Sleeps in the socket.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.rest {
            Rest::Busy | Rest::Last(_) => self.socket.wait(timeout),
            // What arrives meanwhile is for somebody else.
            Rest::Wanted(_) | Rest::Told => self.socket.wait_for_wake(timeout),
        }
    }
}

/// The shard of an info hash; a single one needs no multiplications.
#[inline]
fn shard_of(map: &ShardMap, info_hash: &InfoHash) -> usize {
    if map.shards() == 1 { 0 } else { map.shard_of(info_hash) }
}

fn count_busy(metrics: &WorkerMetrics, family: Family) {
    metrics.incoming.of(family).refused[Refusal::Busy as usize].add(1);
}

/// What it takes to take a scrape apart.
struct Scraping<'a> {
    join: &'a mut ScrapeJoin,
    sorter: &'a mut Sorter,
    intake: &'a Intake,
    map: &'a ShardMap,
}

impl Scraping<'_> {
    /// Sends each permitted hash to its shard; the others answer zeros. `false` when there was no
    /// room, and so will be no reply.
    #[inline(never)] // loops that want all registers
    fn start(self, scrape: &Scrape<'_>, to: &Return) -> bool {
        let hashes = scrape.wire_hashes();
        let Some(mut open) = self.join.open(scrape.transaction_id, hashes.len(), to) else {
            return false;
        };
        let access = self.intake.access();
        let map = *self.map;
        let sent = if access.is_open() && map.shards() == 1 {
            self.sorter.scrape(0, hashes, open.part(0))
        } else {
            hashes.iter().enumerate().try_for_each(|(position, hash)| {
                let name = InfoHash(*hash);
                if !access.permits(name) {
                    self.join.unknown(&open, position);
                    return Ok(());
                }
                let part = open.part(position);
                self.sorter.scrape(map.shard_of(&name), slice::from_ref(hash), part)
            })
        };
        if sent.is_err() {
            self.join.abandon(&mut open);
        }
        self.join.close(open)
    }
}

/// Replies that this worker gives without asking a shard, in memory that is used again each turn.
struct Answers {
    bytes: Vec<u8>,
    entries: Vec<(u32, Return)>,
}

impl Answers {
    fn with_room_for(replies: usize) -> Self {
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

    fn error(&mut self, transaction_id: TransactionId, refusal: Refusal, to: &Return) {
        let Some(text) = refusal.text() else { return };
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
