//! A worker over WebSocket: its slots and their requests. What arrives is handled by
//! `messages`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem::Finder;
use onrush_proto::webtorrent::OfferId;
use onrush_proto::webtorrent::client::{ReplyReader, write_announce, write_scrape};
use onrush_proto::{Announce, Event, Family, InfoHash, PeerId};
use rand::RngExt as _;
use rand::rngs::SmallRng;
use rustls::pki_types::ServerName;

use super::answers::Answers;
use super::board::Board;
use super::client::{Client, Frames, message, upgrade_request, upgraded};
use super::sdp::Descriptions;
use super::{Target, slots};
use crate::check::Checker;
use crate::connection::Connection;
use crate::plan::population::mix;
use crate::plan::{Plan, PlannedRequest};
use crate::tally::WsTally;
use crate::turns::{self, Protocol, Turns};
use crate::worker::{LoadSettings, Nanos, Next, Prepared, Window};

/// Connections of a worker that are being opened at a time: fewer than wait to be accepted.
const MAX_OPENING: usize = 256;
/// Interval at which the end of all workers is looked for.
const END_WAIT: Duration = Duration::from_millis(5);

/// A worker.
pub struct WsWorker<'p> {
    pub(super) plan: &'p Plan,
    pub(super) target: Target,
    upgrades: Vec<Vec<u8>>,
    names: Vec<ServerName<'static>>,
    pub(super) turns: Turns,
    pub(super) checker: Checker,
    pub(super) chance: SmallRng,
    pub(super) reader: ReplyReader,
    /// Finds the id of an offer.
    pub(super) offer_id: Finder<'static>,
    pub(super) board: Arc<Board>,
    pub(super) descriptions: Descriptions,
    /// Those of all connections, which every offer and answer needs.
    peer_ids: Vec<PeerId>,
    worker: usize,
    pub(super) slots: Vec<Slot>,
    opening: usize,
    /// Offers that were sent; those that should arrive, and answers that have returned.
    offers: u64,
    pub(super) due: u64,
    pub(super) returned: u64,
    /// Whether the tracker replies to answers, once that is known.
    pub(super) answers_have_replies: Option<bool>,
    ids: Vec<OfferId>,
    /// A message or a description to compare with.
    pub(super) expected: Vec<u8>,
}

/// A connection and the memberships of its peers.
pub(super) struct Slot {
    pub(super) client: Option<Client>,
    /// Its number among the connections of all workers: that of its peers' address.
    pub(super) number: u32,
    pub(super) family: Family,
    /// The number of the source address among those of its family.
    address: u32,
    /// The number of the URL.
    pub(super) url: usize,
    pub(super) pending: Option<Pending>,
    /// A request that is lost, to which a reply may still come.
    pub(super) overdue: Option<Pending>,
    pub(super) answers: Answers,
    /// Of peer `number + n * connections` at place n.
    pub(super) memberships: Vec<Membership>,
    /// Whether it has had a reply, with `--idle`.
    pub(super) is_served: bool,
}

/// What a peer has announced.
#[derive(Clone, Copy)]
pub(super) struct Membership {
    /// Whether it is a member: not from when `stopped` is written.
    pub(super) is_member: bool,
    pub(super) is_seeder: bool,
    /// When the tracker has confirmed that; never while an announce is, or may be, under way.
    pub(super) since: Nanos,
}

impl Membership {
    pub(super) const NONE: Self = Self { is_member: false, is_seeder: false, since: 0 };
}

/// A request without a reply.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) request: PlannedRequest,
    /// The swarm of an announce.
    pub(super) info_hash: InfoHash,
    /// When it was composed (closed loop) or due (open loop).
    pub(super) sent: Nanos,
    deadline: Nanos,
    /// Its offers.
    pub(super) offers: u32,
    /// Its number among the requests of its connection, once it is sent.
    pub(super) number: u32,
    /// Whether the connection ends after the reply.
    pub(super) ends: bool,
    is_sent: bool,
}

/// A worker that begins later.
pub struct Unstarted {
    target: Target,
    board: Arc<Board>,
}

/// All workers of a load.
pub fn all(target: &Target, load: &LoadSettings) -> Vec<Unstarted> {
    let board = Arc::new(Board::new(load.workers, load.seed));
    let worker = |_| Unstarted { target: target.clone(), board: Arc::clone(&board) };
    (0..load.workers).map(worker).collect()
}

