//! What becomes of a datagram: the order of the checks, and a name for every refusal.
//!
//! Decides and counts; sends nothing, stores nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use onrush_proto::connect::ConnectResponse;
use onrush_proto::request::{Malformed, Request};
use onrush_proto::{Endpoint, Event, Family, Scrape, TransactionId};
use onrush_swarm::Announce;

use crate::access::{AccessList, is_bogon};
use crate::connection::ConnectionIds;
use crate::metrics::{Incoming, WorkerMetrics, event_index};
use crate::settings::{AnnounceSettings, Settings};

/// The port of clients that cannot accept connections. They count as peers and are never handed
/// out.
pub const UNCONNECTABLE_PORT: u16 = 1;

/// Why a request gets no answer, or an error for an answer. Each has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(usize)]
pub enum Refusal {
    /// Silence: too short for what it says it is.
    Short,
    /// Silence: a connect without the magic number.
    Magic,
    /// Silence: neither connect, announce nor scrape.
    Action,
    /// Silence: from port 0, to which nothing can be sent.
    SourcePort,
    /// Silence: the source cannot be a peer on the internet, and such are refused here.
    Bogon,
    /// Silence: the connection id is not ours, expired, or another address's (BEP 15). An answer
    /// would go to whoever is named as the sender.
    ConnectionId,
    /// Error: the announced port is 0.
    Port,
    /// Error: the access list forbids the info hash.
    Forbidden,
    /// Error: a scrape without a whole info hash.
    NoHash,
    /// Silence: no batch was free, or the shard's lane was full. The client asks again.
    Busy,
}

impl Refusal {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 10] = [
        Self::Short,
        Self::Magic,
        Self::Action,
        Self::SourcePort,
        Self::Bogon,
        Self::ConnectionId,
        Self::Port,
        Self::Forbidden,
        Self::NoHash,
        Self::Busy,
    ];

    /// Its name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Magic => "magic",
            Self::Action => "action",
            Self::SourcePort => "source_port",
            Self::Bogon => "bogon",
            Self::ConnectionId => "connection_id",
            Self::Port => "port",
            Self::Forbidden => "forbidden",
            Self::NoHash => "no_hash",
            Self::Busy => "busy",
        }
    }

    /// What the client is told; `None` is silence. Only a client whose address is proven is told
    /// anything.
    pub const fn text(self) -> Option<&'static str> {
        match self {
            Self::Port => Some("port cannot be 0"),
            Self::Forbidden => Some("info hash is not allowed on this tracker"),
            Self::NoHash => Some("scrape without an info hash"),
            _ => None,
        }
    }
}

/// The longest text of an error reply: what a buffer for it must hold.
pub const MAX_ERROR_TEXT: usize = 64;

const _: () = {
    let mut at = 0;
    while at < Refusal::ALL.len() {
        assert!(Refusal::ALL[at] as usize == at, "counters are indexed by the order of ALL");
        if let Some(text) = Refusal::ALL[at].text() {
            assert!(text.len() <= MAX_ERROR_TEXT);
        }
        at += 1;
    }
};

/// What is to be done with a datagram.
#[derive(Debug)]
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
    announce: AnnounceSettings,
    refuse_bogons: bool,
    /// Whether per-packet log lines may name who sent the packet.
    log_addresses: bool,
}

impl Intake {
    /// The checks that `settings` ask for.
    pub fn new(settings: &Settings, ids: ConnectionIds, access: Arc<AccessList>) -> Self {
        Self {
            ids,
            access,
            announce: settings.announce.clone(),
            refuse_bogons: settings.refuse_bogons,
            log_addresses: settings.log.addresses,
        }
    }

    /// Gets ready for datagrams that are judged at this time.
    #[inline]
    pub fn prepare(&mut self, unix: u64) {
        self.ids.prepare(unix);
    }

    /// Whether scrapes of this swarm are told the truth.
    pub fn permits(&self, info_hash: &onrush_proto::InfoHash) -> bool {
        self.access.permits(info_hash)
    }

