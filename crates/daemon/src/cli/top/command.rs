//! Flags of `onrush top`.

use clap::Args;

use crate::cli::admin::Admin;

const AFTER_HELP: &str = "\
Examples:
  onrush top                                     the tracker on this host
  onrush top --config second.toml                the tracker with this configuration
  onrush top --url http://10.0.0.7:6970 --every 5
  onrush top --once | head -n 5                  one view as text, with rates over one second

It needs no token. q, Esc or Ctrl-C ends it. If the tracker cannot be reached, it shows the error
and retries.

Rates are those between the last two readings. The load of a worker is the share of time in which
it was busy; at 100 % it drops requests. `dropped` are datagrams for which the kernel had no room,
`unsent` are replies that the kernel did not take. `overload` is the step of load shedding, 0 to 8
(see [overload]).

Exit codes:
  0  ended on request, or the view was printed
  1  the terminal cannot be used; with --once also: the tracker refused or could not be reached
  2  the command line or the configuration file is wrong";

/// Live view of a running tracker: rates, swarms, drops, the load of each worker
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
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
