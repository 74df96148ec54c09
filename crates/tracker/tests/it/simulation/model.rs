//! The expected replies of a tracker, computed naively: maps, without regard to speed.
//!
//! Two results depend on the implementation, so the model allows a range: the selection of peers in
//! a list, and the time after its lifetime at which an expired peer is removed. All others must be
//! equal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use onrush_config::Settings;
use onrush_proto::response::Peers;
use onrush_proto::{
    Announce, Endpoint, Event, Family, InfoHash, Request, Response, Scrape, ScrapeCounts,
};
use onrush_tracker::clock::Now;
use onrush_tracker::connection::{ConnectionIds, Keys};

use super::spy::Passed;

/// Seconds after its lifetime within which a peer must be removed: a sweep of the whole shard (an
/// eighth of the lifetime), and the resolution of stored ages.
fn slack(settings: &Settings) -> u64 {
    u64::from(settings.announce.peer_lifetime / 8) + 12
}

/// A naive tracker.
pub(crate) struct Model {
    settings: Settings,
    ids: ConnectionIds,
    swarms: BTreeMap<InfoHash, Swarm>,
    checked: usize,
}

#[derive(Default)]
struct Swarm {
    completed: u32,
    peers: BTreeMap<Endpoint, Peer>,
}

#[derive(Clone, Copy)]
struct Peer {
    seeder: bool,
    last: u64,
}

/// The expected reply to a request.
enum Expected {
    Silence,
    Connect,
    Error(&'static str),
    Announce { announcer: Endpoint, seeder: bool, want: usize, hash: InfoHash },
    Scrape(Vec<InfoHash>),
}

impl Model {
    pub(crate) fn new(settings: &Settings, keys: &Keys) -> Self {
        let ids = ConnectionIds::new(keys, settings.connection.validity);
        Self { settings: settings.clone(), ids, swarms: BTreeMap::new(), checked: 0 }
    }

    /// Number of checked replies.
    pub(crate) fn checked(&self) -> usize {
        self.checked
    }

    /// Processes the datagrams that passed the tracker's sockets at one time.
    pub(crate) fn check(&mut self, passed: &[Passed], now: Now) -> Result<(), String> {
        let mut replies: Vec<(SocketAddr, &[u8])> = Vec::new();
        for datagram in passed {
            if let Passed::Out(to, bytes) = datagram {
                replies.push((*to, bytes));
            }
        }
        for datagram in passed {
            let Passed::In(from, bytes) = datagram else { continue };
            let expected = self.take(*from, bytes, now);
            let transaction = bytes.get(12..16);
            let reply = replies
                .iter()
                .position(|(to, reply)| to == from && reply.get(4..8) == transaction)
                .map(|at| replies.remove(at).1);
            self.compare(&expected, reply, *from, now)
                .map_err(|problem| format!("{problem}\n  request of {from}: {bytes:02x?}"))?;
            self.checked += usize::from(reply.is_some());
        }
        match replies.first() {
            None => Ok(()),
            Some((to, bytes)) => Err(format!("{to} got a reply without a request: {bytes:02x?}")),
        }
    }

    /// Processes one request and returns the expected reply.
    fn take(&mut self, from: SocketAddr, bytes: &[u8], now: Now) -> Expected {
        let request = match Request::parse(bytes) {
            Ok(Request::Connect(_)) => return Expected::Connect,
            Ok(request) => request,
            Err(_) => return Expected::Silence,
        };
        match request {
            Request::Announce(announce) if self.accepts(announce.connection_id, from.ip(), now) => {
                self.announce(&announce, from.ip(), now)
            }
            Request::Scrape(scrape) if self.accepts(scrape.connection_id, from.ip(), now) => {
                Self::scrape(&scrape)
            }
            _ => Expected::Silence,
        }
    }

    fn accepts(&self, id: onrush_proto::ConnectionId, ip: IpAddr, now: Now) -> bool {
        self.ids.accepts(id, ip, now.unix)
    }

    fn scrape(scrape: &Scrape<'_>) -> Expected {
        match scrape.info_hashes().take(74).collect::<Vec<_>>() {
            hashes if hashes.is_empty() => Expected::Error("scrape without an info hash"),
            hashes => Expected::Scrape(hashes),
        }
    }

    fn announce(&mut self, announce: &Announce<'_>, ip: IpAddr, now: Now) -> Expected {
        if announce.port == 0 {
            return Expected::Error("port cannot be 0");
        }
        let hash = announce.info_hash;
        if hash == super::peers::FORBIDDEN {
            return Expected::Error("info hash is not allowed on this tracker");
        }
        let announcer = Endpoint::new(ip, announce.port);
        let seeder = announce.left == 0;
        let cap = match announcer.family() {
            Family::V4 => self.settings.announce.max_peers_v4,
            Family::V6 => self.settings.announce.max_peers_v6,
        };
        let want = match announce.num_want {
            n if n < 0 => self.settings.announce.default_peers.min(cap),
            n => n.min(i32::from(cap)) as u16,
        };
        if announce.event == Event::Stopped {
            if let Some(swarm) = self.swarms.get_mut(&hash) {
                swarm.peers.remove(&announcer);
            }
            return Expected::Announce { announcer, seeder, want: 0, hash };
        }
        let swarm = self.swarms.entry(hash).or_default();
        let last = u64::from(now.moment.0);
        let before = swarm.peers.insert(announcer, Peer { seeder, last });
        let was_seeder = before.is_some_and(|before| before.seeder);
        if announce.event == Event::Completed && seeder && !was_seeder {
            swarm.completed += 1;
        }
        Expected::Announce { announcer, seeder, want: usize::from(want), hash }
    }

