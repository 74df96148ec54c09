//! Datagrams that the kernel drops before a tracker, as the load tester reads them, beside a number
//! that is known. A binary of its own: the sockets of other tests would count.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use onrush_load::process::Process;
use socket2::{Domain, Socket, Type};

/// A socket with room for a few datagrams only.
fn narrow() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.into()
}

/// Sends so many and reads what has arrived: over loopback a datagram is in the socket's buffer, or
/// dropped, before its sender goes on. Returns how many were dropped.
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
fn drops_are_as_many_as_did_not_arrive() {
    let socket = narrow();
    let before = overflow(&socket, 50);
    assert!(before > 0, "all 50 found room");
    let mut process = Process::observe(std::process::id()).unwrap();
    assert_eq!(process.drops(), Some(0), "those before the observation are not of it");
    assert_eq!(process.sample().unwrap().drops, Some(0));

    let first = overflow(&socket, 300);
    assert!(first > 0 && first < 300, "{first}");
    assert_eq!(process.drops(), Some(first));

    // One that was made meanwhile, and has lost some before anybody looked.
    let another = narrow();
    let second = overflow(&another, 200);
    assert!(second > 0 && second < 200, "{second}");
    assert_eq!(process.drops(), Some(first + second));
    assert_eq!(overflow(&socket, 1), 0, "one finds room");
    assert_eq!(process.drops(), Some(first + second));
}
