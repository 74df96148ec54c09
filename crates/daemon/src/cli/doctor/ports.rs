//! The tracker's ports: free, or held by which process.

use super::facts::ports;
use super::{Facts, Finding};
use crate::ports::Holder;

const NAME: &str = "port";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    ports(&facts.settings).into_iter().map(|port| of(port, &facts.holders)).collect()
}

fn of(port: u16, holders: &[Holder]) -> Finding {
    let holders: Vec<_> = holders.iter().filter(|it| it.address.port() == port).collect();
    let mut processes = holders.iter().flat_map(|holder| &holder.processes);
    let is_tracker = |name: &str| name == "onrush" || name == "systemd";
    if holders.is_empty() {
        return Finding::ok(NAME, format!("UDP port {port} is free"));
    }
    if let Some(other) = processes.clone().find(|process| !is_tracker(&process.name)) {
        let what = format!("UDP port {port} is held by {other}: the tracker will not start");
        return Finding::problem(NAME, what).fix(format!(
            "`systemctl status {}` shows it: stop it if it is not needed, or set `listen` to \
             another port",
            other.id
        ));
    }
    match processes.next() {
        Some(tracker) => Finding::ok(NAME, format!("UDP port {port} is served by {tracker}")),
        None => {
            let what = format!("UDP port {port} is held by a process that this user may not see");
            Finding::note(NAME, what).fix(format!("ss -ulpn 'sport = :{port}'"))
        }
    }
}
