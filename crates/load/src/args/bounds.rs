//! What must be kept: the bounds of a run and of the search for the highest rate.

use std::time::Duration;

use clap::Args;

use super::number;
use crate::report::search::Bounds;
use crate::search::Aim;

/// Loss that a search allows unless told otherwise, in percent.
const LOSS: f64 = 0.1;

/// What must be kept.
#[derive(Args, Debug)]
#[command(next_help_heading = "Bounds, and the highest rate within them")]
pub struct BoundArgs {
    /// Find the highest rate within the bounds: short open-loop rounds, doubling and then halving
    /// the distance, and one of --duration that confirms it. Takes a minute or so.
    #[arg(long, conflicts_with_all = ["rate", "ramp", "steps"])]
    pub find_max: bool,

    /// Percent of requests that may be lost: more is exit status 4 [default with --find-max: 0.1].
    #[arg(long, value_name = "%", value_parser = percent)]
    pub max_loss: Option<f64>,

    /// Milliseconds that 99 % of replies may take at most, with --find-max.
    #[arg(long, value_name = "MS", default_value = "10", value_parser = milliseconds, requires = "find_max")]
    pub max_p99: f64,

    /// How close --find-max comes to the highest rate, in percent.
    #[arg(long, value_name = "%", default_value = "2", value_parser = resolution, requires = "find_max")]
    pub resolution: f64,

    /// Seconds of each round of --find-max, but for the one that confirms.
    #[arg(long, value_name = "S", default_value = "2", value_parser = round, requires = "find_max")]
    pub round: Duration,
}

impl BoundArgs {
    /// What a search is to find.
    pub fn aim(&self) -> Aim {
        let loss_percent = self.max_loss.unwrap_or(LOSS);
        let bounds = Bounds { loss_percent, p99_ms: self.max_p99 };
        Aim { bounds, resolution: self.resolution / 100.0 }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, "between 0 and 100", |percent| (0.0..=100.0).contains(&percent))
}

fn milliseconds(text: &str) -> Result<f64, String> {
    number(text, "between 0.01 and 60000 milliseconds", |ms| (0.01..=60e3).contains(&ms))
}

fn resolution(text: &str) -> Result<f64, String> {
    number(text, "between 0.1 and 50", |percent| (0.1..=50.0).contains(&percent))
}

fn round(text: &str) -> Result<Duration, String> {
    number(text, "between 0.2 and 600 seconds", |s| (0.2..=600.0).contains(&s))
        .map(Duration::from_secs_f64)
}
