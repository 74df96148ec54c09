//! Which client a request is from, where proxies may be in front of the tracker.
//!
//! | module | contents |
//! |---|---|
//! | [`fields`] | fields of a request that name its client |
//! | [`header`] | the header of the PROXY protocol, which names the client of a connection |

pub mod fields;
pub mod header;

use std::net::SocketAddr;

use httparse::Header;
use onrush_tracker::proxies::{ClientAddress, Proxies};

/// Whose requests a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It began without a header of the PROXY protocol. At this address is the client, or a trusted
    /// proxy, whose requests name their clients.
    Peer(SocketAddr),
    /// Those of one client, whom a trusted proxy has named: in its header, or with an upgrade.
    Named(SocketAddr),
    /// Those of a trusted proxy, whose header has named no client or is not read yet.
    Unnamed,
}

impl Origin {
    /// Whether its requests are of different clients.
    pub(crate) fn is_shared(self, proxies: &Proxies) -> bool {
        matches!(self, Self::Peer(peer) if proxies.contain(peer.ip()))
    }

    /// The client of a request with these fields; `None` if a trusted proxy does not name it.
    pub(crate) fn client(self, fields: &[Header<'_>], proxies: &Proxies) -> Option<SocketAddr> {
        match self {
            Self::Peer(_) if self.is_shared(proxies) => {
                let name = proxies.client_address.name();
                let of_name = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                fields::client(of_name.map(|field| field.value), proxies)
            }
            Self::Peer(client) => Some(client),
            // It may have become a proxy since.
            Self::Named(client) => Some(client).filter(|it| !proxies.contain(it.ip())),
            Self::Unnamed => None,
        }
    }
}

/// Whether the connections from an address begin with a header of the PROXY protocol.
pub(crate) fn begins_with_header(peer: SocketAddr, proxies: &Proxies) -> bool {
    proxies.client_address == ClientAddress::ProxyProtocol && proxies.contain(peer.ip())
}
