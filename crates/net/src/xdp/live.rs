//! Frames that the kernel transmits from a page of its own (Documentation/bpf/bpf_prog_run.rst):
//! for a client that shares a host with what it measures. Over veth the receiver's XDP program sees
//! such a frame as it is, whereas the kernel copies one that an AF_XDP socket has sent, on the
//! receiver's CPU.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::program::{Mode, Program};
use crate::sys::mapped::Mapping;

/// Frames of a queue's batch, queues, bytes of a frame with its length, and bytes of an index, as
/// in crates/net/bpf/live.c.
const FRAMES: usize = 256;
const QUEUES: usize = 16;
const STRIDE: usize = 1_536;
const INDEX: usize = 8;
/// Bytes of the frames that the program is run on: those of the longest one that it transmits.
const BYTES: usize = 1_514;

/// The program that transmits frames, for up to 16 queues.
#[derive(Clone, Debug)]
pub struct LiveProgram(Arc<Program>);

impl LiveProgram {
    /// Loads it. It is attached to the loopback device until it is dropped: each run of a program
    /// that is attached nowhere waits twice for all vCPUs to leave the code that the kernel changes
    /// for it (`bpf_dispatcher_change_prog`), for tens of milliseconds.
    ///
    /// # Errors
    /// Without the capabilities for a program, and where the loopback device has another one.
    pub fn load() -> io::Result<Self> {
        let mut program = Program::live()?;
        program.attach("lo", Mode::Generic).map_err(io::Error::other)?;
        Ok(Self(Arc::new(program)))
    }
}

/// The frames of a queue that are transmitted next.
#[derive(Debug)]
pub(super) struct LiveFrames {
    program: LiveProgram,
    frames: Mapping,
    next: Mapping,
    queue: usize,
    /// Where the frames are said to arrive (struct xdp_md).
    context: [u8; 24],
    added: usize,
}

impl LiveFrames {
    /// Those of a queue of an interface, which has an XDP program.
    ///
    /// # Errors
    /// Before Linux 5.18, for an interface without a program, and for queue 16 and above.
    pub(super) fn new(program: LiveProgram, interface: u32, queue: u32) -> io::Result<Self> {
        if queue as usize >= QUEUES {
            let text = format!("only {QUEUES} queues can have live frames, not queue {queue}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let map = |name, at, len| Mapping::new(program.0.descriptor_of(name)?.as_fd(), at, len);
        let size = FRAMES * STRIDE;
        let frames = map("frames", u64::from(queue) * size as u64, size)?;
        let next = map("next", 0, QUEUES * INDEX)?;
        let mut context = [0; 24];
        for (at, word) in [(4, BYTES as u32), (12, interface)] {
            context[at..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        let live = Self { program, frames, next, queue: queue as usize, context, added: 0 };
        // The program is refused here rather than when a frame is to be transmitted. It finds no
        // frame with this index.
        live.run(FRAMES * QUEUES, 1)?;
        Ok(live)
    }

    /// Adds a frame, which `write` writes; `false` without room.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.added == FRAMES {
            return false;
        }
        let start = self.added * STRIDE;
        let address = self.frames.address(start + 4);
        // SAFETY: a frame is within the mapping, and this queue alone writes to it; the program
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
            added => self.run(self.queue * FRAMES, added),
        }
    }

    /// Runs the program on the frames from index `first` on.
    fn run(&self, first: usize, count: usize) -> io::Result<()> {
        self.next.long(self.queue * INDEX).store(first as u64, Relaxed);
        let mut frame = [0; BYTES];
        frame[..4].copy_from_slice(&(self.queue as u32).to_ne_bytes());
        self.program.0.run_live(&frame, &self.context, count as u32)
    }
}
