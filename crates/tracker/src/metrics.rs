//! What is counted. Each worker has a block of its own, which it alone writes and anybody reads.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use onrush_proto::{Event, Family};
use onrush_swarm::{SwarmsByFamily, Totals};

use crate::clients;
use crate::refusal::{Refusal, UdpRefusal};

/// A number that one thread writes and others read. Without a locked instruction: two writers
/// would lose counts, so each worker has its own.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owner may.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Replaces; only the owner may.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Reads.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter for each address family.
#[derive(Debug, Default)]
pub struct ByFamily<T> {
    /// IPv4.
    pub v4: T,
    /// IPv6.
    pub v6: T,
}

impl<T> ByFamily<T> {
    /// The one of `family`.
    #[inline]
    pub fn of(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

/// How often values of each size were seen: classes that double, the first up to 2^`SHIFT`, the last without
/// an end.
#[derive(Debug)]
pub struct Histogram<const SHIFT: u32, const CLASSES: usize> {
    classes: [Counter; CLASSES],
    sum: Counter,
}

impl<const SHIFT: u32, const CLASSES: usize> Histogram<SHIFT, CLASSES> {
    /// Counts a value; only the owner may.
    #[inline]
    pub fn observe(&self, value: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        let class = (bits.saturating_sub(SHIFT) as usize).min(CLASSES - 1);
        self.classes[class].add(1);
        self.sum.add(value);
    }

    /// All values together.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Each class: the greatest value in it (the last has none) and how many there were.
    pub fn classes(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let last = CLASSES - 1;
        let most = move |class| (class < last).then(|| 1u64 << (SHIFT as usize + class));
        self.classes.iter().enumerate().map(move |(class, count)| (most(class), count.get()))
    }
}

impl<const SHIFT: u32, const CLASSES: usize> Default for Histogram<SHIFT, CLASSES> {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

/// Nanoseconds of turns: up to 1 us, 2 us, ... 1.07 s, and beyond.
pub type TurnTimes = Histogram<10, 22>;

/// Datagrams in a batch: 1, 2, 4, ... 1024, which is the most that there may be.
pub type BatchSizes = Histogram<0, 12>;

/// What came in over one family.
#[derive(Debug, Default)]
pub struct Incoming {
    /// Datagrams.
    pub datagrams: Counter,
    /// Their payload bytes.
    pub bytes: Counter,
    /// Connects that were answered.
    pub connects: Counter,
    /// Announces that passed every check. One that is then dropped for want of room counts here
    /// and as [`Refusal::Busy`].
    pub announces: Counter,
    /// Scrapes that passed every check; the same holds for them.
    pub scrapes: Counter,
    /// Refusals that any front has, indexed by `Refusal as usize`.
    pub refused: [Counter; Refusal::ALL.len()],
    /// Refusals that only UDP has, indexed by `UdpRefusal as usize`.
    pub refused_by_udp: [Counter; UdpRefusal::ALL.len()],
    /// Announces by event, indexed as [`event_index`] says.
    pub events: [Counter; EVENTS.len()],
    /// Announces of peers that cannot accept connections (port 1).
    pub unconnectable: Counter,
    /// Replies that were handed to the kernel, whether it took them or not, in the order of [`REPLIES`].
    pub replies: [Counter; REPLIES.len()],
    /// Announces by the client's software, one looked at in [`clients::SAMPLE`].
    pub clients: ClientCounts,
}

impl Incoming {
    /// Every reason to refuse by name, with its count.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        named_refusals(&self.refused_by_udp, &self.refused).map(|(name, count)| (name, count.get()))
    }
}

fn named_refusals<'a, T>(
    by_udp: &'a [T; UdpRefusal::ALL.len()],
    by_any: &'a [T; Refusal::ALL.len()],
) -> impl Iterator<Item = (&'static str, &'a T)> {
    let by_udp = UdpRefusal::ALL.iter().map(|refusal| refusal.name()).zip(by_udp);
    by_udp.chain(Refusal::ALL.iter().map(|refusal| refusal.name()).zip(by_any))
}

/// A counter for each kind of software in [`clients::NAMES`].
#[derive(Debug)]
pub struct ClientCounts(pub [Counter; clients::NAMES.len()]);

impl Default for ClientCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// The events in the order of their counters.
pub const EVENTS: [Event; 5] =
    [Event::None, Event::Completed, Event::Started, Event::Stopped, Event::Paused];

/// Kinds of replies, in the order of their counters: by their action on the wire (BEP 15).
pub const REPLIES: [&str; 4] = ["connect", "announce", "scrape", "error"];

/// The place of an event in [`EVENTS`].
#[inline]
pub const fn event_index(event: Event) -> usize {
    event.to_wire() as usize
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    /// By address family, as the client speaks it.
    pub incoming: ByFamily<Incoming>,
    /// Datagrams that the kernel took.
    pub sent: Counter,
    /// Their payload bytes.
    pub sent_bytes: Counter,
    /// Replies dropped because a send buffer was full.
    pub send_blocked: Counter,
    /// Replies that the kernel refused for another reason.
    pub send_failed: Counter,
    /// System calls for sending.
    pub send_calls: Counter,
    /// Datagrams dropped by the kernel before they could be received.
    pub kernel_drops: Counter,
    /// Batches received, by the datagrams in them; empty ones do not count.
    pub receives: BatchSizes,
    /// Bytes of the receive buffers of its sockets, as the kernel counts them; set before it starts.
    pub receive_buffer: Counter,
    /// The same of the send buffers.
    pub send_buffer: Counter,
    /// Requests sent over a lane to another worker although this one has a shard: steering works
    /// when there are few.
    pub foreign: Counter,
    /// Requests served by this worker's own shard without a lane.
    pub local: Counter,
    /// Batches that a full lane did not take.
    pub lane_full: Counter,
    /// Requests of other members that this worker served after the member had exited: they get no
    /// reply.
    pub orphaned: Counter,
    /// Turns taken: a worker that stands still stops counting.
    pub turns: Counter,
    /// How long the turns took that had something to do.
    pub turn_times: TurnTimes,
    /// This worker's shard, if it has one.
    pub shard: ShardGauges,
}

/// The state of one shard. Its worker refreshes these once a second at most, so they may be a second
/// behind the counters.
#[derive(Debug, Default)]
pub struct ShardGauges {
    /// Swarms with peers.
    pub swarms: Counter,
    /// Swarms with IPv4 peers, as the last pass of expiry met them; 0 before the first has ended.
    pub swarms_v4: Counter,
    /// Swarms with IPv6 peers, likewise.
    pub swarms_v6: Counter,
    /// Swarms without peers, kept for their `completed`.
    pub idle_swarms: Counter,
    /// Peers over IPv4.
    pub peers_v4: Counter,
    /// Peers over IPv6.
    pub peers_v6: Counter,
    /// Seeders among the peers over IPv4.
    pub seeders_v4: Counter,
    /// Seeders among the peers over IPv6.
    pub seeders_v6: Counter,
    /// Peers that have completed.
    pub completed: Counter,
    /// Announcers not stored because the shard is full.
    pub refused_full: Counter,
    /// Peers forgotten because they did not announce again.
    pub expired: Counter,
    /// Swarms without peers that were forgotten before their time, for want of room.
    pub idle_evicted: Counter,
    /// Entries that were looked at for expiry.
    pub swept: Counter,
    /// Times that all of them were.
    pub sweep_passes: Counter,
    /// Entries that should have been looked at by now and were not yet.
    pub sweep_debt: Counter,
}

impl ShardGauges {
    /// Swarms by family, once a pass has met them all.
    pub fn by_family(&self) -> Option<SwarmsByFamily> {
        let known = self.sweep_passes.get() > 0;
        known.then(|| SwarmsByFamily { v4: self.swarms_v4.get(), v6: self.swarms_v6.get() })
    }

