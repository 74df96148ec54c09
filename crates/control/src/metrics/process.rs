//! Memory, CPU time and descriptors of this process. Everything but the memory limit comes from
//! `/proc/self`, which is readable in every sandbox of systemd.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};
use procfs_core::FromRead;
use procfs_core::process::{Stat, StatM};

use onrush_config::host::Host;

/// State of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Resident set size in bytes.
    pub resident: u64,
    /// Size of the address space in bytes.
    pub virtual_size: u64,
    /// CPU time of all threads in seconds, in user space and in the kernel.
    pub cpu_seconds: f64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Threads.
    pub threads: u64,
    /// Memory limit in bytes, of the host or of the cgroup, whichever is smaller. `None` where it
    /// cannot be read.
    pub memory_limit: Option<u64>,
}

impl Process {
    /// Reads the state of this process. A value that cannot be read is 0.
    pub fn read() -> Self {
        let sysconf = |var| sysconf(var).ok().flatten().unwrap_or(0).max(1);
        let page = sysconf(SysconfVar::PAGE_SIZE) as u64;
        let ticks_per_second = sysconf(SysconfVar::CLK_TCK) as f64;
        let memory = StatM::from_file("/proc/self/statm").ok();
        let stat = Stat::from_file("/proc/self/stat").ok();
        let pages = |pages: fn(&StatM) -> u64| memory.as_ref().map_or(0, pages) * page;
        let ticks = stat.as_ref().map_or(0, |stat| stat.utime + stat.stime);
        Self {
            resident: pages(|memory| memory.resident),
            virtual_size: pages(|memory| memory.size),
            cpu_seconds: ticks as f64 / ticks_per_second,
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            threads: stat.map_or(0, |stat| stat.num_threads.max(0) as u64),
            memory_limit: Host::here(Vec::new()).memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_files() {
        let process = Process::read();
        assert!(process.resident > 100_000, "{process:?}");
        assert!(process.virtual_size >= process.resident, "{process:?}");
        assert!(process.threads >= 1 && process.open_files >= 3, "{process:?}");
    }
}
