//! A run of the checks, by protocol.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::ValueEnum as _;
use onrush_proto::InfoHash;

use crate::check::Group;
use crate::checks::{self, checks};
use crate::fixture::{Fixture, Session};
use crate::reachability::{self, BRIEFLY, Unreachable};
use crate::report::Conformance;
use crate::runner::run_all;
use crate::target::Target;
use crate::tcp::{Scheme, TcpSettings};
use crate::{http, webtorrent};

/// Target and options of a run.
#[derive(Clone, Debug)]
pub struct VerifySettings {
    /// The tracker.
    pub target: SocketAddr,
    /// The same tracker's address of the other family.
    pub also: Option<SocketAddr>,
    /// Source addresses of requests; empty for the one that routing picks (several of 127/8 for a
    /// tracker there).
    pub sources: Vec<IpAddr>,
    /// Info hashes that the tracker serves; empty where it serves any.
    pub hashes: Vec<InfoHash>,
    /// How long a reply may take, and how long silence lasts.
    pub timeout: Duration,
    /// Only this part of the list.
    pub only: Option<Group>,
    /// How long the first reply may take, as a tracker under overload loses connects.
    pub reach_timeout: Duration,
}

/// Runs the checks.
///
/// # Errors
/// When nothing answers a connect request at the target.
pub fn verify(settings: &VerifySettings) -> Result<Conformance, Unreachable> {
    let source = settings.sources.first().copied();
    let local = reachability::check(settings.target, source, settings.reach_timeout)?;
    let mut target = Target::new(settings.target, &settings.sources, local, settings.timeout);
    let answers = |also: &SocketAddr| reachability::check(*also, None, BRIEFLY).is_ok();
    target.also = settings.also.filter(answers);
    let session = Session::new(target, settings.hashes.clone());
    let refusal = (session.refusal(), checks::FIRST_ANNOUNCE);
    let rows = run_all(checks(), settings.only, &session.pool, refusal, |run, lease| {
        let fixture = Fixture::new(&session, lease);
        run(&fixture, &fixture.client()?)
    });
    session.target.budget.start_cleanup();
    session.remove_large_swarm();
    let target = settings.target.to_string();
    let mut report = Conformance::new(target, session.target.also, rows);
    report.datagrams = session.target.sent();
    report.seconds = session.target.budget.seconds();
    Ok(report)
}

/// Runs the checks over HTTP or WebSocket, by the scheme of the URL.
///
/// # Errors
/// A sentence with a remedy, when the tracker takes no connection or the settings are not usable.
pub fn verify_tcp(settings: &TcpSettings) -> Result<Conformance, String> {
    match settings.url.scheme.is_websocket() {
        true => webtorrent::verify(settings),
        false => http::verify(settings),
    }
}

/// The groups of checks over UDP, or of URLs with this scheme, in the order of the list.
pub fn groups(scheme: Option<Scheme>) -> Vec<Group> {
    let has = |group: &Group| match scheme {
        None => checks().any(|check| check.group == *group),
        Some(scheme) if scheme.is_websocket() => {
            webtorrent::checks().any(|check| check.group == *group)
        }
        Some(scheme) => http::checks_of(scheme).any(|check| check.group == *group),
    };
    Group::value_variants().iter().copied().filter(has).collect()
}
