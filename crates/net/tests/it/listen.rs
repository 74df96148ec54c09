//! TCP listeners: one per worker and address, their options, and the text of refusals.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use onrush_net::bind::{Address, BindError, Transport};
use onrush_net::stream::listen::{Listeners, bind, defer_accept};
use socket2::SockRef;

fn at(address: &str) -> Address {
    Address { address: address.parse().unwrap(), optional: false }
}

/// The error of a bind that must fail.
fn refused(result: Result<Listeners, BindError>) -> BindError {
    match result {
        Ok(listeners) => panic!("bound {:?}", listeners.addresses),
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

#[test]
fn each_worker_has_a_listener_per_address_with_its_options() {
    let wanted = [at("127.0.0.1:0"), at("[::1]:0")];
    let bound = bind(&wanted, 3, true).unwrap();
    assert!(bound.notices.is_empty(), "{:?}", bound.notices);
    assert_eq!((bound.workers.len(), bound.addresses.len()), (3, 2));
    for listeners in &bound.workers {
        let addresses: Vec<_> = listeners.iter().map(|own| own.local_addr().unwrap()).collect();
        assert_eq!(addresses, bound.addresses);
        for listener in listeners {
            let socket = SockRef::from(listener);
            assert!(socket.is_listener().unwrap() && socket.nonblocking().unwrap());
            assert!(socket.reuse_port().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(fcntl(listener, FcntlArg::F_GETFD), Ok(libc::FD_CLOEXEC));
        }
        assert!(SockRef::from(&listeners[1]).only_v6().unwrap());
    }
    // The only listener at its address, so that the kernel has no choice.
    let single = bind(&wanted[..1], 1, true).unwrap();
    let _client = TcpStream::connect(single.addresses[0]).unwrap();
    assert!(accept(&single.workers[0][0]).nodelay().unwrap());
}

#[test]
fn a_deferred_connection_is_accepted_with_its_input() {
    let bound = bind(&[at("127.0.0.1:0")], 1, true).unwrap();
    let listener = &bound.workers[0][0];
    defer_accept(listener).unwrap();
    let mut client = TcpStream::connect(bound.addresses[0]).unwrap();
    client.write_all(b"GET").unwrap();
    let mut stream = accept(listener);
    stream.set_nonblocking(true).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 3, "without waiting for it");
}

#[test]
fn another_listener_is_refused_and_old_connections_are_not() {
    let first = bind(&[at("127.0.0.1:0")], 2, true).unwrap();
    let taken = Address { address: first.addresses[0], optional: true };
    let error = refused(bind(&[at("[::1]:0"), taken], 1, true));
    let is_taken = |error: &BindError| {
        matches!(error, BindError::Taken { address, transport }
        if *address == taken.address && *transport == Transport::Tcp)
    };
    assert!(is_taken(&error) && error.to_string().contains("ss -tlpn"), "{error}");
    drop(first);
    let single = bind(&[taken], 1, true).unwrap();
    let clients = [(); 2].map(|()| TcpStream::connect(taken.address).unwrap());
    // One connection is closed by the server first (TIME_WAIT), the other stays open.
    drop(accept(&single.workers[0][0]));
    let _open = accept(&single.workers[0][0]);
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
    assert_eq!((bound.addresses.len(), bound.workers[1].len(), bound.notices.len()), (1, 1, 1));
    assert!(matches!(refused(bind(&[optional], 1, true)), BindError::Nothing));
}
