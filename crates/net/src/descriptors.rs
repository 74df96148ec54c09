//! Passes descriptors from one process to another over a Unix socket (unix(7), SCM_RIGHTS): a
//! running server hands its sockets, with the datagrams queued in them, to its successor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors in one message; the kernel accepts 253 (SCM_MAX_FD).
pub const MAX_DESCRIPTORS: usize = 128;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// Sends descriptors, with one byte to carry them.
///
/// # Errors
/// When the other side has closed, or this process has too many descriptors in flight.
///
/// # Panics
/// When there are more than [`MAX_DESCRIPTORS`].
pub fn send(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(
        descriptors.len() <= MAX_DESCRIPTORS,
        "{} descriptors in one message",
        descriptors.len()
    );
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "there is room");
    }
    let sent = sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives the descriptors of one [`send`].
///
/// # Errors
/// When the other side has closed, or this process has no room for so many descriptors.
pub fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
        return Err(io::Error::other(
            "not all descriptors arrived: the limit of open files is too low (`ulimit -n`)",
        ));
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok(descriptors)
}

/// The process and user at the other end of a Unix socket, at the time of connecting.
///
/// # Errors
/// Only if the socket is not a Unix socket.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let credentials = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(Peer { process: credentials.pid.as_raw_pid(), user: credentials.uid.as_raw() })
}

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id.
    pub process: i32,
    /// Its user id.
    pub user: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::BoundSocket;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::thread;

    #[test]
    fn a_socket_is_passed_with_its_queued_datagrams() {
        let (here, there) = UnixStream::pair().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"before", address).unwrap();
        send(&here, &[server.as_fd(), client.as_fd()]).unwrap();
        send(&here, &[]).unwrap();
        let mut got = receive(&there).unwrap();
        assert_eq!((got.len(), receive(&there).unwrap().len()), (2, 0));
        drop(server);
        client.send_to(b"after", address).unwrap();
        let socket = BoundSocket::adopt(got.remove(0)).unwrap();
        assert_eq!((socket.address(), socket.reports_local()), (address, false));
        let mut bytes = [0; 16];
        for expected in [&b"before"[..], b"after"] {
            let len = socket.as_udp().recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], expected);
        }
        drop(here);
        assert_eq!(receive(&there).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_largest_message_is_passed() {
        let (here, there) = UnixStream::pair().unwrap();
        let sent = thread::spawn(move || {
            let descriptors = vec![here.as_fd(); MAX_DESCRIPTORS];
            send(&here, &descriptors).unwrap();
        });
        assert_eq!(receive(&there).unwrap().len(), MAX_DESCRIPTORS);
        sent.join().unwrap();
        assert_eq!(peer(&there).unwrap().process, std::process::id() as i32);
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(BoundSocket::adopt(here.into()).is_err());
    }
}
