//! Offers under way, of all workers: whether they were delivered, and to whom.
//!
//! An offer is named by its worker and its number among that worker's, and its id is a function of
//! both that no tracker can guess. The entries of a worker are a ring, which only that worker
//! writes first and any worker changes once the offer has arrived somewhere; an entry that was
//! overwritten meanwhile is of a late offer.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use onrush_proto::webtorrent::OfferId;

use crate::latency::Nanos;
use crate::plan::population::mix;

/// Entries of a worker: at 50,000 offers per second those of the last five seconds.
const ENTRIES: u64 = 1 << 18;
/// Bits of an offer's number; the ones above are its worker's.
const NUMBER_BITS: u32 = 48;
/// Bits of a phase, below the number.
const PHASE_BITS: u32 = 3;

/// The board.
#[derive(Debug)]
pub(super) struct Board {
    key: u64,
    workers: Vec<Ring>,
}

/// The offers of one worker.
#[derive(Debug)]
struct Ring {
    entries: Box<[Entry]>,
    /// Offers that have arrived, right or not, and answers that were sent to them.
    delivered: AtomicU64,
    answered: AtomicU64,
    /// Whether the worker still waits for something.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct Entry {
    /// The number of the offer and its phase.
    state: AtomicU64,
    sent: AtomicU64,
    /// The peer that has sent it, and whether as a seeder in the highest bit.
    from: AtomicU32,
    /// The peer that has got it.
    to: AtomicU32,
}

/// The phases of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Sent = 1,
    /// It is not answered.
    Delivered = 2,
    Answered = 3,
    /// Its answer has returned.
    Returned = 4,
}

/// The name of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer(u64);

/// The state of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) sent: Nanos,
    pub(super) from: u32,
    pub(super) is_seeder: bool,
    pub(super) to: u32,
    pub(super) phase: Phase,
}

impl Board {
    /// A board for `workers` workers. `seed` decides the ids of offers.
    pub(super) fn new(workers: usize, seed: u64) -> Self {
        let ring = || Ring {
            entries: (0..ENTRIES).map(|_| Entry::default()).collect(),
            delivered: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            waits: AtomicBool::new(true),
        };
        Self { key: mix(seed ^ 0x4F46_4645_5253), workers: (0..workers).map(|_| ring()).collect() }
    }

    /// Notes an offer of worker number `worker`; `number` is one that it has not used.
    pub(super) fn send(
        &self,
        (worker, number): (usize, u64),
        sent: Nanos,
        (from, is_seeder): (u32, bool),
    ) -> Offer {
        let entry = &self.workers[worker].entries[(number % ENTRIES) as usize];
        // A late reader of the entry sees that it is of another offer.
        entry.state.store(0, Ordering::Release);
        entry.sent.store(sent, Ordering::Relaxed);
        entry.from.store(from | u32::from(is_seeder) << 31, Ordering::Relaxed);
        entry.state.store(number << PHASE_BITS | Phase::Sent as u64, Ordering::Release);
        Offer((worker as u64) << NUMBER_BITS | number)
    }

    /// The id of an offer.
    pub(super) fn id(&self, offer: Offer) -> OfferId {
        let mut id = [0; 20];
        id[..8].copy_from_slice(&(offer.0 ^ mix(self.key)).to_be_bytes());
        id[8..16].copy_from_slice(&self.seed(offer).to_be_bytes());
        id[16..].copy_from_slice(&(mix(!self.key ^ offer.0) as u32).to_be_bytes());
        OfferId(id)
    }

    /// The offer with this id; `None` if there is none.
    pub(super) fn offer(&self, id: &OfferId) -> Option<Offer> {
        self.by_first_bytes(*id.0.first_chunk()?).filter(|offer| self.id(*offer) == *id)
    }

    /// The only offer whose id may begin with these bytes.
    pub(super) fn by_first_bytes(&self, bytes: [u8; 8]) -> Option<Offer> {
        let offer = Offer(u64::from_be_bytes(bytes) ^ mix(self.key));
        (offer.worker() < self.workers.len()).then_some(offer)
    }

    /// The seed of the description of an offer; that of its answer is `!seed`.
    pub(super) fn seed(&self, offer: Offer) -> u64 {
        mix(self.key ^ offer.0)
    }

