//! The contract of a backend as types; the rules are in the [crate] documentation.

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::errno::Errno;

use crate::filter::Filter;
use crate::name;

/// One worker's network side.
pub trait Socket {
    /// Ends this socket's [`wait`](Socket::wait) from another thread.
    type Waker: Waker;

    /// A handle that wakes this socket.
    fn waker(&self) -> Self::Waker;

    /// Blocks until a datagram may be available, the waker wakes this socket, or `timeout` elapses.
    ///
    /// # Errors
    /// Only what makes the socket unusable; an interrupted call is a spurious return.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Blocks until the waker wakes this socket or `timeout` elapses, even if datagrams are
    /// available: for a worker that no longer receives. The default returns as soon as a datagram
    /// is available.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        self.wait(timeout)
    }

    /// From now on receives only from the kernel sockets at addresses that `keep` accepts. A
    /// backend without kernel sockets ignores this.
    fn retain_addresses(&mut self, keep: &dyn Fn(SocketAddr) -> bool) {
        let _ = keep;
    }

    /// Ends the last batch, as another process may receive here from now on, until the next
    /// [`receive`](Self::receive). Call when every reply is sent. A backend that shares no memory
    /// with the kernel ignores this.
    fn release(&mut self) {}

    /// Receives nothing more from the queues in `taken`, which another process has, and from others
    /// no more than what has arrived. A backend without queues ignores this.
    fn leave_queues(&mut self, taken: &[QueueId]) {
        let _ = taken;
    }

    /// Receives at most `limit` datagrams, and at most the backend's own batch size.
    ///
    /// # Errors
    /// Only what makes the socket unusable. Errors that the network reports (ICMP) do not.
    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>>;

    /// Sends replies, in order for each destination; the backend may group them.
    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent;

    /// From now on the kernel queues only the datagrams that pass `filter`; all of them if `None`,
    /// which also removes the filter of another process. A system call per kernel socket.
    ///
    /// # Errors
    /// When the system has no such filters; the default has none.
    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        if filter.is_none() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
    }

    /// Datagrams that the kernel dropped since the socket was opened, by reason. A backend that has
    /// to find out the reason counts a drop once it is known, seconds later; the reason of drops
    /// before the first call may stay unknown, and is then a full buffer. Costs a system call per
    /// kernel socket: call it once a second, not per batch.
    fn dropped(&self) -> Drops;

    /// The sizes of the receive and send buffers, summed over the kernel sockets, as the kernel
    /// counts them: twice the requested sizes (socket(7)). Zeros for a backend without buffers of
    /// the kernel, which is the default.
    fn buffers(&self) -> Buffers {
        Buffers::default()
    }

    /// Calls `each` with the state of each AF_XDP queue, always in the same order. The default has
    /// none.
    fn report_queues(&mut self, each: &mut dyn FnMut(QueueReport<'_>)) {
        let _ = each;
    }
}

/// The index of a network interface, and the number of one of its queues.
pub type QueueId = (u32, u32);

/// Socket buffer sizes in bytes; 0 requests the system's default. The kernel also charges
/// its own overhead to the buffer (about 800 bytes for a small datagram), and doubles the requested
/// size to make up for it (socket(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// SO_RCVBUF.
    pub receive: usize,
    /// SO_SNDBUF.
    pub send: usize,
}

/// Datagrams that the kernel dropped before they could be received, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// A receive buffer was full, or the memory for all of them.
    pub full_buffer: u64,
    /// The UDP checksum was wrong, where it is verified at the socket: Linux verifies that of a
    /// datagram of at most 76 bytes before.
    pub checksum: u64,
    /// The [filter](Socket::set_filter) did not accept it.
    pub filter: u64,
}

impl Drops {
    /// Drops for all reasons.
    pub fn all(&self) -> u64 {
        self.full_buffer + self.checksum + self.filter
    }
}

/// What a queue has counted since the backend has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Datagrams received.
    pub received: u64,
    /// Replies that were added to its transmit ring.
    pub sent: u64,
    /// Replies for which it had no room.
    pub blocked: u64,
    /// Frames that the kernel dropped: there was no frame to receive into, or the receive ring was
    /// full.
    pub full: u64,
    /// Frames dropped here: a wrong UDP checksum.
    pub checksum: u64,
    /// Frames dropped here: of another form than the program redirects.
    pub invalid: u64,
    /// Frames dropped here: to an address of no UDP socket of this worker.
    pub unserved: u64,
    /// Frames dropped here: the [filter](Socket::set_filter) did not accept the datagram.
    pub filter: u64,
    /// How often the queue has failed and was closed.
    pub failures: u64,
}

