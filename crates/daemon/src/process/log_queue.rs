//! The queue between the threads that log and the thread that writes. No thread that logs waits for
//! the reader of the log: what does not fit into the queue is dropped and counted.

use std::io::{ErrorKind, Write};
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines on their way to the log.
#[derive(Debug)]
pub struct LogQueue {
    state: Mutex<State>,
    /// Notified when lines have arrived, and when all are written.
    changed: Condvar,
    /// Bytes that wait at most. The writer holds as many more.
    capacity: usize,
}

#[derive(Debug)]
struct State {
    waiting: Vec<u8>,
    /// Whether the writer has taken lines that are not written yet.
    writing: bool,
    /// Lines lost since the start.
    lost: u64,
    /// How many of them the log states.
    reported: u64,
}

impl LogQueue {
    /// An empty queue for this many bytes.
    pub const fn new(capacity: usize) -> Self {
        let state = State { waiting: Vec::new(), writing: false, lost: 0, reported: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    /// Adds whole lines, unless they do not fit.
    pub fn push(&self, lines: &str) {
        let mut state = self.lock();
        if state.waiting.len() + lines.len() > self.capacity {
            state.lost += count(lines.as_bytes());
        } else {
            state.waiting.extend_from_slice(lines.as_bytes());
            self.changed.notify_all();
        }
    }

    /// Lines lost since the start.
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Waits until all lines are written, or until `limit` has passed.
    pub fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while state.writing || !state.waiting.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes lines as they arrive, until `stop` returns true after a batch. Lines that cannot be
    /// written are lost; `report` makes a line that states how many were lost.
    pub fn write_to(
        &self,
        mut to: impl Write,
        report: impl Fn(u64) -> String,
        mut stop: impl FnMut() -> bool,
    ) {
        let mut batch = Vec::new();
        loop {
            let lost = self.take(&mut batch);
            if lost > 0 {
                batch.extend_from_slice(report(lost).as_bytes());
            }
            let unwritten = count(&batch[write(&mut to, &batch)..]);
            batch.clear();
            if unwritten > 0 {
                // The report itself is the last line, and not one of those lost.
                let mut state = self.lock();
                state.lost += unwritten - u64::from(lost > 0);
                state.reported -= lost;
            }
            if stop() {
                return;
            }
        }
    }

    /// Waits for lines and moves them into an empty `batch`. Returns the number of lines lost that
    /// the log does not state yet.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        while state.waiting.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = true;
        mem::swap(&mut state.waiting, batch);
        let lost = state.lost - state.reported;
        state.reported = state.lost;
        lost
    }

    /// Every critical section leaves a valid state behind, also if it panics.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of lines, each of which ends with a line break.
fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Writes until an error, for example of a full disk or a pipe without a reader. Returns the number
/// of bytes written.
fn write(to: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    /// A log that takes bytes when the test permits it, and shows what it has got.
    struct Paced {
        permits: Receiver<io::Result<usize>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Paced {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let permitted = self.permits.recv().unwrap_or(Ok(usize::MAX))?.min(bytes.len());
            // The test may have seen enough.
            let _ = self.written.send(bytes[..permitted].to_vec());
            Ok(permitted)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs `test` with a queue for 100 bytes, the permits of its writer, and what is written. The
    /// writer ends after `batches`.
    fn with_queue(
        batches: usize,
        test: impl FnOnce(&LogQueue, Sender<io::Result<usize>>, Receiver<Vec<u8>>),
    ) {
        let queue = LogQueue::new(100);
        let (permit, permits) = channel();
        let (to, written) = channel();
        thread::scope(|scope| {
            let mut batch = 0;
            let stop = move || {
                batch += 1;
                batch == batches
            };
            let report = |lost| format!("lost {lost}\n");
            let (queue, log) = (&queue, Paced { permits, written: to });
            scope.spawn(move || queue.write_to(log, report, stop));
            test(queue, permit, written);
        });
    }

    /// Waits until the writer has taken everything that waits.
    fn await_taken(queue: &LogQueue) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !queue.lock().waiting.is_empty() {
            assert!(Instant::now() < deadline, "the writer takes nothing");
            thread::yield_now();
        }
    }

    #[test]
    fn lines_that_do_not_fit_are_dropped_and_their_number_follows() {
        with_queue(2, |queue, permit, written| {
            queue.push("first\n");
            await_taken(queue);
            // The writer is blocked. Twenty of these lines fit.
            (0..27).for_each(|_| queue.push("four\n"));
            assert_eq!(queue.lost(), 7);
            queue.flush(Duration::from_millis(1));
            permit.send(Ok(2)).unwrap();
            assert_eq!(written.recv().unwrap(), b"fi");
            drop(permit);
            assert_eq!(written.recv().unwrap(), b"rst\n");
            let rest = String::from_utf8(written.recv().unwrap()).unwrap();
            assert_eq!(rest, format!("{}lost 7\n", "four\n".repeat(20)));
        });
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        with_queue(3, |queue, permit, written| {
            let full = || Err(io::ErrorKind::StorageFull.into());
            queue.push("a1\na2\na3\n");
            permit.send(Ok(3)).unwrap();
            permit.send(full()).unwrap();
            queue.flush(Duration::from_secs(30));
            assert_eq!((written.recv().unwrap(), queue.lost()), (b"a1\n".to_vec(), 2));
            // Neither this line nor the number of the lost ones can be written.
            permit.send(full()).unwrap();
            queue.push("b\n");
            queue.flush(Duration::from_secs(30));
            assert_eq!(queue.lost(), 3);
            drop(permit);
            queue.push("c\n");
            assert_eq!(written.recv().unwrap(), b"c\nlost 3\n");
        });
    }

    #[test]
    fn a_flush_waits_until_everything_is_written() {
        with_queue(2, |queue, permit, written| {
            drop(permit);
            queue.push("last\n");
            queue.flush(Duration::from_secs(30));
            assert_eq!(written.try_recv().unwrap(), b"last\n");
            queue.push("end\n");
        });
    }
}
