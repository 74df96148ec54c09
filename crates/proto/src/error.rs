//! Error: the tracker refuses a request and says why (BEP 15, "Errors").
//!
//! ```text
//! 0        4        8
//! +--------+--------+-----------------------
//! | 3      | trans. | text, to the end
//! +--------+--------+-----------------------
//! ```

use crate::id::TransactionId;
use crate::wire;

/// The action number of an error, in responses.
pub const ACTION: u32 = 3;
/// Bytes of an error response before its text.
pub const HEAD_LEN: usize = 8;

/// Writes an error response and returns its length.
///
/// # Panics
/// When `into` is shorter than [`HEAD_LEN`] and the text together.
pub fn write(transaction_id: TransactionId, text: &str, into: &mut [u8]) -> usize {
    wire::put(into, 0, ACTION.to_be_bytes());
    wire::put(into, 4, transaction_id.0.to_be_bytes());
    let end = HEAD_LEN + text.len();
    into[HEAD_LEN..end].copy_from_slice(text.as_bytes());
    end
}
