//! Putting back what a walk has shown: of this shard or of others, a while ago or just now, into an empty shard
//! or beside what has come since.
//!
//! Whatever is restored twice, or comes again in the meantime, is there once: of two sightings of a peer
//! the younger one counts, of two numbers of `completed` the greater. So the order in which swarms and their pieces
//! are restored does not matter, but for that of idle ones (see [`Shard::restore_idle`]).

use onrush_proto::{Endpoint, InfoHash};

use crate::peers::{Announcer, Expiry, Peers, Stamp, Tick};
use crate::shard::{PeerView, Shard};
use crate::swarm::Swarm;
use crate::time::Moment;

/// What became of the peers of a [`Shard::restore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// They are stored, or were already.
    pub stored: u64,
    /// Their lifetime is over.
    pub expired: u64,
    /// There is no room for them.
    pub full: u64,
    /// Where all of them were too old and the swarm is not there or has no peers: the seconds since the last would have
    /// been forgotten. Such a swarm may be kept for its `completed` by [`Shard::restore_idle`], when its turn
    /// comes. A sum has none.
    pub idle_for: Option<u32>,
}

impl std::ops::AddAssign for Restored {
    fn add_assign(&mut self, other: Self) {
        self.stored += other.stored;
        self.expired += other.expired;
        self.full += other.full;
    }
}

/// A peer that has stopped, as [`Shard::departures`] tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its swarm.
    pub info_hash: InfoHash,
    /// Where it was.
    pub endpoint: Endpoint,
    /// The swarm's `completed` at that time.
    pub completed: u32,
    /// When it stopped.
    pub at: Moment,
}

/// Departures that are written down at most.
const MOST_DEPARTURES: usize = 1 << 20;

/// Who has stopped since it is written down.
#[derive(Debug, Default)]
pub(crate) struct Departures(Vec<Departure>);

impl Departures {
    pub(crate) fn note(
        &mut self,
        info_hash: InfoHash,
        endpoint: Endpoint,
        completed: u32,
        at: Moment,
    ) {
        if self.0.len() < MOST_DEPARTURES {
            self.0.push(Departure { info_hash, endpoint, completed, at });
        }
    }
}