impl Prepared for Unstarted {
    type Worker<'p> = WsWorker<'p>;

    fn start(
        self,
        plan: &Plan,
        load: LoadSettings,
        number: usize,
        window: Window,
    ) -> io::Result<WsWorker<'_>> {
        let slots = slots::of(plan, &self.target, number, load.workers);
        let connections = self.target.settings.connections as u32;
        let mut turns = Turns::new(&load, number, window, slots.len())?;
        turns.counts.tally.ws = Some(Box::default());
        Ok(WsWorker {
            plan,
            upgrades: self.target.urls.iter().map(upgrade_request).collect(),
            names: self.target.urls.iter().map(|url| url.server_name()).collect(),
            turns,
            checker: Checker::new(plan, load.strictness),
            chance: plan.chance(number),
            reader: ReplyReader::default(),
            offer_id: Finder::new(br#""offer_id":""#),
            board: self.board,
            descriptions: Descriptions::new(self.target.settings.sdp, load.seed),
            peer_ids: (0..connections).map(|number| peer_id(plan, load.seed, number)).collect(),
            worker: number,
            target: self.target,
            slots,
            opening: 0,
            offers: 0,
            due: 0,
            returned: 0,
            answers_have_replies: None,
            ids: Vec::new(),
            expected: Vec::new(),
        })
    }
}

impl Slot {
    pub(super) fn new(number: u32, family: Family, address: u32, url: usize, peers: usize) -> Self {
        Self {
            client: None,
            number,
            family,
            address,
            url,
            pending: None,
            overdue: None,
            answers: Answers::default(),
            memberships: vec![Membership::NONE; peers],
            is_served: false,
        }
    }
}

impl Protocol for WsWorker<'_> {
    fn turns(&mut self) -> &mut Turns {
        &mut self.turns
    }

    fn event(&mut self, number: u32, event: turns::Event, now: Nanos) {
        let Some(client) = &mut self.slots[number as usize].client else { return };
        let connection = &mut client.connection;
        let mut done = if event.writable { connection.flush() } else { Ok(()) };
        if event.readable && done.is_ok() {
            done = connection.receive(&mut self.turns.space, event.ended);
        }
        let ended = connection.ended;
        // A response without an upgrade says more than a reset behind it.
        done = self.upgrade(number, now).and(done);
        self.receive(number, now);
        let Some(client) = &self.slots[number as usize].client else { return };
        if client.ends {
            return self.close(number);
        }
        if done.is_ok() && ended {
            done = Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the tracker"));
        }
        if let Err(error) = done {
            self.failed(number, &error, now);
        }
    }

    /// A connection without its upgrade, or with a second overdue request, is not used any more.
    fn expire(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let Some(pending) = slot.pending.filter(|pending| pending.deadline <= now) else { return };
        let is_open = slot.client.as_ref().is_some_and(|client| client.is_open);
        if is_open && slot.overdue.is_none() {
            (slot.pending, slot.overdue) = (None, Some(pending));
            self.lost(&pending);
            self.list(number);
        } else {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no reply in time");
            self.failed(number, &error, now);
        }
    }

    /// One request, and one in all with `--idle`.
    fn room(&self, number: u32) -> usize {
        let slot = &self.slots[number as usize];
        let is_idle = self.target.settings.is_idle && slot.is_served;
        usize::from(slot.pending.is_none() && !is_idle)
    }

    fn may_connect(&self, number: u32) -> bool {
        self.slots[number as usize].client.is_some() || self.opening < MAX_OPENING
    }

    fn plan(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let (plan, settings) = (self.plan, &self.target.settings);
        let planned = match settings.is_idle && !slot.memberships.is_empty() {
            true => {
                let (peer, event) = (slot.number, Event::Started);
                let seeder = plan.begins_as_seeder(Family::V4, peer);
                Some(PlannedRequest::Announce { peer, event, seeder })
            }
            false => plan.next(&mut self.chance, Family::V4, slot.number),
        };
        // A connection without peers scrapes.
        let scrape =
            |chance: &mut SmallRng| PlannedRequest::Scrape { draw: chance.random(), hashes: 1 };
        let request = planned.unwrap_or_else(|| scrape(&mut self.chance));
        let (mut info_hash, mut offers, mut ends) = (InfoHash::default(), 0, false);
        if let PlannedRequest::Announce { peer, event, .. } = request {
            info_hash = plan.population.info_hash(plan.population.member(Family::V4, peer).swarm);
            offers = if event == Event::Stopped { 0 } else { settings.offers };
            ends = settings.disconnects > 0.0 && self.chance.random_bool(settings.disconnects);
        }
        let sent = self.turns.begin(request.kind(), now);
        self.slots[number as usize].pending = Some(Pending {
            request,
            info_hash,
            sent,
            deadline: now + self.turns.pacer.timeout,
            offers,
            number: 0,
            ends,
            is_sent: false,
        });
    }

    fn write(&mut self, number: u32, _: usize, now: Nanos) {
        if self.slots[number as usize].client.is_none()
            && let Err(error) = self.open(number, now)
        {
            if let Some(pending) = self.slots[number as usize].pending.take() {
                self.lost(&pending);
            }
            return self.turns.not_begun(number, &error, now);
        }
        self.request(number, now);
    }

    fn flush(&mut self, number: u32, now: Nanos) {
        let Some(client) = &mut self.slots[number as usize].client else { return };
        if let Err(error) = client.connection.flush() {
            self.failed(number, &error, now);
        }
    }

    fn end(&mut self, now: Nanos) -> Next {
        self.count_held();
        // Offers and answers under way, and those of other workers, which come to this one.
        let [delivered, answered] = self.board.progress(self.worker);
        let is_complete = delivered >= self.due && self.returned >= answered;
        let waits = !is_complete && now < self.turns.sent_at + self.turns.pacer.timeout;
        match self.board.any_waits(self.worker, waits) {
            true => Next::Wait(END_WAIT),
            false => Next::Done,
        }
    }
}

