//! What the program has counted.

use onrush_proto::{Family, connect};

use crate::metrics::{Counter, Incoming, WorkerMetrics};
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
pub(super) const COUNTERS: usize = 2 * OF_FAMILY + 6;

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
    /// Requests that were passed to the workers' UDP sockets, where they are counted.
    pub passed: u64,
    /// The same, as the rules were too old.
    pub stale: u64,
    /// Frames that were dropped as no host has their source address (RFC 1812, section 5.3.7).
    pub martian: u64,
    /// Connects that were dropped as their UDP checksum was wrong.
    pub checksum: u64,
    /// Requests that were passed as there is no next hop for the reply.
    pub no_route: u64,
    /// Requests that were redirected to the workers' AF_XDP sockets, where they are counted.
    pub redirected: u64,
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
        let [passed, stale, martian, checksum, no_route, redirected] =
            std::array::from_fn(|number| words[2 * OF_FAMILY + number]);
        Self {
            v4: family(&words[..OF_FAMILY]),
            v6: family(&words[OF_FAMILY..2 * OF_FAMILY]),
            passed,
            stale,
            martian,
            checksum,
            no_route,
            redirected,
        }
    }
}

impl XdpFamily {
    /// Sets the counters of an interface to these.
    fn write(&self, incoming: &Incoming) {
        let refused: u64 = self.refused.iter().sum();
        incoming.datagrams.set(self.answered + refused);
        incoming.bytes.set(self.answered_bytes + self.refused_bytes);
        incoming.connects.set(self.answered);
        incoming.replies[connect::ACTION as usize].set(self.answered);
        let counters = REASONS.iter().filter_map(|reason| counter(incoming, reason));
        counters.zip(self.refused).for_each(|(counter, count)| counter.set(count));
    }
}

/// The counter of a reason.
fn counter<'a>(incoming: &'a Incoming, reason: &str) -> Option<&'a Counter> {
    let by_udp = UdpRefusal::NAMES.iter().zip(&incoming.refused_by_udp);
    let mut all = by_udp.chain(Refusal::NAMES.iter().zip(&incoming.refused));
    all.find(|(name, _)| *name == &reason).map(|(_, counter)| counter)
}

impl XdpCounters {
    /// Sets the counters of the member that is the program at an interface to these. What was
    /// passed or redirected is counted by the workers.
    pub(super) fn write(&self, metrics: &WorkerMetrics) {
        for (family, counters) in [(Family::V4, &self.v4), (Family::V6, &self.v6)] {
            counters.write(metrics.incoming.of(family));
        }
        let answered = self.v4.answered + self.v6.answered;
        metrics.sent.set(answered);
        metrics.sent_bytes.set(answered * connect::RESPONSE_LEN as u64);
        metrics.checksum_errors.set(self.checksum);
        let frames = &metrics.xdp;
        frames.answered.set(answered);
        frames.refused.set([self.v4, self.v6].iter().flat_map(|family| family.refused).sum());
        frames.checksum.set(self.checksum);
        frames.martian.set(self.martian);
        frames.passed.set(self.passed.saturating_sub(self.no_route));
        frames.no_route.set(self.no_route);
        frames.redirected.set(self.redirected);
        frames.stale.set(self.stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Summary;

    #[test]
    fn the_counters_of_a_member_are_those_of_the_program() {
        let words = std::array::from_fn(|at| 1 << at);
        let counters = XdpCounters::new(&words);
        let metrics = WorkerMetrics::default();
        counters.write(&metrics);
        let sum = Summary::of([&metrics]);
        let answered = counters.v4.answered + counters.v6.answered;
        assert_eq!((sum.connects, sum.replies[0], sum.sent), (answered, answered, answered));
        assert_eq!(sum.datagrams, answered + sum.refused_in_all());
        let of = |reason| sum.refusals().find(|(name, _)| *name == reason).unwrap().1;
        for (at, reason) in REASONS.into_iter().enumerate() {
            assert_eq!(of(reason), counters.v4.refused[at] + counters.v6.refused[at], "{reason}");
        }
        assert_eq!(sum.bytes, 2 + (2 << 10) + 4 + (4 << 10));
        assert_eq!((sum.checksum_errors, sum.sent_bytes), (counters.checksum, 16 * answered));
        let frames = &metrics.xdp;
        assert_eq!((frames.passed.get(), frames.stale.get()), (0, counters.stale));
    }
}
