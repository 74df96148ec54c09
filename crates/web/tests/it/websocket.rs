//! WebSocket: frames are read as a naive encoder wrote them, however they arrive, and a client of
//! another implementation (tungstenite) understands the frames to it.

use std::io::{Read, Write};

use onrush_net::stream::Streams;
use onrush_net::stream::memory::{Conditions, Network};
use onrush_web::websocket::assembler::{Assembler, Frame, MAX_REST};
use onrush_web::websocket::{CloseCode, write};
use proptest::collection::vec;
use proptest::prelude::*;
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

use crate::world::source;

const MAX_MESSAGE: usize = 70_000;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Message(String),
    Ping(Vec<u8>),
    Pong,
    Close(Option<u16>),
    Failed(u16),
}

/// What is read of input that arrives in parts of these lengths, the last one as long as the rest;
/// and the most bytes that were left of a frame. The end is a close frame or an error.
fn read(mut input: &[u8], lengths: &[usize], max_message: usize) -> (Vec<Event>, usize) {
    let (mut assembler, mut rest, mut events) = (Assembler::default(), Vec::new(), Vec::new());
    let (mut lengths, mut most_left) = (lengths.iter(), 0);
    while !input.is_empty() {
        let len = lengths.next().copied().unwrap_or(usize::MAX).min(input.len());
        rest.extend_from_slice(&input[..len]);
        input = &input[len..];
        let mut at = 0;
        loop {
            let event = match assembler.read(&mut rest[at..], max_message) {
                Err(code) => Event::Failed(code.into()),
                Ok((len, frame)) => {
                    at += len;
                    match frame {
                        None => break,
                        Some(Frame::Message(text)) => Event::Message(text.to_owned()),
                        Some(Frame::Ping(payload)) => Event::Ping(payload.to_vec()),
                        Some(Frame::Pong) => Event::Pong,
                        Some(Frame::Close(code)) => Event::Close(code.map(u16::from)),
                    }
                }
            };
            let is_end = matches!(event, Event::Close(_) | Event::Failed(_));
            events.push(event);
            if is_end {
                return (events, most_left);
            }
        }
        rest.drain(..at);
        most_left = most_left.max(rest.len());
    }
    (events, most_left)
}

fn events(input: &[u8]) -> Vec<Event> {
    read(input, &[], MAX_MESSAGE).0
}

const MASK: [u8; 4] = [0xA1, 0x00, 0x5E, 0xFF];

/// A frame as a client writes it (RFC 6455, section 5.2).
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        len @ ..126 => frame.push(0x80 | len as u8),
        len @ ..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
    frame
}

// The first bytes of frames: opcode and FIN.
const PART: u8 = 0x00;
const TEXT_BEGINS: u8 = 0x01;
const LAST_PART: u8 = 0x80;
const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8A;

/// Frames that break a rule, and the code of the close frame (RFC 6455, section 7.4.1).
#[test]
fn each_violation_has_its_code() {
    let unmasked = b"\x81\x02hi".to_vec();
    let long_form = [b"\x81\xFE\x00\x02".as_slice(), &MASK, b"hi"].concat();
    let too_long = [b"\x81\xFF\x00\x00\x00\x00\x00\x01\x11\x71".as_slice(), &MASK].concat();
    let endless = [b"\x82\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF".as_slice(), &MASK].concat();
    let parts = [frame(TEXT_BEGINS, &[b'a'; MAX_MESSAGE]), frame(PART, b"a")].concat();
    let in_parts = [frame(TEXT_BEGINS, b"\xC3"), frame(LAST_PART, b"\x28")].concat();
    let bad = [TEXT | 0x40, TEXT | 0x20, TEXT | 0x10, 0x83, 0x8B, LAST_PART, PING & 0x7F];
    for (frames, code) in [
        (unmasked, 1002),
        (long_form, 1002),
        ([frame(TEXT_BEGINS, b"a"), frame(TEXT, b"b")].concat(), 1002),
        (frame(PING, &[0; 126]), 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(CLOSE, &1005u16.to_be_bytes()), 1002),
        (frame(CLOSE, &999u16.to_be_bytes()), 1002),
        (frame(CLOSE, b"\x03\xE8\xFF"), 1007),
        (frame(TEXT, b"\xFF"), 1007),
        (frame(BINARY, b"\xFF"), 1007),
        (in_parts, 1007),
        (too_long, 1009),
        (endless, 1009),
        (parts, 1009),
    ]
    .into_iter()
    .chain(bad.map(|first| (frame(first, b""), 1002)))
    {
        let begin = &frames[..frames.len().min(20)];
        assert_eq!(events(&frames), [Event::Failed(code)], "{begin:?}");
    }
    let longest = frame(TEXT, &[b'a'; MAX_MESSAGE]);
    assert_eq!(events(&longest), [Event::Message("a".repeat(MAX_MESSAGE))]);
    assert_eq!(events(&frame(CLOSE, b"\x03\xE8bye")), [Event::Close(Some(1000))]);
}

