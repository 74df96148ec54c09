//! Whether workers take turns: they wake several times a second even when there is nothing to do, so one whose
//! count stands still is stuck, or its vCPU is taken by others.

use std::time::{Duration, Instant};

/// Without a turn for so long a worker counts as stuck.
pub const STUCK: Duration = Duration::from_secs(5);

/// Remembers when each worker's count of turns was last seen to change.
#[derive(Debug, Default)]
pub struct Pulse {
    workers: Vec<(u64, Instant)>,
}

impl Pulse {
    /// Looks at the turns of all workers, always in the same order; returns for how long each has stood still.
    /// Who looks seldom learns late that a worker stands still, and never says so of one that does not.
    pub fn look(&mut self, turns: impl IntoIterator<Item = u64>, now: Instant) -> Vec<Duration> {
        let mut still = Vec::with_capacity(self.workers.len());
        for (at, turns) in turns.into_iter().enumerate() {
            if at == self.workers.len() {
                self.workers.push((turns, now));
            }
            let (last, since) = &mut self.workers[at];
            if *last != turns {
                (*last, *since) = (turns, now);
            }
            still.push(now.saturating_duration_since(*since));
        }
        still
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_takes_no_turns_stands_still() {
        let (mut pulse, start) = (Pulse::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(pulse.look([5, 9], at(0)), [Duration::ZERO; 2]);
        for second in 1..=4 {
            pulse.look([5 + second, 9], at(second));
        }
        assert_eq!(pulse.look([10, 9], at(5)), [Duration::ZERO, STUCK]);
        assert_eq!(pulse.look([11, 10], at(6)), [Duration::ZERO; 2], "it goes on");
        assert_eq!(pulse.look([11, 11], at(7)), [Duration::from_secs(1), Duration::ZERO]);
    }
}
