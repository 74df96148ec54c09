//! Which newcomers are stored: the limits of sources, and a fair share of a full shard.
//!
//! A full shard stores a newcomer in place of a peer whose source occupies at least a quarter more
//! than the newcomer's: of some random peers, the one whose source occupies most. Half of these are
//! from random swarms, the others from swarms drawn by their size, so that neither small swarms nor
//! large ones hide a source. Sources that fill the shard have most of these peers, so newcomers of
//! small sources get in, and no source is displaced by one that occupies more.
//!
//! Of a settled peer, the number of its source counts an eighth, those of its network and its block
//! in full. So newcomers that come fast replace each other first, and no block keeps others out. A
//! source loses a sixteenth of its peers per minute at most, in each shard.
//!
//! Where a network has reached its limit in a swarm, a newcomer of the network replaces a peer of
//! the neighbour that has most there, so that neighbours do not keep each other out.

use onrush_proto::{Endpoint, InfoHash};
use rand::Rng;

use super::Shard;
use super::change_log::{ChangeKind, ShardChange};
use crate::batch::Announce;
use crate::keys::SourceHashes;
use crate::peers::Stamp;
use crate::sample;
use crate::sources::{Exceeded, Levels};
use crate::time::Moment;

/// Peers that are drawn for a replacement, of each kind. If sources that occupy more have a share
/// of `s` of the peers of a kind, none of them is drawn with a probability of `(1 - s)^16`.
const DRAWN: usize = 16;
/// A settled peer weighs one in so many of its source's peers. With less, sources that are heavy
/// and settled would keep newcomers out.
const SETTLED_PART: u64 = 8;
/// Draws after which too many swarms are without peers.
const DRAWS: usize = 4 * DRAWN;
/// Swarms that are kept for draws by size.
const KEPT: usize = 64;

/// Some swarms, drawn by their size while sweeps pass over all peers.
#[derive(Debug, Default)]
pub(super) struct PassedSwarms {
    swarms: Vec<InfoHash>,
    /// Peers and swarms passed since the last one was kept.
    passed: u64,
}

impl Shard {
    /// Whether there is space for another peer.
    #[inline]
    pub(super) fn has_space(&self) -> bool {
        self.totals.peers() < self.settings.max_peers
    }

    /// Decides whether a newcomer is stored, in the swarm at `place` or in a new one: returns the
    /// hashes of its source, which are zeros without limits, or counts the refusal. May remove
    /// another peer, and with it a swarm.
    pub(super) fn admit(
        &mut self,
        announce: &Announce,
        place: Option<u32>,
        now: Moment,
    ) -> Option<SourceHashes> {
        let endpoint = &announce.endpoint;
        let hashes = self.sources.as_ref().map(|_| self.store.keys.source(endpoint));
        let hashes = hashes.unwrap_or_default();
        let mut replaced = false;
        if let Err(exceeded) = self.check_source(endpoint, hashes, place, now)
            && !self.is_trusted(endpoint)
        {
            *self.totals.exceeded(exceeded) += 1;
            let of_network = place.filter(|_| exceeded == Exceeded::NetworkPerSwarm);
            replaced = of_network.is_some_and(|at| self.replace_neighbour(endpoint, at, now));
            if !replaced {
                return None;
            }
        }
        if !replaced && !self.has_space() && !self.replace_peer(endpoint, hashes, now) {
            self.totals.refused_full += 1;
            return None;
        }
        if place.is_none() {
            self.sources.iter_mut().for_each(|sources| sources.swarm_created(hashes));
        }
        Some(hashes)
    }

    /// The limit that a newcomer exceeds, if any.
    fn check_source(
        &mut self,
        endpoint: &Endpoint,
        hashes: SourceHashes,
        place: Option<u32>,
        now: Moment,
    ) -> Result<(), Exceeded> {
        let Some(sources) = &mut self.sources else { return Ok(()) };
        sources.begin_minute(now);
        let is_over = |levels: &Option<Levels>| levels.iter().any(|it| it.is_over(hashes));
        let [source, network] = place.map_or([false; 2], |place| {
            let peers = &self.store.get(place).peers;
            sources.are_over_in_swarm(peers.len(), || peers.of_source(endpoint, &self.store.keys))
        });
        // A newcomer that exceeds only the last one may replace a peer of its network.
        if place.is_none() && is_over(&sources.new_swarms) {
            Err(Exceeded::NewSwarms)
        } else if source {
            Err(Exceeded::PeersPerSwarm)
        } else if is_over(&sources.peers) {
            Err(Exceeded::Peers)
        } else if network {
            Err(Exceeded::NetworkPerSwarm)
        } else {
            Ok(())
        }
    }

