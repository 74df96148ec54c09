//! The link of a handoff: bytes in memory, the simulated clock, and waits that let the simulation
//! go on. Each side of the handoff has a thread, which runs only while the simulation waits for it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, never};
use onrush_net::descriptors::Peer;
use onrush_replica::handoff::{Message, Section};
use onrush_replica::link::{DeltaWriter, Descriptors, Link};
use onrush_tracker::clock::Now;

use super::clock::Time;

/// Bytes that a link holds before its writer waits.
const CAPACITY: usize = 4 << 10;
/// Seconds for each read of a dump or delta.
const READ_TIMEOUT: u64 = 60;

/// A thread that takes turns with the simulation.
pub(crate) struct Side {
    /// `None` when the thread has to end.
    go: Option<Sender<()>>,
    waiting: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// The turns of a side.
#[derive(Debug)]
pub(crate) struct Turns {
    go: Receiver<()>,
    waiting: Sender<()>,
}

impl Side {
    pub(crate) fn new(body: impl FnOnce(Turns) + Send + 'static) -> Self {
        let ((go, turns), (waits, waiting)) = (bounded(0), bounded(0));
        let thread = thread::spawn(move || {
            if turns.recv().is_ok() {
                body(Turns { go: turns, waiting: waits });
            }
        });
        Self { go: Some(go), waiting, thread: Some(thread) }
    }

    /// Lets it run until it waits for something that has not happened, or to its end.
    pub(crate) fn run(&mut self) {
        let runs = self.go.as_ref().is_some_and(|go| go.send(()).is_ok());
        if !(runs && self.waiting.recv().is_ok()) {
            self.end();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_none()
    }

    /// Lets it run to its end: every wait fails.
    fn end(&mut self) {
        (self.go, self.waiting) = (None, never());
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) if !thread::panicking() => resume_unwind(panic),
            _ => {}
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.end();
    }
}

/// State that both sides share with the simulation.
#[derive(Debug, Default)]
pub(crate) struct Host {
    time: Mutex<Time>,
    /// The number of waits that have ended.
    steps: AtomicU64,
}

impl Host {
    pub(crate) fn set_time(&self, time: Time) {
        *self.time.lock().unwrap() = time;
    }

    pub(crate) fn second(&self) -> u64 {
        self.time.lock().unwrap().second
    }

    /// The number of waits that have ended.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}

/// A connection.
#[derive(Debug)]
struct Wire {
    /// Bytes to each end.
    bytes: [VecDeque<u8>; 2],
    is_open: bool,
}

/// One end; when it is dropped, the connection is closed.
#[derive(Debug)]
pub(crate) struct End {
    wire: Arc<Mutex<Wire>>,
    number: usize,
}

/// The two ends of a connection.
pub(crate) fn pair() -> [End; 2] {
    let wire = Wire { bytes: Default::default(), is_open: true };
    let wire = Arc::new(Mutex::new(wire));
    [0, 1].map(|number| End { wire: wire.clone(), number })
}

impl End {
    /// The link of the side with these turns, in a process that has `started` then; `process` is
    /// the other one.
    pub(crate) fn link(
        self,
        host: Arc<Host>,
        turns: Turns,
        started: u64,
        process: i32,
    ) -> SimulatedLink {
        SimulatedLink { end: Arc::new(self), host, turns: turns.into(), started, process }
    }

    fn close(&self) {
        self.wire.lock().unwrap().is_open = false;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

/// An end that a side has.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedLink {
    end: Arc<End>,
    pub(crate) host: Arc<Host>,
    turns: Arc<Turns>,
    /// When this process has started.
    started: u64,
    /// The process at the other end.
    process: i32,
}

impl SimulatedLink {
    /// Waits until `attempt` succeeds, up to `limit` seconds.
    pub(crate) fn until<T>(
        &self,
        limit: u64,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> io::Result<T> {
        let deadline = self.host.second().saturating_add(limit);
        loop {
            if let Some(result) = attempt() {
                self.host.steps.fetch_add(1, Ordering::Relaxed);
                return Ok(result);
            }
            // The simulation goes on, and then this side, unless it has to end.
            let goes_on = || self.turns.waiting.send(()).is_ok() && self.turns.go.recv().is_ok();
            if self.host.second() >= deadline || !goes_on() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Lets this many seconds pass.
    pub(crate) fn sleep(&self, seconds: u64) -> io::Result<()> {
        let end = self.host.second() + seconds;
        self.until(u64::MAX, || (self.host.second() >= end).then_some(()))
    }

    fn timed(&self, limit: u64) -> Timed<'_> {
        Timed { link: self, deadline: self.host.second() + limit }
    }
}

/// Reads or writes until a deadline.
struct Timed<'a> {
    link: &'a SimulatedLink,
    deadline: u64,
}

/// Reads, each time up to [`READ_TIMEOUT`].
struct EachRead<'a>(&'a SimulatedLink);

impl Read for EachRead<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.timed(READ_TIMEOUT).read(bytes)
    }
}

impl Timed<'_> {
    fn left(&self) -> u64 {
        self.deadline.saturating_sub(self.link.host.second())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.link.until(self.left(), || {
            let End { wire, number } = &*self.link.end;
            let wire = &mut *wire.lock().unwrap();
            let arrived = &mut wire.bytes[*number];
            (!arrived.is_empty() || !wire.is_open).then(|| arrived.read(bytes))
        })?
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.until(self.left(), || {
            let End { wire, number } = &*self.link.end;
            let wire = &mut *wire.lock().unwrap();
            let sent = &mut wire.bytes[1 - number];
            match CAPACITY.saturating_sub(sent.len()).min(bytes.len()) {
                _ if !wire.is_open => Some(Err(io::ErrorKind::BrokenPipe.into())),
                0 => None,
                room => Some(sent.write(&bytes[..room])),
            }
        })?
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes without a limit: the simulation does not take turns with itself.
#[derive(Debug)]
struct Unlimited(Arc<End>);

impl Write for Unlimited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.wire.lock().unwrap().bytes[1 - self.0.number].write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link for SimulatedLink {
    fn peer(&self) -> io::Result<Peer> {
        Ok(Peer { process: self.process, user: nix::unistd::Uid::effective().as_raw() })
    }

    fn now(&self) -> Now {
        self.host.time.lock().unwrap().since(self.started)
    }

    fn send(&self, message: &Message) -> io::Result<()> {
        self.timed(READ_TIMEOUT).write_all(&message.encode()?)
    }

    fn receive(&self, limit: Duration) -> io::Result<Message> {
        Message::decode(self.timed(limit.as_secs()))
    }

    fn send_descriptors(&self, _: &[Vec<OwnedFd>]) -> io::Result<()> {
        Ok(())
    }

    fn receive_descriptors(&self, _: &[Section]) -> io::Result<Descriptors> {
        Ok(Vec::new())
    }

    fn reader(&self) -> impl Read {
        EachRead(self)
    }

    fn writer(&self, limit: Duration) -> impl Write {
        self.timed(limit.as_secs())
    }

    fn into_delta_writer(self) -> DeltaWriter {
        DeltaWriter(Box::new(Unlimited(self.end)))
    }

    fn shut_down(&self) -> io::Result<()> {
        self.end.close();
        Ok(())
    }

    fn wait<T>(&self, result: &Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
        let attempt = || match result.try_recv() {
            Err(TryRecvError::Empty) => None,
            received => Some(received.map_err(|_| RecvTimeoutError::Disconnected)),
        };
        self.until(limit.as_secs(), attempt).map_err(|_| RecvTimeoutError::Timeout)?
    }
}
