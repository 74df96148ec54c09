//! Batched UDP, and TCP for servers: datagrams and streams between the kernel and a worker. It does
//! not depend on BitTorrent, and has the project's only `unsafe`. It is for Linux.
//!
//! # The contract of a backend of datagrams
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
//! # The contract of a backend of streams
//!
//! A backend is one worker's listeners and accepted connections. It implements
//! [`Streams`](stream::Streams), edge-triggered:
//!
//! 1. [`wait`](stream::Streams::wait) blocks until something is ready, the waker wakes it, or the
//!    timeout elapses; spurious returns are allowed. A wake-up before `wait` is not lost. Events
//!    that were not taken before a `wait` are lost.
//! 2. [`ready`](stream::Streams::ready) returns each event of the last wait once. A listener is
//!    reported when it has a connection: the first one, and the next one after `accept` returned
//!    `None`. A stream is reported when it is readable or writable: once after `watch`, and again
//!    after a read or a write returned `WouldBlock`. Further events are allowed.
//! 3. Input and its end make a stream readable, and the event names the end, also where input is
//!    left before it. A failed connection makes it readable and writable.
//! 4. [`accept`](stream::Streams::accept) never blocks. It skips connections that failed while they
//!    waited. After an error no event reports the connections that wait: the caller tries later.
//! 5. Reads and writes never block, and may process any part of the bytes: only `WouldBlock` says
//!    that no more is possible now. A read of 0 bytes is the end of the input.
//! 6. After [`finish`](stream::Stream::finish) the client reads what was written, then the end. The
//!    stream can still be read.
//! 7. Dropping a stream closes it. If it has unread input, or more arrives, the connection is
//!    reset, and the client may lose what it has not read.
//! 8. After a stream is dropped, no later wait reports its key. Events of the last wait may: a key
//!    that is used again for another stream needs a part that differs.
//! 9. The kernel's backend allocates nothing after construction.
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
//! | [`stream`] | the contract of streams as types |
//! | [`stream::listen`] | TCP listeners: bound, or of another process, for all workers |
//! | [`stream::connect`] | connections to a server, for load tests |
//! | [`stream::mio`] | the kernel's connections as a backend: accept4 and epoll |
//! | [`stream::memory`] | connections within the process: partial transfers, late events |
//! | [`xdp`] | XDP programs, and queues of network devices as a backend: AF_XDP |
//! | [`raw`] | datagrams from any source address, for load tests |

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]
#![cfg_attr(not(test), warn(clippy::disallowed_types, clippy::print_stdout))]
#![warn(unsafe_op_in_unsafe_fn)]

pub mod adopt;
pub mod affinity;
pub mod bind;
mod bpf;
mod checksum;
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
pub mod stream;
mod sys;
pub mod xdp;

pub use counters::untaken;
pub use notice::Notice;
pub use socket::{
    Cause, Drops, QueueId, QueueReport, Received, Reply, Return, Sent, Slot, Socket, Waker,
};
