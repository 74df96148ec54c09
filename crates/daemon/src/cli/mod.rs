//! The command line: flags of the daemon, and the subcommands of `onrush_commands`.

pub mod check;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use onrush_commands::ctl::Ctl;
use onrush_commands::doctor::Doctor;
use onrush_commands::probe::ProbeArgs;
use onrush_commands::top::Top;
use onrush_config::Flags;

const ABOUT: &str = "A BitTorrent tracker over UDP, HTTP and WebSocket.";

const LONG_ABOUT: &str = "\
A BitTorrent tracker: it introduces the peers of a torrent to each other, over UDP (BEP 15) and, \
where addresses for them are configured, over HTTP and HTTPS, with WebSocket for browsers \
(WebTorrent).

Without a flag it reads /etc/onrush/onrush.toml, if there is one. Without a file it serves UDP \
port 6969 on every address, IPv4 and IPv6, and keeps its key in this user's state directory. Add \
it to a client as udp://HOST:6969/announce.";

/// Lines have at most 80 columns, as clap would wrap longer ones once more. A line that ends with a
/// colon begins a section of the manual page (examples/pages).
const AFTER_HELP: &str = "\
Examples:
  onrush                                    serve port 6969, both families
  onrush --listen :80 --listen 192.0.2.1:6969
  onrush --http :6969                       the same swarms over HTTP
  onrush --print-config > onrush.toml       every key with its documentation
  onrush --config onrush.toml --check-config
                                            the settings, or the errors
  onrush --log-level debug                  a flag overrides the file
  onrush doctor                             check this host
  onrush ctl health                         query or control a running tracker
  onrush top                                live view of a running tracker
  onrush probe udp://HOST:6969/announce     does it answer from outside

Files:
  /etc/onrush/onrush.toml  the configuration, unless --config names another
  /var/lib/onrush          the state directory of the packaged service, with
    connection.key         the key of connection ids
    onrush.snapshot        the peers at the last stop, upgrade or snapshot
    access.changes         changes of the list by onrush ctl list
    blocks.json            the blocks of onrush ctl block
    overload.interval      the longest interval advertised in an overload
    history.json           the history of the status page
    control.sock           the admin side for onrush ctl, top and doctor
    upgrade.sock           where the successor requests the handoff

Environment:
  ONRUSH_CONFIG    the configuration, unless --config names another
  ONRUSH_TABLE__KEY, ONRUSH_KEY
                   override a key of the file: ONRUSH_ANNOUNCE__INTERVAL=30m,
                   ONRUSH_LISTEN=:6969; flags override them
  STATE_DIRECTORY  the state directory (set by systemd), unless the
                   configuration or --state-dir names another; else
                   $XDG_STATE_HOME/onrush, $HOME/.local/state/onrush

Signals:
  TERM, INT  stop; a second one ends the process at once
  HUP        reload the configuration; a file with an error changes nothing,
             keys that need an upgrade or a restart are logged
  USR1       write the full scrape to export.file
  USR2       start a successor that receives sockets and peers, like
             onrush ctl upgrade

Exit status:
  0  stopped on request, or the configuration is valid
  1  could not start (an address is in use, a permission is missing), or
     failed
  2  the command line or the configuration is invalid; nothing was started
  3  stopped on request, but the peers could not be written to disk";

/// The command line.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "onrush",
    args_conflicts_with_subcommands = true,
    version = onrush_text::version::version(),
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_long_help = AFTER_HELP
)]
pub struct Cli {
    /// The configuration: its file, and flags over it.
    #[command(flatten)]
    pub flags: Flags,

    /// Be the successor of the onrush that runs with the same state directory, without a gap
    ///
    /// The predecessor hands its sockets and peers to this process and exits; if anything fails it
    /// keeps serving. Under a service manager let the running process start it: `onrush ctl
    /// upgrade`.
    #[arg(long, conflicts_with = "check_config")]
    pub upgrade: bool,

    /// Upgrade even if limits.peers has no room for all peers, which drops those that do not fit,
    /// or if a list has lost more than half of its entries
    #[arg(long, requires = "upgrade")]
    pub force: bool,

    /// Print every key with its documentation and default, and exit
    #[arg(long, exclusive = true)]
    pub print_config: bool,

    /// Check file and flags and what they name on this host, print the settings or the errors, exit
    ///
    /// Addresses, files and directories are tried as the user that the service runs as, if root
    /// checks. The running tracker of the same configuration may hold the addresses.
    #[arg(long)]
    pub check_config: bool,

    /// A subcommand in place of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The error of a command line, with the command of onrush for what other programs have there.
pub fn hinted(mut error: clap::Error) -> clap::Error {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let word = kinds.iter().find_map(|kind| error.get(*kind)).map(ContextValue::to_string);
    let hint = match word.as_deref() {
        Some("reload") => "`onrush ctl reload` reloads the configuration",
        Some("status") => "`onrush ctl health` says whether it serves, `onrush top` shows it live",
        Some("stop" | "start" | "restart") => "use `systemctl`; SIGTERM stops the process",
        Some("-t") => "`onrush --config FILE --check-config` checks a configuration",
        _ => return error,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    error
}

/// Subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check this host for what slows or stops a tracker, with the command that fixes it
    Doctor(Doctor),
    /// Query or control a running tracker through its admin side
    Ctl(Ctl),
    /// Live view of a running tracker: rates, swarms, drops, the load of each worker
    Top(Top),
    /// Probe a tracker from outside: connect, announce and scrape over each family
    Probe(ProbeArgs),
}
