//! Arguments about the bounds of a run and of the search for the highest rate.

use std::time::Duration;

use clap::Args;

use super::pace::OPEN;
use crate::options::{RARELY, SOMETIMES, number, seconds};
use crate::report::search::Bounds;

/// Default loss bound of a search, in percent.
const LOSS: f64 = 0.1;

/// Arguments about bounds.
#[derive(Args, Debug)]
#[command(next_help_heading = SOMETIMES)]
pub struct BoundArgs {
    /// Find the highest rate within the bounds, in at most a minute.
    ///
    /// Starts from the rate of a closed loop; short open-loop rounds then find the highest rate,
    /// and a round of --duration confirms it. Longer rounds, a longer --duration or --timeout
    /// lengthen the search. The result is marked as confirmed or not confirmed.
    #[arg(long, group = OPEN, help_heading = None)]
    pub find_max: bool,

    /// Percent of requests that may be lost [default with --find-max: 0.1].
    ///
    /// The exit status is 4 above it.
    #[arg(long, value_name = "%", value_parser = number(0.0..=100.0, ""), help_heading = None)]
    pub max_loss: Option<f64>,

    /// Upper bound on the 99th percentile of latency in milliseconds, with --find-max.
    #[arg(
        long, value_name = "MS", default_value = "10", requires = "find_max",
        value_parser = number(0.01..=60e3, " milliseconds")
    )]
    pub max_p99: f64,

    /// Precision of the rate that --find-max finds, in percent.
    #[arg(
        long, value_name = "%", default_value = "2", requires = "find_max",
        value_parser = number(0.1..=50.0, ""), help_heading = RARELY
    )]
    pub resolution: f64,

    /// Seconds of each round of --find-max except the confirming one.
    #[arg(
        long, value_name = "S", default_value = "2", requires = "find_max",
        value_parser = seconds(0.2..=600.0), help_heading = RARELY
    )]
    pub round: Duration,
}

impl BoundArgs {
    /// The bounds of a search.
    pub(super) fn of_search(&self) -> Bounds {
        Bounds { loss_percent: self.max_loss.unwrap_or(LOSS), p99_ms: self.max_p99 }
    }

    /// The load before each round but the confirming ones.
    pub(super) fn warmup(&self) -> Duration {
        self.round / 4
    }
}
