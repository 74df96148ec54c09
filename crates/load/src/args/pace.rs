//! How fast and how long.

use std::time::Duration;

use clap::Args;

use super::number;
use crate::generator::Pace;
use crate::generator::pace::{Arrivals, Schedule, Segment};

/// Requests under way per worker in a closed loop. A kernel's usual receive buffer holds some 500
/// small datagrams.
const IN_FLIGHT: usize = 256;
/// Requests under way per worker at most in an open loop: what a rate of a million leaves behind
/// within the timeout of a second.
const IN_FLIGHT_OPEN: usize = 1 << 20;

/// How long to measure.
const DURATION: Duration = Duration::from_secs(10);

/// How fast and how long.
#[derive(Args, Debug)]
#[command(next_help_heading = "How fast and how long")]
pub struct PaceArgs {
    /// Closed loop: keep so many requests under way per worker [default: 256]. Open loop (--rate, --ramp,
    /// --steps, --find-max): the most that may be under way per worker, beyond which requests wait
    /// [default: what the rate brings within the timeout, and a quarter more].
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub in_flight: Option<u32>,

    /// Open loop: send so many requests per second, whatever comes back. Latency then counts from
    /// when a request should have been sent.
    #[arg(long, short, value_name = "R", value_parser = rate, conflicts_with_all = ["ramp", "steps"])]
    pub rate: Option<f64>,

    /// Open loop with a rate that grows (or falls) evenly over the measured time, like
    /// 1000-50000.
    #[arg(long, value_name = "R-R", value_parser = ramp, conflicts_with = "steps")]
    pub ramp: Option<(f64, f64)>,

    /// Open loop of several rates, each for so many seconds, like 1000:10,5000:10; a ramp among
    /// them is 1000-5000:10.
    #[arg(long, value_name = "R:S,R:S", value_parser = step, value_delimiter = ',', conflicts_with = "duration")]
    pub steps: Vec<Segment>,

    /// Open loop: requests come as from many who know nothing of each other (Poisson arrivals:
    /// now and then several at once), instead of at even distances.
    #[arg(long)]
    pub poisson: bool,

    /// Seconds to measure [default: 10, or what --steps add up to].
    #[arg(long, short, value_name = "S", value_parser = seconds)]
    pub duration: Option<Duration>,

    /// Seconds of load before measuring.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,

    /// Seconds after which a request is lost.
    #[arg(long, value_name = "S", default_value = "1", value_parser = positive_seconds)]
    pub timeout: Duration,
}

impl PaceArgs {
    /// What fits no single argument.
    ///
    /// # Errors
    /// A sentence that names it.
    pub(super) fn check(&self, find_max: bool) -> Result<(), String> {
        if self.duration().is_zero() {
            return Err("--duration is 0: nothing would be measured".into());
        }
        if self.poisson && !find_max && self.schedule().is_none() {
            return Err("--poisson is about an open loop: give --rate, --ramp, --steps or \
                        --find-max too, or leave it out"
                .into());
        }
        Ok(())
    }

    /// The measured time.
    pub fn duration(&self) -> Duration {
        if self.steps.is_empty() {
            return self.duration.unwrap_or(DURATION);
        }
        Duration::from_secs_f64(self.steps.iter().map(|step| step.seconds).sum())
    }

    /// When requests leave.
    pub fn pace(&self) -> Pace {
        match self.schedule() {
            Some(schedule) => Pace::Open(schedule),
            None => Pace::InFlight(self.in_flight.map_or(IN_FLIGHT, |count| count as usize)),
        }
    }

    /// That of an open loop.
    fn schedule(&self) -> Option<Schedule> {
        let segments = match (self.rate, self.ramp) {
            (Some(rate), _) => return Some(self.at(rate, self.duration())),
            (None, Some((from, to))) => {
                vec![Segment { from, to, seconds: self.duration().as_secs_f64() }]
            }
            (None, None) => self.steps.clone(),
        };
        (!segments.is_empty()).then_some(Schedule { arrivals: self.arrivals(), segments })
    }

    /// That of one rate.
    pub(super) fn at(&self, rate: f64, lasts: Duration) -> Schedule {
        let segments = vec![Segment { from: rate, to: rate, seconds: lasts.as_secs_f64() }];
        Schedule { arrivals: self.arrivals(), segments }
    }

    fn arrivals(&self) -> Arrivals {
        if self.poisson { Arrivals::Poisson } else { Arrivals::Even }
    }

    /// Requests under way at most in an open loop, per worker: room for what it leaves under way
    /// when nobody answers.
    pub fn limit(&self, workers: u32) -> usize {
        self.limit_at(self.schedule().map_or(0.0, |schedule| schedule.peak()), workers)
    }

    /// That at a rate.
    pub(super) fn limit_at(&self, rate: f64, workers: u32) -> usize {
        let unanswered = rate / f64::from(workers) * self.timeout.as_secs_f64() * 1.25;
        let room = (unanswered as usize).clamp(1024, IN_FLIGHT_OPEN);
        self.in_flight.map_or(room, |count| count as usize)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    number(text, "between 0 and 1000000 seconds", |s| (0.0..=1e6).contains(&s))
        .map(Duration::from_secs_f64)
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    number(text, "between 0.001 and 60 seconds", |s| (0.001..=60.0).contains(&s))
        .map(Duration::from_secs_f64)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 1000000000 per second", |rate| (0.1..=1e9).contains(&rate))
}

fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once('-')
        .ok_or_else(|| format!("`{text}` is no ramp: expected FROM-TO, like 1000-50000"))?;
    Ok((rate(from)?, rate(to)?))
}

fn step(text: &str) -> Result<Segment, String> {
    let (rates, lasts) = text.split_once(':').ok_or_else(|| {
        format!("`{text}` is no step: expected RATE:SECONDS or FROM-TO:SECONDS, like 5000:10")
    })?;
    let seconds =
        number(lasts, "between 0.001 and 1000000 seconds", |s| (0.001..=1e6).contains(&s))?;
    let (from, to) = match rate(rates) {
        Ok(rate) => (rate, rate),
        Err(_) if rates.contains('-') => ramp(rates)?,
        Err(error) => return Err(error),
    };
    Ok(Segment { from, to, seconds })
}