    /// Takes over what a shard says of itself.
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
        self.expired.set(totals.expired);
        self.idle_evicted.set(totals.idle_evicted);
    }
}

/// A reading of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Datagrams received.
    pub datagrams: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Connects answered.
    pub connects: u64,
    /// Announces accepted.
    pub announces: u64,
    /// Scrapes accepted.
    pub scrapes: u64,
    /// Refusals that any front has, indexed by `Refusal as usize`.
    pub refused: [u64; Refusal::ALL.len()],
    /// Refusals that only UDP has, indexed by `UdpRefusal as usize`.
    pub refused_by_udp: [u64; UdpRefusal::ALL.len()],
    /// Announces by event, in the order of [`EVENTS`].
    pub events: [u64; EVENTS.len()],
    /// Announces of peers that cannot accept connections.
    pub unconnectable: u64,
    /// Replies sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Replies not sent.
    pub send_dropped: u64,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
    /// Requests that met their shard over a lane although their worker has one.
    pub foreign: u64,
    /// Requests that met their shard on their own worker.
    pub local: u64,
    /// Batches that a full lane did not take.
    pub lane_full: u64,
    /// Swarms with peers.
    pub swarms: u64,
    /// Swarms without peers.
    pub idle_swarms: u64,
    /// Peers over IPv4.
    pub peers_v4: u64,
    /// Peers over IPv6.
    pub peers_v6: u64,
    /// Seeders.
    pub seeders: u64,
    /// Completions.
    pub completed: u64,
    /// Announcers not stored because of the ceiling.
    pub refused_full: u64,
    /// Peers that expired.
    pub expired: u64,
}

