//! The command line.

use std::path::PathBuf;

use clap::{Args as Group, Parser, Subcommand};

use crate::mix::Mix;
use crate::plan::BenchSettings;
use crate::transport::TransportArgs;

const ABOUT: &str = "Compares BitTorrent trackers under the same load, one at a time and in turns.";

const AFTER_HELP: &str = "\
Examples:
  onrush-bench list                           trackers found, others to install
  onrush-bench plan                           the rounds of a run, their time
  onrush-bench run --out results              the run; writes results/report.md
  onrush-bench run --out results --within 15  rounds that fit into 15 minutes
  onrush-bench report results                 write its report again
  onrush-bench run --out r --contenders onrush,aquatic --mix spread --rounds 7
  onrush-bench run --out r --cores 1,2,4 --load-workers 8 --mix published
  onrush-bench run --out r --mix https,wss    over TLS: announces, WebTorrent
  onrush-bench transport --out results        WebRTC, QUIC, TLS and TCP, beside
                                              go-libp2p

scripts/bench-peers installs the other trackers by package name;
scripts/bench-compare does all. docs/BENCHMARKS.md describes the method and the
noise.

A round: start the tracker on its vCPUs, wait until it answers, warm up,
measure a closed loop (the maximum), then open loops at shares of that maximum,
in which latency counts from the time a request was due; then stop it. The
result of a round is written at once; a failed round is shown as failed.

Exit status:
  0    done (failed rounds are in the report)
  1    no round has a figure, or results cannot be written; with --strict also
       when a round failed
  2    the arguments or this host are unusable
  130  ended by a signal; `report` shows the rounds that were done";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "onrush-bench", version = onrush_text::version::version(), about = ABOUT,
    after_long_help = AFTER_HELP
)]
pub struct Args {
    /// The command line.
    #[command(subcommand)]
    pub task: Task,
}

/// The command line.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Show the trackers that are found, with versions, and how to install the others
    List,
    /// Show the rounds of `run` with the same arguments, and their duration
    Plan(Selection),
    /// Measure, and write the report
    Run(Run),
    /// Measure what transports cost, here and in go-libp2p, and write the report
    Transport(TransportArgs),
    /// Write the report of a result directory again
    Report {
        /// The result directory.
        directory: PathBuf,
    },
}

/// The arguments of a run.
#[derive(Debug, Group)]
pub struct Run {
    /// The measurements.
    #[command(flatten)]
    pub what: Selection,

    /// Write results and report to this directory, which must not have any
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Exit with 1 when a round failed or a reply of the baseline was wrong
    #[arg(long)]
    pub strict: bool,
}

/// The measurements, and how they are done.
#[derive(Debug, Group)]
pub struct Selection {
    /// The trackers: onrush, aquatic, aquatic-http, aquatic-ws, opentracker, chihaya, torrust,
    /// bittorrent-tracker [default: all of these that are found and serve the load], before (an
    /// older onrush), floor (a server that does no work of a tracker)
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub contenders: Vec<String>,

    /// The loads
    #[arg(long, value_name = "MIX,MIX", value_delimiter = ',', default_value = "spread,bursts")]
    pub mix: Vec<Mix>,

    /// Cores for the tracker [default: those of 1, 2, 4, 6, 8, 12, 16 that leave as many to the
    /// load]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub cores: Vec<usize>,

    /// Workers of the load, each on a core [default: the remaining cores]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub load_workers: Vec<usize>,

    /// The settings of the measurements.
    #[command(flatten)]
    pub settings: BenchSettings,

    /// As many rounds as fit into this many minutes, at least one
    #[arg(
        long, value_name = "MIN", conflicts_with = "rounds",
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    pub within: Option<u32>,

    /// Measure no latency, in a third of the time
    #[arg(long)]
    pub no_latency: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    /// Longer lines would be wrapped once more.
    #[test]
    fn the_help_is_wrapped_once() {
        let help = Args::command().term_width(80).render_long_help().to_string();
        assert!(help.contains(AFTER_HELP), "{help}");
    }

    #[test]
    fn a_run_needs_a_directory() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        assert!(parse("onrush-bench run").is_err());
        assert!(parse("onrush-bench run --out a").is_ok());
        let Task::Plan(what) = parse("onrush-bench plan --cores 1,2 --latency-at 70").unwrap().task
        else {
            panic!("not plan")
        };
        assert_eq!((what.cores, what.settings.shares), (vec![1, 2], vec![70]));
        assert_eq!(what.mix, [Mix::Spread, Mix::Bursts]);
        for wrong in ["--seconds 0", "--rounds 0", "--port 0", "--mix nonsense", "--latency-at 101"]
        {
            assert!(parse(&format!("onrush-bench plan {wrong}")).is_err(), "{wrong}");
        }
    }
}
