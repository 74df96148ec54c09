//! Opens all sockets, and reports the effect of their options. Sockets that another process opened
//! come in through [`adopt`](crate::adopt).
//!
//! A daemon binds a *group*: for each address one socket per worker, joined by SO_REUSEPORT, bound
//! in worker order and before any datagram is served, because the kernel numbers the sockets of a
//! group in the order of binding and [steering](crate::steering) relies on that order. With
//! SO_REUSEPORT a second copy of the daemon could also bind, and would silently take half of the
//! traffic: so each address is first bound without it, as a probe.
//!
//! A load tester binds [plain sockets](bind_client). TCP listeners are bound by the same rules, in
//! [`stream::listen`](crate::stream::listen).

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::notice::{Direction, Notice, buffer_clamped};
pub use crate::socket::Buffers;
use crate::sys;

/// Connections that wait for a worker at a listener, at most; the kernel caps it by
/// net.core.somaxconn.
pub const BACKLOG: libc::c_int = 4096;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Address and port; with port 0 the system chooses one.
    pub address: SocketAddr,
    /// Whether to continue without it if the host lacks the address or its whole family.
    pub optional: bool,
}

/// The protocol of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A listener for connections.
    Tcp,
}

impl Transport {
    /// The option by which ss(8) lists its sockets.
    pub fn letter(self) -> char {
        match self {
            Self::Udp => 'u',
            Self::Tcp => 't',
        }
    }
}

/// Options for binding a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sockets per address, at least 1.
    pub workers: usize,
    /// The buffer sizes to request.
    pub buffers: Buffers,
    /// Whether to check first that no other process has an address. Only a handoff from a running
    /// copy skips this.
    pub probe: bool,
}

/// A bound, nonblocking UDP socket.
#[derive(Debug)]
pub struct BoundSocket {
    socket: UdpSocket,
    address: SocketAddr,
    reports_local: bool,
}

/// The sockets of a group.
#[derive(Debug)]
pub struct Group {
    /// For each worker its sockets, by address in the order of `addresses`: one of each, unless the
    /// group was built for [another number of workers](crate::regroup).
    pub workers: Vec<Vec<BoundSocket>>,
    /// The bound addresses, with the ports that they got.
    pub addresses: Vec<SocketAddr>,
    /// Degraded options.
    pub notices: Vec<Notice>,
}

