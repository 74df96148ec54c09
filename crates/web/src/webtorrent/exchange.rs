//! One worker's part in the exchange of WebRTC peers between all web workers.
//!
//! Each swarm has an owner among the workers. An announce goes to the owner of its info hash, and
//! offers go from there to the workers of the members' connections. An answer goes straight to the
//! worker of the connection that the offer came from. A scrape visits the owners of its info hashes
//! one after the other, and returns with their counts.
//!
//! ```text
//!  connection ── announce ──▶ Exchange ══ parcel ══▶ Exchange of the owner ── Swarms
//!      ▲                         │ ▲                        ║ ║
//!      └── counts, Forget ───────┘ ╚════════ parcel ════════╝ ╚══ parcel ══▶ offers to members
//! ```
//!
//! Each turn of a worker lets connections announce and answer, calls [`receive`](Exchange::receive)
//! and then [`flush`](Exchange::flush). Messages from one worker to another arrive in order: for
//! each of the others it fills one parcel, which it sends when the parcel is full or the turn ends.
//! A parcel returns empty to its worker; a lane has room for all parcels that can be in it.
//!
//! When half of the room for a worker is taken, that worker is far behind. Announces and scrapes
//! that have to go there wait ([`Exhausted`]), and offers are dropped and counted; answers are when
//! all room is taken. What ends a membership or replies to a request is added in any case: there is
//! at most one such message for each membership and each request in flight.

use std::mem;

use crossbeam_channel::Receiver;
use onrush_proto::scrape::HASH_LEN;
use onrush_proto::webtorrent::{Answer, Offer};
use onrush_proto::{InfoHash, PeerId, ScrapeCounts};
use onrush_swarm::ShardMap;
use onrush_tracker::assemble::{Secrets, shard_map};
use onrush_tracker::front::Front;
use onrush_tracker::lanes::Lane;

use super::owner::Owner;
use super::parcel::{Message, Parcel};
use super::swarms::{Announce, Socket, Totals};

pub use super::parcel::{Delivery, File};

/// Parcels of a worker for [`Exchange::connect`]: 4 MiB if all are full, and a message beyond that
/// in each.
pub const PARCELS: usize = 64;
/// The size of a full parcel in bytes; the last message may exceed it.
const PARCEL_BYTES: usize = 64 * 1024;

/// No parcel is free for this worker, the owner of a swarm: the request has to wait until
/// [`Exchange::has_room`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted(pub usize);

/// Messages that were dropped because no parcel was free.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dropped {
    /// Offers to members.
    pub offers: u64,
    /// Answers.
    pub answers: u64,
}

/// One worker's swarms, and its ends of the lanes to the others. Everything in it belongs to one
/// thread.
pub struct Exchange {
    owner: Owner,
    outbox: Outbox,
    inbox: Receiver<Box<Parcel>>,
}

impl Exchange {
    /// Connects all web workers: an exchange for each of their `fronts`, in this order. A worker
    /// divides `parcels` among the workers, and has at least two for each; a parcel takes 64 KiB
    /// or somewhat more once it was full.
    pub fn connect(fronts: &[Front], secrets: &Secrets, parcels: usize) -> Vec<Self> {
        let share = (parcels / fronts.len().max(1)).max(2);
        // Those of all others, and its own that come back.
        let capacity = 2 * share * fronts.len().saturating_sub(1);
        let (lanes, inboxes): (Vec<_>, Vec<_>) =
            fronts.iter().map(|front| front.lane(capacity)).unzip();
        let exchange = |(number, inbox)| Self {
            owner: Owner::new(secrets, number),
            outbox: Outbox {
                number,
                map: shard_map(fronts.len(), secrets),
                share,
                taken: Vec::new(),
                queues: lanes.iter().cloned().map(Queue::new).collect(),
                dropped: Dropped::default(),
            },
            inbox,
        };
        (0..).zip(inboxes).map(exchange).collect()
    }

    /// The number of web workers.
    pub fn workers(&self) -> usize {
        self.outbox.queues.len()
    }

    /// The number of its worker in [`Socket`].
    pub fn number(&self) -> u16 {
        self.outbox.number
    }

