//! Runs checks of any protocol, several at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::check::{CheckOf, CheckResult, Group, Needs, fails, skipped};
use crate::hashes::{HashPool, Lease};
use crate::report::Row;

/// Checks that run at a time: enough to overlap the waits for silence, few enough to be no load
/// on a tracker in use.
const CONCURRENCY: usize = 16;

/// Runs the checks of a group, or all, several at a time, each with info hashes of its own. The
/// rows are in the order of the list. `refusal` says how the tracker refuses every announce, if it
/// does: of the checks that need swarms only `first` fails then, and the others are skipped.
pub(crate) fn run_all<'p, R: Copy + Sync + 'static>(
    checks: impl Iterator<Item = &'static CheckOf<R>>,
    only: Option<Group>,
    pool: &'p HashPool,
    (refusal, first): (Option<String>, &str),
    run: impl Fn(R, Lease<'p>) -> CheckResult + Sync,
) -> Vec<Row> {
    let result = |check: &CheckOf<R>| match &refusal {
        Some(text) if check.needs != Needs::Nothing => {
            refused(text, pool.is_limited(), check.id == first)
        }
        _ => match pool.lease(check.needs.hashes()) {
            Ok(lease) => run(check.run, lease),
            Err(reason) => skipped(reason),
        },
    };
    let chosen: Vec<_> = checks.filter(|check| only.is_none_or(|it| it == check.group)).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY.min(chosen.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(check) = chosen.get(number) else { break };
                    let result = result(check);
                    done.lock().expect("no check panics").push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no check panics");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(number, result)| Row::new(chosen[number], result)).collect()
}

/// The result of a check that needs swarms, at a tracker that refuses every announce.
fn refused(text: &str, is_limited: bool, is_first: bool) -> CheckResult {
    let which = if is_limited { "the given" } else { "unknown" };
    let reason = format!("to announces of {which} hashes the tracker {text}");
    match is_first {
        false => skipped(reason),
        true => fails(reason + "; if it serves listed hashes only, name some with --info-hash"),
    }
}
