//! Why the kernel dropped datagrams. At a socket it has one count, which does not tell a full
//! receive buffer from a wrong checksum that is found late or from a filter. Only the network
//! namespace has counts of the first two, over all processes.
//!
//! Drops at this process's sockets are attributed in order: up to the namespace's `RcvbufErrors` to
//! a full buffer, then up to `InCsumErrors` to checksums, the rest to the filter. As a full buffer
//! comes first, wrong checksums sent elsewhere on the host cannot hide losses. Each drop is counted
//! once, so that received and dropped datagrams together are those that arrived.
//!
//! All backends share the namespace's counts, so they share an attribution. Each reports its drops
//! once a second. The first one that reports again ends a round, in which the pending drops of all
//! are attributed and divided in proportion: a backend learns its reasons up to a second later.

#![expect(clippy::disallowed_types, reason = "a lock that each worker takes once a second")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::socket::Drops;

/// The warning where the counts of the namespace cannot be read.
pub const UNKNOWN: &str = "/proc/self/net/snmp cannot be read: datagrams with a wrong checksum \
                           count as lost, and the kernel's filter stays off under overload; make \
                           /proc readable for the tracker's user";
/// Rounds for which drops are attributed to counts of the namespace: a backend reports drops up to
/// 1.25 s after them, and later on a host that is short of CPU time.
const EXPLAINING_FOR: usize = 5;
/// Rounds after which unattributed drops count as lost for lack of room.
const UNEXPLAINED_FOR: u32 = 2;
/// Rounds for which counts may be unreadable, as without free descriptors, before the reasons of
/// drops are unknown.
const UNREAD_FOR: u32 = 10;
/// Rounds after the end of a filter in which drops may still be its own.
const FILTER_DROPS_FOR: u32 = 3;
/// Bytes reserved for each file of counts, so that no report allocates: Linux 6 writes half of it.
const FILE_BYTES: usize = 8 << 10;

/// The reasons of drops at the sockets of all [backends](super::Backend) that share it, as its
/// clones do.
#[derive(Clone, Debug)]
pub struct DropReasons(Arc<Mutex<Attribution>>);

impl DropReasons {
    /// Reads the counts of the namespace from `/proc/self/net`.
    pub fn of_namespace() -> Self {
        Self(Arc::new(Mutex::new(Attribution::of("/proc/self/net".as_ref()))))
    }

    /// Whether the reasons are known. Otherwise every drop counts as lost for lack of room.
    pub fn are_known(&self) -> bool {
        self.lock().last.is_some()
    }

    /// Adds a backend. Returns its number.
    pub(super) fn add_backend(&self) -> usize {
        let backends = &mut self.lock().backends;
        backends.push(Reported::default());
        backends.len() - 1
    }

    /// Call once a second with all drops so far at the sockets of a backend, and whether there is a
    /// filter. Returns the drops whose reasons are known by now.
    pub(super) fn report(&self, backend: usize, drops: u64, filtered: bool) -> Drops {
        self.lock().report(backend, drops, filtered)
    }

    /// A panic with the lock held leaves counts that are valid.
    fn lock(&self) -> MutexGuard<'_, Attribution> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attributes drops to their reasons, once in each round of reports.
#[derive(Debug)]
struct Attribution {
    /// `snmp` and `snmp6`, and their texts.
    files: [(PathBuf, String); 2],
    last: Option<NamespaceCounts>,
    full_buffer: Unattributed,
    checksum: Unattributed,
    backends: Vec<Reported>,
    unexplained_for: u32,
    /// Rounds for which the counts of the namespace could not be read.
    unread_for: u32,
    /// Rounds for which drops may be the filter's.
    filtered_for: u32,
}

/// The drops that a backend has reported.
#[derive(Debug, Default)]
struct Reported {
    /// All drops at its sockets as of the last report; `None` before the first.
    drops: Option<u64>,
    /// Those that are not attributed yet.
    pending: u64,
    attributed: Drops,
    filtered: bool,
    /// Whether it has reported in this round.
    in_round: bool,
}

/// Drops that the namespace has counted in each of the last rounds, the latest first, and to which
/// no drop at the sockets of this process is attributed yet. They may be of another process; or a
/// backend reports its drops later.
#[derive(Clone, Copy, Debug, Default)]
struct Unattributed([u64; EXPLAINING_FOR]);

impl Unattributed {
    /// Begins a round in which the namespace has counted `new` drops.
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
    full_buffer: u64,
    checksum: u64,
}

impl NamespaceCounts {
    /// Reads `snmp`, and `snmp6`, which is empty where the host has no IPv6.
    fn parse(snmp: &str, snmp6: &str) -> Option<Self> {
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
            snmp6.lines().find_map(words).unwrap_or(0)
        };
        // Kernels before 5.10 do not count the lack of memory of all sockets together.
        let memory = v4("MemErrors").unwrap_or(0) + v6("MemErrors");
        Some(Self {
            full_buffer: v4("RcvbufErrors")? + v6("RcvbufErrors") + memory,
            checksum: v4("InCsumErrors")? + v6("InCsumErrors"),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            full_buffer: self.full_buffer.saturating_sub(before.full_buffer),
            checksum: self.checksum.saturating_sub(before.checksum),
        }
    }
}

impl Attribution {
    fn of(directory: &Path) -> Self {
        let file = |name| (directory.join(name), String::with_capacity(FILE_BYTES));
        let mut attribution = Self {
            files: ["snmp", "snmp6"].map(file),
            last: None,
            full_buffer: Unattributed::default(),
            checksum: Unattributed::default(),
            backends: Vec::new(),
            unexplained_for: 0,
            unread_for: 0,
            filtered_for: 0,
        };
        attribution.last = attribution.read();
        attribution
    }

