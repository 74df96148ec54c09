//! Arguments about rate and duration.

use std::time::Duration;

use clap::Args;

use crate::options::{SOMETIMES, number, seconds};
use crate::worker::Pace;
use crate::worker::pace::{Arrivals, Schedule, Segment};

/// The group of the arguments for an open loop, of which one can be given.
pub(super) const OPEN: &str = "open_loop";
/// Default duration of the measured window.
const DURATION: Duration = Duration::from_secs(10);

/// Arguments about rate and duration.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct PaceArgs {
    /// Open loop: send this many requests per second, whatever comes back.
    ///
    /// Latency then counts from the time at which a request was due.
    #[arg(
        long, short, value_name = "R", value_parser = rate, group = OPEN, help_heading = None
    )]
    pub rate: Option<f64>,

    /// Open loop of several rates with their seconds, like 1000:10,5000:10; a rate that changes
    /// linearly is 1000-5000:10.
    #[arg(
        long, value_name = "R:S,R:S", value_parser = step, value_delimiter = ',',
        conflicts_with = "duration", group = OPEN
    )]
    pub steps: Vec<Segment>,

    /// Open loop: Poisson arrivals, as from many independent clients, in place of even distances.
    #[arg(long, requires = OPEN)]
    pub poisson: bool,

    /// Seconds to measure [default: 10, or the sum of --steps].
    #[arg(long, short, value_name = "S", value_parser = seconds(0.001..=1e6), help_heading = None)]
    pub duration: Option<Duration>,

    /// Seconds of load before measuring.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds(0.0..=1e6))]
    pub warmup: Duration,

    /// Seconds after which a request is lost.
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds(0.001..=60.0))]
    pub timeout: Duration,
}

impl PaceArgs {
    /// The measured time.
    pub fn duration(&self) -> Duration {
        if self.steps.is_empty() {
            return self.duration.unwrap_or(DURATION);
        }
        Duration::from_secs_f64(self.steps.iter().map(|step| step.seconds).sum())
    }

    /// The pace of requests; `in_flight` is that of a closed loop.
    pub fn pace(&self, in_flight: usize) -> Pace {
        let (arrivals, segments) = (self.arrivals(), self.steps.clone());
        match self.rate {
            Some(rate) => Pace::Open(Schedule::constant(arrivals, rate, self.duration())),
            None if !segments.is_empty() => Pace::Open(Schedule { arrivals, segments }),
            None => Pace::InFlight(in_flight),
        }
    }

    pub(super) fn arrivals(&self) -> Arrivals {
        if self.poisson { Arrivals::Poisson } else { Arrivals::Even }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number(0.1..=1e9, " per second")(text)
}

fn step(text: &str) -> Result<Segment, String> {
    let (rates, duration) = text.split_once(':').ok_or_else(|| {
        format!("`{text}` is no step: expected RATE:SECONDS or FROM-TO:SECONDS, like 5000:10")
    })?;
    let seconds = number(0.001..=1e6, " seconds")(duration)?;
    let (from, to) = rates.split_once('-').unwrap_or((rates, rates));
    Ok(Segment { from: rate(from)?, to: rate(to)?, seconds })
}
