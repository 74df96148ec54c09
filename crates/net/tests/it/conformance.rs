//! The contract of a backend on mio, on mio with coalesced messages, and on the in-memory network.

use std::net::SocketAddr;

use onrush_net::bind::{self, Address, Buffers, bind_client, bind_group};
use onrush_net::memory::{self, Conditions, Network};
use onrush_net::mio;
use onrush_net::mio::drops::DropReasons;

use crate::suite::{Rig, conformance_of};

/// `ip` with port 0.
fn address(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

/// The mio backend over the kernel's loopback.
struct Kernel {
    coalesced: bool,
}

impl Kernel {
    fn options(&self, batch: usize) -> mio::Options {
        mio::Options { batch, segmentation: true, coalesced: self.coalesced }
    }
}

impl Rig for Kernel {
    type Socket = mio::Backend;

    fn server(&self, at: &[&str], batch: usize, buffer: usize) -> (mio::Backend, Vec<SocketAddr>) {
        let wanted: Vec<_> =
            at.iter().map(|a| Address { address: address(a), optional: false }).collect();
        let buffers = Buffers { receive: buffer, send: 0 };
        let mut group =
            bind_group(&wanted, &bind::Options { workers: 1, buffers, probe: true }).unwrap();
        let sockets = group.workers.pop().unwrap();
        let backend = mio::Backend::new(sockets, self.options(batch)).unwrap();
        (backend.with_drop_reasons(&DropReasons::of_namespace()), group.addresses)
    }

    fn client(&self, at: &[String]) -> (mio::Backend, Vec<SocketAddr>) {
        let buffers = Buffers { receive: 1 << 20, send: 0 };
        let sockets: Vec<_> =
            at.iter().map(|a| bind_client(address(a), buffers).unwrap().0).collect();
        let addresses = sockets.iter().map(|s| s.address()).collect();
        (mio::Backend::new(sockets, self.options(128)).unwrap(), addresses)
    }
}

/// The in-memory network.
struct Memory {
    network: std::sync::Mutex<Option<Network>>,
}

impl Memory {
    fn new() -> Self {
        Self { network: None.into() }
    }

    /// The server's options create the network; a client joins it.
    fn network(&self, batch: usize, buffer: usize) -> Network {
        let make = || {
            let options = memory::Options {
                in_flight: 4096,
                receive_buffer: buffer / 800,
                batch,
                blocking: true,
            };
            Network::with_options(1, Conditions::default(), options)
        };
        self.network.lock().unwrap().get_or_insert_with(make).clone()
    }
}

/// An endpoint at these addresses (port 0), and the addresses with their ports.
fn endpoint(network: &Network, at: Vec<SocketAddr>) -> (memory::Endpoint, Vec<SocketAddr>) {
    let endpoint = network.bind(&at).unwrap();
    let addresses = endpoint.addresses().to_vec();
    (endpoint, addresses)
}

impl Rig for Memory {
    type Socket = memory::Endpoint;

    fn server(&self, at: &[&str], batch: usize, buffer: usize) -> (Self::Socket, Vec<SocketAddr>) {
        endpoint(&self.network(batch, buffer), at.iter().map(|a| address(a)).collect())
    }

    fn client(&self, at: &[String]) -> (Self::Socket, Vec<SocketAddr>) {
        endpoint(&self.network(128, 1 << 20), at.iter().map(|a| address(a)).collect())
    }
}

conformance_of!(mio_batched, crate::conformance::Kernel { coalesced: false });
conformance_of!(mio_coalesced, crate::conformance::Kernel { coalesced: true });
conformance_of!(in_memory, crate::conformance::Memory::new());
