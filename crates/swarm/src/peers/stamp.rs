//! The time of a peer's last announce, whether it is a seeder, and whether it is settled, in two
//! bytes.

use crate::time::{Moment, TICK};

/// Ticks wrap around after 36 hours.
const TICKS: u16 = 1 << 14;

/// The bit of a settled peer.
const SETTLED: u16 = 2;
/// The bits that are not the time, which is in quarters of a tick with them.
const FLAGS: u16 = 3;

/// A time in units of eight seconds, modulo 36 hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tick(u16);

impl Tick {
    #[inline]
    pub(crate) fn of(moment: Moment) -> Self {
        Self((moment.0 / TICK) as u16 % TICKS)
    }

    /// The time that many seconds earlier, at most 36 hours.
    pub(crate) fn ago(self, seconds: u32) -> Self {
        Self(self.0.wrapping_sub((seconds / TICK) as u16) % TICKS)
    }

    /// Ticks from an earlier time to this one, if it was less than 36 hours ago.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0) % TICKS
    }
}

/// The data beside each endpoint: 14 bits of [`Tick`], one bit each for a settled peer and for a
/// seeder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(pub(super) [u8; 2]);

impl Stamp {
    #[inline]
    pub(crate) fn new(seen: Tick, seeder: bool) -> Self {
        Self(((seen.0 << 2) | u16::from(seeder)).to_le_bytes())
    }

    /// The same, of a settled peer.
    pub(crate) fn settle(self) -> Self {
        Self((u16::from_le_bytes(self.0) | SETTLED).to_le_bytes())
    }

    /// This stamp for a peer whose announce before has left the stamp `before`: the peer is settled
    /// if it was, or if that is `settles` quarters of a [`TICK`] ago or more.
    #[inline]
    pub(crate) fn after(self, before: Self, settles: u16) -> Self {
        let [new, old] = [self, before].map(|stamp| u16::from_le_bytes(stamp.0));
        let age = (new | FLAGS).wrapping_sub(old | FLAGS);
        let settles = u16::from(age >= settles);
        Self((new | old & SETTLED | settles << 1).to_le_bytes())
    }

    /// Whether the peer has announced again about half an interval later, or was restored.
    #[inline]
    pub(crate) fn settled(self) -> bool {
        u16::from_le_bytes(self.0) & SETTLED != 0
    }

    #[inline]
    pub(crate) fn seeder(self) -> bool {
        self.0[0] & 1 == 1
    }

    #[inline]
    pub(crate) fn seen(self) -> Tick {
        Tick(u16::from_le_bytes(self.0) >> 2)
    }
}

/// Decides which stamps have expired.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    now: Tick,
    /// In ticks; below zero, every stamp has expired.
    lifetime: i32,
}

impl Expiry {
    /// Every stamp has expired.
    pub(crate) const OF_ALL: Self = Self { now: Tick(0), lifetime: -1 };

    /// At `now`, for peers that live `lifetime` seconds, at most
    /// [`MAX_PEER_LIFETIME`](crate::shard::MAX_PEER_LIFETIME).
    pub(crate) fn new(now: Moment, lifetime: u32) -> Self {
        Self { now: Tick::of(now), lifetime: lifetime.div_ceil(TICK) as i32 }
    }

    /// True only after the lifetime, and at the latest 16 seconds after it, as both times were
    /// rounded down to ticks.
    #[inline]
    pub(crate) fn is_over(self, stamp: Stamp) -> bool {
        i32::from(self.now.since(stamp.seen())) > self.lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_round_trip() {
        for seconds in [0, 3, 8, 131_071, 131_072, 4_000_000_000] {
            for seeder in [false, true] {
                let tick = Tick::of(Moment(seconds));
                let stamp = Stamp::new(tick, seeder);
                assert_eq!((stamp.seen(), stamp.seeder(), stamp.settled()), (tick, seeder, false));
                let stamp = stamp.settle();
                assert_eq!((stamp.seen(), stamp.seeder(), stamp.settled()), (tick, seeder, true));
            }
        }
    }

    #[test]
    fn a_peer_settles_with_an_announce_half_an_interval_later_and_stays_settled() {
        let at = |seconds: u32| {
            Stamp::new(Tick::of(Moment(131_000 + seconds)), !seconds.is_multiple_of(16))
        };
        let early = at(896).after(at(0), 450);
        assert!(!early.settled(), "896 seconds are too few");
        let settled = at(904).after(at(0), 450);
        assert!(settled.settled() && at(912).after(settled, 450).settled());
        assert_eq!((settled.seeder(), settled.seen()), (at(904).seeder(), at(904).seen()));
        assert!(!at(1_000).after(early, 450).settled(), "the announce before counts");
        // Nor does an announce with the other kind in the same tick settle it.
        for settles in [1, 450] {
            let [seeder, leecher] = [true, false].map(|it| Stamp::new(Tick::of(Moment(8)), it));
            assert!(!leecher.after(seeder, settles).settled());
            assert!(!seeder.after(leecher, settles).settled());
        }
    }

    #[test]
    fn every_stamp_expires_with_expiry_of_all() {
        for seconds in [0, 3, 4, 65_536, 131_071, 131_072, u32::MAX] {
            assert!(Expiry::OF_ALL.is_over(Stamp::new(Tick::of(Moment(seconds)), false)));
        }
    }

    #[test]
    fn expires_after_its_lifetime_and_at_most_two_ticks_later() {
        for lifetime in [1, 8, 2_400, 65_536] {
            for seen in [0, 1, 2, 3, 131_070, 131_071, 500_000, 1 << 31] {
                let stamp = Stamp::new(Tick::of(Moment(seen)), true);
                let over = |age| Expiry::new(Moment(seen + age), lifetime).is_over(stamp);
                assert!(!over(0) && !over(lifetime), "seen {seen}, lifetime {lifetime}");
                // Expired from then on, until ages wrap around.
                for age in [lifetime + 16, lifetime + 100, 131_000] {
                    assert!(over(age.max(lifetime + 16)), "seen {seen}, age {age} of {lifetime}");
                }
            }
        }
    }
}
