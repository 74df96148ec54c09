//! Processes: who has the tracker's ports, and what the tracker's own process may have and do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::cards::cpu_list;
use super::{Look, limit};
use crate::cli::doctor::facts::{Facts, Holder};
use onrush_config::host::granted;

/// Who has sockets at these ports: by their inodes, which processes' descriptors name.
pub(super) fn holders(look: &mut Look<'_>, ports: &BTreeSet<u16>) -> Vec<Holder> {
    let mut inodes: BTreeMap<String, u16> = BTreeMap::new();
    for file in ["proc/net/udp", "proc/net/udp6"] {
        let text = look.text(file).unwrap_or_default();
        for fields in text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
            let port = fields.get(1).and_then(|local| local.rsplit_once(':'));
            let port = port.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            if let (Some(port), Some(inode)) =
                (port.filter(|port| ports.contains(port)), fields.get(9))
            {
                inodes.insert(format!("socket:[{inode}]"), port);
            }
        }
    }
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut holders = Vec::new();
    let mut known = BTreeSet::new();
    for process in look.entries("proc") {
        let pid = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let (Some(pid), Ok(files)) = (pid, fs::read_dir(process.join("fd"))) else { continue };
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
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

/// Limits, filter, user and share of the host: those of the tracker that has the port, where there is
/// one, as a shell's say little of those of a unit; else those of this process.
pub(super) fn limits(look: &mut Look<'_>, facts: &mut Facts) {
    let trackers = facts.holders.iter().filter_map(|holder| holder.process.as_ref());
    let tracker = trackers.filter(|(_, name)| name == "onrush").map(|(pid, _)| *pid).next();
    // One that may not be looked at is as good as none.
    facts.tracker = tracker.filter(|pid| look.text(&format!("proc/{pid}/limits")).is_some());
    let process = facts.tracker.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let limits = look.text(&format!("proc/{process}/limits")).unwrap_or_default();
    let status = look.text(&format!("proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim())
    };
    facts.files = limit(&limits, "Max open files");
    facts.locked_bytes = limit(&limits, "Max locked memory");
    facts.filtered = field("Seccomp").map(|mode| mode != "0");
    facts.root = field("Uid").and_then(|ids| Some(ids.split_whitespace().nth(1)? == "0"));
    if facts.tracker.is_some() {
        let granted = granted(look.root, &process);
        facts.asked.quota = granted.cpu_quota;
        facts.asked.memory = granted.memory.or(facts.asked.memory);
        if let Some(cpus) = field("Cpus_allowed_list").map(cpu_list).filter(|cpus| !cpus.is_empty())
        {
            facts.asked.vcpus = cpus.len() as u64;
        }
    }
}
