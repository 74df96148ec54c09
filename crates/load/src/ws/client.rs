//! A connection with its WebSocket (RFC 6455), the side of the client.
//!
//! Frames are masked with a key of 0, which leaves the payload as it is: the key protects proxies
//! from what a script in a browser sends (section 10.3), and there is neither here. A message is
//! written behind the room for its header.

use std::io::Cursor;

use onrush_proto::http::client::ReplyHead;
use onrush_verify::tcp::Url;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::check::Finding;
use crate::connection::Connection;
use crate::latency::Nanos;

/// The key of each upgrade, of 16 bytes in base64: that of the example in RFC 6455, section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// Bytes of the longest message.
const MAX_MESSAGE: u64 = 1 << 20;
/// Bytes of the usual header: two, a length of two, and the mask.
const HEADER: usize = 8;

/// A connection.
pub(super) struct Client {
    pub(super) connection: Connection,
    pub(super) frames: Frames,
    /// When it was begun.
    pub(super) begun: Nanos,
    /// Whether the upgrade is done.
    pub(super) is_open: bool,
    /// Whether it has to end.
    pub(super) ends: bool,
}

/// The request for an upgrade to WebSocket (RFC 6455, section 4.1).
pub(super) fn upgrade_request(url: &Url) -> Vec<u8> {
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: onrush-load/{}\r\nUpgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n",
        url.announce,
        url.authority,
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes()
}

/// The length of the response that accepts the upgrade; `None` while it is incomplete.
///
/// # Errors
/// Why the upgrade has failed.
pub(super) fn upgraded(input: &[u8]) -> Result<Option<usize>, String> {
    let Some(head) = ReplyHead::parse(input).map_err(|_| "malformed head of an upgrade")? else {
        return Ok(None);
    };
    let accept = derive_accept_key(KEY.as_bytes());
    let has_key = input[..head.len].windows(accept.len()).any(|part| part == accept.as_bytes());
    match head.status {
        101 if has_key => Ok(Some(head.len)),
        101 => Err("an upgrade without the right Sec-WebSocket-Accept".into()),
        status => Err(format!("status {status} to an upgrade to WebSocket")),
    }
}

/// Appends a text message, which `write` appends.
pub(super) fn message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    frame(out, OpCode::Data(Data::Text), write);
}

/// Appends the answer to a ping (RFC 6455, section 5.5.2).
pub(super) fn pong(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, OpCode::Control(Control::Pong), |out| out.extend_from_slice(payload));
}

fn frame(out: &mut Vec<u8>, opcode: OpCode, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let payload = (out.len() - begin - HEADER) as u64;
    let header = FrameHeader { opcode, mask: Some([0; 4]), ..FrameHeader::default() };
    let mut bytes = [0; 14];
    let (len, mut rest) = (header.len(payload), &mut bytes[..]);
    // Writing into memory does not fail.
    let _ = header.format(payload, &mut rest);
    if len == HEADER {
        out[begin..begin + HEADER].copy_from_slice(&bytes[..HEADER]);
    } else {
        out.splice(begin..begin + HEADER, bytes[..len].iter().copied());
    }
}

/// The input of a client up to the end of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A whole message, which has to be UTF-8.
    Message(&'a [u8]),
    /// A ping, which needs a pong with the same payload.
    Ping(&'a [u8]),
    /// A part of a message, or a pong.
    Nothing,
    /// The tracker closes the connection.
    Close,
}

/// The state of a connection between the frames of a message.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The payload of the message so far.
    joined: Vec<u8>,
    is_begun: bool,
}

