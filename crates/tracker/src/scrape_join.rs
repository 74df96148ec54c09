//! The hashes of a scrape belong to several shards; their answers come back in any order and
//! leave as one reply. This is where they meet.
//!
//! A pending scrape has a slot in a table of fixed size. Every part that was sent off comes back
//! (a lane loses nothing), so that a slot is free again when its last part is home.

use onrush_net::{Reply, Return};
use onrush_proto::scrape::{COUNTS_LEN, HEAD_LEN, MAX_HASHES, write_head};
use onrush_proto::{ScrapeCounts, TransactionId};

/// Bytes of the largest scrape reply.
const MAX_REPLY: usize = HEAD_LEN + MAX_HASHES * COUNTS_LEN;

/// Where the answer to one hash goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: u16,
    position: u16,
}

/// A scrape that waits for the answers to its parts.
#[derive(Clone, Copy)]
struct Pending {
    reply: [u8; MAX_REPLY],
    len: usize,
    /// Parts that are under way, and one more while the scrape is still being taken apart.
    open: usize,
    /// A part could not be sent: no reply, but the others still come home.
    given_up: bool,
    to: Option<Return>,
}

/// The scrapes of one worker that are under way.
pub struct ScrapeJoin {
    pending: Vec<Pending>,
    free: Vec<u16>,
    /// Slots whose reply is whole.
    whole: Vec<u16>,
}

impl ScrapeJoin {
    /// A table for at most `slots` scrapes (1 to 65,536) at a time.
    pub fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, 1 << 16);
        let empty = Pending { reply: [0; MAX_REPLY], len: 0, open: 0, given_up: false, to: None };
        Self {
            pending: vec![empty; slots],
            free: (0..slots).rev().map(|slot| slot as u16).collect(),
            whole: Vec::with_capacity(slots),
        }
    }

    /// Opens a scrape of `hashes` hashes (at most [`MAX_HASHES`]), all of which answer zeros
    /// until told otherwise. `None` when too many are under way. Every opened scrape must be
    /// [`close`](Self::close)d once its parts are sent.
    pub fn open(&mut self, id: TransactionId, hashes: usize, to: Return) -> Option<OpenScrape> {
        assert!(hashes <= MAX_HASHES, "intake cuts scrapes to the limit");
        let slot = self.free.pop()?;
        let pending = &mut self.pending[usize::from(slot)];
        pending.len = HEAD_LEN + hashes * COUNTS_LEN;
        pending.reply[HEAD_LEN..pending.len].fill(0);
        if let Some(head) = pending.reply.first_chunk_mut() {
            write_head(id, head);
        }
        pending.open = 1;
        pending.given_up = false;
        pending.to = Some(to);
        Some(OpenScrape { slot })
    }

    /// The place of the hash at `position`, to be sent off with the question.
    pub fn part(&mut self, scrape: &OpenScrape, position: usize) -> Place {
        self.pending[usize::from(scrape.slot)].open += 1;
        Place { slot: scrape.slot, position: position as u16 }
    }

    /// All parts are on their way. Whether the scrape still has a chance of a reply.
    pub fn close(&mut self, scrape: OpenScrape) -> bool {
        let alive = !self.pending[usize::from(scrape.slot)].given_up;
        self.settle(scrape.slot);
        alive
    }

    /// A part is home with its answer.
    pub fn answer(&mut self, place: Place, counts: &ScrapeCounts) {
        let pending = &mut self.pending[usize::from(place.slot)];
        let at = HEAD_LEN + usize::from(place.position) * COUNTS_LEN;
        if let Some(field) = pending.reply[at..].first_chunk_mut() {
            counts.write(field);
        }
        self.settle(place.slot);
    }

    /// A part could not be sent, so there will be no reply. Says who will miss it, once for each
    /// scrape.
    pub fn give_up(&mut self, place: Place) -> Option<Return> {
        let pending = &mut self.pending[usize::from(place.slot)];
        let known = std::mem::replace(&mut pending.given_up, true);
        let to = pending.to.filter(|_| !known);
        self.settle(place.slot);
        to
    }

    /// Whether any reply is whole.
    pub fn has_whole(&self) -> bool {
        !self.whole.is_empty()
    }

    /// The replies that are whole. They stay until [`clear_whole`](Self::clear_whole).
    pub fn whole(&self) -> impl Iterator<Item = Reply<'_>> {
        self.whole.iter().filter_map(|slot| {
            let pending = &self.pending[usize::from(*slot)];
            let to = pending.to.as_ref()?;
            Some(Reply { bytes: &pending.reply[..pending.len], to })
        })
    }

    /// Frees the slots of the replies that were whole.
    pub fn clear_whole(&mut self) {
        self.free.append(&mut self.whole);
    }

    fn settle(&mut self, slot: u16) {
        let pending = &mut self.pending[usize::from(slot)];
        pending.open -= 1;
        if pending.open == 0 {
            if pending.given_up { &mut self.free } else { &mut self.whole }.push(slot);
        }
    }
}

/// A scrape that is being taken apart.
#[derive(Debug)]
pub struct OpenScrape {
    slot: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to() -> Return {
        Return::to("192.0.2.1:1000".parse().unwrap(), 0)
    }

    fn counts(n: u32) -> ScrapeCounts {
        ScrapeCounts { seeders: n, completed: n + 1, leechers: n + 2 }
    }

    #[test]
    fn answers_in_any_order_become_one_reply_in_the_order_asked() {
        let mut join = ScrapeJoin::new(4);
        let scrape = join.open(TransactionId(0x0102_0304), 3, to()).unwrap();
        let first = join.part(&scrape, 0);
        let last = join.part(&scrape, 2);
        join.answer(last, &counts(70));
        assert!(join.close(scrape));
        assert_eq!(join.whole().count(), 0, "one part is still out");
        join.answer(first, &counts(10));
        let replies: Vec<_> = join.whole().map(|reply| reply.bytes.to_vec()).collect();
        let mut expected = vec![0, 0, 0, 2, 1, 2, 3, 4];
        for word in [10u32, 11, 12, 0, 0, 0, 70, 71, 72] {
            expected.extend(word.to_be_bytes());
        }
        assert_eq!(replies, [expected]);
    }

    #[test]
    fn a_part_that_could_not_be_sent_costs_the_reply_but_not_the_slot() {
        let mut join = ScrapeJoin::new(1);
        let scrape = join.open(TransactionId(1), 2, to()).unwrap();
        assert!(join.open(TransactionId(2), 1, to()).is_none(), "the table is full");
        let (sent, not_sent) = (join.part(&scrape, 0), join.part(&scrape, 1));
        assert!(join.give_up(not_sent).is_some(), "news");
        assert!(!join.close(scrape));
        join.answer(sent, &counts(5));
        assert_eq!(join.whole().count(), 0);
        assert!(join.open(TransactionId(3), 1, to()).is_some(), "the slot is free again");
    }

    #[test]
    fn slots_are_used_again_without_a_trace_of_the_last_scrape() {
        let mut join = ScrapeJoin::new(1);
        for round in 0..3 {
            let scrape = join.open(TransactionId(round), 2, to()).unwrap();
            let place = join.part(&scrape, 1);
            join.close(scrape);
            join.answer(place, &counts(round));
            let bytes = join.whole().next().unwrap().bytes.to_vec();
            assert_eq!(bytes.len(), 8 + 24);
            assert_eq!(bytes[8..20], [0; 12], "nobody answered the first");
            join.clear_whole();
        }
    }
}
