//! The expected replies of a tracker, computed naively: maps, without regard to speed.
//!
//! Results that depend on the implementation are ranges: the selection of peers in a list, the time
//! after its lifetime at which an expired peer is removed, and the order of requests in flight at
//! the same time. All else must be equal.
//!
//! Results that the tracker draws or approximates are in doubt until nothing is in flight: which
//! peer a newcomer to a full shard replaces, and whether a newcomer is taken for one of a source
//! that has reached its limit. Then the model compares what is stored, and continues from that.

mod audit;
mod newcomers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use onrush_proto::response::Peers;
use onrush_proto::{
    Announce, Endpoint, Event, Family, InfoHash, Request, Response, Scrape, ScrapeCounts,
    TransactionId,
};
use onrush_swarm::ShardMap;
use onrush_tracker::access::AccessList;
use onrush_tracker::limits::AnnounceSettings;
use onrush_tracker::refusal::Refusal;
use onrush_tracker::rules::Rules;

use super::clock::Time;
use super::coverage::Coverage;
use super::history::{Doubt, History, Possible, Sequence, State};
use super::ids::IssuedIds;
use super::limits::{Count, Created, Limits, blocks};
use super::socket::Passed;
use audit::Scope;

/// The longest time for which a worker takes no turn, seconds.
pub(crate) const LONGEST_STALL: u64 = 15;

/// Seconds after its lifetime within which a peer must be removed: two sweeps of the whole shard
/// (an eighth of the lifetime each, at most 120 s), the resolution of stored ages, and a stall. One
/// sweep may have passed the peer just before its end, as the first one, and the next may reach it
/// last, as its swarm has taken the place of a removed one.
fn slack(lifetime: i64) -> i64 {
    2 * (lifetime / 8).clamp(1, 120) + 24 + LONGEST_STALL as i64
}

/// A naive tracker.
pub(crate) struct Model {
    /// The rules in force.
    pub(crate) rules: Rules,
    limits: Limits,
    map: ShardMap,
    /// The rules so far: since which datagram and second.
    eras: Vec<(Sequence, u64, AnnounceSettings)>,
    ids: IssuedIds,
    swarms: BTreeMap<InfoHash, Swarm>,
    /// Swarms that a removal in progress may remove at any time.
    doubtful: BTreeSet<InfoHash>,
    /// Swarms that were refused when the changes of an upgrade arrived, and did not get them.
    outdated: BTreeSet<InfoHash>,
    /// Whether one of them is permitted again: it has the peers of the dump, which are unknown.
    pub(crate) beyond: bool,
    created: Created,
    /// Swarms that a source may have completed: it counts once.
    completions: BTreeSet<(InfoHash, Vec<u8>)>,
    /// When the process that serves has started, in seconds of the run.
    started: u64,
    /// Shards in which some peers are in doubt for other reasons than their age.
    pub(crate) in_doubt: BTreeSet<usize>,
    /// Newcomers that were not stored, and peers that were replaced.
    unstored: Count,
    /// Excess over a limit since an upgrade, which limits neither shards nor sources.
    inherited: BTreeMap<Scope, u64>,
    /// Shards that have had no audit since an upgrade.
    merged: BTreeSet<usize>,
    /// Whether `unstored` is unknown since an upgrade.
    recounts: bool,
    /// Requests without a reply, in the order of their arrival.
    pending: Vec<Pending>,
    sequence: Sequence,
    /// The datagram with which an upgrade in progress has begun.
    upgrading_since: Option<Sequence>,
    /// Whether the successor serves, and has not got the changes since then.
    incomplete: bool,
    /// Requests so far.
    requests: u64,
    /// Replies, requests refused as busy, invalid ids, late replies, misjudged newcomers.
    pub(crate) coverage: Coverage,
}

#[derive(Default)]
struct Swarm {
    /// The least and the greatest number of completed downloads.
    completed: (u32, u32),
    /// The least number when an upgrade began.
    dumped: u32,
    peers: BTreeMap<Endpoint, History>,
    /// When it was last removed as a whole.
    removed: Option<Sequence>,
    /// When one of its peers was last found missing after a removal of the swarm.
    lost: Option<Sequence>,
}

/// A request that waits for its reply.
struct Pending {
    arrival: Sequence,
    second: u64,
    from: SocketAddr,
    transaction: TransactionId,
    kind: Kind,
}

enum Kind {
    Announce(Asked),
    /// The info hashes, whether each is served, and the least `completed` at arrival.
    Scrape(Vec<(InfoHash, bool, u32)>),
}

