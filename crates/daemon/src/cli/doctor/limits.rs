//! Limits and user of the process.

use super::{Facts, Finding};

/// Open files beside the sockets and their pollers: log, state, lists, connections of the admin
/// side.
const OTHER_FILES: u64 = 64;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [files(facts), user(facts)].into_iter().flatten().collect()
}

fn files(facts: &Facts) -> Option<Finding> {
    let (limit, needs) = (facts.files?, &facts.needs);
    let addresses = needs.addresses.len() as u64;
    let needed = needs.socket_workers * addresses + 4 * needs.workers + OTHER_FILES;
    let name = "files";
    let limit = match facts.tracker {
        Some(pid) if limit < needed => format!("process {pid}, the tracker, may open {limit}"),
        Some(pid) => format!("process {pid}, the tracker, may open {limit} files"),
        None if limit < needed => format!("this shell may open {limit} (a unit has its own limit)"),
        None => format!("this shell may open {limit} files (a unit has its own limit)"),
    };
    Some(if facts.files? < needed {
        let what = format!(
            "{} workers with {addresses} addresses need about {needed} open files, and {limit}: \
             the tracker will not start",
            needs.workers
        );
        Finding::problem(name, what)
            .fix(format!("ulimit -n {}", needed.next_power_of_two()))
            .keep(format!("LimitNOFILE={} in the unit", needed.next_power_of_two()))
    } else {
        Finding::ok(name, format!("{limit}, and the tracker needs about {needed}"))
    })
}

fn user(facts: &Facts) -> Option<Finding> {
    let name = "user";
    Some(if facts.root? && !facts.needs.changes_user {
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

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::Needs;
    use super::*;

    #[test]
    fn too_few_open_files_are_a_problem_with_a_number() {
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6969".parse().unwrap()];
        let needs = Needs { addresses, socket_workers: 42, workers: 48, ..Needs::default() };
        let of = |limit| {
            files(&Facts { needs: needs.clone(), files: Some(limit), ..Facts::default() }).unwrap()
        };
        assert_eq!(of(1024).severity, Severity::Ok);
        let finding = of(256);
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("340") && finding.what.contains("256"), "{}", finding.what);
        assert_eq!(finding.fix.as_deref(), Some("ulimit -n 512"));
        assert_eq!(finding.keep.as_deref(), Some("LimitNOFILE=512 in the unit"));
    }

    #[test]
    fn root_is_a_note_unless_the_tracker_changes_user() {
        let of = |root, changes_user| {
            let needs = Needs { changes_user, ..Needs::default() };
            user(&Facts { needs, root: Some(root), ..Facts::default() }).unwrap().severity
        };
        assert_eq!(
            [of(true, false), of(true, true), of(false, false)],
            [Severity::Note, Severity::Ok, Severity::Ok]
        );
    }
}
