//! What becomes of a datagram: the order of the checks, and a name for every refusal.
//!
//! Decides and counts; sends nothing, stores nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use onrush_proto::connect::{Connect, ConnectResponse};
use onrush_proto::request::{Malformed, Request};
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_proto::{ConnectionId, Endpoint, Event, Family, PeerId, Scrape, TransactionId};
use onrush_swarm::Announce;

use crate::access::blocks::BlockList;
use crate::access::{AccessList, is_bogon_v4, is_bogon_v6};
use crate::clients;
use crate::connection::{Address, ConnectionIds};
use crate::limits::AnnounceSettings;
use crate::metrics::{Incoming, WorkerMetrics, event_index};
use crate::refusal::{Refusal, UdpRefusal};
use crate::rules::Rules;
use crate::shedding::Shedding;

/// The port of clients that cannot accept connections. They count as peers and are never handed
/// out.
pub const UNCONNECTABLE_PORT: u16 = 1;

/// What is to be done with a datagram.
#[derive(Debug)]
#[repr(u8)] // a tag of its own is cheaper to tell than one hidden in another field
pub enum Verdict<'a> {
    /// Send this, at once.
    Connect(ConnectResponse),
    /// Take it to the shard of its info hash.
    Announce(Announce),
    /// Take its hashes to their shards.
    Scrape(Scrape<'a>),
    /// Send an error with the refusal's text.
    Error(TransactionId, Refusal),
    /// Do nothing.
    Silence,
}

/// The checks at the door of one worker.
#[derive(Clone, Debug)]
pub struct Intake {
    ids: ConnectionIds,
    access: Arc<AccessList>,
    blocked: Arc<BlockList>,
    announce: AnnounceSettings,
    refuse_bogons: bool,
    shedding: Option<Shedding>,
    /// Whether per-packet log lines may name who sent the packet.
    log_addresses: bool,
}

impl Intake {
    /// The checks that `rules` ask for.
    pub fn new(rules: &Rules, ids: ConnectionIds) -> Self {
        Self {
            ids,
            access: rules.access.clone(),
            blocked: rules.blocked.clone(),
            announce: rules.announce.clone(),
            refuse_bogons: rules.refuse_bogons,
            shedding: rules.shedding.clone(),
            log_addresses: rules.log_addresses,
        }
    }

    /// Goes by other rules from now on. Connection ids that were given out stay good.
    pub fn update(&mut self, rules: &Rules) {
        *self = Self::new(rules, self.ids.clone());
    }

    /// Gets ready for datagrams that are judged at this time.
    #[inline]
    pub fn prepare(&mut self, unix: u64) {
        self.ids.prepare(unix);
    }

    /// Reads what looking up the info hashes of these datagrams will read, while their cache misses overlap.
    /// What does not look like an announce or a scrape is passed over.
    #[inline(never)]
    pub fn prefetch<'a>(&self, datagrams: impl Iterator<Item = &'a [u8]>) {
        let mut names: [&[u8; HASH_LEN]; NAMES_AHEAD] = [&[0; HASH_LEN]; NAMES_AHEAD];
        let mut len = 0;
        for datagram in datagrams {
            for name in names_in(datagram) {
                names[len] = name;
                len += 1;
                if len == NAMES_AHEAD {
                    self.access.prefetch(&names);
                    len = 0;
                }
            }
        }
        self.access.prefetch(&names[..len]);
    }

    /// Which swarms' scrapes are told the truth.
    #[inline]
    pub fn access(&self) -> &AccessList {
        &self.access
    }

    /// Looks at one datagram from `source`. `unix` is wall-clock time in seconds.
    #[inline]
    pub fn judge<'a>(
        &self,
        datagram: &'a [u8],
        source: &SocketAddr,
        unix: u64,
        metrics: &WorkerMetrics,
    ) -> Verdict<'a> {
        match source {
            SocketAddr::V4(from) => {
                let from = Source { ip: *from.ip(), port: from.port() };
                Checks { intake: self, unix, datagram, from, incoming: &metrics.incoming.v4 }
                    .judge()
            }
            SocketAddr::V6(from) => self.judge_v6(datagram, from, unix, metrics),
        }
    }

    /// Out of the way of the other family, so that each finds its code in one piece.
    #[inline(never)]
    fn judge_v6<'a>(
        &self,
        datagram: &'a [u8],
        from: &SocketAddrV6,
        unix: u64,
        metrics: &WorkerMetrics,
    ) -> Verdict<'a> {
        let port = from.port();
        match from.ip().to_ipv4_mapped() {
            Some(ip) => {
                let from = Source { ip, port };
                Checks { intake: self, unix, datagram, from, incoming: &metrics.incoming.v4 }
                    .judge()
            }
            None => {
                let from = Source { ip: *from.ip(), port };
                Checks { intake: self, unix, datagram, from, incoming: &metrics.incoming.v6 }
                    .judge()
            }
        }
    }

    /// How many peers a reply may carry (BEP 15, `num_want`: negative is "as you like").
    #[inline]
    fn want(&self, num_want: i32, event: Event, family: Family) -> u16 {
        if event == Event::Stopped {
            return 0;
        }
        let cap = match family {
            Family::V4 => self.announce.max_peers_v4,
            Family::V6 => self.announce.max_peers_v6,
        };
        match u16::try_from(num_want) {
            Ok(wanted) => wanted.min(cap),
            Err(_) if num_want < 0 => self.announce.default_peers.min(cap),
            Err(_) => cap,
        }
    }
}