/// An announce.
#[derive(Clone, Copy)]
struct Asked {
    arrival: Sequence,
    second: u64,
    hash: InfoHash,
    announcer: Endpoint,
    seeder: bool,
    stop: bool,
    want: usize,
    /// Whether it certainly counts as completed, and whether it may.
    completes: (bool, bool),
}

/// A reply that is due in the turn of its request.
enum AtOnce {
    Connect,
    Error(&'static str),
}

impl Model {
    pub(crate) fn new(rules: &Rules, limits: Limits, map: ShardMap, validity: u32) -> Self {
        Self {
            rules: rules.clone(),
            limits,
            map,
            eras: vec![(0, 0, rules.announce.clone())],
            ids: IssuedIds::new(validity),
            swarms: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            outdated: BTreeSet::new(),
            beyond: false,
            created: Created::default(),
            completions: BTreeSet::new(),
            started: 0,
            in_doubt: BTreeSet::new(),
            unstored: Count::default(),
            inherited: BTreeMap::new(),
            merged: BTreeSet::new(),
            recounts: false,
            pending: Vec::new(),
            sequence: 0,
            upgrading_since: None,
            incomplete: false,
            requests: 0,
            coverage: Coverage::default(),
        }
    }

    /// New rules are in force, for every datagram that is received from now on.
    pub(crate) fn set_rules(&mut self, rules: &Rules, second: u64) {
        self.eras.push((self.sequence, second, rules.announce.clone()));
        self.rules = rules.clone();
        self.beyond |= self.outdated.iter().any(|hash| rules.access.permits(*hash));
    }

    /// Processes the datagrams that passed the tracker's sockets, in order.
    pub(crate) fn check(&mut self, passed: &[Passed]) -> Result<(), String> {
        let mut at_once: Vec<(SocketAddr, TransactionId, AtOnce)> = Vec::new();
        for Passed { at, client, request, bytes } in passed {
            self.sequence += 1;
            let checked = match request {
                true => {
                    self.requests += 1;
                    let due = self.receive(*client, bytes, *at);
                    at_once.extend(due.map(|(id, due)| (*client, id, due)));
                    Ok(())
                }
                false => self.reply(*client, bytes, *at, &mut at_once),
            };
            checked.map_err(|problem| format!("{problem}\n  {client}: {bytes:02x?}"))?;
        }
        match at_once.first() {
            None => Ok(()),
            Some((client, id, _)) => Err(format!("{client} got no reply to {id:?}")),
        }
    }

    /// Nothing is in flight: requests without a reply were refused as busy.
    pub(crate) fn settle(&mut self) {
        for Pending { arrival, kind, .. } in std::mem::take(&mut self.pending) {
            let Kind::Announce(Asked { announcer, hash, completes, .. }) = kind else {
                self.coverage.busy_scrapes += 1;
                continue;
            };
            self.coverage.busy_announces += 1;
            let swarm = self.swarms.entry(hash).or_default();
            swarm.completed.1 -= u32::from(completes.1);
            if let Some(history) = swarm.peers.get_mut(&announcer) {
                history.refused(arrival);
            }
        }
        if self.upgrading_since.is_none() {
            for swarm in self.swarms.values_mut() {
                swarm.peers.retain(|_, history| !history.settle());
            }
        }
    }

    /// Whether a request waits for its reply.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Processes a request. Returns the reply if it is due at once.
    fn receive(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        at: Time,
    ) -> Option<(TransactionId, AtOnce)> {
        let request = Request::parse(bytes).ok()?;
        let (id, transaction) = match &request {
            Request::Connect(connect) => return Some((connect.transaction_id, AtOnce::Connect)),
            Request::Announce(announce) => (announce.connection_id, announce.transaction_id),
            Request::Scrape(scrape) => (scrape.connection_id, scrape.transaction_id),
        };
        if !self.ids.accepts(id, from.ip(), at.unix) {
            self.coverage.invalid_ids += 1;
            return None;
        }
        let kind = match &request {
            Request::Announce(announce) => self.announce(announce, from, at),
            Request::Scrape(scrape) => self.scrape(scrape),
            Request::Connect(_) => return None,
        };
        match kind {
            Ok(kind) => {
                let (arrival, second) = (self.sequence, at.second);
                self.pending.push(Pending { arrival, second, from, transaction, kind });
                None
            }
            Err(text) => Some((transaction, AtOnce::Error(text))),
        }
    }

