//! The limits of the tracker's process.

use onrush_config::host::granted;
use procfs_core::process::{LimitValue, Limits, Status};

use super::Files;
use crate::cli::doctor::facts::Facts;

/// Limits, user and resources of the tracker that holds the port; of the current process if there
/// is none. The limits of a shell differ from those of a unit.
pub(super) fn limits(files: &mut Files<'_>, facts: &mut Facts) {
    let mut processes = facts.holders.iter().flat_map(|holder| &holder.processes);
    let tracker = processes.find(|process| process.name == "onrush").map(|process| process.id);
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