/// Why an address cannot be bound. Displays with the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has it.
    #[error(
        "{address} is taken by another process, perhaps a second copy of this one. \
         Find it with: ss -{letter}lpn 'sport = :{port}'",
        letter = transport.letter(),
        port = address.port()
    )]
    Taken {
        /// The address.
        address: SocketAddr,
        /// The protocol.
        transport: Transport,
    },
    /// The user lacks the permission.
    #[error(
        "no permission to listen on {address}: ports below 1024 need CAP_NET_BIND_SERVICE. \
         Use a higher port, or grant the capability with: \
         setcap cap_net_bind_service=+ep <the program>, or in \
         its systemd unit: AmbientCapabilities=CAP_NET_BIND_SERVICE"
    )]
    Forbidden {
        /// The address.
        address: SocketAddr,
    },
    /// The host does not have the address.
    #[error(
        "this host has no address {ip}: `ip addr` lists its addresses. If the address is \
         added later (failover), allow binding it before: \
         sysctl -w net.ipv{family}.ip_nonlocal_bind=1",
        ip = address.ip(),
        family = if address.is_ipv4() { 4 } else { 6 }
    )]
    NotHere {
        /// The address.
        address: SocketAddr,
    },
    /// The host does not support the address's family.
    #[error(
        "this host has no {family}, which {address} needs: enable {family} or remove the address",
        family = if address.is_ipv4() { "IPv4" } else { "IPv6" }
    )]
    NoFamily {
        /// The address.
        address: SocketAddr,
    },
    /// All addresses were optional, and none is available.
    #[error("none of the listen addresses is available on this host")]
    Nothing,
    /// The system refuses one of the steps.
    #[error("{step} on {address}: {cause}")]
    System {
        /// The address.
        address: SocketAddr,
        /// The step.
        step: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

impl BindError {
    pub(crate) fn at(
        address: SocketAddr,
        step: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + Copy {
        move |cause| Self::System { address, step, cause }
    }
}

impl BoundSocket {
    /// A UDP socket that is bound to `address`, or is going to be.
    fn new(socket: Socket, address: SocketAddr, sharing: Sharing) -> Self {
        let reports_local = sharing == Sharing::Group && address.ip().is_unspecified();
        let socket = Self { socket: socket.into(), address, reports_local };
        // Only an optimisation: a kernel that does not support it works as well.
        socket.set_fragments(false);
        socket
    }

    /// A server's socket that another process has bound, made nonblocking.
    pub(crate) fn from_bound(socket: UdpSocket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, reports_local: address.ip().is_unspecified() })
    }

    /// The address that the socket is bound to, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets whether datagrams larger than their path's MTU may be sent in fragments; otherwise the
    /// kernel refuses them (EMSGSIZE). Without fragments IPv4 needs no identification, which the
    /// kernel otherwise draws for each datagram with a keyed hash and a shared counter
    /// (docs/decisions/0014). IPv6 has an identification only in fragments. Returns whether the
    /// option was set.
    pub(crate) fn set_fragments(&self, may: bool) -> bool {
        let mode = if may { libc::IP_PMTUDISC_WANT } else { libc::IP_PMTUDISC_DO };
        let option = libc::IP_MTU_DISCOVER;
        self.address.is_ipv4()
            && sys::set_option(self.as_fd(), libc::IPPROTO_IP, option, &mode).is_ok()
    }

    /// Whether the kernel reports for each datagram the local address that it was sent to (enabled
    /// on wildcard binds only, as it costs on every datagram).
    pub fn reports_local(&self) -> bool {
        self.reports_local
    }

    /// The socket itself, for calls that do not change its options.
    pub fn as_udp(&self) -> &UdpSocket {
        &self.socket
    }

    /// The two buffer sizes as the kernel counts them: twice the requested size.
    ///
    /// # Errors
    /// Only if the socket is broken.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let socket = SockRef::from(&self.socket);
        Ok(Buffers { receive: socket.recv_buffer_size()?, send: socket.send_buffer_size()? })
    }

    /// A socket that another server of this kind has bound; its options are left as they are.
    ///
    /// # Errors
    /// When it is not a UDP socket bound to an IPv4 or IPv6 address.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        let address = socket.local_addr()?.as_socket().filter(|address| address.port() != 0);
        if address.is_none() || socket.r#type()? != Type::DGRAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a bound UDP socket"));
        }
        Self::from_bound(socket.into())
    }

    /// Sets the options that can be set after binding; returns the degraded ones.
    pub(crate) fn with_options(self, buffers: Buffers) -> Result<(Self, Vec<Notice>), BindError> {
        let (address, mut notices) = (self.address, Vec::new());
        if self.reports_local
            && let Err(cause) = enable_local_reports(&self)
        {
            notices.push(format!(
                "on {address} this system does not report the local address of a request \
                 ({cause}); a host with several addresses may reply from the wrong one: list each \
                 address in place of the wildcard"
            ));
        }
        let asked = [(Direction::Receive, buffers.receive), (Direction::Send, buffers.send)];
        for (direction, asked) in asked {
            let given = set_buffer(&self, direction, asked);
            let given = given.map_err(BindError::at(address, "set a buffer's size"))?;
            if given < asked {
                notices.push(buffer_clamped(address, direction, asked, given));
            }
        }
        Ok((self, notices))
    }

    /// As [`with_options`](Self::with_options), without shrinking a buffer: the process that bound
    /// the socket may have had the capability to exceed the kernel's limit.
    pub(crate) fn with_larger_buffers(
        self,
        asked: Buffers,
    ) -> Result<(Self, Vec<Notice>), BindError> {
        let has = self.buffers().map_err(BindError::at(self.address, "ask for a buffer's size"))?;
        // The kernel counts twice the requested size; 0 requests nothing.
        let more = |has: usize, asked: usize| if has / 2 >= asked { 0 } else { asked };
        let receive = more(has.receive, asked.receive);
        self.with_options(Buffers { receive, send: more(has.send, asked.send) })
    }

    /// A server's socket for `address`, to be bound later beside others of its group.
    pub(crate) fn unbound(address: SocketAddr) -> Result<Self, BindError> {
        let socket = prepare(address, Transport::Udp, Sharing::Group);
        let socket = socket.map_err(|e| e.into_error(address, Transport::Udp))?;
        Ok(Self::new(socket, address, Sharing::Group))
    }

    /// A second descriptor of the same kernel socket. It keeps the socket open, and with it the
    /// socket's number in its group, while a worker restarts.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, ..*self })
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds one socket per worker and address.
///
/// With port 0 the system picks a port for each such address, and all workers share it.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be bound and is not optional.
///
/// # Panics
/// When `options.workers` is 0.
pub fn bind_group(addresses: &[Address], options: &Options) -> Result<Group, BindError> {
    let mut group = Group::new(options.workers);
    group.bind(addresses, options.buffers, options.probe)?;
    group.with_an_address()
}

