//! The contract of a backend on queues of a veth device, native and generic, one and two.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};

use onrush_net::bind::{self, Address, Buffers, bind_group};
use onrush_net::mio::{self, drops::DropReasons};
use onrush_net::xdp::{Backend, Mode, Program};

use crate::link::{Link, until, waiting};
use crate::suite::{Rig, conformance_of};

/// Bytes that the kernel charges for a small datagram.
const DATAGRAM: usize = 800;

/// A server with queues, and a client with UDP sockets.
struct Queues {
    link: Link,
    /// Those of the servers so far, of which the last one that has queues is attached.
    program: RefCell<Option<Program>>,
}

impl Queues {
    fn new(mode: Mode, queues: u32) -> Self {
        Self { link: Link::new(mode, queues), program: None.into() }
    }
}

impl Rig for Queues {
    type Socket = Backend;

    fn server_ip(&self, loopback: &str) -> IpAddr {
        self.link.server_ip(loopback)
    }

    fn arrive(&self, server: &mut Backend, count: usize) {
        until(|| waiting(server) >= count);
    }

    fn server(&self, at: &[&str], batch: usize, buffer: usize) -> (Backend, Vec<SocketAddr>) {
        let wanted = |ip: &&str| Address {
            address: SocketAddr::new(self.server_ip(ip), 0),
            optional: false,
        };
        let wanted: Vec<_> = at.iter().map(wanted).collect();
        let buffers = Buffers { receive: buffer, send: 0 };
        let options = bind::Options { workers: 1, buffers, probe: true };
        let mut group = bind_group(&wanted, &options).unwrap();
        let options = mio::Options { batch, ..mio::Options::default() };
        let sockets = mio::Backend::new(group.workers.pop().unwrap(), options).unwrap();
        let sockets = sockets.with_drop_reasons(&DropReasons::of_namespace());
        let ring = (buffer / DATAGRAM).next_power_of_two() as u32;
        let queues = self.link.open(ring, batch);
        if !queues.is_empty() {
            // One program at a time can be attached.
            self.program.take();
            let ports = group.addresses.iter().map(SocketAddr::port);
            self.program.replace(Some(self.link.program(ports)));
        }
        // A second server has sockets only, as a worker without queues.
        let map = self.program.borrow().as_ref().unwrap().sockets().unwrap();
        (Backend::new(sockets, queues, map).unwrap(), group.addresses)
    }

    fn client(&self, at: &[String]) -> (Backend, Vec<SocketAddr>) {
        let (sockets, addresses) = self.link.client(at);
        let none = Program::redirect(&[]).unwrap().sockets().unwrap();
        (Backend::new(sockets, Vec::new(), none).unwrap(), addresses)
    }
}

conformance_of!(native, crate::conformance::Queues::new(onrush_net::xdp::Mode::Native, 1));
conformance_of!(native_two, crate::conformance::Queues::new(onrush_net::xdp::Mode::Native, 2));
conformance_of!(generic, crate::conformance::Queues::new(onrush_net::xdp::Mode::Generic, 1));
conformance_of!(generic_two, crate::conformance::Queues::new(onrush_net::xdp::Mode::Generic, 2));