    /// The state of an offer; `None` if it is too old.
    pub(super) fn known(&self, offer: Offer) -> Option<Known> {
        let entry = self.entry(offer);
        let state = entry.state.load(Ordering::Acquire);
        let from = entry.from.load(Ordering::Relaxed);
        let phases = [Phase::Sent, Phase::Delivered, Phase::Answered, Phase::Returned];
        let phase = phases.into_iter().find(|phase| state == offer.state(*phase))?;
        Some(Known {
            sent: entry.sent.load(Ordering::Relaxed),
            from: from & !(1 << 31),
            is_seeder: from >> 31 == 1,
            to: entry.to.load(Ordering::Acquire),
            phase,
        })
    }

    /// Notes that the peer `to` has got an offer, and whether it answers; false if another one has
    /// got it before.
    pub(super) fn deliver(&self, offer: Offer, to: u32, answers: bool) -> bool {
        let entry = self.entry(offer);
        let next = if answers { Phase::Answered } else { Phase::Delivered };
        let is_first = self.advance(offer, Phase::Sent, next);
        if is_first {
            entry.to.store(to, Ordering::Release);
            self.workers[offer.worker()].answered.fetch_add(answers.into(), Ordering::Relaxed);
        }
        is_first
    }

    /// Notes that an offer has arrived, right or not.
    pub(super) fn arrived(&self, offer: Offer) {
        self.workers[offer.worker()].delivered.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves an offer to its next phase; false if it was in another one.
    pub(super) fn advance(&self, offer: Offer, from: Phase, to: Phase) -> bool {
        let state = &self.entry(offer).state;
        let (from, to) = (offer.state(from), offer.state(to));
        state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Offers of a worker that have arrived, and the answers that were sent to them.
    pub(super) fn progress(&self, worker: usize) -> [u64; 2] {
        let ring = &self.workers[worker];
        [&ring.delivered, &ring.answered].map(|count| count.load(Ordering::Relaxed))
    }

    /// Notes whether a worker still waits for something; returns whether any worker does. They all
    /// receive until none does.
    pub(super) fn any_waits(&self, worker: usize, waits: bool) -> bool {
        self.workers[worker].waits.store(waits, Ordering::Relaxed);
        self.workers.iter().any(|ring| ring.waits.load(Ordering::Relaxed))
    }

    fn entry(&self, offer: Offer) -> &Entry {
        &self.workers[offer.worker()].entries[(offer.number() % ENTRIES) as usize]
    }
}

impl Offer {
    fn worker(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }

    fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    fn state(self, phase: Phase) -> u64 {
        self.number() << PHASE_BITS | phase as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_delivered_and_answered_once() {
        let board = Board::new(2, 7);
        let offer = board.send((1, 5), 99, (17, true));
        let known = board.known(offer).unwrap();
        assert_eq!((known.sent, known.from, known.is_seeder), (99, 17, true));
        assert!(!board.advance(offer, Phase::Answered, Phase::Returned), "it was not delivered");
        assert!(board.deliver(offer, 30, true) && !board.deliver(offer, 31, true));
        let known = board.known(offer).unwrap();
        assert_eq!((known.to, known.phase), (30, Phase::Answered));
        assert!(board.advance(offer, Phase::Answered, Phase::Returned));
        assert!(!board.advance(offer, Phase::Answered, Phase::Returned));
        board.arrived(offer);
        assert_eq!((board.progress(1), board.progress(0)), ([1, 1], [0, 0]));
        board.send((1, 5 + ENTRIES), 100, (3, false));
        assert_eq!(board.known(offer), None, "it is too old");
    }

    #[test]
    fn an_id_is_known_to_its_board_alone() {
        let (board, other) = (Board::new(2, 7), Board::new(2, 8));
        let offer = board.send((1, 5), 99, (17, true));
        let id = board.id(offer);
        assert_eq!((board.offer(&id), other.offer(&id)), (Some(offer), None));
        for at in 0..20 {
            let mut changed = id;
            changed.0[at] ^= 1;
            assert_eq!(board.offer(&changed), None, "byte {at}");
        }
    }

    #[test]
    fn no_worker_is_done_before_all_are() {
        let board = Board::new(2, 7);
        assert!(board.any_waits(0, false) && board.any_waits(1, true));
        assert!(!board.any_waits(1, false));
    }
}
