//! Rates, peers and swarms of the last hour by seconds and of the last month by hours, in 226 kB:
//! (3,600 + 744) rows of 13 numbers of 4 bytes.
//!
//! The main thread adds a row per second; the admin thread reads. A row has no time stamp: rows are
//! seconds of the monotonic clock and count back from now, so that a step of the system's clock
//! moves all of them and leaves neither gap nor disorder. A second in which the process does not
//! run is a row without numbers.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use onrush_tracker::metrics::{LOSSES, Summary};

use crate::api::history::{self as api, HistorySpan, VERSION};
use crate::mutex::lock;

/// Seconds of an hour: rows of the hour, and rows for each row of the month.
const HOUR: usize = 3_600;
/// Hours of a month.
const MONTH: usize = 31 * 24;

type Read = fn(&Summary) -> u64;

/// Counters whose rates are recorded, beside those of [`LOSSES`].
const RATES: [(&str, Read); 5] = [
    ("replies", Summary::replied),
    ("announces", |sum| sum.announces),
    ("connects", |sum| sum.connects),
    ("scrapes", |sum| sum.scrapes),
    ("refused", |sum| sum.only_refused().map(|(_, count)| count).sum()),
];

/// Gauges that are recorded.
const LEVELS: [(&str, Read); 3] = [
    ("peers_ipv4", |sum| sum.peers_v4),
    ("peers_ipv6", |sum| sum.peers_v6),
    ("swarms", |sum| sum.swarms),
];

/// Numbers of a row whose rates are recorded.
const RATE_COLUMNS: usize = RATES.len() + LOSSES.len();
const COLUMNS: usize = RATE_COLUMNS + LEVELS.len();

/// The numbers of a step, in the order of [`names`]. NaN stands for none.
type Row = [f32; COLUMNS];

/// A step in which the process did not run.
const MISSING: Row = [f32::NAN; COLUMNS];

fn names() -> impl Iterator<Item = &'static str> {
    let lost = LOSSES.iter().map(|loss| loss.key);
    let [rates, levels] = [&RATES[..], &LEVELS].map(|table| table.iter().map(|(name, _)| *name));
    rates.chain(lost).chain(levels)
}

/// The history of a running tracker. The main thread changes it, once per second.
#[derive(Debug)]
pub struct History {
    rows: Mutex<Rows>,
}

#[derive(Debug)]
struct Rows {
    seconds: Ring,
    hours: Ring,
    /// Seconds since the last of the hours.
    partial: usize,
    /// The end of the last second.
    end: Instant,
    /// The counters of the last second, and when they were read. They begin at 0.
    before: ([u64; RATE_COLUMNS], Instant),
}

impl History {
    /// Without rows. The first second begins now, with all counters at 0.
    pub fn new(now: Instant) -> Self {
        let rows = Mutex::new(Rows {
            seconds: Ring::new(HOUR),
            hours: Ring::new(MONTH),
            partial: 0,
            end: now,
            before: ([0; RATE_COLUMNS], now),
        });
        Self { rows }
    }

    /// Call every second: adds the seconds that have passed since the last call. If that is more
    /// than one, each gets the mean.
    pub fn record(&self, sum: &Summary, now: Instant) {
        lock(&self.rows).record(sum, now);
    }

    /// The rows for programs and for the file, at a time in seconds since 1970.
    pub fn report(&self, now: Instant, unix: u64) -> api::History {
        lock(&self.rows).report(now, unix)
    }

    /// Puts the rows of another process before those of this one, which has just begun. The time
    /// between is a gap in the rows; after the clock was set back there is none.
    ///
    /// # Errors
    /// Why this is not what [`report`](Self::report) has returned.
    pub fn restore(&self, saved: &api::History, now: Instant, unix: u64) -> Result<(), String> {
        let restored = Rows::of(saved, now, unix)?;
        *lock(&self.rows) = restored;
        Ok(())
    }
}

impl Rows {
    fn of(report: &api::History, now: Instant, unix: u64) -> Result<Self, String> {
        if report.version != VERSION {
            let version = report.version;
            return Err(format!(
                "a history of version {version}; this build reads version {VERSION}"
            ));
        }
        let partial = report.hour.until.saturating_sub(report.month.until) as usize % HOUR;
        let mut rows = Self {
            seconds: Ring::of(&report.hour, HOUR)?,
            hours: Ring::of(&report.month, MONTH)?,
            partial,
            end: now,
            before: ([0; RATE_COLUMNS], now),
        };
        rows.skip(unix.saturating_sub(report.hour.until));
        Ok(rows)
    }

