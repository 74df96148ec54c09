//! WebSocket (RFC 6455), the side of the server: frames of clients to messages, frames to clients,
//! and the upgrade of a connection. No I/O; a connection without a partial message has no buffer.

pub mod assembler;
pub mod upgrade;
pub mod write;

pub use assembler::{Assembler, Frame};
pub use tungstenite::protocol::frame::coding::CloseCode;
