//! A run of the checks, several at a time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onrush_proto::InfoHash;

use crate::check::{Check, CheckResult, Group, Needs, fails, skipped};
use crate::checks::{self, checks};
use crate::fixture::{Fixture, Session};
use crate::reachability::{self, BRIEFLY, Unreachable};
use crate::report::{Conformance, Row};
use crate::target::Target;

/// Checks that run at a time: enough to overlap the waits for silence, few enough to be no load
/// on a tracker in use.
const CONCURRENCY: usize = 16;

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
    let refusal = session.refusal();
    let chosen: Vec<&Check> =
        checks().filter(|check| settings.only.is_none_or(|only| only == check.group)).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY.min(chosen.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = chosen.get(number) else { break };
                    let result = run(check, &session, refusal.as_deref());
                    done.lock().expect("no check panics").push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no check panics");
    done.sort_by_key(|(number, _)| *number);
    let rows = done.into_iter().map(|(number, result)| Row::new(chosen[number], result));
    let rows: Vec<Row> = rows.collect();
    session.target.start_cleanup();
    session.remove_large_swarm();
    let mut report = Conformance::new(settings.target, session.target.also, rows);
    report.datagrams = session.target.sent();
    report.seconds = session.target.seconds();
    Ok(report)
}

/// Runs one check. `refusal` says how the tracker refuses announces of any hash, if it does.
fn run(check: &Check, session: &Session, refusal: Option<&str>) -> CheckResult {
    if let (Some(text), true) = (refusal, check.needs != Needs::Nothing) {
        let which = if session.target.shares_hashes { "the given" } else { "unknown" };
        let reason = format!("to announces of {which} hashes the tracker {text}");
        return match check.id == checks::FIRST_ANNOUNCE {
            false => skipped(reason),
            true => fails(reason + "; if it serves listed hashes only, name some with --info-hash"),
        };
    }
    let hashes = if let Needs::Hashes(count) = check.needs { count } else { 0 };
    match Fixture::new(session, hashes) {
        Ok(fixture) => (check.run)(&fixture, &fixture.client()?),
        Err(reason) => skipped(reason),
    }
}
