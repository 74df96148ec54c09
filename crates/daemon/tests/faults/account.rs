//! The counters of a daemon as an account that has to balance: nothing that arrives is neither
//! answered nor counted as refused or lost.

use std::time::Instant;

use crate::harness::http::Metrics;
use crate::harness::process::{Daemon, TIMEOUT};
use crate::load::Counts;

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
        Self::from(&daemon.metrics())
    }

    fn from(metrics: &Metrics) -> Self {
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

    /// The account of a daemon, which balances once all requests are served. The load must have
    /// ended.
    #[track_caller]
    pub(crate) fn balanced(daemon: &Daemon) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let account = Self::of(daemon);
            let Self { received, requests, refused, replies, sent, unsent, .. } = account;
            let balances =
                received == requests + refused && replies == requests && replies == sent + unsent;
            if balances {
                return account;
            }
            // A daemon without CPU time may not have served the last requests yet.
            assert!(Instant::now() < deadline, "{account:?}");
        }
    }

    /// The same for a load that has ended, whose requests are all that was sent to the daemon, over
    /// a network that loses nothing on the way.
    #[track_caller]
    pub(crate) fn balanced_with(daemon: &Daemon, load: Counts) -> Self {
        let account = Self::balanced(daemon);
        assert_eq!(load.sent, account.received + account.dropped, "{account:?} {load:?}");
        assert_eq!(load.answered, account.sent, "{account:?} {load:?}");
        account
    }
}
