//! The checks of a datagram, in order, and the decision about it. Intake decides and counts; it
//! sends and stores nothing.
//!
//! The wire checks of UDP are in this file. [`Admission`] has the checks that every front shares.

mod admission;
mod source;

use std::net::{SocketAddr, SocketAddrV6};

use onrush_proto::connect::{Connect, ConnectResponse};
use onrush_proto::request::{Malformed, Request};
use onrush_proto::scrape::{HASH_LEN, REQUEST_HEAD_LEN};
use onrush_proto::{ConnectionId, InfoHash, Scrape, TransactionId};
use onrush_swarm::Announce;

pub use admission::{Admission, Admitting, AnnounceFields};
pub use source::{Source, SourceAddress};

use crate::connection::{Address, ConnectionIds};
use crate::metrics::{Incoming, WorkerMetrics};
use crate::refusal::{Refusal, UdpRefusal};
use crate::rules::Rules;

/// The intake's decision on a datagram.
#[derive(Debug)]
#[repr(u8)] // testing a tag of its own is cheaper than one in the niche of another field
pub enum Verdict<'a> {
    /// Send this response at once.
    Connect(ConnectResponse),
    /// Serve this announce by the shard of its info hash.
    Announce(Announce),
    /// Serve this scrape by the shards of its info hashes.
    Scrape(Scrape<'a>),
    /// Send an error with this text.
    Error(TransactionId, &'a str),
    /// Send nothing.
    Silence,
}

/// The checks of datagrams, as one worker uses them.
#[derive(Clone, Debug)]
pub struct Intake {
    pub(crate) ids: ConnectionIds,
    admission: Admission,
}

impl Intake {
    /// Checks by `rules` for worker number `member`, with connection ids by `ids`.
    pub fn new(rules: &Rules, member: usize, ids: ConnectionIds) -> Self {
        Self { ids, admission: Admission::new(rules, member) }
    }

    /// Uses `rules` from now on. Connection ids that were issued stay valid.
    pub fn update(&mut self, rules: &Rules) {
        self.admission.rules = rules.clone();
    }

    /// Reads the memory that the access list will read for the info hashes of these datagrams, so
    /// that the cache misses overlap. Skips datagrams that are neither announce nor scrape.
    #[inline(never)]
    pub fn prefetch<'a>(&self, datagrams: impl Iterator<Item = &'a [u8]>) {
        let mut hashes: [&[u8; HASH_LEN]; PREFETCHED] = [&[0; HASH_LEN]; PREFETCHED];
        let mut len = 0;
        for datagram in datagrams {
            for hash in hashes_in(datagram) {
                hashes[len] = hash;
                len += 1;
                if len == PREFETCHED {
                    self.rules().access.prefetch(&hashes);
                    len = 0;
                }
            }
        }
        self.rules().access.prefetch(&hashes[..len]);
    }

    /// The rules in force.
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.admission.rules
    }

    /// Checks one datagram from `source`. `unix` is wall-clock time in seconds.
    #[inline]
    pub fn check<'a>(
        &'a self,
        datagram: &'a [u8],
        source: &SocketAddr,
        unix: u64,
        metrics: &'a WorkerMetrics,
    ) -> Verdict<'a> {
        match source {
            SocketAddr::V4(from) => {
                let source = Source { ip: *from.ip(), port: from.port() };
                let incoming = &metrics.incoming.v4;
                Checks { intake: self, unix, datagram, source, incoming }.run()
            }
            SocketAddr::V6(from) => self.check_v6(datagram, from, unix, metrics),
        }
    }

    /// Not inlined, so that the code of IPv4 stays contiguous.
    #[inline(never)]
    fn check_v6<'a>(
        &'a self,
        datagram: &'a [u8],
        from: &SocketAddrV6,
        unix: u64,
        metrics: &'a WorkerMetrics,
    ) -> Verdict<'a> {
        let port = from.port();
        match from.ip().to_ipv4_mapped() {
            Some(ip) => {
                let (source, incoming) = (Source { ip, port }, &metrics.incoming.v4);
                Checks { intake: self, unix, datagram, source, incoming }.run()
            }
            None => {
                let (source, incoming) = (Source { ip: *from.ip(), port }, &metrics.incoming.v6);
                Checks { intake: self, unix, datagram, source, incoming }.run()
            }
        }
    }

    /// The tags of connection ids, a bit for each, that may be valid until two seconds after
    /// `unix` (seconds since 1970), as the kernel's filter is renewed once a second.
    pub fn valid_tags(&self, unix: u64) -> u8 {
        self.ids.valid_tags(unix) | self.ids.valid_tags(unix + 2)
    }

    /// Whether `id` is valid for `ip`. Arguments in registers: this is too large to be inlined.
    fn accepts<A: SourceAddress + Address>(&self, id: ConnectionId, ip: A, unix: u64) -> bool {
        self.ids.accepts(id, ip, unix)
    }
}

