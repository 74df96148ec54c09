//! UDP datagrams from any source address, with a right or a wrong checksum: raw sockets with
//! headers of this module (raw(7), IP_HDRINCL and IPV6_HDRINCL). For load tests in a network
//! namespace; the process needs CAP_NET_RAW there.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;

use nix::errno::Errno;
use socket2::{Domain, Protocol, Type};

use crate::checksum::{self, UDP, pseudo_header};
use crate::socket::{Cause, Return, Sent};
use crate::sys::message::Outbound;

/// Hop limit of the datagrams.
const HOPS: u8 = 64;
/// Lengths of the headers.
const V4_LEN: usize = 20;
const V6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Offset of the checksum in a UDP header.
const CHECKSUM_AT: usize = 6;

/// The checksum of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The one that the receiver computes.
    Right,
    /// Another one, and not 0, which means "none" over IPv4.
    Wrong,
}

/// Sends datagrams from any source to one destination.
pub struct RawSender {
    socket: socket2::Socket,
    to: SocketAddr,
    /// The destination without its port, which the header has.
    name: Return,
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
    batch: usize,
    outbound: Outbound,
}

impl RawSender {
    /// A sender to `to`, of up to `batch` datagrams per call.
    ///
    /// # Errors
    /// Without CAP_NET_RAW: EPERM.
    pub fn open(to: SocketAddr, batch: usize) -> io::Result<Self> {
        // IPPROTO_RAW: the socket receives nothing.
        let raw = Some(Protocol::from(libc::IPPROTO_RAW));
        let socket = socket2::Socket::new(Domain::for_address(to), Type::RAW, raw)?;
        match to {
            SocketAddr::V4(_) => socket.set_header_included_v4(true)?,
            SocketAddr::V6(_) => socket.set_header_included_v6(true)?,
        }
        Ok(Self {
            socket,
            to,
            name: Return::to(SocketAddr::new(to.ip(), 0), 0),
            bytes: Vec::new(),
            spans: Vec::with_capacity(batch),
            batch,
            outbound: Outbound::new(batch),
        })
    }

    /// Whether another datagram fits before [`send`](Self::send).
    pub fn has_room(&self) -> bool {
        self.spans.len() < self.batch
    }

    /// Appends a datagram.
    ///
    /// # Panics
    /// Without room, and where `source` and destination are not of one family.
    pub fn push(&mut self, source: SocketAddr, payload: &[u8], checksum: Checksum) {
        assert!(self.has_room(), "more than {} datagrams", self.batch);
        let start = self.bytes.len();
        write_packet(&mut self.bytes, source, self.to, payload, checksum);
        self.spans.push(start..self.bytes.len());
    }

    /// Sends the datagrams, and is empty again. One that the kernel refuses is counted and skipped.
    pub fn send(&mut self) -> Sent {
        let mut sent = Sent::default();
        self.outbound.clear();
        for span in &self.spans {
            self.outbound.push(&self.name, &self.bytes[span.clone()], None);
        }
        let mut first = 0;
        while first < self.spans.len() {
            sent.calls += 1;
            // SAFETY: bytes and name are fields of `self`, which nothing changes before `clear`.
            // Reason: one call for a batch, as for the replies of a server.
            match unsafe { self.outbound.send(self.socket.as_fd(), first) } {
                Ok(count) => {
                    let done = &self.spans[first..first + count];
                    sent.datagrams += count as u64;
                    sent.bytes += done.iter().map(|span| span.len() as u64).sum::<u64>();
                    first += count;
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    sent.reject(1, Cause::of(error));
                    first += 1;
                }
            }
        }
        self.spans.clear();
        self.bytes.clear();
        sent
    }
}

