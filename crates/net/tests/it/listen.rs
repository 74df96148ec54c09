//! TCP listeners: one per worker and address, their options, those of another process, and the text
//! of refusals.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use onrush_net::adopt;
use onrush_net::bind::{Address, BindError, Transport};
use onrush_net::stream::listen::{
    AddressListeners, Listeners, PendingListeners, bind, defer_accept,
};
use socket2::{Domain, SockRef, Socket, Type};

fn at(address: &str) -> Address {
    Address { address: address.parse().unwrap(), optional: false }
}

/// The error of a bind that must fail.
fn refused(result: Result<Listeners, BindError>) -> BindError {
    match result {
        Ok(listeners) => panic!("bound {:?}", listeners.groups),
        Err(error) => error,
    }
}

/// The connection that waits at a listener.
fn accept(listener: &TcpListener) -> TcpStream {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(_) if Instant::now() < end => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many of several connections wait at each of these listeners.
fn waiting(listeners: &[TcpListener]) -> Vec<usize> {
    let count = |own: &TcpListener| std::iter::from_fn(|| own.accept().ok()).count();
    listeners.iter().map(count).collect()
}

#[test]
fn each_address_has_a_listener_per_worker_with_its_options() {
    let wanted = [at("127.0.0.1:0"), at("[::1]:0")];
    let Listeners { groups, notices } = bind(&wanted, 3, true).unwrap();
    assert!(notices.is_empty() && groups.len() == 2, "{notices:?}");
    for group in &groups {
        assert_eq!(group.listeners.len(), 3);
        for listener in &group.listeners {
            let socket = SockRef::from(listener);
            assert_eq!(listener.local_addr().unwrap(), group.address);
            assert!(socket.is_listener().unwrap() && socket.nonblocking().unwrap());
            assert!(socket.reuse_port().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(fcntl(listener, FcntlArg::F_GETFD), Ok(libc::FD_CLOEXEC));
            assert!(group.address.is_ipv4() || socket.only_v6().unwrap());
        }
    }
    // The only listener at its address, so that the kernel has no choice.
    let single = bind(&wanted[..1], 1, true).unwrap().groups.remove(0);
    let _client = TcpStream::connect(single.address).unwrap();
    assert!(accept(&single.listeners[0]).nodelay().unwrap());
}

/// Marks each listener by the size of its receive buffer.
#[test]
fn listeners_are_distributed_over_any_number_of_workers() {
    let group = bind(&[at("127.0.0.1:0")], 3, true).unwrap().groups.remove(0);
    let size = |own: &TcpListener| SockRef::from(own).recv_buffer_size().unwrap();
    for (number, own) in group.listeners.iter().enumerate() {
        SockRef::from(own).set_recv_buffer_size(50_000 + 10_000 * number).unwrap();
    }
    for (workers, expected) in [
        (1, &[&[0, 1, 2][..]][..]),
        (2, &[&[0, 2], &[1]]),
        (3, &[&[0], &[1], &[2]]),
        (5, &[&[0], &[1], &[2], &[0], &[1]]),
    ] {
        for (worker, expected) in expected.iter().enumerate() {
            let own = group.of_worker(worker, workers).unwrap();
            let own: Vec<_> = own.iter().map(|own| (size(own) - 100_000) / 20_000).collect();
            assert_eq!(own, *expected, "worker {worker} of {workers}");
        }
    }
}

#[test]
fn added_listeners_get_connections_once_they_listen() {
    let mut group = bind(&[at("127.0.0.1:0")], 2, true).unwrap().groups.remove(0);
    let mut pending = PendingListeners::default();
    group.add_up_to(2, &mut pending).unwrap();
    assert_eq!(group.listeners.len(), 2);
    group.add_up_to(4, &mut pending).unwrap();
    let connect = || [(); 200].map(|()| TcpStream::connect(group.address).unwrap());
    let _clients = connect();
    assert_eq!(waiting(&group.listeners[..2]).iter().sum::<usize>(), 200);
    pending.listen().unwrap();
    let _clients = connect();
    let waiting = waiting(&group.listeners);
    assert_eq!(waiting.iter().sum::<usize>(), 200);
    assert!(waiting.iter().all(|number| *number > 0), "{waiting:?}");
}

/// As an upgrade passes them on: connections wait in the kernel.
#[test]
fn listeners_of_another_process_keep_their_connections() {
    let group = bind(&[at("[::1]:0")], 2, true).unwrap().groups.remove(0);
    let address = group.address;
    let _clients = [(); 50].map(|()| TcpStream::connect(address).unwrap());
    let descriptors = group.listeners.into_iter().map(Into::into).collect();
    let adopted = AddressListeners::adopt(address, descriptors).unwrap();
    assert_eq!(waiting(&adopted.listeners).iter().sum::<usize>(), 50);
    let udp = std::net::UdpSocket::bind(address).unwrap();
    let connection = TcpStream::connect(address).unwrap();
    for other in [udp.into(), connection.into()] {
        assert!(AddressListeners::adopt(address, vec![other]).is_err());
    }
}

/// A TCP socket as a service manager passes it.
fn passed(address: &str, only_v6: bool, listens: bool) -> TcpListener {
    let address: SocketAddr = address.parse().unwrap();
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    if address.is_ipv6() {
        socket.set_only_v6(only_v6).unwrap();
    }
    socket.bind(&address.into()).unwrap();
    if listens {
        socket.listen(8).unwrap();
    }
    socket.into()
}

#[test]
fn passed_listeners_are_grouped_and_unusable_ones_refused_with_the_remedy() {
    let first = passed("127.0.0.1:0", true, true);
    let address = first.local_addr().unwrap();
    let other = passed("[::]:0", true, true);
    let again = passed(&address.to_string(), true, true);
    let other_address = other.local_addr().unwrap();
    let groups = adopt::listeners(vec![first, other, again]).unwrap();
    let found: Vec<_> = groups.iter().map(|it| (it.address, it.listeners.len())).collect();
    assert_eq!(found, [(address, 2), (other_address, 1)]);
    let socket = SockRef::from(&groups[0].listeners[1]);
    assert!(socket.nonblocking().unwrap() && socket.tcp_nodelay().unwrap());
    for (listener, remedy) in [
        (passed("[::]:0", false, true), "BindIPv6Only=ipv6-only"),
        (passed("127.0.0.1:0", true, false), "Accept=no"),
    ] {
        let text = adopt::listeners(vec![listener]).unwrap_err();
        assert!(text.contains(remedy), "{text}");
    }
}

#[test]
fn a_deferred_connection_is_accepted_with_its_input() {
    let bound = bind(&[at("127.0.0.1:0")], 1, true).unwrap();
    let listener = &bound.groups[0].listeners[0];
    defer_accept(listener).unwrap();
    let mut client = TcpStream::connect(bound.groups[0].address).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    client.write_all(b"GET").unwrap();
    let mut stream = accept(listener);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 3, "without waiting for it");
}

#[test]
fn another_listener_is_refused_and_old_connections_are_not() {
    let first = bind(&[at("127.0.0.1:0")], 2, true).unwrap();
    let taken = Address { address: first.groups[0].address, optional: true };
    let error = refused(bind(&[at("[::1]:0"), taken], 1, true));
    let is_taken = |error: &BindError| {
        matches!(error, BindError::Taken { address, transport }
        if *address == taken.address && *transport == Transport::Tcp)
    };
    assert!(is_taken(&error) && error.to_string().contains("ss -tlpn"), "{error}");
    drop(first);
    let single = bind(&[taken], 1, true).unwrap().groups.remove(0);
    let clients = [(); 2].map(|()| TcpStream::connect(taken.address).unwrap());
    // One connection is closed by the server first (TIME_WAIT), the other stays open.
    drop(accept(&single.listeners[0]));
    let _open = accept(&single.listeners[0]);
    drop((single, clients));
    bind(&[taken], 2, true).unwrap();
}

#[test]
fn an_absent_address_is_an_error_or_a_notice() {
    // TEST-NET-2 (RFC 5737) is not assigned to any host.
    let elsewhere: SocketAddr = "198.51.100.7:0".parse().unwrap();
    let error = refused(bind(&[Address { address: elsewhere, optional: false }], 1, true));
    assert!(matches!(error, BindError::NotHere { address } if address == elsewhere), "{error}");
    let optional = Address { address: elsewhere, optional: true };
    let bound = bind(&[optional, at("127.0.0.1:0")], 2, true).unwrap();
    assert_eq!((bound.groups.len(), bound.notices.len()), (1, 1));
}
