//! Which socket of a group receives a datagram: a classic BPF program on the SO_REUSEPORT group
//! picks the socket by the datagram's content.
//!
//! The program reads a *key*, five big-endian words at a fixed offset of the payload, and computes
//! `sum(word[i] * multiplier[i]) mod 2^32`, then `(sum >> 16) * buckets >> 16`: the number of the
//! socket, in the order in which the group's sockets were bound. For a datagram too short to have a
//! key, or whose bucket is [withdrawn](Steering::withdraw), it returns a number without a socket,
//! and the kernel falls back to its own hash of the addresses.
//!
//! Steering is a hint, never a guarantee: a burst cut by UDP_SEGMENT is steered by its first packet
//! on loopback.
//!
//! Sources: `Documentation/networking/filter.rst` (classic BPF), socket(7) on
//! SO_ATTACH_REUSEPORT_CBPF. That payload offset 0 is the first byte behind the UDP header was
//! measured for both families; the tests verify it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use libc::sock_filter;
use nix::errno::Errno;

use crate::bind::{BoundSocket, Group};
use crate::bpf::{jump, statement};
use crate::notice::Notice;
use crate::sys;

/// Words of a key.
const WORDS: usize = 5;

/// A verdict without a socket.
const NO_SOCKET: u32 = u32::MAX;

/// The function from datagrams to sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The offset of the key in the payload, bytes.
    pub offset: u32,
    /// Multipliers of its words.
    pub multipliers: [u32; WORDS],
    /// Shorter payloads are left to the kernel's own hash. At least `offset + 20`.
    pub min_len: u32,
    /// The number of sockets to spread over: at least 1, at most the group's.
    pub buckets: u16,
}

impl Function {
    /// The result of the kernel's program: the number of the socket for a payload, or `None` where
    /// the kernel's own hash decides.
    pub fn bucket(&self, payload: &[u8]) -> Option<u16> {
        if payload.len() < self.min_len as usize {
            return None;
        }
        let key = &payload[self.offset as usize..];
        let (words, _) = key.as_chunks::<4>();
        let sum = words.iter().zip(self.multipliers).fold(0u32, |sum, (word, multiplier)| {
            sum.wrapping_add(u32::from_be_bytes(*word).wrapping_mul(multiplier))
        });
        Some((((sum >> 16) * u32::from(self.buckets)) >> 16) as u16)
    }
}

/// The steered groups, one per address. Keeps a descriptor of each group; dropping it leaves the
/// program attached.
#[derive(Debug)]
pub struct Steering {
    function: Function,
    withdrawn: Vec<u16>,
    groups: Vec<BoundSocket>,
}

impl Steering {
    /// Steers every address of `group`. All of its sockets must still be bound, in their order. An
    /// address that cannot be steered is served without steering and gets a [`Notice`].
    ///
    /// # Panics
    /// When `function` has no buckets or more than there are workers, or its key exceeds `min_len`.
    pub fn attach(function: Function, group: &Group) -> (Self, Vec<Notice>) {
        assert!(function.buckets > 0, "a function has at least one bucket");
        // Each address has at least as many sockets as workers.
        assert!(usize::from(function.buckets) <= group.workers.len(), "a bucket is a socket");
        assert!(function.min_len >= function.offset + 4 * WORDS as u32, "the key must be inside");
        let mut steering = Self { function, withdrawn: Vec::new(), groups: Vec::new() };
        let mut notices = Vec::new();
        // The program belongs to the group, through whichever socket it is attached.
        for &address in &group.addresses {
            let Some(socket) = group.sockets_at(address).first().copied() else { continue };
            let attached = attach_program(socket, &function, &[]).and_then(|()| socket.try_clone());
            match attached {
                Ok(socket) => steering.groups.push(socket),
                Err(cause) => notices.push(format!(
                    "datagrams to {} cannot be steered to the worker of their swarm ({cause}); the \
                     kernel spreads them by address and workers forward them: correct, but slower",
                    socket.address()
                )),
            }
        }
        (steering, notices)
    }

