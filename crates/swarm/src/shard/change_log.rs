//! The change log of a shard: what has changed since a reader subscribed, for replicas of the
//! shard.
//!
//! The log exists only while it has readers; without one, a batch costs a branch per 32 requests.
//! Readers are independent: each has a position of its own and takes changes when it likes, usually
//! in a background task between batches. The log is bounded, and readers do not hold it back: when
//! it is full each change replaces the oldest one. A reader that was overtaken learns how many
//! changes it lost ([`Lost`]) and has to read the whole shard again ([`Shard::begin_walk`]).
//!
//! | change | logged when | a replica |
//! |---|---|---|
//! | [`Announced`] | a peer was stored, or announced again | stores the peer |
//! | [`Stopped`] | a peer stopped, known here or not | removes the peer |
//! | [`Replaced`] | a newcomer to the full shard replaced a peer | removes the peer |
//! | [`Expired`] | a sweep removed a peer | removes the peer |
//! | [`SwarmRemoved`] | a swarm was removed by request | removes the swarm |
//!
//! Swarms without peers that expire or are evicted are not logged: how long `completed` is retained
//! is each replica's own setting.
//!
//! [`Announced`]: ChangeKind::Announced
//! [`Stopped`]: ChangeKind::Stopped
//! [`Replaced`]: ChangeKind::Replaced
//! [`Expired`]: ChangeKind::Expired
//! [`SwarmRemoved`]: ChangeKind::SwarmRemoved

use std::sync::Arc;

use onrush_proto::{Endpoint, Event, InfoHash};

use super::Shard;
use crate::batch::Announce;
use crate::steps::Steps;
use crate::time::Moment;
use crate::totals::Totals;

/// The most changes that a log keeps: 56 MiB per shard, allocated as they come.
pub const CAPACITY: usize = 1 << 20;

/// A change of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardChange {
    /// The swarm.
    pub info_hash: InfoHash,
    /// When the change was made.
    pub at: Moment,
    /// The swarm's `completed` after a stop, a completed download, the replacement of a peer (which
    /// may have completed it) or a restore, 0 after other changes: a replica keeps the greatest.
    pub completed: u32,
    /// The change.
    pub kind: ChangeKind,
}

const _: () = assert!(size_of::<ShardChange>() == 56);

/// The kind of a [`ShardChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A peer is stored: it announced, or was restored.
    Announced {
        /// The peer.
        endpoint: Endpoint,
        /// Whether the peer has the whole torrent.
        seeder: bool,
        /// The event of the announce.
        event: Event,
        /// Seconds from the peer's last announce to the change: 0 unless it was restored.
        age: u32,
    },
    /// A peer stopped. It may be unknown here, but known to a replica.
    Stopped {
        /// The peer.
        endpoint: Endpoint,
    },
    /// A peer was removed before its lifetime had ended, for a newcomer to the full shard.
    Replaced {
        /// The peer.
        endpoint: Endpoint,
    },
    /// A peer was removed after its lifetime.
    Expired {
        /// The peer.
        endpoint: Endpoint,
    },
    /// The swarm was removed with all of its peers and its `completed`.
    SwarmRemoved,
}

/// Which changes a reader takes. The log records only what some reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// All changes.
    All,
    /// [`ChangeKind::Stopped`] and [`ChangeKind::Replaced`] alone: what neither a walk over the
    /// peers nor their age can show.
    Stops,
}

/// A reader of the change log of one shard. Dropping it unsubscribes: a log without readers is
/// freed with its shard's next batch.
#[derive(Debug)]
pub struct ChangeReader {
    interest: Interest,
    /// The number of the next change to read; changes are numbered from 0.
    next: u64,
    /// Shared with the log, which counts its readers by this.
    subscription: Arc<()>,
}

impl ChangeReader {
    /// The number of the next change to read.
    pub fn position(&self) -> u64 {
        self.next
    }
}

/// A reader was overtaken: these changes are lost to it, and it has to read the whole shard again.
/// It continues with the oldest change that the log still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The number of changes, those included that the reader does not take.
    pub changes: u64,
}