/// Info hashes that are looked ahead for at once.
const NAMES_AHEAD: usize = 32;

/// The info hashes of what looks like an announce (one) or a scrape.
fn names_in(datagram: &[u8]) -> &[[u8; HASH_LEN]] {
    let Some((head, rest)) = datagram.split_at_checked(REQUEST_HEAD_LEN) else { return &[] };
    let names = rest.as_chunks().0;
    match head.get(8..12) {
        Some([0, 0, 0, 1]) => &names[..names.len().min(1)],
        Some([0, 0, 0, 2]) => names,
        _ => &[],
    }
}

/// Who sent a datagram. The type of the address is the family that the client speaks: an
/// IPv4-mapped address is an [`Ipv4Addr`] here.
#[derive(Clone, Copy)]
struct Source<A> {
    ip: A,
    port: u16,
}

/// What the checks need of an address, known at compile time for each family.
trait SourceAddress: Address + Into<IpAddr> {
    const FAMILY: Family;

    fn is_bogon(self) -> bool;

    fn is_blocked(self, list: &BlockList) -> bool;

    /// What is taken for one source: an IPv4 address, or an IPv6 network of 64 bits, of which somebody may
    /// have all addresses.
    fn network(self) -> u64;

    fn endpoint(self, port: u16) -> Endpoint;
}

impl SourceAddress for Ipv4Addr {
    const FAMILY: Family = Family::V4;

    #[inline]
    fn is_bogon(self) -> bool {
        is_bogon_v4(self)
    }

    #[inline]
    fn is_blocked(self, list: &BlockList) -> bool {
        list.blocks_v4(self)
    }

    #[inline]
    fn network(self) -> u64 {
        self.to_bits().into()
    }

    #[inline]
    fn endpoint(self, port: u16) -> Endpoint {
        Endpoint::v4(self, port)
    }
}

impl SourceAddress for Ipv6Addr {
    const FAMILY: Family = Family::V6;

    #[inline]
    fn is_bogon(self) -> bool {
        is_bogon_v6(self)
    }

    #[inline]
    fn is_blocked(self, list: &BlockList) -> bool {
        list.blocks_v6(self)
    }

    #[inline]
    fn network(self) -> u64 {
        (self.to_bits() >> 64) as u64
    }

    #[inline]
    fn endpoint(self, port: u16) -> Endpoint {
        Endpoint::v6(self, port)
    }
}

/// The checks of one datagram.
#[derive(Clone, Copy)]
struct Checks<'a, 'd, A> {
    intake: &'a Intake,
    unix: u64,
    datagram: &'d [u8],
    from: Source<A>,
    incoming: &'a Incoming,
}

