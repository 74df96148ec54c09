//! Comparisons while nothing is in flight: counters, and all that is stored.

use std::collections::BTreeMap;

use onrush_proto::{Endpoint, InfoHash};
use onrush_swarm::SwarmView;
use onrush_swarm::sources::NETWORK_SOURCES;
use onrush_tracker::refusal::{Refusal, UdpRefusal};

use super::super::clock::Time;
use super::super::history::Doubt;
use super::super::limits::{Count, blocks};
use super::{Model, within};

/// Where the peers of a block of addresses are counted: a shard, a swarm if the limit is that of
/// swarms, and the block, which is empty for all addresses.
pub(super) type Scope = (usize, Option<InfoHash>, Vec<u8>);

impl Model {
    /// Compares what some shards store, by number, with what they should, and the number of
    /// newcomers that all shards have not stored and of peers that they have replaced.
    pub(crate) fn audit(
        &mut self,
        shards: &[(usize, Vec<SwarmView>)],
        unstored: u64,
        at: Time,
    ) -> Result<(), String> {
        for (shard, swarms) in shards {
            let mut stored = BTreeMap::new();
            for swarm in swarms {
                let hash = swarm.info_hash;
                if self.map.shard_of(&hash) != *shard || stored.insert(hash, swarm).is_some() {
                    return Err(format!("{hash:?} is stored twice, or in the wrong shard"));
                }
            }
            let swarms_of_shard = self.swarms.keys().filter(|it| self.map.shard_of(it) == *shard);
            for hash in swarms_of_shard.copied().collect::<Vec<_>>() {
                let audited = self.audit_swarm(hash, stored.remove(&hash), at);
                audited.map_err(|problem| format!("{hash:?}: {problem}"))?;
            }
            if let Some(hash) = stored.keys().next() {
                return Err(format!("{hash:?} is stored, and was never announced"));
            }
            self.audit_limits(*shard, swarms)?;
            if !self.incomplete {
                self.in_doubt.remove(shard);
                self.merged.remove(shard);
            }
        }
        self.audit_totals(unstored)
    }

    fn audit_swarm(
        &mut self,
        hash: InfoHash,
        found: Option<&SwarmView>,
        at: Time,
    ) -> Result<(), String> {
        let completed = found.map_or(0, |swarm| swarm.completed);
        let (least, most) = self.completed(hash);
        within("completed", completed, least, most)?;
        let found = found.iter().flat_map(|swarm| &swarm.peers);
        let mut found: BTreeMap<_, _> = found.map(|peer| (peer.endpoint, peer.seeder)).collect();
        // Every request so far has taken effect.
        let next = self.sequence + 1;
        for endpoint in self.swarms[&hash].peers.keys().copied().collect::<Vec<_>>() {
            let possible = self.possible(hash, endpoint, next, next, at.second);
            let stored = found.remove(&endpoint);
            if !stored.map_or(possible.unknown, |seeder| possible.kinds[usize::from(seeder)]) {
                return Err(format!("{endpoint:?} is stored as {stored:?}, expected {possible:?}"));
            }
            if !self.incomplete {
                self.resolve(hash, endpoint, stored.is_some(), at.second);
            }
        }
        if let Some(endpoint) = found.keys().next() {
            return Err(format!("{endpoint:?} is stored, and should be unknown"));
        }
        if self.upgrading_since.is_none() && !self.doubtful.contains(&hash) {
            self.swarms.entry(hash).or_default().completed = (completed, completed);
        }
        Ok(())
    }

    /// It has become certain whether a peer in doubt is stored.
    fn resolve(&mut self, hash: InfoHash, endpoint: Endpoint, stored: bool, second: u64) {
        let now = self.sequence;
        let swarm = self.swarms.entry(hash).or_default();
        let history = swarm.peers.entry(endpoint).or_default();
        let Some((doubt, state)) = history.resolve(stored, now) else { return };
        if stored || state.seeder.is_none() {
            return;
        }
        if doubt == Doubt::Lost {
            swarm.lost = Some(now);
            return;
        }
        // It may also have expired, or have been removed with its swarm.
        let alive = self.alive(state.seen.0, second).0 && !self.doubtful.contains(&hash);
        self.unstored.add(alive);
        self.coverage.misjudged += u64::from(alive && doubt == Doubt::Misjudged);
    }

    /// No shard stores more peers than its share, and no source more than its limit, except for
    /// what an upgrade has brought: no newcomer is added to that.
    fn audit_limits(&mut self, shard: usize, swarms: &[SwarmView]) -> Result<(), String> {
        let peers = swarms.iter().map(|swarm| swarm.peers.len() as u64).sum::<u64>();
        let all = (shard, None, Vec::new());
        let mut counts: BTreeMap<Scope, (u64, u64)> =
            BTreeMap::from([(all, (peers, self.limits.peers))]);
        for swarm in swarms {
            let scopes =
                [(Some(swarm.info_hash), self.limits.per_swarm), (None, self.limits.of_source)];
            for (scope, limit) in scopes.into_iter().filter(|(_, limit)| *limit > 0) {
                for endpoint in swarm.peers.iter().map(|peer| peer.endpoint) {
                    for (block, sources) in blocks(&endpoint).into_iter().zip([1, NETWORK_SOURCES])
                    {
                        let count =
                            counts.entry((shard, scope, block)).or_insert((0, limit * sources));
                        count.0 += 1;
                    }
                }
            }
        }
        let mut inherited = BTreeMap::new();
        for (scope, (count, limit)) in counts.into_iter().filter(|(_, (count, most))| count > most)
        {
            let before = self.inherited.get(&scope).copied().unwrap_or(limit);
            if count > before && !self.merged.contains(&shard) {
                return Err(format!("{count} peers in {scope:?}, and the limit is {limit}"));
            }
            inherited.insert(scope, count);
        }
        self.inherited.retain(|scope, _| scope.0 != shard);
        self.inherited.extend(inherited);
        Ok(())
    }

    /// Newcomers that were not stored, and peers that were replaced, are counted.
    fn audit_totals(&mut self, found: u64) -> Result<(), String> {
        if self.recounts {
            // The process that serves has begun to count in the middle of an upgrade.
            self.unstored = Count { least: found, most: found };
            self.recounts = self.incomplete;
        }
        within("not stored or replaced", found, self.unstored.least, self.unstored.most)
    }

    /// Compares the counters of all processes with the datagrams that passed.
    pub(crate) fn compare_counters(
        &self,
        received: u64,
        replies: u64,
        refused: &dyn Fn(Result<Refusal, UdpRefusal>) -> u64,
    ) -> Result<(), String> {
        let equal = |what: &str, found: u64, expected: u64| within(what, found, expected, expected);
        equal("datagrams received", received, self.requests)?;
        let seen = &self.coverage;
        equal("replies", replies, seen.replies)?;
        let busy = seen.busy_announces + seen.busy_scrapes;
        equal("refused as busy", refused(Ok(Refusal::Busy)), busy)?;
        equal("invalid ids", refused(Err(UdpRefusal::ConnectionId)), seen.invalid_ids)?;
        let silent = Refusal::ALL.iter().filter(|refusal| refusal.text().is_none());
        let silent: u64 = silent.map(|refusal| refused(Ok(*refusal))).sum::<u64>()
            + UdpRefusal::ALL.iter().map(|refusal| refused(Err(*refusal))).sum::<u64>();
        equal("answered and refused", replies + silent, received)
    }
}
