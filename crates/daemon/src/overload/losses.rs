//! Why the kernel dropped datagrams. At a socket it has one count, which does not tell a full
//! receive buffer from a wrong checksum that is found late or from a filter. Only the network
//! namespace has counts of the first two, over all processes.
//!
//! Drops at this process's sockets are attributed in order: up to the namespace's `RcvbufErrors` to
//! a full buffer, then up to `InCsumErrors` to checksums, the rest to the filter. As a full buffer
//! comes first, wrong checksums sent elsewhere on the host cannot hide losses. Each drop is counted
//! once, so that received and dropped datagrams together are those that arrived.

use std::fs;
use std::path::PathBuf;

use onrush_tracker::member::Member;

/// The warning where the counts of the namespace cannot be read.
pub const UNKNOWN: &str = "/proc/self/net/snmp cannot be read: datagrams with a wrong checksum \
                           count as lost, and the kernel's filter stays off under overload; make \
                           /proc readable for the tracker's user";
/// Seconds for which drops are attributed to counts of the namespace: a worker reads those of its
/// sockets up to 1.25 s apart, and later on a host that is short of CPU time.
const EXPLAINING_FOR: usize = 5;
/// Seconds after which unattributed drops count as lost for lack of room.
const UNEXPLAINED_FOR: u32 = 2;
/// Seconds for which counts may be unreadable, as without free descriptors, before the reasons of
/// drops are unknown.
const UNREAD_FOR: u32 = 10;
/// Seconds after the end of a filter in which drops may still be its own.
const FILTER_DROPS_FOR: u32 = 3;

/// Attributes the drops at sockets to their reasons, once a second.
#[derive(Debug)]
pub struct Losses {
    /// Directory of the namespace's counts.
    directory: PathBuf,
    last: Option<NamespaceCounts>,
    no_room: Unattributed,
    checksum: Unattributed,
    /// Attributed drops of each worker.
    divided: Vec<u64>,
    unexplained_for: u32,
    /// Seconds for which the counts of the namespace could not be read.
    unread_for: u32,
    /// Seconds for which drops may be the filter's.
    filtered_for: u32,
}

/// Drops that the namespace has counted in each of the last seconds, the latest first, and to which
/// no drop at the sockets of this process is attributed yet. They may be of another process; or a
/// worker reads the counts of its sockets later.
#[derive(Clone, Copy, Debug, Default)]
struct Unattributed([u64; EXPLAINING_FOR]);

impl Unattributed {
    /// Begins a second in which the namespace has counted `new` drops.
    fn add(&mut self, new: u64) {
        self.0.rotate_right(1);
        self.0[0] = new;
    }

    /// Takes at most `wanted`, the oldest first.
    fn take(&mut self, wanted: u64) -> u64 {
        let take = |taken, count: &mut u64| {
            let part = (*count).min(wanted - taken);
            *count -= part;
            taken + part
        };
        self.0.iter_mut().rev().fold(0, take)
    }
}

/// Datagrams that a network namespace has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamespaceCounts {
    no_room: u64,
    checksum: u64,
}

/// Drops by their reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reasons {
    no_room: u64,
    checksum: u64,
    filter: u64,
}

impl NamespaceCounts {
    /// Reads `snmp`, and `snmp6` where the host has IPv6.
    fn parse(snmp: &str, snmp6: Option<&str>) -> Option<Self> {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next()?, lines.next()?);
        let v4 = |name: &str| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|(known, _)| *known == name)?.1.parse::<u64>().ok()
        };
        let v6 = |name: &str| {
            let words = |line: &'_ str| -> Option<u64> {
                line.strip_prefix("Udp6")?.strip_prefix(name)?.trim().parse().ok()
            };
            snmp6.into_iter().flat_map(str::lines).find_map(words).unwrap_or(0)
        };
        // Kernels before 5.10 do not count the lack of memory of all sockets together.
        let memory = v4("MemErrors").unwrap_or(0) + v6("MemErrors");
        Some(Self {
            no_room: v4("RcvbufErrors")? + v6("RcvbufErrors") + memory,
            checksum: v4("InCsumErrors")? + v6("InCsumErrors"),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            no_room: self.no_room.saturating_sub(before.no_room),
            checksum: self.checksum.saturating_sub(before.checksum),
        }
    }
}

