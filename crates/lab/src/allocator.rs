//! The allocator that an example is built with: the feature `jemalloc` or `mimalloc`, or the
//! system's.

use std::fmt::Display;

use anyhow::Context;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Its name.
pub const NAME: &str = if cfg!(feature = "jemalloc") {
    "jemalloc"
} else if cfg!(feature = "mimalloc") {
    "mimalloc"
} else {
    "system"
};

/// Bytes of this process that are in memory.
pub fn resident() -> usize {
    resident_of("self").expect("a process has its own figures")
}

/// Bytes of a process that are in memory. /proc/pid/statm would be cheaper to read, but its figures
/// come from counters per CPU that are not exact (proc_pid_statm(5)).
pub fn resident_of(process: impl Display) -> anyhow::Result<usize> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find(|line| line.starts_with("Rss:")).context("no line Rss")?;
    let kib: usize = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024)
}
