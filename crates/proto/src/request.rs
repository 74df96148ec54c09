//! Any datagram that a client may send, distinguished by its action at offset 8 (BEP 15, "UDP
//! tracker protocol").

use crate::announce::{self, Announce};
use crate::connect::{self, Connect};
use crate::id::TransactionId;
use crate::scrape::{self, Scrape};
use crate::wire;

/// A well-formed request. Its connection id is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Asks for a connection id.
    Connect(Connect),
    /// Joins, refreshes or leaves a swarm and asks for peers.
    Announce(Announce<'a>),
    /// Asks for counts.
    Scrape(Scrape<'a>),
}

/// Why a datagram is not a request. A tracker answers none of these: nothing in such a datagram
/// proves that its source address is real.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Malformed {
    /// Fewer than 16 bytes, or fewer than 98 for an announce.
    Short,
    /// A connect without BEP 15's magic number.
    Magic,
    /// An action other than connect, announce and scrape.
    Action,
}

impl<'a> Request<'a> {
    /// Reads a datagram. Trailing bytes are never a reason to refuse (BEP 15, "UDP tracker
    /// protocol").
    ///
    /// # Errors
    /// [`Malformed`]: why the datagram is not a request.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let Some(head) = datagram.first_chunk::<16>() else {
            return Err(Malformed::Short);
        };
        match wire::u32(head, 8) {
            connect::ACTION => {
                if wire::u64(head, 0) != connect::MAGIC {
                    return Err(Malformed::Magic);
                }
                Ok(Self::Connect(Connect { transaction_id: TransactionId(wire::u32(head, 12)) }))
            }
            announce::ACTION => {
                Announce::parse(datagram).map(Self::Announce).ok_or(Malformed::Short)
            }
            scrape::ACTION => Scrape::parse(datagram).map(Self::Scrape).ok_or(Malformed::Short),
            _ => Err(Malformed::Action),
        }
    }
}
