//! The wall clock: connection ids contain the time, and hosts that share a key compare it.

use onrush_net::clock::UNSYNCHRONISED;

use super::{Facts, Finding};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let name = "time";
    let Some(error) = facts.clock_error else { return Vec::new() };
    if error < UNSYNCHRONISED {
        let what = format!("the wall clock is synchronised, to {} ms at most", error.as_millis());
        return vec![Finding::ok(name, what)];
    }
    let fix = "systemctl enable --now systemd-timesyncd, or install chrony";
    vec![match &facts.settings.connection.key_file {
        Some(_) => Finding::problem(
            name,
            "nothing synchronises the wall clock: hosts with the same connection.key_file refuse \
             each other's connection ids once their clocks differ by ten seconds",
        ),
        None => Finding::note(
            name,
            "nothing synchronises the wall clock: times in logs and snapshots drift, and peers \
             expire when it is set by hand before a restart",
        ),
    }
    .fix(fix)]
}
