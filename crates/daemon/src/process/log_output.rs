//! Where entries of the log go. If systemd has connected standard error to the journal, they are
//! sent to the journal's own socket, by which each has a priority and may have several lines; the
//! stream at standard error makes an entry of each line. Otherwise they are written to standard
//! error, as text or as JSON.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::blocking_writer::BlockingWriter;
use super::journal_socket::{await_receiver, write_to_journal};
use super::log_entry::{Entry, write_lines};

/// The socket of the journal's native protocol.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Whether standard error is connected to the journal (systemd.exec(5), `$JOURNAL_STREAM`).
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let file = stderr.and_then(|stderr| stderr.metadata());
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    file.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
});
/// Whether entries are written as JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Writes further entries as JSON, or as text. The journal gets neither.
pub fn set_json(json: bool) {
    IS_JSON.store(json, Ordering::Relaxed);
}

/// Makes the journal read the unit of this process, which it does from /proc when it receives
/// something: a process that is killed may be gone by then. After a line of the stream at standard
/// error it remembers the unit for as long as the stream is open. It makes no entry of an empty
/// line.
pub fn register() {
    if *IS_JOURNAL {
        let _ = BlockingWriter(io::stderr()).write_all(b"\n");
    }
}

/// Waits, if the journal gets the entries, until it has processed all of them: it would not find
/// the unit of a process that has ended. Waits for `limit` at most.
pub fn await_journal(limit: Duration) {
    if *IS_JOURNAL {
        // Where the journal cannot be asked, its entries may lack the unit, and are complete.
        let _ = await_receiver(Path::new(JOURNAL), limit);
    }
}

/// Writes entries until one cannot be written. Returns the number of those written.
pub fn write(entries: &[Entry]) -> usize {
    let to = BlockingWriter(io::stderr());
    if *IS_JOURNAL {
        return write_to_journal(entries, Path::new(JOURNAL), to);
    }
    match IS_JSON.load(Ordering::Relaxed) {
        true => write_lines(entries, to, Entry::to_json),
        false => write_lines(entries, to, Entry::to_text),
    }
}
