//! The interval commitment: peers of clients that were sent a longer interval are kept until these
//! clients have announced again.

use std::time::{Duration, Instant};

use super::Overload;
use crate::effect::{Effect, Effects};
use onrush_replica::handoff::IntervalCommitment;
use onrush_tracker::limits::AnnounceSettings;

/// Upper bound of a peer's lifetime, seconds: the range of a stored age.
pub(crate) const LONGEST_LIFETIME: u32 = onrush_swarm::shard::MAX_PEER_LIFETIME;

impl Overload {
    /// Stores the commitment for the process after this one.
    pub fn store_commitment(&self, changed: bool, now: Instant, effects: &mut Effects) {
        effects.push(Effect::StoreCommitment { commitment: self.commitment(now), changed });
    }

    /// The commitment to clients that were sent `interval`.
    pub(super) fn commitment_of(&self, interval: u32) -> IntervalCommitment {
        let lifetime = lifetime(&self.announce, interval);
        IntervalCommitment { lifetime, seconds: longest_wait(&self.announce, interval) }
    }

    /// The commitment beyond the configured interval; `None` if only that was sent.
    pub fn commitment(&self, now: Instant) -> Option<IntervalCommitment> {
        let pressure = self.pressure();
        let current = (pressure.step > 0).then(|| self.commitment_of(pressure.interval));
        let earlier = self.committed.map(|(until, lifetime)| {
            let left = until.saturating_duration_since(now).as_secs() + 1;
            IntervalCommitment { lifetime, seconds: left as u32 }
        });
        match (current, earlier) {
            (Some(current), Some(earlier)) => Some(current.max(earlier)),
            (current, earlier) => current.or(earlier),
        }
    }

    /// The commitment including the configured interval, for a successor whose configuration may
    /// have a shorter one.
    pub fn full_commitment(&self, now: Instant) -> IntervalCommitment {
        let configured = self.commitment_of(self.announce.interval);
        self.commitment(now).map_or(configured, |more| more.max(configured))
    }

    /// Adds a commitment, of this process or of its predecessor.
    pub fn adopt(&mut self, commitment: IntervalCommitment, now: Instant) {
        let IntervalCommitment { lifetime, seconds } = commitment;
        let (until, committed) = self.committed.unwrap_or((now, 0));
        let until = until.max(now + Duration::from_secs(seconds.into()));
        self.committed = Some((until, committed.max(lifetime.min(LONGEST_LIFETIME))));
    }
}

/// The longest wait, in seconds, of a client that was sent `interval` with jitter.
fn longest_wait(announce: &AnnounceSettings, interval: u32) -> u32 {
    let longest = u64::from(interval) * u64::from(100 + announce.interval_jitter_percent) / 100;
    u32::try_from(longest).unwrap_or(u32::MAX)
}

/// The lifetime, in seconds, of peers that were sent `interval`: the configured one in proportion,
/// up to [`LONGEST_LIFETIME`].
pub(super) fn lifetime(announce: &AnnounceSettings, interval: u32) -> u32 {
    let scaled =
        u64::from(announce.peer_lifetime) * u64::from(interval) / u64::from(announce.interval);
    scaled.clamp(announce.peer_lifetime.into(), LONGEST_LIFETIME.into()) as u32
}
