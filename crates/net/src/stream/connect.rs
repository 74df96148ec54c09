//! Connections to a server from chosen addresses, for load tests. They are used as accepted ones.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;

use ::mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};

use crate::sys;

/// Begins a connection from `source`, or from the address that routing picks, with TCP_NODELAY. A
/// write does not return `WouldBlock` from then on when the connection is open; one that has failed
/// returns the reason. The kernel picks the port when it knows both addresses
/// (IP_BIND_ADDRESS_NO_PORT, ip(7)), so that connections to several servers may share it.
///
/// # Errors
/// When the host refuses it at once: no descriptor, no route, no such address, or no port left
/// (EADDRNOTAVAIL).
pub fn connect(source: Option<IpAddr>, target: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(target), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        let (level, option) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
        sys::set_option(socket.as_fd(), level, option, &1i32)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
