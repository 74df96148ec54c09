//! Connect: a client proves that it receives what is sent to its address (BEP 15, "Connect").
//!
//! ```text
//! request, >= 16 bytes                        response, exactly 16 bytes
//! 0                  8        12      16      0        4        8               16
//! +------------------+--------+--------+      +--------+--------+----------------+
//! | 0x41727101980    | 0      | trans. |      | 0      | trans. | connection id  |
//! +------------------+--------+--------+      +--------+--------+----------------+
//! ```

use crate::id::{ConnectionId, TransactionId};
use crate::wire;

/// The protocol's magic number, in the place where later requests carry their connection id.
pub const MAGIC: u64 = 0x0417_2710_1980;
/// The action number of a connect, in requests and responses.
pub const ACTION: u32 = 0;
/// Bytes of a connect request. More may follow and means nothing (BEP 15, "UDP tracker protocol": a
/// receiver does not expect a packet to be of an exact size).
pub const REQUEST_LEN: usize = 16;
/// Bytes of a connect response: exactly these, as aria2 refuses any other length.
pub const RESPONSE_LEN: usize = 16;

// The only response to an unproven address is no larger than its request, so a forged source gains
// no amplification (BEP 15, "UDP connections / spoofing").
const _: () = assert!(RESPONSE_LEN <= REQUEST_LEN);

/// A connect request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// Echoed in the response.
    pub transaction_id: TransactionId,
}

impl Connect {
    /// Writes the request.
    pub fn write(&self, into: &mut [u8; REQUEST_LEN]) {
        wire::put(into, 0, MAGIC.to_be_bytes());
        wire::put(into, 8, ACTION.to_be_bytes());
        wire::put(into, 12, self.transaction_id.0.to_be_bytes());
    }
}

/// A connect response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectResponse {
    /// Transaction id of the request.
    pub transaction_id: TransactionId,
    /// To be sent with every request until it expires.
    pub connection_id: ConnectionId,
}

impl ConnectResponse {
    /// Writes the response.
    #[inline]
    pub fn write(&self, into: &mut [u8; RESPONSE_LEN]) {
        wire::put(into, 0, ACTION.to_be_bytes());
        wire::put(into, 4, self.transaction_id.0.to_be_bytes());
        wire::put(into, 8, self.connection_id.0.to_be_bytes());
    }
}