/// Checks that [`bind_group`], or [`stream::listen`](crate::stream::listen) for TCP, could bind an
/// address now, without keeping it.
///
/// # Errors
/// The [`BindError`] that it would return.
pub fn check(
    Address { address, optional }: Address,
    transport: Transport,
) -> Result<(), BindError> {
    match probe(address, transport, true) {
        Err(failure) if !(optional && failure.is_absence()) => {
            Err(failure.into_error(address, transport))
        }
        _ => Ok(()),
    }
}

/// Those of `addresses` that this process can bind. Those that are optional and that the host lacks
/// are left out, with a notice.
pub(crate) fn available(
    addresses: &[Address],
    transport: Transport,
    may_probe: bool,
    notices: &mut Vec<Notice>,
) -> Result<Vec<SocketAddr>, BindError> {
    let mut wanted = Vec::with_capacity(addresses.len());
    for &Address { address, optional } in addresses {
        match probe(address, transport, may_probe) {
            Ok(()) => wanted.push(address),
            Err(failure) if optional && failure.is_absence() => {
                let (family, remedy) = match address.is_ipv6() {
                    true => ("IPv6", ": sysctl -w net.ipv6.conf.all.disable_ipv6=0"),
                    false => ("IPv4", ""),
                };
                notices.push(format!(
                    "not listening on {address}, which this host does not have ({}); to serve \
                     {family}, enable it and restart{remedy}",
                    failure.1
                ));
            }
            Err(failure) => return Err(failure.into_error(address, transport)),
        }
    }
    Ok(wanted)
}

/// The address with its port, and a function that binds one more socket to it.
pub(crate) fn group_at(
    address: SocketAddr,
    transport: Transport,
) -> Result<(SocketAddr, impl FnMut() -> Result<Socket, BindError>), BindError> {
    let reserved = (address.port() == 0).then(|| reserve_port(address, transport)).transpose()?;
    let (mut reserved, address) = match reserved {
        Some((socket, address)) => (Some(socket), address),
        None => (None, address),
    };
    let next = move || {
        let opened = open(address, transport, Sharing::Group);
        let (socket, _) = opened.map_err(|e| e.into_error(address, transport))?;
        // The group has begun: its first socket takes the number that the placeholder frees here.
        drop(reserved.take());
        Ok(socket)
    };
    Ok((address, next))
}

/// A listener for `address`, to be bound later beside others of its group.
pub(crate) fn unbound_listener(address: SocketAddr) -> Result<Socket, BindError> {
    let socket = prepare(address, Transport::Tcp, Sharing::Group);
    socket.map_err(|e| e.into_error(address, Transport::Tcp))
}

/// A placeholder socket whose port is free of other groups, and is shared from now on. A socket
/// that sets SO_REUSEPORT before it binds port 0 may get the port of another group of this user and
/// take datagrams from it; a port found by a probe and bound later could be taken in between.
fn reserve_port(
    address: SocketAddr,
    transport: Transport,
) -> Result<(Socket, SocketAddr), BindError> {
    let reserved = open(address, transport, Sharing::Alone);
    let (socket, address) = reserved.map_err(|e| e.into_error(address, transport))?;
    socket.set_reuse_port(true).map_err(BindError::at(address, "set SO_REUSEPORT"))?;
    Ok((socket, address))
}

impl Group {
    pub(crate) fn new(workers: usize) -> Self {
        assert!(workers > 0, "a group has at least one worker");
        let workers = (0..workers).map(|_| Vec::new()).collect();
        Self { workers, addresses: Vec::new(), notices: Vec::new() }
    }

