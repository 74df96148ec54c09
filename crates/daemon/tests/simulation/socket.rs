//! A socket that two processes share, as in an upgrade, and that records every datagram in order.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use onrush_net::filter::Filter;
use onrush_net::memory::{Endpoint, Waker};
use onrush_net::{Drops, Received, Reply, Sent, Slot, Socket};

use super::clock::Time;

/// A recorded datagram.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// When the worker received or sent it.
    pub(crate) at: Time,
    /// The client.
    pub(crate) client: SocketAddr,
    /// Whether it is a request.
    pub(crate) request: bool,
    /// The payload.
    pub(crate) bytes: Vec<u8>,
}

/// The datagrams of several sockets, in one order.
#[derive(Clone, Default)]
pub(crate) struct Log {
    passed: Rc<RefCell<Vec<Passed>>>,
    now: Rc<Cell<Time>>,
}

impl Log {
    /// The datagrams since the last call.
    pub(crate) fn take(&self) -> Vec<Passed> {
        self.passed.take()
    }

    /// Sets the time of what is recorded from now on.
    pub(crate) fn set_time(&self, now: Time) {
        self.now.set(now);
    }

    fn push(&self, client: SocketAddr, request: bool, bytes: &[u8]) {
        let (at, bytes) = (self.now.get(), bytes.to_vec());
        self.passed.borrow_mut().push(Passed { at, client, request, bytes });
    }
}

/// A socket of the in-process network. A clone is the same socket, as a descriptor that was passed
/// to another process.
#[derive(Clone)]
pub(crate) struct SharedSocket {
    endpoint: Rc<RefCell<Endpoint>>,
    log: Log,
    region: Vec<u8>,
    slots: Vec<Slot>,
}

impl SharedSocket {
    pub(crate) fn new(endpoint: Endpoint, log: Log) -> Self {
        let endpoint = Rc::new(RefCell::new(endpoint));
        Self { endpoint, log, region: Vec::new(), slots: Vec::new() }
    }
}

impl Socket for SharedSocket {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.endpoint.borrow().waker()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.endpoint.borrow_mut().wait(timeout)
    }

    fn set_filter(&mut self, filter: Option<&Filter>) -> io::Result<()> {
        self.endpoint.borrow_mut().set_filter(filter)
    }

    fn receive(&mut self, limit: usize) -> io::Result<Received<'_>> {
        self.region.clear();
        self.slots.clear();
        for (bytes, slot) in self.endpoint.borrow_mut().receive(limit)?.iter() {
            self.slots.push(Slot { offset: self.region.len() as u32, ..*slot });
            self.region.extend_from_slice(bytes);
            self.log.push(slot.source, true, bytes);
        }
        Ok(Received::new(&self.region, &self.slots))
    }

    fn send<'b>(&mut self, replies: impl Iterator<Item = Reply<'b>>) -> Sent {
        let log = &self.log;
        self.endpoint
            .borrow_mut()
            .send(replies.inspect(|reply| log.push(reply.to.peer(), false, reply.bytes)))
    }

    fn dropped(&self) -> Drops {
        self.endpoint.borrow().dropped()
    }
}
