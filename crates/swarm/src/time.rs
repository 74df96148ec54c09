//! Time as an argument: the owner of a shard reads the clock and passes the time in.

/// Seconds per tick, the unit in which the times of peers are stored.
pub(crate) const TICK: u32 = 8;

/// Seconds on the tracker's own monotonic clock, from an arbitrary start. Lasts for 136 years;
/// never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Moment(pub u32);

impl Moment {
    /// The moment `seconds` later.
    pub const fn after(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds from `earlier` to this one, 0 when it is not earlier.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}
