//! Counters of the data path. Each worker has its own, which it alone writes and any thread reads.
//!
//! The table [`counter_table`] declares them.

mod frames;
mod series;
mod table;

use std::sync::atomic::{AtomicU64, Ordering};

use onrush_net::{Cause, Socket};
use onrush_proto::Family;
use onrush_swarm::{SwarmsByFamily, Totals};

pub use frames::{XdpFrames, XdpQueue};
pub use series::{Field, Kind, Loss, Series, Shown};

use crate::clients::NAMES as CLIENTS;
use crate::close_cause::CloseCause;
use crate::kernel_filter::FilterRefusal;
use crate::refusal::{HttpRefusal, Refusal, UdpRefusal};
use crate::{counter_table, declare_counters};
use table::declare_summary;

counter_table!(declare_counters);
counter_table!(declare_summary);

/// A number that one thread writes and other threads read. Writing takes no locked instruction, so
/// two writers would lose counts: each worker has its own counters.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owner may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets the value. Only the owner may call this.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Reads the value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One value per address family.
#[derive(Debug, Default)]
pub struct ByFamily<T> {
    /// IPv4.
    pub v4: T,
    /// IPv6.
    pub v6: T,
}

impl<T> ByFamily<T> {
    /// The value of `family`.
    #[inline]
    pub fn of(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

/// Counts values by size, in classes whose bounds double. The first bound is 2^`SHIFT`; the last
/// class has none.
#[derive(Debug)]
pub struct Histogram<const SHIFT: u32, const CLASSES: usize> {
    classes: [Counter; CLASSES],
    sum: Counter,
}

impl<const SHIFT: u32, const CLASSES: usize> Histogram<SHIFT, CLASSES> {
    /// Counts a value. Only the owner may call this.
    #[inline]
    pub fn observe(&self, value: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        let class = (bits.saturating_sub(SHIFT) as usize).min(CLASSES - 1);
        self.classes[class].add(1);
        self.sum.add(value);
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// The number of values in each class, with the class's inclusive upper bound.
    pub fn classes(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let last = CLASSES - 1;
        let bound = move |class| (class < last).then(|| 1u64 << (SHIFT as usize + class));
        self.classes.iter().enumerate().map(move |(class, count)| (bound(class), count.get()))
    }
}

impl<const SHIFT: u32, const CLASSES: usize> Default for Histogram<SHIFT, CLASSES> {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

/// Duration of turns in nanoseconds. Bounds: 1 us, 2 us, ... 1.07 s.
pub type TurnTimes = Histogram<10, 22>;

/// Datagrams per batch. Bounds: 1, 2, 4, ... 1024, the largest batch.
pub type BatchSizes = Histogram<0, 12>;

/// The names of the events of an announce, in the order of their counters: by their number on the
/// wire ([`onrush_proto::Event::to_wire`]).
pub const EVENT_NAMES: [&str; 5] = ["none", "completed", "started", "stopped", "paused"];

/// Kinds of replies, in the order of their counters: by their action on the wire (BEP 15).
pub const REPLIES: [&str; 4] = ["connect", "announce", "scrape", "error"];

/// The names of [`Refusal::ALL`], in its order.
pub const REFUSALS: [&str; Refusal::ALL.len()] = Refusal::NAMES;

/// The names of [`UdpRefusal::ALL`], in its order.
pub const UDP_REFUSALS: [&str; UdpRefusal::ALL.len()] = UdpRefusal::NAMES;

/// The reasons to refuse a request over HTTP: the names of [`HttpRefusal::ALL`], in its order, then
/// those of [`Refusal::ALL`].
pub const HTTP_REFUSALS: [&str; HttpRefusal::ALL.len() + Refusal::ALL.len()] = {
    let mut names = [""; HttpRefusal::ALL.len() + Refusal::ALL.len()];
    let (own, any) = names.split_at_mut(HttpRefusal::ALL.len());
    own.copy_from_slice(&HttpRefusal::NAMES);
    any.copy_from_slice(&Refusal::NAMES);
    names
};

/// The names of [`CloseCause::ALL`], in its order.
pub const CLOSE_CAUSES: [&str; CloseCause::ALL.len()] = CloseCause::NAMES;

/// Connections of HTTP that were not served as something was used up: the name for people, and the
/// cause of the close; none if they were not accepted.
pub const UNSERVED: [(&str, Option<CloseCause>); 3] = [
    ("connections not accepted", None),
    ("connections refused as full", Some(CloseCause::Full)),
    ("connections closed for memory", Some(CloseCause::Memory)),
];

/// The causes why the kernel does not accept a reply, in the order of their counters.
pub const UNSENT: [&str; Cause::NAMES.len()] = Cause::NAMES;

/// Whether requests that are refused for this reason count as lost.
pub fn is_loss(reason: &str) -> bool {
    LOSSES.iter().any(|loss| loss.key == reason)
}

impl Incoming {
    /// The name and the count of every reason to refuse.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let by_udp = UDP_REFUSALS.into_iter().zip(&self.refused_by_udp);
        by_udp.chain(REFUSALS.into_iter().zip(&self.refused)).map(|(name, n)| (name, n.get()))
    }
}

impl WorkerMetrics {
    /// Copies the state of the socket's AF_XDP queues.
    #[cold]
    pub(crate) fn set_queues(&self, socket: &mut impl Socket) {
        let mut queues = self.queues.iter();
        socket.report_queues(&mut |report| {
            if let Some(queue) = queues.next() {
                queue.set(&report);
            }
        });
    }
}

impl ShardGauges {
    /// Swarms by address family; `None` until the first expiry pass has ended.
    pub fn by_family(&self) -> Option<SwarmsByFamily> {
        let known = self.sweep_passes.get() > 0;
        known.then(|| SwarmsByFamily { v4: self.swarms_v4.get(), v6: self.swarms_v6.get() })
    }

    /// Peers and seeders of a family.
    pub fn peers(&self, family: Family) -> (u64, u64) {
        match family {
            Family::V4 => (self.peers_v4.get(), self.seeders_v4.get()),
            Family::V6 => (self.peers_v6.get(), self.seeders_v6.get()),
        }
    }

    /// Copies the totals of a shard.
    pub fn set(&self, totals: &Totals, by_family: SwarmsByFamily) {
        self.swarms_v4.set(by_family.v4);
        self.swarms_v6.set(by_family.v6);
        self.swarms.set(totals.swarms);
        self.idle_swarms.set(totals.idle_swarms);
        self.peers_v4.set(totals.peers_v4);
        self.peers_v6.set(totals.peers_v6);
        self.seeders_v4.set(totals.seeders_v4);
        self.seeders_v6.set(totals.seeders_v6);
        self.completed.set(totals.completed);
        self.refused_full.set(totals.refused_full);
        self.refused_per_swarm.set(totals.refused_per_swarm);
        self.refused_of_source.set(totals.refused_of_source);
        self.refused_new_swarms.set(totals.refused_new_swarms);
        self.replaced.set(totals.replaced);
        self.crowded_tables.set(totals.crowded_tables);
        self.expired.set(totals.expired);
        self.idle_evicted.set(totals.idle_evicted);
    }
}

impl WebCounters {
    /// The refused requests over HTTP, HTTPS, ws and wss, each in the order of [`HTTP_REFUSALS`].
    pub fn refused(&self) -> [&[Counter; HTTP_REFUSALS.len()]; 4] {
        [&self.http_refused, &self.https_refused, &self.ws_refused, &self.wss_refused]
    }
}

impl Summary {
    /// Adds up the counters of all workers.
    pub fn of<'a>(workers: impl IntoIterator<Item = &'a WorkerMetrics>) -> Self {
        let mut sum = Self::default();
        for worker in workers {
            worker.incoming.v4.add_to(&mut sum);
            worker.incoming.v6.add_to(&mut sum);
            worker.add_to(&mut sum);
            worker.shard.add_to(&mut sum);
            worker.web.add_to(&mut sum);
        }
        sum
    }

    /// The number of refused requests.
    pub fn refused_in_all(&self) -> u64 {
        self.refusals().map(|(_, count)| count).sum()
    }

    /// The name and the count of every reason to refuse. `refused` has the requests over HTTP, too,
    /// so only HTTP's own reasons, the first ones, are taken from the counters by transport.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let by_udp = UDP_REFUSALS.into_iter().zip(self.refused_by_udp);
        let over_http = [self.http_refused, self.https_refused, self.ws_refused, self.wss_refused];
        let sum = move |at: usize| over_http.iter().map(|counts| counts[at]).sum();
        let by_http =
            HttpRefusal::NAMES.into_iter().enumerate().map(move |(at, name)| (name, sum(at)));
        by_udp.chain(by_http).chain(REFUSALS.into_iter().zip(self.refused))
    }

    /// Datagrams, and requests over HTTP.
    pub fn received(&self) -> u64 {
        self.datagrams + self.http_requests()
    }

    /// Replies sent, except to refused requests over HTTP.
    pub fn replied(&self) -> u64 {
        self.sent + self.answered
    }

    /// Requests over HTTP and WebSocket, with TLS or without.
    pub fn http_requests(&self) -> u64 {
        self.requests + self.https_requests + self.ws_requests + self.wss_requests
    }

    /// Open connections of HTTP and WebSocket, with TLS or without.
    pub fn http_open(&self) -> u64 {
        self.open + self.https_open + self.ws_open + self.wss_open
    }

    /// Connections of HTTP that were not served as something was used up. Their sum is not the
    /// number of clients: one that is not accepted is tried again.
    pub fn unserved(&self) -> [(&'static str, u64); 3] {
        let closed = |cause: CloseCause| self.closed[cause as usize];
        UNSERVED.map(|(name, cause)| (name, cause.map_or(self.accept_errors, closed)))
    }

    /// The name and the count of every reason to refuse, without those that count as lost.
    pub fn only_refused(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.refusals().filter(|(reason, _)| !is_loss(reason))
    }

    /// The count of each of [`LOSSES`], in its order.
    pub fn losses(&self) -> impl Iterator<Item = u64> + '_ {
        LOSSES.iter().map(|loss| (loss.read)(self))
    }

    /// The number of requests refused for one reason.
    pub fn refused_for(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize]
    }

