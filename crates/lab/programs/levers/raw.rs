//! Direct calls: `recvmmsg`, then `sendmmsg` of the same headers with the bytes changed. The
//! difference to this is the backend's own cost; and MSG_ZEROCOPY can be measured.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use onrush_net::bind::BoundSocket;

use super::{REPLY, Serve};

/// Datagrams per call.
const BATCH: usize = 128;

/// A server of direct calls.
pub(super) struct Raw {
    socket: BoundSocket,
    /// The targets of `headers`, in allocations that do not move.
    names: Box<[libc::sockaddr_in; BATCH]>,
    bytes: Box<[[u8; 2048]; BATCH]>,
    iovecs: Box<[libc::iovec; BATCH]>,
    headers: Box<[libc::mmsghdr; BATCH]>,
    flags: libc::c_int,
}

impl Raw {
    pub(super) fn new(socket: BoundSocket, zero_copy: bool) -> Self {
        // SAFETY: integers and pointers, for which zero is a value.
        // Reason: the kernel's own forms, as the calls take them.
        let mut this = unsafe {
            Self {
                socket,
                names: Box::new(std::mem::zeroed()),
                iovecs: Box::new(std::mem::zeroed()),
                headers: Box::new(std::mem::zeroed()),
                flags: libc::MSG_DONTWAIT | if zero_copy { libc::MSG_ZEROCOPY } else { 0 },
                bytes: Box::new([[0; 2048]; BATCH]),
            }
        };
        for n in 0..BATCH {
            this.iovecs[n].iov_base = this.bytes[n].as_mut_ptr().cast();
            let header = &mut this.headers[n].msg_hdr;
            header.msg_name = (&raw mut this.names[n]).cast();
            header.msg_iov = &raw mut this.iovecs[n];
            header.msg_iovlen = 1;
        }
        this
    }

    /// Reads the notifications that the kernel has finished sends without a copy.
    fn reap(&mut self) {
        loop {
            let mut control = [0u64; 16];
            // SAFETY: as above; the header points to `control` only, which outlives the call.
            // Reason: notifications of MSG_ZEROCOPY arrive only this way.
            let result = unsafe {
                let mut header: libc::msghdr = std::mem::zeroed();
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of_val(&control) as _;
                libc::recvmsg(
                    self.socket.as_fd().as_raw_fd(),
                    &raw mut header,
                    libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
                )
            };
            if result < 0 {
                return;
            }
        }
    }
}

impl Serve for Raw {
    fn serve(&mut self) -> Result<u64, Box<dyn Error>> {
        let (fd, mut sent) = (self.socket.as_fd().as_raw_fd(), 0);
        loop {
            for (header, iovec) in self.headers.iter_mut().zip(self.iovecs.iter_mut()) {
                header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as _;
                iovec.iov_len = 2048;
            }
            // SAFETY: the headers point only to this value's own boxes, which are borrowed
            // exclusively.
            // Reason: this call is what the experiment measures.
            let received = unsafe {
                let none = ptr::null_mut();
                let headers = self.headers.as_mut_ptr();
                libc::recvmmsg(fd, headers, BATCH as _, libc::MSG_DONTWAIT as _, none)
            };
            if received <= 0 {
                if self.flags & libc::MSG_ZEROCOPY != 0 {
                    self.reap();
                }
                return Ok(sent);
            }
            for iovec in &mut self.iovecs[..received as usize] {
                iovec.iov_len = REPLY.len();
            }
            let mut done = 0;
            while done < received {
                // SAFETY: as above, from the first header that is not sent on.
                let result = unsafe {
                    let headers = self.headers.as_mut_ptr().add(done as usize);
                    libc::sendmmsg(fd, headers, (received - done) as _, self.flags as _)
                };
                if result <= 0 {
                    return Err(io::Error::last_os_error().into());
                }
                done += result;
            }
            sent += received as u64;
        }
    }
}
