//! How fast and how long.

use std::time::Duration;

use clap::Args;

use super::number;
use crate::generator::Pace;

/// Requests under way per worker in a closed loop. A kernel's usual receive buffer holds some 500
/// small datagrams.
const IN_FLIGHT: usize = 256;
/// Requests under way per worker at most in an open loop: what a rate of a million leaves behind
/// within the timeout of a second.
const IN_FLIGHT_OPEN: usize = 1 << 20;

/// How fast and how long.
#[derive(Args, Debug)]
#[command(next_help_heading = "How fast and how long")]
pub struct PaceArgs {
    /// Closed loop: keep so many requests under way per worker [default: 256]. With --rate: the
    /// most that may be under way.
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub in_flight: Option<u32>,

    /// Open loop: send so many requests per second, whatever comes back. Latency then counts from
    /// when a request should have been sent.
    #[arg(long, short, value_name = "R", value_parser = rate)]
    pub rate: Option<f64>,

    /// Seconds to measure.
    #[arg(long, short, value_name = "S", default_value = "10", value_parser = seconds)]
    pub duration: Duration,

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
    pub fn check(&self) -> Result<(), String> {
        if self.duration.is_zero() {
            return Err("--duration is 0: nothing would be measured".into());
        }
        Ok(())
    }

    /// When requests leave.
    pub fn pace(&self) -> Pace {
        match self.rate {
            Some(rate) => Pace::Rate(rate),
            None => Pace::InFlight(self.in_flight.map_or(IN_FLIGHT, |count| count as usize)),
        }
    }

    /// Requests under way at most in an open loop, per worker: room for what it leaves under way
    /// when nobody answers.
    pub fn limit(&self, workers: u32) -> usize {
        let each = self.rate.unwrap_or(0.0) / f64::from(workers);
        let unanswered = each * self.timeout.as_secs_f64() * 1.25;
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
