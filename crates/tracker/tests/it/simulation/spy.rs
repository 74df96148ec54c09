//! A socket that records every datagram in order.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use onrush_net::{Received, Reply, Sent, Socket};

/// A recorded datagram.
#[derive(Clone, Debug)]
pub(crate) enum Passed {
    /// A request of this client.
    In(SocketAddr, Vec<u8>),
    /// A reply to this client.
    Out(SocketAddr, Vec<u8>),
}

/// The datagrams of several spies, in one order.
#[derive(Clone, Default)]
pub(crate) struct Log(Rc<RefCell<Vec<Passed>>>);

impl Log {
    /// The datagrams since the last call.
    pub(crate) fn take(&self) -> Vec<Passed> {
        self.0.take()
    }
}

/// A socket that records its traffic.
pub(crate) struct Spy<S> {
    socket: S,
    log: Log,
}

impl<S> Spy<S> {
    pub(crate) fn new(socket: S, log: Log) -> Self {
        Self { socket, log }
    }
}

impl<S: Socket> Socket for Spy<S> {
    type Waker = S::Waker;

    fn waker(&self) -> S::Waker {
        self.socket.waker()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.socket.wait(timeout)
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        let received = self.socket.receive(limit)?;
        let mut log = self.log.0.borrow_mut();
        for (bytes, slot) in received.iter() {
            log.push(Passed::In(slot.source, bytes.to_vec()));
        }
        Ok(received)
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let log = &self.log;
        self.socket.send(replies.inspect(|reply| {
            log.0.borrow_mut().push(Passed::Out(reply.to.peer(), reply.bytes.to_vec()));
        }))
    }

    fn dropped(&self) -> u64 {
        self.socket.dropped()
    }
}