    fn report(&mut self, backend: usize, drops: u64, filtered: bool) -> Drops {
        let ends_round = self.backends[backend].in_round;
        self.add(backend, drops, filtered);
        if ends_round {
            // After the drops, which these counts of the namespace then include.
            let now = self.read();
            self.attribute(now);
        }
        let own = &mut self.backends[backend];
        own.in_round = true;
        own.attributed
    }

    /// Adds the new drops of a backend to those that are pending.
    fn add(&mut self, backend: usize, drops: u64, filtered: bool) {
        let own = &mut self.backends[backend];
        own.filtered = filtered;
        match own.drops.replace(drops) {
            Some(before) => own.pending += drops.saturating_sub(before),
            None => {
                // Those before the first report have no known reason, nor do their counts in the
                // namespace explain later ones.
                own.attributed.full_buffer = drops;
                self.last = self.read().or(self.last);
            }
        }
    }

    /// Attributes the pending drops of all backends by the namespace's counts, and begins a round.
    fn attribute(&mut self, now: Option<NamespaceCounts>) {
        let filtered = self.backends.iter().any(|backend| backend.filtered);
        self.filtered_for =
            if filtered { FILTER_DROPS_FOR } else { self.filtered_for.saturating_sub(1) };
        self.unread_for = if now.is_some() { 0 } else { self.unread_for + 1 };
        let before = self.last;
        if now.is_some() || self.unread_for > UNREAD_FOR {
            self.last = now;
        }
        let all = self.backends.iter().map(|backend| backend.pending).sum();
        let sum = match (now, before) {
            (Some(now), Some(before)) => self.reasons(all, now.since(before)),
            // Attributed once the counts can be read again.
            (None, Some(_)) => Drops::default(),
            (_, None) => Drops { full_buffer: all, ..Drops::default() },
        };
        self.divide(sum.full_buffer, |drops| &mut drops.full_buffer);
        self.divide(sum.checksum, |drops| &mut drops.checksum);
        self.divide(sum.filter, |drops| &mut drops.filter);
        self.backends.iter_mut().for_each(|backend| backend.in_round = false);
    }

    /// The reasons of `all` pending drops, of which the namespace has `counted` some since the
    /// previous round.
    fn reasons(&mut self, all: u64, counted: NamespaceCounts) -> Drops {
        self.full_buffer.add(counted.full_buffer);
        self.checksum.add(counted.checksum);
        let mut full_buffer = self.full_buffer.take(all);
        let checksum = self.checksum.take(all - full_buffer);
        let rest = all - full_buffer - checksum;
        if self.filtered_for > 0 || rest == 0 {
            self.unexplained_for = 0;
            return Drops { full_buffer, checksum, filter: rest };
        }
        self.unexplained_for += 1;
        if self.unexplained_for > UNEXPLAINED_FOR {
            // Sockets of another namespace, for example.
            full_buffer += rest;
        }
        Drops { full_buffer, checksum, filter: 0 }
    }

    /// Divides `count` drops of a reason, at most all that are pending, among the backends in
    /// proportion to their pending drops.
    fn divide(&mut self, count: u64, reason: fn(&mut Drops) -> &mut u64) {
        let all: u64 = self.backends.iter().map(|backend| backend.pending).sum();
        let (mut passed, mut given) = (0u64, 0u64);
        for backend in &mut self.backends {
            passed += backend.pending;
            let until = u128::from(count) * u128::from(passed) / u128::from(all.max(1));
            let part = until as u64 - given;
            given += part;
            backend.pending -= part;
            *reason(&mut backend.attributed) += part;
        }
    }