    fn scrape(&self, scrape: &Scrape<'_>) -> Result<Kind, &'static str> {
        let known = |hash| self.swarms.get(&hash).map_or(0, |swarm: &Swarm| swarm.completed.0);
        let asked = scrape.info_hashes().take(self.rules.max_hashes);
        let hashes: Vec<_> =
            asked.map(|hash| (hash, self.rules.access.permits(hash), known(hash))).collect();
        match hashes.is_empty() {
            true => Err(Refusal::NoHash.text().expect("an error reply")),
            false => Ok(Kind::Scrape(hashes)),
        }
    }

    fn announce(
        &mut self,
        announce: &Announce<'_>,
        from: SocketAddr,
        at: Time,
    ) -> Result<Kind, &'static str> {
        let hash = announce.info_hash;
        if announce.port == 0 {
            return Err("port cannot be 0");
        }
        if !self.rules.access.permits(hash) {
            return Err("info hash is not allowed on this tracker");
        }
        let announcer = Endpoint::new(from.ip(), announce.port);
        let seeder = announce.left == 0;
        let rules = &self.rules.announce;
        let cap = match announcer.family() {
            Family::V4 => rules.max_peers_v4,
            Family::V6 => rules.max_peers_v6,
        };
        let stop = announce.event == Event::Stopped;
        let want = match announce.num_want {
            _ if stop => 0,
            n if n < 0 => rules.default_peers.min(cap),
            n => n.min(i32::from(cap)) as u16,
        };
        let before = self.possible(hash, announcer, self.sequence, self.sequence, at.second);
        let arrival = self.sequence;
        let swarm = self.swarms.entry(hash).or_default();
        let completes = announce.event == Event::Completed && seeder;
        let known_seeder = before.only() == Some(true) && !self.limits.replaces();
        let [source, _] = blocks(&announcer);
        let first = !completes || self.completions.insert((hash, source));
        let completes = (completes && !before.kinds[1] && first, completes && !known_seeder);
        swarm.completed.1 += u32::from(completes.1);
        let seeder_or_stopped = (!stop).then_some(seeder);
        swarm.peers.entry(announcer).or_default().0.push(State {
            arrival,
            reply: Sequence::MAX,
            seeder: seeder_or_stopped,
            // Until the reply, it may be served at any time.
            seen: (at.second as i64, i64::MAX),
            doubt: None,
        });
        let (want, second) = (usize::from(want), at.second);
        let asked = Asked { arrival, second, hash, announcer, seeder, stop, want, completes };
        Ok(Kind::Announce(asked))
    }

    /// Compares a reply.
    fn reply(
        &mut self,
        to: SocketAddr,
        bytes: &[u8],
        at: Time,
        at_once: &mut Vec<(SocketAddr, TransactionId, AtOnce)>,
    ) -> Result<(), String> {
        self.coverage.replies += 1;
        let family = Family::of(to.ip());
        let reply = Response::parse(bytes, family).map_err(|bad| format!("{bad:?}"))?;
        let id = reply.transaction_id();
        if let Some(place) =
            at_once.iter().position(|(client, other, _)| (*client, *other) == (to, id))
        {
            return match (at_once.remove(place).2, reply) {
                (AtOnce::Connect, Response::Connect(response)) => {
                    self.ids.issue(response.connection_id, to.ip(), at.unix)
                }
                (AtOnce::Error(text), Response::Error(_, received))
                    if text.as_bytes() == received =>
                {
                    Ok(())
                }
                (_, reply) => Err(format!("unexpected reply: {reply:?}")),
            };
        }
        let waits = |it: &Pending| (it.from, it.transaction) == (to, id);
        let Some(place) = self.pending.iter().position(waits) else {
            return Err("a reply without a request".into());
        };
        let Pending { arrival, second, kind, .. } = self.pending.remove(place);
        self.coverage.late_replies += u64::from(at.second > second);
        self.displace_by_pending(at);
        match (kind, reply) {
            (Kind::Scrape(hashes), Response::Scrape(_, counts)) => {
                if counts.len() != hashes.len() {
                    return Err(format!("{} counts for {} hashes", counts.len(), hashes.len()));
                }
                hashes
                    .iter()
                    .zip(counts.iter())
                    .try_for_each(|(asked, counts)| self.scraped(*asked, &counts, arrival, at))
            }
            (Kind::Announce(asked), Response::Announce(head, peers)) => {
                self.compare_interval(head.interval, arrival, second)?;
                let own = self.take_effect(&asked, at);
                if swarm_removed_since(self.swarms.get(&asked.hash), arrival) {
                    return Ok(());
                }
                let own = Some((asked.announcer, own));
                let counts = (head.leechers, head.seeders);
                self.compare_counts(asked.hash, own, counts, arrival, at)?;
                self.compare_peers(&asked, &peers, at)
            }
            (_, reply) => Err(format!("unexpected reply: {reply:?}")),
        }
    }

