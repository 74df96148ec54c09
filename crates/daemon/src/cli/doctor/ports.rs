//! The tracker's ports: free, or held by which process.

use super::facts::Holder;
use super::{Facts, Finding};

const NAME: &str = "port";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.ports().into_iter().map(|port| of(port, &facts.holders)).collect()
}

fn of(port: u16, holders: &[Holder]) -> Finding {
    let mut holders = holders.iter().filter(|holder| holder.port == port);
    let Some(Holder { process, .. }) = holders.next() else {
        return Finding::ok(NAME, format!("UDP port {port} is free"));
    };
    match process {
        Some((pid, name)) if name == "onrush" || name == "systemd" => {
            Finding::ok(NAME, format!("UDP port {port} is served by {name} (process {pid})"))
        }
        Some((pid, name)) => {
            let what = format!(
                "UDP port {port} is held by {name} (process {pid}): the tracker will not start"
            );
            Finding::problem(NAME, what).fix(format!("kill {pid}, or set `listen` to another port"))
        }
        None => {
            let what = format!("UDP port {port} is held by a process that this user may not see");
            Finding::note(NAME, what).fix(format!("ss -ulpn 'sport = :{port}'"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn a_port_held_by_another_process_is_a_problem() {
        let held = |process: Option<(u32, &str)>| {
            let process = process.map(|(pid, name)| (pid, name.to_owned()));
            of(6969, &[Holder { port: 80, process: None }, Holder { port: 6969, process }])
        };
        assert_eq!(of(6969, &[]).severity, Severity::Ok);
        assert_eq!(held(Some((7, "onrush"))).severity, Severity::Ok);
        let finding = held(Some((7, "opentracker")));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("opentracker (process 7)"), "{}", finding.what);
        assert_eq!(held(None).severity, Severity::Note);
    }
}