    fn record(&mut self, sum: &Summary, now: Instant) {
        let seconds = now.duration_since(self.end).as_secs();
        if seconds == 0 {
            return;
        }
        self.end += Duration::from_secs(seconds);
        let mut counters = [0; RATE_COLUMNS];
        let reads = RATES.iter().map(|(_, read)| *read).chain(LOSSES.iter().map(|loss| loss.read));
        counters.iter_mut().zip(reads).for_each(|(counter, read)| *counter = read(sum));
        let (before, read_at) = std::mem::replace(&mut self.before, (counters, now));
        let elapsed = now.duration_since(read_at).as_secs_f64().max(0.001);
        let mut row = MISSING;
        let (rates, levels) = row.split_at_mut(RATE_COLUMNS);
        for ((rate, count), before) in rates.iter_mut().zip(counters).zip(before) {
            *rate = rounded(count.saturating_sub(before) as f64 / elapsed);
        }
        for (level, (_, read)) in levels.iter_mut().zip(LEVELS) {
            *level = rounded(read(sum) as f64);
        }
        self.push(row, seconds);
    }

    /// Adds a gap. After a month without the process nothing is left.
    fn skip(&mut self, seconds: u64) {
        if seconds > (MONTH * HOUR) as u64 {
            self.seconds.rows.clear();
            self.hours.rows.clear();
        } else {
            self.push(MISSING, seconds);
        }
    }

    /// Adds a row for each of these seconds.
    fn push(&mut self, row: Row, seconds: u64) {
        for _ in 0..seconds {
            self.seconds.push(row);
            self.partial += 1;
            if self.partial == HOUR {
                self.partial = 0;
                self.hours.push(mean(self.seconds.last(HOUR)));
            }
        }
    }

    fn report(&self, now: Instant, unix: u64) -> api::History {
        let until = unix.saturating_sub(now.duration_since(self.end).as_secs());
        let month = until.saturating_sub(self.partial as u64);
        api::History {
            version: VERSION,
            hour: self.seconds.span(1, until),
            month: self.hours.span(HOUR as u32, month),
        }
    }
}

/// The last rows, up to a number that is allocated at once.
#[derive(Debug)]
struct Ring {
    rows: VecDeque<Row>,
    most: usize,
}

impl Ring {
    fn new(most: usize) -> Self {
        Self { rows: VecDeque::with_capacity(most), most }
    }

    /// The rows of a span. Values that it lacks are missing; values of other names are ignored.
    fn of(span: &HistorySpan, most: usize) -> Result<Self, String> {
        let length = span.values.values().next().map_or(0, Vec::len);
        if span.values.values().any(|values| values.len() != length) {
            return Err("the lists of values have different lengths".to_owned());
        }
        let mut ring = Self::new(most);
        ring.rows.resize(length.min(most), MISSING);
        for (column, name) in names().enumerate() {
            let Some(values) = span.values.get(name) else { continue };
            let newest = &values[length - ring.rows.len()..];
            for (row, value) in ring.rows.iter_mut().zip(newest) {
                let Some(value) = *value else { continue };
                if !(value.is_finite() && value >= 0.0) {
                    return Err("a value is negative or infinite".to_owned());
                }
                row[column] = value;
            }
        }
        Ok(ring)
    }

