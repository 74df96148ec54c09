//! The four rings of a queue and its frames: which frames are where.
//!
//! ```text
//!                 ┌─ fill ring ─▶ kernel ─▶ receive ring ─▶ held (the batch) ─┐
//! free frames ────┤                                                           ├──▶ free frames
//!                 └─ transmit ring ─▶ kernel ─▶ completion ring ──────────────┘
//! ```
//!
//! Of `4 * ring` frames at most `2 * ring` are on their way to the batch, and at most `ring` in it:
//! `ring` are left for sending, however many requests arrive.

use std::io;
use std::os::fd::BorrowedFd;

use super::ring::{Consumer, Place, Producer};
use super::umem::{Frame, Umem};
use crate::socket::{Received, Slot};

/// Where the rings are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) fill: Place,
    pub(super) completion: Place,
    pub(super) receive: Place,
    pub(super) transmit: Place,
}

/// Rings and frames of a queue.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) umem: Umem,
    fill: Producer<1>,
    completion: Consumer<1>,
    receive: Consumer<2>,
    transmit: Producer<2>,
    /// Frames of the current batch.
    held: Vec<Frame>,
    /// The highest number of frames that are on their way to the batch.
    max_receiving: u32,
}

impl Rings {
    /// Maps the rings of an AF_XDP socket; for batches of up to `batch` frames.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        umem: Umem,
        layout: &Layout,
        batch: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            umem,
            fill: Producer::new(socket, layout.fill)?,
            completion: Consumer::new(socket, layout.completion)?,
            receive: Consumer::new(socket, layout.receive)?,
            transmit: Producer::new(socket, layout.transmit)?,
            held: Vec::with_capacity(batch.min(layout.receive.size as usize)),
            max_receiving: layout.fill.size,
        })
    }

    /// Continues where another process has ended its last batch.
    pub(super) fn resume(&mut self) {
        self.fill.resume();
        self.completion.resume();
        self.receive.resume();
        self.transmit.resume();
    }

    /// Frames that are in the fill ring, the receive ring or between them.
    #[inline]
    fn receiving(&self) -> u32 {
        self.fill.count().wrapping_sub(self.receive.count())
    }

    /// Frames that are in the transmit ring, the completion ring or between them.
    #[inline]
    fn sending(&self) -> u32 {
        self.transmit.count().wrapping_sub(self.completion.count())
    }

    /// Ends the batch: its frames can receive again. Returns whether a system call has to announce
    /// that.
    pub(super) fn end_batch(&mut self) -> bool {
        while let Some(frame) = self.held.pop() {
            self.umem.free(frame);
        }
        if self.receiving() == self.max_receiving {
            return false;
        }
        while self.receiving() < self.max_receiving {
            let Some(frame) = self.umem.take() else { break };
            if !self.fill.push([frame.address()]) {
                self.umem.free(frame);
                break;
            }
        }
        self.fill.publish();
        self.fill.needs_wakeup()
    }

    /// Adds up to `limit` received frames to the batch, and calls `each` with the offset of each in
    /// the region, and its bytes. Returns their number.
    #[inline]
    pub(super) fn receive(&mut self, limit: usize, mut each: impl FnMut(u32, &[u8])) -> usize {
        let limit = limit.min(self.held.capacity() - self.held.len());
        let mut count = 0;
        while count < limit {
            let Some([address, len]) = self.receive.pop() else { break };
            count += 1;
            let Some(frame) = self.umem.frame_at(address) else { continue };
            each(address as u32, self.umem.bytes_of(&frame, address, split(len).0));
            self.held.push(frame);
        }
        if count > 0 {
            self.receive.release();
        }
        count
    }

    /// The batch, of which `slots` are the datagrams.
    pub(super) fn received<'r>(&'r self, slots: &'r [Slot]) -> Received<'r> {
        self.umem.received(&self.held, slots)
    }

    /// Adds a frame to the transmit ring, which `write` has written; `false` if none is free.
    #[inline]
    pub(super) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(mut frame) = self.umem.take() else { return false };
        let len = write(self.umem.bytes_mut(&mut frame));
        let sent = self.transmit.push([frame.address(), join(len as u32, 0)]);
        if !sent {
            self.umem.free(frame);
        }
        sent
    }

    /// Lets the kernel send all added frames. Returns whether a system call has to announce them.
    pub(super) fn publish(&mut self) -> bool {
        self.transmit.publish();
        self.transmit.needs_wakeup()
    }

    /// Added frames that the kernel has not taken.
    pub(super) fn unsent(&mut self) -> u32 {
        self.transmit.pending()
    }

    /// Frees the frames that the kernel has sent.
    pub(super) fn complete(&mut self) {
        if self.sending() == 0 {
            return;
        }
        while let Some([address]) = self.completion.pop() {
            if let Some(frame) = self.umem.frame_at(address) {
                self.umem.free(frame);
            }
        }
        self.completion.release();
    }

    /// Received frames that are in no batch yet.
    pub(super) fn waiting(&mut self) -> u32 {
        self.receive.waiting()
    }

    /// Frames that are neither free, nor in the batch, nor on one of the two ways: always 0.
    pub(super) fn missing(&self) -> i64 {
        let moving = self.receiving() + self.sending();
        let known = self.umem.free_count() + self.held.len() as u32 + moving;
        i64::from(self.umem.count()) - i64::from(known)
    }
}

