//! The run over time: one [`Sample`] per interval. Workers hand over what they have counted when
//! an interval of theirs ends, and whoever waits for them makes samples of it, in order. The
//! live view draws these samples and the report keeps them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::generator::Recent;
use crate::generator::flight::Nanos;
use crate::latency::Latency;

/// Intervals are no shorter than this: processor time is told in hundredths of a second.
const SHORTEST: Duration = Duration::from_millis(200);
/// And no longer, unless the run is so long that there would be more than [`MOST`].
const LONGEST: Duration = Duration::from_secs(1);
/// A short run has about so many.
const WANTED: u32 = 60;
/// A long one has at most so many.
const MOST: u32 = 1200;

/// One interval of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end, in seconds since the run (with its warm-up) began.
    pub time: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// What the run was doing in its middle: `warm-up`, `measure` (of several steps the one, like
    /// `step 2: 5,000 per second`), or `drain`.
    pub phase: String,
    /// Requests sent.
    pub sent: u64,
    /// Right replies that came.
    pub right: u64,
    /// Wrong replies that came.
    pub wrong: u64,
    /// Requests given up.
    pub lost: u64,
    /// Of the replies that came, to two digits.
    pub latency: Latency,
    /// The tracker's process, when its pid was given.
    pub tracker: Option<ProcessSample>,
    /// The load tester's own processor time, in percent of one vCPU.
    pub own_cpu_percent: Option<f64>,
}

/// A process over one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// Processor time, in percent of one vCPU.
    pub cpu_percent: f64,
    /// Resident memory at its end, in bytes.
    pub rss: u64,
    /// Datagrams that the kernel dropped because the process's sockets were full; none where the
    /// sockets cannot be looked at, or were not within this interval.
    pub drops: Option<u64>,
    /// Seconds in which these were dropped: more than the interval where intervals before it were left out.
    #[serde(default)]
    pub drops_seconds: f64,
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

    /// Given up, in percent of what was answered or given up.
    pub fn loss_percent(&self) -> f64 {
        let all = self.right + self.wrong + self.lost;
        if all == 0 { 0.0 } else { self.lost as f64 * 100.0 / all as f64 }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// How a run is divided: into intervals of one length, one of which begins where the measured
/// window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// The end of the first, which may be shorter.
    first: Nanos,
    length: Nanos,
}

impl Intervals {
    /// For a run of `warmup` and then `duration`: a second each, finer in short runs and coarser
    /// in long ones.
    pub fn new(warmup: Duration, duration: Duration) -> Self {
        let wanted = (duration / WANTED).clamp(SHORTEST, LONGEST).max(duration / MOST);
        let count = (duration.as_secs_f64() / wanted.as_secs_f64()).round().max(1.0);
        let length = ((duration.as_nanos() as f64 / count).ceil() as Nanos).max(1);
        let first = match warmup.as_nanos() as Nanos % length {
            0 => length,
            rest => rest,
        };
        Self { first, length }
    }

    /// The number of the interval that `now` is in.
    pub fn number(&self, now: Nanos) -> usize {
        match now.checked_sub(self.first) {
            None => 0,
            Some(rest) => 1 + (rest / self.length) as usize,
        }
    }

    /// When interval `number` ends.
    pub fn end(&self, number: usize) -> Nanos {
        self.first + self.length * number as Nanos
    }

    /// Nanoseconds of an interval; the first may be shorter.
    pub fn length(&self) -> Nanos {
        self.length
    }
}

/// Where workers hand over their counts and samples come from.
#[derive(Debug)]
pub struct Recorder {
    intervals: Intervals,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The next interval that becomes a sample, and the counts of this and those after it.
    next: usize,
    open: std::collections::VecDeque<Counts>,
    /// Per worker: intervals that it has handed over.
    told: Vec<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    right: u64,
    wrong: u64,
    lost: u64,
    latency: Option<Histogram<u64>>,
}

