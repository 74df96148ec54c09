//! Frames to clients, which are not masked (RFC 6455, section 5.1).

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::assembler::MAX_CONTROL;

/// Appends a message as one text frame. It has to be UTF-8.
pub fn message(text: &[u8], out: &mut Vec<u8>) {
    frame(OpCode::Data(Data::Text), text, out);
}

/// Appends a ping without payload.
pub fn ping(out: &mut Vec<u8>) {
    frame(OpCode::Control(Control::Ping), &[], out);
}

/// Appends the answer to a ping with this payload, of at most [`MAX_CONTROL`] bytes.
pub fn pong(payload: &[u8], out: &mut Vec<u8>) {
    debug_assert!(payload.len() <= MAX_CONTROL);
    frame(OpCode::Control(Control::Pong), payload, out);
}

/// Appends a close frame, without a reason. Without a code it answers a close frame that has none
/// (RFC 6455, section 5.5.1).
pub fn close(code: Option<CloseCode>, out: &mut Vec<u8>) {
    let code = code.map(|code| u16::from(code).to_be_bytes());
    frame(OpCode::Control(Control::Close), code.as_ref().map_or(&[], |code| &code[..]), out);
}

fn frame(opcode: OpCode, payload: &[u8], out: &mut Vec<u8>) {
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    // Writing into memory does not fail.
    let _ = header.format(payload.len() as u64, out);
    out.extend_from_slice(payload);
}
