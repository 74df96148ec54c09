//! Processes: the holders of the tracker's ports, and the limits of the tracker's process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use onrush_config::host::granted;
use procfs_core::net::UdpNetEntries;
use procfs_core::process::{LimitValue, Limits, Status};
use procfs_core::{ExplicitSystemInfo, FromReadSI as _};

use super::{Files, name};
use crate::cli::doctor::facts::{Facts, Holder};

/// The holders of sockets at these ports, found by the inodes that the descriptors of processes
/// name.
pub(super) fn holders(files: &mut Files<'_>, ports: &BTreeSet<u16>) -> Vec<Holder> {
    let mut inodes: BTreeMap<String, u16> = BTreeMap::new();
    // Ports and inodes do not depend on the system; other fields, which are not read, do.
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: cfg!(target_endian = "little"),
    };
    for file in ["proc/net/udp", "proc/net/udp6"] {
        let Ok(sockets) = UdpNetEntries::from_file(files.root.join(file), &system) else {
            continue;
        };
        for socket in sockets.0 {
            let port = socket.local_address.port();
            if ports.contains(&port) {
                inodes.insert(format!("socket:[{}]", socket.inode), port);
            }
        }
    }
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut holders = Vec::new();
    let mut known = BTreeSet::new();
    for process in files.entries("proc") {
        let pid = name(&process).parse::<u32>();
        let (Ok(pid), Ok(descriptors)) = (pid, fs::read_dir(process.join("fd"))) else {
            continue;
        };
        let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let held: BTreeSet<u16> =
            links.filter_map(|link| inodes.get(link.to_str()?).copied()).collect();
        for port in held {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            known.insert(port);
            holders.push(Holder { port, process: Some((pid, name.trim().to_owned())) });
        }
    }
    let hidden: BTreeSet<u16> = inodes.into_values().filter(|port| !known.contains(port)).collect();
    holders.extend(hidden.into_iter().map(|port| Holder { port, process: None }));
    holders
}

/// Limits, user and resources of the tracker that holds the port; of the current process if there
/// is none. The limits of a shell differ from those of a unit.
pub(super) fn limits(files: &mut Files<'_>, facts: &mut Facts) {
    let trackers = facts.holders.iter().filter_map(|holder| holder.process.as_ref());
    let tracker = trackers.filter(|(_, name)| name == "onrush").map(|(pid, _)| *pid).next();
    let of_tracker =
        tracker.and_then(|pid| Some((pid, files.parse::<Limits>(&format!("proc/{pid}/limits"))?)));
    facts.tracker = of_tracker.as_ref().map(|(pid, _)| *pid);
    let process = facts.tracker.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let limits = of_tracker.map(|(_, limits)| limits).or_else(|| files.parse("proc/self/limits"));
    facts.files = limits.and_then(|limits| match limits.max_open_files.soft_limit {
        LimitValue::Value(files) => Some(files),
        LimitValue::Unlimited => None,
    });
    let status = files.parse::<Status>(&format!("proc/{process}/status"));
    facts.root = status.as_ref().map(|status| status.euid == 0);
    if facts.tracker.is_some() {
        let granted = granted(files.root, &process);
        facts.quota = granted.cpu_quota;
        facts.memory = granted.memory.or(facts.memory);
        if let Some(cpus) = status.and_then(|status| status.cpus_allowed_list) {
            facts.vcpus = cpus.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        }
    }
}
