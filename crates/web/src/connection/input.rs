//! The buffer for input of a worker's connections.

use std::io;

use crate::head::MAX_HEAD;

/// Bytes of the buffer for input.
const INPUT_LEN: usize = 2 * MAX_HEAD;

/// The bytes that are read and not yet parsed, in a buffer that all connections use in turn.
pub(crate) struct Input {
    bytes: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; INPUT_LEN].into(), start: 0, end: 0 }
    }

    pub(super) fn load(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        (self.start, self.end) = (0, bytes.len());
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The same, to be unmasked where it lies.
    pub(super) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// The input without line ends, which are no part of the request behind them (RFC 9112, section
    /// 2.2).
    pub(super) fn skip_line_ends(&mut self) -> &[u8] {
        let is_part = |byte: &u8| !matches!(byte, b'\r' | b'\n');
        self.start += self.unread().iter().position(is_part).unwrap_or(self.end - self.start);
        self.unread()
    }

    /// Reads once into the space behind the input, which never is full: a head that long is
    /// refused.
    pub(super) fn read(&mut self, from: &mut impl io::Read) -> io::Result<usize> {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = from.read(&mut self.bytes[self.end..])?;
        self.end += read;
        Ok(read)
    }
}