    fn compare(
        &mut self,
        expected: &Expected,
        reply: Option<&[u8]>,
        from: SocketAddr,
        now: Now,
    ) -> Result<(), String> {
        let family = Family::of(from.ip());
        let reply = reply
            .map(|bytes| {
                Response::parse(bytes, family).map_err(|bad| format!("{bad:?}: {bytes:02x?}"))
            })
            .transpose()?;
        match (expected, reply) {
            (Expected::Silence, None) => Ok(()),
            (Expected::Connect, Some(Response::Connect(response))) => {
                let good = self.accepts(response.connection_id, from.ip(), now);
                good.then_some(()).ok_or_else(|| "an invalid connection id".into())
            }
            (Expected::Error(text), Some(Response::Error(_, received)))
                if text.as_bytes() == received =>
            {
                Ok(())
            }
            (Expected::Scrape(hashes), Some(Response::Scrape(_, counts))) => {
                if counts.len() != hashes.len() {
                    return Err(format!("{} counts for {} hashes", counts.len(), hashes.len()));
                }
                hashes
                    .iter()
                    .zip(counts.iter())
                    .try_for_each(|(hash, counts)| self.compare_scrape(*hash, &counts, now))
            }
            (
                Expected::Announce { announcer, seeder, want, hash },
                Some(Response::Announce(head, peers)),
            ) => {
                self.compare_counts(*hash, (head.leechers, head.seeders), now)?;
                self.compare_peers(*hash, *announcer, *seeder, *want, &peers, now)
            }
            (_, reply) => Err(format!("unexpected reply: {reply:?}")),
        }
    }

    /// The least and the greatest number of peers of each kind.
    fn counts(&mut self, hash: InfoHash, now: Now) -> ([u32; 2], [u32; 2], u32) {
        let lifetime = u64::from(self.settings.announce.peer_lifetime);
        let (gone, moment) = (lifetime + slack(&self.settings), u64::from(now.moment.0));
        let Some(swarm) = self.swarms.get_mut(&hash) else { return ([0; 2], [0; 2], 0) };
        swarm.peers.retain(|_, peer| moment - peer.last <= gone);
        let (mut must, mut may) = ([0; 2], [0; 2]);
        for peer in swarm.peers.values() {
            let kind = usize::from(peer.seeder);
            may[kind] += 1;
            must[kind] += u32::from(moment - peer.last <= lifetime);
        }
        (must, may, swarm.completed)
    }

    fn compare_counts(
        &mut self,
        hash: InfoHash,
        (leechers, seeders): (u32, u32),
        now: Now,
    ) -> Result<(), String> {
        let (must, may, _) = self.counts(hash, now);
        within("leechers", leechers, must[0], may[0])?;
        within("seeders", seeders, must[1], may[1])
    }

    fn compare_scrape(
        &mut self,
        hash: InfoHash,
        counts: &ScrapeCounts,
        now: Now,
    ) -> Result<(), String> {
        self.compare_counts(hash, (counts.leechers, counts.seeders), now)?;
        let (_, _, completed) = self.counts(hash, now);
        within("completed", counts.completed, completed, completed)
    }

    fn compare_peers(
        &self,
        hash: InfoHash,
        announcer: Endpoint,
        seeder: bool,
        want: usize,
        peers: &Peers<'_>,
        now: Now,
    ) -> Result<(), String> {
        let listed: BTreeSet<Endpoint> = peers.iter().collect();
        if listed.len() != peers.len() {
            return Err("a peer is listed twice".into());
        }
        let lifetime = u64::from(self.settings.announce.peer_lifetime);
        let mut must = 0;
        let mut may = BTreeSet::new();
        for (endpoint, peer) in self.swarms.get(&hash).into_iter().flat_map(|swarm| &swarm.peers) {
            let useful = *endpoint != announcer
                && endpoint.family() == announcer.family()
                && endpoint.port() != 1
                && !(seeder && peer.seeder);
            if useful {
                may.insert(*endpoint);
                must += usize::from(u64::from(now.moment.0) - peer.last <= lifetime);
            }
        }
        if let Some(unexpected) = listed.difference(&may).next() {
            return Err(format!("{unexpected:?} does not belong in the list"));
        }
        within(
            "peers listed",
            listed.len() as u32,
            must.min(want) as u32,
            may.len().min(want) as u32,
        )
    }
}

fn within(what: &str, found: u32, least: u32, most: u32) -> Result<(), String> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!("{what}: {found}, expected {least} to {most}")),
    }
}