/// The state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueReport<'a> {
    /// The name of the interface.
    pub interface: &'a str,
    /// The number of the queue.
    pub queue: u32,
    /// Whether it is open.
    pub is_open: bool,
    /// What it has counted.
    pub counts: QueueCounts,
    /// Its frames; 0 while it is closed, as are the following.
    pub frames: u32,
    /// Those that are free.
    pub free: u32,
    /// Those that were received and are in no batch yet.
    pub waiting: u32,
    /// Those that are lost: always 0.
    pub missing: i64,
}

/// Wakes a waiting [`Socket`], or another sleeping thread.
pub trait Waker: Send + Sync + 'static {
    /// Makes the current or the next sleep return ([`Socket::wait`] of a socket): a wake before the
    /// sleep is not lost. Cheap when a wake-up is already pending.
    fn wake(&self);
}

impl<F: Fn() + Send + Sync + 'static> Waker for F {
    fn wake(&self) {
        self();
    }
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'b> {
    /// The datagram's payload.
    pub bytes: &'b [u8],
    /// The destination, and the socket and local address to send from.
    pub to: &'b Return,
}

/// A batch of datagrams in a backend's memory.
///
/// It holds no reference to the whole region: of memory that is shared with the kernel, only the
/// bytes of the batch's own slots stay unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    base: *const u8,
    /// Bytes of the region.
    len: usize,
    slots: &'a [Slot],
    region: PhantomData<&'a [u8]>,
}

/// The place of a datagram in the batch's region, and its sender.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// First byte in the region.
    pub offset: u32,
    /// Bytes received. A datagram longer than the backend's slots is truncated, not refused.
    pub len: u32,
    /// The sender as the kernel reported it (an IPv4-mapped address stays one).
    pub source: SocketAddr,
    /// The token for replies.
    pub reply_to: Return,
}

impl<'a> Received<'a> {
    /// For backends: a batch of `slots` that point into `region`.
    pub fn new(region: &'a [u8], slots: &'a [Slot]) -> Self {
        Self { base: region.as_ptr(), len: region.len(), slots, region: PhantomData }
    }

    /// For a backend whose region is shared with the kernel.
    ///
    /// # Safety
    /// `len` bytes at `base` can be read for `'a`, and nothing writes to those of a slot meanwhile.
    pub(crate) unsafe fn shared(base: *const u8, len: usize, slots: &'a [Slot]) -> Self {
        Self { base, len, slots, region: PhantomData }
    }

    /// The number of datagrams in the batch.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes and returns the first `count` datagrams, or all if there are fewer.
    pub fn take_first(&mut self, count: usize) -> Self {
        let (first, rest) = self.slots.split_at(count.min(self.slots.len()));
        self.slots = rest;
        Self { slots: first, ..*self }
    }

    /// The sender of a datagram of the batch, by its index.
    ///
    /// # Panics
    /// If there are no more than `index` datagrams.
    pub fn source(&self, index: usize) -> &'a SocketAddr {
        &self.slots[index].source
    }

    /// Each datagram with its bytes.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a Slot)> + use<'a> {
        let (base, region_len) = (self.base, self.len);
        self.slots.iter().map(move |slot| {
            let (start, len) = (slot.offset as usize, slot.len as usize);
            assert!(start + len <= region_len, "a slot is within the region");
            // SAFETY: the bytes are within the region, which lives for 'a; nothing writes to those
            // of a slot meanwhile.
            (unsafe { std::slice::from_raw_parts(base.add(start), len) }, slot)
        })
    }
}

/// The prefix of IPv4-mapped IPv6 addresses (RFC 4291, section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

/// The token for replies to a datagram: the peer's address in the kernel's own form, the local
/// address that the datagram was sent to (only on wildcard binds), the backend's kernel socket, and
/// 16 bytes of the backend's own. Opaque outside of this crate except for its methods.
///
/// A token is one cache line: batches store one for each request, and a reply reads it once.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    /// A `sockaddr_in` or `sockaddr_in6` byte for byte, so that no address is converted between
    /// receiving and sending.
    pub(crate) name: [u8; 28],
    /// The local IPv4 (first 4 bytes) or IPv6 address that the datagram was sent to; undefined
    /// unless `has_local`.
    pub(crate) local: [u8; 16],
    /// Length of `name`: 16 for IPv4, 28 for IPv6.
    pub(crate) name_len: u8,
    /// Whether the reply sets `local` as its source address.
    pub(crate) has_local: bool,
    /// Index of the kernel socket within the backend.
    pub(crate) socket: u16,
    /// The backend's own bytes, which no other code reads: zeros, or what the AF_XDP backend needs
    /// to write the Ethernet frame of a reply.
    pub(crate) backend: [u8; 16],
}

// One cache line per stored token, whatever a backend keeps in it.
const _: () = assert!(size_of::<Return>() == 64);