    /// Looks at one datagram from `source`. `unix` is wall-clock time in seconds.
    #[inline]
    pub fn judge<'a>(
        &self,
        datagram: &'a [u8],
        source: SocketAddr,
        unix: u64,
        metrics: &WorkerMetrics,
    ) -> Verdict<'a> {
        let ip = source.ip().to_canonical();
        let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
        let incoming = metrics.incoming.of(family);
        incoming.datagrams.add(1);
        incoming.bytes.add(datagram.len() as u64);
        match self.check(datagram, ip, source.port(), unix, incoming) {
            Ok(verdict) => {
                if log::log_enabled!(log::Level::Trace) {
                    self.log_verdict(&verdict, source);
                }
                verdict
            }
            Err((refusal, asked_by)) => {
                incoming.refused[refusal as usize].add(1);
                if log::log_enabled!(log::Level::Debug) {
                    self.log_refusal(refusal, datagram.len(), source);
                }
                match asked_by {
                    Some(transaction_id) => Verdict::Error(transaction_id, refusal),
                    None => Verdict::Silence,
                }
            }
        }
    }

    #[inline]
    fn check<'a>(
        &self,
        datagram: &'a [u8],
        ip: IpAddr,
        source_port: u16,
        unix: u64,
        incoming: &Incoming,
    ) -> Result<Verdict<'a>, (Refusal, Option<TransactionId>)> {
        if source_port == 0 {
            return Err((Refusal::SourcePort, None));
        }
        if self.refuse_bogons && is_bogon(ip) {
            return Err((Refusal::Bogon, None));
        }
        let request = Request::parse(datagram).map_err(|malformed| {
            let refusal = match malformed {
                Malformed::Short => Refusal::Short,
                Malformed::Magic => Refusal::Magic,
                Malformed::Action => Refusal::Action,
            };
            (refusal, None)
        })?;
        match request {
            Request::Connect(connect) => {
                incoming.connects.add(1);
                let connection_id = self.ids.issue(ip, unix);
                let transaction_id = connect.transaction_id;
                Ok(Verdict::Connect(ConnectResponse { transaction_id, connection_id }))
            }
            // The id comes first: BEP 15, "Connect", asks to drop what does not carry a good one,
            // so nothing else in the datagram may be answered before.
            Request::Announce(announce) => {
                if !self.ids.accepts(announce.connection_id, ip, unix) {
                    return Err((Refusal::ConnectionId, None));
                }
                self.check_announce(&announce, ip, incoming)
                    .map_err(|refusal| (refusal, Some(announce.transaction_id)))
            }
            Request::Scrape(scrape) => {
                if !self.ids.accepts(scrape.connection_id, ip, unix) {
                    return Err((Refusal::ConnectionId, None));
                }
                if scrape.info_hashes().len() == 0 {
                    return Err((Refusal::NoHash, Some(scrape.transaction_id)));
                }
                incoming.scrapes.add(1);
                Ok(Verdict::Scrape(scrape))
            }
        }
    }

    #[inline]
    fn check_announce<'a>(
        &self,
        announce: &onrush_proto::Announce<'_>,
        ip: IpAddr,
        incoming: &Incoming,
    ) -> Result<Verdict<'a>, Refusal> {
        if announce.port == 0 {
            return Err(Refusal::Port);
        }
        if !self.access.permits(&announce.info_hash) {
            return Err(Refusal::Forbidden);
        }
        incoming.announces.add(1);
        incoming.events[event_index(announce.event)].add(1);
        if announce.port == UNCONNECTABLE_PORT {
            incoming.unconnectable.add(1);
        }
        let endpoint = Endpoint::new(ip, announce.port);
        Ok(Verdict::Announce(Announce {
            info_hash: announce.info_hash,
            endpoint,
            event: announce.event,
            seeder: announce.left == 0,
            want: self.want(announce.num_want, announce.event, endpoint.family()),
            transaction_id: announce.transaction_id,
        }))
    }

    #[cold]
    fn log_verdict(&self, verdict: &Verdict<'_>, source: SocketAddr) {
        let from = self.name_of(source);
        match verdict {
            Verdict::Announce(announce) => log::trace!(
                "announce of {} from {from}: event {:?}, seeder {}, wants {}",
                announce.info_hash,
                announce.event,
                announce.seeder,
                announce.want,
            ),
            Verdict::Scrape(scrape) => {
                log::trace!("scrape of {} from {from}", scrape.info_hashes().len());
            }
            _ => log::trace!("connect from {from}"),
        }
    }

    #[cold]
    fn log_refusal(&self, refusal: Refusal, bytes: usize, source: SocketAddr) {
        let from = self.name_of(source);
        log::debug!("refused ({}): {bytes} bytes from {from}", refusal.name());
    }

    /// A client's address, unless logs are to be without.
    fn name_of(&self, source: SocketAddr) -> String {
        if self.log_addresses { source.to_string() } else { "a client".to_owned() }
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
