//! Conformance checks of trackers over HTTP and HTTPS (BEP 3, "trackers"; BEP 7, 23, 31, 48;
//! RFC 9110, RFC 9112), and their run.

mod announce;
mod bencode;
mod client;
mod connection;
mod counts;
mod events;
mod peers;
mod query;
mod reply;
mod request;
mod scrape;
mod tls;

use crate::check::{CheckOf, CheckResult, Group};
use crate::report::Conformance;
use crate::runner::run_all;
use crate::tcp::{Scheme, TcpSettings, target::TcpTarget};
use client::{Http, Session};

/// The code of a check over HTTP.
pub type Run = fn(&Http<'_>) -> CheckResult;

/// A check over HTTP.
pub type Check = CheckOf<Run>;

/// Every check, in the order of the list. Those of TLS are for `https://` only.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let all = [
        request::CHECKS,
        announce::CHECKS,
        query::CHECKS,
        events::CHECKS,
        counts::CHECKS,
        peers::CHECKS,
        scrape::CHECKS,
        connection::CHECKS,
        tls::CHECKS,
    ];
    all.into_iter().flatten()
}

/// Those for URLs with this scheme.
pub(crate) fn checks_of(scheme: Scheme) -> impl Iterator<Item = &'static Check> {
    checks().filter(move |check| scheme.has_tls() || check.group != Group::Tls)
}

/// Runs the checks.
///
/// # Errors
/// A sentence with a remedy, when the tracker takes no connection or the settings are not usable.
pub(crate) fn verify(settings: &TcpSettings) -> Result<Conformance, String> {
    let session = Session::new(TcpTarget::new(settings)?, settings.hashes.clone());
    let refusal = (session.refusal(), announce::FIRST);
    let chosen = checks_of(settings.url.scheme);
    let rows = run_all(chosen, settings.only, &session.pool, refusal, |run, lease| {
        run(&Http::new(&session, lease))
    });
    session.target.budget.start_cleanup();
    session.remove_crowd();
    Ok(session.target.report(rows))
}
