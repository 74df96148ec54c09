//! The counts and measurements of a worker.

use std::ops::{Deref, DerefMut};

use onrush_net::{QueueReport, Sent};

use crate::check::{Finding, Right};
use crate::latency::{Latencies, Nanos};
use crate::plan::Kind;

/// Examples kept of each finding.
const EXAMPLES: usize = 3;
/// Bytes kept of an example.
const EXAMPLE_BYTES: usize = 160;

/// One worker's counts over the measured window; those of several workers add up.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Per [`Kind`].
    pub kinds: [OfKind; 5],
    /// Replies per [`Finding`].
    pub findings: PerFinding,
    /// Replies received after their request had expired.
    pub late: u64,
    /// Right replies received within the measured window, whenever their request was sent.
    pub right_in_window: u64,
    /// Bytes of all replies received within the measured window.
    pub bytes_in_window: u64,
    /// Peers listed in right announce replies.
    pub peers: u64,
    /// Listed peers that were checked.
    pub peers_checked: u64,
    /// The kernel's results of sending.
    pub sent: Sent,
    /// Open loop: nanoseconds from the due time of a request to its sending; the delay of a burst
    /// is that of its first request.
    pub behind: Latencies,
    /// Open loop: requests that were due within the window and never sent.
    pub unsent: u64,
    /// Open loop: number of bursts since the start of the window that waited at the limit of
    /// requests in flight.
    pub no_room: u64,
    /// Counts of the queues of a network interface.
    pub queues: Vec<QueueTally>,
    /// Counts that only loads over HTTP and WebSocket have.
    pub connections: Option<Box<ConnectionTally>>,
    /// Counts that only loads over HTTP have.
    pub http: Option<Box<HttpTally>>,
    /// Counts that only loads over WebSocket have.
    pub ws: Option<Box<WsTally>>,
}

/// Counts of a queue of a network interface, from warm-up to drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QueueTally {
    /// Its number.
    pub queue: u32,
    /// Replies received.
    pub received: u64,
    /// Requests added to its transmit ring.
    pub sent: u64,
    /// Requests for which it had no room.
    pub blocked: u64,
    /// Frames dropped: by the kernel, as a ring was full, or as they are no reply.
    pub dropped: u64,
}

impl QueueTally {
    /// The counts of a backend.
    pub fn new(report: &QueueReport<'_>) -> Self {
        let counts = &report.counts;
        Self {
            queue: report.queue,
            received: counts.received,
            sent: counts.sent,
            blocked: counts.blocked,
            dropped: counts.full + counts.checksum + counts.invalid + counts.unserved,
        }
    }
}

/// Counts of the connections that were opened, or have failed, within the window.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTally {
    /// Nanoseconds until a connection was open, with its handshakes.
    pub handshake: Latencies,
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that failed: none was opened, or it broke.
    pub failed: u64,
    /// Why the first connection failed.
    pub failure: Option<String>,
}

impl ConnectionTally {
    fn add(&mut self, other: &Self) {
        self.handshake.add(&other.handshake);
        self.opened += other.opened;
        self.failed += other.failed;
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }
}

/// Counts over HTTP within the window.
#[derive(Clone, Debug, Default)]
pub struct HttpTally {
    /// Nanoseconds from sending (open loop: from the due time) to the first byte of a reply.
    pub first_byte: Latencies,
    /// Handshakes of TLS that resumed a session.
    pub resumed: u64,
    /// Requests that are lost because the tracker asked to try later (BEP 31).
    pub deferred: u64,
}

impl HttpTally {
    fn add(&mut self, other: &Self) {
        self.first_byte.add(&other.first_byte);
        self.resumed += other.resumed;
        self.deferred += other.deferred;
    }
}

/// Counts over WebSocket within the window.
#[derive(Clone, Debug, Default)]
pub struct WsTally {
    /// Messages sent and received.
    pub messages: [u64; 2],
    /// Connections that the load tester has ended.
    pub disconnected: u64,
    /// Offers, by when they were sent.
    pub offers: Exchanged,
    /// Answers, by when the offer was sent.
    pub answers: Exchanged,
    /// Connections that are held, and nanoseconds until the last of them was open.
    pub held: (u64, Nanos),
}

/// Counts of offers or answers.
#[derive(Clone, Debug, Default)]
pub struct Exchanged {
    /// Those that were sent.
    pub sent: u64,
    /// Those that a tracker should deliver.
    pub due: u64,
    /// Those that arrived right, within the timeout.
    pub arrived: u64,
    /// Those that arrived right, but later.
    pub late: u64,
    /// Nanoseconds from the offer to the arrival within the timeout.
    pub latency: Latencies,
}

impl WsTally {
    fn add(&mut self, other: &Self) {
        self.messages.iter_mut().zip(other.messages).for_each(|(mine, theirs)| *mine += theirs);
        self.disconnected += other.disconnected;
        self.offers.add(&other.offers);
        self.answers.add(&other.answers);
        self.held = (self.held.0 + other.held.0, self.held.1.max(other.held.1));
    }
}

impl Exchanged {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.due += other.due;
        self.arrived += other.arrived;
        self.late += other.late;
        self.latency.add(&other.latency);
    }
}

