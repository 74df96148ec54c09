//! The tracker under test as every exchange sees it: its addresses, the source addresses that
//! requests come from, and the time that is left.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_proto::Family;

use crate::budget::Budget;

/// Number of source addresses in 127/8 that are used for a tracker on this host.
const LOOPBACK_SOURCES: u8 = 4;

/// The address that makes routing pick the source of requests to `target`.
pub fn unspecified(target: SocketAddr) -> IpAddr {
    match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The tracker under test.
#[derive(Debug)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// Its address of the other family, where it answers there.
    pub also: Option<SocketAddr>,
    /// Source addresses of requests, of the family of `address`; at least one.
    pub sources: Vec<IpAddr>,
    /// The time that is left.
    pub(crate) budget: Budget,
    /// Whether checks share a limited set of info hashes, so that every peer has to be removed.
    pub shares_hashes: bool,
    /// By source address, the address under which the tracker lists it, where these differ (NAT).
    pub(crate) external: HashMap<IpAddr, IpAddr>,
    /// Local addresses and the transaction ids of requests that were sent from there. It outlives
    /// the sockets, as the kernel gives the port of a closed socket to a later one, which then
    /// receives replies that arrive late.
    transactions: Mutex<HashSet<(SocketAddr, u32)>>,
    sent: AtomicU64,
}

impl Target {
    /// A tracker at `address`. Without given `sources` requests come from several addresses of
    /// 127/8 where the tracker is there too, else from `local`.
    pub(crate) fn new(
        address: SocketAddr,
        sources: &[IpAddr],
        local: IpAddr,
        timeout: Duration,
    ) -> Self {
        let loopback = address.ip().is_loopback() && address.is_ipv4();
        let sources = match (sources, loopback) {
            ([], true) => (1..=LOOPBACK_SOURCES).map(|n| [127, 0, 77, n].into()).collect(),
            ([], false) => vec![local],
            (given, _) => given.to_vec(),
        };
        Self {
            address,
            also: None,
            sources,
            budget: Budget::new(timeout),
            shares_hashes: false,
            external: HashMap::new(),
            transactions: Mutex::default(),
            sent: AtomicU64::new(0),
        }
    }

    /// The address under which the tracker is expected to list `source`.
    pub fn external(&self, source: IpAddr) -> IpAddr {
        self.external.get(&source).copied().unwrap_or(source)
    }

    /// The family of `address`.
    pub fn family(&self) -> Family {
        Family::of(self.address.ip())
    }

    /// Datagrams sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// A transaction id that no request from `local` has had.
    pub(crate) fn new_transaction(&self, local: SocketAddr) -> u32 {
        let mut transactions = self.transactions.lock().expect("no check panics");
        loop {
            let number = rand::random();
            if transactions.insert((local, number)) {
                return number;
            }
        }
    }

    /// Whether a request from `local` has had this transaction id.
    pub(crate) fn has_used_transaction(&self, local: SocketAddr, number: u32) -> bool {
        self.transactions.lock().expect("no check panics").contains(&(local, number))
    }

    pub(crate) fn count_datagram(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}
