//! Flags and actions of `onrush ctl`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use onrush_proto::InfoHash;

use onrush_config::{Flags, Host, Settings};
use onrush_control::Token;
use onrush_control::client::{Client, ClientError};
use onrush_store::lists::file::{INFO_HASHES, read, read_stream};

/// The default address of the admin side.
const DEFAULT_URL: &str = "http://127.0.0.1:6970";

const AFTER_HELP: &str = "\
Examples:
  onrush ctl health                              is it ready, and is no worker stalled
  onrush ctl --config /etc/onrush/onrush.toml reload
                                                 with address and token of this file
  onrush ctl --config /etc/onrush/onrush.toml upgrade
                                                 after a new version was installed
  onrush ctl --token-file admin.token top-swarms --by leechers --limit 5
  onrush ctl --config /etc/onrush/onrush.toml list add 0123456789abcdef0123456789abcdef01234567
  onrush ctl --json stats | jq .totals.peers     for programs
  onrush ctl metrics | grep dropped              what Prometheus reads

reload, upgrade, export, list, swarm and top-swarms need the token of admin.token_file.

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

    /// The file with the token of the admin API [default: admin.token_file of --config]
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
        let read = match path.as_os_str() == "-" {
            true => read_stream(std::io::stdin().lock(), "standard input".as_ref(), &INFO_HASHES),
            false => read(path, usize::MAX, &INFO_HASHES, &mut || {}),
        };
        let hashes = read.map_err(|error| ClientError::Usage(format!("onrush: {error}\n")))?;
        Ok(hashes.into_iter().map(|hash| InfoHash(hash).to_string()).collect())
    }
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

/// The admin side of a tracker.
#[derive(Clone, Debug, Args)]
pub struct Admin {
    /// The URL of its admin side [default: admin.listen of --config, else http://127.0.0.1:6970]
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,

    /// Read address and token file from the tracker's configuration
    #[arg(long = "config", id = "admin_config", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

impl Admin {
    /// A client with the token in `token_file`, else in that of the configuration.
    ///
    /// # Errors
    /// When the URL, the configuration or the token file is wrong.
    pub fn client(
        &self,
        token_file: Option<&Path>,
        timeout: Duration,
    ) -> Result<Client, ClientError> {
        let (mut url, mut token_file) = (self.url.clone(), token_file.map(Path::to_owned));
        if let Some(config) = &self.config {
            let flags = Flags { config: Some(config.clone()), ..Flags::default() };
            let (settings, _) = Settings::load(&flags, &Host::default())
                .map_err(|problems| ClientError::Usage(problems.to_string()))?;
            let listen = settings.admin.listen.map(|listen| listen.address);
            if url.is_none() && listen.is_none() {
                let config = config.display();
                return Err(ClientError::Usage(format!(
                    "{config}: the admin side is off (admin.listen = \"off\")\n"
                )));
            }
            url = url.or(listen.map(|address| format!("http://{}", reachable(address))));
            token_file = token_file.or(settings.admin.token_file);
        }
        let token = Token::load(token_file.as_deref())
            .map_err(|error| ClientError::Usage(format!("onrush: {error}\n")))?;
        Client::new(url.as_deref().unwrap_or(DEFAULT_URL), token, timeout)
    }
}

/// The address for a local client: an unspecified address becomes loopback.
fn reachable(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
