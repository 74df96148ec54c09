//! The stream of a connection, which reports when everything is written and read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::connections::Slot;
use onrush_net::connection_limits::Event;

/// A stream that tells the connection's slot whenever all bytes are written: hyper flushes a stream
/// only once its own buffers are empty. The end of a response's body is no sign of that, since the
/// body ends when hyper has it in a buffer.
pub(super) struct WatchedStream<'s, S> {
    pub(super) stream: S,
    pub(super) slot: &'s Slot,
    /// Whether the last read found nothing. It may be before the response is written.
    pub(super) waits: bool,
}

impl<S> WatchedStream<'_, S> {
    fn report_waiting(&self) {
        if self.waits {
            self.slot.observe(Event::Waits(Instant::now()));
        }
    }
}

impl<S: Read + Unpin> Read for WatchedStream<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.waits = read.is_pending();
        self.report_waiting();
        read
    }
}

impl<S: Write + Unpin> Write for WatchedStream<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            self.slot.observe(Event::Written);
            self.report_waiting();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
