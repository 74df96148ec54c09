//! The fixture of a check: info hashes of its own, clients, and the large swarm that several checks
//! read.

use std::net::IpAddr;
use std::sync::OnceLock;

use onrush_proto::{Endpoint, InfoHash};

use crate::exchange::{Client, ExchangeError};
use crate::hashes::{HashPool, Lease};
use crate::message::{AnnounceRequest, STOPPED};
use crate::target::Target;

/// Peers of the large swarm by family: more than fit into one datagram of 1232 bytes (the minimum
/// MTU of IPv6 less headers, RFC 8200, section 5).
const LARGE_SWARM: [u16; 2] = [210, 140];
/// The first port of the large swarm.
const FIRST_PORT: u16 = 20_000;

/// A run of the checks: the target, the info hashes that it serves, and the large swarm.
#[derive(Debug)]
pub struct Session {
    /// The tracker under test.
    pub target: Target,
    /// The info hashes of checks.
    pub(crate) pool: HashPool,
    large_swarm: OnceLock<Result<LargeSwarm, ExchangeError>>,
}

impl Session {
    pub(crate) fn new(target: Target, given: Vec<InfoHash>) -> Self {
        let pool = HashPool::new(given);
        let mut session = Self { target, pool, large_swarm: OnceLock::new() };
        session.target.shares_hashes = session.pool.is_limited();
        if !session.target.address.ip().is_loopback() {
            let sources = session.target.sources.iter().take(2);
            let external = sources.filter_map(|source| Some((*source, session.seen_as(*source)?)));
            session.target.external = external.collect();
        }
        session
    }

    /// A client at `source`.
    fn client(&self, source: IpAddr) -> Result<Client<'_>, ExchangeError> {
        Client::new(&self.target, self.target.address, (source, 0))
    }

    /// The address under which the tracker lists `source`: another one behind a NAT.
    fn seen_as(&self, source: IpAddr) -> Option<IpAddr> {
        let client = self.client(source).ok()?;
        let hash = self.pool.reserved();
        client.announce(&AnnounceRequest::leecher(hash, 40_001)).ok()?;
        let listed = client.announce(&AnnounceRequest::leecher(hash, 40_002)).ok()?.peers;
        listed.iter().find(|peer| peer.port() == 40_001).map(Endpoint::ip)
    }

    /// How the tracker refuses every announce, by an error or by silence; `None` where it serves.
    pub(crate) fn refusal(&self) -> Option<String> {
        let client = self.client(self.target.sources[0]).ok()?;
        client.connect().ok()?;
        let hash = self.pool.reserved();
        match client.announce(&AnnounceRequest::leecher(hash, 40_001)) {
            Err(ExchangeError::Refused { text, .. }) => Some(format!("refuses them: \"{text}\"")),
            Err(ExchangeError::Silence { tries, .. }) => {
                Some(format!("answers none ({tries} sent)"))
            }
            _ => None,
        }
    }

    /// Removes the peers of the large swarm from the tracker. Peers that stay are expired by it.
    pub(crate) fn remove_large_swarm(&self) {
        let Some(Ok(swarm)) = self.large_swarm.get() else { return };
        let Ok(client) = self.client(self.target.sources[0]) else { return };
        let stop = |peer: &Endpoint| {
            AnnounceRequest::leecher(swarm.hash, peer.port()).event(STOPPED).want(0)
        };
        let _ = client.announce_all(&swarm.peers.iter().map(stop).collect::<Vec<_>>());
    }
}

/// The fixture of one check.
#[derive(Debug)]
pub struct Fixture<'s> {
    /// The run that it belongs to.
    pub session: &'s Session,
    /// The tracker under test.
    pub target: &'s Target,
    lease: Lease<'s>,
}

impl<'s> Fixture<'s> {
    pub(crate) fn new(session: &'s Session, lease: Lease<'s>) -> Self {
        Self { session, target: &session.target, lease }
    }

    /// Info hash number `n`, which the tracker serves.
    pub fn hash(&self, n: usize) -> InfoHash {
        self.lease.hash(n)
    }

    /// A leecher of the first info hash.
    pub fn leecher(&self, port: u16) -> AnnounceRequest {
        AnnounceRequest::leecher(self.hash(0), port)
    }

    /// A seeder of the first info hash.
    pub fn seeder(&self, port: u16) -> AnnounceRequest {
        AnnounceRequest::seeder(self.hash(0), port)
    }

    /// Leechers of the first info hash.
    pub fn leechers<const N: usize>(&self, ports: [u16; N]) -> [AnnounceRequest; N] {
        ports.map(|port| self.leecher(port))
    }

    /// Seeders of the first info hash.
    pub fn seeders<const N: usize>(&self, ports: [u16; N]) -> [AnnounceRequest; N] {
        ports.map(|port| self.seeder(port))
    }

    /// A client at the first source address.
    pub fn client(&self) -> Result<Client<'s>, ExchangeError> {
        self.session.client(self.target.sources[0])
    }

    /// A client at the second source address; `None` where there is only one address.
    pub fn second_client(&self) -> Result<Option<Client<'s>>, ExchangeError> {
        let Some(source) = self.target.sources.get(1) else { return Ok(None) };
        self.session.client(*source).map(Some)
    }

    /// The shared large swarm, which its first user announces.
    pub fn large_swarm(&self) -> Result<&'s LargeSwarm, ExchangeError> {
        let session = self.session;
        let swarm = session.large_swarm.get_or_init(|| LargeSwarm::announce(session));
        swarm.as_ref().map_err(Clone::clone)
    }
}

/// A large swarm of leechers.
#[derive(Debug)]
pub struct LargeSwarm {
    /// Its info hash.
    pub hash: InfoHash,
    /// Its peers.
    pub peers: Vec<Endpoint>,
}

impl LargeSwarm {
    fn announce(session: &Session) -> Result<Self, ExchangeError> {
        let hash = session.pool.reserved();
        let client = session.client(session.target.sources[0])?;
        let count = LARGE_SWARM[session.target.family() as usize];
        let ports = FIRST_PORT..FIRST_PORT + count;
        let announce = |port| AnnounceRequest::leecher(hash, port).want(0);
        client.announce_all(&ports.clone().map(announce).collect::<Vec<_>>())?;
        let peers = ports.map(|port| client.endpoint(port)).collect();
        client.keep_peers();
        Ok(Self { hash, peers })
    }
}