impl Losses {
    /// For this number of workers.
    pub fn new(workers: usize) -> Self {
        Self::of("/proc/self/net".into(), workers)
    }

    fn of(directory: PathBuf, workers: usize) -> Self {
        let mut losses = Self {
            directory,
            last: None,
            no_room: Unattributed::default(),
            checksum: Unattributed::default(),
            divided: vec![0; workers],
            unexplained_for: 0,
            unread_for: 0,
            filtered_for: 0,
        };
        losses.last = losses.read();
        losses
    }

    /// Whether the reasons are known. Otherwise every drop counts as lost for lack of room.
    pub fn are_known(&self) -> bool {
        self.last.is_some()
    }

    /// Call every second with all members, and whether they have a filter. Adds the new drops to
    /// the counter of their reason.
    pub fn tick(&mut self, members: &[Member], filtered: bool) {
        // Before the namespace's counts, which then include these drops.
        let drops: Vec<u64> =
            members.iter().map(|member| member.metrics.socket_drops.get()).collect();
        let now = self.read();
        for (reasons, member) in self.divide(&drops, now, filtered).iter().zip(members) {
            let metrics = &member.metrics;
            metrics.kernel_drops.add(reasons.no_room);
            metrics.checksum_errors.add(reasons.checksum);
            metrics.kernel_shed.add(reasons.filter);
        }
    }

    /// The reasons of each worker's new drops, from the drops since the start and the namespace's
    /// counts.
    fn divide(
        &mut self,
        drops: &[u64],
        now: Option<NamespaceCounts>,
        filtered: bool,
    ) -> Vec<Reasons> {
        self.filtered_for =
            if filtered { FILTER_DROPS_FOR } else { self.filtered_for.saturating_sub(1) };
        let new = |(drops, divided): (&u64, &u64)| drops.saturating_sub(*divided);
        let mut pending: Vec<u64> = drops.iter().zip(&self.divided).map(new).collect();
        let all: u64 = pending.iter().sum();
        self.unread_for = if now.is_some() { 0 } else { self.unread_for + 1 };
        let before = self.last;
        if now.is_some() || self.unread_for > UNREAD_FOR {
            self.last = now;
        }
        let sum = match (now, before) {
            (Some(now), Some(before)) => self.reasons(all, now.since(before)),
            // Divided once the counts can be read again.
            (None, Some(_)) => Reasons::default(),
            (_, None) => Reasons { no_room: all, ..Reasons::default() },
        };
        let [no_room, checksum, filter] =
            [sum.no_room, sum.checksum, sum.filter].map(|count| take_from(&mut pending, count));
        for ((divided, drops), pending) in self.divided.iter_mut().zip(drops).zip(pending) {
            *divided = drops - pending;
        }
        let of = |worker: usize| Reasons {
            no_room: no_room[worker],
            checksum: checksum[worker],
            filter: filter[worker],
        };
        (0..drops.len()).map(of).collect()
    }

    /// The reasons of `all` new drops, of which the namespace has `counted` some since the previous
    /// second.
    fn reasons(&mut self, all: u64, counted: NamespaceCounts) -> Reasons {
        self.no_room.add(counted.no_room);
        self.checksum.add(counted.checksum);
        let mut no_room = self.no_room.take(all);
        let checksum = self.checksum.take(all - no_room);
        let rest = all - no_room - checksum;
        if self.filtered_for > 0 || rest == 0 {
            self.unexplained_for = 0;
            return Reasons { no_room, checksum, filter: rest };
        }
        self.unexplained_for += 1;
        if self.unexplained_for > UNEXPLAINED_FOR {
            // Sockets of another namespace, for example.
            no_room += rest;
        }
        Reasons { no_room, checksum, filter: 0 }
    }

    fn read(&self) -> Option<NamespaceCounts> {
        let file = |name| fs::read_to_string(self.directory.join(name)).ok();
        NamespaceCounts::parse(&file("snmp")?, file("snmp6").as_deref())
    }
}

