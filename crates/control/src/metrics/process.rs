//! What the kernel says of this process. But for the limit of its memory only of `/proc/self`, which is there under
//! every sandbox that a unit can ask for.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use onrush_config::Host;

/// Memory and CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// Bytes in use (RSS).
    pub resident: u64,
    /// Bytes of address space.
    pub virtual_size: u64,
    /// Seconds of all threads, in user space and in the kernel.
    pub cpu_seconds: f64,
    /// File descriptors that are open.
    pub open_files: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of memory that it may take: the host's, or less by its cgroup. `None` where the kernel's files are
    /// hidden from it.
    pub memory_limit: Option<u64>,
}

impl Process {
    /// This process, now; zeros where nothing can be read.
    pub fn read() -> Self {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let one = |var| sysconf(var).ok().flatten().unwrap_or(0);
        let page = one(SysconfVar::PAGE_SIZE) as u64;
        let ticks = (one(SysconfVar::CLK_TCK) as f64).max(1.0);
        let (virtual_size, resident) = pages(&read("statm"));
        let (cpu_ticks, threads) = ticks_and_threads(&read("stat"));
        Self {
            resident: resident * page,
            virtual_size: virtual_size * page,
            cpu_seconds: cpu_ticks as f64 / ticks,
            open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
            threads,
            memory_limit: Host::here(Vec::new()).memory,
        }
    }
}

/// The first two numbers of statm.
fn pages(statm: &str) -> (u64, u64) {
    let mut numbers = statm.split_whitespace().map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// utime and stime together, and the threads, of stat: fields 14, 15 and 20, where the second is a name that may
/// hold anything.
fn ticks_and_threads(stat: &str) -> (u64, u64) {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        let text = behind_name.split_whitespace().nth(number - 3);
        text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    (field(14) + field(15), field(20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 1 0 0 0 700 50 0 0 20 0 6 0 12345 999 8";
        assert_eq!(ticks_and_threads(stat), (750, 6));
        assert_eq!(pages("1000 250 30 1 0 100 0"), (1000, 250));
        assert_eq!((pages(""), ticks_and_threads("")), ((0, 0), (0, 0)));
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let here = Process::read();
        assert!(here.resident > 100_000 && here.virtual_size >= here.resident, "{here:?}");
        assert!(here.threads >= 1 && here.open_files >= 3, "{here:?}");
    }
}