    pub(super) fn is_trusted(&self, endpoint: &Endpoint) -> bool {
        self.trusted.as_ref().is_some_and(|trusted| trusted.contains(endpoint))
    }

    /// Removes a peer whose source occupies more than the newcomer's.
    fn replace_peer(&mut self, newcomer: &Endpoint, hashes: SourceHashes, now: Moment) -> bool {
        let Some((place, endpoint)) = self.replaceable(newcomer, hashes) else { return false };
        if let Some(sources) = &mut self.sources {
            sources.peer_replaced(self.store.keys.source(&endpoint));
        }
        self.totals.replaced += 1;
        self.remove_replaced(place, endpoint, now)
    }

    /// Removes a peer from a swarm in which the newcomer's network has reached its limit.
    fn replace_neighbour(&mut self, newcomer: &Endpoint, place: u32, now: Moment) -> bool {
        let Self { store, sampler, .. } = self;
        let (swarm, keys) = store.with_keys(place);
        let neighbour = swarm.peers.replaceable_neighbour(newcomer, keys, &mut sampler.rng);
        neighbour.is_some_and(|endpoint| {
            !self.is_trusted(&endpoint) && self.remove_replaced(place, endpoint, now)
        })
    }

    /// Removes a peer that a newcomer replaces from the swarm at a place.
    fn remove_replaced(&mut self, place: u32, endpoint: Endpoint, now: Moment) -> bool {
        let (swarm, keys) = self.store.with_keys(place);
        let Some(seeder) = swarm.peers.remove(&endpoint, keys) else { return false };
        let (info_hash, emptied) = (swarm.info_hash, swarm.peers.is_empty());
        let completed = swarm.completed;
        self.peer_removed(&endpoint, seeder);
        let kind = ChangeKind::Replaced { endpoint };
        self.log_replaced(ShardChange { info_hash, at: now, completed, kind });
        if emptied {
            self.emptied(place, now);
        }
        true
    }

    /// The peer to replace, with the place of its swarm: of the drawn ones, the one whose source
    /// occupies most.
    fn replaceable(
        &mut self,
        newcomer: &Endpoint,
        hashes: SourceHashes,
    ) -> Option<(u32, Endpoint)> {
        let own = match self.is_trusted(newcomer) {
            true => 0,
            false => self.sources.as_ref()?.weight(hashes, 1)?,
        };
        // A quarter more: sources that occupy about the same would otherwise replace each other's
        // peers, since weights are not exact.
        let (mut most, mut chosen) = (own + own / 4 + 1, None);
        let mut drawn = 0;
        for _ in 0..DRAWS {
            // Peers of removed swarms are counted until they are released, so a full shard may have
            // no swarm.
            if drawn == DRAWN || self.store.len() == 0 {
                break;
            }
            let by_number = sample::scale(self.sampler.rng.next_u32(), self.store.len()) as u32;
            let Some(first) = self.draw(by_number) else { continue };
            drawn += 1;
            let slot = sample::scale(self.sampler.rng.next_u32(), KEPT);
            let by_size = self.passed.swarms.get(slot);
            let by_size = by_size.and_then(|info_hash| self.store.find(info_hash));
            let second = by_size.and_then(|place| self.draw(place));
            for (place, (endpoint, stamp)) in [Some(first), second].into_iter().flatten() {
                let hashes = self.store.keys.source(&endpoint);
                let sources = self.sources.as_ref()?;
                let part = if stamp.settled() { SETTLED_PART } else { 1 };
                let weight = sources.weight(hashes, part)?;
                if weight > most && sources.may_lose(hashes) && !self.is_trusted(&endpoint) {
                    (most, chosen) = (weight, Some((place, endpoint)));
                }
            }
        }
        chosen
    }

    /// The place, and a random peer of the swarm there, if it has one.
    fn draw(&mut self, place: u32) -> Option<(u32, (Endpoint, Stamp))> {
        Some((place, self.store.get(place).peers.any(&mut self.sampler.rng)?))
    }

    /// Keeps the swarm at a place for draws, after a sweep has `passed` this much of it: so often
    /// that the kept ones are of a whole pass.
    pub(super) fn pass(&mut self, place: u32, passed: usize) {
        if self.sources.is_none() {
            return;
        }
        let period = (self.settings.max_peers / KEPT as u64).max(1);
        self.passed.passed += passed as u64;
        let times = self.passed.passed / period;
        self.passed.passed %= period;
        let info_hash = self.store.get(place).info_hash;
        for _ in 0..times.min(KEPT as u64) {
            let slot = sample::scale(self.sampler.rng.next_u32(), KEPT);
            match self.passed.swarms.get_mut(slot) {
                Some(kept) => *kept = info_hash,
                None => self.passed.swarms.push(info_hash),
            }
        }
    }
}
