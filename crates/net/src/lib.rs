//! Batched UDP: datagrams between the kernel and a worker. It does not depend on BitTorrent, and
//! has the project's only `unsafe`. It is for Linux.
//!
//! # The contract of a backend
//!
//! A backend is one worker's whole network side, over any number of kernel sockets. It implements
//! [`Socket`]:
//!
//! 1. [`Socket::wait`] blocks until a datagram may be available, the [`Waker`] wakes it, or the
//!    timeout elapses; spurious returns are allowed. A wake-up before `wait` is not lost: the next
//!    `wait` returns at once.
//! 2. [`Socket::receive`] never blocks. It returns a batch that stays in the backend's memory: one
//!    region, and [`Slot`]s that point into it. An empty batch means that nothing is available.
//!    After a batch that is not empty there may be more; while there is, `wait` does not block.
//! 3. [`Socket::send`] takes replies and never blocks; it borrows their bytes until it returns.
//!    Each reply goes to the sender that its [`Return`] names, from the local address that the
//!    sender used. A reply that the kernel does not take is dropped and counted in [`Sent`].
//! 4. A [`Return`] is a token: it can be copied, is valid as long as the backend lives, and has no
//!    meaning for the backend of another worker.
//! 5. Nothing is allocated after construction.
//!
//! | module | contents |
//! |---|---|
//! | [`socket`] | the contract as types |
//! | [`bind`] | opens all sockets, and reports the effect of their options |
//! | [`adopt`] | sockets that another process has bound |
//! | [`regroup`] | the sockets of a group, for another number of workers |
//! | [`descriptors`] | descriptors passed from one process to another |
//! | [`notice`] | warnings about degraded options, each with its remedy |
//! | [`steering`] | which socket of a group receives a datagram (classic BPF) |
//! | [`filter`] | which datagrams the kernel drops before it queues them (classic BPF) |
//! | [`affinity`] | the vCPUs of the process, pinning a thread to one |
//! | [`connection_limits`] | which connections of a server stay open |
//! | [`clock`] | how wrong the wall clock may be |
//! | [`signal`] | the sender of a signal |
//! | [`name_service`] | names of users and hosts in a static program (glibc) |
//! | [`mio`] | the kernel's sockets as a backend: recvmmsg and sendmmsg |
//! | [`mio::drops`] | why the kernel dropped datagrams |
//! | [`memory`] | a network within the process: loss, delay and reordering from a seed |
//! | [`raw`] | datagrams from any source address, for load tests |

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]
#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]
#![warn(unsafe_op_in_unsafe_fn)]

pub mod adopt;
pub mod affinity;
pub mod bind;
mod bpf;
pub mod clock;
pub mod connection_limits;
mod counters;
pub mod descriptors;
pub mod filter;
pub mod memory;
pub mod mio;
mod name;
#[cfg(target_env = "gnu")]
pub mod name_service;
pub mod notice;
pub mod raw;
pub mod regroup;
pub mod signal;
pub mod socket;
pub mod steering;
mod sys;

pub use counters::untaken;
pub use notice::Notice;
pub use socket::{Cause, Drops, Received, Reply, Return, Sent, Slot, Socket, Waker};