    /// The interval is one that was in force between the arrival and now, give or take its jitter.
    fn compare_interval(&self, found: u32, arrival: Sequence, second: u64) -> Result<(), String> {
        let mut expected = Vec::new();
        for (since, at, rules) in self.eras.iter().rev() {
            let interval = u64::from(rules.interval);
            let jitter = interval * u64::from(rules.interval_jitter_percent) / 100;
            expected.push(interval - jitter..=interval + jitter);
            // A worker that has stalled takes new rules later.
            if *since < arrival && at + LONGEST_STALL < second {
                break;
            }
        }
        match expected.iter().any(|range| range.contains(&u64::from(found))) {
            true => Ok(()),
            false => Err(format!("interval {found}, expected {expected:?}")),
        }
    }

    fn scraped(
        &self,
        (hash, permitted, completed): (InfoHash, bool, u32),
        counts: &ScrapeCounts,
        arrival: Sequence,
        at: Time,
    ) -> Result<(), String> {
        if !permitted {
            let zeros = [counts.leechers, counts.seeders, counts.completed] == [0; 3];
            return zeros.then_some(()).ok_or_else(|| format!("{hash:?} is refused: {counts:?}"));
        }
        if swarm_removed_since(self.swarms.get(&hash), arrival) {
            return Ok(());
        }
        self.compare_counts(hash, None, (counts.leechers, counts.seeders), arrival, at)?;
        let (least, most) = self.completed(hash);
        within("completed", counts.completed, least.min(completed), most)
    }

    /// The least and the greatest number of completed downloads.
    fn completed(&self, hash: InfoHash) -> (u32, u32) {
        let swarm = self.swarms.get(&hash);
        let (least, most) = swarm.map_or((0, 0), |swarm| swarm.completed);
        match (self.doubtful.contains(&hash), swarm) {
            (true, _) => (0, most),
            (false, Some(swarm)) if self.incomplete => (swarm.dumped, most),
            _ => (least, most),
        }
    }

    /// Possible states of a peer between two datagrams.
    fn possible(
        &self,
        hash: InfoHash,
        endpoint: Endpoint,
        from: Sequence,
        to: Sequence,
        second: u64,
    ) -> Possible {
        let history = self.swarms.get(&hash).and_then(|swarm| swarm.peers.get(&endpoint));
        let Some(history) = history else { return Possible { unknown: true, kinds: [false; 2] } };
        let from = match self.upgrading_since {
            Some(since) if self.incomplete => from.min(since),
            _ => from,
        };
        let mut possible = history.between(from, to, &|seen| self.alive(seen, second));
        possible.unknown |= self.doubtful.contains(&hash);
        possible
    }

    /// Whether a peer that announced at `seen` must be stored at `second`, and whether it may be.
    fn alive(&self, seen: i64, second: u64) -> (bool, bool) {
        let (mut must, mut may) = (true, true);
        for (number, (_, since, rules)) in self.eras.iter().enumerate() {
            let lifetime = i64::from(rules.peer_lifetime);
            let next = self.eras.get(number + 1).map(|(_, next, _)| next);
            let until = *next.unwrap_or(&second) as i64;
            let overdue = seen.saturating_add(lifetime);
            must &= until + next.map_or(0, |_| LONGEST_STALL as i64) <= overdue;
            may &= until <= overdue.max(*since as i64).saturating_add(slack(lifetime));
        }
        (must, may)
    }

    /// Compares the numbers of peers of each kind between `from` and now; `own` is the announcer,
    /// and what it may be.
    fn compare_counts(
        &self,
        hash: InfoHash,
        own: Option<(Endpoint, Possible)>,
        (leechers, seeders): (u32, u32),
        from: Sequence,
        at: Time,
    ) -> Result<(), String> {
        let (mut must, mut may) = ([0; 2], [0; 2]);
        let mut count = |possible: Possible| {
            for (kind, count) in may.iter_mut().enumerate() {
                *count += u32::from(possible.kinds[kind]);
            }
            if let Some(seeder) = possible.only() {
                must[usize::from(seeder)] += 1;
            }
        };
        for endpoint in self.swarms.get(&hash).iter().flat_map(|swarm| swarm.peers.keys()) {
            if own.is_none_or(|(announcer, _)| announcer != *endpoint) {
                count(self.possible(hash, *endpoint, from, self.sequence, at.second));
            }
        }
        own.into_iter().for_each(|(_, possible)| count(possible));
        within("leechers", leechers, must[0], may[0])?;
        within("seeders", seeders, must[1], may[1])
    }

