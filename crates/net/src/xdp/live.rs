//! Frames that the kernel transmits from a page of its own (Documentation/bpf/bpf_prog_run.rst):
//! for a client that shares a host with what it measures. Over veth the receiver's XDP program sees
//! such a frame as it is, whereas the kernel copies one that an AF_XDP socket has sent, on the
//! receiver's CPU.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use super::program::Program;
use crate::sys::mapped::Mapping;

/// Frames of a batch, and bytes of one with its length, as in crates/net/bpf/live.c.
const FRAMES: u32 = 256;
const STRIDE: usize = 1_536;
/// Bytes of the frames that the program is run on: those of the longest one that it transmits.
const BYTES: usize = 1_514;

/// The frames of a queue that are transmitted next.
#[derive(Debug)]
pub(super) struct LiveFrames {
    program: Program,
    frames: Mapping,
    /// The interface and the queue, as the program sees them (struct xdp_md).
    context: [u8; 24],
    added: u32,
}

impl LiveFrames {
    /// Those of a queue of an interface, which has an XDP program.
    ///
    /// # Errors
    /// Before Linux 5.18, without the capabilities for a program, and for an interface without one.
    pub(super) fn new(interface: u32, queue: u32) -> io::Result<Self> {
        let program = Program::live()?;
        let frames = program.descriptor_of("frames")?;
        let frames = Mapping::new(frames.as_fd(), 0, FRAMES as usize * STRIDE)?;
        let mut context = [0; 24];
        for (at, word) in [(4, BYTES as u32), (12, interface), (16, queue)] {
            context[at..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        let mut live = Self { program, frames, context, added: 0 };
        // The program is refused here rather than when a frame is to be transmitted. It finds no
        // frame with this number.
        live.run(FRAMES, 1)?;
        Ok(live)
    }

    /// Adds a frame, which `write` writes; `false` without room.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.added == FRAMES {
            return false;
        }
        let start = self.added as usize * STRIDE;
        let address = self.frames.address(start + 4);
        // SAFETY: a frame is within the mapping, and this process alone writes to it; the program
        // reads it while `transmit` runs, which borrows `self`.
        // Reason: a request is written where the kernel copies it from.
        let len = write(unsafe { slice::from_raw_parts_mut(address, STRIDE - 4) });
        self.frames.word(start).store(len as u32, Relaxed);
        self.added += 1;
        true
    }

    /// Transmits the frames that were added; those of an error are lost.
    pub(super) fn transmit(&mut self) -> io::Result<()> {
        match mem::take(&mut self.added) {
            0 => Ok(()),
            added => self.run(0, added),
        }
    }

    fn run(&mut self, first: u32, count: u32) -> io::Result<()> {
        self.program.set("next", 0, first.to_ne_bytes())?;
        self.program.run_live(&[0; BYTES], &self.context, count)
    }
}