impl Return {
    /// A token for a datagram that is not a reply: to `peer`, from the backend's kernel socket
    /// number `socket` (in the order in which the backend received them).
    pub fn to(peer: SocketAddr, socket: u16) -> Self {
        let (name, name_len) = name::encode(peer);
        Self { name, local: [0; 16], name_len, has_local: false, socket, backend: [0; 16] }
    }

    /// The same, sent from the local address `ip` of the peer's family: for a kernel socket that is
    /// bound to all addresses.
    #[must_use]
    pub fn from_local(self, ip: IpAddr) -> Self {
        Self { local: name::encode_ip(ip), has_local: true, ..self }
    }

    /// The number of the backend's kernel socket, in the order in which the backend received them.
    pub fn socket(&self) -> u16 {
        self.socket
    }

    /// Whether the peer uses IPv4, also when it does so through an IPv6 socket, where its address
    /// is IPv4-mapped (RFC 4291, section 2.5.5.2).
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.name_len == name::V4_LEN || self.name[8..20] == MAPPED
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        name::decode(&self.name, self.name_len).expect("made from an address")
    }

    /// The local address that the datagram was sent to, if the backend knows it.
    pub fn local(&self) -> Option<IpAddr> {
        self.has_local.then(|| match self.name_len {
            name::V4_LEN => {
                IpAddr::from([self.local[0], self.local[1], self.local[2], self.local[3]])
            }
            _ => IpAddr::from(self.local),
        })
    }
}

/// The outcome of sending replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel accepted.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Datagrams that the kernel did not accept.
    pub unsent: u64,
    /// The same by cause, in the order of [`Cause`].
    pub causes: [u64; Cause::NAMES.len()],
    /// System calls made.
    pub calls: u64,
}

/// Why the kernel does not accept a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The send buffer is full.
    FullBuffer,
    /// A rule of a firewall or of the routes forbids it (EPERM, EACCES).
    Permission,
    /// There is no way to the destination (ENETUNREACH, EHOSTUNREACH, ENETDOWN, EADDRNOTAVAIL).
    Unreachable,
    /// The queue of the device is full, or memory is short (ENOBUFS, ENOMEM).
    NoBuffers,
    /// It is larger than the path permits (EMSGSIZE).
    TooLong,
    /// Any other.
    Other,
}

impl Cause {
    /// The names of all causes, in their order.
    pub const NAMES: [&str; 6] =
        ["full_buffer", "permission", "unreachable", "no_buffers", "too_long", "other"];

    /// The cause of an error, as send(2) and udp(7) describe it.
    pub(crate) fn of(error: Errno) -> Self {
        match error {
            Errno::EAGAIN => Self::FullBuffer,
            Errno::EPERM | Errno::EACCES => Self::Permission,
            Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EADDRNOTAVAIL => {
                Self::Unreachable
            }
            Errno::ENOBUFS | Errno::ENOMEM => Self::NoBuffers,
            Errno::EMSGSIZE => Self::TooLong,
            _ => Self::Other,
        }
    }
}

impl Sent {
    /// Counts datagrams that were not accepted.
    #[cold]
    pub fn reject(&mut self, datagrams: u64, cause: Cause) {
        self.unsent += datagrams;
        self.causes[cause as usize] += datagrams;
    }

    /// Datagrams that were not accepted because the send buffer was full.
    pub fn blocked(&self) -> u64 {
        self.causes[Cause::FullBuffer as usize]
    }

    /// Datagrams that were refused for any other cause.
    pub fn failed(&self) -> u64 {
        self.unsent - self.blocked()
    }
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.unsent += other.unsent;
        self.causes.iter_mut().zip(other.causes).for_each(|(sum, more)| *sum += more);
        self.calls += other.calls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_keeps_peer_and_socket() {
        for peer in ["192.0.2.7:6969", "[2001:db8::7]:80", "[fe80::1%4]:80"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let back = Return::to(peer, 3);
            assert_eq!((back.peer(), back.socket(), back.local()), (peer, 3, None));
        }
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        for (peer, is_ipv4) in [
            ("192.0.2.7:6969", true),
            ("[::ffff:192.0.2.7]:6969", true),
            ("[2001:db8::7]:80", false),
            ("[::1]:80", false),
            ("[::fffe:192.0.2.7]:80", false),
        ] {
            assert_eq!(Return::to(peer.parse().unwrap(), 0).is_ipv4(), is_ipv4, "{peer}");
        }
    }

    #[test]
    fn the_local_address_has_the_peers_family() {
        for (peer, local) in [("192.0.2.7:1", "127.0.0.2"), ("[::1]:1", "2001:db8::2")] {
            let local: IpAddr = local.parse().unwrap();
            let back = Return::to(peer.parse().unwrap(), 0).from_local(local);
            assert_eq!(back.local(), Some(local));
        }
    }
}