impl Shard {
    /// Puts a swarm back, or a piece of one, with the peers whose lifetime is not over. Takes some 0.2 us and as much
    /// again for each peer beyond the second.
    ///
    /// A swarm whose peers are all too old is not there: [`Restored::idle_for`] tells for how long it would have
    /// been without any.
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
            if peer.age > crate::shard::MAX_PEER_LIFETIME {
                restored.expired += 1;
                continue;
            }
            let stamp = Stamp::new(Tick::of(now).ago(peer.age), peer.seeder);
            if expiry.is_over(stamp) {
                restored.expired += 1;
            } else if self.restore_peer(info_hash, &mut place, &peer.endpoint, stamp, now) {
                restored.stored += 1;
            } else {
                restored.full += 1;
            }
        }
        let mut without_peers = true;
        if let Some(place) = place {
            let swarm = self.store.get_mut(place);
            swarm.completed = swarm.completed.max(completed);
            without_peers = swarm.peers.is_empty();
        }
        if without_peers && youngest < u32::MAX && restored.full == 0 {
            restored.idle_for = Some(youngest.saturating_sub(self.settings.peer_lifetime));
        }
        restored
    }

    /// Puts back a swarm that has no peers, for its `completed`. Those that were idle for longest come
    /// first: one that comes later counts as idle no longer than those before it. Returns whether it is
    /// there now; it is not without a `completed`, after its time, or without room.
    pub fn restore_idle(
        &mut self,
        info_hash: InfoHash,
        completed: u32,
        idle_for: u32,
        now: Moment,
    ) -> bool {
        let since = Moment(now.0.saturating_sub(idle_for));
        if let Some(place) = self.store.find(&info_hash) {
            let swarm = self.store.get_mut(place);
            swarm.completed = swarm.completed.max(completed);
            // Of a swarm that comes in pieces the one that lost its last peer last counts.
            if let Peers::Idle(idle) = swarm.peers
                && idle.since < since
            {
                self.store.rouse(place);
                self.retire_behind(place, since);
            }
            return true;
        }
        let over = idle_for >= self.settings.completed_retention;
        let full = self.store.idle() as u64 >= self.settings.max_idle_swarms;
        if completed == 0 || over || full {
            return false;
        }
        let place = self.store.len() as u32;
        let peers = Peers::Inline4 { len: 0, rows: [[0; 8]; 2] };
        self.store.add(Swarm { info_hash, completed, peers });
        self.retire_behind(place, since);
        true
    }

    /// Puts a swarm at the end of the queue of idle ones, which is in order of age.
    fn retire_behind(&mut self, place: u32, since: Moment) {
        let since = self.store.newest_idle().map_or(since, |newest| newest.max(since));
        self.store.retire(place, since);
    }

    /// Whether the peer is stored.
    fn restore_peer(
        &mut self,
        info_hash: InfoHash,
        place: &mut Option<u32>,
        endpoint: &Endpoint,
        stamp: Stamp,
        now: Moment,
    ) -> bool {
        let may_join = self.totals.peers() < self.settings.max_peers;
        let Some(place) = *place else {
            if may_join {
                *place = Some(self.store.len() as u32);
                let peers = Peers::one(endpoint, stamp);
                self.store.add(Swarm { info_hash, completed: 0, peers });
                self.totals.joined(endpoint.family(), stamp.seeder());
            }
            return may_join;
        };
        let (swarm, keys) = self.store.with_keys(place);
        let tick = Tick::of(now);
        if let Some(stored) = swarm.peers.stamp(endpoint, keys)
            && tick.since(stored.seen()) <= tick.since(stamp.seen())
        {
            return true;
        }
        if may_join {
            self.store.rouse(place);
        }
        let (swarm, keys) = self.store.with_keys(place);
        let (seen, seeder) = (stamp.seen(), stamp.seeder());
        let found = swarm.peers.announce(Announcer { endpoint, seeder, seen, may_join }, keys);
        match found.before {
            Some(before) => self.totals.turned(endpoint.family(), before, seeder),
            None if may_join => self.totals.joined(endpoint.family(), seeder),
            None => return false,
        }
        true
    }

    /// Writes down from now on who stops, a million at most: what a walk over the peers cannot tell who
    /// has seen them before.
    pub fn note_departures(&mut self) {
        self.departures = Some(Departures::default());
    }

    /// Who has stopped since [`note_departures`](Self::note_departures); no more is written down.
    pub fn departures(&mut self) -> Vec<Departure> {
        self.departures.take().map(|departures| departures.0).unwrap_or_default()
    }

    /// A peer has stopped `age` seconds ago, as was heard elsewhere: it goes, unless it has announced
    /// itself here since, 4 seconds later or more.
    pub fn depart(
        &mut self,
        info_hash: &InfoHash,
        endpoint: &Endpoint,
        completed: u32,
        age: u32,
        now: Moment,
    ) {
        let Some(place) = self.store.find(info_hash) else { return };
        let swarm = self.store.get_mut(place);
        swarm.completed = swarm.completed.max(completed);
        let (swarm, keys) = self.store.with_keys(place);
        let tick = Tick::of(now);
        let Some(stored) = swarm.peers.stamp(endpoint, keys) else { return };
        if u32::from(tick.since(stored.seen())) < age / crate::peers::TICK {
            return;
        }
        let seeder = swarm.peers.remove(endpoint, keys).unwrap_or(stored.seeder());
        let emptied = swarm.peers.is_empty();
        self.totals.left(endpoint.family(), seeder);
        if emptied {
            self.emptied(place, now);
        }
    }
}
