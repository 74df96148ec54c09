//! Checks and their results.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::exchange::ExchangeError;
use crate::fixture::Fixture;

/// The groups of checks.
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
    /// Unexpected, within what the BEPs leave open.
    Differs {
        /// The tracker's behaviour.
        seen: String,
        /// The freedom that a BEP leaves, and its section.
        open: &'static str,
    },
    /// Violates a BEP, or harms real clients.
    Fails {
        /// The tracker's behaviour.
        seen: String,
    },
    /// Not checked.
    Skipped {
        /// The reason.
        reason: String,
    },
}

/// The result of a check. An error is a failure: a usable reply was expected and did not arrive.
pub(crate) type CheckResult = Result<Verdict, ExchangeError>;

/// One expectation of a tracker, and the code that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The name, which never changes.
    pub id: &'static str,
    /// The group.
    pub group: Group,
    /// What a conforming tracker does.
    pub expected: &'static str,
    /// BEP and section, or the clients that depend on it.
    pub source: &'static str,
    /// Number of info hashes that the check uses alone and the tracker must serve.
    pub(crate) hashes: usize,
    /// Whether it uses the shared large swarm.
    pub(crate) large_swarm: bool,
    pub(crate) run: fn(&Fixture<'_>) -> CheckResult,
}

/// Passes if `right`, else fails with `seen`.
pub(crate) fn demand(right: bool, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Fails { seen: seen() } }
}

/// Passes if `right`, else differs within the freedom `open`.
pub(crate) fn prefer(right: bool, open: &'static str, seen: impl FnOnce() -> String) -> Verdict {
    if right { Verdict::Pass } else { Verdict::Differs { seen: seen(), open } }
}

pub(crate) fn fails(seen: impl Into<String>) -> CheckResult {
    Ok(Verdict::Fails { seen: seen.into() })
}

pub(crate) fn skipped(reason: impl Into<String>) -> CheckResult {
    Ok(Verdict::Skipped { reason: reason.into() })
}
