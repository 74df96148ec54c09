//! The first lines of the log: what is served, by whom, and what to do next.

use std::net::SocketAddr;

use crate::settings::{Placement, Settings};
use crate::start::Tracker;

/// What a person wants to know of a tracker that has just started, a line each.
pub fn lines(settings: &Settings, tracker: &Tracker) -> Vec<String> {
    let addresses: Vec<String> =
        tracker.running.addresses().iter().map(|address| format!("udp://{address}")).collect();
    let steered = tracker.steering.as_ref().is_some_and(|s| s.addresses().next().is_some());
    let mut lines = vec![
        format!("onrush {} serves {}", env!("CARGO_PKG_VERSION"), addresses.join(" and ")),
        workers(settings, steered),
        limits(settings),
    ];
    if let Some(port) = tracker.running.addresses().first().map(SocketAddr::port) {
        lines.push(format!(
            "ready: add udp://<this host>:{port}/announce to a torrent; stop with Ctrl-C or SIGTERM"
        ));
    }
    lines
}

fn workers(settings: &Settings, steered: bool) -> String {
    let on = match &settings.pin {
        Some(vcpus) => format!("pinned to vCPUs {}", list(vcpus)),
        None => "not pinned".to_owned(),
    };
    match settings.placement {
        Placement::Colocated { workers } => format!(
            "{workers} colocated worker{} {on}{}",
            if workers == 1 { "" } else { "s" },
            if steered { ", announces steered to their shard by the kernel" } else { "" },
        ),
        Placement::Split { socket_workers, swarm_workers } => {
            format!("{socket_workers} socket and {swarm_workers} swarm workers {on}")
        }
    }
}

fn limits(settings: &Settings) -> String {
    format!(
        "at most {} peers; announce interval {} s; peers forgotten after {} s; connection ids valid \
         for {} s at least{}",
        settings.limits.peers,
        settings.announce.interval,
        settings.announce.peer_lifetime,
        settings.connection.validity,
        match &settings.state_dir {
            Some(directory) => format!("; state in {}", directory.display()),
            None => String::new(),
        },
    )
}

/// `0-3,8` for 0, 1, 2, 3 and 8, as taskset(1) writes it. Keeps the order given.
fn list(numbers: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run =
            rest.iter().zip(first..).take_while(|(number, expected)| *number == expected).count();
        parts.push(match run {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + run - 1),
        });
        rest = &rest[run..];
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_are_listed_as_taskset_does() {
        assert_eq!(list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list(&[5]), "5");
        assert_eq!(list(&[4, 0, 1]), "4,0-1");
        assert_eq!(list(&[]), "");
    }
}
