//! The one place that opens sockets, and what the kernel made of their options. Those that somebody
//! else has opened come in by [`adopt`](crate::adopt).
//!
//! A daemon binds a *group*: for each address one socket per worker, joined by SO_REUSEPORT, bound
//! in worker order and all before anything is served, since the kernel numbers the sockets of a
//! group as they come and [steering](crate::steering) counts on it. SO_REUSEPORT would also
//! let a second copy of the daemon in, which would silently take half of the traffic: so each
//! address is first bound without it, as a probe.
//!
//! A load tester binds [plain sockets](bind_client).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::notice::{Direction, Notice};
use crate::sys;

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Address and port; port 0 lets the system choose one.
    pub address: SocketAddr,
    /// Whether to go on without it when the host lacks the address or its whole family.
    pub optional: bool,
}

/// How to bind a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sockets per address, at least 1.
    pub workers: usize,
    /// What to ask for as buffers.
    pub buffers: Buffers,
    /// Whether to look first if somebody else has an address. Only a takeover from a running
    /// copy skips this.
    pub probe: bool,
}

/// Bytes to ask for as socket buffers; 0 leaves the system's default. The kernel counts its own
/// overhead too (about 800 bytes for a small datagram), and doubles what is asked for to make up
/// for it (socket(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// SO_RCVBUF.
    pub receive: usize,
    /// SO_SNDBUF.
    pub send: usize,
}

/// A bound, nonblocking UDP socket.
#[derive(Debug)]
pub struct BoundSocket {
    socket: UdpSocket,
    address: SocketAddr,
    reports_local: bool,
}

/// A group's sockets.
#[derive(Debug)]
pub struct Group {
    /// For each worker its sockets, by address in the order of `addresses`: one of each, unless the group was made
    /// for [another number of workers](crate::regroup).
    pub workers: Vec<Vec<BoundSocket>>,
    /// The addresses that are bound, with the ports that they got.
    pub addresses: Vec<SocketAddr>,
    /// What went less well than asked for.
    pub notices: Vec<Notice>,
}

/// Why an address cannot be listened on. Displays with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody else has it.
    #[error(
        "{address} is taken: another process listens there, perhaps a second copy of this one. \
         Find it with: ss -ulpn 'sport = :{port}'",
        port = address.port()
    )]
    Taken {
        /// The address.
        address: SocketAddr,
    },
    /// The user may not use it.
    #[error(
        "no permission to listen on {address}: ports below 1024 need CAP_NET_BIND_SERVICE. \
         Use a higher port, or grant it with: setcap cap_net_bind_service=+ep <the program>, or in \
         its systemd unit: AmbientCapabilities=CAP_NET_BIND_SERVICE"
    )]
    Forbidden {
        /// The address.
        address: SocketAddr,
    },
    /// The host does not have it.
    #[error(
        "this host has no address {ip}: see `ip addr` for those it has. If it comes later \
         (failover), allow binding before that: sysctl -w net.ipv{family}.ip_nonlocal_bind=1",
        ip = address.ip(),
        family = if address.is_ipv4() { 4 } else { 6 }
    )]
    NotHere {
        /// The address.
        address: SocketAddr,
    },
    /// The host does not speak the address's family.
    #[error(
        "this host has no {family}, which {address} needs: enable it or leave the address out",
        family = if address.is_ipv4() { "IPv4" } else { "IPv6" }
    )]
    NoFamily {
        /// The address.
        address: SocketAddr,
    },
    /// Of all addresses, which were all optional, none is there.
    #[error("none of the addresses to listen on is there")]
    Nothing,
    /// The system refuses one of the steps.
    #[error("{step} on {address}: {cause}")]
    System {
        /// The address.
        address: SocketAddr,
        /// What was being done.
        step: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

impl BoundSocket {
    /// A server's socket that somebody else has bound.
    pub(crate) fn of(socket: UdpSocket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(true)?;
        set_fragments(socket.as_fd(), address, false);
        Ok(Self { socket, address, reports_local: address.ip().is_unspecified() })
    }

    /// The address that it is bound to, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether datagrams larger than their path may leave in fragments from now on; otherwise the
    /// kernel refuses those (EMSGSIZE). Returns whether there is such a choice here.
    pub(crate) fn set_fragments(&self, may: bool) -> bool {
        set_fragments(self.as_fd(), self.address, may)
    }

    /// Whether the kernel tells for each datagram which local address it was sent to (set on
    /// wildcard binds only, as it costs on every datagram).
    pub fn reports_local(&self) -> bool {
        self.reports_local
    }

    /// The socket itself, for calls that do not change how it works.
    pub fn as_udp(&self) -> &UdpSocket {
        &self.socket
    }

    /// The two buffers as the kernel counts them: twice what it was asked for.
    ///
    /// # Errors
    /// Only if the socket is broken.
    pub fn buffers(&self) -> io::Result<Buffers> {
        let socket = socket2::SockRef::from(&self.socket);
        Ok(Buffers { receive: socket.recv_buffer_size()?, send: socket.send_buffer_size()? })
    }

    /// A socket that was bound elsewhere, by a server of this kind: its options are as that one set
    /// them.
    ///
    /// # Errors
    /// When it is no UDP socket that is bound to an address of IPv4 or IPv6.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        let address = socket.local_addr()?.as_socket().filter(|address| address.port() != 0);
        let (Type::DGRAM, Some(address)) = (socket.r#type()?, address) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no UDP socket that is bound"));
        };
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), address, reports_local: address.ip().is_unspecified() })
    }

    /// A second descriptor of the same kernel socket. It keeps the socket, and with it its number
    /// in its group, over a worker's restart.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let Self { socket, address, reports_local } = self;
        Ok(Self { socket: socket.try_clone()?, address: *address, reports_local: *reports_local })
    }
}

