//! Joins the counts of a scrape whose info hashes belong to several shards into one reply.
//!
//! A pending scrape has a slot in a table of fixed size. Lanes lose no batch, so every part comes
//! back, and the slot is free again after the last one.

use onrush_proto::TransactionId;
use onrush_proto::scrape::{COUNTS_LEN, HEAD_LEN, MAX_HASHES, MAX_RESPONSE_LEN, write_head};

/// Open parts of a scrape that is still being split: more than it can have, so that parts that
/// return meanwhile do not complete it.
const OPENING: u32 = 1 << 16;

/// Where the counts of a part belong: a pending scrape, and the position of the part's first hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    slot: u16,
    position: u16,
}

/// A scrape that waits for the counts of its parts.
#[derive(Clone, Copy)]
struct Pending<R> {
    reply: [u8; MAX_RESPONSE_LEN],
    len: usize,
    /// Parts in flight; see [`OPENING`].
    open: u32,
    /// A part could not be sent: no reply, but the other parts still return.
    aborted: bool,
    token: Option<R>,
}

/// The pending scrapes of one member. `R` is the token that addresses a reply.
pub struct ScrapeJoin<R> {
    pending: Vec<Pending<R>>,
    free: Vec<u16>,
    /// Slots whose reply is complete.
    complete: Vec<u16>,
}

impl<R: Copy> ScrapeJoin<R> {
    /// A table for at most `slots` scrapes (1 to 65,536) at a time.
    pub fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, 1 << 16);
        let empty =
            Pending { reply: [0; MAX_RESPONSE_LEN], len: 0, open: 0, aborted: false, token: None };
        Self {
            pending: vec![empty; slots],
            free: (0..slots).rev().map(|slot| slot as u16).collect(),
            complete: Vec::with_capacity(slots),
        }
    }

    /// Opens a scrape of `hashes` hashes (at most [`MAX_HASHES`]), or returns `None` when the table
    /// is full. Each hash then belongs to a [`part`](OpenScrape::part) or is set to
    /// [`zero`](Self::zero), and [`close`](Self::close) ends the split.
    #[inline]
    pub fn open(&mut self, id: TransactionId, hashes: usize, token: &R) -> Option<OpenScrape> {
        assert!(hashes <= MAX_HASHES, "the caller cuts scrapes to the limit");
        let slot = self.free.pop()?;
        let pending = &mut self.pending[usize::from(slot)];
        pending.len = HEAD_LEN + hashes * COUNTS_LEN;
        if let Some(head) = pending.reply.first_chunk_mut() {
            write_head(id, head);
        }
        pending.open = OPENING;
        pending.aborted = false;
        pending.token = Some(*token);
        Some(OpenScrape { slot, parts: 0 })
    }

    /// Reports zeros for the hash at `position`.
    pub fn zero(&mut self, scrape: &OpenScrape, position: usize) {
        counts_of(&mut self.pending[usize::from(scrape.slot)])[position] = [0; COUNTS_LEN];
    }

    /// Aborts an open scrape whose last part could not be sent. There will be no reply; the other
    /// parts still return.
    #[cold]
    pub fn abort_open(&mut self, scrape: &mut OpenScrape) {
        scrape.parts -= 1;
        self.pending[usize::from(scrape.slot)].aborted = true;
    }

    /// Ends the split. Returns whether there can be a reply.
    #[inline]
    pub fn close(&mut self, scrape: OpenScrape) -> bool {
        let alive = !self.pending[usize::from(scrape.slot)].aborted;
        self.settle(scrape.slot, OPENING - scrape.parts);
        alive
    }

    /// Adds the counts of a part that has returned.
    #[inline]
    pub fn answer(&mut self, place: Place, counts: &[[u8; COUNTS_LEN]]) {
        let fields = counts_of(&mut self.pending[usize::from(place.slot)]);
        fields[usize::from(place.position)..][..counts.len()].copy_from_slice(counts);
        self.settle(place.slot, 1);
    }

    /// Aborts a closed scrape of which a part could not be sent. Returns the token of the request
    /// that gets no reply, once per scrape.
    pub fn abort(&mut self, place: Place) -> Option<R> {
        let pending = &mut self.pending[usize::from(place.slot)];
        let was_aborted = std::mem::replace(&mut pending.aborted, true);
        let token = pending.token.filter(|_| !was_aborted);
        self.settle(place.slot, 1);
        token
    }

    /// Whether any reply is complete.
    pub fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The complete replies, until [`clear_complete`](Self::clear_complete).
    pub fn complete(&self) -> impl Iterator<Item = (&[u8], &R)> {
        self.complete.iter().filter_map(|slot| {
            let pending = &self.pending[usize::from(*slot)];
            let token = pending.token.as_ref()?;
            Some((&pending.reply[..pending.len], token))
        })
    }

    /// Frees the slots of the complete replies.
    pub fn clear_complete(&mut self) {
        self.free.append(&mut self.complete);
    }

    #[inline]
    fn settle(&mut self, slot: u16, parts: u32) {
        let pending = &mut self.pending[usize::from(slot)];
        pending.open -= parts;
        if pending.open == 0 {
            if pending.aborted { &mut self.free } else { &mut self.complete }.push(slot);
        }
    }
}

