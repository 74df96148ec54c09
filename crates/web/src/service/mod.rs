//! From a request to a shard, or to a reply without one.

pub(crate) mod messages;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use onrush_proto::http::{
    AnnounceQuery, BadQuery, Target, scrape_hashes, write_announce, write_failure, write_scrape,
};
use onrush_proto::scrape::{HASH_LEN, HEAD_LEN};
use onrush_proto::{AnnounceHead, TransactionId};
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::front::Front;
use onrush_tracker::intake::{Admission, AnnounceFields, Source, SourceAddress};
use onrush_tracker::lanes::Ticket;
use onrush_tracker::limits::WebLimits;
use onrush_tracker::metrics::{Counter, WebCounters, WorkerMetrics};
use onrush_tracker::proxies::Proxies;
use onrush_tracker::refusal::{HttpRefusal, Refusal};
use onrush_tracker::rules::Rules;
use onrush_tracker::running::Scheme;
use onrush_tracker::sorter::Exhausted;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::head::Head;
use crate::page::Page;
use crate::response::{FORBIDDEN, OK, Response, TEXT, status};
use crate::tls::Tls;
use crate::websocket::write;
use crate::webtorrent::exchange::{Delivery, Exchange};

/// The transaction id of every request: its ticket identifies it.
const ID: TransactionId = TransactionId(0);
/// Minutes after which a client that was refused as busy asks again (BEP 31).
const RETRY_MINUTES: u32 = 5;
/// The failure reason when no batch is free.
pub(crate) const BUSY: &str = "the tracker is busy";
/// The body of the reply to a request without TLS on a port for HTTPS.
pub(crate) const NO_TLS: &str = "this port serves HTTPS: write https:// in the URL\n";

/// A request that a shard serves, with what its reply needs.
#[derive(Debug)]
pub(crate) enum InFlight {
    /// An announce of this client; whether its peers are a string (BEP 23).
    Announce { client: IpAddr, compact: bool },
    /// A scrape of these info hashes, sorted.
    Scrape(Vec<[u8; HASH_LEN]>),
}

/// How a connection carries its requests: with TLS or without, by WebSocket or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub(crate) scheme: Scheme,
    pub(crate) is_websocket: bool,
}

impl Carrier {
    /// Its place in lists of all of them: those without WebSocket first, without TLS first.
    pub(crate) fn index(self) -> usize {
        usize::from(self.is_websocket) * 2 + usize::from(self.scheme == Scheme::Https)
    }
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Served {
    /// A shard serves it.
    InFlight(InFlight),
    /// The body of the response is written.
    Reply { status: &'static str, content_type: &'static str },
    /// No batch is free for this shard. Nothing was counted: the request waits.
    Exhausted(usize),
    /// It gets no reply, and the connection is closed.
    Close(CloseCause),
}

/// The state by which a worker serves the requests of all its connections.
pub(crate) struct Service {
    pub(crate) front: Front,
    pub(crate) admission: Admission,
    pub(crate) limits: WebLimits,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) replies: Replies,
    page: Page,
    /// TLS, if there are listeners for HTTPS.
    pub(crate) tls: Option<Tls>,
    /// That of the connection that takes steps.
    pub(crate) carrier: Carrier,
    /// The exchange of WebRTC peers, if WebTorrent is on.
    pub(crate) exchange: Option<Exchange>,
    /// Bytes of partial input and unsent output, all connections together.
    pub(crate) buffered: usize,
    /// CPU time that TLS has taken in this turn, in units of one handshake.
    pub(crate) handshake_cost: usize,
    /// Whether each connection ends after the requests that have arrived.
    pub(crate) is_paused: bool,
}

/// The buffers of replies.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) response: Response,
    /// Lists of info hashes for the next scrapes.
    hash_lists: Vec<Vec<[u8; HASH_LEN]>>,
    /// A message to a WebRTC peer.
    pub(crate) text: Vec<u8>,
    /// The intervals of WebRTC peers are drawn from it.
    pub(crate) rng: SmallRng,
}

impl Service {
    pub(crate) fn new(front: Front, rules: &Rules, limits: WebLimits, page: Page) -> Self {
        let (metrics, admission) = (front.metrics.clone(), Admission::new(rules, front.index));
        let replies = Replies::new(front.index as u64);
        Self {
            front,
            admission,
            limits,
            metrics,
            replies,
            page,
            tls: None,
            carrier: Carrier { scheme: Scheme::Http, is_websocket: false },
            exchange: None,
            buffered: 0,
            handshake_cost: 0,
            is_paused: false,
        }
    }

    /// Checks the source of a connection, or of a request on it.
    pub(crate) fn check_source(&self, client: SocketAddr) -> Result<(), Refusal> {
        let incoming = &self.metrics.incoming;
        let port = client.port();
        match client.ip() {
            IpAddr::V4(ip) => self.admission.of(Source { ip, port }, &incoming.v4).source(),
            IpAddr::V6(ip) => self.admission.of(Source { ip, port }, &incoming.v6).source(),
        }
    }