    fn push(&mut self, row: Row) {
        if self.rows.len() == self.most {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// The last rows, as far as there are any.
    fn last(&self, most: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().rev().take(most)
    }

    fn span(&self, step: u32, until: u64) -> HistorySpan {
        let column = |column: usize| {
            let values = self.rows.iter().map(|row| Some(row[column]));
            values.map(|value| value.filter(|number| !number.is_nan())).collect()
        };
        let values = names().enumerate().map(|(at, name)| (name.to_owned(), column(at))).collect();
        HistorySpan { until, step, values }
    }
}

/// The means of the rows that have numbers.
fn mean<'a>(rows: impl Iterator<Item = &'a Row>) -> Row {
    let mut sums = [0.0; COLUMNS];
    let mut counts = [0u32; COLUMNS];
    for row in rows {
        for ((sum, count), number) in sums.iter_mut().zip(&mut counts).zip(row) {
            if !number.is_nan() {
                *sum += f64::from(*number);
                *count += 1;
            }
        }
    }
    // Without numbers the mean is 0/0, which is NaN.
    std::array::from_fn(|at| rounded(sums[at] / f64::from(counts[at])))
}

/// Whole numbers from 100 on, as further digits only make JSON longer.
fn rounded(number: f64) -> f32 {
    let unit = if number < 100.0 { 100.0 } else { 1.0 };
    ((number * unit).round() / unit) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::refusal::Refusal;

    /// A clock of the monotonic seconds, and counters that grow by 500 replies per second.
    struct Clock(Instant, u64);

    impl Clock {
        fn at(&self, seconds: f64) -> Instant {
            self.0 + Duration::from_secs_f64(seconds)
        }

        fn sum(&self, seconds: f64) -> Summary {
            Summary { sent: (500.0 * seconds) as u64, peers_v4: self.1, ..Summary::default() }
        }
    }

    /// A history that begins at second 0, and has recorded these seconds.
    fn recorded(seconds: impl IntoIterator<Item = u32>) -> (History, Clock) {
        let clock = Clock(Instant::now(), 70_000);
        let history = History::new(clock.at(0.0));
        history.record(&clock.sum(0.0), clock.at(0.0));
        for second in seconds {
            let second = f64::from(second);
            history.record(&clock.sum(second), clock.at(second));
        }
        (history, clock)
    }

    fn values<'a>(span: &'a HistorySpan, name: &str) -> &'a [Option<f32>] {
        &span.values[name]
    }

    #[test]
    fn a_second_has_rates_and_levels() {
        let (history, clock) = recorded(1..=5);
        let report = history.report(clock.at(5.4), 1_000);
        assert_eq!((report.version, report.hour.step, report.hour.until), (1, 1, 1_000));
        assert_eq!(values(&report.hour, "replies"), [Some(500.0); 5]);
        assert_eq!(values(&report.hour, "peers_ipv4"), [Some(70_000.0); 5]);
        assert_eq!(values(&report.hour, "unsent"), [Some(0.0); 5]);
        assert_eq!(report.hour.values.len(), COLUMNS);
        assert_eq!(report.month.until, 995, "five seconds of the running hour");
        assert!(values(&report.month, "replies").is_empty());
    }

    /// The main thread is late, and later early.
    #[test]
    fn late_seconds_get_the_mean_and_none_is_lost() {
        let (history, clock) = recorded([1, 2, 6]);
        history.record(&clock.sum(6.5), clock.at(6.5));
        history.record(&clock.sum(7.0), clock.at(7.0));
        let report = history.report(clock.at(7.0), 1_000);
        assert_eq!(values(&report.hour, "replies"), [Some(500.0); 7]);
    }

    #[test]
    fn refused_and_lost_requests_are_apart() {
        let clock = Clock(Instant::now(), 0);
        let history = History::new(clock.at(0.0));
        history.record(&Summary::default(), clock.at(0.0));
        let mut sum = Summary { kernel_drops: 3, kernel_shed: 4, ..Summary::default() };
        sum.refused[Refusal::Busy as usize] = 5;
        sum.refused[Refusal::Blocked as usize] = 6;
        sum.unsent[0] = 7;
        history.record(&sum, clock.at(1.0));
        let second = history.report(clock.at(1.0), 1_000).hour;
        let read = ["refused", "busy", "kernel_drops", "kernel_shed", "unsent"];
        let numbers = read.map(|name| values(&second, name)[0]);
        assert_eq!(numbers, [6.0, 5.0, 3.0, 4.0, 7.0].map(Some));
        assert!(LOSSES.iter().all(|loss| second.values.contains_key(loss.key)));
    }

    #[test]
    fn an_hour_is_the_mean_of_its_seconds_and_nothing_grows() {
        let (history, clock) = recorded(1..=2 * 3_600 + 60);
        let report = history.report(clock.at(7_260.0), 100_000);
        assert_eq!(values(&report.hour, "replies"), [Some(500.0); 3_600]);
        assert_eq!(values(&report.month, "replies"), [Some(500.0); 2]);
        assert_eq!((report.month.step, report.month.until), (3_600, 99_940));
        let mut rows = lock(&history.rows);
        (0..2 * MONTH).for_each(|_| rows.hours.push(MISSING));
        let size = |ring: &Ring| (ring.rows.len(), ring.rows.capacity());
        assert_eq!((size(&rows.seconds), size(&rows.hours)), ((3_600, 3_600), (744, 744)));
        let bytes = (rows.seconds.rows.capacity() + rows.hours.rows.capacity()) * size_of::<Row>();
        assert_eq!(bytes, 225_888);
    }

    #[test]
    fn rows_of_the_process_before_are_kept_with_a_gap() {
        let (history, clock) = recorded(1..=3_610);
        let report = history.report(clock.at(3_610.0), 50_000);
        let later = History::new(clock.at(9_000.0));
        later.restore(&report, clock.at(9_000.0), 50_020).unwrap();
        // The counters of the new process begin at 0.
        for (second, replies) in [(0, 0), (1, 40), (2, 80)] {
            let sum = Summary { sent: replies, ..Summary::default() };
            later.record(&sum, clock.at(9_000.0 + f64::from(second)));
        }
        let after = later.report(clock.at(9_002.0), 50_022);
        let replies = values(&after.hour, "replies");
        assert_eq!(replies.len(), 3_600);
        assert_eq!(replies[3_598..], [Some(40.0); 2]);
        assert_eq!(replies[3_578..3_598], [None; 20]);
        assert_eq!(replies[3_577], Some(500.0));
        assert_eq!((after.hour.until, after.month.until), (50_022, 49_990));
        assert_eq!(values(&after.month, "replies"), [Some(500.0)]);
    }

    /// The hour in which the process changes is the mean of what both have recorded of it.
    #[test]
    fn an_hour_continues_over_a_restart() {
        let (history, clock) = recorded(1..=1_800);
        let report = history.report(clock.at(1_800.0), 10_000);
        let later = History::new(clock.at(0.0));
        later.restore(&report, clock.at(0.0), 10_600).unwrap();
        later.record(&Summary::default(), clock.at(0.0));
        later.record(&Summary { sent: 1_200 * 200, ..Summary::default() }, clock.at(1_200.0));
        let after = later.report(clock.at(1_200.0), 11_800);
        let mean = (1_800.0 * 500.0 + 1_200.0 * 200.0) / 3_000.0;
        assert_eq!(values(&after.month, "replies"), [Some(mean)]);
        assert_eq!(after.month.until, 11_800);
    }

    #[test]
    fn a_step_of_the_clock_moves_all_rows() {
        let (history, clock) = recorded(1..=10);
        for unix in [1_000, 5_000_000, 7] {
            let report = history.report(clock.at(10.0), unix);
            assert_eq!((report.hour.until, values(&report.hour, "replies").len()), (unix, 10));
        }
        // Set back between two processes: no gap. Set to long after: nothing of before is left.
        let report = history.report(clock.at(10.0), 90_000_000);
        let month = 31 * 24 * 3_600;
        let after = [(80_000_000, 10, 10), (90_007_000, 3_600, 0), (90_000_001 + month, 0, 0)];
        for (unix, rows, known) in after {
            let later = History::new(clock.at(20.0));
            later.restore(&report, clock.at(20.0), unix).unwrap();
            let hour = later.report(clock.at(20.0), unix).hour;
            let replies = values(&hour, "replies");
            assert_eq!((replies.len(), replies.iter().flatten().count()), (rows, known));
            assert_eq!(hour.until, unix);
        }
    }

    #[test]
    fn a_report_survives_json_and_damage_is_an_error() {
        let (history, clock) = recorded([1, 2, 3, 4_000]);
        let report = history.report(clock.at(4_000.0), 50_000);
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<api::History>(&json).unwrap(), report);
        let later = History::new(clock.at(0.0));
        later.restore(&report, clock.at(0.0), 50_000).unwrap();
        assert_eq!(later.report(clock.at(0.0), 50_000), report);

        let restored = |change: fn(&mut api::History)| {
            let mut report = report.clone();
            change(&mut report);
            later.restore(&report, clock.at(0.0), 50_000)
        };
        let other = restored(|report| report.version = 2);
        assert!(other.unwrap_err().contains("version 2"));
        let short = restored(|report| {
            report.hour.values.get_mut("busy").unwrap().pop();
        });
        assert!(short.unwrap_err().contains("lengths"));
        for value in [-1.0, f32::INFINITY] {
            let mut report = report.clone();
            report.month.values.get_mut("busy").unwrap()[0] = Some(value);
            let wrong = later.restore(&report, clock.at(0.0), 50_000);
            assert!(wrong.unwrap_err().contains("negative or infinite"));
        }
        assert_eq!(later.report(clock.at(0.0), 50_000), report, "unchanged by errors");
        // Values of another build: unknown ones are ignored, and missing ones are missing.
        restored(|report| {
            let values = report.hour.values.remove("busy").unwrap();
            report.hour.values.insert("new".to_owned(), values);
        })
        .unwrap();
        let hour = later.report(clock.at(0.0), 50_000).hour;
        assert_eq!(values(&hour, "busy"), vec![None; 3_600]);
        assert!(!hour.values.contains_key("new"));
    }
}
