//! Connections to a server: from a chosen address, without a wait, and failures with a reason.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::time::{Duration, Instant};

use onrush_net::stream::connect::connect;
use onrush_net::stream::{Ready, Streams as _, mio};
use socket2::SockRef;

/// Longer than any operation here; a wait of this length has failed.
const LONG: Duration = Duration::from_secs(120);

/// Waits until the stream with key 7 is writable.
fn wait_for(backend: &mut mio::Backend) {
    let begin = Instant::now();
    while begin.elapsed() < LONG {
        backend.wait(LONG).unwrap();
        while let Some(ready) = backend.ready() {
            if matches!(ready, Ready::Stream { key: 7, writable: true, .. }) {
                return;
            }
        }
    }
    panic!("no event");
}

#[test]
fn connections_come_from_the_chosen_address() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = server.local_addr().unwrap();
    let source: IpAddr = "127.1.2.3".parse().unwrap();
    for from in [Some(source), None] {
        let mut backend = mio::Backend::new(Vec::new()).unwrap();
        let mut stream = connect(from, target).unwrap();
        backend.watch(&mut stream, 7).unwrap();
        wait_for(&mut backend);
        stream.write_all(b"hello").unwrap();
        assert!(SockRef::from(&stream).tcp_nodelay().unwrap());
        let (mut accepted, client) = server.accept().unwrap();
        assert_eq!(client.ip(), from.unwrap_or(target.ip()));
        let mut read = [0; 5];
        accepted.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
    }
}

#[test]
fn a_failed_connection_has_its_reason() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut backend = mio::Backend::new(Vec::new()).unwrap();
    let mut stream = connect(None, closed).unwrap();
    backend.watch(&mut stream, 7).unwrap();
    wait_for(&mut backend);
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let elsewhere = "192.0.2.77".parse().unwrap();
    let refused = connect(Some(elsewhere), closed).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
}

/// epoll_wait counts in milliseconds.
#[test]
fn a_wait_may_be_a_part_of_a_millisecond() {
    let mut backend = mio::Backend::new(Vec::new()).unwrap();
    let least = (0..50).map(|_| {
        let begin = Instant::now();
        backend.wait_exactly(Duration::from_micros(200)).unwrap();
        begin.elapsed()
    });
    let least = least.min().unwrap();
    assert!((Duration::from_micros(200)..Duration::from_micros(900)).contains(&least), "{least:?}");
}
