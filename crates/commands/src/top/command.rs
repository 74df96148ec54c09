//! Flags of `onrush top`.

use clap::Args;

use crate::admin::Admin;

/// Help for the keys.
pub(super) const KEYS: &str = "\
Keys:
  q, Esc, Ctrl-C     end the view
  Up, Down, k, j     scroll the workers by one
  PgUp, PgDn, Space  scroll the workers by a page
  Home, End, g, G    go to the first or the last workers
  s                  sort the workers by load, or by name again
  ?, h               show this explanation";

/// Help for the figures.
pub(super) const FIGURES: &str = "\
Figures:
  /s          between the last two readings; - before there are two
  refused     requests that failed a check, by reason
  lost        datagrams, requests and replies lost, by cause
  idle        swarms without peers
  not stored  new peers that a limit kept out
  unserved    connections over HTTP for which nothing was left, by cause
  WebRTC      peers of WebTorrent, which no other row counts; their offers
  load        part of a worker's time that is busy; at 100 % it drops requests
  lane        batches that wait for the worker, and how many fit
  overload    step of the longer interval, 0 to 8 (see [overload])
  …           the rest is cut; a larger terminal has room for more";

const EXAMPLES: &str = "\
Examples:
  onrush top                       the tracker on this host
  onrush top --config second.toml  the tracker with this configuration
  onrush top --url http://10.0.0.7:6970 --every 5
  onrush top --once | head -n 5    one view as text, rates over one second";

const NOTES: &str = "\
Notes:
  It needs no token. If the tracker cannot be reached, it shows the error and
  retries. It ends with its terminal.";

const EXIT_STATUS: &str = "\
Exit status:
  0  ended on request, or the view was printed
  1  the terminal cannot be used or was closed; with --once also: the tracker
     refused or could not be reached
  2  the command line is wrong, or the configuration file does not exist";

fn after_help() -> String {
    [EXAMPLES, KEYS, FIGURES, NOTES, EXIT_STATUS].join("\n\n")
}

/// Live view of a running tracker: rates, swarms, losses, the load of each worker
#[derive(Clone, Debug, Args)]
#[command(after_help = after_help())]
pub struct Top {
    /// The admin side of the tracker.
    #[command(flatten)]
    pub admin: Admin,

    /// Seconds between two readings
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub every: u64,

    /// Print one view as plain text and exit; the default if standard output is not a terminal
    ///
    /// It takes two readings, --every seconds apart.
    #[arg(long)]
    pub once: bool,
}