impl Frames {
    /// Reads the frame with which `input` begins, and its length; `None` while it is incomplete.
    ///
    /// # Errors
    /// [`Finding::Frame`] and [`Finding::BinaryFrame`].
    pub(super) fn read<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> Result<Option<(usize, Frame<'a>)>, Finding> {
        let mut cursor = Cursor::new(input);
        let parsed = FrameHeader::parse(&mut cursor).map_err(|_| Finding::Frame)?;
        let Some((header, payload)) = parsed else { return Ok(None) };
        let FrameHeader { is_final, rsv1, rsv2, rsv3, opcode, mask } = header;
        let is_control = matches!(opcode, OpCode::Control(_));
        let is_bad_control = is_control && (!is_final || payload > 125);
        // A server masks no frame (RFC 6455, section 5.1).
        if mask.is_some() || rsv1 || rsv2 || rsv3 || is_bad_control || payload > MAX_MESSAGE {
            return Err(Finding::Frame);
        }
        let start = cursor.position() as usize;
        let end = start + payload as usize;
        let Some(payload) = input.get(start..end) else { return Ok(None) };
        let frame = match opcode {
            OpCode::Control(Control::Ping) => Frame::Ping(payload),
            OpCode::Control(Control::Pong) => Frame::Nothing,
            OpCode::Control(Control::Close) => Frame::Close,
            OpCode::Data(Data::Binary) => return Err(Finding::BinaryFrame),
            OpCode::Data(Data::Text) if !self.is_begun && is_final => Frame::Message(payload),
            OpCode::Data(data @ (Data::Text | Data::Continue)) => {
                if (data == Data::Continue) != self.is_begun {
                    return Err(Finding::Frame);
                }
                if !self.is_begun {
                    self.joined.clear();
                }
                self.joined.extend_from_slice(payload);
                self.is_begun = !is_final;
                match is_final {
                    _ if self.joined.len() as u64 > MAX_MESSAGE => return Err(Finding::Frame),
                    true => Frame::Message(&self.joined),
                    false => Frame::Nothing,
                }
            }
            _ => return Err(Finding::Frame),
        };
        Ok(Some((end, frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a server.
    fn server(first: u8, payload: &[u8]) -> Vec<u8> {
        [&[first, payload.len() as u8], payload].concat()
    }

    #[test]
    fn a_message_has_the_header_of_its_length() {
        for (len, header) in [(0, 6), (125, 6), (126, 8), (65_535, 8), (65_536, 14)] {
            let mut out = b"before".to_vec();
            message(&mut out, |out| out.resize(out.len() + len, b'x'));
            let frame = &out[6..];
            assert_eq!(frame.len(), header + len);
            let mut cursor = Cursor::new(frame);
            let (found, payload) = FrameHeader::parse(&mut cursor).unwrap().unwrap();
            assert_eq!((found.mask, payload as usize), (Some([0; 4]), len));
            assert_eq!((cursor.position() as usize, found.is_final), (header, true));
            assert!(frame[header..].iter().all(|byte| *byte == b'x'));
        }
    }

    #[test]
    fn frames_are_read_one_by_one() {
        let mut frames = Frames::default();
        let input = server(0x81, "hä".as_bytes());
        assert_eq!(frames.read(&input), Ok(Some((5, Frame::Message("hä".as_bytes())))));
        for end in 0..input.len() {
            assert_eq!(frames.read(&input[..end]), Ok(None), "{end} bytes");
        }
        // A ping may come between the parts of a message.
        for (frame, read) in [
            (server(0x01, b"a"), Frame::Nothing),
            (server(0x89, b"p"), Frame::Ping(b"p")),
            (server(0x00, b"b"), Frame::Nothing),
            (server(0x80, b"c"), Frame::Message(b"abc")),
            (server(0x8A, b""), Frame::Nothing),
            (server(0x88, b""), Frame::Close),
        ] {
            assert_eq!(frames.read(&frame), Ok(Some((frame.len(), read))));
        }
    }

    #[test]
    fn invalid_frames_are_found() {
        for (frame, finding) in [
            (server(0x82, b"{}"), Finding::BinaryFrame),
            (server(0x80, b"{}"), Finding::Frame),
            (server(0xC1, b"{}"), Finding::Frame),
            (server(0x83, b"{}"), Finding::Frame),
            (server(0x09, b""), Finding::Frame),
            (vec![0x81, 0x80, 0, 0, 0, 0], Finding::Frame),
            (vec![0x81, 127, 0, 0, 0, 0, 1, 0, 0, 0], Finding::Frame),
        ] {
            assert_eq!(Frames::default().read(&frame), Err(finding), "{frame:?}");
        }
        let mut frames = Frames::default();
        frames.read(&server(0x01, b"a")).unwrap();
        assert_eq!(frames.read(&server(0x81, b"b")), Err(Finding::Frame));
    }

    #[test]
    fn an_upgrade_needs_its_key() {
        let reply = |status: &str, key: &str| {
            format!("HTTP/1.1 {status} x\r\nSec-WebSocket-Accept: {key}\r\n\r\n").into_bytes()
        };
        let right = reply("101", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(upgraded(&right), Ok(Some(right.len())));
        assert_eq!(upgraded(&right[..right.len() - 1]), Ok(None));
        assert!(upgraded(&reply("101", "other")).unwrap_err().contains("Accept"));
        assert!(upgraded(&reply("403", "")).unwrap_err().contains("status 403"));
    }
}
