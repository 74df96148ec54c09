//! `onrush doctor`: what on this host will hurt the tracker, each with the command that mends it.
//!
//! [`Facts`] are gathered once, from files below a root (which a test makes) and from tools; every
//! check is a function from them to a [`Finding`], and knows nothing of where they came from.
//!
//! | room | what is in it |
//! |---|---|
//! | [`facts`] | what is known of the host, and what could not be seen |
//! | `gather` | where that stands |
//! | `buffers`, `conntrack`, `cards`, `cpus`, `limits`, `memory`, `ports` | the checks |
//! | `report` | findings for people and for programs |

pub mod facts;

mod buffers;
mod cards;
mod conntrack;
mod cpus;
mod gather;
mod limits;
mod memory;
mod ports;
mod report;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use onrush_net::affinity;
use serde::Serialize;

use crate::cli::show;
use crate::process::exit::{Exit, FAILED, WRONG};
pub use facts::Facts;
use onrush_config::{Flags, Host, Settings};

const AFTER_HELP: &str = "\
Run it as root to see everything: who holds the port, and the rules of the firewall. Run it while the
tracker runs to be told of that process's limits instead of this shell's. It changes nothing.

Exit codes:
  0  nothing will hurt
  1  there are problems
  2  it could not look, or the configuration is wrong";

/// Look what on this host will hurt the tracker, and how to mend it
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// Look with this configuration file in mind
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Write the findings as JSON
    #[arg(long)]
    pub json: bool,

    /// Take the host's files from below this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
}

/// How much something hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is as it should be.
    Ok,
    /// Worth knowing; a busy host may want it otherwise.
    Note,
    /// It will hurt.
    Problem,
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The thing's name.
    pub name: &'static str,
    /// How much it hurts.
    pub severity: Severity,
    /// What it is and what follows from that, in a sentence.
    pub what: String,
    /// The command that mends it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// What makes that last over a restart of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
}

impl Finding {
    fn new(name: &'static str, severity: Severity, what: impl Into<String>) -> Self {
        Self { name, severity, what: what.into(), fix: None, keep: None }
    }

    fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, Severity::Ok, what)
    }

    fn note(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, Severity::Note, what)
    }

    fn problem(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, Severity::Problem, what)
    }

    fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    fn keep(mut self, what: impl Into<String>) -> Self {
        self.keep = Some(what.into());
        self
    }

    /// Mended by a sysctl.
    fn sysctl(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.fix(format!("sysctl -w {name}={value}"))
            .keep(format!("the line `{name} = {value}` in /etc/sysctl.d/60-onrush.conf"))
    }
}

/// Every check, in the order in which a packet meets what they look at.
pub fn checks(facts: &Facts) -> Vec<Finding> {
    [
        cards::check(facts),
        conntrack::check(facts),
        buffers::check(facts),
        ports::check(facts),
        cpus::check(facts),
        limits::check(facts),
        memory::check(facts),
    ]
    .concat()
}

/// Looks, and says what was found.
pub fn run(doctor: &Doctor) -> Exit {
    let flags = Flags { config: doctor.config.clone(), ..Flags::default() };
    let host = Host::here(affinity::cores_first(&affinity::allowed().unwrap_or_default()));
    let settings = match Settings::load(&flags, &host) {
        Ok((settings, _)) => settings,
        Err(problems) => return Exit::wrong(problems),
    };
    let facts = Facts::gather(&doctor.root, &settings, &host, Some(&gather::tool));
    if facts.nothing_seen() {
        let root = doctor.root.display();
        return Exit {
            code: WRONG,
            text: format!(
                "onrush: nothing of this host can be seen below {root}: is /proc mounted?\n"
            ),
        };
    }
    let findings = checks(&facts);
    let text = if doctor.json {
        report::json(&findings, &facts.unseen)
    } else {
        report::text(&findings, &facts.unseen, std::io::stdout().is_terminal())
    };
    if let Err(error) = show(&text) {
        return Exit { code: WRONG, text: format!("onrush: cannot write: {error}\n") };
    }
    let hurts = findings.iter().any(|finding| finding.severity == Severity::Problem);
    Exit { code: if hurts { FAILED } else { 0 }, text: String::new() }
}

/// What the start-up log says of this host, if anything will hurt. Asks no tool, and not who holds a
/// port, as that takes time.
pub fn short_version(settings: &Settings, host: &Host) -> Option<String> {
    let facts = Facts::gather(Path::new("/"), settings, host, None);
    report::line(&checks(&facts))
}
