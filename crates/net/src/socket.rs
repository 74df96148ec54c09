//! The contract of a backend as types; its rules are in the [crate] documentation.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::name;

/// One worker's side of the network.
pub trait Socket {
    /// Ends this socket's [`wait`](Socket::wait) from another thread.
    type Waker: Waker;

    /// A handle that rings this socket.
    fn waker(&self) -> Self::Waker;

    /// Blocks until a datagram may be waiting, the waker was rung or `timeout` has passed.
    ///
    /// # Errors
    /// Only what makes the socket unusable; an interrupted call is a spurious return.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Blocks until the waker was rung or `timeout` has passed, whatever is waiting: for who receives nothing.
    /// A backend without it returns as soon as something is there to be received.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn wait_for_wake(&mut self, timeout: Duration) -> io::Result<()> {
        self.wait(timeout)
    }

    /// Receives only from the kernel sockets at addresses for which `keep` holds, from now on. A backend that has
    /// no kernel sockets goes on with all that it has.
    fn retain_addresses(&mut self, keep: &dyn Fn(SocketAddr) -> bool) {
        let _ = keep;
    }

    /// Receives at most `limit` datagrams, and no more than the backend's own batch size.
    ///
    /// # Errors
    /// Only what makes the socket unusable. Errors that the network sends (ICMP) are not.
    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>>;

    /// Sends replies, in order for each destination, grouped as the backend likes.
    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent;

    /// Datagrams that the kernel dropped for want of buffer space since the socket was opened.
    /// Costs a system call per kernel socket: ask once a second, not per batch.
    fn dropped(&self) -> u64;
}

/// Wakes a [`Socket`] that waits.
pub trait Waker: Clone + Send + Sync + 'static {
    /// Makes the current or the next [`Socket::wait`] return. Cheap when it already would.
    fn wake(&self);
}

/// Bytes and where they go.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'b> {
    /// The datagram's payload.
    pub bytes: &'b [u8],
    /// Where it goes, and from which socket and address.
    pub to: &'b Return,
}

/// A batch of datagrams in a backend's memory.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    region: &'a [u8],
    slots: &'a [Slot],
}

/// Where in its region a datagram is, and whom it came from.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// First byte in the region.
    pub offset: u32,
    /// Bytes received. A datagram longer than the backend's slots is cut, not refused.
    pub len: u32,
    /// The sender as the kernel gave it (an IPv4-mapped address stays one).
    pub source: SocketAddr,
    /// How to answer.
    pub reply_to: Return,
}

impl<'a> Received<'a> {
    /// For backends: a batch of `slots` that point into `region`.
    pub fn new(region: &'a [u8], slots: &'a [Slot]) -> Self {
        Self { region, slots }
    }

    /// Datagrams in the batch.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Each datagram with its bytes.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a Slot)> + use<'a> {
        let region = self.region;
        self.slots.iter().map(move |slot| {
            let start = slot.offset as usize;
            (&region[start..start + slot.len as usize], slot)
        })
    }
}

/// How IPv4-mapped IPv6 addresses begin.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF];

/// How to answer a datagram: the peer's address in the kernel's own form, the local address that
/// was asked (only on wildcard binds), and which of the backend's kernel sockets. Opaque outside
/// of this crate but for what its methods tell.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    /// A `sockaddr_in` or `sockaddr_in6` byte for byte, so that no address is converted between
    /// receiving and sending.
    pub(crate) name: [u8; 28],
    /// The local IPv4 (first 4 bytes) or IPv6 address that was asked; meaningless unless
    /// `has_local`.
    pub(crate) local: [u8; 16],
    /// Length of `name`: 16 for IPv4, 28 for IPv6.
    pub(crate) name_len: u8,
    /// Whether `local` is to be set as the source address of the reply.
    pub(crate) has_local: bool,
    /// Index of the kernel socket within the backend.
    pub(crate) socket: u16,
}

impl Return {
    /// A token for a datagram that answers nothing: to `peer`, from the backend's kernel socket
    /// number `socket` (in the order in which the backend was given them).
    pub fn to(peer: SocketAddr, socket: u16) -> Self {
        let (name, name_len) = name::encode(peer);
        Self { name, local: [0; 16], name_len, has_local: false, socket }
    }

    /// The backend's kernel socket, in the order in which the backend was given them.
    pub fn socket(&self) -> u16 {
        self.socket
    }

    /// Whether the other side speaks IPv4, be it to a socket of IPv6 (then its address is an IPv4-mapped one, RFC
    /// 4291, section 2.5.5.2).
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.name_len == name::V4_LEN || self.name[8..20] == MAPPED
    }

    /// The other side's address.
    pub fn peer(&self) -> SocketAddr {
        name::decode(&self.name, self.name_len).expect("made from an address")
    }

    /// The local address that was asked, where the backend knows it.
    pub fn local(&self) -> Option<IpAddr> {
        self.has_local.then(|| match self.name_len {
            name::V4_LEN => {
                IpAddr::from([self.local[0], self.local[1], self.local[2], self.local[3]])
            }
            _ => IpAddr::from(self.local),
        })
    }
}

/// What became of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Datagrams dropped because the send buffer was full.
    pub blocked: u64,
    /// Datagrams that the kernel refused for any other reason (no route, no buffer, forbidden).
    pub failed: u64,
    /// System calls made.
    pub calls: u64,
}

impl std::ops::AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.blocked += other.blocked;
        self.failed += other.failed;
        self.calls += other.calls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_tells_what_it_was_made_of() {
        for peer in ["192.0.2.7:6969", "[2001:db8::7]:80", "[fe80::1%4]:80"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let back = Return::to(peer, 3);
            assert_eq!((back.peer(), back.socket(), back.local()), (peer, 3, None));
        }
    }

    #[test]
    fn mapped_addresses_are_of_ipv4() {
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
    fn the_local_address_is_of_the_peers_family() {
        for (peer, local) in [("192.0.2.7:1", "127.0.0.2"), ("[::1]:1", "2001:db8::2")] {
            let local: IpAddr = local.parse().unwrap();
            let mut back = Return::to(peer.parse().unwrap(), 0);
            back.local = name::encode_ip(local);
            back.has_local = true;
            assert_eq!(back.local(), Some(local));
        }
    }
}