    /// Sends an announce that was admitted to the owner of its swarm, with the first `want` of its
    /// offers. [`Delivery::Announced`] or [`Delivery::Refused`] will reply to it. A connection is a
    /// member from `Announced` on; if it closes before, the membership has to be
    /// [removed](Self::remove) all the same.
    ///
    /// # Errors
    /// [`Exhausted`]: then nothing is sent.
    pub fn announce(
        &mut self,
        announce: &Announce,
        offers: &[Offer<'_>],
        want: usize,
    ) -> Result<(), Exhausted> {
        let offers = &offers[..want.min(offers.len())];
        self.outbox.room_for(&announce.info_hash)?.announce(announce, offers);
        Ok(())
    }

    /// Removes a membership that a client ends by an announce. [`Delivery::Announced`] will reply.
    ///
    /// # Errors
    /// [`Exhausted`]: then nothing is sent.
    pub fn stop(&mut self, socket: Socket, info_hash: InfoHash) -> Result<(), Exhausted> {
        let message = Message::Remove { socket, info_hash, replies: true };
        self.outbox.room_for(&info_hash)?.push(message);
        Ok(())
    }

    /// Removes a membership of a connection that closes, or that forgets it for another reason.
    pub fn remove(&mut self, socket: Socket, info_hash: InfoHash) {
        let owner = self.outbox.map.shard_of(&info_hash);
        self.outbox.push(owner, Message::Remove { socket, info_hash, replies: false });
    }

    /// Asks for the counts of swarms. [`Delivery::Scraped`] will reply.
    ///
    /// # Errors
    /// [`Exhausted`]: then nothing is sent.
    pub fn scrape(&mut self, socket: Socket, hashes: &[[u8; HASH_LEN]]) -> Result<(), Exhausted> {
        let files: Vec<File> = hashes.iter().map(|hash| (*hash, ScrapeCounts::default())).collect();
        let first = self.outbox.first_owner(&files, 0).unwrap_or(self.number().into());
        self.outbox.room(first)?.push(Message::Scrape(socket, files));
        Ok(())
    }

    /// Sends the answer of the peer `peer_id` to the connection that an offer came from, or drops
    /// it.
    pub fn answer(
        &mut self,
        to: Socket,
        info_hash: InfoHash,
        peer_id: PeerId,
        answer: &Answer<'_>,
    ) {
        let Answer { to_peer_id, offer_id, answer } = *answer;
        let answer = Delivery::Answer { info_hash, peer_id, to_peer_id, offer_id, answer };
        self.outbox.deliver(to, answer);
    }

    /// The worker that owns the swarm of an info hash.
    pub fn owner_of(&self, info_hash: &InfoHash) -> usize {
        self.outbox.map.shard_of(info_hash)
    }

    /// Whether requests to this worker need not wait.
    pub fn has_room(&mut self, worker: usize) -> bool {
        self.outbox.room(worker).is_ok()
    }

    /// Takes everything that has arrived, and does what is due in the swarms. Calls `deliver` for
    /// each delivery to a connection of this worker; the connection may be closed. `now` and
    /// `silence` ([`max_silence`](super::interval::max_silence)) are in seconds. Returns whether
    /// anything has arrived, or more is due.
    pub fn receive(
        &mut self,
        now: u32,
        silence: u32,
        mut deliver: impl FnMut(Socket, Delivery<&str>),
    ) -> bool {
        let mut own = self.outbox.take_own();
        let mut any = !own.is_empty();
        self.open(&mut own, now, &mut deliver);
        self.outbox.keep(own);
        for _ in 0..self.inbox.len() {
            let Ok(mut parcel) = self.inbox.try_recv() else { break };
            any = true;
            if parcel.from == self.number() {
                self.outbox.keep(parcel);
            } else {
                self.open(&mut parcel, now, &mut deliver);
                self.outbox.taken.push(parcel);
            }
        }
        let Self { owner, outbox, .. } = self;
        owner.sweep(now, silence, |to, it| outbox.forward(to, it, &mut deliver)) || any
    }

    /// Sends what this worker has for others, as far as parcels are free, and returns theirs.
    pub fn flush(&mut self) {
        let outbox = &mut self.outbox;
        (0..outbox.queues.len()).for_each(|worker| outbox.send(worker));
        for parcel in outbox.taken.drain(..) {
            // The lane has room; without its worker the parcel is not needed.
            let _ = outbox.queues[usize::from(parcel.from)].lane.try_send(parcel);
        }
    }

    /// Whether [`receive`](Self::receive) has to be called: the worker may not sleep. For
    /// [`Front::sleep_unless`].
    pub fn has_mail(&self) -> bool {
        let Outbox { queues, number, .. } = &self.outbox;
        !self.inbox.is_empty() || !queues[usize::from(*number)].open.is_empty()
    }

    /// Whether everything that this worker has sent was taken, and nothing waits.
    pub fn is_idle(&self) -> bool {
        let is_idle = |queue: &Queue| queue.open.is_empty() && queue.under_way == 0;
        !self.has_mail() && self.outbox.queues.iter().all(is_idle)
    }

    /// The messages dropped since the last call.
    pub fn take_dropped(&mut self) -> Dropped {
        mem::take(&mut self.outbox.dropped)
    }

    /// Sums over the swarms that this worker owns.
    pub fn totals(&self) -> Totals {
        self.owner.totals()
    }

    /// Does what the messages of a parcel ask for.
    fn open(
        &mut self,
        parcel: &mut Parcel,
        now: u32,
        deliver: &mut impl FnMut(Socket, Delivery<&str>),
    ) {
        let Self { owner, outbox, .. } = self;
        let (messages, mut texts) = parcel.take();
        for message in messages {
            match message {
                Message::Announce(announce, offers) => {
                    let Announce { info_hash, socket: from, peer_id, .. } = announce;
                    let post = |to, it: Delivery<&str>| outbox.forward(to, it, deliver);
                    let mut chosen = owner.announce(&announce, offers, now, post).iter();
                    for _ in 0..offers {
                        let Some(Offer { offer_id, offer }) = texts.offer() else { break };
                        let Some(to) = chosen.next() else { continue };
                        let it = Delivery::Offer { info_hash, from, peer_id, offer_id, offer };
                        outbox.forward(*to, it, deliver);
                    }
                }
                Message::Remove { socket, info_hash, replies } => {
                    let post = |to, it: Delivery<&str>| outbox.forward(to, it, deliver);
                    owner.remove(socket, info_hash, replies, post);
                }
                Message::Scrape(socket, mut files) => {
                    let number = usize::from(outbox.number);
                    let is_own = |file: &&mut File| outbox.owner_of(file) == number;
                    files.iter_mut().filter(is_own).for_each(|file| owner.fill(file));
                    match outbox.first_owner(&files, number + 1) {
                        Some(next) => outbox.push(next, Message::Scrape(socket, files)),
                        None => outbox.forward(socket, Delivery::Scraped(files), deliver),
                    }
                }
                Message::Deliver(socket, delivery) => deliver(socket, texts.of(delivery)),
            }
        }
    }
}

/// The messages of one worker to each worker, itself among them.
struct Outbox {
    /// The number of this worker.
    number: u16,
    /// The function from info hashes to the owners of their swarms.
    map: ShardMap,
    /// Parcels that may be under way to each worker.
    share: usize,
    queues: Vec<Queue>,
    /// Parcels of other workers, to be returned.
    #[allow(clippy::vec_box, reason = "the same boxes travel over the lanes")]
    taken: Vec<Box<Parcel>>,
    dropped: Dropped,
}

impl Outbox {
    fn owner_of(&self, (hash, _): &File) -> usize {
        self.map.shard_of(&InfoHash(*hash))
    }