/// Takes `count`, at most their sum, from the pending drops in proportion. Returns each one's part.
fn take_from(pending: &mut [u64], count: u64) -> Vec<u64> {
    let all: u64 = pending.iter().sum();
    let (mut passed, mut given) = (0u64, 0u64);
    let part = |own: &mut u64| {
        passed += *own;
        let until = u128::from(count) * u128::from(passed) / u128::from(all.max(1));
        let part = until as u64 - given;
        given += part;
        *own -= part;
        part
    };
    pending.iter_mut().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use onrush_tracker::member::Role;
    use onrush_tracker::metrics::WorkerMetrics;
    use std::sync::Arc;

    /// Workers, and the counts of a namespace that the test writes.
    struct Fixture {
        directory: tempfile::TempDir,
        counts: NamespaceCounts,
        workers: Vec<Arc<WorkerMetrics>>,
        losses: Losses,
    }

    impl Fixture {
        fn new(workers: usize) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let counts = NamespaceCounts { no_room: 1_000, checksum: 2_000 };
            write(&directory, counts);
            let losses = Losses::of(directory.path().to_owned(), workers);
            let workers = (0..workers).map(|_| Arc::default()).collect();
            Self { directory, counts, workers, losses }
        }

        /// A second with these drops at the sockets, and as many counted in the namespace.
        fn second(&mut self, drops: &[u64], no_room: u64, checksum: u64, filtered: bool) {
            for (worker, drops) in self.workers.iter().zip(drops) {
                worker.socket_drops.add(*drops);
            }
            self.counts.no_room += no_room;
            self.counts.checksum += checksum;
            write(&self.directory, self.counts);
            self.tick(filtered);
        }

        fn tick(&mut self, filtered: bool) {
            let member = |worker: &Arc<WorkerMetrics>| Member::new(Role::Both, 0, worker.clone());
            let members: Vec<Member> = self.workers.iter().map(member).collect();
            self.losses.tick(&members, filtered);
        }

        /// No room, checksum and filter so far, of all workers.
        fn reasons(&self) -> (u64, u64, u64) {
            self.workers.iter().fold((0, 0, 0), |(room, checksum, shed), worker| {
                let (a, b) = (worker.kernel_drops.get(), worker.checksum_errors.get());
                (room + a, checksum + b, shed + worker.kernel_shed.get())
            })
        }
    }

    /// Half of each count is IPv6's.
    fn write(directory: &tempfile::TempDir, counts: NamespaceCounts) {
        let half = |count: u64| (count / 2, count - count / 2);
        let ((r4, r6), (c4, c6)) = (half(counts.no_room), half(counts.checksum));
        let snmp = format!(
            "Tcp: InErrs\nTcp: 3\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
             SndbufErrors InCsumErrors IgnoredMulti MemErrors\nUdp: 7 8 9 10 {r4} 11 {c4} 0 0\n"
        );
        let snmp6 = format!("Udp6RcvbufErrors \t0\nUdp6InCsumErrors\t{c6}\nUdp6MemErrors {r6}\n");
        fs::write(directory.path().join("snmp"), snmp).unwrap();
        fs::write(directory.path().join("snmp6"), snmp6).unwrap();
    }

    #[test]
    fn this_system_has_the_counts() {
        assert!(Losses::new(1).are_known());
    }

    #[test]
    fn checksum_errors_are_no_losses() {
        let mut fixture = Fixture::new(2);
        fixture.second(&[100, 0], 0, 100, false);
        assert_eq!(fixture.reasons(), (0, 100, 0));
        assert_eq!(fixture.workers[0].checksum_errors.get(), 100);
        // Beside real losses, in proportion.
        fixture.second(&[60, 20], 40, 40, false);
        assert_eq!(fixture.reasons(), (40, 140, 0));
        assert_eq!(fixture.workers[0].kernel_drops.get(), 30);
    }

    /// Wrong checksums at another socket of the host, or of a datagram that is too short to be
    /// counted at the socket, must not hide a loss.
    #[test]
    fn checksum_errors_elsewhere_hide_no_loss() {
        let mut fixture = Fixture::new(1);
        fixture.second(&[50], 50, 1_000_000, false);
        assert_eq!(fixture.reasons(), (50, 0, 0));
    }

    #[test]
    fn what_nothing_else_explains_was_filtered() {
        let mut fixture = Fixture::new(1);
        fixture.second(&[1_000], 30, 20, true);
        assert_eq!(fixture.reasons(), (30, 20, 950));
        // Read from the socket after the filter has ended.
        fixture.second(&[10], 0, 0, false);
        assert_eq!(fixture.reasons(), (30, 20, 960));
    }

    #[test]
    fn without_a_filter_the_unexplained_is_lost() {
        let mut fixture = Fixture::new(1);
        fixture.second(&[10], 0, 0, false);
        fixture.tick(false);
        assert_eq!(fixture.reasons(), (0, 0, 0));
        fixture.tick(false);
        assert_eq!(fixture.reasons(), (10, 0, 0));
        // As long as it goes on at once, so that it is pressure.
        fixture.second(&[7], 0, 0, false);
        assert_eq!(fixture.reasons(), (17, 0, 0));
        fixture.tick(false);
        fixture.second(&[5], 0, 0, false);
        assert_eq!(fixture.reasons(), (17, 0, 0));
    }

    /// The namespace's counts are read later than the sockets' and may be ahead of them.
    #[test]
    fn counts_of_the_previous_seconds_explain_drops() {
        let mut fixture = Fixture::new(1);
        fixture.second(&[0], 25, 5, false);
        (2..EXPLAINING_FOR).for_each(|_| fixture.second(&[0], 0, 0, false));
        fixture.second(&[30], 0, 0, false);
        assert_eq!(fixture.reasons(), (25, 5, 0));
        // Older ones were another process's.
        fixture.second(&[0], 25, 0, true);
        (1..EXPLAINING_FOR).for_each(|_| fixture.second(&[0], 0, 0, true));
        fixture.second(&[30], 0, 0, true);
        assert_eq!(fixture.reasons(), (25, 5, 30));
    }

    #[test]
    fn without_counts_every_drop_is_a_loss() {
        let mut fixture = Fixture::new(1);
        fs::remove_file(fixture.directory.path().join("snmp")).unwrap();
        fixture.workers[0].socket_drops.add(12);
        (0..UNREAD_FOR).for_each(|_| fixture.tick(true));
        assert!(fixture.losses.are_known());
        assert_eq!(fixture.reasons(), (0, 0, 0));
        fixture.tick(true);
        assert!(!fixture.losses.are_known());
        fixture.tick(true);
        assert_eq!(fixture.reasons(), (12, 0, 0));
    }

    #[test]
    fn counts_that_cannot_be_read_for_a_while_lose_no_reason() {
        let mut fixture = Fixture::new(1);
        let snmp = fixture.directory.path().join("snmp");
        fs::remove_file(&snmp).unwrap();
        fixture.workers[0].socket_drops.add(12);
        fixture.tick(true);
        fixture.second(&[8], 5, 7, true);
        assert_eq!(fixture.reasons(), (5, 7, 8));
    }

    proptest! {
        #[test]
        fn every_drop_is_counted_once(
            seconds in proptest::collection::vec(
                (any::<[u16; 3]>(), any::<u16>(), any::<u16>(), any::<bool>()), 1..40,
            ),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut losses = Losses::of(directory.path().to_owned(), 3);
            let (mut drops, mut reasons) = ([0; 3], [0; 3]);
            let mut counts = NamespaceCounts::default();
            let mut divide = |drops: &[u64], counts: NamespaceCounts, filtered| {
                let divided = losses.divide(drops, Some(counts), filtered);
                for (sum, new) in reasons.iter_mut().zip(divided) {
                    *sum += new.no_room + new.checksum + new.filter;
                }
            };
            for (new, no_room, checksum, filtered) in seconds {
                drops.iter_mut().zip(new).for_each(|(drops, new)| *drops += u64::from(new));
                counts.no_room += u64::from(no_room);
                counts.checksum += u64::from(checksum);
                divide(&drops, counts, filtered);
            }
            (0..FILTER_DROPS_FOR + UNEXPLAINED_FOR).for_each(|_| divide(&drops, counts, false));
            prop_assert_eq!(reasons, drops);
        }
    }
}
