//! What `onrush ctl` can be asked, as flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use onrush_proto::InfoHash;

use onrush_config::flags::Flags;
use onrush_config::settings::Host;
use onrush_control::Token;
use onrush_control::client::{Client, ClientError};
use onrush_store::lists::file::{INFO_HASHES, read, read_stream};

/// Where a tracker listens that nobody has told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:6970";

const AFTER_HELP: &str = "\
Examples:
  onrush ctl health                              does it serve, and does every worker take turns
  onrush ctl --config /etc/onrush/onrush.toml reload
                                                 read the configuration again; address and token from the file
  onrush ctl --config /etc/onrush/onrush.toml upgrade
                                                 after a new version was installed: no request is lost
  onrush ctl --token-file admin.token top-swarms --by leechers --limit 5
  onrush ctl --config /etc/onrush/onrush.toml list add 0123456789abcdef0123456789abcdef01234567
  onrush ctl --json stats | jq .totals.peers     for programs
  onrush ctl metrics | grep dropped              what Prometheus would read

reload, upgrade, export, list, swarm and top-swarms need the token of admin.token_file; the others need none.

Exit codes:
  0  it was done; for health: all is well
  1  the tracker said no, could not be reached, or is not well
  2  the command line or the configuration file is wrong";

/// Ask or tell a running tracker, over its HTTP side
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Ctl {
    /// Where its HTTP side is [default: admin.listen of --config, else http://127.0.0.1:6970]
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,

    /// Take address and token file from the tracker's configuration
    #[arg(long = "config", id = "ctl_config", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// The file with the token of the admin API [default: admin.token_file of --config]
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,

    /// Wait this long for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, global = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,

    /// Write the answer as it came, for programs
    #[arg(long, global = true)]
    pub json: bool,

    /// What to ask.
    #[command(subcommand)]
    pub action: Action,
}

/// What can be asked.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Whether it serves, and whether every worker takes turns
    Health,
    /// What was counted and what is stored
    Stats,
    /// The same as Prometheus reads it
    Metrics,
    /// Have the configuration read again, and say what changed
    Reload,
    /// Write the full scrape to export.file, and say what was written
    Export,
    /// Have a new process take over, without a gap, and wait until it serves
    ///
    /// The program is started anew from where it is installed, with the command line of the one that runs; it reads the
    /// configuration, gets all peers and then the sockets. Where anything is amiss this says what, and the one that runs
    /// serves on. Loading millions of peers takes seconds: see --timeout.
    Upgrade,
    /// Look at the list of info hashes, or change it
    #[command(subcommand)]
    List(List),
    /// Look up one swarm
    Swarm {
        /// Its info hash: 40 hexadecimal digits or 32 base32 characters
        info_hash: String,
    },
    /// The largest swarms
    TopSwarms {
        /// What they are large by
        #[arg(long, value_enum, default_value_t = By::Peers)]
        by: By,
        /// How many
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
}

/// What can be done with the list of info hashes.
#[derive(Clone, Debug, Subcommand)]
pub enum List {
    /// Of which kind it is and how long; or whether one info hash is on it
    Show {
        /// 40 hexadecimal digits or 32 base32 characters
        info_hash: Option<String>,
    },
    /// Put info hashes on it, at once and for good
    Add(Named),
    /// Take info hashes off it, at once and for good
    Remove(Named),
}

/// Which info hashes are meant.
#[derive(Clone, Debug, clap::Args)]
pub struct Named {
    /// 40 hexadecimal digits or 32 base32 characters
    #[arg(required_unless_present = "file")]
    pub info_hashes: Vec<String>,
    /// Those of a file, one a line, # for comments; - is standard input. They take effect by the thousand, and
    /// where one cannot be sent, those before it have
    #[arg(long, value_name = "FILE", conflicts_with = "info_hashes")]
    pub file: Option<PathBuf>,
}

impl Named {
    /// All of them, one by one.
    ///
    /// # Errors
    /// When the file cannot be read, or something in it is no info hash.
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

/// What a swarm is large by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// All of its peers
    Peers,
    /// Peers that miss nothing
    Seeders,
    /// The other peers
    Leechers,
    /// How often it was completed
    Completed,
}

impl Ctl {
    /// A client of the tracker that is meant.
    ///
    /// # Errors
    /// When the configuration or the token file is wrong.
    pub fn client(&self) -> Result<Client, ClientError> {
        let (mut url, mut token_file) = (self.url.clone(), self.token_file.clone());
        if let Some(config) = &self.config {
            let of = Flags { config: Some(config.clone()), ..Flags::default() };
            let (settings, _) = of
                .settings(&Host::default())
                .map_err(|problems| ClientError::Usage(problems.to_string()))?;
            let listen = settings.admin.listen.map(|listen| listen.address);
            if url.is_none() && listen.is_none() {
                let what = format!(
                    "{}: HTTP is switched off (admin.listen = \"off\")\n",
                    config.display()
                );
                return Err(ClientError::Usage(what));
            }
            url = url.or(listen.map(|address| format!("http://{}", reachable(address))));
            token_file = token_file.or(settings.admin.token_file);
        }
        let token = Token::load(token_file.as_deref())
            .map_err(|error| ClientError::Usage(format!("onrush: {error}\n")))?;
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        Client::new(&url, token, Duration::from_secs(self.timeout))
    }
}

/// Where a client finds what listens here: on every address means on loopback too.
fn reachable(mut address: std::net::SocketAddr) -> std::net::SocketAddr {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}
