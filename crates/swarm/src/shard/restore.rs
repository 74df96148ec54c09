//! Storing swarms that a walk has shown, of this shard or another one, at any time: into an empty
//! shard, or merged with its current swarms.
//!
//! A peer that is restored twice, or has announced meanwhile, is stored once: the younger sighting
//! of a peer counts, and the greater `completed` of a swarm. So swarms and their parts can be
//! restored in any order, except for idle ones (see [`Shard::restore_idle`]).
//!
//! A restored peer is settled: it was stored before the peers that announce for the first time now.

use onrush_proto::{Endpoint, Event, InfoHash};

use super::change_log::{ChangeKind, ShardChange};
use super::{PeerView, Shard};
use crate::peers::{Announcer, Expiry, Peers, Stamp, Tick};
use crate::store::queue_of;
use crate::swarm::Swarm;
use crate::time::{Moment, TICK};

/// The outcome for the peers of a [`Shard::restore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Stored now or before.
    pub stored: u64,
    /// Not stored because they had expired.
    pub expired: u64,
    /// Not stored because the shard is full.
    pub full: u64,
    /// If all of them had expired and the swarm is unknown or has no peers: the seconds since the
    /// last one would have been removed. [`Shard::restore_idle`] can keep such a swarm for its
    /// `completed`. `None` in a sum.
    pub idle_for: Option<u32>,
}

impl std::ops::AddAssign for Restored {
    fn add_assign(&mut self, other: Self) {
        self.stored += other.stored;
        self.expired += other.expired;
        self.full += other.full;
    }
}

impl Shard {
    /// From now on, restored peers may exceed the ceiling on peers, up to `most` in this shard.
    /// Newcomers are stored below the ceiling only, so the shard returns to it as peers leave. For
    /// peers of shards that divided the info hashes in another way: the caller bounds their sum.
    pub fn reserve_for_restore(&mut self, most: u64) {
        let most = most.min(super::MAX_SWARMS - self.settings.max_idle_swarms);
        self.max_restored = most.max(self.settings.max_peers);
    }

    /// Stores a swarm, or a part of one, with those of its peers that have not expired. Takes some
    /// 0.2 us, and as much again for each peer beyond the second.
    ///
    /// A swarm whose peers have all expired is not stored: [`Restored::idle_for`] is the time for
    /// which it would have been without peers.
    pub fn restore(
        &mut self,
        info_hash: InfoHash,
        completed: u32,
        peers: impl Iterator<Item = PeerView>,
        now: Moment,
    ) -> Restored {
        let expiry = Expiry::new(now, self.settings.peer_lifetime);
        let mut restored = Restored::default();
        let mut place = self.store.find(&info_hash);
        let mut youngest = u32::MAX;
        for peer in peers {
            youngest = youngest.min(peer.age);
            if peer.age > super::MAX_PEER_LIFETIME {
                restored.expired += 1;
                continue;
            }
            let stamp = Stamp::new(Tick::of(now).ago(peer.age), peer.seeder).settle();
            if expiry.is_over(stamp) {
                restored.expired += 1;
            } else if self.restore_peer(info_hash, completed, &mut place, &peer, stamp, now) {
                restored.stored += 1;
            } else {
                restored.full += 1;
            }
        }
        let mut without_peers = true;
        if let Some(place) = place {
            self.raise_completed(place, completed);
            without_peers = self.store.get(place).peers.is_empty();
        }
        if without_peers && youngest < u32::MAX && restored.full == 0 {
            restored.idle_for = Some(youngest.saturating_sub(self.settings.peer_lifetime));
        }
        restored
    }

    /// Stores a swarm without peers for its `completed`. The longest idle swarms must be restored
    /// first: a later one counts as idle for no longer than those before it. Returns whether it is
    /// stored; it is not without a `completed`, after the retention, or if the shard is full.
    pub fn restore_idle(
        &mut self,
        info_hash: InfoHash,
        completed: u32,
        idle_for: u32,
        now: Moment,
    ) -> bool {
        let since = Moment(now.0.saturating_sub(idle_for));
        if let Some(place) = self.store.find(&info_hash) {
            self.raise_completed(place, completed);
            let swarm = self.store.get(place);
            // The part of a swarm that lost its last peer last counts.
            if let Peers::Idle(idle) = swarm.peers
                && idle.since < since
            {
                self.store.activate(place);
                self.make_idle_last(place, since);
            }
            return true;
        }
        let over = idle_for >= self.settings.completed_retention;
        let full = self.store.idle as u64 >= self.settings.max_idle_swarms;
        if completed == 0 || over || full {
            return false;
        }
        let peers = Peers::Inline4 { len: 0, rows: [[0; 8]; 2] };
        let place = self.store.add(Swarm { info_hash, completed, peers });
        self.make_idle_last(place, since);
        true
    }

