//! The queue between the threads that log and the thread that writes. No thread that logs waits for
//! the reader of the log: what does not fit into the queue is dropped and counted.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::log_entry::Entry;

/// Entries on their way to the log.
#[derive(Debug)]
pub struct LogQueue {
    state: Mutex<State>,
    /// Notified when entries have arrived, and when all are written.
    changed: Condvar,
    /// Bytes that wait at most. The writer holds as many more, and their form as text.
    capacity: usize,
}

#[derive(Debug)]
struct State {
    waiting: Vec<Entry>,
    /// Bytes of the entries that wait.
    bytes: usize,
    /// Whether the writer has taken entries that are not written yet.
    writing: bool,
    /// Entries lost since the start.
    lost: u64,
    /// How many of them the log states.
    reported: u64,
}

impl LogQueue {
    /// An empty queue for this many bytes.
    pub const fn new(capacity: usize) -> Self {
        let state = State { waiting: Vec::new(), bytes: 0, writing: false, lost: 0, reported: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity }
    }

    /// Adds an entry, unless it does not fit.
    pub fn push(&self, entry: Entry) {
        let mut state = self.lock();
        if state.bytes + entry.bytes() > self.capacity {
            state.lost += 1;
        } else {
            state.bytes += entry.bytes();
            state.waiting.push(entry);
            self.changed.notify_all();
        }
    }

    /// Entries lost since the start.
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Waits until all entries are written, or until `limit` has passed.
    pub fn flush(&self, limit: Duration) {
        let is_unwritten = |state: &mut State| state.writing || !state.waiting.is_empty();
        // The queue is valid after a panic, too.
        drop(self.changed.wait_timeout_while(self.lock(), limit, is_unwritten));
    }

    /// Waits for entries and passes all of them to `write`, which returns how many it has written;
    /// the rest is lost. `report` makes an entry that states how many were lost.
    pub fn write_next(
        &self,
        write: impl FnOnce(&[Entry]) -> usize,
        report: impl FnOnce(u64) -> Entry,
    ) {
        let (mut batch, lost) = self.take();
        if lost > 0 {
            batch.push(report(lost));
        }
        let unwritten = (batch.len() - write(&batch)) as u64;
        if unwritten > 0 {
            // The report itself is the last entry, and not one of those lost.
            let mut state = self.lock();
            state.lost += unwritten - u64::from(lost > 0);
            state.reported -= lost;
        }
    }

    /// Waits for entries and takes them, with the number of entries lost that the log does not
    /// state yet.
    fn take(&self) -> (Vec<Entry>, u64) {
        let mut state = self.lock();
        state.writing = false;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |state| state.waiting.is_empty());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        (state.writing, state.bytes) = (true, 0);
        let lost = state.lost - state.reported;
        state.reported = state.lost;
        (mem::take(&mut state.waiting), lost)
    }

    /// Every critical section leaves a valid state behind, also if it panics.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_entry::write_lines;
    use super::*;
    use std::io::{self, Write};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Instant;

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

    /// Runs `test` with a queue for twenty entries of four characters, the permits of its writer,
    /// and what is written. The writer ends after `batches`.
    fn with_queue(
        batches: usize,
        test: impl FnOnce(&LogQueue, Sender<io::Result<usize>>, Receiver<Vec<u8>>),
    ) {
        let queue = LogQueue::new(20 * Entry::last("four").bytes());
        let (permit, permits) = channel();
        let (to, written) = channel();
        thread::scope(|scope| {
            let report = |lost| Entry::last(&format!("lost {lost}"));
            let (queue, mut log) = (&queue, Paced { permits, written: to });
            let mut write = move |entries: &[Entry]| write_lines(entries, &mut log, Entry::to_text);
            scope.spawn(move || (0..batches).for_each(|_| queue.write_next(&mut write, report)));
            test(queue, permit, written);
        });
    }

    /// Adds entries that are shown as these lines.
    fn push(queue: &LogQueue, texts: &[&str]) {
        texts.iter().for_each(|text| queue.push(Entry::last(text)));
    }

    /// Waits until the writer has taken everything that waits.
    fn await_taken(queue: &LogQueue) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !queue.lock().waiting.is_empty() {
            assert!(Instant::now() < deadline, "the writer takes nothing");
            thread::yield_now();
        }
    }

    #[test]
    fn entries_that_do_not_fit_are_dropped_and_their_number_follows() {
        with_queue(2, |queue, permit, written| {
            push(queue, &["first"]);
            await_taken(queue);
            // The writer is blocked. Twenty of these entries fit.
            push(queue, &["four"; 27]);
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
    fn entries_that_cannot_be_written_are_counted() {
        with_queue(4, |queue, permit, written| {
            let full = || Err(io::ErrorKind::StorageFull.into());
            push(queue, &["first"]);
            await_taken(queue);
            push(queue, &["a1\nlong", "a2", "a3"]);
            permit.send(Ok(6)).unwrap();
            assert_eq!(written.recv().unwrap(), b"first\n");
            // The first one, and a part of the second.
            permit.send(Ok(9)).unwrap();
            permit.send(full()).unwrap();
            queue.flush(Duration::from_secs(60));
            assert_eq!((written.recv().unwrap(), queue.lost()), (b"a1\nlong\na".to_vec(), 2));
            // Neither this entry nor the number of the lost ones can be written.
            permit.send(full()).unwrap();
            push(queue, &["b"]);
            queue.flush(Duration::from_secs(60));
            assert_eq!(queue.lost(), 3);
            drop(permit);
            push(queue, &["c"]);
            assert_eq!(written.recv().unwrap(), b"c\nlost 3\n");
        });
    }

    #[test]
    fn a_flush_waits_until_everything_is_written() {
        with_queue(2, |queue, permit, written| {
            drop(permit);
            push(queue, &["last"]);
            queue.flush(Duration::from_secs(60));
            assert_eq!(written.try_recv().unwrap(), b"last\n");
            push(queue, &["end"]);
        });
    }
}
