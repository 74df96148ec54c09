//! Where the daemon's memory comes from, picked when it is built: jemalloc by default (the
//! feature `jemalloc`), else the system's allocator. Why, with figures:
//! docs/benchmarks/allocators.md.

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
