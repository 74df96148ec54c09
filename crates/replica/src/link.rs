//! The connection between the two processes of a handoff, and how each of them waits. Both sides
//! use a [`Link`]: the daemon a Unix socket, and a simulation one without descriptors, with a clock
//! of its own.

use std::fmt;
use std::io::{self, BufWriter, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use onrush_net::descriptors::{self, Peer};
use onrush_tracker::clock::{Clock, Now};

use crate::handoff::{Message, Section, SectionKind};

/// Bytes of a write at most, for which the kernel waits once: a timeout applies to each wait.
const MAX_WRITE: usize = 16 << 10;
/// Bytes that are written at once.
const BUFFER: usize = 256 << 10;
/// Time for each write of the delta.
const DELTA_TIMEOUT: Duration = Duration::from_secs(60);

/// One end of the connection.
pub trait Link: Send + 'static {
    /// The process at the other end.
    ///
    /// # Errors
    /// When the kernel does not know it.
    fn peer(&self) -> io::Result<Peer>;

    /// The time by the clock of this process.
    fn now(&self) -> Now;

    /// Sends a message.
    ///
    /// # Errors
    /// When the peer has closed the connection, or does not read in time.
    fn send(&self, message: &Message) -> io::Result<()>;

    /// Receives the next message, within `limit` as a whole: a peer that sends byte by byte cannot
    /// prolong it.
    ///
    /// # Errors
    /// When the peer has closed the connection or is too slow, or the message is malformed.
    fn receive(&self, limit: Duration) -> io::Result<Message>;

    /// Sends the descriptors of all sections, in their order.
    ///
    /// # Errors
    /// When the peer has closed the connection, or does not read in time.
    fn send_descriptors(&self, sections: &[Vec<OwnedFd>]) -> io::Result<()>;

    /// Receives the descriptors of these sections.
    ///
    /// # Errors
    /// When the peer has closed the connection or sends too few, or this process may not open as
    /// many.
    fn receive_descriptors(&self, sections: &[Section]) -> io::Result<Descriptors>;

    /// Reads what follows a message, without a buffer: a message behind it is not read. Each read
    /// has a limit.
    fn reader(&self) -> impl Read;

    /// Writes what follows a message, within `limit` as a whole. Each write has a limit, too.
    fn writer(&self, limit: Duration) -> impl Write;

    /// Writes the delta. Each write has a limit.
    fn into_delta_writer(self) -> DeltaWriter;

    /// The peer can send and receive nothing more. What it has sent before can be read.
    ///
    /// # Errors
    /// When the connection has ended.
    fn shut_down(&self) -> io::Result<()>;

    /// Waits for a result of another thread.
    ///
    /// # Errors
    /// When it does not arrive within `limit`, or its sender is gone.
    fn wait<T>(&self, result: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError>;
}

/// Received descriptors, by section.
pub type Descriptors = Vec<(SectionKind, Vec<OwnedFd>)>;

/// Writes a delta.
pub struct DeltaWriter(pub Box<dyn Write + Send>);

impl fmt::Debug for DeltaWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeltaWriter")
    }
}

/// A Unix socket.
#[derive(Debug)]
pub struct UnixLink {
    stream: UnixStream,
    /// Time for each read and write; [`receive`](Link::receive) has a limit of its own.
    timeout: Duration,
    clock: Clock,
}

impl UnixLink {
    /// A link on `stream`, whose reads and writes take up to `timeout` each.
    ///
    /// # Errors
    /// When the timeout cannot be set.
    pub fn new(stream: UnixStream, timeout: Duration, clock: Clock) -> io::Result<Self> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream, timeout, clock })
    }

    /// Another handle to the same end.
    ///
    /// # Errors
    /// When this process may not open another descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()?, ..*self })
    }

    fn until(&self, limit: Duration) -> UntilDeadline<'_> {
        UntilDeadline { link: self, deadline: Instant::now() + limit }
    }
}

impl Link for UnixLink {
    fn peer(&self) -> io::Result<Peer> {
        descriptors::peer(&self.stream)
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn send(&self, message: &Message) -> io::Result<()> {
        (&self.stream).write_all(&message.encode()?)
    }

    fn receive(&self, limit: Duration) -> io::Result<Message> {
        Message::decode(self.until(limit))
    }

    fn send_descriptors(&self, sections: &[Vec<OwnedFd>]) -> io::Result<()> {
        let all: Vec<BorrowedFd<'_>> = sections.iter().flatten().map(AsFd::as_fd).collect();
        let mut chunks = all.chunks(descriptors::MAX_DESCRIPTORS);
        chunks.try_for_each(|chunk| descriptors::send(&self.stream, chunk))
    }

    fn receive_descriptors(&self, sections: &[Section]) -> io::Result<Descriptors> {
        let wanted = sections.iter().map(|section| section.count).sum();
        let mut all = Vec::new();
        while all.len() < wanted {
            let descriptors = descriptors::receive(&self.stream)?;
            if descriptors.is_empty() {
                return Err(io::Error::other("fewer descriptors arrived than the handoff names"));
            }
            all.extend(descriptors);
        }
        let mut all = all.into_iter();
        let take = |section: &Section| (section.kind, all.by_ref().take(section.count).collect());
        Ok(sections.iter().map(take).collect())
    }

    fn reader(&self) -> impl Read {
        &self.stream
    }

    fn writer(&self, limit: Duration) -> impl Write {
        BufWriter::with_capacity(BUFFER, self.until(limit))
    }

    fn into_delta_writer(self) -> DeltaWriter {
        // Fails only with a duration of zero.
        let _ = self.stream.set_write_timeout(Some(DELTA_TIMEOUT));
        DeltaWriter(Box::new(BufWriter::with_capacity(BUFFER, self.stream)))
    }

    fn shut_down(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Both)
    }