    /// The first worker, from number `from` on, that owns one of these swarms.
    fn first_owner(&self, files: &[File], from: usize) -> Option<usize> {
        files.iter().map(|file| self.owner_of(file)).filter(|owner| *owner >= from).min()
    }

    fn room_for(&mut self, info_hash: &InfoHash) -> Result<&mut Parcel, Exhausted> {
        self.room(self.map.shard_of(info_hash))
    }

    /// The parcel for a worker, if it has room for requests and offers. They leave half of the
    /// room to answers: there are at most as many as offers, and most are about as long.
    fn room(&mut self, to: usize) -> Result<&mut Parcel, Exhausted> {
        if self.has_room(to, 2) { Ok(&mut self.queues[to].open) } else { Err(Exhausted(to)) }
    }

    /// Whether fewer bytes are queued for a worker than one `part`th of what may be: its share of
    /// full parcels, and the open one. Sends that if it is full.
    fn has_room(&mut self, to: usize, part: usize) -> bool {
        if self.queues[to].open.size() >= PARCEL_BYTES {
            self.send(to);
        }
        let queue = &self.queues[to];
        queue.bytes + queue.open.size() < (self.share + 1) * PARCEL_BYTES / part
    }

    /// Adds a message that may not be lost.
    fn push(&mut self, to: usize, message: Message) {
        // Sends the parcel if it is full.
        self.has_room(to, 1);
        self.queues[to].open.push(message);
    }

