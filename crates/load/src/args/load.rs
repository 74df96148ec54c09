//! The arguments that a load over any protocol has.

use std::time::Duration;

use clap::Args;

use super::{BoundArgs, MixArgs, OutputArgs, PaceArgs};
use crate::check::Strictness;
use crate::options::{RARELY, SOMETIMES, count};
use crate::report::search::Purpose;
use crate::run::RunSettings;
use crate::search::{Aim, Times};
use crate::worker::pace::Schedule;
use crate::worker::{LoadSettings, Pace};

/// Measured seconds of the closed loop with which a search begins.
const CLOSED_LOOP: Duration = Duration::from_secs(1);

/// Arguments of a load over any protocol.
#[derive(Args, Debug)]
pub struct LoadArgs {
    /// Number of threads that send and receive.
    #[arg(
        long, short, value_name = "N", default_value_t = 1,
        value_parser = count(1..=1024), help_heading = None
    )]
    pub workers: u32,
    /// Pin each worker to a vCPU.
    #[arg(long, value_name = "CPU,CPU", value_delimiter = ',', help_heading = SOMETIMES)]
    pub pin: Vec<usize>,
    /// Traffic.
    #[command(flatten)]
    pub mix: MixArgs,
    /// Rate and duration.
    #[command(flatten)]
    pub pace: PaceArgs,
    /// Bounds.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// Count replies as wrong that differ from the expected ones within what the BEPs leave open.
    #[arg(long, help_heading = SOMETIMES)]
    pub strict: bool,
    /// Strictness of the checks.
    #[command(flatten, next_help_heading = RARELY)]
    pub strictness: Strictness,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl LoadArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// A sentence that names the contradiction.
    pub fn check(&self) -> Result<(), String> {
        let (pins, workers) = (self.pin.len(), self.workers as usize);
        match pins != 0 && pins != workers {
            true => Err(format!("--pin names {pins} vCPUs for {workers} --workers")),
            false => Ok(()),
        }
    }

    /// The settings of a run with requests one by one; a closed loop keeps `in_flight` per worker.
    pub fn run_settings(&self, seed: u64, in_flight: usize) -> RunSettings {
        let Self { pace, output, .. } = self;
        let load = LoadSettings {
            pace: pace.pace(in_flight),
            limit: None,
            burst: 1,
            bursts: false,
            warmup: pace.warmup.as_secs_f64(),
            timeout: pace.timeout.as_secs_f64(),
            seed,
            workers: self.workers as usize,
            pin: self.pin.clone(),
            strictness: self.strictness,
            strict: self.strict,
        };
        let (tracker, quiet) = (output.tracker_pid.clone(), output.report.quiet);
        RunSettings { load, duration: pace.duration(), tracker, quiet, xdp: None }
    }

    /// The aim of a search.
    pub fn aim(&self) -> Aim {
        let Self { bounds, pace, .. } = self;
        // A round ends when its last requests are answered or lost.
        let whole = |warmup, duration| warmup + duration + pace.timeout;
        Aim {
            bounds: bounds.of_search(),
            resolution: bounds.resolution / 100.0,
            times: Times::new(
                whole(bounds.warmup(), CLOSED_LOOP),
                whole(bounds.warmup(), bounds.round),
                whole(pace.warmup, pace.duration()),
            ),
        }
    }

    /// The settings of the closed loop with which a search begins, from those of a run.
    pub fn closed_loop(&self, settings: &RunSettings) -> RunSettings {
        let settings = settings.clone();
        let load = LoadSettings { warmup: self.bounds.warmup().as_secs_f64(), ..settings.load };
        RunSettings { load, duration: CLOSED_LOOP, quiet: true, ..settings }
    }

    /// The settings of a round of a search, from those of a run.
    pub fn round(&self, settings: &RunSettings, purpose: Purpose, rate: f64) -> RunSettings {
        let confirm = purpose == Purpose::Confirm;
        let (warmup, duration) = match confirm {
            true => (self.pace.warmup, self.pace.duration()),
            false => (self.bounds.warmup(), self.bounds.round),
        };
        let settings = settings.clone();
        let pace = Pace::Open(Schedule::constant(self.pace.arrivals(), rate, duration));
        let load = LoadSettings { pace, warmup: warmup.as_secs_f64(), ..settings.load };
        RunSettings { load, duration, quiet: settings.quiet || !confirm, ..settings }
    }
}
