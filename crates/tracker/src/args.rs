//! The command line: the few things that people change on the spot, and the two questions that
//! are answered without starting (`--print-config`, `--check-config`).

use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::access::Lists;
use crate::config::keys::MAX_WORKERS;
use crate::config::{
    Config, Field, HttpAt, Item, Level, ListenAt, Origin, Problem, Problems, Shape, Words,
    print_config,
};
use crate::ctl::Ctl;
use crate::doctor::Doctor;
use crate::settings::{Access, Host, Notice, Settings};
use crate::top::Top;

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

/// The flags. Each overrides its key in the file.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "onrush", args_conflicts_with_subcommands = true, version = crate::version::version(), about = ABOUT, long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
pub struct Args {
    /// Read this configuration file (TOML; see --print-config)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Listen here; may be given several times
    ///
    /// `:6969` or `6969` is this port on every address of both families; `192.0.2.1:6969` and
    /// `[2001:db8::1]:6969` are this address alone. Replaces the whole list of the file.
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<ListenAt>,

    /// Workers of all kinds together [default: one for each usable vCPU]
    #[arg(long, value_name = "N", value_parser = workers())]
    pub workers: Option<usize>,

    /// How the work is laid out over workers [default: auto]
    ///
    /// split: socket workers and swarm workers, for big hosts. colocated: every worker does both.
    /// auto: by the number of workers.
    #[arg(long, value_name = "SHAPE", value_parser = words::<Shape>())]
    pub placement: Option<Shape>,

    /// Keep the key of connection ids here [default: systemd's or the user's state directory]
    ///
    /// A relative path starts at the current directory.
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub state_dir: Option<PathBuf>,

    /// Serve metrics, health and the admin API here over HTTP, or `off` [default: 127.0.0.1:6970]
    #[arg(long, value_name = "ADDR")]
    pub http: Option<HttpAt>,

    /// Write lines of this level and graver ones [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = words::<Level>())]
    pub log_level: Option<Level>,

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

impl Args {
    /// Reads the file that is named, if one is, and settles everything for this host.
    ///
    /// # Errors
    /// Whatever is wrong with the file and the flags, all of it; the exit code for this is 2.
    pub fn task(&self, host: &Host) -> Result<Task, Problems> {
        if self.print_config {
            return Ok(Task::Show(print_config()));
        }
        let (settings, notices) = self.settings(host)?;
        if self.check_config {
            let lists = Lists::load(&settings).map_err(|error| {
                Problems::one(Problem::on_host("access", error.to_string(), None))
            })?;
            return Ok(Task::Show(self.check_report(&settings, &lists, &notices, host)));
        }
        Ok(Task::Serve(Box::new(settings), notices))
    }

    /// Reads the file that is named, if one is, and settles what it and the flags mean on this host.
    ///
    /// # Errors
    /// Whatever is wrong with them, all of it.
    pub fn settings(&self, host: &Host) -> Result<(Settings, Vec<Notice>), Problems> {
        let config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        Settings::resolve(config, self, host)
    }

    /// Replaces what the file says by what the flags say. Returns what is replaced although
    /// nobody named it.
    pub(crate) fn overlay(&self, config: &mut Config) -> Vec<Notice> {
        let written = &mut config.written;
        if !self.listen.is_empty() {
            let item = |value: &ListenAt| Item { value: *value, origin: Origin::Flag("--listen") };
            written.listen = Field::flag(self.listen.iter().map(item).collect(), "--listen");
        }
        if let Some(directory) = &self.state_dir {
            written.state_dir = Field::flag(Some(directory.clone()), "--state-dir");
        }
        if let Some(http) = self.http {
            written.http_listen = Field::flag(Some(http), "--http");
        }
        if let Some(level) = self.log_level {
            written.log_level = Field::flag(level, "--log-level");
        }
        self.overlay_workers(config)
    }

    /// A flag about workers as a whole makes the file's numbers of each kind moot.
    fn overlay_workers(&self, config: &mut Config) -> Vec<Notice> {
        let written = &mut config.written;
        let by_kind = (written.workers_socket.value, written.workers_swarm.value);
        let has_kinds = by_kind != (None, None);
        let mut moot = None;
        if let Some(shape) = self.placement {
            moot = (has_kinds && shape != Shape::Split).then_some("--placement");
            written.placement = Field::flag(shape, "--placement");
            if let ((Some(socket), Some(swarm)), Some(_), None) =
                (by_kind, moot, written.workers_total.value)
            {
                written.workers_total.value = Some(socket + swarm);
            }
        }
        if let Some(workers) = self.workers {
            written.workers_total = Field::flag(Some(workers), "--workers");
            moot = has_kinds.then_some("--workers").or(moot);
        }
        let Some(flag) = moot else { return Vec::new() };
        written.workers_socket = Field::default();
        written.workers_swarm = Field::default();
        vec![Notice::new(format!(
            "{flag} replaces workers.socket and workers.swarm of {}",
            config.source.name()
        ))]
    }

    fn check_report(
        &self,
        settings: &Settings,
        lists: &Lists,
        notices: &[Notice],
        host: &Host,
    ) -> String {
        let what = match &self.config {
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

/// The directory as it is meant from here on, wherever the process may go.
fn directory() -> impl TypedValueParser<Value = PathBuf> {
    NonEmptyStringValueParser::new().try_map(std::path::absolute)
}

fn workers() -> impl TypedValueParser<Value = usize> {
    clap::value_parser!(u64).range(1..=MAX_WORKERS).map(|number| number as usize)
}

fn words<T: Words + Send + Sync>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::WORDS.iter().map(|(word, _)| *word))
        .map(|word| T::of_word(&word).expect("clap takes no other words"))
}
