//! Flags and actions of `onrush ctl`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::lists::List;
use super::sources::Sources;
use crate::admin::Admin;
use onrush_config::keys::LEVELS;
use onrush_control::api::admin::Measure;

const AFTER_HELP: &str = "\
Examples:
  onrush ctl health                        is it ready, is no worker stalled
  onrush ctl reload                        after a change of the configuration
  onrush ctl upgrade                       after a new version was installed
  onrush ctl config --diff                 what these would change
  onrush ctl top-swarms --by leechers --limit 5
  onrush ctl top-sources --by 24 --kind connect
                                           who is flooding
  onrush ctl block 192.0.2.0/24 --for 2h --reason flood
  onrush ctl list add 0123456789abcdef0123456789abcdef01234567 \\
    --reason 'court order 4711'
  onrush ctl list check new.txt            what another list would remove
  onrush ctl list changes                  what differs from the list's files
  onrush ctl snapshot --to peers.snapshot  a backup of all peers
  onrush ctl metrics | grep dropped        what Prometheus reads
  onrush ctl --json stats | jq .totals.peers
  onrush ctl --url http://10.0.0.7:6970 --token-file admin.token reload

Notes:
  Root and the tracker's user reach it at the socket control.sock in its state
  directory, without a token. Others use HTTP, where all but health, stats,
  metrics and version need the token of admin.token_file. Errors of the
  configuration file are a warning on standard error, behind the answer.

Exit status:
  0  done; health: ready, and no worker is stalled
  1  the tracker refused, could not be reached, or is not healthy
  2  the command line is wrong, or the configuration file does not exist";

/// Query or control a running tracker through its admin side
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Ctl {
    /// The admin side of the tracker.
    #[command(flatten)]
    pub admin: Admin,

    /// The file with the token of the admin API [default: admin.token_file of the configuration]
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,

    /// Wait this long for a reply [default: 30, of health 5]
    #[arg(
        long,
        value_name = "SECONDS",
        global = true,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: Option<u64>,

    /// Print the JSON reply; an error as the object {"error": TEXT}, on standard output too
    #[arg(long, global = true)]
    pub json: bool,

    /// The action.
    #[command(subcommand)]
    pub action: Action,
}

/// Actions.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Show readiness and stalled workers
    Health,
    /// Counters and stored peers
    Stats,
    /// The metrics in the format of Prometheus
    Metrics,
    /// The versions of the running tracker and of this command
    Version,
    /// The value of every key that is in force, with flags, defaults and derived values
    Config {
        /// Read the file again, and print only the keys whose values there differ
        #[arg(long)]
        diff: bool,
    },
    /// Change the lowest level that is logged, until the next reload
    LogLevel {
        /// The level
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(LEVELS.iter().copied()))]
        level: String,
    },
    /// Write all peers to the snapshot in the state directory, and wait until it is complete
    Snapshot {
        /// Copy it to this file, for a backup or another host; needs the control socket
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Reload the configuration and print which keys changed
    Reload {
        /// Accept a file of a list that lost more than half of its entries
        #[arg(long)]
        force: bool,
    },
    /// Write the full scrape to export.file
    Export,
    /// Start a successor, hand sockets and peers to it without a gap, and wait until it serves
    ///
    /// The successor runs the installed program with the same command line, reads the
    /// configuration, and receives all peers and then the sockets. If anything fails, the reason is
    /// printed and the running process keeps serving. Loading millions of peers takes seconds: see
    /// --timeout.
    Upgrade {
        /// Drop the peers for which the new limits.peers has no room, and accept lists that have
        /// lost more than half of their entries
        #[arg(long)]
        force: bool,
    },
    /// Show or change the list of info hashes
    #[command(subcommand)]
    List(List),
    /// Block an address or prefix at once: none of its requests gets a reply
    ///
    /// Blocks survive restarts and upgrades. For long lists see access.blocked_file. Peers that are
    /// stored already stay until they expire.
    Block {
        /// An IPv4 or IPv6 address, or a prefix like 192.0.2.0/24
        prefix: String,
        /// How long: a number and a unit, like 30s, 10m, 2h or 7d [default: until unblocked]
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        seconds: Option<u64>,
        /// Why, for the log and for `onrush ctl blocks`; at most 200 characters
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        reason: String,
        /// Accept a prefix shorter than /8 (IPv4) or /16 (IPv6)
        #[arg(long)]
        force: bool,
    },
    /// Remove a block
    Unblock {
        /// The address or prefix, as it was blocked
        prefix: String,
    },
    /// The blocks in force, and how many requests each has refused
    Blocks,
    /// Look up one swarm
    Swarm {
        /// Its info hash: 40 hexadecimal digits or 32 base32 characters
        info_hash: String,
    },
    /// The largest swarms
    TopSwarms {
        /// Sort by
        #[arg(long, value_enum, default_value_t)]
        by: Measure,
        /// Number of swarms
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// The sources that send most: shares of all requests, sampled while this command waits
    TopSources(Sources),
}

impl Action {
    /// Whether it only reads what the tracker knows.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Health
                | Self::Stats
                | Self::Metrics
                | Self::Version
                | Self::Config { .. }
                | Self::List(List::Show { .. } | List::Changes | List::Export | List::Check { .. })
                | Self::Blocks
                | Self::Swarm { .. }
                | Self::TopSwarms { .. }
                | Self::TopSources(_)
        )
    }

    /// The default of `--timeout`, in seconds. Monitoring gives up after ten.
    pub fn timeout(&self) -> u64 {
        if matches!(self, Self::Health) { 5 } else { 30 }
    }
}

/// Seconds of a duration like `30s`, `10m`, `2h` or `7d`.
fn duration(text: &str) -> Result<u64, String> {
    let seconds = onrush_config::seconds(text);
    seconds.ok_or_else(|| "write a number and a unit, like 30s, 10m, 2h or 7d".to_owned())
}