/// The second word of a descriptor of the receive and transmit rings: a length, and options.
fn join(len: u32, options: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (len.to_ne_bytes(), options.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Its length, and its options.
fn split(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::net::xdp::XdpRingOffset;
    use std::collections::VecDeque;
    use std::mem;
    use std::os::fd::{AsFd, OwnedFd};

    const RING: u32 = 4;
    const PAGES: u64 = 1 << 16;

    fn place(number: u64, size: u32) -> Place {
        let parts = XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };
        Place { file: number * PAGES, parts, size }
    }

    fn layout() -> Layout {
        Layout {
            fill: place(0, 2 * RING),
            completion: place(1, RING),
            receive: place(2, RING),
            transmit: place(3, RING),
        }
    }

    /// The other side of the rings, as the kernel is.
    struct Kernel {
        file: OwnedFd,
        fill: Consumer<1>,
        completion: Producer<1>,
        receive: Producer<2>,
        transmit: Consumer<2>,
        /// Frames to receive into, and frames on their way.
        empty: VecDeque<u64>,
        in_flight: VecDeque<u64>,
    }

    fn pair(batch: usize) -> (Rings, Kernel) {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4 * PAGES).unwrap();
        let layout = layout();
        let rings = Rings::new(file.as_fd(), Umem::new(4 * RING).unwrap(), &layout, batch).unwrap();
        let kernel = Kernel {
            fill: Consumer::new(file.as_fd(), layout.fill).unwrap(),
            completion: Producer::new(file.as_fd(), layout.completion).unwrap(),
            receive: Producer::new(file.as_fd(), layout.receive).unwrap(),
            transmit: Consumer::new(file.as_fd(), layout.transmit).unwrap(),
            file,
            empty: VecDeque::new(),
            in_flight: VecDeque::new(),
        };
        (rings, kernel)
    }

    /// The rings as another process maps them.
    fn mapped_again(rings: &Rings, kernel: &Kernel) -> Rings {
        let file = rings.umem.file().try_clone_to_owned().unwrap();
        let umem = Umem::adopt(file, 4 * RING).unwrap();
        Rings::new(kernel.file.as_fd(), umem, &layout(), rings.held.capacity()).unwrap()
    }

    impl Kernel {
        /// A frame arrives; `false` if it is dropped.
        fn arrive(&mut self, len: u32) -> bool {
            while let Some([address]) = self.fill.pop() {
                self.empty.push_back(address);
            }
            self.fill.release();
            let Some(&address) = self.empty.front() else { return false };
            // Behind a headroom, as in the kernel.
            let received = self.receive.push([address + 256, join(len, 0)]);
            self.receive.publish();
            if received {
                self.empty.pop_front();
            }
            received
        }

        /// Takes frames to send, as many as can be completed; returns their number.
        fn transmit(&mut self, limit: usize) -> usize {
            let before = self.in_flight.len();
            let room = (RING - self.completion.pending()) as usize;
            while self.in_flight.len() < room.min(before + limit) {
                let Some([address, _]) = self.transmit.pop() else { break };
                self.in_flight.push_back(address);
            }
            self.transmit.release();
            self.in_flight.len() - before
        }

        fn complete(&mut self) -> bool {
            let Some(address) = self.in_flight.pop_front() else { return false };
            assert!(self.completion.push([address]), "as long as all frames in flight");
            self.completion.publish();
            true
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arrive(u32),
        EndBatch,
        Receive(usize),
        Send,
        Transmit(usize),
        Complete,
        Reap,
        HandOver,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u32..3000).prop_map(Step::Arrive),
            2 => Just(Step::EndBatch),
            2 => (0usize..6).prop_map(Step::Receive),
            3 => Just(Step::Send),
            2 => (1usize..5).prop_map(Step::Transmit),
            3 => Just(Step::Complete),
            1 => Just(Step::Reap),
            1 => Just(Step::HandOver),
        ]
    }

    proptest! {
        /// Frames are never lost, and never in two places: each is free, in the batch, or the
        /// kernel's. Two processes have the rings in turn.
        #[test]
        fn every_frame_is_in_one_place(steps in proptest::collection::vec(step(), 1..400)) {
            let (mut rings, mut kernel) = pair(3);
            let mut other = mapped_again(&rings, &kernel);
            let (mut held, mut waiting) = (0, 0);
            for step in steps {
                match step {
                    Step::Arrive(len) => waiting += usize::from(kernel.arrive(len)),
                    Step::EndBatch => {
                        rings.end_batch();
                        held = 0;
                    }
                    Step::Receive(limit) => {
                        let mut seen = 0;
                        let count = rings.receive(limit, |offset, bytes| {
                            assert_eq!(offset % 2048, 256);
                            assert!(bytes.len() <= 1792);
                            seen += 1;
                        });
                        prop_assert_eq!((count, seen), (limit.min(waiting).min(3 - held), count));
                        held += count;
                        waiting -= count;
                    }
                    Step::Send => {
                        rings.send(|frame| frame.len());
                        rings.publish();
                    }
                    Step::Transmit(limit) => {
                        kernel.transmit(limit);
                    }
                    Step::Complete => {
                        kernel.complete();
                    }
                    Step::Reap => rings.complete(),
                    Step::HandOver => {
                        rings.end_batch();
                        held = 0;
                        other.resume();
                        mem::swap(&mut rings, &mut other);
                    }
                }
                prop_assert_eq!(rings.missing(), 0);
                prop_assert_eq!((rings.held.len(), rings.waiting() as usize), (held, waiting));
                prop_assert!(rings.receiving() <= 2 * RING);
            }
            // What is left comes back: all frames are free in the end, each once.
            loop {
                rings.held.drain(..).for_each(|frame| rings.umem.free(frame));
                if !kernel.arrive(60) && rings.receive(3, |_, _| {}) == 0 {
                    break;
                }
            }
            loop {
                rings.complete();
                if kernel.transmit(1) + usize::from(kernel.complete()) == 0 {
                    break;
                }
            }
            let mut free: Vec<_> = std::iter::from_fn(|| rings.umem.take()).collect();
            free.sort_by_key(Frame::address);
            let all: Vec<u64> = (0..u64::from(4 * RING)).map(|n| n * 2048).collect();
            prop_assert_eq!(free.iter().map(Frame::address).collect::<Vec<_>>(), all);
        }

        /// However many frames have arrived and are not read, a full transmit ring can be sent.
        #[test]
        fn requests_leave_frames_for_replies(arrivals in 0usize..40, batch in 1usize..9) {
            let (mut rings, mut kernel) = pair(batch);
            for _ in 0..arrivals {
                rings.end_batch();
                kernel.arrive(100);
                kernel.arrive(100);
                rings.receive(batch, |_, _| {});
            }
            let sent = (0..2 * RING).filter(|_| rings.send(|_| 60)).count();
            prop_assert_eq!(sent, RING as usize);
            prop_assert!(!rings.send(|_| 60));
        }
    }

    #[test]
    fn bytes_outside_of_a_frame_are_not_read() {
        let mut umem = Umem::new(2).unwrap();
        let frame = umem.take().unwrap();
        for (address, len, read) in [(256, 60, 60), (0, 2048, 2048), (256, 1793, 0), (4096, 1, 0)] {
            assert_eq!(umem.bytes_of(&frame, address, len).len(), read, "{address} {len}");
        }
        assert_eq!(umem.bytes_of(&frame, u64::MAX, u32::MAX).len(), 0);
        assert_eq!((umem.frame_at(4096), umem.frame_at(u64::MAX)), (None, None));
    }
}
