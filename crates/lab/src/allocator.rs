//! The allocator that an example is built with: the feature `jemalloc` or `mimalloc`, or the
//! system's.

use std::fmt::Display;

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
    resident_of("self")
}

/// Bytes of a process that are in memory (proc(5), /proc/pid/statm: pages).
pub fn resident_of(process: impl Display) -> usize {
    let statm =
        std::fs::read_to_string(format!("/proc/{process}/statm")).expect("the process exists");
    let pages: usize = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a number");
    pages * 4096
}
