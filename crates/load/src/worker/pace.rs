//! The pace of requests: by replies (closed loop), or by a schedule (open loop).
//!
//! A schedule is a piecewise linear rate over time, which covers constants, steps and ramps. Its
//! integral L(t) is the number of requests due by t. Even arrivals fall where L has grown by 1,
//! Poisson arrivals where it has grown by an exponentially distributed distance of mean 1; both
//! are found by inverting L, which is a quadratic within a piece. Of n workers each has every n-th
//! even arrival, so that all together are even again, and Poisson arrivals at n times the distance,
//! which add up to a Poisson process.
//!
//! ```text
//! rate                           before its start (warm-up) a schedule has its first rate,
//!   |        ______              after its last segment the last one
//!   |       /      |
//!   |______/       |_________
//!   +--|----------------------> t
//!      start
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::{LoadSettings, Nanos, Next, Window};

/// Initial capacity of the queue of due requests: the largest burst.
const READY: usize = 1024;

/// Upper bound on requests in flight per worker in an open loop: a million per second without a
/// reply, with a timeout of a second.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// A worker waits until this long before the next request is due, and spins for the rest: a wait
/// ends late by the kernel's timer slack (50 us, prctl(2)) and by the time of a wake-up.
const SPIN_BEFORE_SEND: Nanos = 100_000;
/// At the limit of requests in flight a worker waits this long for replies.
const FULL_WAIT: Nanos = 4_000_000;
/// Upper bound on a wait.
const LONGEST_WAIT: Nanos = 20_000_000;

/// The pace of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Closed loop: this many requests are kept in flight.
    InFlight(usize),
    /// Open loop: requests leave by a schedule, whatever the replies.
    Open(Schedule),
}

/// A rate over time, and the distribution of arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The distribution of arrivals.
    pub arrivals: Arrivals,
    /// The pieces of the rate in order; at least one.
    pub segments: Vec<Segment>,
}

/// The distribution of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At even distances.
    Even,
    /// At exponentially distributed distances, as from many independent clients.
    Poisson,
}

/// A linear piece of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Requests per second at its start.
    pub from: f64,
    /// Requests per second at its end.
    pub to: f64,
    /// Its duration in seconds.
    pub seconds: f64,
}

impl Pace {
    /// A description, like `open loop, 1,000 per second`.
    pub fn describe(&self) -> String {
        match self {
            Self::InFlight(count) => format!("closed loop, {count} in flight per worker"),
            Self::Open(schedule) => format!("open loop, {}", schedule.describe()),
        }
    }
}

impl Schedule {
    /// A constant rate.
    pub fn constant(arrivals: Arrivals, rate: f64, duration: Duration) -> Self {
        let segments = vec![Segment { from: rate, to: rate, seconds: duration.as_secs_f64() }];
        Self { arrivals, segments }
    }

    /// The limit of requests in flight of each worker: those of a tracker that does not answer
    /// within the timeout, with a margin.
    pub fn in_flight_limit(&self, workers: usize, timeout: f64) -> usize {
        let rates = self.segments.iter().map(|segment| segment.from.max(segment.to));
        let highest = rates.fold(0.0, f64::max);
        let unanswered = highest / workers as f64 * timeout * 1.25;
        (unanswered as usize).clamp(1024, MAX_IN_FLIGHT)
    }

    /// Describes the segment at `time` seconds after the start, like `step 2: 5,000 per second`.
    pub fn step(&self, time: f64) -> String {
        let mut end = 0.0;
        let at = self.segments.iter().position(|segment| {
            end += segment.seconds;
            time < end
        });
        let at = at.unwrap_or(self.segments.len() - 1);
        format!("step {}: {} per second", at + 1, self.segments[at].describe())
    }

    /// Describes the rates.
    fn describe(&self) -> String {
        let rates = match self.segments.as_slice() {
            [only] => only.describe(),
            all => {
                let all = all.iter().map(|s| format!("{} for {} s", s.describe(), s.seconds));
                all.collect::<Vec<_>>().join(", ")
            }
        };
        match self.arrivals {
            Arrivals::Even => format!("{rates} per second"),
            Arrivals::Poisson => format!("{rates} per second, Poisson arrivals"),
        }
    }
}

impl Segment {
    /// Its rate, or its rates at both ends.
    fn describe(&self) -> String {
        match (per_second(self.from), per_second(self.to)) {
            (from, to) if from == to => to,
            (from, to) => format!("{from} to {to}"),
        }
    }
}

/// A rate, with thousands separated.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate < 1000.0 => format!("{rate}"),
        rate => onrush_text::numbers::grouped(rate),
    }
}