    fn compare_peers(&self, asked: &Asked, peers: &Peers<'_>, at: Time) -> Result<(), String> {
        let Asked { arrival, hash, announcer, seeder, want, .. } = *asked;
        let listed: BTreeSet<Endpoint> = peers.iter().collect();
        if listed.len() != peers.len() {
            return Err("a peer is listed twice".into());
        }
        let mut must = 0;
        let mut may = BTreeSet::new();
        for endpoint in self.swarms.get(&hash).iter().flat_map(|swarm| swarm.peers.keys()) {
            let connectable = *endpoint != announcer
                && endpoint.family() == announcer.family()
                && endpoint.port() != 1;
            let possible = self.possible(hash, *endpoint, arrival, self.sequence, at.second);
            // A seeder needs no seeders.
            if connectable && (possible.kinds[0] || possible.kinds[1] && !seeder) {
                may.insert(*endpoint);
                let needed = match seeder {
                    true => possible.only() == Some(false),
                    false => !possible.unknown,
                };
                must += usize::from(needed);
            }
        }
        if let Some(unexpected) = listed.difference(&may).next() {
            return Err(format!("{unexpected:?} does not belong in the list"));
        }
        let (must, may) = (must.min(want) as u32, may.len().min(want) as u32);
        within("peers listed", listed.len() as u32, must, may)
    }

    /// A removal of the swarms that `access` refuses has begun, or may begin at any time.
    pub(crate) fn begin_removal(&mut self, refused: impl Fn(InfoHash) -> bool) {
        self.doubtful.extend(self.swarms.keys().filter(|hash| refused(**hash)));
    }

    /// All removals have ended. What is refused is gone; what is permitted again may be.
    pub(crate) fn end_removals(&mut self, access: &Arc<AccessList>) {
        self.in_doubt.extend(self.doubtful.iter().map(|hash| self.map.shard_of(hash)));
        self.outdated.clear();
        for hash in std::mem::take(&mut self.doubtful) {
            let swarm = self.swarms.entry(hash).or_default();
            (swarm.completed.0, swarm.dumped) = (0, 0);
            // It remains unknown if these were replaced before.
            let in_doubt = swarm.peers.values().filter(|peer| peer.in_doubt_before(Sequence::MAX));
            self.unstored.most += in_doubt.count() as u64;
            let upgrading = self.upgrading_since.is_some();
            if !access.permits(hash) {
                swarm.removed = Some(self.sequence);
            }
            match access.permits(hash) || upgrading {
                // The successor of an upgrade may have it from the dump.
                true => swarm.peers.values_mut().for_each(|peer| peer.doubt(Doubt::Lost)),
                false => {
                    *swarm = Swarm { removed: Some(self.sequence), ..Swarm::default() };
                }
            }
        }
    }

    /// An upgrade begins: another process may serve with the peers as they are now, or later.
    pub(crate) fn begin_upgrade(&mut self) {
        self.upgrading_since = Some(self.sequence);
        self.swarms.values_mut().for_each(|swarm| swarm.dumped = swarm.completed.0);
    }

    /// The other process, which has `started` then, serves without the changes since. Peers count
    /// as up to `older` seconds older than they are.
    pub(crate) fn begin_merge(&mut self, older: i64, started: u64) {
        (self.incomplete, self.recounts) = (true, true);
        self.merged.extend(0..usize::from(self.map.shards()));
        self.started = started;
        self.created.doubt();
        self.doubt_upgraded();
        let swarms = self.swarms.values_mut();
        swarms.flat_map(|swarm| swarm.peers.values_mut()).for_each(|peer| peer.age(older));
    }

    /// The changes have arrived, or the upgrade has failed.
    pub(crate) fn end_upgrade(&mut self) {
        if self.incomplete {
            self.doubt_upgraded();
            self.outdated.clone_from(&self.doubtful);
            self.beyond |= self.outdated.iter().any(|hash| self.rules.access.permits(*hash));
        }
        self.upgrading_since = None;
        self.incomplete = false;
    }
}

fn swarm_removed_since(swarm: Option<&Swarm>, arrival: Sequence) -> bool {
    swarm.and_then(|swarm| swarm.removed).is_some_and(|removed| removed >= arrival)
}

fn within<N: Copy + PartialOrd + Display>(
    what: &str,
    found: N,
    least: N,
    most: N,
) -> Result<(), String> {
    match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(format!("{what}: {found}, expected {least} to {most}")),
    }
}
