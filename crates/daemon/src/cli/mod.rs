//! The command line: the few things that people change on the spot, and the two questions that
//! are answered without starting (`--print-config`, `--check-config`).

use std::io::{self, Write};

pub mod ctl;
pub mod doctor;
pub mod top;

use clap::{Parser, Subcommand};

use ctl::Ctl;
use doctor::Doctor;
use onrush_config::settings::Access;
use onrush_config::{Flags, Host, Notice, Problem, Problems, Settings, print_config};
use onrush_tracker::access::Lists;
use top::Top;

const ABOUT: &str = "A UDP BitTorrent tracker.";

const LONG_ABOUT: &str = "\
A UDP BitTorrent tracker (BEP 15): it tells the peers of a torrent about each other.

Without a flag it serves UDP port 6969 on every address, IPv4 and IPv6, and keeps its key where \
this user's state is kept. Add it to a client as udp://HOST:6969/announce.";

const AFTER_HELP: &str = "\
Examples:
  onrush                                         serve port 6969, both families
  onrush --listen :80 --listen 192.0.2.1:6969    port 80 everywhere, 6969 on one address
  onrush --print-config > onrush.toml            every key with its text and default
  onrush --config onrush.toml --check-config     what a file means on this host, or what is wrong
  onrush --config onrush.toml --log-level debug  a flag overrides the file
  onrush doctor                                  what on this host will hurt, and how to mend it
  onrush ctl health                              ask or tell a running tracker (onrush ctl --help)
  onrush top                                     look at a running tracker, second by second

Every key of the configuration file is explained by --print-config; nothing has to be configured.

Signals: TERM and INT stop it. HUP reads the file again: what may change changes at once, what needs
an upgrade or a restart is named in the log, and a file that is wrong changes nothing. USR1 writes the full
scrape to export.file. USR2 starts this program anew, which takes over without a gap (like onrush ctl upgrade).

Exit codes:
  0  stopped as asked, or the configuration is right
  1  could not start (an address is taken, a right is missing) or died
  2  the command line or the configuration is wrong; nothing was started";

/// The command line.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "onrush", args_conflicts_with_subcommands = true, version = onrush_control::version::version(), about = ABOUT, long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
pub struct Cli {
    /// The configuration: its file, and flags over it.
    #[command(flatten)]
    pub flags: Flags,

    /// Take over from the onrush that runs with the same state directory, without a gap
    ///
    /// It hands over its sockets and peers while it serves, and ends; when anything is amiss it serves
    /// on. Under a service manager have the running one start it: `onrush ctl upgrade`.
    #[arg(long, conflicts_with = "check_config")]
    pub upgrade: bool,

    /// Write every key with its text and default, and exit
    #[arg(long, exclusive = true)]
    pub print_config: bool,

    /// Say what file and flags mean on this host, or what is wrong with them, and exit
    #[arg(long)]
    pub check_config: bool,

    /// Something else than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What else the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Look what on this host will hurt the tracker, and how to mend it
    Doctor(Doctor),
    /// Ask or tell a running tracker, over its HTTP side
    Ctl(Ctl),
    /// Look at a running tracker in the terminal: rates, swarms, drops, the load of each worker
    Top(Top),
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Task {
    /// Write this text and exit with 0.
    Show(String),
    /// Serve with these settings, and tell the operator these things.
    Serve(Box<Settings>, Vec<Notice>),
}

impl Cli {
    /// Reads the file that is named, if one is, and settles everything for this host.
    ///
    /// # Errors
    /// Whatever is wrong with the file and the flags, all of it; the exit code for this is 2.
    pub fn task(&self, host: &Host) -> Result<Task, Problems> {
        if self.print_config {
            return Ok(Task::Show(print_config()));
        }
        let (settings, notices) = Settings::load(&self.flags, host)?;
        if self.check_config {
            let lists = onrush_store::lists::load(&settings, &mut || {})
                .map_err(|error| Problem::in_file("the lists", "access", error.to_string()))?;
            return Ok(Task::Show(self.check_report(&settings, &lists, &notices, host)));
        }
        Ok(Task::Serve(Box::new(settings), notices))
    }

    fn check_report(
        &self,
        settings: &Settings,
        lists: &Lists,
        notices: &[Notice],
        host: &Host,
    ) -> String {
        let what = match &self.flags.config {
            Some(path) => format!("{} is right.", path.display()),
            None => "The defaults, as no --config is given.".to_owned(),
        };
        let mut report = format!("{what} On this host it means:\n\n{}", settings.summary(host));
        if settings.access != Access::Open {
            let listed = lists.access.len();
            report.push_str(&format!("  list      {listed} info hashes in all\n"));
        }
        if !lists.blocked.is_empty() {
            let ranges = lists.blocked.len();
            report.push_str(&format!("  blocked   {ranges} ranges of addresses in all\n"));
        }
        for notice in notices {
            report.push_str(&format!("\nNote: {notice}\n"));
        }
        report
    }
}

/// Writes a text to standard output. A reader that has gone away (`onrush --print-config | head`)
/// is no error.
///
/// # Errors
/// Any other that writing gives, like a full disk.
pub fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
