//! Entries of the log as datagrams to the socket of the journal's native protocol.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onrush_net::untaken;

use super::log_entry::{Entry, write_lines};

/// How often the end of the process looks whether the journal has taken all entries.
const POLL: Duration = Duration::from_millis(1);

/// Sends an empty datagram to the socket at `path`, of which the journal makes no entry, and waits
/// until the receiver takes it. It takes datagrams in their order, and each after it has processed
/// the one before.
pub(super) fn await_receiver(path: &Path, limit: Duration) -> io::Result<()> {
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

/// Sends entries to the socket at `path`. Those that it does not take are written to standard
/// error, each line with the priority.
pub(super) fn write_to_journal(entries: &[Entry], path: &Path, mut to: impl Write) -> usize {
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