/// The log of a shard, while it has readers.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    /// A ring: change number `n` is at `n % capacity`.
    entries: Steps<ShardChange, 4096>,
    capacity: usize,
    /// The number of the next change.
    next: u64,
    /// By [`Interest`], cloned into each reader.
    subscriptions: [Arc<()>; 2],
    /// The shard's count of announcers that were not stored or were replaced, when the log last
    /// read it.
    not_there: u64,
}

impl ChangeLog {
    fn new(capacity: usize, not_there: u64) -> Self {
        let (entries, subscriptions) = (Steps::default(), [Arc::default(), Arc::default()]);
        Self { entries, capacity, next: 0, subscriptions, not_there }
    }

    fn subscribe(&self, interest: Interest) -> ChangeReader {
        let subscription = self.subscriptions[interest as usize].clone();
        ChangeReader { interest, next: self.next, subscription }
    }

    /// Whether a reader takes changes by this interest.
    fn has_readers(&self, interest: Interest) -> bool {
        Arc::strong_count(&self.subscriptions[interest as usize]) > 1
    }

    fn owns(&self, reader: &ChangeReader) -> bool {
        Arc::ptr_eq(&self.subscriptions[reader.interest as usize], &reader.subscription)
    }

    fn push(&mut self, change: ShardChange) {
        match self.entries.len() < self.capacity {
            true => self.entries.push(change),
            false => *self.entries.get_mut((self.next % self.capacity as u64) as usize) = change,
        }
        self.next += 1;
    }

    fn read(
        &self,
        reader: &mut ChangeReader,
        limit: usize,
        visit: &mut dyn FnMut(&ShardChange),
    ) -> Result<bool, Lost> {
        assert!(self.owns(reader), "a reader belongs to one shard");
        let oldest = self.next - self.entries.len() as u64;
        if reader.next < oldest {
            let lost = Lost { changes: oldest - reader.next };
            reader.next = oldest;
            return Err(lost);
        }
        let end = self.next.min(reader.next.saturating_add(limit as u64));
        for number in reader.next..end {
            let change = self.entries.get((number % self.capacity as u64) as usize);
            let stop =
                matches!(change.kind, ChangeKind::Stopped { .. } | ChangeKind::Replaced { .. });
            if stop || reader.interest == Interest::All {
                visit(change);
            }
        }
        reader.next = end;
        Ok(end < self.next)
    }
}

impl Shard {
    /// A reader of all changes from now on.
    pub fn subscribe(&mut self, interest: Interest) -> ChangeReader {
        let not_there = not_there(&self.totals);
        let changes =
            self.changes.get_or_insert_with(|| ChangeLog::new(CAPACITY, not_there).into());
        changes.subscribe(interest)
    }

    /// Shows a reader up to `limit` changes in their order; returns whether there are more.
    ///
    /// # Errors
    /// [`Lost`] when the log has dropped changes that the reader has not read; the next call shows
    /// the remaining ones.
    ///
    /// # Panics
    /// When the reader belongs to another shard.
    pub fn read_changes(
        &self,
        reader: &mut ChangeReader,
        limit: usize,
        mut visit: impl FnMut(&ShardChange),
    ) -> Result<bool, Lost> {
        let changes = self.changes.as_ref().expect("a log lives as long as its readers");
        changes.read(reader, limit, &mut visit)
    }

    /// The number that the next change of the shard gets: a reader at this position has read all.
    pub fn change_position(&self) -> u64 {
        self.changes.as_ref().map_or(0, |log| log.next)
    }

    /// Whether a reader belongs to this shard.
    pub fn has_reader(&self, reader: &ChangeReader) -> bool {
        self.changes.as_ref().is_some_and(|log| log.owns(reader))
    }

    /// Logs announces that were just served.
    #[inline(never)]
    pub(crate) fn log_announces<R>(&mut self, announces: &[(Announce, R)], at: Moment) {
        let Some(log) = &mut self.changes else { return };
        let all = log.has_readers(Interest::All);
        if !all && !log.has_readers(Interest::Stops) {
            self.changes = None;
            return;
        }
        // Only when newcomers were not stored, or replaced peers, each has to be looked up.
        let not_there = not_there(&self.totals);
        let look_up = std::mem::replace(&mut log.not_there, not_there) != not_there;
        for (announce, _) in announces {
            let Announce { info_hash, endpoint, seeder, event, .. } = *announce;
            let stopped = event == Event::Stopped;
            let carries_completed = stopped || event == Event::Completed;
            if !stopped && (!all || look_up && !self.has_peer(&info_hash, &endpoint)) {
                continue;
            }
            let kind = match event {
                Event::Stopped => ChangeKind::Stopped { endpoint },
                _ => ChangeKind::Announced { endpoint, seeder, event, age: 0 },
            };
            let completed = if carries_completed { self.completed(&info_hash) } else { 0 };
            if let Some(log) = &mut self.changes {
                log.push(ShardChange { info_hash, at, completed, kind });
            }
        }
    }

