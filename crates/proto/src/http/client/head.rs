//! The head of a reply, and where its body ends (RFC 9112).

use httparse::{EMPTY_HEADER, Response, Status};

use super::BadReply;

/// Bytes of the longest head.
const MAX_HEAD: usize = 8 * 1024;
/// Fields of a head, at most.
const MAX_FIELDS: usize = 64;
/// Bytes of the longest body: a full scrape of 10,000 swarms is shorter.
pub const MAX_BODY: usize = 1 << 20;

/// The head of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHead {
    /// The status, like 200.
    pub status: u16,
    /// Bytes of the head.
    pub len: usize,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection takes further requests.
    pub keep_alive: bool,
}

/// How a body ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// After this number of bytes.
    Length(usize),
    /// After its last chunk.
    Chunked,
    /// With the connection.
    UntilEnd,
}

impl ReplyHead {
    /// Reads the head of the reply with which `input` begins; `None` while that is incomplete.
    ///
    /// # Errors
    /// [`BadReply::Head`] and [`BadReply::Long`].
    pub fn parse(input: &[u8]) -> Result<Option<Self>, BadReply> {
        let mut fields = [EMPTY_HEADER; MAX_FIELDS];
        let mut reply = Response::new(&mut fields);
        let len = match reply.parse(&input[..input.len().min(MAX_HEAD)]) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if input.len() < MAX_HEAD => return Ok(None),
            _ => return Err(BadReply::Head),
        };
        let (Some(version), Some(status)) = (reply.version, reply.code) else {
            return Err(BadReply::Head);
        };
        let (mut keep_alive, mut closes) = (version > 0, false);
        let (mut length, mut chunked) = (None, false);
        for field in reply.headers.iter() {
            let is = |name| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let found = decimal(field.value.trim_ascii()).ok_or(BadReply::Head)?;
                // Different lengths hide a second reply in the body of the first.
                if length.replace(found).is_some_and(|other| other != found) {
                    return Err(BadReply::Head);
                }
            } else if is("transfer-encoding") {
                chunked = field.value.trim_ascii().eq_ignore_ascii_case(b"chunked");
                if !chunked {
                    return Err(BadReply::Head);
                }
            } else if is("connection") {
                for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    closes |= option.eq_ignore_ascii_case(b"close");
                }
            }
        }
        let framing = match (length, chunked) {
            (Some(_), true) => return Err(BadReply::Head),
            (Some(length), false) if length > MAX_BODY => return Err(BadReply::Long),
            (Some(length), false) => Framing::Length(length),
            (None, true) => Framing::Chunked,
            (None, false) => Framing::UntilEnd,
        };
        let keep_alive = keep_alive && !closes && framing != Framing::UntilEnd;
        Ok(Some(Self { status, len, framing, keep_alive }))
    }

    /// The body of the reply with which `input` begins, and the length of the whole reply; `None`
    /// while that is incomplete. `ended` is whether the connection has no more input. Chunks are
    /// put together in `joined`.
    ///
    /// # Errors
    /// [`BadReply::Head`] for malformed chunks, and [`BadReply::Long`].
    pub fn body<'a>(
        &self,
        input: &'a [u8],
        ended: bool,
        joined: &'a mut Vec<u8>,
    ) -> Result<Option<(&'a [u8], usize)>, BadReply> {
        let body = &input[self.len..];
        match self.framing {
            Framing::Length(length) => Ok(body.get(..length).map(|body| (body, self.len + length))),
            Framing::UntilEnd if body.len() > MAX_BODY => Err(BadReply::Long),
            Framing::UntilEnd => Ok(ended.then_some((body, input.len()))),
            Framing::Chunked => {
                joined.clear();
                let rest = chunks(body, joined)?;
                Ok(rest.map(|rest| (&joined[..], input.len() - rest.len())))
            }
        }
    }
}

/// Appends the chunks of a body to `joined`, and returns what follows it; `None` while it is
/// incomplete (RFC 9112, section 7.1).
fn chunks<'a>(mut rest: &'a [u8], joined: &mut Vec<u8>) -> Result<Option<&'a [u8]>, BadReply> {
    loop {
        let Some((size, behind)) = line(rest)? else { return Ok(None) };
        let size = size.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let text = std::str::from_utf8(size).ok().filter(|text| !text.starts_with('+'));
        let size = text.and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.ok_or(BadReply::Head)?;
        if joined.len().saturating_add(size) > MAX_BODY {
            return Err(BadReply::Long);
        }
        rest = behind;
        if size == 0 {
            // The fields behind the last chunk, up to an empty line.
            while let Some((field, behind)) = line(rest)? {
                rest = behind;
                if field.is_empty() {
                    return Ok(Some(rest));
                }
            }
            return Ok(None);
        }
        let Some((chunk, behind)) = rest.split_at_checked(size) else { return Ok(None) };
        joined.extend_from_slice(chunk);
        match line(behind)? {
            Some((b"", behind)) => rest = behind,
            Some(_) => return Err(BadReply::Head),
            None => return Ok(None),
        }
    }
}

/// A line without its end, and what follows it.
type Line<'a> = (&'a [u8], &'a [u8]);

/// The next line; `None` while it is incomplete.
fn line(text: &[u8]) -> Result<Option<Line<'_>>, BadReply> {
    match text.windows(2).position(|end| end == b"\r\n") {
        Some(end) => Ok(Some((&text[..end], &text[end + 2..]))),
        None if text.len() > MAX_HEAD => Err(BadReply::Head),
        None => Ok(None),
    }
}

/// A number of digits only; saturates.
fn decimal(text: &[u8]) -> Option<usize> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let add =
        |sum: usize, byte: &u8| sum.saturating_mul(10).saturating_add(usize::from(byte - b'0'));
    digits.then(|| text.iter().fold(0, add))
}