    /// The counts of the namespace. A file that cannot be read is as an empty one.
    fn read(&mut self) -> Option<NamespaceCounts> {
        for (path, text) in &mut self.files {
            text.clear();
            let _ = File::open(path).and_then(|mut file| file.read_to_string(text));
        }
        let [(_, snmp), (_, snmp6)] = &self.files;
        NamespaceCounts::parse(snmp, snmp6)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// Backends, and the counts of a namespace that the test writes.
    struct Fixture {
        directory: tempfile::TempDir,
        counts: NamespaceCounts,
        drops: Vec<u64>,
        attribution: Attribution,
    }

    impl Fixture {
        fn new(backends: usize) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let counts = NamespaceCounts { full_buffer: 1_000, checksum: 2_000 };
            write(&directory, counts);
            let mut attribution = Attribution::of(directory.path());
            attribution.backends.resize_with(backends, Reported::default);
            (0..backends).for_each(|backend| attribution.add(backend, 0, false));
            Self { directory, counts, drops: vec![0; backends], attribution }
        }

        /// A round with these drops at the sockets, and as many counted in the namespace.
        fn round(&mut self, drops: &[u64], full_buffer: u64, checksum: u64, filtered: bool) {
            self.drops.iter_mut().zip(drops).for_each(|(all, new)| *all += new);
            self.counts.full_buffer += full_buffer;
            self.counts.checksum += checksum;
            write(&self.directory, self.counts);
            self.attribute(filtered);
        }

        fn attribute(&mut self, filtered: bool) {
            for (backend, drops) in self.drops.iter().enumerate() {
                self.attribution.add(backend, *drops, filtered);
            }
            let now = self.attribution.read();
            self.attribution.attribute(now);
        }

        /// Full buffer, checksum and filter so far, of all backends.
        fn reasons(&self) -> (u64, u64, u64) {
            let attributed = self.attribution.backends.iter().map(|backend| backend.attributed);
            attributed.fold((0, 0, 0), |(buffer, checksum, filter), drops| {
                (buffer + drops.full_buffer, checksum + drops.checksum, filter + drops.filter)
            })
        }
    }

    /// Half of each count is IPv6's.
    fn write(directory: &tempfile::TempDir, counts: NamespaceCounts) {
        let half = |count: u64| (count / 2, count - count / 2);
        let ((r4, r6), (c4, c6)) = (half(counts.full_buffer), half(counts.checksum));
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
        assert!(DropReasons::of_namespace().are_known());
    }

    #[test]
    fn checksum_errors_are_no_losses() {
        let mut fixture = Fixture::new(2);
        fixture.round(&[100, 0], 0, 100, false);
        assert_eq!(fixture.reasons(), (0, 100, 0));
        assert_eq!(fixture.attribution.backends[0].attributed.checksum, 100);
        // Beside real losses, in proportion.
        fixture.round(&[60, 20], 40, 40, false);
        assert_eq!(fixture.reasons(), (40, 140, 0));
        assert_eq!(fixture.attribution.backends[0].attributed.full_buffer, 30);
    }

    /// Wrong checksums at another socket of the host, or of a datagram that is too short to be
    /// counted at the socket, must not hide a loss.
    #[test]
    fn checksum_errors_elsewhere_hide_no_loss() {
        let mut fixture = Fixture::new(1);
        fixture.round(&[50], 50, 1_000_000, false);
        assert_eq!(fixture.reasons(), (50, 0, 0));
    }

    #[test]
    fn what_nothing_else_explains_was_filtered() {
        let mut fixture = Fixture::new(1);
        fixture.round(&[1_000], 30, 20, true);
        assert_eq!(fixture.reasons(), (30, 20, 950));
        // Read from the socket after the filter has ended.
        fixture.round(&[10], 0, 0, false);
        assert_eq!(fixture.reasons(), (30, 20, 960));
    }

    #[test]
    fn without_a_filter_the_unexplained_is_lost() {
        let mut fixture = Fixture::new(1);
        fixture.round(&[10], 0, 0, false);
        fixture.attribute(false);
        assert_eq!(fixture.reasons(), (0, 0, 0));
        fixture.attribute(false);
        assert_eq!(fixture.reasons(), (10, 0, 0));
        // As long as it goes on at once, so that it is pressure.
        fixture.round(&[7], 0, 0, false);
        assert_eq!(fixture.reasons(), (17, 0, 0));
        fixture.attribute(false);
        fixture.round(&[5], 0, 0, false);
        assert_eq!(fixture.reasons(), (17, 0, 0));
    }

