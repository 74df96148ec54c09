//! Sockets that another process has bound: a service manager, or the predecessor of this process.
//! Options that [`bind`](crate::bind) sets before it binds are checked here, as they cannot be
//! changed on a bound socket.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use socket2::SockRef;

use crate::bind::{BindError, BoundSocket, Buffers, Group};
use crate::regroup::{AddressSockets, regroup};
use crate::stream::listen::AddressListeners;

/// Bound sockets, equally many for each address.
#[derive(Debug)]
pub struct Adopted {
    /// By address, in the order of first appearance; the sockets of one address in the given order,
    /// which steering takes for the order of binding.
    groups: Vec<AddressSockets>,
}

impl Adopted {
    /// Checks that these sockets can be served from.
    ///
    /// # Errors
    /// A text that names the unusable socket or address, and the remedy.
    pub fn new(sockets: Vec<UdpSocket>) -> Result<Self, String> {
        let mut groups: Vec<AddressSockets> = Vec::new();
        for socket in sockets {
            let socket = BoundSocket::from_bound(socket);
            let socket = socket.map_err(refused("ask for the address"))?;
            socket.set_fragments(false);
            let address = socket.address();
            check(&socket, address)?;
            match groups.iter_mut().find(|known| known.address == address) {
                Some(known) => known.sockets.push(socket),
                None => groups.push(AddressSockets { address, sockets: vec![socket] }),
            }
        }
        let Some(AddressSockets { address: other, sockets: first }) = groups.first() else {
            return Err("no socket was passed: one for each address and worker is needed".into());
        };
        let others = first.len();
        for AddressSockets { address, sockets } in &groups {
            let number = sockets.len();
            if number != others {
                return Err(format!(
                    "{address} has {number} of the sockets that were passed and {other} has \
                     {others}: each address needs as many as there are workers, so repeat the \
                     ListenDatagram= lines of all addresses equally often"
                ));
            }
            for socket in sockets.iter().filter(|_| others > 1) {
                let shared = SockRef::from(socket).reuse_port();
                if !shared.map_err(refused("ask for SO_REUSEPORT"))? {
                    return Err(format!(
                        "{others} sockets were passed for {address}, but not as a group \
                         (SO_REUSEPORT): all datagrams would reach one of them. Set ReusePort=yes \
                         in the socket unit, or pass one socket for each address"
                    ));
                }
            }
        }
        Ok(Self { groups })
    }

    /// The addresses, each once.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.groups.iter().map(|group| group.address).collect()
    }

    /// Sockets per address: the largest number of workers.
    pub fn workers(&self) -> usize {
        self.groups[0].sockets.len()
    }

    /// Makes a group of the sockets. A buffer that is larger than requested is not shrunk.
    ///
    /// # Errors
    /// When an option cannot be set.
    pub fn into_group(self, buffers: Buffers) -> Result<Group, BindError> {
        let workers = self.workers();
        regroup(self.groups, &[], workers, buffers).map(|(group, _)| group)
    }
}

/// Checks that these TCP listeners can be served from, makes them nonblocking, and sets TCP_NODELAY
/// for accepted connections. By address, any number of each.
///
/// # Errors
/// A text that names the unusable listener, and the remedy.
pub fn listeners(passed: Vec<TcpListener>) -> Result<Vec<AddressListeners>, String> {
    let mut groups: Vec<AddressListeners> = Vec::new();
    for listener in passed {
        let address = listener.local_addr().map_err(refused("ask for the address"))?;
        check(&listener, address)?;
        let socket = SockRef::from(&listener);
        if !socket.is_listener().map_err(refused("ask for SO_ACCEPTCONN"))? {
            return Err(format!(
                "the TCP socket for {address} does not listen: write Accept=no in the socket unit, \
                 so that the listener is passed and not each connection"
            ));
        }
        socket.set_nonblocking(true).map_err(refused("set O_NONBLOCK"))?;
        socket.set_tcp_nodelay(true).map_err(refused("set TCP_NODELAY"))?;
        match groups.iter_mut().find(|known| known.address == address) {
            Some(known) => known.listeners.push(listener),
            None => groups.push(AddressListeners { address, listeners: vec![listener] }),
        }
    }
    Ok(groups)
}

/// Checks that a socket has a port, and is of one family.
fn check(socket: &impl AsFd, address: SocketAddr) -> Result<(), String> {
    let port = address.port();
    if port == 0 {
        return Err(format!("a socket that was passed is not bound to a port: {address}"));
    }
    if takes_both_families(socket, address).map_err(refused("ask for IPV6_V6ONLY"))? {
        return Err(format!(
            "the socket for {address} accepts IPv4 as well, and each family needs its own \
             sockets: set BindIPv6Only=ipv6-only in the socket unit, and add 0.0.0.0:{port}"
        ));
    }
    Ok(())
}