    /// Binds one socket per worker at each of these addresses. Those that are optional and that the
    /// host lacks are left out.
    pub(crate) fn bind(
        &mut self,
        addresses: &[Address],
        buffers: Buffers,
        may_probe: bool,
    ) -> Result<(), BindError> {
        let workers = self.workers.len();
        for address in available(addresses, Transport::Udp, may_probe, &mut self.notices)? {
            let (address, mut next) = group_at(address, Transport::Udp)?;
            let next = |_| BoundSocket::new(next()?, address, Sharing::Group).with_options(buffers);
            self.add(address, (0..workers).map(next))?;
        }
        Ok(())
    }

    /// Adds an address with its sockets, and the degraded options of each: worker `i % workers`
    /// reads number `i`.
    pub(crate) fn add(
        &mut self,
        address: SocketAddr,
        sockets: impl Iterator<Item = Result<(BoundSocket, Vec<Notice>), BindError>>,
    ) -> Result<(), BindError> {
        let workers = self.workers.len();
        for (number, socket) in sockets.enumerate() {
            let (socket, notices) = socket?;
            // The notices for one socket of an address hold for all of its sockets.
            if number == 0 {
                self.notices.extend(notices);
            }
            self.workers[number % workers].push(socket);
        }
        self.addresses.push(address);
        Ok(())
    }

    pub(crate) fn with_an_address(self) -> Result<Self, BindError> {
        if self.addresses.is_empty() { Err(BindError::Nothing) } else { Ok(self) }
    }

    /// The sockets of one address, in the order of their group: worker `i % workers` reads number
    /// `i`.
    pub fn sockets_at(&self, address: SocketAddr) -> Vec<&BoundSocket> {
        let mut sockets = Vec::new();
        for own in &self.workers {
            sockets.extend(own.iter().filter(|socket| socket.address == address).enumerate());
        }
        // A stable sort: in each round the workers stay in their order.
        sockets.sort_by_key(|(round, _)| *round);
        sockets.into_iter().map(|(_, socket)| socket).collect()
    }
}

/// Binds one plain socket to `source` for a client: its port is usually 0, its address an address
/// of the host (all of 127/8 are) or unspecified.
///
/// # Errors
/// As [`bind_group`].
pub fn bind_client(
    source: SocketAddr,
    buffers: Buffers,
) -> Result<(BoundSocket, Vec<Notice>), BindError> {
    let opened = open(source, Transport::Udp, Sharing::Alone);
    let (socket, address) = opened.map_err(|e| e.into_error(source, Transport::Udp))?;
    BoundSocket::new(socket, address, Sharing::Alone).with_options(buffers)
}

/// Other sockets that may have the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// None.
    Alone,
    /// The other workers' sockets. A server's socket also reports the local address of a datagram.
    Group,
}

/// Why a socket could not be opened: the step that failed, and the system's error.
struct Failure(&'static str, io::Error);

impl Failure {
    /// Whether the host lacks the address or its family.
    fn is_absence(&self) -> bool {
        matches!(self.1.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT))
    }

    /// The public form of the error.
    fn into_error(self, address: SocketAddr, transport: Transport) -> BindError {
        let Self(step, cause) = self;
        match cause.raw_os_error() {
            // A host with the family has its unspecified address.
            Some(libc::EADDRNOTAVAIL) if !address.ip().is_unspecified() => {
                BindError::NotHere { address }
            }
            Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => BindError::NoFamily { address },
            Some(libc::EADDRINUSE) => BindError::Taken { address, transport },
            Some(libc::EACCES) => BindError::Forbidden { address },
            _ => BindError::System { address, step, cause },
        }
    }
}

/// Checks that this process can bind `address` alone. Without `exclusive`, checks only that the
/// host has the address.
fn probe(address: SocketAddr, transport: Transport, exclusive: bool) -> Result<(), Failure> {
    if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) {
        // With IPv6 disabled (net.ipv6.conf.all.disable_ipv6) the kernel still binds `::`, but
        // nothing arrives. The address ::1 exists exactly if IPv6 is enabled.
        let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        open(loopback, transport, Sharing::Alone)?;
    }
    // Port 0 is always free, so that only the address is checked.
    let address = if exclusive { address } else { SocketAddr::new(address.ip(), 0) };
    open(address, transport, Sharing::Alone).map(drop)
}

