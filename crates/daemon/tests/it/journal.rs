//! The log if standard error is connected to systemd's journal: each entry has a priority and all
//! of its lines, and its time only once. The journal is the test itself; `scripts/unit-test` tests
//! the unit with systemd's.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, pipe, read_to_string};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;

use tempfile::TempDir;

use crate::harness::messages::{NO_STATE, RELOAD_REJECTED, SERVES, STOPPED};
use crate::harness::{Client, Daemon, Launch, TIMEOUT, free_address, require_root};

/// Priorities, as in syslog(3).
const ERROR: u8 = 3;
const WARNING: u8 = 4;
const INFORMATION: u8 = 6;

/// Runs a program with a /run of its own, in which the journal's directory is the given one.
const IN_OWN_RUN: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && \
                          mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";

/// The value of `$JOURNAL_STREAM` that systemd sets for this stream.
fn stream_of(to: &PipeWriter) -> String {
    let file = File::from(to.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap();
    format!("{}:{}", file.dev(), file.ino())
}

/// The journal's socket.
struct Journal {
    socket: UnixDatagram,
    place: TempDir,
    /// All entries so far: priority and message.
    entries: Vec<(u8, String)>,
}

impl Journal {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(place.path().join("socket")).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, place, entries: Vec::new() }
    }

    /// Starts a daemon as systemd does. Also returns the stream at its standard error.
    fn start(&self, launch: Launch) -> (Daemon, PipeReader) {
        require_root("mounts a directory for the daemon");
        let (stream, to) = pipe().unwrap();
        let place = self.place.path().to_str().unwrap();
        let launch = launch.under(&["unshare", "--mount", "sh", "-c", IN_OWN_RUN, place]);
        let launch = launch.environment("JOURNAL_STREAM", &stream_of(&to));
        (launch.start_with_log_to(to.into()), stream)
    }

    /// Receives an entry; `None` at the empty datagram that the process waits for before it ends.
    fn receive(&mut self) -> Option<(u8, String)> {
        let mut bytes = [0; 1 << 16];
        let received = self.socket.recv(&mut bytes);
        let length = received.unwrap_or_else(|e| panic!("{e}: {:#?}", self.entries));
        if length == 0 {
            return None;
        }
        let priority = bytes["PRIORITY=".len()] - b'0';
        let head = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER=onrush\nMESSAGE\n");
        let message = bytes[..length].strip_prefix(head.as_bytes()).expect(&head);
        let (length, message) = message.split_first_chunk().unwrap();
        let message = str::from_utf8(message).unwrap().strip_suffix('\n').unwrap();
        assert_eq!(u64::from_le_bytes(*length), message.len() as u64);
        self.entries.push((priority, message.to_owned()));
        self.entries.last().cloned()
    }

    /// The next entry with this text.
    fn next(&mut self, part: &str) -> (u8, String) {
        while let Some(entry) = self.receive() {
            if entry.1.contains(part) {
                return entry;
            }
        }
        panic!("no entry with `{part}` in {:#?}", self.entries);
    }

    /// Receives all entries to the end of a process, and expects its exit status.
    fn end(&mut self, daemon: Daemon, code: i32) {
        while self.receive().is_some() {}
        assert_eq!(daemon.end().code, Some(code), "{:#?}", self.entries);
    }
}

#[test]
fn each_entry_has_a_priority_and_all_of_its_lines() {
    let mut journal = Journal::new();
    let address = free_address();
    let config = format!("listen = [\"{address}\"]\n");
    let launch = Launch::new(&["--state-dir", "/proc/nope"]).config(&config);
    let (daemon, stream) = journal.start(launch);
    assert_eq!(journal.next(NO_STATE).0, WARNING);
    let (priority, text) = journal.next(SERVES);
    assert!(priority == INFORMATION && text.starts_with("onrush "), "{text}");
    daemon.configure("[announce]\nintervall = 900\nmax_peers_v4 = 0\n");
    daemon.signal("HUP");
    let (priority, text) = journal.next(RELOAD_REJECTED);
    assert_eq!(priority, ERROR);
    for part in ["onrush.toml:2:1: ", "`announce.max_peers_v4`", "2 problems"] {
        assert!(text.contains(part), "{text}");
    }
    Client::new(address).connect_and_check();
    daemon.signal("TERM");
    assert_eq!(journal.next(STOPPED).0, INFORMATION);
    journal.end(daemon, 0);
    let has_module = |(_, text): &&(u8, String)| text.contains("[onrush");
    assert_eq!(journal.entries.iter().find(has_module), None);
    // An empty line, by which the journal learns the unit of the process and makes no entry.
    assert_eq!(read_to_string(stream).unwrap(), "\n");
}

/// Before the log is started, too.
#[test]
fn an_error_at_the_start_is_one_entry() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (flags, code) in [
        (["--config", "/nowhere"], 2),
        (["--nothing", "--at-all"], 2),
        (["--listen", &taken], 1),
        (["doctor", "--config=/nowhere"], 2),
    ] {
        let mut journal = Journal::new();
        let (daemon, stream) = journal.start(Launch::new(&flags));
        journal.end(daemon, code);
        let errors: Vec<_> = journal.entries.iter().filter(|(it, _)| *it == ERROR).collect();
        assert_eq!(errors.len(), 1, "{flags:?}: {:?}", journal.entries);
        let (_, text) = &errors[0];
        let name = flags[1].trim_start_matches("--config=").replace("--at-all", "--nothing");
        // Errors of a command line or a configuration have several lines.
        assert!(text.contains(&name) && (code == 1 || text.contains('\n')), "{flags:?}: {text}");
        assert_eq!(read_to_string(stream).unwrap(), "\n", "{flags:?}");
    }
}

/// The variable is inherited by programs whose standard error is elsewhere.
#[test]
fn another_stream_gets_text_with_the_time() {
    let mut daemon = Launch::on_loopback().environment("JOURNAL_STREAM", "1:1").start();
    daemon.line_with(SERVES, &["Z INFO "]);
}