impl Summary {
    /// Reads all workers.
    pub fn of<'a>(workers: impl IntoIterator<Item = &'a WorkerMetrics>) -> Self {
        let mut sum = Self::default();
        for worker in workers {
            sum += worker;
        }
        sum
    }

    /// All refusals together.
    pub fn refused_in_all(&self) -> u64 {
        self.refusals().map(|(_, count)| count).sum()
    }

    /// Every reason to refuse by name, with its count.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        named_refusals(&self.refused_by_udp, &self.refused).map(|(name, count)| (name, *count))
    }

    /// The refusals for one reason.
    pub fn refused_for(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize]
    }
}

impl AddAssign<&WorkerMetrics> for Summary {
    fn add_assign(&mut self, worker: &WorkerMetrics) {
        for incoming in [&worker.incoming.v4, &worker.incoming.v6] {
            self.datagrams += incoming.datagrams.get();
            self.bytes += incoming.bytes.get();
            self.connects += incoming.connects.get();
            self.announces += incoming.announces.get();
            self.scrapes += incoming.scrapes.get();
            self.unconnectable += incoming.unconnectable.get();
            add_each(&mut self.refused, &incoming.refused);
            add_each(&mut self.refused_by_udp, &incoming.refused_by_udp);
            add_each(&mut self.events, &incoming.events);
        }
        self.sent += worker.sent.get();
        self.sent_bytes += worker.sent_bytes.get();
        self.send_dropped += worker.send_blocked.get() + worker.send_failed.get();
        self.kernel_drops += worker.kernel_drops.get();
        self.foreign += worker.foreign.get();
        self.local += worker.local.get();
        self.lane_full += worker.lane_full.get();
        self.swarms += worker.shard.swarms.get();
        self.idle_swarms += worker.shard.idle_swarms.get();
        self.peers_v4 += worker.shard.peers_v4.get();
        self.peers_v6 += worker.shard.peers_v6.get();
        self.seeders += worker.shard.seeders_v4.get() + worker.shard.seeders_v6.get();
        self.completed += worker.shard.completed.get();
        self.refused_full += worker.shard.refused_full.get();
        self.expired += worker.shard.expired.get();
    }
}

fn add_each<const N: usize>(sums: &mut [u64; N], counters: &[Counter; N]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum += counter.get();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_class_that_ends_at_or_above_it() {
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
    fn what_is_longer_than_all_classes_is_in_the_last() {
        let times = TurnTimes::default();
        for nanoseconds in [0, 1_024, 1_025, 1 << 30, (1 << 30) + 1, u64::MAX >> 1] {
            times.observe(nanoseconds);
        }
        let counts: Vec<(Option<u64>, u64)> = times.classes().collect();
        assert_eq!((counts[0], counts[1]), ((Some(1_024), 2), (Some(2_048), 1)));
        assert_eq!((counts[20], counts[21]), ((Some(1 << 30), 1), (None, 2)));
    }
}