    /// Logs a change other than an announce.
    #[inline]
    pub(crate) fn log_change(&mut self, change: impl FnOnce() -> ShardChange) {
        if let Some(log) = &mut self.changes
            && log.has_readers(Interest::All)
        {
            log.push(change());
        }
    }

    /// Logs that a newcomer of a batch has replaced a peer.
    pub(crate) fn log_replaced(&mut self, change: ShardChange) {
        // A log without readers is freed after the batch.
        if let Some(log) = &mut self.changes {
            log.push(change);
        }
    }

    /// Whether a reader takes all changes.
    pub(crate) fn logs_all(&self) -> bool {
        self.changes.as_ref().is_some_and(|log| log.has_readers(Interest::All))
    }

    /// Whether a peer is stored.
    fn has_peer(&self, info_hash: &InfoHash, endpoint: &Endpoint) -> bool {
        let Some(place) = self.store.find(info_hash) else { return false };
        self.store.get(place).peers.stamp(endpoint, &self.store.keys).is_some()
    }

    fn completed(&self, info_hash: &InfoHash) -> u32 {
        self.store.find(info_hash).map_or(0, |place| self.store.get(place).completed)
    }
}

/// Announces whose peer may not be stored after its batch.
fn not_there(totals: &Totals) -> u64 {
    totals.refused() + totals.replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(number: u32) -> ShardChange {
        let kind = ChangeKind::SwarmRemoved;
        ShardChange { info_hash: InfoHash([0; 20]), at: Moment(number), completed: 0, kind }
    }

    fn read(log: &ChangeLog, reader: &mut ChangeReader, limit: usize) -> (Vec<u32>, bool) {
        let mut numbers = Vec::new();
        let more = log.read(reader, limit, &mut |change| numbers.push(change.at.0)).unwrap();
        (numbers, more)
    }

    #[test]
    fn readers_have_positions_of_their_own() {
        let mut log = ChangeLog::new(10, 0);
        let mut early = log.subscribe(Interest::All);
        (0..3).for_each(|number| log.push(removed(number)));
        let mut late = log.subscribe(Interest::All);
        (3..6).for_each(|number| log.push(removed(number)));
        assert_eq!(read(&log, &mut early, 4), (vec![0, 1, 2, 3], true));
        assert_eq!(read(&log, &mut late, 4), (vec![3, 4, 5], false));
        assert_eq!(read(&log, &mut early, 4), (vec![4, 5], false));
        assert_eq!(read(&log, &mut early, 4), (vec![], false));
    }

    #[test]
    fn a_reader_that_is_overtaken_learns_how_many_changes_it_lost() {
        let mut log = ChangeLog::new(10, 0);
        let mut reader = log.subscribe(Interest::All);
        (0..10).for_each(|number| log.push(removed(number)));
        assert_eq!(read(&log, &mut reader, 5), (vec![0, 1, 2, 3, 4], true));
        (10..27).for_each(|number| log.push(removed(number)));
        assert_eq!(log.entries.len(), 10);
        let lost = log.read(&mut reader, 100, &mut |_| panic!("nothing is shown")).unwrap_err();
        assert_eq!(lost, Lost { changes: 12 });
        assert_eq!(read(&log, &mut reader, 100), ((17..27).collect(), false));
    }

    #[test]
    fn a_log_detects_whether_it_has_readers() {
        let log = ChangeLog::new(10, 0);
        assert!(!log.has_readers(Interest::All));
        let reader = log.subscribe(Interest::Stops);
        assert!(log.has_readers(Interest::Stops) && !log.has_readers(Interest::All));
        drop(reader);
        assert!(!log.has_readers(Interest::Stops));
    }
}
