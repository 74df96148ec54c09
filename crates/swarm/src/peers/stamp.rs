//! The time of a peer's last announce, and whether it is a seeder, in two bytes.

use crate::time::Moment;

/// Seconds per tick.
pub(crate) const TICK: u32 = 4;
/// Ticks wrap around after 36 hours.
const TICKS: u16 = 1 << 15;

/// A time in units of four seconds, modulo 36 hours.
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

/// The data beside each endpoint: 15 bits of [`Tick`], one bit for a seeder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp(pub(super) [u8; 2]);

impl Stamp {
    #[inline]
    pub(crate) fn new(seen: Tick, seeder: bool) -> Self {
        Self(((seen.0 << 1) | u16::from(seeder)).to_le_bytes())
    }

    #[inline]
    pub(crate) fn seeder(self) -> bool {
        self.0[0] & 1 == 1
    }

    #[inline]
    pub(crate) fn seen(self) -> Tick {
        Tick(u16::from_le_bytes(self.0) >> 1)
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

    /// True only after the lifetime, and at the latest 8 seconds after it, as both times were
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
    fn both_parts_round_trip() {
        for seconds in [0, 3, 4, 131_071, 131_072, 4_000_000_000] {
            for seeder in [false, true] {
                let tick = Tick::of(Moment(seconds));
                let stamp = Stamp::new(tick, seeder);
                assert_eq!((stamp.seen(), stamp.seeder()), (tick, seeder));
            }
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
        for lifetime in [1, 4, 2_400, 65_536] {
            for seen in [0, 1, 2, 3, 131_070, 131_071, 500_000, 1 << 31] {
                let stamp = Stamp::new(Tick::of(Moment(seen)), true);
                let over = |age| Expiry::new(Moment(seen + age), lifetime).is_over(stamp);
                assert!(!over(0) && !over(lifetime), "seen {seen}, lifetime {lifetime}");
                // Expired from then on, until ages wrap around.
                for age in [lifetime + 8, lifetime + 100, 131_000] {
                    assert!(over(age.max(lifetime + 8)), "seen {seen}, age {age} of {lifetime}");
                }
            }
        }
    }
}