/// Appends a whole packet to `into`.
fn write_packet(
    into: &mut Vec<u8>,
    source: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
    checksum: Checksum,
) {
    let len = (UDP_LEN + payload.len()) as u16;
    let start = into.len();
    match (source.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            let total = V4_LEN as u16 + len;
            into.extend([0x45, 0]);
            into.extend(total.to_be_bytes());
            // No identification; DF. The kernel writes the checksum of this header.
            into.extend([0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
            into.extend(source.octets());
            into.extend(to.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => {
            into.extend([0x60, 0, 0, 0]);
            into.extend(len.to_be_bytes());
            into.extend([UDP, HOPS]);
            into.extend(source.octets());
            into.extend(to.octets());
        }
        _ => panic!("{source} and {to} are not of one family"),
    }
    let addresses = match source {
        SocketAddr::V4(_) => start + 12..start + V4_LEN,
        SocketAddr::V6(_) => start + 8..start + V6_LEN,
    };
    let header = into.len();
    into.extend(source.port().to_be_bytes());
    into.extend(to.port().to_be_bytes());
    into.extend(len.to_be_bytes());
    into.extend([0, 0]);
    into.extend(payload);
    let sum = pseudo_header(&into[addresses], len) + checksum::sum(&into[header..]);
    let right = checksum::of_udp(sum);
    let written = match checksum {
        Checksum::Right => right,
        Checksum::Wrong => match [right[0] ^ 0x12, right[1] ^ 0x34] {
            [0, 0] => [0xDE, 0xAD],
            wrong => wrong,
        },
    };
    into[header + CHECKSUM_AT..header + UDP_LEN].copy_from_slice(&written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(source: &str, to: &str, payload: &[u8], checksum: Checksum) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_packet(&mut bytes, source.parse().unwrap(), to.parse().unwrap(), payload, checksum);
        bytes
    }

    /// Whether a receiver accepts the checksum: the sum over everything is all ones.
    fn is_accepted(packet: &[u8]) -> bool {
        let (addresses, datagram) = match packet[0] >> 4 {
            4 => (&packet[12..20], &packet[20..]),
            _ => (&packet[8..40], &packet[40..]),
        };
        let pseudo = pseudo_header(addresses, datagram.len() as u16);
        checksum::fold(pseudo + checksum::sum(datagram)) == 0xFFFF
    }

    #[test]
    fn a_known_packet() {
        let found = packet("192.0.2.1:1", "192.0.2.2:2", b"abc", Checksum::Right);
        // 0xc000 + 0x0201 + 0xc000 + 0x0202 + 17 + 11 + 1 + 2 + 11 + 0x6162 + 0x6300, folded.
        let expected = !0x4891u16;
        assert_eq!(found[..4], [0x45, 0, 0, 31]);
        assert_eq!(found[20..26], [0, 1, 0, 2, 0, 11]);
        assert_eq!(u16::from_be_bytes([found[26], found[27]]), expected);
        let v6 = packet("[fd00::1]:1", "[fd00::2]:2", b"abc", Checksum::Right);
        assert_eq!((v6.len(), &v6[..8]), (51, &[0x60, 0, 0, 0, 0, 11, 17, 64][..]));
    }

    proptest! {
        #[test]
        fn checksums_are_right_or_wrong_as_asked(
            v4: bool, a: u64, b: u64, ports: [u16; 2],
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let ip = |n: u64| match v4 {
                true => IpAddr::from((n as u32).to_be_bytes()),
                false => IpAddr::from((u128::from(n) << 64 | u128::from(n)).to_be_bytes()),
            };
            let (source, to) = (SocketAddr::new(ip(a), ports[0]), SocketAddr::new(ip(b), ports[1]));
            for (checksum, accepted) in [(Checksum::Right, true), (Checksum::Wrong, false)] {
                let mut bytes = Vec::new();
                write_packet(&mut bytes, source, to, &payload, checksum);
                prop_assert_eq!(is_accepted(&bytes), accepted);
                let at = if v4 { 26 } else { 46 };
                prop_assert!(bytes[at..at + 2] != [0, 0], "0 is no checksum");
                prop_assert!(bytes.ends_with(&payload));
            }
        }
    }
}
