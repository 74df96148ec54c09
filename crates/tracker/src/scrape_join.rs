//! The hashes of a scrape belong to several shards; their answers come back in any order and
//! leave as one reply. This is where they meet.
//!
//! A pending scrape has a slot in a table of fixed size. Every part that was sent off comes back
//! (a lane loses nothing), so that a slot is free again when its last part is home.

use onrush_net::{Reply, Return};
use onrush_proto::TransactionId;
use onrush_proto::scrape::{COUNTS_LEN, HEAD_LEN, MAX_HASHES, MAX_RESPONSE_LEN, write_head};

/// What a scrape counts as open parts while it is being taken apart, so that parts that come home
/// meanwhile do not end it: more than it can have.
const OPENING: u32 = 1 << 16;

/// Where the answers to a part go, from a position on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: u16,
    position: u16,
}

/// A scrape that waits for the answers to its parts.
#[derive(Clone, Copy)]
struct Pending {
    reply: [u8; MAX_RESPONSE_LEN],
    len: usize,
    /// Parts that are under way; see [`OPENING`].
    open: u32,
    /// A part could not be sent: no reply, but the others still come home.
    aborted: bool,
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
        let empty =
            Pending { reply: [0; MAX_RESPONSE_LEN], len: 0, open: 0, aborted: false, to: None };
        Self {
            pending: vec![empty; slots],
            free: (0..slots).rev().map(|slot| slot as u16).collect(),
            whole: Vec::with_capacity(slots),
        }
    }

    /// Opens a scrape of `hashes` hashes (at most [`MAX_HASHES`]). Each is to be asked for in a
    /// [`part`](OpenScrape::part) or said to be [`unknown`](Self::unknown). `None` when too many
    /// scrapes are under way. Every opened one must be [`close`](Self::close)d once its parts are
    /// sent.
    #[inline]
    pub fn open(&mut self, id: TransactionId, hashes: usize, to: &Return) -> Option<OpenScrape> {
        assert!(hashes <= MAX_HASHES, "intake cuts scrapes to the limit");
        let slot = self.free.pop()?;
        let pending = &mut self.pending[usize::from(slot)];
        pending.len = HEAD_LEN + hashes * COUNTS_LEN;
        if let Some(head) = pending.reply.first_chunk_mut() {
            write_head(id, head);
        }
        pending.open = OPENING;
        pending.aborted = false;
        pending.to = Some(*to);
        Some(OpenScrape { slot, parts: 0 })
    }

    /// The hash at `position` has zeros for an answer.
    pub fn unknown(&mut self, scrape: &OpenScrape, position: usize) {
        counts_of(&mut self.pending[usize::from(scrape.slot)])[position] = [0; COUNTS_LEN];
    }

    /// The last part asked for could not be sent, so there will be no reply; the others still come
    /// home.
    #[cold]
    pub fn abandon(&mut self, scrape: &mut OpenScrape) {
        scrape.parts -= 1;
        self.pending[usize::from(scrape.slot)].aborted = true;
    }

    /// All parts are on their way. Whether the scrape still has a chance of a reply.
    #[inline]
    pub fn close(&mut self, scrape: OpenScrape) -> bool {
        let alive = !self.pending[usize::from(scrape.slot)].aborted;
        self.settle(scrape.slot, OPENING - scrape.parts);
        alive
    }

    /// A part is home with its answers.
    #[inline]
    pub fn answer(&mut self, place: Place, counts: &[[u8; COUNTS_LEN]]) {
        let fields = counts_of(&mut self.pending[usize::from(place.slot)]);
        fields[usize::from(place.position)..][..counts.len()].copy_from_slice(counts);
        self.settle(place.slot, 1);
    }

    /// A part of a closed scrape could not be sent, so there will be no reply. Says who will miss
    /// it, once for each scrape.
    pub fn abort(&mut self, place: Place) -> Option<Return> {
        let pending = &mut self.pending[usize::from(place.slot)];
        let known = std::mem::replace(&mut pending.aborted, true);
        let to = pending.to.filter(|_| !known);
        self.settle(place.slot, 1);
        to
    }

    /// Whether any reply is whole.
    pub fn has_complete(&self) -> bool {
        !self.whole.is_empty()
    }

    /// The replies that are whole. They stay until [`clear_complete`](Self::clear_complete).
    pub fn complete(&self) -> impl Iterator<Item = Reply<'_>> {
        self.whole.iter().filter_map(|slot| {
            let pending = &self.pending[usize::from(*slot)];
            let to = pending.to.as_ref()?;
            Some(Reply { bytes: &pending.reply[..pending.len], to })
        })
    }

    /// Frees the slots of the replies that were whole.
    pub fn clear_complete(&mut self) {
        self.free.append(&mut self.whole);
    }

    #[inline]
    fn settle(&mut self, slot: u16, parts: u32) {
        let pending = &mut self.pending[usize::from(slot)];
        pending.open -= parts;
        if pending.open == 0 {
            if pending.aborted { &mut self.free } else { &mut self.whole }.push(slot);
        }
    }
}