    /// Serves a request, or begins to; announces and scrapes only of a `client` that is known, and
    /// was not blocked meanwhile. An announce without a free batch is refused unless it `may_wait`.
    pub(crate) fn request(
        &mut self,
        head: &Head<'_>,
        client: Option<SocketAddr>,
        ticket: Ticket,
        may_wait: bool,
    ) -> Served {
        let (is_scrape, query) = match Target::parse(head.target) {
            Target::Announce(query) => (false, query),
            Target::Scrape(query) => (true, query),
            Target::Root => {
                self.page.write(head.host, self.carrier.scheme, &mut self.replies.response.body);
                return self.answered("text/html; charset=utf-8");
            }
            Target::Health => {
                self.replies.response.body.extend_from_slice(b"ok\n");
                return self.answered(TEXT);
            }
            Target::Other => return self.refuse_http(HttpRefusal::Path, ""),
        };
        let Some(client) = client else { return self.refuse_http(HttpRefusal::NoClient, "") };
        if let Err(refusal) = self.check_source(client) {
            return self.close(refusal);
        }
        let port = client.port();
        match (client.ip(), is_scrape) {
            (IpAddr::V4(ip), false) => self.announce(query, Source { ip, port }, ticket, may_wait),
            (IpAddr::V6(ip), false) => self.announce(query, Source { ip, port }, ticket, may_wait),
            (IpAddr::V4(ip), true) => self.scrape(query, Source { ip, port }, ticket),
            (IpAddr::V6(ip), true) => self.scrape(query, Source { ip, port }, ticket),
        }
    }

    fn announce<A: SourceAddress>(
        &mut self,
        query: &[u8],
        source: Source<A>,
        ticket: Ticket,
        may_wait: bool,
    ) -> Served {
        let query = match AnnounceQuery::parse(query) {
            Ok(query) => query,
            Err(bad) => return self.refuse_query(bad),
        };
        let checks = self.admission.of(source, self.metrics.incoming.of(A::FAMILY));
        let fields = AnnounceFields {
            info_hash: query.info_hash,
            peer_id: query.peer_id,
            port: query.port,
            seeder: query.seeder,
            event: query.event,
            num_want: query.num_want,
            transaction_id: ID,
        };
        let announce = match checks.check_announce(fields) {
            Ok(announce) => announce,
            Err(refusal) => {
                let text = self.admission.error_text(refusal, Some(query.info_hash));
                write_failure(text.unwrap_or_default(), None, &mut self.replies.response.body);
                return self.refused(refusal);
            }
        };
        match self.front.announce(&announce, ticket) {
            Ok(()) => {}
            Err(Exhausted) if may_wait => {
                return Served::Exhausted(self.front.shard_of(&announce.info_hash));
            }
            Err(Exhausted) => {
                checks.refused(Refusal::Busy);
                return self.refuse_busy();
            }
        }
        checks.count_announce(fields);
        let client = source.ip.into();
        Served::InFlight(InFlight::Announce { client, compact: query.compact })
    }

    fn scrape<A: SourceAddress>(
        &mut self,
        query: &[u8],
        source: Source<A>,
        ticket: Ticket,
    ) -> Served {
        let rules = &self.admission.rules;
        let checks = self.admission.of(source, self.metrics.incoming.of(A::FAMILY));
        let mut hashes = self.replies.hash_lists.pop().unwrap_or_default();
        if let Err(bad) = scrape_hashes(query, rules.max_hashes, &mut hashes) {
            self.replies.recycle(hashes);
            return self.refuse_query(bad);
        }
        // It does not wait: parts of it may be in batches of other shards already.
        if !hashes.is_empty() && self.front.scrape(ID, &hashes, &rules.access, ticket).is_err() {
            checks.refused(Refusal::Busy);
            self.replies.recycle(hashes);
            return self.refuse_busy();
        }
        match checks.scrape(hashes.len()) {
            Ok(()) => Served::InFlight(InFlight::Scrape(hashes)),
            Err(refusal) => {
                self.replies.recycle(hashes);
                let text = self.admission.error_text(refusal, None).unwrap_or_default();
                write_failure(text, None, &mut self.replies.response.body);
                self.refused(refusal)
            }
        }
    }

    fn answered(&self, content_type: &'static str) -> Served {
        answered(self.counters(), self.carrier);
        Served::Reply { status: OK, content_type }
    }

    /// Refuses a request of a tracker's client whose query is invalid.
    fn refuse_query(&mut self, bad: BadQuery) -> Served {
        let refusal = match bad {
            BadQuery::InfoHash => HttpRefusal::InfoHash,
            BadQuery::InfoHashes => HttpRefusal::InfoHashes,
            BadQuery::PeerId => HttpRefusal::PeerId,
            BadQuery::Port => HttpRefusal::PortValue,
        };
        self.refuse_http(refusal, bad.text())
    }