/// A piece of the rate, prepared for the search of the next arrival.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Its start in nanoseconds.
    begin: f64,
    /// Its duration in nanoseconds; infinite for the last piece.
    lasts: f64,
    /// Requests per nanosecond at its start.
    rate: f64,
    /// Growth of the rate per nanosecond.
    slope: f64,
    /// Requests due before its start.
    before: f64,
}

impl Piece {
    /// Requests due in its first `passed` nanoseconds.
    fn due(&self, passed: f64) -> f64 {
        passed * (self.rate + self.slope * passed / 2.0)
    }

    /// The time in nanoseconds after which `due` requests are due.
    fn after(&self, due: f64) -> f64 {
        if due <= 0.0 {
            return 0.0;
        }
        if self.slope == 0.0 {
            return due / self.rate;
        }
        // This form of the quadratic's root is numerically stable for small slopes.
        let root = (self.rate * self.rate + 2.0 * self.slope * due).max(0.0).sqrt();
        2.0 * due / (self.rate + root)
    }
}

/// The due times of one worker's requests, in order.
#[derive(Debug)]
pub struct Timetable {
    pieces: Vec<Piece>,
    /// The piece in which the next request is due.
    piece: usize,
    /// Requests of all workers due until the next one of this worker.
    due: f64,
    /// When the next one is due.
    next: Nanos,
    /// Number of workers that share the schedule.
    workers: f64,
    /// Random numbers for the distances of Poisson arrivals.
    chance: Option<SmallRng>,
    /// Due times that are not taken yet.
    ready: VecDeque<Nanos>,
}

impl Timetable {
    /// The timetable of worker number `worker` of `workers` for a schedule that starts at `begin`.
    /// The first even arrival is at time 0. `seed` decides Poisson arrivals.
    ///
    /// # Panics
    /// Without segments.
    pub fn new(
        schedule: &Schedule,
        begin: Nanos,
        worker: usize,
        workers: usize,
        seed: u64,
    ) -> Self {
        let pieces = pieces(schedule, begin);
        let chance = (schedule.arrivals == Arrivals::Poisson).then(|| {
            let seed = crate::plan::population::mix(seed ^ 0x504F_4953_534F_4E00);
            SmallRng::seed_from_u64(seed.wrapping_add(worker as u64))
        });
        let workers = workers.max(1) as f64;
        let ready = VecDeque::with_capacity(READY);
        let mut timetable = Self { pieces, piece: 0, due: 0.0, next: 0, workers, chance, ready };
        let first = match timetable.chance {
            None => worker as f64,
            Some(_) => timetable.distance(),
        };
        timetable.step(first);
        timetable
    }

    /// When the next request is due that has not been taken.
    #[inline]
    pub fn next(&self) -> Nanos {
        self.ready.front().copied().unwrap_or(self.next)
    }

    /// Number of requests due at `now` and not taken, at most `limit`.
    #[inline]
    pub fn ready(&mut self, now: Nanos, limit: usize) -> usize {
        while self.ready.len() < limit && self.next <= now {
            self.ready.push_back(self.next);
            let distance = self.distance();
            self.step(distance);
        }
        self.ready.len().min(limit)
    }

    /// Takes the next request and returns its due time.
    #[inline]
    pub fn take(&mut self) -> Nanos {
        self.ready.pop_front().unwrap_or_else(|| {
            let due = self.next;
            let distance = self.distance();
            self.step(distance);
            due
        })
    }

    /// Number of requests due before `end` and not taken; the expected number of Poisson arrivals.
    pub fn left(&self, end: Nanos) -> u64 {
        let ready = self.ready.iter().filter(|due| **due < end).count() as u64;
        if self.next >= end {
            return ready;
        }
        let at = end as f64;
        let piece = self.pieces.iter().rev().find(|piece| piece.begin <= at);
        let due = piece.map_or(0.0, |piece| piece.before + piece.due(at - piece.begin));
        // A request due at the end, exactly or by rounding, is not due before it.
        let more = ((due - self.due) / self.workers - 1e-6).ceil();
        ready + (more as u64).max(1)
    }

    /// Number of requests of all workers until this worker's next one.
    #[inline]
    fn distance(&mut self) -> f64 {
        match &mut self.chance {
            None => self.workers,
            // 1 - u is above 0, as u is below 1.
            Some(chance) => -(1.0 - chance.random::<f64>()).ln() * self.workers,
        }
    }

