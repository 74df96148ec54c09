//! Requests in flight: a table of fixed size, indexed by transaction id.
//!
//! ```text
//! transaction id, before it is masked with a key
//! +---------------------+---+------------------+
//! | generation          | x | index            |     x: 1 for requests without an expected reply
//! +---------------------+---+------------------+
//! ```
//!
//! An index is reused as late as possible, with its next generation. So a reply that matches no
//! open request is a late one, a second one, or one to a request that was never sent.

use onrush_proto::TransactionId;

use crate::check::Finding;
use crate::plan::PlannedRequest;
use crate::worker::Nanos;

/// Number of earlier generations whose replies count as late ones.
const LATE_GENERATIONS: u32 = 64;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The request.
    pub request: PlannedRequest,
    /// When it was sent (closed loop) or due (open loop).
    pub sent: Nanos,
    /// When it counts as lost.
    pub deadline: Nanos,
    /// The number of its [`Route`](super::Route).
    pub route: u32,
    /// Number of earlier sends.
    pub tries: u8,
}

/// The match of a reply's transaction id.
#[derive(Clone, Copy, Debug)]
pub enum ReplyMatch {
    /// A request in flight.
    Open(Pending),
    /// An expired request.
    Late,
    /// An answered request, one that deserves silence, or none that was sent.
    Wrong(Finding),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Answered,
    Expired,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    pending: Pending,
    generation: u32,
    state: State,
}

/// The table of requests in flight.
#[derive(Debug)]
pub struct Flight {
    /// A power of two.
    entries: Box<[Entry]>,
    /// A ring of as many indices: from `taken` on, `room` of them are free, the oldest first.
    free: Box<[u32]>,
    taken: u32,
    room: u32,
    index_bits: u32,
    mask: u32,
    /// Number of requests without an expected reply, each with a transaction id of its own.
    silent: u64,
    /// Next entry of the search for overdue requests.
    cursor: usize,
}

impl Flight {
    /// A table for `capacity` requests (rounded up to a power of two; 1 to 2^20). Transaction ids
    /// are XORed with `mask`.
    pub fn new(capacity: usize, mask: u32) -> Self {
        let capacity = capacity.clamp(1, 1 << 20).next_power_of_two();
        let nothing =
            Pending { request: PlannedRequest::Connect, sent: 0, deadline: 0, route: 0, tries: 0 };
        let entry = Entry { pending: nothing, generation: 0, state: State::Free };
        Self {
            entries: vec![entry; capacity].into(),
            free: (0..capacity as u32).collect(),
            taken: 0,
            room: capacity as u32,
            index_bits: capacity.trailing_zeros() + 1,
            mask,
            silent: 0,
            cursor: 0,
        }
    }

    /// Requests in flight.
    pub fn len(&self) -> usize {
        self.entries.len() - self.room()
    }

    /// Whether no request is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of free entries.
    pub fn room(&self) -> usize {
        self.room as usize
    }

    /// Adds a request and returns its transaction id; `None` when the table is full.
    #[inline]
    pub fn open(&mut self, pending: Pending) -> Option<TransactionId> {
        self.room = self.room.checked_sub(1)?;
        let index = self.free[self.taken as usize & (self.free.len() - 1)];
        self.taken = self.taken.wrapping_add(1);
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.pending = pending;
        entry.state = State::Open;
        let id = entry.generation << self.index_bits | index;
        Some(TransactionId(id ^ self.mask))
    }

    /// A transaction id for a request that deserves silence.
    pub fn silent(&mut self) -> TransactionId {
        self.silent += 1;
        let capacity = self.entries.len() as u32;
        let index = self.silent as u32 & (capacity - 1) | capacity;
        let generation = (self.silent / u64::from(capacity)) as u32;
        TransactionId((generation << self.index_bits | index) ^ self.mask)
    }

    /// Sets when a request was sent, and its deadline.
    #[inline]
    pub fn stamp(&mut self, transaction: TransactionId, sent: Nanos, deadline: Nanos) {
        let index = (transaction.0 ^ self.mask) & ((1 << self.index_bits) - 1);
        let entry = &mut self.entries[index as usize];
        entry.pending.sent = sent;
        entry.pending.deadline = deadline;
    }

