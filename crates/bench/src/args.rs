//! The command line.

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};

use crate::cpus::CpuMode;
use crate::mix::Mix;

const ABOUT: &str =
    "Compares UDP BitTorrent trackers: the same load, one after the other, taking turns.";

const AFTER_HELP: &str = "\
Examples:
  onrush-bench list                                  which trackers are here, and how to get the others
  onrush-bench plan                                  which rounds there would be, and how long they take
  onrush-bench run --out results                     do them, write results/report.md
  onrush-bench run --out results --within 15         as many rounds as fit into 15 minutes
  onrush-bench run --resume results                  go on where that stopped
  onrush-bench report results                        write its report again
  onrush-bench run --out r --contenders onrush,aquatic --mix spread,bursts --rounds 7
  onrush-bench run --out r --cores 1,2,4 --load-workers 8,12 --cpu-mode split-pairs --mix published

scripts/bench-peers installs the other trackers by their packages' names; scripts/bench-compare does
everything in one go. docs/BENCHMARKS.md says what is measured and how much noise there is.

A round: the tracker is started on its vCPUs, waited for until it answers a connect, warmed, measured
in a closed loop (as much as comes back), then at shares of that maximum in an open loop, where latency
counts from when a request should have been sent; then it is ended. What a round found is written at
once; a failed one is shown as failed.

Exit codes:
  0    done (failed rounds are in the report)
  1    no round has a figure, or results cannot be written; with --strict also when a round failed
  2    the command line or this host is not fit for it
  130  ended by a signal; go on with --resume";

/// What to do.
#[derive(Debug, Parser)]
#[command(name = "onrush-bench", version = onrush_load::version(), about = ABOUT, after_long_help = AFTER_HELP)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Show which trackers are found, with their versions, and how to get the others
    List,
    /// Show the rounds that `run` would do with the same arguments, and how long they take
    Plan(What),
    /// Measure, and write the report
    Run(Run),
    /// Write the report of a result directory again
    Report {
        /// The result directory.
        directory: PathBuf,
    },
}

/// Measuring.
#[derive(Debug, Group)]
pub struct Run {
    /// What is measured.
    #[command(flatten)]
    pub what: What,

    /// Write results and report into this directory; it must not hold any yet
    #[arg(long, value_name = "DIR", required_unless_present = "resume", conflicts_with = "resume")]
    pub out: Option<PathBuf>,

    /// Go on with the bench that was begun in this directory, as it was planned there
    ///
    /// Other arguments about what is measured are not looked at.
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,

    /// Exit with 1 when a round failed or a reply of the baseline was wrong, also where there are figures
    #[arg(long)]
    pub strict: bool,
}

/// What is measured, and how.
#[derive(Debug, Group)]
pub struct What {
    /// The trackers: onrush, aquatic, opentracker, chihaya, torrust [default: all that are found]
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub contenders: Vec<String>,

    /// The loads, one after the other
    #[arg(long, value_name = "MIX,MIX", value_delimiter = ',', default_value = "spread,bursts")]
    pub mix: Vec<Mix>,

    /// Cores for the tracker [default: 1, 2, 4, 6, 8, 12, 16, as far as they leave the load as many]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub cores: Vec<usize>,

    /// Workers of the load, each on a core [default: the cores that the tracker leaves]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub load_workers: Vec<usize>,

    /// What counts as a core [default: subsequent-one-per-pair where cores have siblings (SMT), else
    /// subsequent]
    #[arg(long, value_name = "MODE")]
    pub cpu_mode: Option<CpuMode>,

    /// How often each case is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,

    /// As many rounds as fit into so many minutes, at least one
    #[arg(long, value_name = "MIN", conflicts_with = "rounds", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub within: Option<u32>,

    /// Seconds that a measurement takes
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub seconds: f64,

    /// Seconds of load before it
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub warmup: f64,

    /// Shares of its own maximum at which a tracker's latency is measured
    #[arg(long, value_name = "%,%", value_delimiter = ',', default_value = "50,80", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub latency_at: Vec<u32>,

    /// Measure no latency: a third of the time
    #[arg(long)]
    pub no_latency: bool,

    /// Swarms of the population [default: the mix's: 1,000,000 under real, 560,000 under spread and bursts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub swarms: Option<u32>,

    /// Whom the others are compared with: a tracker, or one of its variants ("onrush (split)")
    #[arg(long, value_name = "NAME", default_value = "onrush")]
    pub baseline: String,

    /// Call a figure noisy whose rounds are spread over more than this part of the median
    #[arg(long, value_name = "%", default_value_t = 10.0)]
    pub noise: f64,

    /// UDP port of the trackers, on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 16_969, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Decides populations and mixes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected between 0.1 and 3600 seconds".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_directory_is_needed_and_one_is_enough() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        assert!(parse("onrush-bench run").is_err());
        assert!(parse("onrush-bench run --out a --resume b").is_err());
        assert!(parse("onrush-bench run --resume b").is_ok());
        let Task::Plan(what) = parse("onrush-bench plan --cores 1,2 --latency-at 70").unwrap().task
        else {
            panic!("not plan")
        };
        assert_eq!((what.cores, what.latency_at), (vec![1, 2], vec![70]));
        assert_eq!(what.mix, [Mix::Spread, Mix::Bursts]);
        for wrong in ["--seconds 0", "--rounds 0", "--port 0", "--mix nonsense", "--latency-at 101"]
        {
            assert!(parse(&format!("onrush-bench plan {wrong}")).is_err(), "{wrong}");
        }
    }
}
