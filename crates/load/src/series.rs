//! The run over time: one [`Sample`] per interval. Workers hand over their counts at the end of an
//! interval, and the main thread makes samples of them, in order. Progress shows the samples
//! and the report has them.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::Latency;
use crate::worker::{Nanos, Recent};

/// Lower bound on the length of intervals: the kernel reports CPU time in hundredths of a second.
const MIN_LENGTH: Duration = Duration::from_millis(200);
/// Upper bound on the length of intervals, unless there would be more than [`MAX_INTERVALS`].
const MAX_LENGTH: Duration = Duration::from_secs(1);
/// Approximate number of intervals of a short run.
const WANTED_INTERVALS: u32 = 60;
/// Upper bound on the number of intervals.
const MAX_INTERVALS: u32 = 1200;

/// One interval of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end, in seconds since the start of the run (with its warm-up).
    pub time: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// The phase in its middle: `warm-up`, `measure` (with several steps like `step 2: 5,000 per
    /// second`), or `drain`.
    pub phase: String,
    /// Requests sent.
    pub sent: u64,
    /// Right replies received.
    pub right: u64,
    /// Wrong replies received.
    pub wrong: u64,
    /// Requests lost.
    pub lost: u64,
    /// Latency of the received replies, to two digits.
    pub latency: Latency,
    /// The tracker's process, where its process id was given.
    pub tracker: Option<ProcessSample>,
    /// The load tester's own CPU time, in percent of one vCPU.
    pub own_cpu_percent: Option<f64>,
}

/// A process over one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// CPU time, in percent of one vCPU.
    pub cpu_percent: f64,
    /// Resident memory at its end, in bytes.
    pub rss: u64,
}

impl Sample {
    /// Right replies per second.
    pub fn rate(&self) -> f64 {
        self.per_second(self.right)
    }

    /// Requests sent per second.
    pub fn sent_rate(&self) -> f64 {
        self.per_second(self.sent)
    }

    /// Lost requests, in percent of the answered and the lost ones.
    pub fn loss_percent(&self) -> f64 {
        let all = self.right + self.wrong + self.lost;
        if all == 0 { 0.0 } else { self.lost as f64 * 100.0 / all as f64 }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// The division of a run into intervals of equal length, one of which starts with the measured
/// window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// The end of the first interval, which may be shorter.
    first: Nanos,
    length: Nanos,
}

impl Intervals {
    /// Intervals for a run of `warmup` and `duration`: a second each, shorter in short runs and
    /// longer in long ones.
    pub fn new(warmup: Duration, duration: Duration) -> Self {
        let wanted = (duration / WANTED_INTERVALS)
            .clamp(MIN_LENGTH, MAX_LENGTH)
            .max(duration / MAX_INTERVALS);
        let count = (duration.as_secs_f64() / wanted.as_secs_f64()).round().max(1.0);
        let length = ((duration.as_nanos() as f64 / count).ceil() as Nanos).max(1);
        let first = match warmup.as_nanos() as Nanos % length {
            0 => length,
            rest => rest,
        };
        Self { first, length }
    }

    /// The number of the interval at `now`.
    pub fn number(&self, now: Nanos) -> usize {
        match now.checked_sub(self.first) {
            None => 0,
            Some(rest) => 1 + (rest / self.length) as usize,
        }
    }

    /// The end of interval `number`.
    pub fn end(&self, number: usize) -> Nanos {
        self.first + self.length * number as Nanos
    }
}

/// Collects the counts of workers and makes samples.
#[derive(Debug)]
pub struct Recorder {
    intervals: Intervals,
    /// The number of the next sample.
    next: usize,
    /// The counts of this interval and of later ones.
    open: VecDeque<Recent>,
    /// Number of intervals that each worker has handed over.
    reported: Vec<usize>,
}

impl Recorder {
    /// A recorder for `workers` workers.
    pub fn new(intervals: Intervals, workers: usize) -> Self {
        Self { intervals, next: 0, open: VecDeque::new(), reported: vec![0; workers] }
    }

    /// Adds the counts of `worker` in interval `number`, and resets them. Counts that arrive after
    /// their sample was made belong to the next one, so none is lost.
    pub fn add(&mut self, worker: usize, number: usize, recent: &mut Recent) {
        self.reported[worker] = number + 1;
        let place = number.saturating_sub(self.next);
        while self.open.len() <= place {
            self.open.push_back(Recent::default());
        }
        self.open[place].take(recent);
    }

