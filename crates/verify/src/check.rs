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
    /// Requests of HTTP and the form of replies.
    Request,
    /// The upgrade to WebSocket.
    Handshake,
    /// Announces: their form, events and counts; over UDP also peer lists.
    Announce,
    /// Peer lists over HTTP.
    Peers,
    /// Offers and answers of WebTorrent.
    Offers,
    /// Scrapes.
    Scrape,
    /// Datagrams that are no request, and properties of all replies.
    #[strum(serialize = "anything else")]
    AnythingElse,
    /// Connections over TCP, or frames of WebSocket.
    Connection,
    /// TLS.
    Tls,
}

/// The result of a check without its texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CheckOutcome {
    /// As expected.
    Pass,
    /// Other than expected, within what the BEPs leave open.
    Differs,
    /// Against a BEP, or harmful to real clients.
    Fails,
    /// Not checked.
    Skipped,
}

impl CheckOutcome {
    /// All outcomes, in the order of a report's counts.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Differs, Self::Fails, Self::Skipped];
}

/// Why a check does not pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Differs, fails or skipped.
    pub outcome: CheckOutcome,
    /// The tracker's behaviour, or the reason for which the check was skipped.
    pub seen: String,
    /// The freedom that a BEP leaves, and its section, where the outcome is a difference.
    pub open: Option<&'static str>,
}

/// The result of a check.
pub type CheckResult = Result<(), Finding>;

/// A usable reply was expected and did not arrive: a failure, unless the time has ended.
impl From<ExchangeError> for Finding {
    fn from(error: ExchangeError) -> Self {
        let outcome = match error {
            ExchangeError::OutOfTime => CheckOutcome::Skipped,
            _ => CheckOutcome::Fails,
        };
        Self { outcome, seen: error.to_string(), open: None }
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

impl Needs {
    /// The info hashes of a check's own.
    pub(crate) fn hashes(self) -> usize {
        if let Self::Hashes(count) = self { count } else { 0 }
    }
}

/// The code of a check over UDP, with a client of its own, which connects with its first request
/// that needs a connection id. A check that accepts an error as the reply to an announce or a
/// scrape calls [`Client::connect`] first, so that a failed connect still fails the check.
pub type Run = fn(&Fixture<'_>, &Client<'_>) -> CheckResult;

/// One expectation of a tracker, and the code that checks it: `R` is a function on what the checks
/// of a protocol work with.
#[derive(Clone, Copy, Debug)]
pub struct CheckOf<R> {
    /// The name, which never changes.
    pub id: &'static str,
    /// The group.
    pub group: Group,
    /// Behaviour of a conforming tracker.
    pub expected: &'static str,
    /// BEP and section, or the clients that depend on it.
    pub source: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: R,
}

/// A check over UDP.
pub type Check = CheckOf<Run>;

impl<R: Copy> CheckOf<R> {
    pub(crate) const fn new(group: Group, id: &'static str, needs: Needs, run: R) -> Self {
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

/// The worst finding of several inputs: a difference with one does not hide a failure with a later
/// one. Nothing is worse than a failure, which ends the check.
pub(crate) fn worst_of<T>(
    inputs: impl IntoIterator<Item = T>,
    mut check: impl FnMut(T) -> CheckResult,
) -> CheckResult {
    let rank = |result: &CheckResult| match result.as_ref().map_err(|finding| finding.outcome) {
        Ok(()) | Err(CheckOutcome::Pass) => 0,
        Err(CheckOutcome::Skipped) => 1,
        Err(CheckOutcome::Differs) => 2,
        Err(CheckOutcome::Fails) => 3,
    };
    let mut worst = Ok(());
    for input in inputs {
        let result = check(input);
        if rank(&result) > rank(&worst) {
            worst = result;
        }
        if rank(&worst) == 3 {
            break;
        }
    }
    worst
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
pub(crate) fn tolerated<E: Into<Finding>>(open: &'static str) -> impl Fn(E) -> Finding {
    move |error| match error.into() {
        Finding { outcome: CheckOutcome::Fails, seen, .. } => difference(open, seen),
        finding => finding,
    }
}

pub(crate) fn fails(seen: impl Into<String>) -> CheckResult {
    Err(failure(seen))
}

pub(crate) fn failure(seen: impl Into<String>) -> Finding {
    Finding { outcome: CheckOutcome::Fails, seen: seen.into(), open: None }
}

/// The time for all checks ended first.
pub(crate) fn no_time() -> Finding {
    ExchangeError::OutOfTime.into()
}

pub(crate) fn differs(open: &'static str, seen: impl ToString) -> CheckResult {
    Err(difference(open, seen.to_string()))
}

pub(crate) fn difference(open: &'static str, seen: String) -> Finding {
    Finding { outcome: CheckOutcome::Differs, seen, open: Some(open) }
}

pub(crate) fn skipped(reason: impl Into<String>) -> CheckResult {
    Err(Finding { outcome: CheckOutcome::Skipped, seen: reason.into(), open: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_of_several_inputs_is_that_of_the_check() {
        use CheckOutcome::{Differs, Fails, Pass, Skipped};
        for (outcomes, worst, checked) in [
            (&[Pass, Pass][..], None, 2),
            (&[Pass, Skipped, Pass], Some(1), 3),
            (&[Differs, Skipped], Some(0), 2),
            (&[Skipped, Differs, Differs], Some(1), 3),
            (&[Differs, Fails, Fails], Some(1), 2),
        ] {
            let mut inputs = outcomes.iter().copied().enumerate();
            let found = worst_of(inputs.by_ref(), |(nth, outcome)| match outcome {
                Pass => Ok(()),
                outcome => Err(Finding { outcome, seen: nth.to_string(), open: None }),
            });
            let nth = found.err().map(|finding| finding.seen.parse().unwrap());
            assert_eq!(nth, worst, "{outcomes:?}");
            assert_eq!(outcomes.len() - inputs.len(), checked, "{outcomes:?}");
        }
    }
}
