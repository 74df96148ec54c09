//! Checks and their results.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

use crate::exchange::{Client, ExchangeError};
use crate::fixture::Fixture;
use crate::message::hex;

/// The groups of checks, in the order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum, AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "lowercase")]
pub enum Group {
    /// Connection ids.
    Connect,
    /// Announces: their form, events, counts and peer lists.
    Announce,
    /// Scrapes.
    Scrape,
    /// Datagrams that are no request, and properties of all replies.
    #[strum(serialize = "anything else")]
    AnythingElse,
}

/// Why a check does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Finding {
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

/// The result of a check.
pub(crate) type CheckResult = Result<(), Finding>;

/// A usable reply was expected and did not arrive: a failure, unless the time has ended.
impl From<ExchangeError> for Finding {
    fn from(error: ExchangeError) -> Self {
        let text = error.to_string();
        match error {
            ExchangeError::OutOfTime => Self::Skipped { reason: text },
            _ => Self::Fails { seen: text },
        }
    }
}

/// A check's requirement on the tracker's swarms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// No info hash that the tracker serves.
    Nothing,
    /// So many info hashes that the tracker serves and no other check uses.
    Hashes(usize),
    /// The shared large swarm.
    LargeSwarm,
}

/// One expectation of a tracker, and the code that checks it.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The name, which never changes.
    pub id: &'static str,
    /// The group.
    pub group: Group,
    /// Behaviour of a conforming tracker.
    pub expected: &'static str,
    /// BEP and section, or the clients that depend on it.
    pub source: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(&Fixture<'_>) -> CheckResult,
}

impl Check {
    pub(crate) const fn new(
        group: Group,
        id: &'static str,
        needs: Needs,
        run: fn(&Fixture<'_>) -> CheckResult,
    ) -> Self {
        Self { id, group, expected: "", source: "", needs, run }
    }

    pub(crate) const fn expects(self, expected: &'static str) -> Self {
        Self { expected, ..self }
    }

    pub(crate) const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }
}

/// Passes if `right`, else fails with `seen`.
pub(crate) fn demand(right: bool, seen: impl FnOnce() -> String) -> CheckResult {
    if right { Ok(()) } else { fails(seen()) }
}

/// Passes if `right`, else differs within the freedom `open`.
pub(crate) fn prefer(
    right: bool,
    open: &'static str,
    seen: impl FnOnce() -> String,
) -> CheckResult {
    if right { Ok(()) } else { differs(open, seen()) }
}

/// Passes if `request` gets no reply.
pub(crate) fn demand_silence(client: &Client<'_>, request: &[u8]) -> CheckResult {
    client.reply_to_bad(request)?.map_or(Ok(()), |reply| fails(hex(&reply)))
}

/// Passes if `request`, which proves its address, gets no reply; differs if it gets an error.
pub(crate) fn demand_silence_or_error(client: &Client<'_>, request: &[u8]) -> CheckResult {
    let Some(reply) = client.reply_to_bad(request)? else { return Ok(()) };
    demand(reply.starts_with(&[0, 0, 0, 3]), || hex(&reply))?;
    differs("BEP 15, \"Errors\", allows an error to a proven address", hex(&reply))
}

/// Turns the error of an exchange into a difference within the freedom `open`.
pub(crate) fn tolerated(open: &'static str) -> impl Fn(ExchangeError) -> Finding {
    move |error| match error.into() {
        Finding::Fails { seen } => Finding::Differs { seen, open },
        finding => finding,
    }
}

pub(crate) fn fails(seen: impl Into<String>) -> CheckResult {
    Err(Finding::Fails { seen: seen.into() })
}

pub(crate) fn differs(open: &'static str, seen: impl ToString) -> CheckResult {
    Err(Finding::Differs { seen: seen.to_string(), open })
}

pub(crate) fn skipped(reason: impl Into<String>) -> CheckResult {
    Err(Finding::Skipped { reason: reason.into() })
}