/// A message that arrives whole is not copied, and the buffer of one in parts is freed behind it.
#[test]
fn memory_is_held_for_a_part_of_a_message_only() {
    let mut assembler = Assembler::default();
    let mut whole = frame(TEXT, &[b'a'; 5_000]);
    assert!(matches!(assembler.read(&mut whole, MAX_MESSAGE), Ok((_, Some(Frame::Message(_))))));
    assert_eq!(assembler.buffered(), 0);
    let mut parts = frame(TEXT, &[b'a'; 5_000]);
    let (first, second) = parts.split_at_mut(1_000);
    assert_eq!(assembler.read(first, MAX_MESSAGE), Ok((1_000, None)));
    assert!((900..5_000).contains(&assembler.buffered()), "{}", assembler.buffered());
    let message = "a".repeat(5_000);
    let expected = (second.len(), Some(Frame::Message(&message)));
    assert_eq!(assembler.read(second, MAX_MESSAGE), Ok(expected));
    assert_eq!(assembler.read(&mut [], MAX_MESSAGE), Ok((0, None)));
    assert_eq!(assembler.buffered(), 0);
}

/// A message as lengths of its parts, with the control frames in front of each.
fn encoded(message: &str, is_text: bool, parts: &[(usize, Vec<Event>)]) -> (Vec<u8>, Vec<Event>) {
    let (mut bytes, mut events, mut rest) = (Vec::new(), Vec::new(), message.as_bytes());
    let mut opcode = if is_text { TEXT } else { BINARY } & 0x0F;
    let parts = parts.iter().cloned().chain([(usize::MAX, Vec::new())]);
    for (len, controls) in parts {
        for control in controls {
            bytes.extend(match &control {
                Event::Ping(payload) => frame(PING, payload),
                _ => frame(PONG, b"pong"),
            });
            events.push(control);
        }
        let (part, more) = rest.split_at(len.min(rest.len()));
        rest = more;
        let fin = if len == usize::MAX { 0x80 } else { 0 };
        bytes.extend(frame(fin | opcode, part));
        opcode = PART;
    }
    events.push(Event::Message(message.to_owned()));
    (bytes, events)
}

proptest! {
    #[test]
    fn messages_are_read_however_they_are_split(
        messages in vec(
            (
                prop_oneof![".{0,40}", (0usize..70_000).prop_map(|len| "ä".repeat(len / 2))],
                any::<bool>(),
                vec((0usize..300, vec(control(), 0..2)), 0..4),
            ),
            1..5,
        ),
        lengths in vec(prop_oneof![0usize..20, 0usize..20_000], 0..40),
        close in any::<bool>(),
    ) {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for (message, is_text, parts) in &messages {
            let (more, events) = encoded(message, *is_text, parts);
            bytes.extend(more);
            expected.extend(events);
        }
        if close {
            bytes.extend(frame(CLOSE, b""));
            expected.push(Event::Close(None));
        }
        let (events, left) = read(&bytes, &lengths, MAX_MESSAGE);
        prop_assert_eq!(events, expected);
        prop_assert!(left <= MAX_REST, "{left} bytes were left");
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_split(
        frames in vec((any::<u8>(), vec(any::<u8>(), 0..200)), 0..6),
        noise in vec(any::<u8>(), 0..40),
        lengths in vec(0usize..50, 0..40),
    ) {
        let frames = frames.iter().flat_map(|(first, payload)| frame(*first, payload));
        let bytes = frames.chain(noise).collect::<Vec<_>>();
        prop_assert_eq!(read(&bytes, &lengths, 500).0, read(&bytes, &[], 500).0);
    }
}

fn control() -> impl Strategy<Value = Event> {
    prop_oneof![vec(any::<u8>(), 0..126).prop_map(Event::Ping), Just(Event::Pong)]
}

#[test]
fn a_client_of_tungstenite_is_understood_and_understands() {
    let network = Network::new(1, Conditions { capacity: 1 << 20, ..Conditions::default() });
    let mut backend = network.listen(1);
    let client = network.connect(backend.listener(0), source("198.51.100.1", 1));
    let (mut server, _) = backend.accept(0).unwrap().unwrap();
    let mut client = WebSocket::from_raw_socket(client, Role::Client, None);
    let mut buffer = vec![0; 1 << 20];
    let long = "x".repeat(66_000);
    for message in [
        Message::text("hello"),
        Message::binary(long.clone().into_bytes()),
        Message::Ping(vec![7; 125].into()),
        Message::text(&long[..300]),
    ] {
        client.send(message).unwrap();
    }
    let sent = server.read(&mut buffer).unwrap();
    let text = |text: &str| Event::Message(text.to_owned());
    let expected = [text("hello"), text(&long), Event::Ping(vec![7; 125]), text(&long[..300])];
    assert_eq!(events(&buffer[..sent]), expected);

    let mut frames = Vec::new();
    let texts = ["", &long[..125], &long[..126], &long[..65_535], &long];
    for text in texts {
        write::message(text.as_bytes(), &mut frames);
    }
    write::pong(&[7; 125], &mut frames);
    write::ping(&mut frames);
    write::close(Some(CloseCode::Restart), &mut frames);
    server.write_all(&frames).unwrap();
    let received = std::iter::from_fn(|| client.read().ok()).collect::<Vec<_>>();
    let close = CloseFrame { code: CloseCode::Restart, reason: "".into() };
    let mut expected = texts.map(Message::text).to_vec();
    expected.push(Message::Pong(vec![7; 125].into()));
    expected.extend([Message::Ping(Vec::new().into()), Message::Close(Some(close))]);
    assert!(received == expected, "{} frames", received.len());
    // Its answers to the ping and to the close frame.
    let sent = server.read(&mut buffer).unwrap();
    assert_eq!(events(&buffer[..sent]), [Event::Pong, Event::Close(Some(1012))]);

    let mut frames = Vec::new();
    write::close(None, &mut frames);
    assert_eq!(frames, b"\x88\x00");
}
