//! Warnings that a limit on stored peers is reached: one per limit and minute, with the number of
//! new peers that were answered and not stored.

use std::time::Instant;

use onrush_text::numbers::grouped;
use onrush_tracker::metrics::Summary;

use crate::effect::Effects;
use crate::notice::{MINUTE, Notice, Repeats};

/// The text for a reached limit, the counter that rises then, and the text behind its number.
type Limit = (&'static str, fn(&Summary) -> u64, &'static str);

const LIMITS: [Limit; 5] = [
    (
        "limits.peers is reached",
        |sum| sum.refused_full,
        "new peers were not stored in the last minute: raise it if there is memory (64 bytes each)",
    ),
    (
        "limits.source_peers_per_swarm is reached by some sources",
        |sum| sum.refused_per_swarm,
        NOT_STORED,
    ),
    ("limits.source_peers is reached by some sources", |sum| sum.refused_of_source, NOT_STORED),
    (
        "limits.source_new_swarms is reached by some sources",
        |sum| sum.refused_new_swarms,
        NOT_STORED,
    ),
    (
        "limits.peers is reached",
        |sum| sum.replaced,
        "peers of sources that occupy most were replaced in the last minute: raise it if there is \
         memory (64 bytes each)",
    ),
];

/// The remedy for a source's limit.
const NOT_STORED: &str = "of their new peers were not stored in the last minute: if these are \
                          large networks behind NAT, add them to limits.trusted_sources, or raise \
                          the limit";

/// Without the limits of single sources.
const CROWDED: &str = "more sources than the table of limits.source_peers or \
                       limits.source_new_swarms distinguishes: only the limits of networks \
                       apply, 16 times as high for a /24 or a /48; raise these limits, or set them \
                       to 0";

/// The count at the last warning of each limit, and its time.
#[derive(Debug, Default)]
pub(super) struct LimitWarnings {
    warned: [(u64, Option<Instant>); LIMITS.len()],
}

impl LimitWarnings {
    /// Call every second with the sum of all counters: warns of what is due.
    pub(super) fn tick(&mut self, sum: &Summary, now: Instant, effects: &mut Effects) {
        for ((reached, count, outcome), (warned, at)) in LIMITS.iter().zip(&mut self.warned) {
            let count = count(sum);
            let new = count.saturating_sub(*warned);
            if new > 0 && at.is_none_or(|at| now.duration_since(at) >= MINUTE) {
                effects.warn(format!("{reached}: {} {outcome}", grouped(new)));
                (*warned, *at) = (count, Some(now));
            }
        }
        if sum.crowded_tables > 0 {
            effects.notice(Notice::warn(CROWDED).with(Repeats::OnceAMinute("crowded tables")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_limit_is_warned_of_once_a_minute_with_its_count() {
        let (start, mut warnings) = (Instant::now(), LimitWarnings::default());
        let mut tick = |refused_of_source, crowded_tables, second| {
            let sum = Summary { refused_of_source, crowded_tables, ..Summary::default() };
            let mut effects = Effects::default();
            warnings.tick(&sum, start + Duration::from_secs(second), &mut effects);
            effects.notices().into_iter().map(|notice| notice.text).collect::<Vec<_>>()
        };
        assert_eq!(tick(0, 0, 0), [""; 0]);
        let lines = tick(5, 0, 1);
        assert!(lines[0].contains("limits.source_peers is reached by some sources: 5 of"));
        assert!(lines[0].contains("limits.trusted_sources"), "{lines:?}");
        assert_eq!(tick(50, 0, 30), [""; 0]);
        assert!(tick(5_060, 0, 61)[0].contains(": 5,055 of"));
        assert_eq!(tick(5_060, 0, 200), [""; 0], "nothing new");
        assert!(tick(5_060, 2, 201)[0].contains("for a /24 or a /48"));
    }
}
