//! The tracker's ports: free, or held by which process.

use super::facts::{Holder, ports};
use super::{Facts, Finding};

const NAME: &str = "port";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    ports(&facts.settings).into_iter().map(|port| of(port, &facts.holders)).collect()
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
