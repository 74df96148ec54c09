//! The frames of a queue: memory that the process shares with the kernel, and the list of those
//! that are free.
//!
//! A [`Frame`] stands for the ownership of a frame: it cannot be copied, so a frame has one owner.
//! It is made by taking a free frame or from an entry of a ring that the kernel fills, and ends by
//! freeing it or by an entry of a ring that the kernel reads.
//!
//! ```text
//! frames (count * FRAME_BYTES) | count of free frames (u32) | numbers of these (u32 each)
//! ```
//!
//! All of it is one memfd, so that a successor which is given the file knows the free frames too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::socket::{Received, Slot};
use crate::sys::mapped::Mapping;

/// Bytes of a frame. The kernel receives up to 1,792 into it, behind 256 bytes of headroom.
pub(super) const FRAME_BYTES: usize = 2048;

/// A frame that is in no ring and not free.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame(u32);

impl Frame {
    /// Its address, as entries of rings have it.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.0) * FRAME_BYTES as u64
    }
}

/// The frames of a queue.
#[derive(Debug)]
pub(super) struct Umem {
    file: OwnedFd,
    map: Mapping,
    count: u32,
}

/// Bytes of the file of `count` frames.
fn file_len(count: u32) -> usize {
    count as usize * (FRAME_BYTES + 4) + 4
}

impl Umem {
    /// `count` frames, all of them free.
    pub(super) fn new(count: u32) -> io::Result<Self> {
        let file = memfd_create("onrush-xdp", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, file_len(count) as u64)?;
        let mut umem = Self::map(file, count)?;
        (0..count).rev().for_each(|number| umem.free(Frame(number)));
        Ok(umem)
    }

    /// The `count` frames of another process, and its list of free ones. The kernel has pinned
    /// their pages, whoever maps them.
    pub(super) fn adopt(file: OwnedFd, count: u32) -> io::Result<Self> {
        if fstat(&file)?.st_size != file_len(count) as i64 {
            return Err(io::Error::other("it has another number of frames"));
        }
        Self::map(file, count)
    }

    fn map(file: OwnedFd, count: u32) -> io::Result<Self> {
        Ok(Self { map: Mapping::new(file.as_fd(), 0, file_len(count))?, file, count })
    }

    /// The file, for another process.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Lets an AF_XDP socket use the frames.
    pub(super) fn register(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let region = XdpUmemReg {
            addr: self.map.address(0) as u64,
            len: self.bytes() as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        Ok(set_xdp_umem_reg(socket, region)?)
    }

    /// Bytes of all frames.
    pub(super) fn bytes(&self) -> usize {
        self.count as usize * FRAME_BYTES
    }

    /// The number of frames.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The number of free frames.
    pub(super) fn free_count(&self) -> u32 {
        self.list(0).load(Relaxed)
    }

    /// Takes a free frame.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Frame> {
        let count = self.free_count().checked_sub(1)?;
        let number = self.list(count as usize + 1).load(Relaxed);
        self.list(0).store(count, Relaxed);
        Some(Frame(number))
    }

    /// Frees a frame.
    #[inline]
    pub(super) fn free(&mut self, frame: Frame) {
        let count = self.free_count() + 1;
        self.list(count as usize).store(frame.0, Relaxed);
        self.list(0).store(count, Relaxed);
    }

    /// The frame that an entry of a ring passes to this process; `None` for an address that is in
    /// no frame. The kernel no longer uses it.
    #[inline]
    pub(super) fn frame_at(&self, address: u64) -> Option<Frame> {
        let number = address / FRAME_BYTES as u64;
        (number < u64::from(self.count)).then_some(Frame(number as u32))
    }

    /// The `len` bytes of a frame from `address` on; none where they are not all in the frame.
    #[inline]
    pub(super) fn bytes_of<'f>(&'f self, frame: &'f Frame, address: u64, len: u32) -> &'f [u8] {
        let within = address.checked_sub(frame.address()).filter(|start| {
            start.checked_add(len.into()).is_some_and(|end| end <= FRAME_BYTES as u64)
        });
        let Some(within) = within else { return &[] };
        let start = self.map.address((frame.address() + within) as usize);
        // SAFETY: within the frame by the check above, and so within the mapping; the owner of the
        // frame lends it, so nothing writes to it meanwhile.
        // Reason: frames are read where the kernel wrote them.
        unsafe { slice::from_raw_parts(start, len as usize) }
    }

    /// The bytes of a frame, to be written.
    #[inline]
    pub(super) fn bytes_mut<'f>(&'f mut self, frame: &'f mut Frame) -> &'f mut [u8] {
        let start = self.map.address(frame.address() as usize);
        // SAFETY: a frame is within the mapping; its owner lends it exclusively.
        // Reason: a reply is written where the kernel sends it from.
        unsafe { slice::from_raw_parts_mut(start, FRAME_BYTES) }
    }

    /// A batch of datagrams in frames that the caller owns as long as the batch is borrowed.
    pub(super) fn received<'f>(&'f self, held: &'f [Frame], slots: &'f [Slot]) -> Received<'f> {
        debug_assert!(slots.iter().all(|slot| {
            held.iter().any(|frame| {
                (frame.address()..frame.address() + FRAME_BYTES as u64)
                    .contains(&slot.offset.into())
            })
        }));
        // SAFETY: the region is mapped; `held` owns the frames of the slots, and is borrowed.
        // Reason: datagrams are read where the kernel wrote them.
        unsafe { Received::shared(self.map.address(0), self.bytes(), slots) }
    }

    /// An element of the list of free frames, whose first one is their number.
    #[inline]
    fn list(&self, index: usize) -> &AtomicU32 {
        self.map.word(self.bytes() + 4 * index)
    }
}