/// Info hashes that are prefetched together.
const PREFETCHED: usize = 32;

/// The info hashes of what looks like an announce (one) or a scrape.
fn hashes_in(datagram: &[u8]) -> &[[u8; HASH_LEN]] {
    let Some((head, rest)) = datagram.split_at_checked(REQUEST_HEAD_LEN) else { return &[] };
    let hashes = rest.as_chunks().0;
    match head.get(8..12) {
        Some([0, 0, 0, 1]) => &hashes[..hashes.len().min(1)],
        Some([0, 0, 0, 2]) => hashes,
        _ => &[],
    }
}

/// The checks of one datagram.
#[derive(Clone, Copy)]
struct Checks<'a, A> {
    intake: &'a Intake,
    unix: u64,
    datagram: &'a [u8],
    source: Source<A>,
    incoming: &'a Incoming,
}

impl<'a, A: SourceAddress + Address> Checks<'a, A> {
    #[inline]
    fn run(self) -> Verdict<'a> {
        self.incoming.datagrams.add(1);
        self.incoming.bytes.add(self.datagram.len() as u64);
        if self.source.port == 0 {
            return self.drop_datagram(UdpRefusal::SourcePort);
        }
        if self.admission().source().is_err() {
            return Verdict::Silence;
        }
        match Request::parse(self.datagram) {
            Ok(Request::Connect(connect)) => self.connect(connect),
            // The id comes first: BEP 15, "Connect", asks to drop requests without a valid id, so
            // no other field of the datagram may cause a reply before.
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
                match self.admission().scrape(scrape.info_hashes().len()) {
                    Ok(()) => Verdict::Scrape(scrape),
                    Err(refusal) => self.error(scrape.transaction_id, refusal, None),
                }
            }
            Err(Malformed::Short) => self.drop_datagram(UdpRefusal::Short),
            Err(Malformed::Magic) => self.drop_datagram(UdpRefusal::Magic),
            Err(Malformed::Action) => self.drop_datagram(UdpRefusal::Action),
        }
    }

    #[inline]
    fn admission(self) -> Admitting<'a, A> {
        self.intake.admission.of(self.source, self.incoming)
    }

    #[inline]
    fn accepts(self, id: ConnectionId) -> bool {
        self.intake.accepts(id, self.source.ip, self.unix)
    }

    #[inline]
    fn connect(self, connect: Connect) -> Verdict<'a> {
        self.incoming.connects.add(1);
        let connection_id = self.intake.ids.issue(self.source.ip, self.unix);
        Verdict::Connect(ConnectResponse { transaction_id: connect.transaction_id, connection_id })
    }

    #[inline]
    fn announce(self, announce: onrush_proto::Announce<'_>) -> Verdict<'a> {
        let fields = AnnounceFields {
            info_hash: announce.info_hash,
            peer_id: announce.peer_id,
            port: announce.port,
            seeder: announce.left == 0,
            event: announce.event,
            num_want: announce.num_want,
            transaction_id: announce.transaction_id,
        };
        match self.admission().announce(fields) {
            Ok(announce) => Verdict::Announce(announce),
            Err(refusal) => self.error(announce.transaction_id, refusal, Some(announce.info_hash)),
        }
    }

    #[cold]
    fn error(self, id: TransactionId, refusal: Refusal, hash: Option<InfoHash>) -> Verdict<'a> {
        let text = self.intake.admission.error_text(refusal, hash);
        text.map_or(Verdict::Silence, |text| Verdict::Error(id, text))
    }

    #[inline]
    fn drop_datagram(self, refusal: UdpRefusal) -> Verdict<'a> {
        self.incoming.refused_by_udp[refusal as usize].add(1);
        if log::log_enabled!(log::Level::Debug) {
            self.log_dropped(refusal);
        }
        Verdict::Silence
    }

    #[cold]
    fn log_dropped(self, refusal: UdpRefusal) {
        let (reason, bytes) = (refusal.name(), self.datagram.len());
        log::debug!("refused ({reason}): {bytes} bytes from {}", self.admission().client());
    }
}
