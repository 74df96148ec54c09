//! What checks over HTTP work with: requests, each on a connection of its own, and the peers that
//! they have announced, which are removed at the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::OnceLock;

use onrush_proto::http::client::{write_announce_query, write_scrape_query};
use onrush_proto::{Announce, Event, InfoHash, PeerId};

use super::reply::{Announced, File, Reply, files};
use crate::check::{CheckResult, Finding, demand, difference, differs, fails, skipped};
use crate::hashes::{HashPool, Lease};
use crate::message::{AnnounceRequest, STOPPED};
use crate::tcp::target::TcpTarget;

/// Peers of the shared large swarm: more than the default of any tracker has to list.
pub(super) const CROWD: u16 = 40;
/// The first port of the large swarm.
const FIRST_PORT: u16 = 20_000;

/// A run of the checks over HTTP.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) target: TcpTarget,
    pub(super) pool: HashPool,
    crowd: OnceLock<Result<InfoHash, Finding>>,
}

impl Session {
    pub(super) fn new(target: TcpTarget, given: Vec<InfoHash>) -> Self {
        Self { target, pool: HashPool::new(given), crowd: OnceLock::new() }
    }

    fn http(&self) -> Http<'_> {
        Http::new(self, self.pool.lease(0).expect("no hash is needed"))
    }

    /// How the tracker refuses every announce; `None` where it serves.
    pub(super) fn refusal(&self) -> Option<String> {
        let http = self.http();
        let query = http.query(&AnnounceRequest::leecher(self.pool.reserved(), 40_001));
        match http.get(&http.announce_target(&query)) {
            Ok(reply) => reply.failure().map(|text| format!("refuses them: \"{text}\"")),
            Err(_) => None,
        }
    }

    fn crowd_members(&self, hash: InfoHash) -> impl Iterator<Item = AnnounceRequest> {
        let ports = FIRST_PORT..FIRST_PORT + CROWD;
        ports.map(move |port| AnnounceRequest::leecher(hash, port).want(0))
    }

    /// Removes the peers of the large swarm.
    pub(super) fn remove_crowd(&self) {
        if let Some(Ok(hash)) = self.crowd.get() {
            let http = self.http();
            // They are removed with it.
            self.crowd_members(*hash).for_each(|peer| _ = http.query(&peer));
        }
    }
}

/// What one check works with.
#[derive(Debug)]
pub struct Http<'s> {
    pub(super) session: &'s Session,
    pub(super) target: &'s TcpTarget,
    lease: Lease<'s>,
    joined: RefCell<BTreeSet<(SocketAddr, InfoHash, u16, PeerId)>>,
}

impl<'s> Http<'s> {
    pub(super) fn new(session: &'s Session, lease: Lease<'s>) -> Self {
        Self { session, target: &session.target, lease, joined: RefCell::default() }
    }

    /// Info hash number `n`, which the tracker serves.
    pub(super) fn hash(&self, n: usize) -> InfoHash {
        self.lease.hash(n)
    }

    /// A leecher of the first info hash.
    pub(super) fn leecher(&self, port: u16) -> AnnounceRequest {
        AnnounceRequest::leecher(self.hash(0), port)
    }

    /// A seeder of the first info hash.
    pub(super) fn seeder(&self, port: u16) -> AnnounceRequest {
        AnnounceRequest::seeder(self.hash(0), port)
    }

    /// The target of a request with a query.
    pub(super) fn target(path: &str, query: &str) -> String {
        let mark = match query {
            "" => "",
            _ if path.contains('?') => "&",
            _ => "?",
        };
        format!("{path}{mark}{query}")
    }

    pub(super) fn announce_target(&self, query: &str) -> String {
        Self::target(&self.target.url.announce, query)
    }

    /// The query of an announce, whose peer is removed at the end.
    pub(super) fn query(&self, ask: &AnnounceRequest) -> String {
        self.query_at(self.target.url.address, ask)
    }

    fn query_at(&self, address: SocketAddr, ask: &AnnounceRequest) -> String {
        let Announce { info_hash, port, peer_id, .. } = ask.fields;
        self.joined.borrow_mut().insert((address, info_hash, port, peer_id));
        query(ask)
    }

