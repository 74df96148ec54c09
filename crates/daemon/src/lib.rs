//! The daemon `onrush`: starts the data path (`onrush_tracker`), supervises it, changes its rules
//! while it runs, and passes it on in an upgrade. The library exists for the binary and for tests.
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | the lists in force: their changes, blocks of sources, removal of swarms |
//! | [`certificates`] | the certificates of HTTPS in force: when they are looked at, and reported |
//! | [`certificate_files`] | reads them |
//! | [`cli`] | the command line of the daemon |
//! | [`host_check`] | whether the host has what a configuration names: users, addresses, files |
//! | [`start`] | from settings to a running tracker: user, sockets, state, workers |
//! | [`supervise`] | the state machine that decides while workers run: events to effects |
//! | [`serve`] | the main thread while workers run: waits, and carries effects out |
//! | [`effect`] | what the supervisor decides: actions on workers, files, threads and the log |
//! | [`notice`] | an entry of the log, and the limit on repeated ones |
//! | [`time`] | the time of an event on both clocks, as an argument of all decisions |
//! | [`upgrade`] | the handoff of sockets and peers to a successor |
//! | [`xdp`] | the XDP program: attached, renewed every second, and counted |
//! | [`overload`] | longer intervals, and the kernel's filter |
//! | [`state_files`] | snapshots, exports, the history and the interval commitment on disk |
//! | [`process`] | user, signals, logging, the service manager, exit statuses |

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the daemon is for Linux: capabilities, steering and signals are Linux's (the crates proto \
     and swarm are portable)"
);

pub mod access;
pub mod certificate_files;
pub mod certificates;
pub mod cli;
pub mod effect;
pub mod host_check;
pub mod notice;
pub mod overload;
pub mod process;
pub mod serve;
pub mod start;
pub mod state_files;
pub mod supervise;
pub mod time;
pub mod upgrade;
pub mod xdp;

pub use start::{StartError, Tracker};
