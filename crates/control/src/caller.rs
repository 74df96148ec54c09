//! The sender of a request: the address of a TCP connection, or the user at the control socket.

use std::fmt;
use std::net::SocketAddr;

use nix::unistd::Uid;

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A client over TCP.
    Address(SocketAddr),
    /// A process of the user with this id, at the control socket.
    User(u32),
}

impl Caller {
    /// Whether the admin API needs no token: for root and for the user of this process, who can
    /// stop and replace the tracker anyway.
    pub(crate) fn is_trusted(self) -> bool {
        self.is_trusted_by(Uid::effective().as_raw())
    }

    fn is_trusted_by(self, own: u32) -> bool {
        matches!(self, Self::User(user) if user == 0 || user == own)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address} (admin API)"),
            Self::User(user) => write!(f, "user {user}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_own_user_at_the_socket_are_trusted() {
        for (caller, trusted) in [
            (Caller::User(0), true),
            (Caller::User(7), true),
            (Caller::User(8), false),
            (Caller::User(u32::MAX), false),
            (Caller::Address(([127, 0, 0, 1], 7).into()), false),
        ] {
            assert_eq!(caller.is_trusted_by(7), trusted, "{caller}");
        }
    }
}
