//! Connects from any address of this host, and the connection ids that come back.

use std::io;
use std::net::SocketAddr;

use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket as _};
use onrush_proto::{Connect, ConnectionId, Family, Response, TransactionId, connect};
use onrush_verify::target::unspecified;

use super::prefix::Prefix;

/// Requested receive buffer in bytes.
const BUFFER: usize = 1 << 20;
/// Datagrams per receive call.
const BATCH: usize = 64;

/// Sockets for any address of this host, one of the family of each target.
pub(super) fn bind_any(
    targets: &[(SocketAddr, Prefix)],
    receive: usize,
) -> anyhow::Result<Backend> {
    let bind = |(target, _): &(SocketAddr, Prefix)| {
        let any = SocketAddr::new(unspecified(*target), 0);
        Ok(bind_client(any, Buffers { receive, send: 0 })?.0)
    };
    let sockets = targets.iter().map(bind).collect::<anyhow::Result<_>>()?;
    // Each datagram by itself, as from clients that do not know each other.
    Ok(Backend::new(sockets, Options { segmentation: false, ..Options::default() })?)
}

/// Connects by number, which is their transaction id.
pub(super) struct Connects {
    pub(super) socket: Backend,
    /// Datagrams sent.
    pub(super) sent: u64,
}

impl Connects {
    /// Opens the sockets.
    pub(super) fn open(targets: &[(SocketAddr, Prefix)]) -> anyhow::Result<Self> {
        Ok(Self { socket: bind_any(targets, BUFFER)?, sent: 0 })
    }

    /// Sends a connect.
    pub(super) fn ask(&mut self, number: usize, to: &Return) {
        let mut bytes = [0; connect::REQUEST_LEN];
        Connect { transaction_id: TransactionId(number as u32) }.write(&mut bytes);
        self.sent += self.socket.send([Reply { bytes: &bytes, to }].into_iter()).datagrams;
    }

    /// Calls `each` with number and connection id of the replies that have arrived.
    pub(super) fn receive(&mut self, mut each: impl FnMut(usize, ConnectionId)) -> io::Result<()> {
        loop {
            let batch = self.socket.receive(BATCH)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (bytes, slot) in batch.iter() {
                let family = Family::of(slot.source.ip());
                if let Ok(Response::Connect(reply)) = Response::parse(bytes, family) {
                    each(reply.transaction_id.0 as usize, reply.connection_id);
                }
            }
        }
    }
}