impl AsFd for BoundSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Binds one socket per worker and address.
///
/// With port 0 the system picks a port, for each such address anew, and all workers share it.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be had and is not optional.
///
/// # Panics
/// When `options.workers` is 0.
pub fn bind_group(addresses: &[Address], options: &Options) -> Result<Group, BindError> {
    assert!(options.workers > 0, "a group has at least one worker");
    let mut notices = Vec::new();
    let mut wanted = Vec::with_capacity(addresses.len());
    for &Address { address, optional } in addresses {
        match probe(address, options.probe) {
            Ok(()) => wanted.push(address),
            Err(Failure::Absent(_, cause)) if optional => {
                notices.push(Notice::AddressUnavailable { address, cause });
            }
            Err(failure) => return Err(failure.into_error(address)),
        }
    }
    if wanted.is_empty() {
        return Err(BindError::Nothing);
    }
    let mut workers: Vec<Vec<BoundSocket>> = Vec::new();
    workers.resize_with(options.workers, || Vec::with_capacity(wanted.len()));
    for address in &mut wanted {
        let mut held = (address.port() == 0).then(|| hold_a_port(*address)).transpose()?;
        if let Some(held) = &held {
            *address = held.address;
        }
        for (number, sockets) in workers.iter_mut().enumerate() {
            let socket = open(*address, Sharing::Group).map_err(|e| e.into_error(*address))?;
            // The group has begun. Its first socket takes the number that becomes free here.
            drop(held.take());
            let mut made = settle(&socket, options.buffers)?;
            // What holds for one socket of an address holds for all.
            if number == 0 {
                notices.append(&mut made);
            }
            sockets.push(socket);
        }
    }
    Ok(Group { workers, addresses: wanted, notices })
}

/// A socket with a port that nobody else had, which a group may now share. One that may share its port from the
/// beginning gets any from the kernel, one of another group of this user too, and would take datagrams away there;
/// and between looking for a port and binding it, somebody else could have it.
fn hold_a_port(address: SocketAddr) -> Result<BoundSocket, BindError> {
    let held = open(address, Sharing::Alone).map_err(|e| e.into_error(address))?;
    socket2::SockRef::from(&held.socket).set_reuse_port(true).map_err(|cause| {
        BindError::System { address: held.address, step: "set SO_REUSEPORT", cause }
    })?;
    Ok(held)
}

impl Group {
    /// The sockets of one address, in the order of their group: number `i` is read by worker `i % workers`.
    pub fn sockets_at(&self, address: SocketAddr) -> Vec<&BoundSocket> {
        let own = |sockets: &'_ Vec<BoundSocket>| -> Vec<usize> {
            (0..sockets.len()).filter(|number| sockets[*number].address == address).collect()
        };
        let numbers: Vec<Vec<usize>> = self.workers.iter().map(own).collect();
        let most = numbers.iter().map(Vec::len).max().unwrap_or(0);
        let round = |round: usize| {
            let workers = self.workers.iter().zip(&numbers);
            workers.filter_map(move |(sockets, own)| own.get(round).map(|number| &sockets[*number]))
        };
        (0..most).flat_map(round).collect()
    }
}