    /// Advances by `distance` due requests.
    #[inline]
    fn step(&mut self, distance: f64) {
        self.due += distance;
        while let Some(following) = self.pieces.get(self.piece + 1)
            && following.before <= self.due
        {
            self.piece += 1;
        }
        let piece = &self.pieces[self.piece];
        let at = piece.begin + piece.after(self.due - piece.before).min(piece.lasts);
        self.next = at.round() as Nanos;
    }
}

/// The pace of one worker.
#[derive(Debug)]
pub struct Pacer {
    /// Open loop: the due times of requests.
    timetable: Option<Timetable>,
    /// Nanoseconds after which a request is lost.
    pub timeout: Nanos,
}

/// What decides how long a worker waits.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Whether requests are in flight.
    pub in_flight: bool,
    /// Whether another request could be sent.
    pub has_room: bool,
    /// Whether replies are expected too soon to sleep.
    pub is_busy: bool,
}

impl Pacer {
    /// The pace of worker number `worker`.
    pub fn new(settings: &LoadSettings, window: Window, worker: usize) -> Self {
        let timetable = match &settings.pace {
            Pace::InFlight(_) => None,
            Pace::Open(schedule) => {
                let LoadSettings { workers, seed, .. } = *settings;
                Some(Timetable::new(schedule, window.start, worker, workers, seed))
            }
        };
        Self { timetable, timeout: (settings.timeout * 1e9).round() as Nanos }
    }

    /// Whether this is an open loop.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.timetable.is_some()
    }

    /// Number of requests to send now, at most `most`, with the end of the window at `end`. A
    /// closed loop sends the `missing` ones.
    #[inline]
    pub fn wanted(&mut self, now: Nanos, end: Nanos, missing: usize, most: usize) -> usize {
        match &mut self.timetable {
            None if now >= end => 0,
            None => missing.min(most),
            // Requests due within the window are still sent for a timeout after it.
            Some(_) if now >= end + self.timeout => 0,
            Some(timetable) => timetable.ready(now.min(end - 1), most),
        }
    }

    /// Takes the next request and returns its due time: now in a closed loop.
    #[inline]
    pub fn take(&mut self, now: Nanos) -> Nanos {
        self.timetable.as_mut().map_or(now, Timetable::take)
    }

    /// Open loop: requests that were due before `end` and are not taken.
    pub fn unsent(&self, end: Nanos) -> u64 {
        self.timetable.as_ref().map_or(0, |due| due.left(end))
    }

    /// The action until the next request is due, with the end of the window at `end`.
    pub fn next(&mut self, now: Nanos, end: Nanos, progress: Progress) -> Next {
        if now >= end {
            let due = self.wanted(now, end, 0, 1) > 0;
            return match progress {
                Progress { in_flight: false, .. } if !due => Next::Done,
                Progress { has_room: true, .. } if due => Next::Again,
                _ => Next::Wait(Duration::from_nanos(LONGEST_WAIT / 4)),
            };
        }
        if progress.is_busy {
            return Next::Again;
        }
        let until = match &self.timetable {
            None => LONGEST_WAIT,
            Some(timetable) if progress.has_room => timetable.next().saturating_sub(now),
            Some(_) => FULL_WAIT,
        };
        match until.min(end - now).min(LONGEST_WAIT) {
            soon if soon <= SPIN_BEFORE_SEND => Next::Again,
            later => Next::Wait(Duration::from_nanos(later - SPIN_BEFORE_SEND)),
        }
    }
}

/// The pieces of a schedule: the first rate until `begin`, the segments, then the last rate.
fn pieces(schedule: &Schedule, begin: Nanos) -> Vec<Piece> {
    let (Some(first), Some(last)) = (schedule.segments.first(), schedule.segments.last()) else {
        panic!("a schedule has at least one segment");
    };
    let warmup = Segment { from: first.from, to: first.from, seconds: begin as f64 / 1e9 };
    let rest = Segment { from: last.to, to: last.to, seconds: f64::INFINITY };
    let mut pieces: Vec<Piece> = Vec::with_capacity(schedule.segments.len() + 2);
    for segment in std::iter::once(&warmup).chain(&schedule.segments).chain([&rest]) {
        let (begin, before) = pieces.last().map_or((0.0, 0.0), |last| {
            (last.begin + last.lasts, last.before + last.due(last.lasts))
        });
        let (rate, lasts) = (segment.from / 1e9, segment.seconds * 1e9);
        let slope =
            if segment.from == segment.to { 0.0 } else { (segment.to / 1e9 - rate) / lasts };
        if lasts > 0.0 {
            pieces.push(Piece { begin, lasts, rate, slope, before });
        }
    }
    pieces
}

#[cfg(test)]
mod tests;