    /// New peers that were answered and not stored, or stored in place of a neighbour's, because of
    /// any limit.
    pub fn not_stored(&self) -> u64 {
        self.refused_full
            + self.refused_per_swarm
            + self.refused_of_source
            + self.refused_new_swarms
    }

    /// Replies that the kernel did not accept.
    pub fn unsent_in_all(&self) -> u64 {
        self.unsent.iter().sum()
    }

    /// Seeders of both families.
    pub fn seeders(&self) -> u64 {
        self.seeders_v4 + self.seeders_v6
    }
}

fn add_each<const N: usize>(sums: &mut [u64; N], counters: &[Counter; N]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.get();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onrush_proto::Event;

    use super::*;

    #[test]
    fn events_are_named_by_their_number_on_the_wire() {
        for (number, name) in (0..).zip(EVENT_NAMES) {
            assert_eq!(format!("{:?}", Event::from_wire(number)).to_lowercase(), name);
        }
    }

    #[test]
    fn reasons_of_http_are_its_own_and_those_of_any_front() {
        let first_of_all = HttpRefusal::ALL.len();
        assert_eq!(HTTP_REFUSALS[HttpRefusal::PortValue as usize], "port_value");
        assert_eq!(HTTP_REFUSALS[first_of_all], "bogon");
        assert_eq!(HTTP_REFUSALS[first_of_all + Refusal::Busy as usize], "busy");
        assert_eq!(BTreeSet::from(HTTP_REFUSALS).len(), HTTP_REFUSALS.len());
        assert_eq!(BTreeSet::from(CLOSE_CAUSES).len(), CLOSE_CAUSES.len());
    }

    #[test]
    fn a_value_belongs_to_the_first_class_that_reaches_it() {
        let sizes = BatchSizes::default();
        for value in [1, 2, 3, 4, 5, 128, 1_000, 1_024] {
            sizes.observe(value);
        }
        let counts: Vec<(Option<u64>, u64)> =
            sizes.classes().filter(|(_, count)| *count > 0).collect();
        let some = |most, count| (Some(most), count);
        assert_eq!(
            counts,
            [some(1, 1), some(2, 1), some(4, 2), some(8, 1), some(128, 1), some(1_024, 2)]
        );
        assert_eq!(sizes.sum(), 2_167);
    }

    #[test]
    fn a_loss_has_names_of_its_own_and_one_part_of_a_summary() {
        let count = |n: usize| 1 << (2 * n);
        let mut sum = Summary {
            kernel_drops: count(1),
            checksum_errors: count(2),
            kernel_shed: count(3),
            unsent: [count(4), 0, 0, 0, 0, count(4)],
            // Without a loss: their requests are counted as busy.
            lane_full: count(9),
            ..Summary::default()
        };
        sum.refused[Refusal::Busy as usize] = count(0);
        sum.refused[Refusal::Blocked as usize] = count(10);
        let counts: Vec<u64> = sum.losses().collect();
        assert_eq!(counts, [count(0), count(1), count(2), count(3), 2 * count(4)]);
        let names = |name: fn(&Loss) -> &'static str| LOSSES.iter().map(name);
        let keys: BTreeSet<_> = names(|loss| loss.key).collect();
        let labels: BTreeSet<_> = names(|loss| loss.label).collect();
        assert_eq!((keys.len(), labels.len()), (LOSSES.len(), LOSSES.len()));
        let refused: Vec<_> = sum.only_refused().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refused, [("blocked", count(10))]);
    }

    /// Admission counts what it refuses over HTTP in `refused` and in `http_refused`.
    #[test]
    fn a_request_refused_over_http_is_counted_once() {
        let mut sum = Summary::default();
        sum.refused_by_udp[UdpRefusal::Short as usize] = 1;
        sum.http_refused[HttpRefusal::PortValue as usize] = 10;
        sum.refused[Refusal::Blocked as usize] = 300;
        sum.http_refused[HttpRefusal::ALL.len() + Refusal::Blocked as usize] = 200;
        assert_eq!(sum.refused_in_all(), 311);
        let counted: Vec<_> = sum.only_refused().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("short", 1), ("port_value", 10), ("blocked", 300)]);
        let names: BTreeSet<_> = sum.refusals().map(|(name, _)| name).collect();
        assert_eq!(names.len(), sum.refusals().count());
    }

    #[test]
    fn values_above_all_bounds_belong_to_the_last_class() {
        let times = TurnTimes::default();
        for nanoseconds in [0, 1_024, 1_025, 1 << 30, (1 << 30) + 1, u64::MAX >> 1] {
            times.observe(nanoseconds);
        }
        let counts: Vec<(Option<u64>, u64)> = times.classes().collect();
        assert_eq!((counts[0], counts[1]), ((Some(1_024), 2), (Some(2_048), 1)));
        assert_eq!((counts[20], counts[21]), ((Some(1 << 30), 1), (None, 2)));
    }
}
