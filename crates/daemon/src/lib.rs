//! The daemon `onrush`: starts the data path (`onrush_tracker`), supervises it, changes its rules while it runs,
//! and hands it over in an upgrade. The library exists for the binary beside it and for tests.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | the command line: flags, and the subcommands `ctl`, `top` and `doctor` |
//! | [`start`] | from settings to a running tracker: user, sockets, state, workers |
//! | [`supervise`] | the main thread once the workers run |
//! | [`reload`] | the configuration, read again |
//! | [`purge`] | removal of swarms that the access list no longer permits |
//! | [`overload`], [`steering_backoff`] | longer intervals and shedding under overload; steering away from a worker |
//! | [`snapshots`], [`exports`], [`totals_log`] | when peers, the full scrape and totals are written |
//! | [`upgrade`] | a new process takes over sockets and peers |
//! | [`process`] | user, signals, logging, the service manager, exit statuses |

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the daemon is for Linux: capabilities, steering and signals are Linux's (the crates proto, \
     net and swarm are portable)"
);

pub mod cli;
pub mod exports;
pub mod overload;
pub mod process;
pub mod purge;
pub mod reload;
pub mod snapshots;
pub mod start;
pub mod steering_backoff;
pub mod supervise;
pub mod totals_log;
pub mod upgrade;

pub use start::{StartError, Tracker};
