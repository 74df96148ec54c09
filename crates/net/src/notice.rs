//! Degraded options of otherwise usable sockets: logged at start, each with its remedy.

use std::fmt;
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

/// A warning for the operator. Displays as a sentence with the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// An optional address was left out because the host does not have it.
    AddressUnavailable {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// The kernel granted a smaller buffer than requested.
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
    SteeringUnavailable {
        /// The address whose group is not steered.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// A wildcard address, on a system that does not report the local address of a datagram:
    /// routing picks the source address of replies.
    LocalAddressUnknown {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressUnavailable { address, cause } => {
                let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
                write!(
                    f,
                    "not listening on {address}, which this host does not have ({cause}); \
                     to serve {family}, enable it and restart"
                )?;
                if address.is_ipv6() {
                    f.write_str(": sysctl -w net.ipv6.conf.all.disable_ipv6=0")?;
                }
                Ok(())
            }
            Self::BufferClamped { address, direction, asked, given } => {
                let (name, sysctl, harm) = match direction {
                    Direction::Receive => {
                        ("receive", "rmem_max", "bursts of requests will be dropped")
                    }
                    Direction::Send => ("send", "wmem_max", "bursts of replies will be dropped"),
                };
                write!(
                    f,
                    "the {name} buffers of {address} are {given} bytes each instead of {asked}: \
                     {harm}; raise the limit with: sysctl -w net.core.{sysctl}={asked}"
                )
            }
            Self::SteeringUnavailable { address, cause } => write!(
                f,
                "datagrams to {address} cannot be steered to the worker of their swarm ({cause}); \
                 the kernel spreads them by address and workers forward them: correct, but slower"
            ),
            Self::LocalAddressUnknown { address, cause } => write!(
                f,
                "on {address} this system does not report the local address of a request \
                 ({cause}); a host with several addresses may reply from the wrong one: list each \
                 address in place of the wildcard"
            ),
        }
    }
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
