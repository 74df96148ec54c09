//! The counters of a daemon as an account that has to balance: nothing that arrives is neither
//! answered nor counted as refused or lost.

use std::time::Instant;

use crate::harness::{Daemon, TIMEOUT};
use crate::load::{Counts, Load};

/// The counters of a daemon, summed over workers and families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Datagrams received.
    pub(crate) received: u64,
    /// Datagrams that the kernel dropped before.
    pub(crate) dropped: u64,
    /// Requests that passed every check.
    pub(crate) requests: u64,
    /// Requests refused; the load gets no error reply.
    pub(crate) refused: u64,
    /// Replies passed to the kernel.
    pub(crate) replies: u64,
    /// Replies that the kernel accepted.
    pub(crate) sent: u64,
    /// Replies that it did not accept.
    pub(crate) unsent: u64,
}

impl Account {
    /// The account of a daemon at this time.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let metrics = daemon.metrics();
        let sum = |name: &str| metrics.sum(name, &[]) as u64;
        Self {
            received: sum("onrush_received_datagrams_total"),
            dropped: sum("onrush_kernel_dropped_datagrams_total"),
            requests: sum("onrush_requests_total"),
            refused: sum("onrush_refused_requests_total"),
            replies: sum("onrush_replies_total"),
            sent: sum("onrush_sent_datagrams_total"),
            unsent: sum("onrush_unsent_replies_total"),
        }
    }

    /// Whether every datagram received is counted as answered, refused or not sent.
    fn balances(&self) -> bool {
        let Self { received, requests, refused, replies, sent, unsent, .. } = *self;
        received == requests + refused && replies == requests && replies == sent + unsent
    }

    /// The account of a daemon, which balances once all requests are served. The load must have
    /// ended.
    #[track_caller]
    pub(crate) fn balanced(daemon: &Daemon) -> Self {
        Self::once(daemon, Counts::default, |account, _| account.balances())
    }

    /// Ends a load, whose requests are all that was sent to the daemon, and of which so many did
    /// not reach its host. Returns the account, which balances with what the load has sent and
    /// received.
    #[track_caller]
    pub(crate) fn balanced_with(daemon: &Daemon, load: Load, lost: u64) -> Self {
        let mut client = load.end();
        let counts = || client.counts_after_receiving();
        Self::once(daemon, counts, |account, Counts { sent, answered }| {
            let arrived = account.received + account.dropped;
            account.balances() && sent == arrived + lost && answered == account.sent
        })
    }

    /// Waits until a condition holds for the account and the counts of a load that has ended.
    #[track_caller]
    fn once(
        daemon: &Daemon,
        mut load: impl FnMut() -> Counts,
        holds: impl Fn(&Self, Counts) -> bool,
    ) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (account, load) = (Self::of(daemon), load());
            if holds(&account, load) {
                return account;
            }
            // A daemon without CPU time may not have served the last requests yet.
            assert!(Instant::now() < deadline, "{account:?} {load:?}");
        }
    }
}
