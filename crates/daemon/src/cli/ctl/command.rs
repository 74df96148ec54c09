//! Flags and actions of `onrush ctl`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use onrush_proto::InfoHash;

use crate::cli::admin::Admin;
use onrush_config::keys::LEVELS;
use onrush_control::client::ClientError;
use onrush_store::lists::file::{INFO_HASHES, read, read_stream};

const AFTER_HELP: &str = "\
Examples:
  onrush ctl health                              is it ready, and is no worker stalled
  onrush ctl reload                              after a change of /etc/onrush/onrush.toml
  onrush ctl upgrade                             after a new version was installed
  onrush ctl top-swarms --by leechers --limit 5
  onrush ctl list add 0123456789abcdef0123456789abcdef01234567
  onrush ctl --json stats | jq .totals.peers     for programs
  onrush ctl metrics | grep dropped              what Prometheus reads
  onrush ctl config --diff                       what a reload or an upgrade would change
  onrush ctl list check new.txt                  what another access.file would remove
  onrush ctl snapshot --to peers.snapshot        a backup of all peers
  onrush ctl --url http://10.0.0.7:6970 --token-file admin.token reload

Root and the tracker's user reach it at the socket control.sock in its state directory, without a
token. Others use HTTP, where all but health, stats, metrics and version need the token of
admin.token_file.

Exit codes:
  0  done; health: ready, and no worker is stalled
  1  the tracker refused, could not be reached, or is not healthy
  2  the command line or the configuration file is wrong";

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

    /// Wait this long for a reply
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        global = true,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    pub timeout: u64,

    /// Print the JSON reply
    #[arg(long, global = true)]
    pub json: bool,

    /// The action.
    #[command(subcommand)]
    pub action: Action,
}

/// Actions.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Whether it is ready, and which workers are stalled
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
        /// Accept a list that lost more than half of its entries
        #[arg(long)]
        force: bool,
    },
    /// Write the full scrape to export.file
    Export,
    /// Start a new process that takes over without a gap, and wait until it serves
    ///
    /// The new process runs the installed program with the same command line, reads the
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
    /// Look up one swarm
    Swarm {
        /// Its info hash: 40 hexadecimal digits or 32 base32 characters
        info_hash: String,
    },
    /// The largest swarms
    TopSwarms {
        /// Sort by
        #[arg(long, value_enum, default_value_t = By::Peers)]
        by: By,
        /// Number of swarms
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
}

/// Actions on the list of info hashes.
#[derive(Clone, Debug, Subcommand)]
pub enum List {
    /// Show its mode and length, or whether an info hash is listed
    Show {
        /// 40 hexadecimal digits or 32 base32 characters
        info_hash: Option<String>,
    },
    /// Add info hashes, immediately and permanently
    Add(Named),
    /// Remove info hashes, immediately and permanently
    Remove(Named),
    /// Print the list in force, one info hash per line
    Export,
    /// What a reload would change if this file were access.file: entries, and swarms removed
    Check {
        /// The file, in the format of access.file; - is standard input
        file: PathBuf,
    },
}

/// Info hashes as arguments or from a file.
#[derive(Clone, Debug, clap::Args)]
pub struct Named {
    /// 40 hexadecimal digits or 32 base32 characters
    #[arg(required_unless_present = "file")]
    pub info_hashes: Vec<String>,
    /// Read them from a file, one per line, # starts a comment; - is standard input. They are sent
    /// in chunks of 10,000: if one fails, those before it are applied
    #[arg(long, value_name = "FILE", conflicts_with = "info_hashes")]
    pub file: Option<PathBuf>,
}

impl Named {
    /// All info hashes.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is not an info hash.
    pub fn all(&self) -> Result<Vec<String>, ClientError> {
        let Some(path) = &self.file else { return Ok(self.info_hashes.clone()) };
        Ok(read_list(path)?.into_iter().map(|hash| InfoHash(hash).to_string()).collect())
    }
}

/// The info hashes of a file; - is standard input.
///
/// # Errors
/// When the file cannot be read, or a line is not an info hash.
pub fn read_list(path: &Path) -> Result<Vec<[u8; 20]>, ClientError> {
    let read = match path.as_os_str() == "-" {
        true => read_stream(std::io::stdin().lock(), "standard input".as_ref(), &INFO_HASHES),
        false => read(path, usize::MAX, &INFO_HASHES, &mut || {}),
    };
    read.map_err(|error| ClientError::Usage(format!("onrush: {error}\n")))
}

/// Sort key of swarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// All peers
    Peers,
    /// Peers with all pieces
    Seeders,
    /// The other peers
    Leechers,
    /// Completed downloads
    Completed,
}
