//! What a check is, and what comes of it.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::exchange::ExchangeError;
use crate::fixture::Fixture;

/// The parts of the list of checks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Connection ids.
    Connect,
    /// Announces: their form, events, counts and peer lists.
    Announce,
    /// Scrapes.
    Scrape,
    /// Datagrams that are no request, and properties of all replies.
    AnythingElse,
}

impl Group {
    /// All groups, in the order of the list.
    pub const ALL: [Self; 4] = [Self::Connect, Self::Announce, Self::Scrape, Self::AnythingElse];

    /// The heading in the list.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Announce => "announce",
            Self::Scrape => "scrape",
            Self::AnythingElse => "anything else",
        }
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As expected.
    Pass,
    /// Other than expected, within what the BEPs leave open.
    Differs {
        /// What the tracker did.
        seen: String,
        /// What is left open, and by which BEP.
        open: &'static str,
    },
    /// Against a BEP, or harmful to real clients.
    Fails {
        /// What the tracker did.
        seen: String,
    },
    /// Not checked.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// What a check returns. An error is a failure: a usable reply was due and did not come.
pub(crate) type CheckResult = Result<Verdict, ExchangeError>;

/// One expectation of a tracker, and the code that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which never changes.
    pub id: &'static str,
    /// Its part of the list.
    pub group: Group,
    /// What a conforming tracker does.
    pub expected: &'static str,
    /// BEP and section, or the clients that rely on it.
    pub source: &'static str,
    /// Number of info hashes of its own that the tracker must serve.
    pub(crate) hashes: usize,
    /// Whether it uses the shared large swarm.
    pub(crate) large_swarm: bool,
    pub(crate) run: fn(&Fixture<'_>) -> CheckResult,
}

/// Passes where `right`, else fails with `seen`.
pub(crate) fn demand(right: bool, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Fails { seen: seen() } }
}

/// Passes where `right`, else differs within what is left `open`.
pub(crate) fn prefer(right: bool, open: &'static str, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Differs { seen: seen(), open } }
}

pub(crate) fn fails(seen: impl Into<String>) -> CheckResult {
    Ok(Verdict::Fails { seen: seen.into() })
}

pub(crate) fn skipped(reason: impl Into<String>) -> CheckResult {
    Ok(Verdict::Skipped { reason: reason.into() })
}