    /// Refuses a request, with this text for its client.
    pub(crate) fn refuse_http(&mut self, refusal: HttpRefusal, text: &str) -> Served {
        let body = &mut self.replies.response.body;
        let status = status(refusal);
        match status {
            Some(status) => _ = write!(body, "{status}\n{text}"),
            None => write_failure(text, None, body),
        }
        self.count_refused(refusal);
        Served::Reply { status: status.unwrap_or(OK), content_type: TEXT }
    }

    /// Counts a refusal of the parser.
    pub(crate) fn count_refused(&self, refusal: HttpRefusal) {
        refused(self.counters(), self.carrier, refusal);
    }

    /// Answers a refused request of a client that shares its connection with others.
    pub(crate) fn forbid(&mut self) -> Served {
        let _ = writeln!(self.replies.response.body, "{FORBIDDEN}");
        Served::Reply { status: FORBIDDEN, content_type: TEXT }
    }

    /// Refuses a request for which no batch is free.
    fn refuse_busy(&mut self) -> Served {
        write_failure(BUSY, Some(RETRY_MINUTES), &mut self.replies.response.body);
        self.refused(Refusal::Busy)
    }

    /// Refuses a request from a source that is not served.
    pub(crate) fn close(&self, refusal: Refusal) -> Served {
        self.refused(refusal);
        Served::Close(cause_of(refusal))
    }

    /// Counts a refusal of admission.
    pub(crate) fn refused(&self, refusal: Refusal) -> Served {
        count_refused(self.counters(), self.carrier, HttpRefusal::ALL.len() + refusal as usize);
        Served::Reply { status: OK, content_type: TEXT }
    }

    /// The number of this web worker among all of them.
    pub(crate) fn worker(&self) -> u16 {
        self.exchange.as_ref().map_or(0, Exchange::number)
    }

    /// The proxies in force.
    pub(crate) fn proxies(&self) -> &Proxies {
        &self.admission.rules.proxies
    }

    pub(crate) fn counters(&self) -> &WebCounters {
        &self.metrics.web
    }
}

impl Replies {
    fn new(seed: u64) -> Self {
        Self {
            response: Response::default(),
            hash_lists: Vec::new(),
            text: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Writes the body of the reply to a request, for which a shard has returned `reply` in wire
    /// form (BEP 15).
    pub(crate) fn write(&mut self, reply: &[u8], request: InFlight) {
        let body = &mut self.response.body;
        match request {
            InFlight::Announce { client, compact } => {
                if let Some((head, peers)) = reply.split_first_chunk() {
                    write_announce(&AnnounceHead::parse(head), peers, client, compact, body);
                }
            }
            InFlight::Scrape(hashes) => {
                write_scrape(&hashes, reply[HEAD_LEN..].as_chunks().0, body);
                self.recycle(hashes);
            }
        }
    }

    /// Appends the message as a frame.
    pub(crate) fn end_message(&mut self, out: &mut Vec<u8>) {
        write::message(&self.text, out);
        self.text.clear();
    }

    /// Keeps the list of a scrape for a later one.
    pub(crate) fn recycle(&mut self, mut hashes: Vec<[u8; HASH_LEN]>) {
        hashes.clear();
        self.hash_lists.push(hashes);
    }
}

/// Counts a request that was answered.
pub(crate) fn answered(counters: &WebCounters, carrier: Carrier) {
    requests(counters, carrier).add(1);
    counters.answered.add(1);
}

/// Counts a request that was refused for a reason that only web workers have.
pub(crate) fn refused(counters: &WebCounters, carrier: Carrier, refusal: HttpRefusal) {
    count_refused(counters, carrier, refusal as usize);
}

/// Counts a refusal by its place in [`HTTP_REFUSALS`](onrush_tracker::metrics::HTTP_REFUSALS).
fn count_refused(counters: &WebCounters, carrier: Carrier, place: usize) {
    requests(counters, carrier).add(1);
    counters.refused()[carrier.index()][place].add(1);
}

/// Counts a request whose connection was closed before the reply.
pub(crate) fn abandoned(counters: &WebCounters, carrier: Carrier) {
    requests(counters, carrier).add(1);
    counters.abandoned.add(1);
}

/// Counts an offer or an answer that its peer does not get.
pub(crate) fn dropped<T>(counters: &WebCounters, delivery: &Delivery<T>) {
    match delivery {
        Delivery::Offer { .. } => counters.webrtc_offers_dropped.add(1),
        Delivery::Answer { .. } => counters.webrtc_answers_dropped.add(1),
        _ => {}
    }
}

fn requests(counters: &WebCounters, carrier: Carrier) -> &Counter {
    let WebCounters { requests, https_requests, ws_requests, wss_requests, .. } = counters;
    [requests, https_requests, ws_requests, wss_requests][carrier.index()]
}

/// Why the connection of a source that is not served is closed.
pub(crate) fn cause_of(refusal: Refusal) -> CloseCause {
    match refusal {
        Refusal::Bogon => CloseCause::Bogon,
        _ => CloseCause::Blocked,
    }
}