    /// Adds a delivery; offers and answers if there is room for them.
    fn deliver(&mut self, to: Socket, delivery: Delivery<&str>) {
        let worker = to.worker.into();
        let part = if matches!(delivery, Delivery::Offer { .. }) { 2 } else { 1 };
        let has_room = self.has_room(worker, part);
        match delivery {
            Delivery::Offer { .. } if !has_room => self.dropped.offers += 1,
            Delivery::Answer { .. } if !has_room => self.dropped.answers += 1,
            _ => self.queues[worker].open.deliver(to, delivery),
        }
    }

    /// Brings a delivery on its way: to a connection of this worker by a call of `own`.
    fn forward(
        &mut self,
        to: Socket,
        delivery: Delivery<&str>,
        own: &mut impl FnMut(Socket, Delivery<&str>),
    ) {
        if to.worker == self.number { own(to, delivery) } else { self.deliver(to, delivery) }
    }

    /// Sends the parcel for another worker, unless its share is under way.
    fn send(&mut self, to: usize) {
        let Self { number, share, queues, .. } = self;
        let queue = &mut queues[to];
        if to == usize::from(*number) || queue.open.is_empty() || queue.under_way == *share {
            return;
        }
        let mut parcel = queue.take_open();
        (parcel.from, parcel.to, parcel.sent) = (*number, to as u16, parcel.size());
        queue.under_way += 1;
        queue.bytes += parcel.sent;
        if let Err(parcel) = queue.lane.try_send(parcel) {
            // The worker has exited, and the process is about to.
            self.keep(parcel);
        }
    }

    /// The parcel for this worker.
    fn take_own(&mut self) -> Box<Parcel> {
        let queue = &mut self.queues[usize::from(self.number)];
        let mut parcel = queue.take_open();
        (parcel.from, parcel.to) = (self.number, self.number);
        queue.under_way += 1;
        parcel
    }

    /// Keeps a parcel of this worker that has come back.
    fn keep(&mut self, mut parcel: Box<Parcel>) {
        parcel.clear(PARCEL_BYTES);
        let queue = &mut self.queues[usize::from(parcel.to)];
        queue.under_way -= 1;
        queue.bytes -= mem::take(&mut parcel.sent);
        queue.empty.push(parcel);
    }
}

/// The messages of one worker to another one.
struct Queue {
    lane: Lane<Box<Parcel>>,
    /// The parcel that is being filled.
    open: Box<Parcel>,
    #[allow(clippy::vec_box, reason = "the same boxes travel over the lanes")]
    empty: Vec<Box<Parcel>>,
    /// Parcels that were sent and have not come back, and their bytes.
    under_way: usize,
    bytes: usize,
}

impl Queue {
    fn new(lane: Lane<Box<Parcel>>) -> Self {
        Self { lane, open: Box::default(), empty: Vec::new(), under_way: 0, bytes: 0 }
    }

    /// Takes the open parcel, and opens another.
    fn take_open(&mut self) -> Box<Parcel> {
        mem::replace(&mut self.open, self.empty.pop().unwrap_or_default())
    }
}