#[inline]
fn counts_of<R>(pending: &mut Pending<R>) -> &mut [[u8; COUNTS_LEN]] {
    pending.reply[HEAD_LEN..].as_chunks_mut().0
}

/// A scrape that is being split into parts.
#[derive(Debug)]
pub struct OpenScrape {
    slot: u16,
    parts: u32,
}

impl OpenScrape {
    /// Opens a part of the hashes from `position` on; its place travels with the hashes.
    #[inline]
    pub fn part(&mut self, position: usize) -> Place {
        self.parts += 1;
        Place { slot: self.slot, position: position as u16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_net::Return;
    use onrush_proto::ScrapeCounts;

    fn open(join: &mut ScrapeJoin<Return>, id: u32, hashes: usize) -> Option<OpenScrape> {
        let to = Return::to("192.0.2.1:1000".parse().unwrap(), 0);
        join.open(TransactionId(id), hashes, &to)
    }

    /// The counts `n`, `n + 1` and `n + 2` in wire form.
    fn counts(n: u32) -> [u8; COUNTS_LEN] {
        let mut wire = [0; COUNTS_LEN];
        ScrapeCounts { seeders: n, completed: n + 1, leechers: n + 2 }.write(&mut wire);
        wire
    }

    #[test]
    fn counts_in_any_order_become_one_reply_in_the_order_of_the_request() {
        let mut join = ScrapeJoin::new(4);
        let mut scrape = open(&mut join, 0x0102_0304, 3).unwrap();
        let (first, last) = (scrape.part(0), scrape.part(2));
        join.zero(&scrape, 1);
        join.answer(last, &[counts(70)]);
        assert!(join.close(scrape));
        assert_eq!(join.complete().count(), 0, "one part is in flight");
        join.answer(first, &[counts(10)]);
        let replies: Vec<_> = join.complete().map(|reply| reply.0.to_vec()).collect();
        let mut expected = vec![0, 0, 0, 2, 1, 2, 3, 4];
        for word in [10u32, 11, 12, 0, 0, 0, 70, 71, 72] {
            expected.extend(word.to_be_bytes());
        }
        assert_eq!(replies, [expected]);
    }

    #[test]
    fn an_aborted_scrape_frees_its_slot_without_a_reply() {
        let mut join = ScrapeJoin::new(1);
        let mut scrape = open(&mut join, 1, 2).unwrap();
        assert!(open(&mut join, 2, 1).is_none(), "the table is full");
        let (sent, not_sent) = (scrape.part(0), scrape.part(1));
        assert!(join.abort(not_sent).is_some(), "the first abort returns the token");
        assert!(!join.close(scrape));
        join.answer(sent, &[counts(5)]);
        assert_eq!(join.complete().count(), 0);
        assert!(open(&mut join, 3, 1).is_some(), "the slot is free again");
    }

    #[test]
    fn a_reused_slot_has_no_counts_of_the_scrape_before() {
        let mut join = ScrapeJoin::new(1);
        for round in 0..3 {
            let mut scrape = open(&mut join, round, 2).unwrap();
            let both = scrape.part(0);
            join.close(scrape);
            join.answer(both, &[counts(9), counts(9)]);
            join.clear_complete();

            let mut scrape = open(&mut join, round, 2).unwrap();
            let place = scrape.part(1);
            join.zero(&scrape, 0);
            join.close(scrape);
            join.answer(place, &[counts(round)]);
            let bytes = join.complete().next().unwrap().0.to_vec();
            assert_eq!(bytes.len(), 8 + 24);
            assert_eq!(bytes[8..20], [0; 12], "the first hash reports zeros");
            join.clear_complete();
        }
    }

    #[test]
    fn parts_of_several_scrapes_may_return_mixed() {
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
        let mut seen: Vec<_> = join.complete().map(|reply| reply.0.to_vec()).collect();
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
