//! Batched UDP: bytes to the kernel and back. Knows no BitTorrent; holds the project's only
//! `unsafe`.
//!
//! # The contract of a backend
//!
//! A backend is one worker's whole side of the network, however many kernel sockets that is. It
//! implements [`Socket`]:
//!
//! 1. [`Socket::wait`] blocks until a datagram may be there, the [`Waker`] was rung, or the
//!    timeout has passed; it may return early for no reason. A ring before `wait` is not lost: it
//!    makes the next `wait` return at once.
//! 2. [`Socket::receive`] never blocks. It hands out a batch that stays in the backend's memory:
//!    one region, and [`Slot`]s that point into it. An empty batch means that nothing is waiting;
//!    a batch that is not empty means that there may be more, and while
//!    there is, `wait` does not block.
//! 3. [`Socket::send`] takes replies and never blocks: it borrows their bytes until it
//!    returns. Each goes to where its [`Return`] came from, from the address that was asked. What
//!    the kernel does not take is dropped and counted in [`Sent`].
//! 4. A [`Return`] is a token: copied around freely, valid for as long as the backend lives, and
//!    meaningless to another worker's backend.
//! 5. Nothing is allocated after construction.
//!
//! | room | what is in it |
//! |---|---|
//! | [`socket`] | the contract as types |
//! | [`bind`] | the one place that opens sockets, and what the kernel made of their options |
//! | [`adopt`] | sockets that somebody else has bound |
//! | [`handover`] | descriptors from one process to another |
//! | [`notice`] | what went less well than asked for, with its remedy |
//! | [`steering`] | which socket of a group gets a datagram (classic BPF) |
//! | [`affinity`] | which vCPUs there are, pinning to one |
//! | [`counters`] | what the kernel dropped |
//! | [`mio`] | the portable backend; recvmmsg and sendmmsg on Linux |
//! | [`memory`] | a network inside the process: loss, delay and reordering from a seed |
#![warn(unsafe_op_in_unsafe_fn)]

pub mod adopt;
pub mod affinity;
pub mod bind;
pub mod counters;
pub mod handover;
pub mod memory;
pub mod mio;
mod name;
pub mod notice;
pub mod regroup;
pub mod socket;
pub mod steering;
mod sys;

pub use notice::Notice;
pub use socket::{Received, Reply, Return, Sent, Slot, Socket, Waker};