    /// The text of a GET of HTTP/1.1 with these further fields.
    pub(super) fn request(&self, target: &str, fields: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.target.url.authority)
    }

    /// Sends a request as it is, on a connection of its own, and reads the reply.
    pub(super) fn exchange(&self, request: &[u8]) -> Result<Reply, Finding> {
        let mut connection = self.target.connect()?;
        connection.send(request);
        connection.reply()
    }

    /// A GET on a connection of its own.
    pub(super) fn get(&self, target: &str) -> Result<Reply, Finding> {
        self.exchange(self.request(target, "Connection: close\r\n").as_bytes())
    }

    /// An announce by a query.
    pub(super) fn ask(&self, query: &str) -> Result<Announced, Finding> {
        Announced::read(self.get(&self.announce_target(query))?)
    }

    pub(super) fn announce(&self, ask: &AnnounceRequest) -> Result<Announced, Finding> {
        self.ask(&self.query(ask))
    }

    /// Announces several peers.
    pub(super) fn announce_all<const N: usize>(
        &self,
        asks: [AnnounceRequest; N],
    ) -> Result<(), Finding> {
        asks.iter().try_for_each(|ask| self.announce(ask).map(drop))
    }

    /// An announce at another address of the tracker.
    pub(super) fn announce_at(
        &self,
        address: SocketAddr,
        ask: &AnnounceRequest,
    ) -> Result<Announced, Finding> {
        let query = self.query_at(address, ask);
        let mut connection = self.target.connect_beside(address)?;
        let target = self.announce_target(&query);
        connection.send(self.request(&target, "Connection: close\r\n").as_bytes());
        Announced::read(connection.reply()?)
    }

    /// A scrape of info hashes.
    pub(super) fn scrape_reply(&self, hashes: &[InfoHash]) -> Result<Reply, Finding> {
        let mut query = Vec::new();
        write_scrape_query(hashes.iter().copied(), &mut query);
        self.scrape_by(&String::from_utf8_lossy(&query))
    }

    /// A scrape by a query.
    pub(super) fn scrape_by(&self, query: &str) -> Result<Reply, Finding> {
        match &self.target.url.scrape {
            Some(path) => self.get(&Self::target(path, query)),
            None => Err(skipped("the URL has no `announce` to replace by `scrape` (BEP 48)")
                .expect_err("a finding")),
        }
    }

    pub(super) fn scrape(&self, hashes: &[InfoHash]) -> Result<Vec<(InfoHash, File)>, Finding> {
        files(&self.scrape_reply(hashes)?)
    }

    /// The scraped counts of the first info hash; zeros where the tracker does not know it.
    pub(super) fn counts(&self) -> Result<File, Finding> {
        let reply = self.scrape_reply(&[self.hash(0)])?;
        if reply.failure().is_some() {
            return Ok(File::default());
        }
        let found = files(&reply)?.into_iter().find(|(hash, _)| *hash == self.hash(0));
        Ok(found.map(|(_, file)| file).unwrap_or_default())
    }

    /// Passes where a scrape gives these counts.
    pub(super) fn counted(&self, seeders: i64, leechers: i64) -> CheckResult {
        let found = self.counts()?;
        demand((found.seeders, found.leechers) == (seeders, leechers), || {
            format!("a scrape gives {found:?}, not {seeders} seeders and {leechers} leechers")
        })
    }

    /// Passes where an announce by this query is a failure that a client can read. To serve it is a
    /// difference within the freedom `open`, if there is one.
    pub(super) fn refused(&self, query: &str, open: Option<&'static str>) -> CheckResult {
        refused(&self.get(&self.announce_target(query))?, open)
    }

    /// The info hash of the large swarm, which its first user announces.
    pub(super) fn crowd(&self) -> Result<InfoHash, Finding> {
        let session = self.session;
        let announce = || {
            let hash = session.pool.reserved();
            for peer in session.crowd_members(hash) {
                // It is removed with the session.
                self.ask(&query(&peer))?;
            }
            Ok(hash)
        };
        session.crowd.get_or_init(announce).clone()
    }
}

/// Passes where a reply is a failure that a client can read.
pub(super) fn refused(reply: &Reply, open: Option<&'static str>) -> CheckResult {
    match (reply.failure(), reply.head.status) {
        (Some(text), 200) => demand(!text.is_empty(), || format!("no text: {}", reply.shown())),
        (_, 400..) => Err(difference(
            "BEP 3 has failures as dictionaries, of which clients show the text",
            reply.shown(),
        )),
        _ => match open {
            Some(open) => differs(open, reply.shown()),
            None => fails(reply.shown()),
        },
    }
}

/// The query of an announce.
fn query(ask: &AnnounceRequest) -> String {
    let event = Event::from_wire(ask.event);
    let mut query = Vec::new();
    write_announce_query(&Announce { event, ..ask.fields }, true, &mut query);
    String::from_utf8(query).expect("ASCII")
}

impl Drop for Http<'_> {
    /// Removes the peers. One that stays is expired by the tracker.
    fn drop(&mut self) {
        for (address, info_hash, port, peer_id) in self.joined.take() {
            let mut ask = AnnounceRequest::leecher(info_hash, port).event(STOPPED).want(0);
            ask.fields.peer_id = peer_id;
            let target = self.announce_target(&query(&ask));
            if let Ok(mut connection) = self.target.connect_beside(address) {
                connection.send(self.request(&target, "Connection: close\r\n").as_bytes());
                let _ = connection.reply();
            }
        }
    }
}
