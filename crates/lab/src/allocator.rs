//! The allocator that a program is built with: jemalloc by the feature `jemalloc`, else the
//! system's.

use std::fs;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Its name.
pub const NAME: &str = if cfg!(feature = "jemalloc") { "jemalloc" } else { "system" };

/// Bytes of this process that are in memory. /proc/self/statm would be cheaper to read, but its
/// figures come from counters per CPU that are not exact (proc_pid_statm(5)).
///
/// # Panics
/// Without /proc.
pub fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has this file");
    let figure = text.lines().find_map(|line| line.strip_prefix("Rss:")?.strip_suffix("kB"));
    let kib: usize = figure.and_then(|kib| kib.trim().parse().ok()).expect("a line Rss");
    kib * 1024
}
