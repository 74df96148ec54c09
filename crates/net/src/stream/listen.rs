//! Binds TCP listeners: one per worker and address, joined by SO_REUSEPORT, by the rules of
//! [`crate::bind`].

use std::net::{SocketAddr, TcpListener};

use crate::bind::{self, Address, BindError, Transport};
use crate::notice::Notice;

/// The listeners of all workers.
#[derive(Debug)]
pub struct Listeners {
    /// For each worker its listeners, one for each of `addresses`. They are nonblocking; accepted
    /// connections have TCP_NODELAY.
    pub workers: Vec<Vec<TcpListener>>,
    /// The bound addresses, with the ports that they got.
    pub addresses: Vec<SocketAddr>,
    /// Optional addresses that the host lacks.
    pub notices: Vec<Notice>,
}

/// Binds one listener per worker and address. `probe` is whether to check first that no other
/// process has an address: only an upgrade of a running copy skips this.
///
/// With port 0 the system picks a port for each such address, and all workers share it.
///
/// # Errors
/// A [`BindError`] for the first address that cannot be bound and is not optional.
///
/// # Panics
/// When `workers` is 0.
pub fn bind(addresses: &[Address], workers: usize, probe: bool) -> Result<Listeners, BindError> {
    assert!(workers > 0, "a server has at least one worker");
    let mut notices = Vec::new();
    let available = bind::available(addresses, Transport::Tcp, probe, &mut notices)?;
    if available.is_empty() {
        return Err(BindError::Nothing);
    }
    let mut workers: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::with_capacity(available.len());
    for address in available {
        let (address, mut next) = bind::group_at(address, Transport::Tcp)?;
        for listeners in &mut workers {
            listeners.push(next()?.into());
        }
        addresses.push(address);
    }
    Ok(Listeners { workers, addresses, notices })
}
