//! Degraded options of otherwise usable sockets: logged at start, each with its remedy.

use std::io;
use std::net::SocketAddr;

/// One of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// SO_RCVBUF, limited by `net.core.rmem_max`.
    Receive,
    /// SO_SNDBUF, limited by `net.core.wmem_max`.
    Send,
}

impl Direction {
    /// The name of the buffer, what it holds, and the limit of its size.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Receive => ["receive", "requests", "rmem_max"],
            Self::Send => ["send", "replies", "wmem_max"],
        }
    }
}

/// A warning for the operator. Displays as a sentence with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Notice {
    /// An optional address was left out because the host does not have it.
    #[error(
        "not listening on {address}, which this host does not have ({cause}); to serve {}, enable \
         it and restart{}",
        if address.is_ipv6() { "IPv6" } else { "IPv4" },
        if address.is_ipv6() { ": sysctl -w net.ipv6.conf.all.disable_ipv6=0" } else { "" }
    )]
    AddressUnavailable {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The kernel granted a smaller buffer than requested.
    #[error(
        "the {name} buffers of {address} are {given} bytes each instead of {asked}: bursts of \
         {held} will be dropped; raise the limit with: sysctl -w net.core.{limit}={asked}",
        name = direction.words()[0], held = direction.words()[1], limit = direction.words()[2]
    )]
    BufferClamped {
        /// The address of the sockets.
        address: SocketAddr,
        /// The buffer.
        direction: Direction,
        /// Bytes requested.
        asked: usize,
        /// Bytes granted.
        given: usize,
    },
    /// Datagrams cannot be steered by content; the kernel spreads them by its own hash.
    #[error(
        "datagrams to {address} cannot be steered to the worker of their swarm ({cause}); the \
         kernel spreads them by address and workers forward them: correct, but slower"
    )]
    SteeringUnavailable {
        /// The address whose group is not steered.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// A wildcard address, on a system that does not report the local address of a datagram:
    /// routing picks the source address of replies.
    #[error(
        "on {address} this system does not report the local address of a request ({cause}); a host \
         with several addresses may reply from the wrong one: list each address in place of the \
         wildcard"
    )]
    LocalAddressUnknown {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clamped_buffer_names_its_sysctl_and_the_value() {
        let notice = Notice::BufferClamped {
            address: "[::]:6969".parse().unwrap(),
            direction: Direction::Receive,
            asked: 8_388_608,
            given: 4_194_304,
        };
        let text = notice.to_string();
        assert!(text.contains("sysctl -w net.core.rmem_max=8388608"), "{text}");
        assert!(text.contains("[::]:6969") && text.contains("4194304"), "{text}");
    }
}