impl<'d, A: SourceAddress> Checks<'_, 'd, A> {
    #[inline]
    fn judge(self) -> Verdict<'d> {
        self.incoming.datagrams.add(1);
        self.incoming.bytes.add(self.datagram.len() as u64);
        if self.from.port == 0 {
            return self.drop_datagram(UdpRefusal::SourcePort);
        }
        if self.intake.refuse_bogons && self.from.ip.is_bogon() {
            return self.silence(Refusal::Bogon);
        }
        if self.from.ip.is_blocked(&self.intake.blocked) {
            return self.silence(Refusal::Blocked);
        }
        match Request::parse(self.datagram) {
            Ok(Request::Connect(connect)) => self.connect(connect),
            // The id comes first: BEP 15, "Connect", asks to drop what does not carry a good one,
            // so nothing else in the datagram may be answered before.
            Ok(Request::Announce(announce)) => {
                if !self.accepts(announce.connection_id) {
                    return self.drop_datagram(UdpRefusal::ConnectionId);
                }
                self.announce(announce)
            }
            Ok(Request::Scrape(scrape)) => {
                if !self.accepts(scrape.connection_id) {
                    return self.drop_datagram(UdpRefusal::ConnectionId);
                }
                self.scrape(scrape)
            }
            Err(Malformed::Short) => self.drop_datagram(UdpRefusal::Short),
            Err(Malformed::Magic) => self.drop_datagram(UdpRefusal::Magic),
            Err(Malformed::Action) => self.drop_datagram(UdpRefusal::Action),
        }
    }

    #[inline]
    fn accepts(self, id: ConnectionId) -> bool {
        let good = self.intake.ids.accepts(id, self.from.ip, self.unix);
        if let Some(shedding) = &self.intake.shedding
            && good
        {
            shedding.record_proof(self.from.ip.network());
        }
        good
    }

    #[inline]
    fn connect(self, connect: Connect) -> Verdict<'d> {
        if let Some(shedding) = &self.intake.shedding
            && !shedding.admits(self.from.ip.network(), self.unix)
        {
            return self.silence(Refusal::Shed);
        }
        self.incoming.connects.add(1);
        if log::log_enabled!(log::Level::Trace) {
            log::trace!("connect from {}", self.name());
        }
        let connection_id = self.intake.ids.issue(self.from.ip, self.unix);
        Verdict::Connect(ConnectResponse { transaction_id: connect.transaction_id, connection_id })
    }

    #[inline]
    fn announce(self, announce: onrush_proto::Announce<'_>) -> Verdict<'d> {
        if announce.port == 0 {
            return self.error(announce.transaction_id, Refusal::Port);
        }
        if !self.intake.access.permits(announce.info_hash) {
            return self.error(announce.transaction_id, Refusal::Forbidden);
        }
        self.incoming.announces.add(1);
        self.incoming.events[event_index(announce.event)].add(1);
        if announce.port == UNCONNECTABLE_PORT {
            self.incoming.unconnectable.add(1);
        }
        if self.incoming.announces.get() % clients::SAMPLE == 1 {
            self.sample(announce.peer_id);
        }
        let announce = Announce {
            info_hash: announce.info_hash,
            endpoint: self.from.ip.endpoint(announce.port),
            event: announce.event,
            seeder: announce.left == 0,
            want: self.intake.want(announce.num_want, announce.event, A::FAMILY),
            transaction_id: announce.transaction_id,
        };
        if log::log_enabled!(log::Level::Trace) {
            self.log_announce(announce);
        }
        Verdict::Announce(announce)
    }

    /// Counts the software of one announce among many.
    #[cold]
    fn sample(self, peer_id: PeerId) {
        self.incoming.clients[clients::index_of(&peer_id)].add(1);
    }

    #[inline]
    fn scrape(self, scrape: Scrape<'d>) -> Verdict<'d> {
        if scrape.info_hashes().len() == 0 {
            return self.error(scrape.transaction_id, Refusal::NoHash);
        }
        self.incoming.scrapes.add(1);
        if log::log_enabled!(log::Level::Trace) {
            log::trace!("scrape of {} from {}", scrape.info_hashes().len(), self.name());
        }
        Verdict::Scrape(scrape)
    }

    #[inline]
    fn silence(self, refusal: Refusal) -> Verdict<'d> {
        self.refuse(refusal);
        Verdict::Silence
    }

    #[inline]
    fn drop_datagram(self, refusal: UdpRefusal) -> Verdict<'d> {
        self.incoming.refused_by_udp[refusal as usize].add(1);
        if log::log_enabled!(log::Level::Debug) {
            self.log_refusal(refusal.name());
        }
        Verdict::Silence
    }

    #[inline]
    fn error(self, asked_by: TransactionId, refusal: Refusal) -> Verdict<'d> {
        self.refuse(refusal);
        Verdict::Error(asked_by, refusal)
    }

    #[inline]
    fn refuse(self, refusal: Refusal) {
        self.incoming.refused[refusal as usize].add(1);
        if log::log_enabled!(log::Level::Debug) {
            self.log_refusal(refusal.name());
        }
    }

    #[cold]
    fn log_refusal(self, refusal: &str) {
        let bytes = self.datagram.len();
        log::debug!("refused ({refusal}): {bytes} bytes from {}", self.name());
    }

    #[cold]
    fn log_announce(self, announce: Announce) {
        log::trace!(
            "announce of {} from {}: event {:?}, seeder {}, wants {}",
            announce.info_hash,
            self.name(),
            announce.event,
            announce.seeder,
            announce.want,
        );
    }

    /// The client's address, unless logs are to be without.
    #[cold]
    fn name(self) -> String {
        match self.intake.log_addresses {
            true => SocketAddr::new(self.from.ip.into(), self.from.port).to_string(),
            false => "a client".to_owned(),
        }
    }
}