    /// The next sample, once all workers have handed over its interval, or half an interval after
    /// its end, so that a late worker does not delay it. The caller adds phase and processes.
    pub fn next(&mut self, now: Nanos) -> Option<Sample> {
        let end = self.intervals.end(self.next);
        let complete = self.reported.iter().all(|count| *count > self.next);
        if now < end || !complete && now < end + self.intervals.length / 2 {
            return None;
        }
        Some(self.make(end))
    }

    /// The last, shorter sample when all workers are done at `now`; `None` where it would be empty.
    pub fn last(&mut self, now: Nanos) -> Option<Sample> {
        let mut rest = Recent::default();
        self.open.drain(..).for_each(|mut counts| rest.take(&mut counts));
        let is_due = !rest.is_empty() && now > self.begin(self.next);
        self.open.push_back(rest);
        is_due.then(|| self.make(now))
    }

    fn begin(&self, number: usize) -> Nanos {
        number.checked_sub(1).map_or(0, |before| self.intervals.end(before))
    }

    fn make(&mut self, end: Nanos) -> Sample {
        let counts = self.open.pop_front().unwrap_or_default();
        let begin = self.begin(self.next);
        self.next += 1;
        Sample {
            time: end as f64 / 1e9,
            seconds: (end - begin) as f64 / 1e9,
            sent: counts.sent,
            right: counts.right,
            wrong: counts.wrong,
            lost: counts.lost,
            latency: Latency::of(&counts.latency.0),
            ..Sample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn recent(sent: u64, right: u64, latency: Nanos) -> Recent {
        let mut recent = Recent { sent, right, ..Recent::default() };
        for _ in 0..right {
            recent.latency.0.saturating_record(latency);
        }
        recent
    }

    #[test]
    fn intervals_meet_the_window() {
        for (warmup, duration, length) in
            [(2.0, 10.0, 0.2), (0.3, 1.0, 0.2), (0.0, 30.0, 0.5), (5.5, 90.0, 1.0), (1.0, 6e3, 5.0)]
        {
            let intervals =
                Intervals::new(Duration::from_secs_f64(warmup), Duration::from_secs_f64(duration));
            assert_eq!(intervals.length, (length * 1e9) as Nanos, "{duration}");
            let [start, end] = [warmup, warmup + duration].map(|time| (time * 1e9) as Nanos);
            let first = intervals.number(start);
            assert_eq!(first.checked_sub(1).map_or(0, |n| intervals.end(n)), start, "{warmup}");
            let last = intervals.number(end - 1);
            assert!(intervals.end(last).abs_diff(end) < 2000, "{duration}");
            assert_eq!(last - first + 1, (duration / length).round() as usize);
        }
    }

    #[test]
    fn a_sample_comes_when_all_have_told() {
        let intervals = Intervals { first: SECOND, length: SECOND };
        let mut recorder = Recorder::new(intervals, 2);
        recorder.add(0, 0, &mut recent(10, 8, 2_000_000));
        assert_eq!(recorder.next(SECOND + 1), None, "worker 1 has not told");
        let mut mine = recent(20, 16, 4_000_000);
        recorder.add(1, 0, &mut mine);
        assert_eq!((mine.sent, mine.right, mine.latency.0.len()), (0, 0, 0), "emptied");
        assert_eq!(recorder.next(SECOND - 1), None, "it has not ended");
        let sample = recorder.next(SECOND + 1).unwrap();
        assert_eq!((sample.sent, sample.right, sample.time), (30, 24, 1.0));
        assert!((sample.latency.p50 - 4000.0).abs() < 50.0, "{}", sample.latency.p50);
        assert_eq!(sample.sent_rate(), 30.0);
        assert_eq!(recorder.next(SECOND + 1), None);
    }

    #[test]
    fn nothing_is_left_out_when_a_worker_is_late() {
        let intervals = Intervals { first: SECOND / 2, length: SECOND };
        let mut recorder = Recorder::new(intervals, 2);
        recorder.add(0, 0, &mut recent(1, 1, 1_000_000));
        let first = recorder.next(SECOND).unwrap();
        assert_eq!((first.sent, first.seconds), (1, 0.5), "half an interval late");
        recorder.add(1, 0, &mut recent(2, 2, 1_000_000));
        recorder.add(0, 1, &mut recent(4, 4, 1_000_000));
        recorder.add(0, 2, &mut recent(8, 8, 1_000_000));
        let second = recorder.last(3 * SECOND).unwrap();
        assert_eq!((second.sent, second.latency.max > 0.0), (14, true));
        assert_eq!((second.time, second.seconds), (3.0, 2.5));
        assert_eq!(recorder.last(3 * SECOND), None);
    }
}
