//! What the process itself may have and do.

use super::{Facts, Finding};

/// Open files beside sockets and their polling: log, state, lists, HTTP connections.
const OTHER_FILES: u64 = 64;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [files(facts), locked(facts), io_uring(facts), identity(facts)].into_iter().flatten().collect()
}

fn files(facts: &Facts) -> Option<Finding> {
    let (limit, asked) = (facts.files?, &facts.asked);
    let addresses = asked.addresses.len() as u64;
    let needed = asked.socket_workers * addresses + 4 * asked.workers + OTHER_FILES;
    let name = "files";
    Some(if limit < needed {
        let what = format!(
            "{} workers with {addresses} addresses need some {needed} open files, and {limit} are allowed \
             {}: the tracker will not start",
            asked.workers,
            to_whom(facts)
        );
        Finding::problem(name, what)
            .fix(format!("ulimit -n {}", needed.next_power_of_two()))
            .keep(format!("LimitNOFILE={} in the unit", needed.next_power_of_two()))
    } else {
        let what =
            format!("{limit} open files are allowed {}, some {needed} are needed", to_whom(facts));
        Finding::ok(name, what)
    })
}

/// Whose limits they are.
fn to_whom(facts: &Facts) -> String {
    match facts.tracker {
        Some(pid) => format!("to the tracker (process {pid})"),
        None => "here (a unit has limits of its own, seen while it runs)".to_owned(),
    }
}

fn locked(facts: &Facts) -> Option<Finding> {
    facts.locked_bytes.map(|bytes| {
        let what = format!(
            "{bytes} bytes may be locked in memory {}; the tracker locks none",
            match facts.tracker {
                Some(pid) => format!("by process {pid}"),
                None => "here".to_owned(),
            }
        );
        Finding::ok("memlock", what)
    })
}

/// Nothing here needs it. Who comes from a tracker that does will look for it.
fn io_uring(facts: &Facts) -> Option<Finding> {
    let filtered = facts.filtered?;
    let process =
        facts.tracker.map_or_else(|| "this process".to_owned(), |pid| format!("process {pid}"));
    let filter = if filtered { "a system-call filter is on" } else { "no filter is on" };
    let disabled = match facts.io_uring_disabled {
        Some(1 | 2) => ", and the host has io_uring disabled",
        _ => "",
    };
    Some(Finding::ok(
        "io_uring",
        format!("the tracker does without io_uring ({filter} {process}{disabled})"),
    ))
}

fn identity(facts: &Facts) -> Option<Finding> {
    let root = facts.root?;
    let name = "user";
    Some(if root && !facts.asked.becomes_user {
        let what = match facts.tracker {
            Some(pid) => {
                format!("process {pid}, the tracker, is root's: it has more power than it needs")
            }
            None => {
                "started as this user, root, the tracker has more power than it needs".to_owned()
            }
        };
        Finding::note(name, what)
            .fix("systemctl start onrush, whose unit has a user of its own")
            .keep("`user = \"onrush\"` in the configuration, where it is started otherwise")
    } else {
        Finding::ok(name, "the tracker does not stay root")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::Asked;
    use super::*;

    #[test]
    fn too_few_open_files_are_a_problem_with_a_number() {
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6969".parse().unwrap()];
        let asked = Asked { addresses, socket_workers: 42, workers: 48, ..Asked::default() };
        let of = |limit| {
            files(&Facts { asked: asked.clone(), files: Some(limit), ..Facts::default() }).unwrap()
        };
        assert_eq!(of(1024).severity, Severity::Ok);
        let finding = of(256);
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("need some 340 open files, and 256"), "{}", finding.what);
        assert!(finding.what.contains("a unit has limits of its own"), "{}", finding.what);
        assert_eq!(finding.fix.as_deref(), Some("ulimit -n 512"));
    }

    #[test]
    fn root_is_noted_unless_it_becomes_somebody_else() {
        let of = |root, becomes_user| {
            let asked = Asked { becomes_user, ..Asked::default() };
            identity(&Facts { asked, root: Some(root), ..Facts::default() }).unwrap().severity
        };
        assert_eq!(
            [of(true, false), of(true, true), of(false, false)],
            [Severity::Note, Severity::Ok, Severity::Ok]
        );
    }

    #[test]
    fn what_is_not_needed_is_never_a_problem() {
        let facts = Facts {
            filtered: Some(true),
            io_uring_disabled: Some(2),
            locked_bytes: Some(0),
            ..Facts::default()
        };
        assert!(check(&facts).iter().all(|finding| finding.severity == Severity::Ok));
        assert_eq!(check(&facts).len(), 2);
    }
}
