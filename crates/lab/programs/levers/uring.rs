//! io_uring: one multishot receive into a ring of provided buffers, and a batch of sends per
//! `io_uring_enter`, whose successes cause no completions.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd, RecvMsgOut};
use io_uring::{IoUring, cqueue, opcode, squeue};
use onrush_net::bind::BoundSocket;

use super::{REPLY, REQUESTS, Serve};

/// Buffers for datagrams; a power of two.
const BUFFERS: u16 = 1024;
/// Bytes of each, with the kernel's header and the name.
const BUFFER: usize = 2048;
/// The most sends per call.
const SENDS: usize = 128;
/// IORING_ENTER_GETEVENTS.
const GET_EVENTS: u32 = 1;

/// A server on io_uring.
pub(super) struct Uring {
    ring: IoUring,
    socket: BoundSocket,
    bytes: Box<[[u8; BUFFER]]>,
    /// The ring of provided buffers, in the kernel's form.
    entries: *mut BufRingEntry,
    tail: u16,
    /// Sets the length of names.
    receive: Box<libc::msghdr>,
    sends: Box<[Outgoing]>,
    armed: bool,
}

/// A reply in flight.
struct Outgoing {
    name: [u8; 16],
    part: libc::iovec,
    header: libc::msghdr,
}

fn layout() -> Layout {
    Layout::from_size_align(usize::from(BUFFERS) * size_of::<BufRingEntry>(), 4096).expect("valid")
}

impl Uring {
    pub(super) fn new(socket: BoundSocket) -> Result<Self, Box<dyn Error>> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(4096)
            .build(SENDS as u32 * 2)?;
        // SAFETY: the layout has a size; zero is a value of the kernel's integers and pointers. The
        // ring of buffers is freed after it was unregistered (see `drop`).
        // Reason: an experiment with a kernel interface that has no safe form.
        let mut this = unsafe {
            let mut receive: Box<libc::msghdr> = Box::new(std::mem::zeroed());
            receive.msg_namelen = 16;
            let outgoing = || Outgoing {
                name: [0; 16],
                part: libc::iovec {
                    iov_base: REPLY.as_ptr().cast_mut().cast(),
                    iov_len: REPLY.len(),
                },
                header: std::mem::zeroed(),
            };
            Self {
                ring,
                socket,
                bytes: vec![[0; BUFFER]; BUFFERS.into()].into(),
                entries: alloc_zeroed(layout()).cast(),
                tail: 0,
                receive,
                sends: (0..SENDS).map(|_| outgoing()).collect(),
                armed: false,
            }
        };
        if this.entries.is_null() {
            handle_alloc_error(layout());
        }
        for send in &mut this.sends {
            send.header.msg_name = send.name.as_mut_ptr().cast();
            send.header.msg_namelen = 16;
            send.header.msg_iov = &raw mut send.part;
            send.header.msg_iovlen = 1;
        }
        // SAFETY: `entries` has the stated length, is aligned to a page, and outlives the ring.
        unsafe {
            let submitter = this.ring.submitter();
            submitter.register_buf_ring_with_flags(this.entries as u64, BUFFERS, 0, 0)?;
        }
        (0..BUFFERS).for_each(|number| this.provide(number));
        Ok(this)
    }

    /// Returns a buffer to the kernel.
    fn provide(&mut self, number: u16) {
        let at = self.tail & (BUFFERS - 1);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `at` is within the entries, which the kernel only reads; the tail is at the
        // kernel's offset and is written as one atomic word after the entry.
        // Reason: the protocol of provided buffers.
        unsafe {
            let entry = &mut *self.entries.add(at.into());
            entry.set_addr(self.bytes[usize::from(number)].as_mut_ptr() as u64);
            entry.set_len(BUFFER as u32);
            entry.set_bid(number);
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    /// Enters the kernel with the queued entries.
    fn enter(&mut self) -> Result<(), Box<dyn Error>> {
        self.ring.submission().sync();
        let queued = self.ring.submission().len() as u32;
        // SAFETY: the queued entries point to this value's own memory, which stays in place.
        // Reason: with deferred work, the kernel works only in this call.
        unsafe { self.ring.submitter().enter::<()>(queued, 0, GET_EVENTS, None)? };
        Ok(())
    }

    /// Queues an entry.
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: as for `enter`; the queue has space for all sends and one receive.
        unsafe { self.ring.submission().push(entry).expect("room") };
    }

    /// Queues a reply to the datagram in a buffer.
    fn answer(&mut self, buffer: u16, number: usize) {
        let bytes = &self.bytes[usize::from(buffer)];
        let out = RecvMsgOut::parse(bytes, &self.receive).expect("a whole message");
        let send = &mut self.sends[number];
        send.name.copy_from_slice(out.name_data());
        let fd = Fd(self.socket.as_fd().as_raw_fd());
        let entry = opcode::SendMsg::new(fd, &raw const send.header);
        let entry = entry.build().flags(squeue::Flags::SKIP_SUCCESS).user_data(1);
        self.push(&entry);
    }
}

impl Serve for Uring {
    fn serve(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut sent = 0;
        // Fewer bytes than the buffer's size, unless the kernel violates its interface.
        for _ in 0..10_000 {
            if !self.armed {
                self.armed = true;
                let fd = Fd(self.socket.as_fd().as_raw_fd());
                self.push(&opcode::RecvMsgMulti::new(fd, &raw const *self.receive, 0).build());
            }
            self.enter()?;
            if sent == REQUESTS {
                return Ok(sent as u64);
            }
            let mut batch = 0;
            while batch < SENDS {
                let Some(event) = self.ring.completion().next() else { break };
                if event.user_data() == 1 {
                    return Err(format!("a send failed: {}", event.result()).into());
                }
                self.armed &= cqueue::more(event.flags());
                let Some(buffer) = cqueue::buffer_select(event.flags()) else { continue };
                self.answer(buffer, batch);
                self.provide(buffer);
                batch += 1;
            }
            sent += batch;
        }
        Err(format!("{sent} replies were sent").into())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_buf_ring(0);
        // SAFETY: allocated with this layout, and unregistered from the kernel just before.
        unsafe { dealloc(self.entries.cast(), layout()) };
    }
}
