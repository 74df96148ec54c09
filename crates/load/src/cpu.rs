//! Processor time of the tracker and of the load tester, from /proc (proc_pid_stat(5)).

use std::fs;
use std::io;
use std::ops::Sub;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The kernel tells times to user space in hundredths of a second (USER_HZ) on every architecture
/// that matters; it computes them from nanoseconds, so nothing is lost between two readings.
const TICKS: f64 = 100.0;

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpu {
    /// Seconds in user space.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
}

impl Cpu {
    /// Of a process with all its threads.
    ///
    /// # Errors
    /// When there is no such process, or no /proc.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::read(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// Of this process.
    ///
    /// # Errors
    /// When there is no /proc.
    pub fn of_self() -> io::Result<Self> {
        Self::read(Path::new("/proc/self/stat"))
    }

    /// Of the calling thread.
    ///
    /// # Errors
    /// When there is no /proc.
    pub fn of_thread() -> io::Result<Self> {
        Self::read(Path::new("/proc/thread-self/stat"))
    }

    /// User and system time together, in seconds.
    pub fn total(&self) -> f64 {
        self.user + self.system
    }

    fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        parse(&text).ok_or_else(|| io::Error::other(format!("{}: unexpected text", path.display())))
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// Fields 14 and 15. The second field, the command's name in brackets, may contain anything.
fn parse(stat: &str) -> Option<Cpu> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / TICKS);
    Some(Cpu { user: seconds()?, system: seconds()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 125 0 0 20 0 1 0 5";
        assert_eq!(parse(stat), Some(Cpu { user: 2.5, system: 1.25 }));
        assert_eq!(parse("42 (x) S 1 2"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_time_grows_by_work() {
        let before = Cpu::of_thread().unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while (Cpu::of_thread().unwrap() - before).total() < 0.05 {
            sum = (0..100_000u64).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
            assert!(start.elapsed().as_secs() < 20, "{sum}");
        }
        let whole = Cpu::of_self().unwrap();
        assert!(whole.total() + 0.05 >= Cpu::of_thread().unwrap().total());
        assert!(Cpu::of_process(std::process::id()).is_ok());
        assert!(Cpu::of_process(u32::MAX).is_err());
    }
}
