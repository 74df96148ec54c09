//! The kernel's counts for one socket: datagrams that it dropped before they could be received, and
//! the bytes that a Unix socket has sent and its receiver has not read.
//!
//! They are read by SO_MEMINFO, which costs one system call and nothing on the path of a datagram
//! (a per-packet control message, SO_RXQ_OVFL, measured 7 %).

use std::io;
use std::os::fd::BorrowedFd;

/// Places of two counters in SO_MEMINFO (include/uapi/linux/sock_diag.h).
const SK_MEMINFO_WMEM_ALLOC: usize = 2;
const SK_MEMINFO_DROPS: usize = 8;

/// Datagrams that the kernel dropped at one socket, modulo 2^32: no room in the receive buffer, a
/// wrong checksum that was found late, or a filter. The kernel does not tell them apart by socket.
///
/// # Errors
/// Where the kernel has no such counter (before Linux 4.12).
pub(crate) fn socket_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(memory(fd)?[SK_MEMINFO_DROPS])
}

/// The memory of datagrams that a Unix socket has sent and their receivers have not taken, in
/// bytes. The memory of an empty datagram is not zero.
///
/// # Errors
/// Where the kernel has no such counter (before Linux 4.12).
pub fn untaken(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(memory(socket)?[SK_MEMINFO_WMEM_ALLOC])
}

/// The counters of SO_MEMINFO.
fn memory(fd: BorrowedFd<'_>) -> io::Result<[u32; 9]> {
    let mut words = [0u32; 9];
    crate::sys::get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)?;
    Ok(words)
}

/// Extends a 32-bit counter that wraps to 64 bits; it must be read at least once per wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrapping {
    last: u32,
    total: u64,
}

impl Wrapping {
    /// Counts from a counter value of `first`.
    pub(crate) fn since(first: u32) -> Self {
        Self { last: first, total: 0 }
    }

    /// The total, given that the counter reads `now`.
    pub(crate) fn update(&mut self, now: u32) -> u64 {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::{Buffers, bind_client};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn wrapping_counts_continue() {
        let mut count = Wrapping::default();
        assert_eq!(count.update(u32::MAX), u64::from(u32::MAX));
        assert_eq!(count.update(4), u64::from(u32::MAX) + 5);
        assert_eq!(count.update(4), u64::from(u32::MAX) + 5);
    }

    #[test]
    fn a_full_buffer_is_counted() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (server, _) = bind_client(any, Buffers { receive: 4096, send: 0 }).unwrap();
        let (client, _) = bind_client(any, Buffers::default()).unwrap();
        assert_eq!(socket_drops(server.as_fd()).unwrap(), 0);
        let mut sent = 0;
        while sent < 200 {
            sent += u32::from(client.as_udp().send_to(&[7; 1000], server.address()).is_ok());
        }
        let mut received = 0;
        while server.as_udp().recv_from(&mut [0; 2048]).is_ok() {
            received += 1;
        }
        // Loopback delivers within the sending call, so nothing is in flight any more.
        let drops = socket_drops(server.as_fd()).unwrap();
        assert_eq!(received + drops, sent);
        assert!(drops > 100, "{drops}");
    }

    #[test]
    fn what_a_receiver_has_not_taken_is_counted() {
        let (here, there) = UnixDatagram::pair().unwrap();
        assert_eq!(untaken(here.as_fd()).unwrap(), 0);
        for bytes in [&b"bytes"[..], b""] {
            here.send(bytes).unwrap();
            assert!(untaken(here.as_fd()).unwrap() > 0, "{bytes:?}");
            there.recv(&mut [0; 8]).unwrap();
            assert_eq!(untaken(here.as_fd()).unwrap(), 0, "{bytes:?}");
        }
    }
}