    /// The namespace's counts are read later than the sockets' and may be ahead of them.
    #[test]
    fn counts_of_the_previous_rounds_explain_drops() {
        let mut fixture = Fixture::new(1);
        fixture.round(&[0], 25, 5, false);
        (2..EXPLAINING_FOR).for_each(|_| fixture.round(&[0], 0, 0, false));
        fixture.round(&[30], 0, 0, false);
        assert_eq!(fixture.reasons(), (25, 5, 0));
        // Older ones were another process's.
        fixture.round(&[0], 25, 0, true);
        (1..EXPLAINING_FOR).for_each(|_| fixture.round(&[0], 0, 0, true));
        fixture.round(&[30], 0, 0, true);
        assert_eq!(fixture.reasons(), (25, 5, 30));
    }

    #[test]
    fn without_counts_every_drop_is_a_loss() {
        let mut fixture = Fixture::new(1);
        fs::remove_file(fixture.directory.path().join("snmp")).unwrap();
        fixture.drops[0] += 12;
        (0..UNREAD_FOR).for_each(|_| fixture.attribute(true));
        assert!(fixture.attribution.last.is_some());
        assert_eq!(fixture.reasons(), (0, 0, 0));
        fixture.attribute(true);
        assert!(fixture.attribution.last.is_none());
        fixture.attribute(true);
        assert_eq!(fixture.reasons(), (12, 0, 0));
    }

    #[test]
    fn counts_that_cannot_be_read_for_a_while_lose_no_reason() {
        let mut fixture = Fixture::new(1);
        let snmp = fixture.directory.path().join("snmp");
        fs::remove_file(&snmp).unwrap();
        fixture.drops[0] += 12;
        fixture.attribute(true);
        fixture.round(&[8], 5, 7, true);
        assert_eq!(fixture.reasons(), (5, 7, 8));
    }

    #[test]
    fn the_first_backend_that_reports_again_ends_a_round() {
        let mut fixture = Fixture::new(2);
        let counts = NamespaceCounts { full_buffer: 1_030, ..fixture.counts };
        let attribution = &mut fixture.attribution;
        let mut report = |backend, drops| attribution.report(backend, drops, false).all();
        assert_eq!((report(0, 0), report(1, 20)), (0, 0));
        write(&fixture.directory, counts);
        assert_eq!((report(0, 10), report(1, 20)), (10, 20));
        // The next round.
        assert_eq!((report(1, 20), report(0, 10)), (20, 10));
    }

    /// Workers load peers before they report for the first time.
    #[test]
    fn drops_before_the_first_report_and_their_counts_explain_no_later_ones() {
        let mut fixture = Fixture::new(0);
        fixture.counts.full_buffer += 500;
        write(&fixture.directory, fixture.counts);
        fixture.attribution.backends.push(Reported::default());
        let attribution = &mut fixture.attribution;
        let before = Drops { full_buffer: 300, ..Drops::default() };
        assert_eq!(attribution.report(0, 300, true), before);
        assert_eq!(attribution.report(0, 340, true), Drops { filter: 40, ..before });
    }

    proptest! {
        #[test]
        fn every_drop_is_counted_once(
            rounds in proptest::collection::vec(
                (any::<[u16; 3]>(), any::<u16>(), any::<u16>(), any::<bool>()), 1..40,
            ),
        ) {
            let mut attribution = Attribution::of("/nonexistent".as_ref());
            attribution.backends.resize_with(3, Reported::default);
            let (mut drops, mut counts) = ([0; 3], NamespaceCounts::default());
            attribution.last = Some(counts);
            let mut attribute = |drops: &[u64], counts: NamespaceCounts, filtered| {
                for (backend, drops) in drops.iter().enumerate() {
                    attribution.add(backend, *drops, filtered);
                }
                attribution.attribute(Some(counts));
                attribution.backends.iter().map(|own| own.attributed.all()).collect::<Vec<_>>()
            };
            attribute(&drops, counts, false);
            for (new, full_buffer, checksum, filtered) in rounds {
                drops.iter_mut().zip(new).for_each(|(drops, new)| *drops += u64::from(new));
                counts.full_buffer += u64::from(full_buffer);
                counts.checksum += u64::from(checksum);
                attribute(&drops, counts, filtered);
            }
            for _ in 0..FILTER_DROPS_FOR + UNEXPLAINED_FOR {
                attribute(&drops, counts, false);
            }
            prop_assert_eq!(attribute(&drops, counts, false), drops);
        }
    }
}
