//! CPU time of processes and threads, from /proc (proc_pid_stat(5)).

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::ops::Sub;
use std::time::Instant;

use procfs_core::FromRead as _;
use procfs_core::process::Stat;
use serde::{Deserialize, Serialize};

/// USER_HZ: the kernel reports times to user space in hundredths of a second on every architecture
/// that Rust supports. It derives them from nanoseconds, so differences do not lose time.
const TICKS: f64 = 100.0;

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Seconds in user space.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
}

impl Cpu {
    /// CPU time of the entry of /proc with this name: a process id, `self`, or `thread-self` for
    /// the calling thread.
    ///
    /// # Errors
    /// When there is no such entry, or no /proc.
    pub fn of(process: impl Display) -> io::Result<Self> {
        let stat = Stat::from_file(format!("/proc/{process}/stat")).map_err(io::Error::other)?;
        Ok(Self { user: stat.utime as f64 / TICKS, system: stat.stime as f64 / TICKS })
    }

    /// CPU time of several processes together.
    ///
    /// # Errors
    /// When one of them does not exist, or no /proc.
    pub fn of_all(pids: &[u32]) -> io::Result<Self> {
        pids.iter().try_fold(Self::default(), |sum, pid| {
            let Self { user, system } = Self::of(pid)?;
            Ok(Self { user: sum.user + user, system: sum.system + system })
        })
    }

    /// CPU time of each thread of a process, by number. A thread that has ended is missing.
    ///
    /// # Errors
    /// When the process does not exist, or no /proc.
    pub fn of_threads(pid: u32) -> io::Result<HashMap<u32, Self>> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
        let threads = tasks.flatten().filter_map(|task| {
            let id = task.file_name().to_str()?.parse().ok()?;
            Some((id, Self::of(format_args!("{pid}/task/{id}")).ok()?))
        });
        Ok(threads.collect())
    }

    /// User and system time together.
    pub fn total(&self) -> f64 {
        self.user + self.system
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// The share of a vCPU that is used from one reading of CPU time to the next.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    at: Instant,
    cpu: Cpu,
}

impl Meter {
    /// A meter with its first reading, made now.
    pub fn new(cpu: Cpu) -> Self {
        Self { at: Instant::now(), cpu }
    }

    /// Percent of one vCPU since the last reading; `cpu` was read now.
    pub fn percent(&mut self, cpu: Cpu) -> f64 {
        let now = Self::new(cpu);
        let passed = (now.at - self.at).as_secs_f64().max(1e-9);
        let time = (now.cpu - self.cpu).total();
        *self = now;
        time / passed * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_grows_with_work() {
        let before = Cpu::of("thread-self").unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while (Cpu::of("thread-self").unwrap() - before).total() < 0.05 {
            sum = (0..100_000u64).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
            assert!(start.elapsed().as_secs() < 600, "{sum}");
        }
        let process = Cpu::of("self").unwrap();
        assert!(process.total() + 0.05 >= Cpu::of("thread-self").unwrap().total());
        assert!(Cpu::of(std::process::id()).is_ok());
        let threads = Cpu::of_threads(std::process::id()).unwrap();
        let busiest = threads.values().map(Cpu::total).fold(0.0, f64::max);
        assert!(busiest >= 0.05 && busiest <= Cpu::of("self").unwrap().total() + 0.05, "{busiest}");
        assert!(Cpu::of_threads(u32::MAX).is_err());
        assert!(Cpu::of(u32::MAX).is_err());
    }
}
