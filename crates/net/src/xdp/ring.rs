//! One side of a ring that is shared with the kernel: entries in memory, and how many of them the
//! producer has added and the consumer has taken (Documentation/networking/af_xdp.rst).
//!
//! Both counts wrap at 2^32, and the size is a power of two. An entry belongs to the producer until
//! its count covers it, then to the consumer until that one's does.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use crate::sys::mapped::Mapping;

/// Where a ring is in the file of an AF_XDP socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The offset that mmap(2) is called with.
    pub(super) file: u64,
    /// The parts of the ring from there.
    pub(super) parts: XdpRingOffset,
    /// The number of entries, a power of two.
    pub(super) size: u32,
}

/// A ring of entries of `N` 64-bit words.
#[derive(Debug)]
struct Ring<const N: usize> {
    map: Mapping,
    place: Place,
    /// Where the counts of this side and of the other one are.
    own_at: usize,
    other_at: usize,
    /// The count of this side, which the other side sees when it is published, and the last known
    /// one of the other side.
    own: u32,
    other: u32,
}

impl<const N: usize> Ring<N> {
    fn new(file: BorrowedFd<'_>, place: Place, own: u64, other: u64) -> io::Result<Self> {
        assert!(place.size.is_power_of_two(), "{} entries", place.size);
        let len = place.parts.desc as usize + place.size as usize * N * 8;
        let map = Mapping::new(file, place.file, len)?;
        let [own_at, other_at] = [own as usize, other as usize];
        let mut ring = Self { map, place, own_at, other_at, own: 0, other: 0 };
        ring.resume();
        Ok(ring)
    }

    /// Continues from the published counts, as another process may have used this side.
    fn resume(&mut self) {
        self.own = self.map.word(self.own_at).load(Acquire);
        self.renew();
    }

    /// The offset of the entry with this count.
    #[inline]
    fn entry(&self, count: u32) -> usize {
        self.place.parts.desc as usize + (count & (self.place.size - 1)) as usize * N * 8
    }

    /// Reads the count of the other side.
    #[inline]
    fn renew(&mut self) {
        self.other = self.map.word(self.other_at).load(Acquire);
    }

    #[inline]
    fn publish(&self) {
        self.map.word(self.own_at).store(self.own, Release);
    }
}

/// The side that adds entries.
#[derive(Debug)]
pub(super) struct Producer<const N: usize>(Ring<N>);

impl<const N: usize> Producer<N> {
    /// Maps a ring of which the kernel is the consumer.
    pub(super) fn new(file: BorrowedFd<'_>, place: Place) -> io::Result<Self> {
        Ring::new(file, place, place.parts.producer, place.parts.consumer).map(Self)
    }

    /// Continues from the published counts, as another process may have added entries.
    pub(super) fn resume(&mut self) {
        self.0.resume();
    }

    /// The count of added entries.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.0.own
    }

    /// Adds an entry; `false` if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, entry: [u64; N]) -> bool {
        let ring = &mut self.0;
        if ring.own.wrapping_sub(ring.other) == ring.place.size {
            ring.renew();
            if ring.own.wrapping_sub(ring.other) == ring.place.size {
                return false;
            }
        }
        let at = ring.entry(ring.own);
        for (index, word) in entry.into_iter().enumerate() {
            ring.map.long(at + 8 * index).store(word, Relaxed);
        }
        ring.own = ring.own.wrapping_add(1);
        true
    }

    /// Lets the consumer see all added entries.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.0.publish();
    }

    /// Added entries that the consumer has not taken.
    pub(super) fn pending(&mut self) -> u32 {
        self.0.renew();
        self.0.own.wrapping_sub(self.0.other)
    }

    /// Whether a system call has to announce published entries (XDP_RING_NEED_WAKEUP).
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.0.place.parts.flags else { return true };
        // The kernel sets the flag, then reads the ring once more: the flag is read after the
        // count is written.
        fence(SeqCst);
        self.0.map.word(flags as usize).load(Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits()
            != 0
    }
}

/// The side that takes entries.
#[derive(Debug)]
pub(super) struct Consumer<const N: usize>(Ring<N>);

impl<const N: usize> Consumer<N> {
    /// Maps a ring of which the kernel is the producer.
    pub(super) fn new(file: BorrowedFd<'_>, place: Place) -> io::Result<Self> {
        Ring::new(file, place, place.parts.consumer, place.parts.producer).map(Self)
    }

    /// Continues from the published counts, as another process may have taken entries.
    pub(super) fn resume(&mut self) {
        self.0.resume();
    }

    /// The count of taken entries.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.0.own
    }

    /// Takes an entry, if the ring has one.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<[u64; N]> {
        if self.0.own == self.0.other && self.waiting() == 0 {
            return None;
        }
        let ring = &mut self.0;
        let at = ring.entry(ring.own);
        ring.own = ring.own.wrapping_add(1);
        Some(std::array::from_fn(|index| ring.map.long(at + 8 * index).load(Relaxed)))
    }

    /// Lets the producer use the places of all taken entries.
    #[inline]
    pub(super) fn release(&mut self) {
        self.0.publish();
    }

    /// Entries that can be taken.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.0.renew();
        self.0.other.wrapping_sub(self.0.own)
    }
}
