//! Degraded options of otherwise usable sockets: logged at start, each with its remedy.

use std::net::SocketAddr;

/// A warning for the operator: a sentence with the remedy.
pub type Notice = String;

/// One of a socket's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// SO_RCVBUF, limited by `net.core.rmem_max`.
    Receive,
    /// SO_SNDBUF, limited by `net.core.wmem_max`.
    Send,
}

/// The kernel granted a smaller buffer than requested; sizes are in bytes.
pub(crate) fn buffer_clamped(
    address: SocketAddr,
    direction: Direction,
    asked: usize,
    given: usize,
) -> Notice {
    let [name, held, limit] = match direction {
        Direction::Receive => ["receive", "requests", "rmem_max"],
        Direction::Send => ["send", "replies", "wmem_max"],
    };
    format!(
        "the {name} buffers of {address} are {given} bytes each instead of {asked}: bursts of \
         {held} will be dropped; raise the limit with: sysctl -w net.core.{limit}={asked}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clamped_buffer_names_its_sysctl_and_the_value() {
        let address = "[::]:6969".parse().unwrap();
        let text = buffer_clamped(address, Direction::Receive, 8_388_608, 4_194_304);
        assert!(text.contains("sysctl -w net.core.rmem_max=8388608"), "{text}");
        assert!(text.contains("[::]:6969") && text.contains("4194304"), "{text}");
    }
}
