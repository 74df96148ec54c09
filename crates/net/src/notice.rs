//! What went less well than asked for, but well enough to go on: to be logged at start, each with
//! the command that mends it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Which of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// SO_RCVBUF, limited by `net.core.rmem_max`.
    Receive,
    /// SO_SNDBUF, limited by `net.core.wmem_max`.
    Send,
}

/// Something to tell the operator. Displays as a sentence with the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// An optional address was left out because the host cannot serve it.
    AddressUnavailable {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The kernel gave a smaller buffer than asked for.
    BufferClamped {
        /// The address whose sockets have it.
        address: SocketAddr,
        /// Which buffer.
        direction: Direction,
        /// Bytes asked for.
        asked: usize,
        /// Bytes given.
        given: usize,
    },
    /// Datagrams cannot be steered by their content; the kernel's own hash spreads them.
    SteeringUnavailable {
        /// The address whose group is not steered.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// A wildcard address, on a system that does not tell which address was asked: replies leave
    /// from the one that routing picks.
    LocalAddressUnknown {
        /// The address.
        address: SocketAddr,
        /// What the system said.
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
                    Direction::Receive => ("receive", "rmem_max", "bursts will be dropped"),
                    Direction::Send => ("send", "wmem_max", "bursts of replies will be dropped"),
                };
                write!(
                    f,
                    "the {name} buffers of {address} are {given} bytes each instead of {asked}: \
                     {harm}; mend it with: sysctl -w net.core.{sysctl}={asked}"
                )
            }
            Self::SteeringUnavailable { address, cause } => write!(
                f,
                "datagrams to {address} cannot be steered to the worker that owns them ({cause}); \
                 the kernel spreads them by address and workers pass them on: correct, but slower"
            ),
            Self::LocalAddressUnknown { address, cause } => write!(
                f,
                "on {address} this system does not tell which address was asked ({cause}); a host \
                 with several addresses may answer from another: listen on each by name instead"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clamped_buffer_names_its_sysctl_with_the_value_that_mends_it() {
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