/// Counts of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct OfKind {
    /// Requests of the window.
    pub requests: u64,
    /// Requests that repeat a lost one.
    pub repeats: u64,
    /// Right replies.
    pub right: u64,
    /// Wrong replies.
    pub wrong: u64,
    /// Lost requests.
    pub lost: u64,
    /// Nanoseconds from sending (open loop: from the due time) to the reply.
    pub latency: Latencies,
}

/// Replies with one finding.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// Counts and examples of each finding, in the order of [`Finding::ALL`].
#[derive(Clone, Debug)]
pub struct PerFinding([Found; Finding::ALL.len()]);

impl Default for PerFinding {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Found::default()))
    }
}

impl Deref for PerFinding {
    type Target = [Found];

    fn deref(&self) -> &[Found] {
        &self.0
    }
}

impl DerefMut for PerFinding {
    fn deref_mut(&mut self) -> &mut [Found] {
        &mut self.0
    }
}

/// A reply with a finding, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Example {
    /// The request.
    pub asked: String,
    /// The first bytes of the reply.
    pub reply: String,
    /// The length of the reply in bytes.
    pub len: usize,
}

impl Tally {
    /// Counts a right reply.
    #[inline]
    pub fn right(&mut self, kind: Kind, latency: Nanos, right: &Right) {
        let of_kind = &mut self.kinds[kind as usize];
        of_kind.right += 1;
        of_kind.latency.0.saturating_record(latency);
        self.peers += u64::from(right.peers);
        self.peers_checked += u64::from(right.peers_checked);
    }

    /// Counts a finding. `asked` is called for the examples only.
    #[cold]
    pub fn finding(&mut self, finding: Finding, reply: &[u8], asked: impl FnOnce() -> String) {
        let found = &mut self.findings[finding as usize];
        found.count += 1;
        if found.examples.len() < EXAMPLES {
            let shown = &reply[..reply.len().min(EXAMPLE_BYTES)];
            let reply_hex = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            found.examples.push(Example { asked: asked(), reply: reply_hex, len: reply.len() });
        }
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.requests += theirs.requests;
            mine.repeats += theirs.repeats;
            mine.right += theirs.right;
            mine.wrong += theirs.wrong;
            mine.lost += theirs.lost;
            mine.latency.add(&theirs.latency);
        }
        for (mine, theirs) in self.findings.iter_mut().zip(&*other.findings) {
            mine.count += theirs.count;
            let room = EXAMPLES - mine.examples.len().min(EXAMPLES);
            mine.examples.extend(theirs.examples.iter().take(room).cloned());
        }
        self.late += other.late;
        self.right_in_window += other.right_in_window;
        self.bytes_in_window += other.bytes_in_window;
        self.peers += other.peers;
        self.peers_checked += other.peers_checked;
        self.sent += other.sent;
        self.behind.add(&other.behind);
        self.unsent += other.unsent;
        self.no_room += other.no_room;
        self.queues.extend_from_slice(&other.queues);
        if let Some(other) = &other.connections {
            self.connections.get_or_insert_default().add(other);
        }
        if let Some(other) = &other.http {
            self.http.get_or_insert_default().add(other);
        }
        if let Some(other) = &other.ws {
            self.ws.get_or_insert_default().add(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tally {
        /// Replies with findings that count as wrong; with `strict` those that the BEPs leave open
        /// count as well.
        pub(crate) fn wrong(&self, strict: bool) -> u64 {
            let all = Finding::ALL.iter().zip(&*self.findings);
            let counted = all.filter(|((finding, _), _)| strict || !finding.is_open());
            counted.map(|(_, found)| found.count).sum()
        }
    }

    #[test]
    fn tallies_add_up() {
        let right = Right { connection_id: None, peers: 5, peers_checked: 3, differs: None };
        let mut one = Tally::default();
        one.right(Kind::Announce, 2_000_000, &right);
        one.finding(Finding::Layout, &[1, 2], || "one".into());
        let mut two = Tally::default();
        two.right(Kind::Announce, 4_000_000, &right);
        for _ in 0..5 {
            two.finding(Finding::Layout, &[0xAB; 300], || "two".into());
        }
        two.finding(Finding::ZeroInterval, &[], || "two".into());
        one.add(&two);
        let announces = &one.kinds[Kind::Announce as usize];
        assert_eq!((announces.right, announces.latency.0.len()), (2, 2));
        assert_eq!((one.peers, one.peers_checked), (10, 6));
        assert_eq!((one.wrong(false), one.wrong(true)), (6, 7));
        let found = &one.findings[Finding::Layout as usize];
        assert_eq!(found.examples.len(), 3);
        assert_eq!((found.examples[0].reply.as_str(), found.examples[1].len), ("0102", 300));
        assert_eq!(found.examples[1].reply.len(), 2 * EXAMPLE_BYTES);
    }

    #[test]
    fn findings_are_counted_at_their_own_place() {
        for (n, (finding, _)) in Finding::ALL.into_iter().enumerate() {
            assert_eq!(finding as usize, n);
        }
        for (n, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, n);
        }
    }
}