    /// The steered addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups.iter().map(BoundSocket::address)
    }

    /// The withdrawn buckets.
    pub fn withdrawn(&self) -> &[u16] {
        &self.withdrawn
    }

    /// Leaves the datagrams of `bucket` to the kernel's own hash, which spreads them over all
    /// sockets: for a worker whose queue stays over its limit.
    ///
    /// # Errors
    /// When the kernel refuses the changed program, as one with some 2,000 withdrawn buckets; the
    /// old one stays.
    pub fn withdraw(&mut self, bucket: u16) -> io::Result<()> {
        if self.withdrawn.contains(&bucket) || bucket >= self.function.buckets {
            return Ok(());
        }
        self.change(|withdrawn| withdrawn.push(bucket))
    }

    /// Steers `bucket` again.
    ///
    /// # Errors
    /// When the kernel refuses the changed program; the old one stays.
    pub fn restore(&mut self, bucket: u16) -> io::Result<()> {
        match self.withdrawn.contains(&bucket) {
            true => self.change(|withdrawn| withdrawn.retain(|other| *other != bucket)),
            false => Ok(()),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u16>)) -> io::Result<()> {
        let former = self.withdrawn.clone();
        change(&mut self.withdrawn);
        self.replace().inspect_err(|_| {
            self.withdrawn = former;
            // Groups that already have the new program get the old one back, if the kernel permits.
            let _ = self.replace();
        })
    }

    /// Replaces the program of each group; the kernel swaps it under traffic.
    fn replace(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|s| attach_program(s, &self.function, &self.withdrawn))
    }
}

/// Removes the steering program from every address of `group`, whose sockets another process may
/// have steered. Without a program nothing changes.
///
/// # Errors
/// When the kernel cannot detach a program (before Linux 5.3).
pub fn detach(group: &Group) -> io::Result<()> {
    let sockets =
        group.addresses.iter().filter_map(|&address| group.sockets_at(address).first().copied());
    // Every socket is detached, whatever the result on the others.
    sockets.map(detach_program).fold(Ok(()), Result::and)
}

/// Attaches the program to the group that `socket` is in.
fn attach_program(socket: &BoundSocket, function: &Function, withdrawn: &[u16]) -> io::Result<()> {
    let program = program(function, withdrawn);
    sys::attach_program(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)?;
    Ok(())
}

/// Detaches the program of the group that `socket` is in.
fn detach_program(socket: &BoundSocket) -> io::Result<()> {
    match sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, &0) {
        // There is no program, or the socket is in no group.
        Err(Errno::ENOENT | Errno::EINVAL) => Ok(()),
        other => Ok(other?),
    }
}

/// The instructions. A load past the packet's end ends the program with verdict 0, so the
/// length test comes first.
fn program(function: &Function, withdrawn: &[u16]) -> Vec<sock_filter> {
    use libc::{BPF_ADD, BPF_JEQ, BPF_JGE, BPF_LEN, BPF_MUL, BPF_RSH, BPF_W, BPF_X};
    let mut program = vec![
        statement(libc::BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGE, function.min_len, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, NO_SOCKET),
    ];
    for (i, &multiplier) in function.multipliers.iter().enumerate() {
        let place = function.offset + 4 * i as u32;
        program.push(statement(libc::BPF_LD | BPF_W | libc::BPF_ABS, place));
        program.push(statement(libc::BPF_ALU | BPF_MUL | libc::BPF_K, multiplier));
        if i > 0 {
            program.push(statement(libc::BPF_LDX | BPF_W | libc::BPF_MEM, 0));
            program.push(statement(libc::BPF_ALU | BPF_ADD | BPF_X, 0));
        }
        if i < WORDS - 1 {
            program.push(statement(libc::BPF_ST, 0));
        }
    }
    program.push(statement(libc::BPF_ALU | BPF_RSH | libc::BPF_K, 16));
    let buckets = function.buckets.into();
    program.push(statement(libc::BPF_ALU | BPF_MUL | libc::BPF_K, buckets));
    program.push(statement(libc::BPF_ALU | BPF_RSH | libc::BPF_K, 16));
    for &bucket in withdrawn {
        program.push(jump(BPF_JEQ, bucket.into(), 0, 1));
        program.push(statement(libc::BPF_RET | libc::BPF_K, NO_SOCKET));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_A, 0));
    program
}
