//! `onrush doctor`: checks of the host, each with the command that fixes what it finds.
//!
//! Every finding has a function, which reads the files of the host that it needs, below a root (a
//! directory in a test).
//!
//! | module | contents |
//! |---|---|
//! | [`facts`] | the files of the host, and facts that several checks need |
//! | `certificates` | checks of the certificates of HTTPS |
//! | `network` | checks of cards, connection tracking, buffers, ports and the tracker's name |
//! | `system` | checks of vCPUs, limits, memory, disk and clock |
//! | `xdp` | checks of the interfaces of `[xdp]` |
//! | `report` | findings as text, as JSON, and as a line of the log |

pub mod facts;

mod certificates;
mod network;
mod report;
mod system;
mod xdp;

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use onrush_net::affinity;
use serde::Serialize;

use crate::configuration::Configuration;
use crate::exit::print_or;
use crate::exit::{Exit, FAILED, GOOD, WRONG};
pub use facts::Facts;
use facts::Records;
use onrush_config::{Host, Settings};

const AFTER_HELP: &str = "\
Notes:
  Run it as root: other users may not see the holder of the port and the
  connection tracking table. Run it while the tracker runs: limits are then
  those of its process, not of this shell. It changes nothing.

Exit status:
  0  no problems
  1  problems were found
  2  the host cannot be read, or the configuration file does not exist";

/// The file of permanent sysctls. No package has a file of this name, which one in /etc would
/// replace (sysctl.d(5)).
const SYSCTL_FILE: &str = "/etc/sysctl.d/61-onrush-local.conf";

/// Check this host for what slows or stops a tracker, with the command that fixes it
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// Check what this configuration file needs [default: $ONRUSH_CONFIG, else
    /// /etc/onrush/onrush.toml if it exists]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Also print the checks that found nothing
    #[arg(long)]
    pub all: bool,

    /// Compare the DNS records of the tracker's name with the addresses that it listens on
    #[arg(long, value_name = "HOST")]
    pub name: Option<String>,

    /// Write the findings of all checks as JSON
    #[arg(long)]
    pub json: bool,

    /// Read the host's files below this directory
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub root: PathBuf,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Matters on a busy host.
    Note,
    /// Costs performance or stops the tracker.
    Problem,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub name: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The state and its consequence, in a sentence.
    pub what: String,
    /// The command that fixes it until the next boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The setting that makes the fix permanent.
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

    /// With the sysctl that fixes it.
    fn sysctl(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.fix(format!("sysctl -w {name}={value}"))
            .keep(format!("the line `{name} = {value}` in {SYSCTL_FILE}"))
    }
}

/// The findings of all checks.
pub fn checks(facts: &Facts) -> Vec<Finding> {
    let (certificates, records) = (certificates::checks(facts), network::records(facts));
    [network::checks(facts), xdp::checks(facts), system::checks(facts), certificates, records]
        .concat()
}

/// Runs the checks and prints their findings.
pub fn run(doctor: &Doctor) -> Exit {
    let host = Host::here(affinity::cores_first(&affinity::allowed().unwrap_or_default()));
    let Configuration { settings, warning, .. } =
        match Configuration::read(doctor.config.clone(), &host) {
            Ok(configuration) => configuration,
            Err(problems) => return Exit::wrong(problems),
        };
    let mut facts = Facts::gather(&doctor.root, &settings, &host, false);
    facts.records = doctor.name.as_deref().map(Records::look_up);
    if facts.files.is_empty() {
        let root = doctor.root.display();
        return Exit {
            code: WRONG,
            text: format!("onrush: no files of a host below {root}: is /proc mounted?\n"),
        };
    }
    let findings = checks(&facts);
    let unreadable = facts.files.unreadable();
    let text = if doctor.json {
        report::json(&findings, &unreadable)
    } else {
        report::text(&findings, &unreadable, doctor.all)
    };
    let problems = findings.iter().any(|finding| finding.severity == Severity::Problem);
    // Exit status 1 means that the host has problems.
    let not_written = |why| Exit { code: WRONG, ..Exit::failed(why) };
    let mut exit = print_or(&text, if problems { FAILED } else { GOOD }, not_written);
    exit.text.push_str(&warning);
    exit
}

/// A warning for the log at start that names the problems of this host, if there are any. Skips the
/// checks that take long.
pub fn host_warnings(settings: &Settings, host: &Host) -> Option<String> {
    let facts = Facts::gather(Path::new("/"), settings, host, true);
    report::line(&checks(&facts))
}

#[cfg(test)]
mod tests;
