//! TCP listeners: one per worker and address, joined by SO_REUSEPORT, by the rules of
//! [`crate::bind`]; and those of another process, distributed over another number of workers.
//!
//! No listener is closed while its address is served: the kernel would reset the connections that
//! wait in its accept queue. So with fewer workers each accepts from several listeners. More
//! workers need more listeners, which are [bound last](PendingListeners): from then on the kernel
//! gives them connections.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{SockRef, Socket, Type};

use crate::bind::{self, Address, BACKLOG, BindError, Transport};
use crate::notice::Notice;
use crate::sys;

/// Seconds for which a connection without input is kept from the accept queue.
const MAX_DEFERRED: libc::c_int = 1;

/// The listeners of all addresses.
#[derive(Debug)]
pub struct Listeners {
    /// By address.
    pub groups: Vec<AddressListeners>,
    /// Optional addresses that the host lacks.
    pub notices: Vec<Notice>,
}

/// The listeners of one address. They are nonblocking; accepted connections have TCP_NODELAY.
#[derive(Debug)]
pub struct AddressListeners {
    /// The address, with its port.
    pub address: SocketAddr,
    /// At least one.
    pub listeners: Vec<TcpListener>,
}

/// Listeners that do not listen yet: the kernel gives them no connection.
#[derive(Debug, Default)]
pub struct PendingListeners(Vec<TcpListener>);

/// Binds this many listeners per address. `probe` is whether to check first that no other process
/// has an address.
///
/// With port 0 the system picks a port for each such address, and its listeners share it.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be bound and is not optional.
///
/// # Panics
/// When `each` is 0.
pub fn bind(addresses: &[Address], each: usize, probe: bool) -> Result<Listeners, BindError> {
    assert!(each > 0, "an address has at least one listener");
    let mut notices = Vec::new();
    let available = bind::available(addresses, Transport::Tcp, probe, &mut notices)?;
    let group = |address| {
        let (address, mut next) = bind::group_at(address, Transport::Tcp)?;
        let listeners = (0..each).map(|_| next().map(TcpListener::from));
        Ok(AddressListeners { address, listeners: listeners.collect::<Result<_, _>>()? })
    };
    let groups = available.into_iter().map(group).collect::<Result<_, BindError>>()?;
    Ok(Listeners { groups, notices })
}

impl AddressListeners {
    /// Listeners that another server of this kind has bound; their options are left as they are.
    ///
    /// # Errors
    /// When one is not a TCP listener at an IPv4 or IPv6 address.
    pub fn adopt(address: SocketAddr, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let adopt = |descriptor| {
            let socket = Socket::from(descriptor);
            let bound = socket.local_addr()?.as_socket().is_some_and(|it| it.port() != 0);
            match bound && socket.r#type()? == Type::STREAM && socket.is_listener()? {
                true => Ok(socket.into()),
                false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a TCP listener")),
            }
        };
        let listeners = descriptors.into_iter().map(adopt).collect::<io::Result<_>>()?;
        Ok(Self { address, listeners })
    }

    /// Adds listeners up to `number`, which listen with `pending`. No connection may be accepted
    /// before. Where none can be bound (a port below 1024 without the capability, another user),
    /// workers share those that there are.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn add_up_to(
        &mut self,
        number: usize,
        pending: &mut PendingListeners,
    ) -> Result<(), BindError> {
        for _ in self.listeners.len()..number {
            let socket = bind::unbound_listener(self.address)?;
            if socket.bind(&self.address.into()).is_err() {
                break;
            }
            let listener = TcpListener::from(socket);
            let copy = listener.try_clone();
            pending.0.push(copy.map_err(BindError::at(self.address, "copy"))?);
            self.listeners.push(listener);
        }
        Ok(())
    }

    /// Duplicates of those from which one of several workers accepts: number `i` is for worker
    /// `i % workers`. Where there are fewer listeners than workers, some workers share one.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn of_worker(&self, worker: usize, workers: usize) -> io::Result<Vec<TcpListener>> {
        let own = (worker..self.listeners.len().max(workers)).step_by(workers);
        own.map(|number| self.listeners[number % self.listeners.len()].try_clone()).collect()
    }
}

impl PendingListeners {
    /// Makes the listeners listen.
    ///
    /// # Errors
    /// The error of the first one that cannot. Connections that wait at the others are reset when
    /// those are closed.
    pub fn listen(self) -> io::Result<()> {
        self.0.iter().try_for_each(|listener| SockRef::from(listener).listen(BACKLOG))
    }
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