    /// Raises the `completed` of a swarm, and moves it to its queue if it is idle. Returns whether
    /// it was lower.
    fn raise_completed(&mut self, place: u32, completed: u32) -> bool {
        let swarm = self.store.get_mut(place);
        let rose = completed > swarm.completed;
        swarm.completed = swarm.completed.max(completed);
        if let Peers::Idle(idle) = swarm.peers
            && idle.queue != queue_of(swarm.completed)
        {
            self.store.activate(place);
            self.make_idle_last(place, idle.since);
        }
        rose
    }

    /// Appends a swarm to its queue of idle ones, which is in order of age.
    fn make_idle_last(&mut self, place: u32, since: Moment) {
        let newest = self.store.newest_idle(self.store.get(place).completed);
        let since = newest.map_or(since, |newest| newest.max(since));
        self.store.make_idle(place, since);
    }

    /// Stores a peer unless a younger sighting is stored; false when the shard is full.
    fn restore_peer(
        &mut self,
        info_hash: InfoHash,
        completed: u32,
        place: &mut Option<u32>,
        peer: &PeerView,
        stamp: Stamp,
        now: Moment,
    ) -> bool {
        let PeerView { endpoint, seeder, age } = *peer;
        let may_store = self.totals.peers() < self.max_restored;
        let before = match *place {
            None if may_store => {
                let peers = Peers::single(&endpoint, stamp);
                *place = Some(self.store.add(Swarm { info_hash, completed: 0, peers }));
                None
            }
            None => return false,
            Some(place) => {
                let (swarm, keys) = self.store.with_keys(place);
                let tick = Tick::of(now);
                if let Some(stored) = swarm.peers.stamp(&endpoint, keys)
                    && tick.since(stored.seen()) <= tick.since(stamp.seen())
                {
                    return true;
                }
                if may_store {
                    self.store.activate(place);
                }
                let (swarm, keys) = self.store.with_keys(place);
                let settles = self.sampler.settles;
                let announcer = Announcer { endpoint: &endpoint, stamp, settles, may_store };
                swarm.peers.announce(announcer, keys).before
            }
        };
        match before {
            Some(before) => self.totals.peer_changed(endpoint.family(), before, seeder),
            None if may_store => {
                self.peer_added(&endpoint, self.store.keys.source(&endpoint), seeder)
            }
            None => return false,
        }
        let kind = ChangeKind::Announced { endpoint, seeder, event: Event::None, age };
        self.log_change(|| ShardChange { info_hash, at: now, completed, kind });
        true
    }

    /// Removes a peer that stopped at another tracker `age` seconds ago, unless it announced here
    /// at least 8 seconds later. The swarm's `completed` becomes the greater of the two.
    pub fn remove_peer(
        &mut self,
        info_hash: &InfoHash,
        endpoint: &Endpoint,
        completed: u32,
        age: u32,
        now: Moment,
    ) {
        let Some(place) = self.store.find(info_hash) else { return };
        let rose = self.raise_completed(place, completed);
        let (swarm, keys) = self.store.with_keys(place);
        let tick = Tick::of(now);
        let stored = swarm.peers.stamp(endpoint, keys);
        if stored.is_some_and(|stored| u32::from(tick.since(stored.seen())) < age / TICK) {
            return;
        }
        let removed = swarm.peers.remove(endpoint, keys);
        let (emptied, completed) = (swarm.peers.is_empty(), swarm.completed);
        // A stop that changes nothing is not logged: a reader that applies the stops of its own log
        // would read them again without end.
        if rose || removed.is_some() {
            let kind = ChangeKind::Stopped { endpoint: *endpoint };
            self.log_change(|| ShardChange { info_hash: *info_hash, at: now, completed, kind });
        }
        let Some(seeder) = removed else { return };
        self.peer_removed(endpoint, seeder);
        if emptied {
            self.emptied(place, now);
        }
    }
}
