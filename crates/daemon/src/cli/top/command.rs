//! What `onrush top` can be told, as flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::ctl::Ctl;
use crate::cli::ctl::command::Action;
use onrush_control::client::{Client, ClientError};

/// Seconds to wait for an answer: a tracker on another continent is nearer.
const PATIENCE: u64 = 5;

const AFTER_HELP: &str = "\
Examples:
  onrush top                                     the tracker on this host, where nobody moved its HTTP side
  onrush top --config /etc/onrush/onrush.toml    where its configuration says
  onrush top --url http://10.0.0.7:6970 --every 5
  onrush top --once | head -n 5                  one picture as text, with the rates of one second

It needs no token. q, Esc or Ctrl-C ends it; when the tracker cannot be reached, it says so and goes on asking.

Of what is shown: rates are those between the last two readings. The load of a worker is the part of the time in
which it had something to do; one at 100 % drops. `dropped` is what the kernel had no room for, `unsent` are
replies that it did not take. `pressed` is how hard the tracker defends itself, 0 to 8 (see [overload]).

Exit codes:
  0  ended as asked, or the picture was written
  1  with --once: the tracker could not be reached, or said no; or the terminal is of no use
  2  the command line or the configuration file is wrong";

/// Look at a running tracker in the terminal: rates, swarms, drops, the load of each worker
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Top {
    /// Where its HTTP side is [default: admin.listen of --config, else http://127.0.0.1:6970]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    /// Take the address from the tracker's configuration
    #[arg(long = "config", id = "top_config", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Ask every so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,

    /// Write one picture as plain text and exit; so it does where standard output is no terminal
    ///
    /// It takes two readings, --every seconds apart.
    #[arg(long)]
    pub once: bool,
}

impl Top {
    /// A client of the tracker that is meant.
    ///
    /// # Errors
    /// When URL or configuration are wrong.
    pub fn client(&self) -> Result<Client, ClientError> {
        let ctl = Ctl {
            url: self.url.clone(),
            config: self.config.clone(),
            token_file: None,
            timeout: PATIENCE,
            json: false,
            action: Action::Stats,
        };
        ctl.client()
    }

    /// Time between two readings.
    pub fn every(&self) -> Duration {
        Duration::from_secs(self.every)
    }
}