/// The id of the peers of a connection: that of one client.
fn peer_id(plan: &Plan, seed: u64, number: u32) -> PeerId {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let own = plan.population.trait_of(Family::V4, number);
    let word = mix(seed ^ u64::from(number)) << 32 | u64::from(number);
    let mut id = [0; 20];
    id[..8].copy_from_slice(&plan.client_of(own).prefix);
    for (place, byte) in id[8..].iter_mut().enumerate() {
        *byte = DIGITS[(word >> (44 - 4 * place)) as usize & 15];
    }
    PeerId(id)
}

impl WsWorker<'_> {
    pub(super) fn ws(&mut self) -> &mut WsTally {
        self.turns.counts.tally.ws.get_or_insert_default()
    }

    /// The id of a peer: that of its connection.
    pub(super) fn peer_id(&self, peer: u32) -> PeerId {
        self.peer_ids[(peer % self.peer_ids.len() as u32) as usize]
    }

    /// The place of a peer among the memberships of its slot.
    pub(super) fn place(&self, peer: u32) -> usize {
        peer as usize / self.target.settings.connections
    }

    /// Finishes the upgrade of a connection once its response has come, and sends what waits.
    fn upgrade(&mut self, number: u32, now: Nanos) -> io::Result<()> {
        let Some(client) = &mut self.slots[number as usize].client else { return Ok(()) };
        if client.is_open {
            return Ok(());
        }
        let Some(len) = upgraded(&client.connection.input).map_err(io::Error::other)? else {
            return Ok(());
        };
        client.connection.input.drain(..len);
        client.is_open = true;
        self.opening -= 1;
        let took = now.saturating_sub(client.begun);
        self.turns.opened(took, now);
        if self.turns.counts.within(now) {
            self.ws().held.1 = now;
        }
        self.request(number, now);
        Ok(())
    }

    /// Ends a connection. A request without a reply is lost.
    pub(super) fn close(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(client) = slot.client.take() else { return };
        self.opening -= usize::from(!client.is_open);
        self.turns.ended(number);
        (slot.overdue, slot.is_served) = (None, false);
        slot.memberships.fill(Membership::NONE);
        slot.answers = Answers::default();
        if let Some(pending) = slot.pending.take() {
            self.lost(&pending);
        }
        self.list(number);
    }

    fn lost(&mut self, pending: &Pending) {
        self.turns.lost(pending.request.kind(), pending.sent);
    }

    /// A connection has failed.
    pub(super) fn failed(&mut self, number: u32, error: &io::Error, now: Nanos) {
        self.turns.failed(error, now);
        self.close(number);
        self.turns.rest(number, now);
    }

    /// Takes the request of a slot that has its reply, and lets it take another one.
    pub(super) fn answered(&mut self, number: u32, now: Nanos) {
        let slot = &mut self.slots[number as usize];
        let Some(pending) = slot.pending.take() else { return };
        slot.is_served = true;
        self.turns.answered();
        if pending.ends
            && let Some(client) = &mut slot.client
        {
            client.ends = true;
            let counts = self.turns.counts.within(now);
            self.ws().disconnected += u64::from(counts);
        }
        self.list(number);
    }

    fn open(&mut self, number: u32, now: Nanos) -> io::Result<()> {
        let slot = &mut self.slots[number as usize];
        let key = self.turns.key(number);
        let source = self.target.sources.get(slot.family, slot.address);
        let ways = (source, self.target.urls[slot.url].address);
        let tls = self.target.tls.as_ref().map(|config| (config, &self.names[slot.url]));
        let mut connection = Connection::begin(&mut self.turns.backend, key, ways, tls)?;
        connection.out.extend_from_slice(&self.upgrades[slot.url]);
        let frames = Frames::default();
        slot.client = Some(Client { connection, frames, begun: now, is_open: false, ends: false });
        self.opening += 1;
        self.turns.send(number);
        Ok(())
    }

    /// Writes the request of a slot, once its connection is open.
    fn request(&mut self, number: u32, now: Nanos) {
        let slot = &self.slots[number as usize];
        let is_open = slot.client.as_ref().is_some_and(|client| client.is_open);
        let Some(pending) = slot.pending.filter(|pending| is_open && !pending.is_sent) else {
            return;
        };
        let (plan, is_counted) = (self.plan, self.turns.counts.within(pending.sent));
        let mut announced = None;
        if let PlannedRequest::Announce { peer, event, seeder } = pending.request {
            let announce = plan.announced(Family::V4, peer, event, seeder);
            announced = Some(Announce { peer_id: self.peer_id(peer), ..announce });
            let place = self.place(peer);
            let membership = &mut self.slots[number as usize].memberships[place];
            (membership.is_member, membership.since) = (event != Event::Stopped, Nanos::MAX);
            self.ids.clear();
            for _ in 0..pending.offers {
                let name = (self.worker, self.offers);
                let offer = self.board.send(name, pending.sent, (peer, seeder));
                self.ids.push(self.board.id(offer));
                self.offers += 1;
            }
            if is_counted {
                self.ws().offers.sent += u64::from(pending.offers);
            }
        }
        let Self { slots, board, descriptions, ids, .. } = self;
        let slot = &mut slots[number as usize];
        let number_sent = slot.answers.send_request();
        slot.pending = Some(Pending { is_sent: true, number: number_sent, ..pending });
        let Some(client) = &mut slot.client else { return };
        message(&mut client.connection.out, |out| match (announced, pending.request) {
            (Some(announce), _) => {
                let sdp = |id: &OfferId, out: &mut Vec<u8>| {
                    let seed = board.offer(id).map_or(0, |offer| board.seed(offer));
                    descriptions.write(seed, out);
                };
                write_announce(&announce, ids, sdp, out);
            }
            (None, PlannedRequest::Scrape { draw, hashes }) => {
                let members = plan.scraped(draw, hashes);
                write_scrape(members.map(|it| plan.population.info_hash(it.swarm)), out);
            }
            (None, _) => write_scrape(std::iter::empty(), out),
        });
        self.turns.send(number);
        self.sent_message(now);
    }

    /// Counts a message that is sent.
    pub(super) fn sent_message(&mut self, now: Nanos) {
        let counts = self.turns.counts.within(now);
        self.ws().messages[0] += u64::from(counts);
    }

    /// Counts the connections that are held, with `--idle`.
    fn count_held(&mut self) {
        let is_held = |slot: &&Slot| slot.client.is_some() && slot.is_served;
        let held = self.slots.iter().filter(is_held).count() as u64;
        self.ws().held.0 = held;
    }
}
