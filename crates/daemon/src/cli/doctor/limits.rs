//! Limits and user of the process.

use super::{Facts, Finding};
use onrush_config::Settings;

/// Open files beside the sockets and their pollers: log, state, lists, connections of the admin
/// side.
const OTHER_FILES: u64 = 64;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [files(facts), user(facts)].into_iter().flatten().collect()
}

fn files(facts: &Facts) -> Option<Finding> {
    let (limit, Settings { listen, placement, .. }) = (facts.files?, &facts.settings);
    let (addresses, workers) = (listen.len(), placement.workers());
    let needed = (placement.socket_sides() * addresses + 4 * workers) as u64 + OTHER_FILES;
    let name = "files";
    let has = match facts.tracker {
        Some(pid) => format!("process {pid}, the tracker, may open {limit} files"),
        None => format!("this shell may open {limit} files (a unit has its own limit)"),
    };
    Some(if limit < needed {
        let what = format!(
            "{workers} workers with {addresses} addresses need about {needed} open files, and \
             {has}: the tracker will not start"
        );
        let enough = needed.next_power_of_two();
        Finding::problem(name, what)
            .fix(format!("ulimit -n {enough}"))
            .keep(format!("LimitNOFILE={enough} in the unit"))
    } else {
        Finding::ok(name, format!("{has}, and the tracker needs about {needed}"))
    })
}

fn user(facts: &Facts) -> Option<Finding> {
    let name = "user";
    Some(if facts.root? && facts.settings.user.is_none() {
        let what = match facts.tracker {
            Some(pid) => {
                format!("process {pid}, the tracker, runs as root, which it does not need")
            }
            None => "the tracker would run as root, which it does not need".to_owned(),
        };
        Finding::note(name, what)
            .fix("systemctl start onrush: the unit has its own user")
            .keep("`user = \"onrush\"` in the configuration, if it is not started by the unit")
    } else {
        Finding::ok(name, "the tracker does not stay root")
    })
}