    /// Matches a reply with its request and closes the request.
    #[inline]
    pub fn close(&mut self, transaction: TransactionId) -> ReplyMatch {
        let id = transaction.0 ^ self.mask;
        let index = id & ((1 << self.index_bits) - 1);
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return self.silenced(id);
        };
        // Compared in the bits of the generation that a transaction id holds.
        let age = entry.generation.wrapping_sub(id >> self.index_bits) << self.index_bits
            >> self.index_bits;
        match (age, entry.state) {
            (0, State::Open) => {
                entry.state = State::Answered;
                let pending = entry.pending;
                self.give_back(index);
                ReplyMatch::Open(pending)
            }
            (0, State::Answered) => ReplyMatch::Wrong(Finding::AnsweredTwice),
            (0, State::Expired) => ReplyMatch::Late,
            (1..=LATE_GENERATIONS, _) if age < entry.generation => ReplyMatch::Late,
            _ => ReplyMatch::Wrong(Finding::UnknownTransaction),
        }
    }

    /// The match of an unmasked id that [`silent`](Self::silent) has returned, if it has.
    #[cold]
    fn silenced(&self, id: u32) -> ReplyMatch {
        let capacity = self.entries.len() as u64;
        let number = u64::from(id >> self.index_bits) * capacity + (u64::from(id) & (capacity - 1));
        ReplyMatch::Wrong(match (1..=self.silent).contains(&number) {
            true => Finding::NotSilent,
            false => Finding::UnknownTransaction,
        })
    }

    /// Expires the next entry of the search if it is overdue at `now`.
    #[inline]
    pub fn expire_next(&mut self, now: Nanos) -> Option<Pending> {
        let index = self.cursor;
        self.cursor = (index + 1) & (self.entries.len() - 1);
        let entry = &mut self.entries[index];
        if entry.state != State::Open || entry.pending.deadline > now {
            return None;
        }
        entry.state = State::Expired;
        let pending = entry.pending;
        self.give_back(index as u32);
        Some(pending)
    }

    /// Appends an index to the free ones; the ring has a place for each index.
    #[inline]
    fn give_back(&mut self, index: u32) {
        let end = self.taken.wrapping_add(self.room) as usize & (self.free.len() - 1);
        self.free[end] = index;
        self.room += 1;
    }

    /// Number of entries, free or not.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(sent: Nanos) -> Pending {
        Pending { request: PlannedRequest::Connect, sent, deadline: sent + 100, route: 3, tries: 0 }
    }

    #[test]
    fn a_reply_closes_its_request_once() {
        let mut flight = Flight::new(4, 0xABCD_EF01);
        let id = flight.open(pending(7)).unwrap();
        assert!(matches!(flight.close(id), ReplyMatch::Open(Pending { sent: 7, route: 3, .. })));
        assert!(matches!(flight.close(id), ReplyMatch::Wrong(Finding::AnsweredTwice)));
        assert!(flight.is_empty());
    }

    #[test]
    fn replies_to_expired_requests_are_late() {
        let mut flight = Flight::new(4, 5);
        let id = flight.open(pending(0)).unwrap();
        let mut lost = |now| (0..4).filter_map(|_| flight.expire_next(now)).count();
        assert_eq!((lost(99), lost(100), lost(101)), (0, 1, 0));
        assert!(matches!(flight.close(id), ReplyMatch::Late));
        for _ in 0..8 {
            let next = flight.open(pending(0)).unwrap();
            flight.close(next);
        }
        assert!(
            matches!(flight.close(id), ReplyMatch::Late),
            "late still, under later generations"
        );
    }

    #[test]
    fn unsent_requests_are_unknown() {
        let mut flight = Flight::new(4, 5);
        let id = flight.open(pending(0)).unwrap();
        let next_generation = TransactionId((id.0 ^ 5).wrapping_add(1 << 3) ^ 5);
        assert!(matches!(
            flight.close(next_generation),
            ReplyMatch::Wrong(Finding::UnknownTransaction)
        ));
        assert!(matches!(
            flight.close(TransactionId(2 ^ 5)),
            ReplyMatch::Wrong(Finding::UnknownTransaction)
        ));
        assert!(matches!(flight.close(id), ReplyMatch::Open(_)));
    }

    #[test]
    fn requests_that_deserve_silence_have_their_own_ids() {
        let mut flight = Flight::new(4, 5);
        let ids: Vec<_> = (0..9).map(|_| flight.silent()).collect();
        for (n, id) in ids.iter().enumerate() {
            assert!(matches!(flight.close(*id), ReplyMatch::Wrong(Finding::NotSilent)));
            assert!(!ids[..n].contains(id));
        }
        // The next id has not been used yet.
        let next = flight.silent();
        flight.silent -= 1;
        assert!(matches!(flight.close(next), ReplyMatch::Wrong(Finding::UnknownTransaction)));
        assert!(
            matches!(
                flight.close(TransactionId(4 ^ 5)),
                ReplyMatch::Wrong(Finding::UnknownTransaction)
            ),
            "number 0"
        );
    }

    #[test]
    fn a_full_table_takes_no_request() {
        let mut flight = Flight::new(4, 0);
        let ids: Vec<_> = (0..4).map(|_| flight.open(pending(0)).unwrap()).collect();
        assert!(flight.open(pending(0)).is_none());
        flight.close(ids[2]);
        assert_eq!((flight.room(), flight.len()), (1, 3));
        assert!(flight.open(pending(0)).is_some());
    }
}
