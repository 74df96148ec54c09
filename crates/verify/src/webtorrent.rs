//! Conformance checks of WebTorrent trackers over WebSocket (RFC 6455), and their run. No BEP
//! describes the messages: sources are the clients that rely on them.

mod announce;
mod frames;
mod member;
mod offers;
mod scrape;

use crate::check::{CheckOf, CheckResult};
use crate::hashes::{HashPool, Lease};
use crate::report::Conformance;
use crate::runner::run_all;
use crate::tcp::{TcpSettings, target::TcpTarget};
use member::Member;

/// The code of a check over WebSocket.
pub type Run = fn(&Web<'_>) -> CheckResult;

/// A check over WebSocket.
pub type Check = CheckOf<Run>;

/// Every check, in the order of the list.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let all = [announce::CHECKS, offers::CHECKS, scrape::CHECKS, frames::CHECKS];
    all.into_iter().flatten()
}

/// Runs the checks.
///
/// # Errors
/// A sentence with a remedy, when the tracker takes no connection or the settings are not usable.
pub(crate) fn verify(settings: &TcpSettings) -> Result<Conformance, String> {
    let target = TcpTarget::new(settings)?;
    let pool = HashPool::new(settings.hashes.clone());
    let refusal = (refusal(&target, &pool), announce::FIRST);
    let rows = run_all(checks(), settings.only, &pool, refusal, |run, lease| {
        run(&Web { target: &target, lease })
    });
    Ok(target.report(rows))
}

/// How the tracker refuses every announce; `None` where it serves.
fn refusal(target: &TcpTarget, pool: &HashPool) -> Option<String> {
    let mut member = Member::connect(target).ok()?;
    let reply = member.announce(&member::text(&pool.reserved().0), "\"left\":1").ok()?;
    let reason = reply.value["failure reason"].as_str()?;
    Some(format!("refuses them: \"{reason}\""))
}

/// What one check works with.
#[derive(Debug)]
pub struct Web<'s> {
    target: &'s TcpTarget,
    lease: Lease<'s>,
}

impl<'s> Web<'s> {
    /// Info hash number `n`, which the tracker serves, as text.
    fn hash(&self, n: usize) -> String {
        member::text(&self.lease.hash(n).0)
    }

    /// A connection by WebSocket.
    fn member(&self) -> Result<Member<'s>, crate::check::Finding> {
        Member::connect(self.target)
    }
}