impl Recorder {
    /// For so many workers.
    pub fn new(intervals: Intervals, workers: usize) -> Self {
        let inner =
            Inner { next: 0, open: std::collections::VecDeque::new(), told: vec![0; workers] };
        Self { intervals, inner: Mutex::new(inner) }
    }

    /// How the run is divided.
    pub fn intervals(&self) -> Intervals {
        self.intervals
    }

    /// Adds what `worker` has counted in interval `number`, and empties it. What comes after its
    /// sample was made counts in the next one: nothing is left out.
    pub fn add(&self, worker: usize, number: usize, recent: &mut Recent) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.told[worker] = number + 1;
        let place = number.saturating_sub(inner.next);
        while inner.open.len() <= place {
            inner.open.push_back(Counts::default());
        }
        inner.open[place].add(recent);
    }

    /// The next sample, once all workers have handed over its interval, or half an interval after
    /// its end: a worker that was held up does not hold up the rest. Its phase and processes are
    /// for the caller to fill in.
    pub fn next(&self, now: Nanos) -> Option<Sample> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.intervals.end(inner.next);
        let told = inner.told.iter().all(|told| *told > inner.next);
        if now < end || !told && now < end + self.intervals.length / 2 {
            return None;
        }
        Some(self.make(&mut inner, end))
    }

    /// What is left when all workers are done at `now`: a last, shorter sample, if anything came.
    pub fn last(&self, now: Nanos) -> Option<Sample> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = inner.open.drain(..).reduce(Counts::and)?;
        inner.open.push_back(rest);
        let begin = self.begin(inner.next);
        let some = inner.open.front().is_some_and(Counts::any);
        (some && now > begin).then(|| self.make(&mut inner, now))
    }

    fn begin(&self, number: usize) -> Nanos {
        number.checked_sub(1).map_or(0, |before| self.intervals.end(before))
    }

    fn make(&self, inner: &mut Inner, end: Nanos) -> Sample {
        let counts = inner.open.pop_front().unwrap_or_default();
        let begin = self.begin(inner.next);
        inner.next += 1;
        Sample {
            time: end as f64 / 1e9,
            seconds: (end - begin) as f64 / 1e9,
            sent: counts.sent,
            right: counts.right,
            wrong: counts.wrong,
            lost: counts.lost,
            latency: counts.latency.as_ref().map(Latency::of).unwrap_or_default(),
            ..Sample::default()
        }
    }
}

impl Counts {
    fn add(&mut self, recent: &mut Recent) {
        self.sent += std::mem::take(&mut recent.sent);
        self.right += std::mem::take(&mut recent.right);
        self.wrong += std::mem::take(&mut recent.wrong);
        self.lost += std::mem::take(&mut recent.lost);
        match &mut self.latency {
            Some(all) => all.add(&recent.latency).expect("all histograms have the same bounds"),
            None => self.latency = Some(recent.latency.clone()),
        }
        recent.latency.reset();
    }

    fn and(mut self, other: Self) -> Self {
        self.sent += other.sent;
        self.right += other.right;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.latency = match (self.latency, other.latency) {
            (Some(mut all), Some(more)) => {
                all.add(&more).expect("all histograms have the same bounds");
                Some(all)
            }
            (all, more) => all.or(more),
        };
        self
    }

    fn any(&self) -> bool {
        self.sent + self.right + self.wrong + self.lost > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn recent(sent: u64, right: u64, latency: Nanos) -> Recent {
        let mut recent = Recent { sent, right, ..Recent::default() };
        for _ in 0..right {
            recent.latency.saturating_record(latency);
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
            assert_eq!(intervals.length(), (length * 1e9) as Nanos, "{duration}");
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
        let recorder = Recorder::new(intervals, 2);
        recorder.add(0, 0, &mut recent(10, 8, 2_000_000));
        assert_eq!(recorder.next(SECOND + 1), None, "worker 1 has not told");
        let mut mine = recent(20, 16, 4_000_000);
        recorder.add(1, 0, &mut mine);
        assert_eq!((mine.sent, mine.right, mine.latency.len()), (0, 0, 0), "emptied");
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
        let recorder = Recorder::new(intervals, 2);
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
