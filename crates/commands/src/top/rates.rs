//! Rates between two readings.

use onrush_control::api::stats::{Stats, WorkerStats};

/// Two readings of the same process; or one, before there is a second.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The newer reading.
    pub now: &'a Stats,
    before: Option<(&'a Stats, f64)>,
}

impl<'a> Pair<'a> {
    /// A pair of readings. A reading of another process started from zero and is ignored.
    pub fn new(before: Option<&'a Stats>, now: &'a Stats) -> Self {
        let same = |before: &&Stats| before.pid == now.pid && before.started == now.started;
        let seconds = |before: &'a Stats| (before, now.uptime - before.uptime);
        let before = before.filter(same).map(seconds).filter(|(_, seconds)| *seconds > 0.0);
        Self { now, before }
    }

    /// Increase of a counter per second; `None` without a second reading.
    pub fn rate(&self, of: impl Fn(&Stats) -> f64) -> Option<f64> {
        let (before, seconds) = self.before?;
        Some((of(self.now) - of(before)).max(0.0) / seconds)
    }

    /// Increase of a counter of one worker per second.
    pub fn rate_of_worker(&self, name: &str, of: impl Fn(&WorkerStats) -> f64) -> Option<f64> {
        let find = |stats: &Stats| {
            stats.workers.iter().find(|worker| worker.name == name).map(&of).unwrap_or_default()
        };
        self.rate(find)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(pid: u32, uptime: f64, announces: u64) -> Stats {
        let mut stats = Stats { pid, uptime, ..Stats::default() };
        stats.totals.traffic.incoming.announces = announces;
        stats.workers = vec![WorkerStats {
            name: "worker-0".into(),
            busy_seconds: uptime / 4.0,
            ..WorkerStats::default()
        }];
        stats
    }

    fn announces(stats: &Stats) -> f64 {
        stats.totals.traffic.incoming.announces as f64
    }

    #[test]
    fn rates_use_the_clock_of_the_tracker() {
        let (before, now) = (reading(7, 10.0, 100), reading(7, 12.5, 350));
        let pair = Pair::new(Some(&before), &now);
        assert_eq!(pair.rate(announces), Some(100.0));
        assert_eq!(pair.rate_of_worker("worker-0", |worker| worker.busy_seconds), Some(0.25));
        assert_eq!(pair.rate_of_worker("worker-9", |worker| worker.busy_seconds), Some(0.0));
    }

    #[test]
    fn a_restarted_tracker_has_no_rates_yet() {
        let (before, now) = (reading(7, 500.0, 100), reading(8, 0.5, 3));
        assert_eq!(Pair::new(Some(&before), &now).rate(announces), None);
        assert_eq!(Pair::new(None, &now).rate(announces), None);
        assert_eq!(Pair::new(Some(&now), &now).rate(announces), None, "the same reading twice");
    }
}
