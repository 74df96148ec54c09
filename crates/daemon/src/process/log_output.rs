//! Where entries of the log go. If systemd has connected standard error to the journal, they are
//! sent to the journal's own socket, by which each has a priority and may have several lines; the
//! stream at standard error makes an entry of each line. Otherwise they are written to standard
//! error, as text or as JSON.

use std::env;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_net::untaken;

use super::blocking_writer::BlockingWriter;
use super::log_entry::Entry;

/// How often the end of the process looks whether the journal has taken all entries.
const POLL: Duration = Duration::from_millis(1);

/// The socket of the journal's native protocol.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Whether standard error is connected to the journal (systemd.exec(5), `$JOURNAL_STREAM`).
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let file = stderr.and_then(|stderr| stderr.metadata());
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    file.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
});
/// Whether standard error is a terminal that takes colors.
static HAS_COLORS: LazyLock<bool> =
    LazyLock::new(|| io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none());
/// Whether entries are written as JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether entries go to the journal.
pub fn is_journal() -> bool {
    *IS_JOURNAL
}

/// Writes further entries as JSON, or as text. The journal gets neither.
pub fn set_json(json: bool) {
    IS_JSON.store(json, Ordering::Relaxed);
}

/// Lets the journal learn the unit of this process, which it reads from /proc when it receives
/// something: a process that is killed may be gone by then. After a line of the stream at standard
/// error it remembers the unit for as long as the stream is open. It makes no entry of an empty
/// line.
pub fn register() {
    if is_journal() {
        let _ = BlockingWriter(io::stderr()).write_all(b"\n");
    }
}

/// Waits, if the journal gets the entries, until it has processed all of them: it would not find
/// the unit of a process that has ended. Waits for `limit` at most.
pub fn await_journal(limit: Duration) {
    if is_journal() {
        // Where the journal cannot be asked, its entries may lack the unit, and are complete.
        let _ = await_receiver(Path::new(JOURNAL), limit);
    }
}

/// Sends an empty datagram to the socket at `path`, of which the journal makes no entry, and waits
/// until the receiver takes it. It takes datagrams in their order, and each after it has processed
/// the one before.
fn await_receiver(path: &Path, limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(limit))?;
    send_to(&socket, &[], path)?;
    while untaken(socket.as_fd())? > 0 && Instant::now() < deadline {
        #[expect(clippy::disallowed_methods, reason = "the receiver reads without an event")]
        thread::sleep(POLL);
    }
    Ok(())
}

/// Writes entries until one cannot be written. Returns the number of those written.
pub fn write(entries: &[Entry]) -> usize {
    let to = BlockingWriter(io::stderr());
    if is_journal() {
        return write_to_journal(entries, Path::new(JOURNAL), to);
    }
    match IS_JSON.load(Ordering::Relaxed) {
        true => write_lines(entries, to, Entry::to_json),
        false => write_lines(entries, to, |entry, into| entry.to_text(*HAS_COLORS, into)),
    }
}

/// Sends entries to the socket at `path`. Those that it does not take are written to standard
/// error, each line with the priority.
fn write_to_journal(entries: &[Entry], path: &Path, mut to: impl Write) -> usize {
    let socket = UnixDatagram::unbound();
    let send = |entry: &Entry| match &socket {
        Ok(socket) => send_to(socket, &entry.to_journal(), path).is_ok(),
        Err(_) => false,
    };
    let mut is_written = |entry: &Entry| {
        let entry = std::slice::from_ref(entry);
        send(&entry[0]) || write_lines(entry, &mut to, Entry::to_prioritized_lines) == 1
    };
    entries.iter().take_while(|entry| is_written(entry)).count()
}

/// Sends a datagram. Waits until the receiver has room for it.
fn send_to(socket: &UnixDatagram, bytes: &[u8], path: &Path) -> io::Result<()> {
    loop {
        match socket.send_to(bytes, path) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => return sent.map(drop),
        }
    }
}

/// Writes entries in this form, until an error, for example of a full disk or a pipe without a
/// reader. Returns the number of entries written completely.
pub(super) fn write_lines(
    entries: &[Entry],
    mut to: impl Write,
    form: impl Fn(&Entry, &mut Vec<u8>),
) -> usize {
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(entries.len()));
    for entry in entries {
        form(entry, &mut bytes);
        ends.push(bytes.len());
    }
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    ends.partition_point(|end| *end <= written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::fs;

    #[test]
    fn the_journal_gets_each_entry_whole_and_standard_error_the_rest() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let entry = |text: &str| Entry::last(&format!("onrush: {text}"));
        let mut rest = Vec::new();
        let long = "longer than a datagram\n".repeat(100_000);
        let entries = [entry("one\ntwo"), entry(&long), entry("three")];
        assert_eq!(write_to_journal(&entries, &path, &mut rest), 3);
        for expected in ["one\ntwo", "three"] {
            let mut bytes = [0; 4096];
            let length = journal.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], entry(expected).to_journal());
        }
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!(rest.lines().count(), 100_000);
        assert!(rest.lines().all(|line| line == "<3>longer than a datagram"));

        // Without the socket.
        fs::remove_file(&path).unwrap();
        let mut rest = Vec::new();
        assert_eq!(write_to_journal(&entries[..1], &path, &mut rest), 1);
        assert_eq!(rest, b"<3>one\n<3>two\n");
        // And without standard error.
        assert_eq!(write_to_journal(&entries[..1], &path, &mut [0_u8; 4][..]), 0);
    }

    #[test]
    fn the_end_waits_until_the_journal_has_processed_all_entries() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        assert_eq!(write_to_journal(&[Entry::last("onrush: why")], &path, io::empty()), 1);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| await_receiver(&path, Duration::from_secs(600)));
            assert!(journal.recv(&mut [0; 4096]).unwrap() > 0);
            // The entry has been taken, and may still be in process.
            let mut arrived = [PollFd::new(journal.as_fd(), PollFlags::POLLIN)];
            poll(&mut arrived, PollTimeout::NONE).unwrap();
            assert!(!waiting.is_finished());
            assert_eq!(journal.recv(&mut [0; 1]).unwrap(), 0);
            waiting.join().unwrap().unwrap();
        });
        // A receiver that takes nothing does not keep the process.
        await_receiver(&path, Duration::from_millis(10)).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(await_receiver(&path, Duration::from_secs(600)).is_err());
    }
}
