//! Any datagram that a tracker may send, parsed strictly, as a client should. A tracker writes its
//! responses with the writers in the module of each request type.

use std::fmt;

use crate::announce::{self, AnnounceHead};
use crate::connect::{self, ConnectResponse};
use crate::endpoint::{Endpoint, Family};
use crate::error;
use crate::id::{ConnectionId, TransactionId};
use crate::scrape::{self, ScrapeCounts};
use crate::wire;

/// A response as a strict client reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response<'a> {
    /// The response to a connect.
    Connect(ConnectResponse),
    /// The response to an announce.
    Announce(AnnounceHead, Peers<'a>),
    /// The response to a scrape.
    Scrape(TransactionId, Counts<'a>),
    /// The error response to any request: its text, which may be any bytes.
    Error(TransactionId, &'a [u8]),
}

/// Why a datagram is not a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadResponse {
    /// Too short for its action, or for any.
    Short,
    /// Its length does not match its action: a connect response of other than 16 bytes, a partial
    /// peer, partial counts.
    Length,
    /// An action other than connect, announce, scrape and error.
    Action,
}

impl fmt::Display for BadResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "too short for its action",
            Self::Length => "its length does not fit its action",
            Self::Action => "an action that is not a response's",
        })
    }
}

impl std::error::Error for BadResponse {}

/// The peers of an announce response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peers<'a> {
    pub(crate) family: Family,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Peers<'a> {
    /// The number of peers.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.family.peer_len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The peers in wire form, one behind the other.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The peers in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Endpoint> + Clone + use<'a> {
        let family = self.family;
        self.bytes.chunks_exact(family.peer_len()).map(move |chunk| match family {
            Family::V4 => Endpoint::V4(wire::bytes(chunk, 0)),
            Family::V6 => Endpoint::V6(wire::bytes(chunk, 0)),
        })
    }
}

/// The counts of a scrape response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts<'a>(pub(crate) &'a [[u8; scrape::COUNTS_LEN]]);

impl<'a> Counts<'a> {
    /// The number of swarms.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The counts, in the order of the request.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ScrapeCounts> + Clone + use<'a> {
        self.0.iter().map(ScrapeCounts::parse)
    }
}

impl<'a> Response<'a> {
    /// Reads a datagram that came over `family`, which decides how long a peer is (BEP 15, "IPv6").
    ///
    /// # Errors
    /// [`BadResponse`] for any datagram that a strict client would reject.
    pub fn parse(datagram: &'a [u8], family: Family) -> Result<Self, BadResponse> {
        if datagram.len() < 8 {
            return Err(BadResponse::Short);
        }
        let transaction_id = TransactionId(wire::u32(datagram, 4));
        match wire::u32(datagram, 0) {
            connect::ACTION => {
                if datagram.len() != connect::RESPONSE_LEN {
                    return Err(BadResponse::Length);
                }
                let connection_id = ConnectionId(wire::u64(datagram, 8));
                Ok(Self::Connect(ConnectResponse { transaction_id, connection_id }))
            }
            announce::ACTION => {
                let (head, bytes) = datagram.split_first_chunk().ok_or(BadResponse::Short)?;
                if bytes.len() % family.peer_len() != 0 {
                    return Err(BadResponse::Length);
                }
                Ok(Self::Announce(AnnounceHead::parse(head), Peers { family, bytes }))
            }
            scrape::ACTION => match datagram[scrape::HEAD_LEN..].as_chunks() {
                (counts, []) => Ok(Self::Scrape(transaction_id, Counts(counts))),
                _ => Err(BadResponse::Length),
            },
            error::ACTION => Ok(Self::Error(transaction_id, &datagram[error::HEAD_LEN..])),
            _ => Err(BadResponse::Action),
        }
    }

    /// The transaction id, which matches the response to its request.
    pub fn transaction_id(&self) -> TransactionId {
        match self {
            Self::Connect(response) => response.transaction_id,
            Self::Announce(head, _) => head.transaction_id,
            Self::Scrape(transaction_id, _) | Self::Error(transaction_id, _) => *transaction_id,
        }
    }
}
