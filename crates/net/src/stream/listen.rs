//! Binds TCP listeners: one per worker and address, joined by SO_REUSEPORT, by the rules of
//! [`crate::bind`].

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

use crate::bind::{self, Address, BindError, Transport};
use crate::notice::Notice;
use crate::sys;

/// Seconds for which a connection without input is kept from the accept queue.
const MAX_DEFERRED: libc::c_int = 1;

/// The listeners of all workers.
#[derive(Debug)]
pub struct Listeners {
    /// For each worker its listeners, one for each of `addresses`. They are nonblocking; accepted
    /// connections have TCP_NODELAY.
    pub workers: Vec<Vec<TcpListener>>,
    /// The bound addresses, with the ports that they got.
    pub addresses: Vec<SocketAddr>,
    /// Optional addresses that the host lacks.
    pub notices: Vec<Notice>,
}

/// Binds one listener per worker and address. `probe` is whether to check first that no other
/// process has an address: only an upgrade of a running copy skips this.
///
/// With port 0 the system picks a port for each such address, and all workers share it.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be bound and is not optional.
///
/// # Panics
/// When `workers` is 0.
pub fn bind(addresses: &[Address], workers: usize, probe: bool) -> Result<Listeners, BindError> {
    assert!(workers > 0, "a server has at least one worker");
    let mut notices = Vec::new();
    let available = bind::available(addresses, Transport::Tcp, probe, &mut notices)?;
    if available.is_empty() {
        return Err(BindError::Nothing);
    }
    let mut workers: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::with_capacity(available.len());
    for address in available {
        let (address, mut next) = bind::group_at(address, Transport::Tcp)?;
        for listeners in &mut workers {
            listeners.push(next()?.into());
        }
        addresses.push(address);
    }
    Ok(Listeners { workers, addresses, notices })
}

/// Makes the kernel deliver a connection with its first input, or after a second (tcp(7),
/// TCP_DEFER_ACCEPT): for protocols in which clients send first, it saves a read and a wake.
///
/// # Errors
/// When the kernel lacks the option.
pub fn defer_accept(listener: &TcpListener) -> io::Result<()> {
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    Ok(sys::set_option(listener.as_fd(), level, option, &MAX_DEFERRED)?)
}

/// How many connections wait at a listener; 0 if the kernel does not say.
pub(super) fn accept_queue(listener: BorrowedFd<'_>) -> usize {
    // The beginning of struct tcp_info (linux/tcp.h): eight bytes, then numbers of four. Of a
    // listener, `tcpi_unacked` is the length of its queue.
    const UNACKED: usize = 6;
    let mut info = [0_u32; UNACKED + 1];
    match sys::get_option(listener, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info) {
        Ok(_) => info[UNACKED] as usize,
        Err(_) => 0,
    }
}
