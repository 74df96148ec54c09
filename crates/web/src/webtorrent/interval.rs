//! How often WebRTC peers announce, and how long they may be silent. Both become longer together
//! with the intervals of other peers, while the tracker is overloaded.

use std::ops::RangeInclusive;

use onrush_tracker::rules::Rules;

/// The shortest silence after which a member is removed, in seconds.
const MIN_SILENCE: u32 = 600;

/// The intervals that replies are drawn from, in seconds: around `interval`, the configured one.
pub fn in_force(interval: u32, rules: &Rules) -> RangeInclusive<u32> {
    let interval = scaled(interval, rules.shard.interval, rules.announce.interval);
    let jitter = scaled(interval, rules.shard.interval_jitter_percent, 100);
    interval - jitter..=interval.saturating_add(jitter)
}

/// The silence after which a member is removed, in seconds: three of the intervals that it can have
/// been sent, at least ten minutes.
pub fn max_silence(interval: u32, rules: &Rules) -> u32 {
    let silence = interval.saturating_mul(3).max(MIN_SILENCE);
    // As long as clients are expected that were sent longer intervals than the present ones.
    let lengthened = scaled(silence, rules.shard.peer_lifetime, rules.announce.peer_lifetime);
    lengthened.max(in_force(interval, rules).end().saturating_mul(3))
}

/// `value` times `dividend / divisor`.
fn scaled(value: u32, dividend: u32, divisor: u32) -> u32 {
    let scaled = u64::from(value) * u64::from(dividend) / u64::from(divisor.max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}