/// A server's socket that is to be bound to `address`, beside others of its group, and is not yet.
pub(crate) fn open_unbound(address: SocketAddr) -> Result<BoundSocket, BindError> {
    let socket = prepare(address, Sharing::Group).map_err(|e| e.into_error(address))?;
    let reports_local = address.ip().is_unspecified();
    Ok(BoundSocket { socket: socket.into(), address, reports_local })
}

/// Binds one plain socket to `source` for a client: its port is usually 0, its address one of the
/// host's (all of 127/8 are) or unspecified.
///
/// # Errors
/// As [`bind_group`].
pub fn bind_client(
    source: SocketAddr,
    buffers: Buffers,
) -> Result<(BoundSocket, Vec<Notice>), BindError> {
    let socket = open(source, Sharing::Alone).map_err(|e| e.into_error(source))?;
    let notices = settle(&socket, buffers)?;
    Ok((socket, notices))
}

/// Who else may have the same address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Nobody.
    Alone,
    /// The other workers; and as this is a server's socket, it tells the local address.
    Group,
}

/// Why a socket could not be opened.
enum Failure {
    /// The host lacks the address or its family.
    Absent(Missing, io::Error),
    /// Anything else, and at which step.
    Other(&'static str, io::Error),
}

/// What is absent.
enum Missing {
    Address,
    Family,
}

impl Failure {
    /// From the error of `step`.
    fn new(step: &'static str, cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::EAFNOSUPPORT) => Self::Absent(Missing::Family, cause),
            Some(libc::EADDRNOTAVAIL) => Self::Absent(Missing::Address, cause),
            _ => Self::Other(step, cause),
        }
    }

    /// As the caller of this module sees it.
    fn into_error(self, address: SocketAddr) -> BindError {
        match self {
            Self::Absent(Missing::Address, _) => BindError::NotHere { address },
            Self::Absent(Missing::Family, _) => BindError::NoFamily { address },
            Self::Other(step, cause) => match cause.raw_os_error() {
                Some(libc::EADDRINUSE) => BindError::Taken { address },
                Some(libc::EACCES) => BindError::Forbidden { address },
                _ => BindError::System { address, step, cause },
            },
        }
    }
}

/// Whether `address` can be bound by this process alone. Without `exclusive`, only whether the host
/// has the address.
fn probe(address: SocketAddr, exclusive: bool) -> Result<(), Failure> {
    if address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) {
        // With IPv6 switched off (net.ipv6.conf.all.disable_ipv6) the kernel binds `::` all the
        // same, and nothing arrives there. ::1 is there exactly when IPv6 is.
        let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        open(loopback, Sharing::Alone).map_err(|failure| match failure {
            Failure::Absent(_, cause) => Failure::Absent(Missing::Family, cause),
            other => other,
        })?;
    }
    // A port of its own leaves only the address to be probed.
    let address = if exclusive { address } else { SocketAddr::new(address.ip(), 0) };
    open(address, Sharing::Alone).map(drop)
}

/// Opens a socket, with all that has to be set before it is bound.
fn prepare(address: SocketAddr, sharing: Sharing) -> Result<Socket, Failure> {
    let at = |step| move |cause| Failure::new(step, cause);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(at("open a socket"))?;
    socket.set_nonblocking(true).map_err(at("make a socket nonblocking"))?;
    if address.is_ipv6() {
        // Each family has sockets, and so a group, of its own; an IPv4 client is never mapped.
        socket.set_only_v6(true).map_err(at("set IPV6_V6ONLY"))?;
    }
    // It saves time, and nothing more: a kernel that does not know it is served from all the same.
    set_fragments(socket.as_fd(), address, false);
    if sharing == Sharing::Group {
        socket.set_reuse_port(true).map_err(at("set SO_REUSEPORT"))?;
    }
    Ok(socket)
}

/// Opens and binds a socket.
fn open(address: SocketAddr, sharing: Sharing) -> Result<BoundSocket, Failure> {
    let at = |step| move |cause| Failure::new(step, cause);
    let socket = prepare(address, sharing)?;
    socket.bind(&address.into()).map_err(at("bind"))?;
    let socket = UdpSocket::from(socket);
    let bound = socket.local_addr().map_err(at("ask for the bound address"))?;
    Ok(BoundSocket {
        socket,
        address: bound,
        reports_local: sharing == Sharing::Group && address.ip().is_unspecified(),
    })
}

