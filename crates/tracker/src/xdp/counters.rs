//! What the program has counted.

use crate::refusal::{Refusal, UdpRefusal};

/// Reasons to drop a datagram, in the order of the program's counters (`enum refusal`).
pub const REASONS: [&str; 7] = [
    UdpRefusal::SourcePort.name(),
    Refusal::Bogon.name(),
    Refusal::Blocked.name(),
    UdpRefusal::Short.name(),
    UdpRefusal::Magic.name(),
    UdpRefusal::Action.name(),
    UdpRefusal::ConnectionId.name(),
];
/// Counters of an address family.
const OF_FAMILY: usize = 3 + REASONS.len();
/// Counters of the program.
pub(super) const COUNTERS: usize = 2 * OF_FAMILY + 5;

/// Datagrams of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFamily {
    /// Connects that were answered.
    pub answered: u64,
    /// Bytes of their payloads.
    pub answered_bytes: u64,
    /// Bytes of the payloads that were dropped.
    pub refused_bytes: u64,
    /// Datagrams that were dropped, by [`REASONS`].
    pub refused: [u64; REASONS.len()],
}

/// The counters of the program, summed over all vCPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Datagrams over IPv4.
    pub v4: XdpFamily,
    /// Datagrams over IPv6.
    pub v6: XdpFamily,
    /// Requests that were passed to the sockets, which count them again.
    pub passed: u64,
    /// The same, as the rules were too old.
    pub stale: u64,
    /// Frames that were dropped as no host has their source address (RFC 1812, section 5.3.7).
    pub martian: u64,
    /// Connects that were dropped as their UDP checksum was wrong.
    pub checksum: u64,
    /// Connects that were passed as there is no next hop for the reply.
    pub no_route: u64,
}

impl XdpCounters {
    /// Reads `struct counters`.
    pub(super) fn new(words: &[u64; COUNTERS]) -> Self {
        let family = |words: &[u64]| XdpFamily {
            answered: words[0],
            answered_bytes: words[1],
            refused_bytes: words[2],
            refused: std::array::from_fn(|reason| words[3 + reason]),
        };
        let [passed, stale, martian, checksum, no_route] =
            std::array::from_fn(|number| words[2 * OF_FAMILY + number]);
        Self {
            v4: family(&words[..OF_FAMILY]),
            v6: family(&words[OF_FAMILY..2 * OF_FAMILY]),
            passed,
            stale,
            martian,
            checksum,
            no_route,
        }
    }
}