    fn wait<T>(&self, result: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
        result.recv_timeout(limit)
    }
}

/// Reads or writes a stream until a deadline, and restores its timeouts at the end. A timeout of
/// the stream alone would begin anew with every byte that arrives or leaves.
struct UntilDeadline<'a> {
    link: &'a UnixLink,
    deadline: Instant,
}

impl UntilDeadline<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(too_slow()) } else { Ok(left) }
    }
}

impl Read for UntilDeadline<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut stream = &self.link.stream;
        stream.set_read_timeout(Some(self.left()?))?;
        stream.read(bytes).map_err(timed_out)
    }
}

impl Write for UntilDeadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = &self.link.stream;
        stream.set_write_timeout(Some(self.left()?.min(self.link.timeout)))?;
        stream.write(&bytes[..bytes.len().min(MAX_WRITE)]).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for UntilDeadline<'_> {
    fn drop(&mut self) {
        // Fails only with a duration of zero.
        let UnixLink { stream, timeout, .. } = self.link;
        let _ = stream.set_read_timeout(Some(*timeout));
        let _ = stream.set_write_timeout(Some(*timeout));
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other process is too slow")
}

/// The kernel reports the timeout of a blocking socket as that of one that does not block.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { too_slow() } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::iter::repeat;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::thread;

    use crate::handoff::MAX_LEN;

    /// A message that takes longer is not cut off.
    const DEADLINE: Duration = Duration::from_secs(60);

    fn pair() -> [UnixLink; 2] {
        let (here, there) = UnixStream::pair().unwrap();
        [here, there].map(|end| UnixLink::new(end, DEADLINE, Clock::start()).unwrap())
    }

    /// Repeats a step every 10 ms until the sender of `ended` is dropped.
    fn until_dropped(ended: &Receiver<()>, mut step: impl FnMut()) {
        while ended.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
            step();
        }
    }

    #[test]
    fn descriptors_arrive_in_their_sections() {
        let [here, there] = pair();
        let open = |count: usize| -> Vec<OwnedFd> {
            (0..count).map(|_| OwnedFd::from(File::open("/dev/null").unwrap())).collect()
        };
        // More than fit into one message.
        let counts = [200, 0, 1, 100];
        let sent = counts.map(open);
        here.send_descriptors(&sent).unwrap();
        let section = |count| Section { kind: SectionKind::Lock, count };
        let received = there.receive_descriptors(&counts.map(section)).unwrap();
        assert_eq!(received.iter().map(|(_, of)| of.len()).collect::<Vec<_>>(), counts);
        drop(here);
        assert!(there.receive_descriptors(&[section(1)]).is_err());
    }

    #[test]
    fn a_message_that_arrives_byte_by_byte_is_cut_off() {
        let [here, there] = pair();
        let (over, ended) = channel::<()>();
        thread::scope(|scope| {
            // Every byte arrives before a timeout per read expires.
            scope.spawn(move || {
                let mut bytes = (MAX_LEN as u32).to_be_bytes().into_iter().chain(repeat(b' '));
                until_dropped(&ended, || {
                    (&here.stream).write_all(&[bytes.next().unwrap()]).unwrap();
                });
            });
            let began = Instant::now();
            let cut_off = there.receive(Duration::from_millis(200)).unwrap_err();
            assert_eq!(cut_off.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
            drop(over);
        });
        assert_eq!(there.stream.read_timeout().unwrap(), Some(DEADLINE));
    }

    #[test]
    fn a_reader_that_reads_slowly_is_cut_off() {
        let [here, there] = pair();
        let (over, ended) = channel::<()>();
        thread::scope(|scope| {
            // A part is read before a timeout per write expires.
            scope.spawn(move || {
                until_dropped(&ended, || {
                    let _some = (&there.stream).read(&mut [0; 4_096]).unwrap();
                });
            });
            let (began, bytes) = (Instant::now(), [0; 64 << 10]);
            let mut to = here.until(Duration::from_millis(200));
            let mut written = Ok(());
            while written.is_ok() && began.elapsed() < DEADLINE {
                written = to.write_all(&bytes);
            }
            // Otherwise a reader that has read everything waits for more.
            here.shut_down().unwrap();
            drop(over);
            assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