#[inline]
fn counts_of(pending: &mut Pending) -> &mut [[u8; COUNTS_LEN]] {
    pending.reply[HEAD_LEN..].as_chunks_mut().0
}

/// A scrape that is being taken apart.
#[derive(Debug)]
pub struct OpenScrape {
    slot: u16,
    parts: u32,
}

impl OpenScrape {
    /// The place of the hashes from `position` on, to be sent off with them.
    #[inline]
    pub fn part(&mut self, position: usize) -> Place {
        self.parts += 1;
        Place { slot: self.slot, position: position as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::ScrapeCounts;

    fn open(join: &mut ScrapeJoin, id: u32, hashes: usize) -> Option<OpenScrape> {
        let to = Return::to("192.0.2.1:1000".parse().unwrap(), 0);
        join.open(TransactionId(id), hashes, &to)
    }

    /// An answer of three numbers from `n` on.
    fn counts(n: u32) -> [u8; COUNTS_LEN] {
        let mut wire = [0; COUNTS_LEN];
        ScrapeCounts { seeders: n, completed: n + 1, leechers: n + 2 }.write(&mut wire);
        wire
    }

    #[test]
    fn answers_in_any_order_become_one_reply_in_the_order_asked() {
        let mut join = ScrapeJoin::new(4);
        let mut scrape = open(&mut join, 0x0102_0304, 3).unwrap();
        let (first, last) = (scrape.part(0), scrape.part(2));
        join.unknown(&scrape, 1);
        join.answer(last, &[counts(70)]);
        assert!(join.close(scrape));
        assert_eq!(join.complete().count(), 0, "one part is still out");
        join.answer(first, &[counts(10)]);
        let replies: Vec<_> = join.complete().map(|reply| reply.bytes.to_vec()).collect();
        let mut expected = vec![0, 0, 0, 2, 1, 2, 3, 4];
        for word in [10u32, 11, 12, 0, 0, 0, 70, 71, 72] {
            expected.extend(word.to_be_bytes());
        }
        assert_eq!(replies, [expected]);
    }

    #[test]
    fn a_part_that_could_not_be_sent_costs_the_reply_but_not_the_slot() {
        let mut join = ScrapeJoin::new(1);
        let mut scrape = open(&mut join, 1, 2).unwrap();
        assert!(open(&mut join, 2, 1).is_none(), "the table is full");
        let (sent, not_sent) = (scrape.part(0), scrape.part(1));
        assert!(join.abort(not_sent).is_some(), "news");
        assert!(!join.close(scrape));
        join.answer(sent, &[counts(5)]);
        assert_eq!(join.complete().count(), 0);
        assert!(open(&mut join, 3, 1).is_some(), "the slot is free again");
    }

    #[test]
    fn slots_are_used_again_without_a_trace_of_the_last_scrape() {
        let mut join = ScrapeJoin::new(1);
        for round in 0..3 {
            let mut scrape = open(&mut join, round, 2).unwrap();
            let both = scrape.part(0);
            join.close(scrape);
            join.answer(both, &[counts(9), counts(9)]);
            join.clear_complete();

            let mut scrape = open(&mut join, round, 2).unwrap();
            let place = scrape.part(1);
            join.unknown(&scrape, 0);
            join.close(scrape);
            join.answer(place, &[counts(round)]);
            let bytes = join.complete().next().unwrap().bytes.to_vec();
            assert_eq!(bytes.len(), 8 + 24);
            assert_eq!(bytes[8..20], [0; 12], "nobody answered the first");
            join.clear_complete();
        }
    }

    #[test]
    fn the_parts_of_several_scrapes_may_come_home_mixed() {
        let mut join = ScrapeJoin::new(3);
        let mut parts = Vec::new();
        for id in 0..3u16 {
            let mut scrape = open(&mut join, id.into(), 4).unwrap();
            parts.extend((0..4).map(|at| (scrape.part(at), counts(100 * u32::from(id)))));
            join.close(scrape);
        }
        let halves = [[0, 1, 4, 8, 5, 9], [2, 3, 10, 6, 11, 7]];
        halves[0].iter().for_each(|&at| join.answer(parts[at].0, &[parts[at].1]));
        assert_eq!(join.complete().count(), 0);
        halves[1].iter().for_each(|&at| join.answer(parts[at].0, &[parts[at].1]));
        let mut seen: Vec<_> = join.complete().map(|reply| reply.bytes.to_vec()).collect();
        seen.sort();
        for (id, bytes) in seen.iter().enumerate() {
            let mut expected = [2u32, id as u32].map(u32::to_be_bytes).concat();
            for _ in 0..4 {
                let n = 100 * id as u32;
                expected.extend([n, n + 1, n + 2].map(u32::to_be_bytes).concat());
            }
            assert_eq!(*bytes, expected);
        }
        assert_eq!(seen.len(), 3);
    }
}