/// The text of an error of one step.
fn refused(step: &'static str) -> impl Fn(io::Error) -> String {
    move |cause| format!("{step} of a socket that was passed: {cause}")
}

/// A wildcard IPv6 socket also accepts IPv4 unless IPV6_V6ONLY was set before it was bound.
fn takes_both_families(socket: &impl AsFd, address: SocketAddr) -> io::Result<bool> {
    match address.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => Ok(!SockRef::from(socket).only_v6()?),
        IpAddr::V6(ip) => Ok(ip.to_ipv4_mapped().is_some()),
        IpAddr::V4(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    fn bound(address: &str, group: bool, only_v6: bool) -> UdpSocket {
        let address: SocketAddr = address.parse().unwrap();
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).unwrap();
        // As systemd does, so that a second socket can be bound to the same address.
        socket.set_reuse_address(true).unwrap();
        socket.set_reuse_port(group).unwrap();
        if address.is_ipv6() {
            socket.set_only_v6(only_v6).unwrap();
        }
        socket.bind(&address.into()).unwrap();
        socket.into()
    }

    /// `number` sockets at one free port.
    fn several(ip: &str, number: usize, group: bool) -> Vec<UdpSocket> {
        let first = bound(&format!("{ip}:0"), group, true);
        let address = first.local_addr().unwrap().to_string();
        let rest = (1..number).map(|_| bound(&address, group, true));
        std::iter::once(first).chain(rest).collect()
    }

    fn refusal(sockets: Vec<UdpSocket>) -> String {
        Adopted::new(sockets).unwrap_err()
    }

    #[test]
    fn sockets_are_distributed_by_address_in_order() {
        let (mut v4, v6) = (several("127.0.0.1", 2, true), several("[::1]", 2, true));
        let expected = [v4[0].local_addr().unwrap(), v6[0].local_addr().unwrap()];
        // Distinguishes the two sockets.
        for (size, socket) in [(70_000, &v4[0]), (90_000, &v4[1])] {
            SockRef::from(socket).set_recv_buffer_size(size).unwrap();
        }
        let last = v4.pop().unwrap();
        let sockets: Vec<_> = v4.into_iter().chain(v6).chain([last]).collect();
        let adopted = Adopted::new(sockets).unwrap();
        assert_eq!((adopted.addresses(), adopted.workers()), (expected.to_vec(), 2));
        let group = adopted.into_group(Buffers::default()).unwrap();
        assert_eq!(group.addresses, expected);
        for (worker, size) in group.workers.iter().zip([140_000, 180_000]) {
            assert_eq!(worker.iter().map(BoundSocket::address).collect::<Vec<_>>(), expected);
            assert_eq!(worker[0].buffers().unwrap().receive, size);
            let error = worker[0].as_udp().recv(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn a_buffer_is_raised_and_never_lowered() {
        let socket = bound("127.0.0.1:0", true, true);
        SockRef::from(&socket).set_recv_buffer_size(80_000).unwrap();
        SockRef::from(&socket).set_send_buffer_size(20_000).unwrap();
        let asked = Buffers { receive: 40_000, send: 60_000 };
        let group = Adopted::new(vec![socket]).unwrap().into_group(asked).unwrap();
        let buffers = group.workers[0][0].buffers().unwrap();
        assert_eq!(buffers, Buffers { receive: 160_000, send: 120_000 });
    }

    #[test]
    fn only_a_wildcard_reports_the_local_address() {
        let sockets = vec![bound("0.0.0.0:0", true, true), bound("127.0.0.1:0", true, true)];
        let group = Adopted::new(sockets).unwrap().into_group(Buffers::default()).unwrap();
        let reports: Vec<_> = group.workers[0].iter().map(BoundSocket::reports_local).collect();
        assert_eq!(reports, [true, false]);
    }

    #[test]
    fn unusable_sockets_are_refused_with_the_remedy() {
        assert!(refusal(Vec::new()).contains("one for each address and worker"));
        let mut uneven = several("127.0.0.1", 2, true);
        uneven.extend(several("[::1]", 1, true));
        let text = refusal(uneven);
        assert!(text.contains("has 1 of") && text.contains("has 2: each address needs"), "{text}");
        let text = refusal(several("127.0.0.1", 2, false));
        assert!(text.contains("2 sockets") && text.contains("ReusePort=yes"), "{text}");
        let text = refusal(vec![bound("[::]:0", true, false)]);
        assert!(text.contains("BindIPv6Only=ipv6-only"), "{text}");
        Adopted::new(vec![bound("[::]:0", true, true)]).unwrap();
        Adopted::new(several("127.0.0.1", 1, false)).unwrap();
    }
}
