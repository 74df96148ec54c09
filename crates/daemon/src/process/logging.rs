//! Log output by a thread of its own, and panics in the log.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::log_entry::Entry;
use super::log_output;
use super::log_queue::LogQueue;

/// Bytes of entries that wait for the reader of the log at most.
const CAPACITY: usize = 1 << 20;
/// Time for the last entries at the end of the process, if the log is not read or the journal
/// hangs.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for writing the message of a panic, which is written before the process may end.
const PANIC_TIMEOUT: Duration = Duration::from_secs(1);

/// The entries on their way to the log.
static QUEUE: LogQueue = LogQueue::new(CAPACITY);
/// Whether a thread writes the entries of [`QUEUE`].
static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts logging. A thread of its own writes: standard error may be a pipe without a reader, and
/// no other thread may wait for it. Call once.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(level: LevelFilter) -> io::Result<()> {
    thread::Builder::new().name("log".into()).spawn(write_entries)?;
    STARTED.store(true, Ordering::Release);
    // Fails only if a logger is set already.
    let _ = log::set_boxed_logger(Box::new(Queued));
    log::set_max_level(level);
    panic::set_hook(Box::new(|panicked| {
        let name = thread::current().name().unwrap_or("without a name").to_owned();
        let backtrace = Backtrace::capture();
        let backtrace = match backtrace.status() {
            BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        // The process may end without returning from `main`.
        print(&format!("thread {name} {panicked}{backtrace}\n"), PANIC_TIMEOUT);
    }));
    Ok(())
}

/// Writes the entries of [`QUEUE`] as they arrive.
fn write_entries() {
    let report = |lost| {
        let text = format!("{lost} log lines were lost: the log was not read in time");
        Entry::new(Level::Warn, module_path!(), text)
    };
    loop {
        QUEUE.write_next(log_output::write, report);
    }
}

/// Log lines lost since the start.
pub fn lost_lines() -> u64 {
    QUEUE.lost()
}

/// Writes the final message behind all entries of the log, at every log level, and waits until the
/// journal has processed it.
pub fn end(text: &str) {
    let deadline = Instant::now() + END_TIMEOUT;
    print(text, END_TIMEOUT);
    log_output::await_journal(deadline.saturating_duration_since(Instant::now()));
}

/// Writes a message behind all entries of the log, at every log level, and waits until it is
/// written, for `limit` at most.
fn print(text: &str, limit: Duration) {
    let entry = (!text.is_empty()).then(|| Entry::last(text));
    if STARTED.load(Ordering::Acquire) {
        entry.into_iter().for_each(|entry| QUEUE.push(entry));
        QUEUE.flush(limit);
    } else if let Some(entry) = entry {
        // Where it cannot be written, nothing is shown.
        log_output::write(slice::from_ref(&entry));
    }
}

/// Puts entries into [`QUEUE`].
struct Queued;

impl Log for Queued {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        // The `log` crate's own level, which a reload changes, decides what is shown.
        true
    }

    fn log(&self, record: &Record<'_>) {
        QUEUE.push(Entry::of(record));
    }

    fn flush(&self) {
        QUEUE.flush(END_TIMEOUT);
    }
}
