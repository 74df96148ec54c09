//! Streams over one connection of bytes: a sequence of frames, each the number of a stream (u32), a
//! length (u16) and as many bytes, big-endian. A stream opens with its first frame.

/// Bytes in front of the payload of a frame.
pub const HEADER: usize = 6;

/// Why bytes are no frames; nothing behind them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// There are fewer streams.
    #[error("a frame of stream {0}, which does not exist")]
    Stream(u32),
    /// A frame has at least one byte.
    #[error("an empty frame")]
    Empty,
}

/// The header of a frame.
pub fn header(stream: u32, length: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&stream.to_be_bytes());
    header[4..].copy_from_slice(&length.to_be_bytes());
    header
}

/// Reads frames from bytes that arrive in parts.
#[derive(Debug)]
pub struct Decoder {
    /// The number of streams.
    streams: u32,
    /// The beginning of a frame whose end has not arrived.
    begun: Vec<u8>,
}

impl Decoder {
    /// A decoder of a connection with streams below `streams`.
    pub fn new(streams: u32) -> Self {
        Self { streams, begun: Vec::new() }
    }

    /// Calls `each` with stream and payload of the frames that `bytes` complete.
    ///
    /// # Errors
    /// When a header is invalid; frames in front of it have been read.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(u32, &[u8]),
    ) -> Result<(), FrameError> {
        while !self.begun.is_empty() {
            let wanted = match self.begun.first_chunk() {
                None => HEADER,
                Some(header) => HEADER + self.read(header)?.1,
            };
            if self.begun.len() == wanted && wanted > HEADER {
                let (stream, _) = self.read(self.begun.first_chunk().expect("it is whole"))?;
                each(stream, &self.begun[HEADER..]);
                // Idle connections keep no memory.
                self.begun = Vec::new();
                break;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let (part, rest) = bytes.split_at(bytes.len().min(wanted - self.begun.len()));
            self.begun.extend_from_slice(part);
            bytes = rest;
        }
        while let Some(header) = bytes.first_chunk() {
            let (stream, length) = self.read(header)?;
            let Some(payload) = bytes.get(HEADER..HEADER + length) else { break };
            each(stream, payload);
            bytes = &bytes[HEADER + length..];
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// Stream and length of a frame.
    fn read(&self, header: &[u8; HEADER]) -> Result<(u32, usize), FrameError> {
        let [a, b, c, d, high, low] = *header;
        let stream = u32::from_be_bytes([a, b, c, d]);
        let length = usize::from(u16::from_be_bytes([high, low]));
        match (stream, length) {
            (stream, _) if stream >= self.streams => Err(FrameError::Stream(stream)),
            (_, 0) => Err(FrameError::Empty),
            read => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Frames = Vec<(u32, Vec<u8>)>;

    /// The frames that arrive in `parts`, and the error that ends them.
    fn decoded<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Frames, Result<(), FrameError>) {
        let (mut decoder, mut frames) = (Decoder::new(1000), Frames::new());
        for part in parts {
            let each = |stream, payload: &[u8]| frames.push((stream, payload.to_vec()));
            if let Err(error) = decoder.feed(part, each) {
                return (frames, Err(error));
            }
        }
        (frames, Ok(()))
    }

    fn encoded(frames: &Frames) -> Vec<u8> {
        let of = |(stream, payload): &(u32, Vec<u8>)| {
            [&header(*stream, payload.len() as u16), &payload[..]].concat()
        };
        frames.iter().flat_map(of).collect()
    }

    proptest! {
        /// The model is the list of frames itself.
        #[test]
        fn frames_are_the_same_however_they_arrive(
            frames in prop::collection::vec(
                (0..1000u32, prop::collection::vec(any::<u8>(), 1..40)), 0..12,
            ),
            cuts in prop::collection::vec(1..30usize, 1..60),
        ) {
            let bytes = encoded(&frames);
            let (mut parts, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts {
                let (part, behind) = rest.split_at(cut.min(rest.len()));
                parts.push(part);
                rest = behind;
            }
            parts.push(rest);
            prop_assert_eq!(decoded(parts), (frames, Ok(())));
        }

        #[test]
        fn arbitrary_bytes_fail_the_same_however_they_arrive(
            bytes in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..400),
        ) {
            prop_assert_eq!(decoded(bytes.chunks(1)), decoded([&bytes[..]]));
        }
    }

    #[test]
    fn invalid_headers_are_named_behind_valid_frames() {
        let good = (7, b"abc".to_vec());
        let cases =
            [(header(1000, 1), FrameError::Stream(1000)), (header(999, 0), FrameError::Empty)];
        for (bad, error) in cases {
            let bytes = [encoded(&vec![good.clone()]), bad.to_vec()].concat();
            assert_eq!(decoded([&bytes[..]]), (vec![good.clone()], Err(error)));
        }
    }
}