/// Opens a socket for `address` and sets the options that must be set before it is bound.
fn prepare(address: SocketAddr, transport: Transport, sharing: Sharing) -> Result<Socket, Failure> {
    let at = |step| move |cause| Failure(step, cause);
    let (kind, protocol) = match transport {
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol));
    let socket = socket.map_err(at("open a socket"))?;
    socket.set_nonblocking(true).map_err(at("make a socket nonblocking"))?;
    if address.is_ipv6() {
        // Each family has its own sockets and groups; IPv4 addresses are never mapped.
        socket.set_only_v6(true).map_err(at("set IPV6_V6ONLY"))?;
    }
    if sharing == Sharing::Group {
        socket.set_reuse_port(true).map_err(at("set SO_REUSEPORT"))?;
    }
    if transport == Transport::Tcp {
        // Connections that outlive a server do not keep its address; another listener does. The
        // port that the system picks has no connections either.
        socket.set_reuse_address(address.port() != 0).map_err(at("set SO_REUSEADDR"))?;
        // Accepted connections inherit it.
        socket.set_tcp_nodelay(true).map_err(at("set TCP_NODELAY"))?;
    }
    Ok(socket)
}

/// Opens and binds a socket; returns it with its address. A listener of a group then listens.
fn open(
    address: SocketAddr,
    transport: Transport,
    sharing: Sharing,
) -> Result<(Socket, SocketAddr), Failure> {
    let at = |step| move |cause| Failure(step, cause);
    let socket = prepare(address, transport, sharing)?;
    socket.bind(&address.into()).map_err(at("bind"))?;
    if (transport, sharing) == (Transport::Tcp, Sharing::Group) {
        socket.listen(BACKLOG).map_err(at("listen"))?;
    }
    let bound = socket.local_addr().map_err(at("ask for the bound address"))?;
    Ok((socket, bound.as_socket().unwrap_or(address)))
}

/// Makes the kernel report the local address of each datagram.
fn enable_local_reports(socket: &BoundSocket) -> io::Result<()> {
    match socket.address.ip() {
        IpAddr::V6(_) => {
            sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1)?;
        }
        IpAddr::V4(_) => {
            sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, &1)?;
        }
    }
    Ok(())
}

/// Requests a buffer of `asked` bytes (0 leaves it) and returns the granted size in the same unit.
fn set_buffer(socket: &BoundSocket, direction: Direction, asked: usize) -> io::Result<usize> {
    if asked == 0 {
        return Ok(0);
    }
    let asked = asked.min(libc::c_int::MAX as usize / 2);
    let plain = SockRef::from(&socket.socket);
    let given = || -> io::Result<usize> {
        let counted = match direction {
            Direction::Receive => plain.recv_buffer_size()?,
            Direction::Send => plain.send_buffer_size()?,
        };
        // Linux reports twice the requested size (socket(7)).
        Ok(counted / 2)
    };
    // The kernel clamps the size; the size read back shows it.
    let _ = match direction {
        Direction::Receive => plain.set_recv_buffer_size(asked),
        Direction::Send => plain.set_send_buffer_size(asked),
    };
    if given()? < asked {
        // Exceeds the sysctl limit with CAP_NET_ADMIN (docs/decisions/0009); without that
        // capability the size stays, and a notice reports it.
        let name = match direction {
            Direction::Receive => libc::SO_RCVBUFFORCE,
            Direction::Send => libc::SO_SNDBUFFORCE,
        };
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, name, &(asked as libc::c_int));
    }
    given()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of the error that `bind` returned.
    fn message(code: i32, transport: Transport) -> String {
        let failure = Failure("bind", io::Error::from_raw_os_error(code));
        failure.into_error("192.0.2.7:80".parse().unwrap(), transport).to_string()
    }

    #[test]
    fn each_refusal_names_its_remedy() {
        // Some of these errors cannot be produced in a test that may run as root.
        for (code, remedy) in [
            (libc::EADDRINUSE, "ss -ulpn 'sport = :80'"),
            (libc::EACCES, "setcap cap_net_bind_service=+ep"),
            (libc::EACCES, "AmbientCapabilities=CAP_NET_BIND_SERVICE"),
            (libc::EADDRNOTAVAIL, "sysctl -w net.ipv4.ip_nonlocal_bind=1"),
            (libc::EAFNOSUPPORT, "no IPv4"),
            (libc::EMFILE, "bind on 192.0.2.7:80"),
        ] {
            let text = message(code, Transport::Udp);
            assert!(text.contains(remedy) && text.contains("192.0.2.7"), "{code}: {text}");
        }
        let text = message(libc::EADDRINUSE, Transport::Tcp);
        assert!(text.contains("ss -tlpn 'sport = :80'"), "{text}");
    }
}
