//! Frames of a client to messages (RFC 6455, sections 5 and 7).
//!
//! A message that is one frame and has arrived whole is unmasked where it lies, and not copied.
//! Otherwise its payload is collected in a buffer of the connection, so that the input of a
//! connection holds at most [`MAX_REST`] bytes of a frame.

use std::io::Cursor;
use std::mem;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// The longest payload of a control frame, in bytes (RFC 6455, section 5.5).
pub const MAX_CONTROL: usize = 125;
/// The most bytes that [`Assembler::read`] leaves when it needs more: one byte less than a control
/// frame with its header and mask.
pub const MAX_REST: usize = 2 + 4 + MAX_CONTROL - 1;

/// The input of a client up to the end of a frame or a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame<'i> {
    /// A whole message, in text or binary frames.
    Message(&'i str),
    /// A ping, which needs a pong with the same payload (RFC 6455, section 5.5.2).
    Ping(&'i [u8]),
    /// A pong, which needs nothing.
    Pong,
    /// The client closes the connection, with a code or without one: a close frame has to be
    /// returned, and nothing that follows may be read (RFC 6455, section 5.5.1).
    Close(Option<CloseCode>),
}

/// The state of a connection's input between frames, and within a frame with data.
#[derive(Debug, Default)]
pub struct Assembler {
    /// The payload of the message so far.
    message: Vec<u8>,
    /// The frame of which a part has arrived.
    partial: Option<Partial>,
    /// Whether a message has begun.
    is_begun: bool,
    /// Whether the message was returned.
    is_returned: bool,
}

#[derive(Debug)]
struct Partial {
    /// Bytes that are missing.
    missing: usize,
    /// The mask of the next bytes.
    mask: [u8; 4],
    is_final: bool,
}

impl Assembler {
    /// Bytes that the connection buffers here.
    pub fn buffered(&self) -> usize {
        self.message.capacity()
    }

    /// Whether a part of a message has arrived; control frames may come before the rest.
    pub fn is_partial(&self) -> bool {
        self.is_begun
    }

    /// Frees the memory of a message that was returned.
    pub fn release(&mut self) {
        if mem::take(&mut self.is_returned) {
            self.message = Vec::new();
        }
    }

    /// Reads from `input` up to the end of the next message or control frame, and returns how many
    /// bytes that were. Without a frame, more input is needed behind the bytes that are left.
    ///
    /// # Errors
    /// The code to close the connection with: [`CloseCode::Protocol`], [`CloseCode::Invalid`] for a
    /// message that is not UTF-8, or [`CloseCode::Size`] as soon as a frame announces that its
    /// message is longer than `max_message` bytes. Nothing that follows may be read.
    pub fn read<'i>(
        &'i mut self,
        input: &'i mut [u8],
        max_message: usize,
    ) -> Result<(usize, Option<Frame<'i>>), CloseCode> {
        self.release();
        let mut at = 0;
        loop {
            let Some(frame) = &mut self.partial else {
                let Some(head) = Head::parse(&input[at..])? else { return Ok((at, None)) };
                let start = at + head.len;
                if let OpCode::Control(control) = head.opcode {
                    let end = start + head.payload as usize;
                    if end > input.len() {
                        return Ok((at, None));
                    }
                    let payload = &mut input[start..end];
                    unmask(payload, head.mask);
                    return Ok((end, Some(control_frame(control, payload)?)));
                }
                let continues = head.opcode == OpCode::Data(Data::Continue);
                if continues != self.is_begun {
                    return Err(CloseCode::Protocol);
                }
                // A message below the limit keeps it there.
                if head.payload > (max_message.saturating_sub(self.message.len())) as u64 {
                    return Err(CloseCode::Size);
                }
                let payload = head.payload as usize;
                if head.is_final && !continues && payload <= input.len() - start {
                    let payload = &mut input[start..start + payload];
                    unmask(payload, head.mask);
                    return Ok((start + payload.len(), Some(message(payload)?)));
                }
                let (missing, mask, is_final) = (payload, head.mask, head.is_final);
                self.partial = Some(Partial { missing, mask, is_final });
                self.is_begun = true;
                at = start;
                continue;
            };
            let part = frame.missing.min(input.len() - at);
            let payload = &mut input[at..at + part];
            unmask(payload, frame.mask);
            self.message.extend_from_slice(payload);
            at += part;
            frame.missing -= part;
            frame.mask.rotate_left(part % 4);
            if frame.missing > 0 {
                return Ok((at, None));
            }
            let is_final = frame.is_final;
            self.partial = None;
            if is_final {
                (self.is_begun, self.is_returned) = (false, true);
                return Ok((at, Some(message(&self.message)?)));
            }
        }
    }
}

/// A valid header of a client's frame.
struct Head {
    is_final: bool,
    opcode: OpCode,
    mask: [u8; 4],
    /// Bytes of the payload.
    payload: u64,
    /// Bytes of the header.
    len: usize,
}

impl Head {
    /// Reads a header (RFC 6455, section 5.2); `None` if a part of it is missing. No extension is
    /// negotiated, so that the reserved bits have to be 0. The payload of a control frame fits one
    /// byte.
    fn parse(input: &[u8]) -> Result<Option<Self>, CloseCode> {
        let mut cursor = Cursor::new(input);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| CloseCode::Protocol)?;
        let Some((header, payload)) = parsed else { return Ok(None) };
        let FrameHeader { is_final, rsv1, rsv2, rsv3, opcode, mask } = header;
        // The shortest form of a length is the only valid one.
        let is_shortest = header_len(payload) as u64 == cursor.position();
        let is_control = matches!(opcode, OpCode::Control(_));
        let (Some(mask), false, true) = (mask, rsv1 || rsv2 || rsv3, is_shortest) else {
            return Err(CloseCode::Protocol);
        };
        if is_control && (!is_final || payload > MAX_CONTROL as u64) {
            return Err(CloseCode::Protocol);
        }
        Ok(Some(Self { is_final, opcode, mask, payload, len: cursor.position() as usize }))
    }
}

/// Bytes of a masked frame's header.
fn header_len(payload: u64) -> usize {
    FrameHeader { mask: Some([0; 4]), ..FrameHeader::default() }.len(payload)
}

/// A message, which has to be UTF-8 also in binary frames: it is JSON.
fn message(payload: &[u8]) -> Result<Frame<'_>, CloseCode> {
    str::from_utf8(payload).map(Frame::Message).map_err(|_| CloseCode::Invalid)
}

fn control_frame(control: Control, payload: &[u8]) -> Result<Frame<'_>, CloseCode> {
    match control {
        Control::Ping => Ok(Frame::Ping(payload)),
        Control::Pong => Ok(Frame::Pong),
        Control::Close => match payload {
            [] => Ok(Frame::Close(None)),
            [high, low, reason @ ..] => {
                let code = CloseCode::from(u16::from_be_bytes([*high, *low]));
                if !code.is_allowed() {
                    return Err(CloseCode::Protocol);
                }
                str::from_utf8(reason).map_err(|_| CloseCode::Invalid)?;
                Ok(Frame::Close(Some(code)))
            }
            [_] => Err(CloseCode::Protocol),
        },
        Control::Reserved(_) => Err(CloseCode::Protocol),
    }
}

/// Removes the mask of a payload, or of a part that begins where the mask does (RFC 6455, section
/// 5.3).
fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let (words, rest) = payload.as_chunks_mut::<4>();
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ u32::from_ne_bytes(mask)).to_ne_bytes();
    }
    rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}