/// Whether datagrams that are larger than their path may leave in fragments. Where none may be
/// fragmented IPv4 needs no identification, which the kernel otherwise draws for each datagram,
/// by a keyed hash and a shared counter (docs/decisions/0014). IPv6 has one only in fragments.
/// Returns whether it was set.
fn set_fragments(fd: BorrowedFd<'_>, address: SocketAddr, may: bool) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if address.is_ipv4() {
        let mode = if may { libc::IP_PMTUDISC_WANT } else { libc::IP_PMTUDISC_DO };
        return sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &mode).is_ok();
    }
    let _ = (fd, address, may);
    false
}

/// Sets what can be set after binding, and looks what became of it.
pub(crate) fn settle(socket: &BoundSocket, buffers: Buffers) -> Result<Vec<Notice>, BindError> {
    let mut notices = Vec::new();
    if socket.reports_local
        && let Err(cause) = tell_local(socket)
    {
        notices.push(Notice::LocalAddressUnknown { address: socket.address, cause });
    }
    for (direction, asked) in
        [(Direction::Receive, buffers.receive), (Direction::Send, buffers.send)]
    {
        let given = set_buffer(socket, direction, asked).map_err(|cause| BindError::System {
            address: socket.address,
            step: "set a buffer's size",
            cause,
        })?;
        if given < asked {
            let address = socket.address;
            notices.push(Notice::BufferClamped { address, direction, asked, given });
        }
    }
    Ok(notices)
}

/// Has the kernel tell which local address each datagram was sent to.
fn tell_local(socket: &BoundSocket) -> io::Result<()> {
    match socket.address.ip() {
        IpAddr::V6(Ipv6Addr { .. }) => {
            sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &1)?;
        }
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        IpAddr::V4(Ipv4Addr { .. }) => {
            sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, &1)?;
        }
        #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
        IpAddr::V4(Ipv4Addr { .. }) => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

/// Asks for a buffer of `asked` bytes (0: leaves it), returns what was given in the same measure.
fn set_buffer(socket: &BoundSocket, direction: Direction, asked: usize) -> io::Result<usize> {
    if asked == 0 {
        return Ok(0);
    }
    let asked = asked.min(libc::c_int::MAX as usize / 2);
    let plain = socket2::SockRef::from(&socket.socket);
    let given = || -> io::Result<usize> {
        let counted = match direction {
            Direction::Receive => plain.recv_buffer_size()?,
            Direction::Send => plain.send_buffer_size()?,
        };
        // Linux reports twice what it was asked for (socket(7)).
        Ok(if cfg!(any(target_os = "linux", target_os = "android")) {
            counted / 2
        } else {
            counted
        })
    };
    // A system that refuses rather than clamps has told enough: the size read back says the rest.
    let _ = match direction {
        Direction::Receive => plain.set_recv_buffer_size(asked),
        Direction::Send => plain.set_send_buffer_size(asked),
    };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if given()? < asked {
        // Past the sysctl limit with CAP_NET_ADMIN (docs/decisions/0009); without it the size
        // stays, and the notice tells.
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

    /// What the caller is told when `bind` fails with this error.
    fn told(code: i32) -> String {
        let failure = Failure::new("bind", io::Error::from_raw_os_error(code));
        failure.into_error("192.0.2.7:80".parse().unwrap()).to_string()
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        // Not all of these can be had in a test that may run as root.
        for (code, remedy) in [
            (libc::EADDRINUSE, "ss -ulpn 'sport = :80'"),
            (libc::EACCES, "setcap cap_net_bind_service=+ep"),
            (libc::EACCES, "AmbientCapabilities=CAP_NET_BIND_SERVICE"),
            (libc::EADDRNOTAVAIL, "sysctl -w net.ipv4.ip_nonlocal_bind=1"),
            (libc::EAFNOSUPPORT, "no IPv4"),
            (libc::EMFILE, "bind on 192.0.2.7:80"),
        ] {
            let text = told(code);
            assert!(text.contains(remedy) && text.contains("192.0.2.7"), "{code}: {text}");
        }
    }
}
