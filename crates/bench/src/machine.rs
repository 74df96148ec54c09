//! Which vCPUs this process may use and which of them share a core, and what the kernel grants a socket.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use onrush_load::environment::Environment;

use crate::cpus::CpuList;

/// Where the kernel tells who shares a core (Documentation/admin-guide/cputopology.rst).
const SYS_CPU: &str = "/sys/devices/system/cpu";

/// The fact that changes from minute to minute, as [`Environment::facts`] calls it.
pub const LOAD_AVERAGE: &str = "load average before";

/// What a reader must know of this host, in order. The commits of programs stand with their versions.
pub fn facts() -> Vec<(String, String)> {
    let mut facts = Environment::read().facts();
    facts.retain(|(name, _)| name != "commit");
    facts
}

/// The vCPUs that this process may use, by core: each with its siblings (SMT), in order of the first.
///
/// # Errors
/// When the kernel does not tell what is allowed.
pub fn cores() -> anyhow::Result<Vec<Vec<usize>>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("which vCPUs may be used")?;
    let allowed = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false));
    Ok(cores_of(Path::new(SYS_CPU), allowed))
}

/// Like [`cores`], with the directory that tells the siblings and the vCPUs that are allowed. A vCPU
/// whose siblings are not told is a core of its own.
pub fn cores_of(sys: &Path, allowed: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cpu in allowed {
        let path = sys.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        let siblings = fs::read_to_string(path).ok().and_then(|text| text.parse::<CpuList>().ok());
        let first = siblings.and_then(|list| list.numbers().first().copied()).unwrap_or(cpu);
        cores.entry(first).or_default().push(cpu);
    }
    let mut cores: Vec<_> = cores.into_values().collect();
    cores.sort_by_key(|core| core[0]);
    cores
}

/// What the kernel cuts a socket's buffers to, in bytes, for whoever may not exceed it; `None` where it
/// does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferLimits {
    /// net.core.rmem_max.
    pub receive: Option<u64>,
    /// net.core.wmem_max.
    pub send: Option<u64>,
}

impl BufferLimits {
    /// Of this host.
    pub fn read() -> Self {
        let limit = |name: &str| {
            fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok()
        };
        Self { receive: limit("rmem_max"), send: limit("wmem_max") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(siblings: &[(usize, &str)]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        for (cpu, list) in siblings {
            let directory = sys.path().join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("thread_siblings_list"), format!("{list}\n")).unwrap();
        }
        sys
    }

    #[test]
    fn siblings_are_put_together() {
        let sys = host(&[(0, "0,4"), (4, "0,4"), (1, "1,5"), (5, "1,5")]);
        assert_eq!(cores_of(sys.path(), [0, 1, 4, 5].into_iter()), [vec![0, 4], vec![1, 5]]);
        let sys = host(&[(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")]);
        assert_eq!(cores_of(sys.path(), 0..4), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn what_is_not_allowed_or_not_told_is_left_out() {
        let sys = host(&[(0, "0,4"), (4, "0,4")]);
        assert_eq!(cores_of(sys.path(), [4, 7].into_iter()), [vec![4], vec![7]]);
    }

    #[test]
    fn this_host_has_a_load_average_by_that_name() {
        assert!(facts().iter().any(|(name, _)| name == LOAD_AVERAGE), "{:?}", facts());
    }

    #[test]
    fn this_host_has_cores() {
        let cores = cores().unwrap();
        assert!(cores.iter().all(|core| !core.is_empty()) && !cores.is_empty(), "{cores:?}");
    }
}
