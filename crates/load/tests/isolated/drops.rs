//! The kernel's drop counters as the load tester reads them, compared with a known number of drops.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use onrush_load::process::Process;
use socket2::{Domain, Socket, Type};

/// A socket whose receive buffer holds a few datagrams only.
fn small_socket() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.into()
}

/// Sends `count` datagrams and reads those that have arrived; returns the number of drops. Over
/// loopback a datagram is in the receive buffer or dropped when the send call returns.
fn overflow(socket: &UdpSocket, count: u64) -> u64 {
    let to = socket.local_addr().unwrap();
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for _ in 0..count {
        assert_eq!(sender.send_to(&[7; 512], to).unwrap(), 512);
    }
    let mut buffer = [0; 1024];
    let mut arrived = 0;
    while socket.recv(&mut buffer).is_ok() {
        arrived += 1;
    }
    count - arrived
}

#[test]
fn drops_equal_the_datagrams_that_did_not_arrive() {
    let socket = small_socket();
    let before = overflow(&socket, 50);
    assert!(before > 0, "the buffer held all 50");
    let process = Process::observe(&[std::process::id()]).unwrap();
    assert_eq!(process.drops(), Some(0), "drops before the observation");

    let first = overflow(&socket, 300);
    assert!(first > 0 && first < 300, "{first}");
    assert_eq!(process.drops(), Some(first));

    // A socket that was made meanwhile, with drops before the first reading.
    let another = small_socket();
    let second = overflow(&another, 200);
    assert!(second > 0 && second < 200, "{second}");
    assert_eq!(process.drops(), Some(first + second));
    assert_eq!(overflow(&socket, 1), 0, "the buffer holds one datagram");
    assert_eq!(process.drops(), Some(first + second));
}
