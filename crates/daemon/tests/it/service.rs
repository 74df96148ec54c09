//! Under a service manager: notifications and passed sockets. The manager is the test itself, or
//! `systemd-socket-activate` (package systemd); `scripts/unit-test` tests the unit under systemd.

use std::fs;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt::PassCred,
};
use onrush_testing::tls::{Issued, client};
use tempfile::TempDir;

use crate::harness::{
    Client, Daemon, Launch, assert_parts, eventually, free_address, random_hash, seeder,
};
use crate::http::{Connection, announce, get};
use crate::https::{ask, certificate_keys, connect};

/// Extends the time-out of the unit.
const EXTEND: &str = "EXTEND_TIMEOUT_USEC=30000000";

/// The receiving end of NOTIFY_SOCKET.
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    place: TempDir,
}

impl NotifySocket {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(place.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        setsockopt(&socket, PassCred, &true).unwrap();
        Self { socket, place }
    }

    pub(crate) fn launch(&self, launch: Launch) -> Launch {
        launch.environment("NOTIFY_SOCKET", self.place.path().join("notify").to_str().unwrap())
    }

    /// Fills the queue, so that further notifications wait until some are received.
    pub(crate) fn fill(&self) {
        let sender = UnixDatagram::unbound().unwrap();
        sender.connect(self.place.path().join("notify")).unwrap();
        sender.set_nonblocking(true).unwrap();
        eventually("the queue is full", || sender.send(b"filler").is_err());
    }

    /// Discards the messages that have arrived.
    pub(crate) fn drain(&self) {
        while self.receive().is_some() {}
    }

    /// The next message, if one arrives within the read time-out.
    fn receive(&self) -> Option<String> {
        self.receive_from().map(|(_, message)| message)
    }

    /// The process that has sent the next message, and the message.
    fn receive_from(&self) -> Option<(u32, String)> {
        let (mut bytes, mut control) = ([0; 4096], nix::cmsg_space!(UnixCredentials));
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let (descriptor, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        let (sender, length) =
            match recvmsg::<()>(descriptor, &mut parts, Some(&mut control), flags) {
                Ok(message) => match message.cmsgs().unwrap().next() {
                    Some(ControlMessageOwned::ScmCredentials(of)) => (of.pid(), message.bytes),
                    other => panic!("{other:?}"),
                },
                Err(Errno::EAGAIN) => return None,
                Err(error) => panic!("{error}"),
            };
        Some((sender as u32, String::from_utf8(bytes[..length].to_vec()).unwrap()))
    }

    /// The messages up to the first one of which a line starts with one of these words, and the
    /// first of the words that is there.
    fn until<'w>(&self, words: &[&'w str]) -> (Vec<String>, &'w str) {
        let (mut messages, mut found) = (Vec::<String>::new(), None);
        eventually("a notification arrives", || {
            messages.extend(self.receive());
            let lines = || messages.last().into_iter().flat_map(|message| message.lines());
            found = words.iter().find(|word| lines().any(|line| line.starts_with(**word)));
            found.is_some()
        });
        (messages, found.unwrap())
    }

    /// The next message with a line that starts with this word.
    pub(crate) fn next(&self, word: &str) -> String {
        self.until(&[word]).0.pop().unwrap()
    }

    /// Asserts the next lines of these four kinds. What takes longer is extended again.
    #[track_caller]
    fn assert_next(&self, lines: &[&str], case: &str) {
        let mut before = "";
        for line in lines {
            let next = || self.until(&[EXTEND, "READY=1", "RELOADING=1", "STOPPING=1"]).1;
            let mut found = next();
            while found == before && found == EXTEND {
                found = next();
            }
            assert_eq!(found, *line, "{case}");
            before = found;
        }
    }
}

/// Watchdog notifications are tested in `stalled_log`; their interval, and that stalled workers end
/// them, in `supervise/service_notifications.rs`.
#[test]
fn ready_status_and_reload_are_notified_and_no_watchdog_of_another_process() {
    let notify = NotifySocket::new();
    let launch = Launch::on_loopback().environment("WATCHDOG_USEC", "1000000");
    let mut daemon = notify.launch(launch.environment("WATCHDOG_PID", "1")).start();
    let ready = notify.next("READY=1");
    let addresses = daemon.serving();
    let serves = format!("STATUS=serves udp://{} and udp://{}", addresses[0], addresses[1]);
    assert_parts(&ready, &[&serves]);
    daemon.check();
    // Some seconds later.
    let live = notify.until(&[&format!("{serves}: ")]).0.concat();
    assert!(!live.contains("WATCHDOG"), "{live}");
    assert_parts(&live, &["requests/s", "swarms"]);
    daemon.signal("HUP");
    let begun = notify.next("RELOADING=1");
    let stamp = begun.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
    assert!(stamp.parse::<u64>().unwrap() > 0, "{begun}");
    notify.next("READY=1");
    daemon.signal("TERM");
    assert!(notify.next("STOPPING=1").contains("STATUS="));
    daemon.end().exits(0, &[]);
}

#[test]
fn a_failed_start_is_never_ready() {
    let notify = NotifySocket::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let daemon = notify.launch(Launch::new(&["--listen", "[::1]:0", "--listen", &address])).start();
    daemon.refusal(&[&address]);
    assert_eq!(notify.receive(), None);
}

/// Loading and writing peers may take longer than the time-outs of the unit, so the daemon extends
/// them first, and is ready only after its peers are loaded.
#[test]
fn loading_and_writing_a_snapshot_extend_the_timeout() {
    let state = tempfile::tempdir().unwrap();
    let launch = || Launch::on_loopback().flag("--state-dir", state.path());
    let [extend, ready, stopping] = [EXTEND, "READY=1", "STOPPING=1"];
    // One extension is enough for both passes over a small file.
    for start in [&[ready][..], &[extend, ready]] {
        let notify = NotifySocket::new();
        let daemon = notify.launch(launch()).serve();
        notify.assert_next(start, "start");
        daemon.client().announce(&seeder(random_hash(), 4_001));
        daemon.signal("TERM");
        notify.assert_next(&[stopping, extend], "stop");
        assert_eq!(daemon.end().code, Some(0));
    }
}

/// systemd takes notifications of the main process only, and logs a warning for each other one.
#[test]
fn in_an_upgrade_only_the_main_process_notifies() {
    let (notify, state) = (NotifySocket::new(), tempfile::tempdir().unwrap());
    let launch = Launch::on_loopback().flag("--state-dir", state.path());
    let mut daemon = notify.launch(launch).serve();
    // Sending and loading peers extends a time-out.
    daemon.client().announce(&seeder(random_hash(), 4_001));
    let first = daemon.pid();
    daemon.upgrade();
    let (mut messages, second) = (Vec::new(), daemon.pid());
    eventually("the successor sends its status", || {
        messages.extend(notify.receive_from());
        let is_last = |(sender, text): &(u32, String)| *sender == second && text.contains("STATUS");
        messages.last().is_some_and(is_last)
    });
    let named = format!("MAINPID={second}\n");
    let change = messages.iter().position(|(_, text)| text.starts_with(&named)).unwrap();
    let sender = |at| if at <= change { first } else { second };
    assert!(messages.iter().enumerate().all(|(at, (by, _))| *by == sender(at)), "{messages:?}");
    assert!(messages[change..].iter().any(|(_, text)| text.contains("READY=1")), "{messages:?}");
}

/// Loading a list of millions extends the time-out too, at the start and during a reload.
#[test]
fn loading_a_list_extends_the_timeout() {
    let [extend, ready, reloading] = [EXTEND, "READY=1", "RELOADING=1"];
    let list = tempfile::NamedTempFile::new().unwrap();
    let hashes: String = (0..50_000).map(|n| format!("{n:040x}\n")).collect();
    let blocks: String =
        (0..50_000u32).map(|n| format!("10.{}.{}.1\n", n >> 8, n & 0xFF)).collect();
    for (text, table) in [
        (&hashes, format!("mode = \"deny\"\nfiles = [{:?}]\n", list.path())),
        (&blocks, format!("blocked_file = {:?}\n", list.path())),
    ] {
        std::fs::write(list.path(), text).unwrap();
        let notify = NotifySocket::new();
        let config = format!("[access]\n{table}");
        let daemon = notify.launch(Launch::on_loopback().config(&config)).serve();
        notify.assert_next(&[extend, ready], &config);
        daemon.signal("HUP");
        notify.assert_next(&[reloading, extend, ready], &config);
        // A short list is loaded before the time-out has to be extended.
        std::fs::write(list.path(), "").unwrap();
        daemon.signal("HUP");
        notify.assert_next(&[reloading, ready], &config);
    }
}

/// Starts a daemon with these flags under systemd-socket-activate, on sockets for these addresses.
fn activated(kind: &[&str], addresses: &[SocketAddr], flags: &[&str]) -> Daemon {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut program = vec!["systemd-socket-activate"];
    program.extend(kind);
    addresses.iter().for_each(|address| program.extend(["-l", address.as_str()]));
    let mut daemon = Launch::new(flags).under(&program).start();
    for _ in addresses {
        daemon.line("Listening on ");
    }
    daemon
}

/// Both loopback addresses with a free port.
fn both() -> [SocketAddr; 2] {
    let v4 = free_address();
    [v4, SocketAddr::new("::1".parse().unwrap(), v4.port())]
}

#[test]
fn sockets_of_systemd_are_used() {
    let addresses = both();
    let mut daemon = activated(&["--datagram"], &addresses, &[]);
    // The first datagram starts the daemon and stays queued in the socket.
    Client::new(addresses[0]).connected_later();
    assert_eq!(daemon.serving(), addresses);
    daemon.check();
    daemon.stop().exits(0, &["UDP sockets by systemd", "1 colocated"]);
}

#[test]
fn flags_overridden_by_passed_sockets_cause_a_warning() {
    let [address, other] = both();
    let flags = ["--listen", &other.to_string(), "--workers", "3"];
    let mut daemon = activated(&["--datagram"], &[address], &flags);
    Client::new(address).connected_later();
    assert_eq!(daemon.serving(), [address]);
    let ended = daemon.stop();
    ended.has_line("1 of 3 workers", &[" WARN ", "sockets"]);
    ended.has_line("`listen` of ", &[" WARN ", "--listen", &address.to_string()]);
}

/// Listeners for HTTP and HTTPS, by their names. The tracker opens its UDP sockets itself. An
/// upgrade passes the listeners on.
#[test]
fn listeners_of_systemd_are_used_and_upgraded() {
    let ([http, https], state) = (both(), tempfile::tempdir().unwrap());
    let elsewhere = free_address().to_string();
    let state_dir = state.path().to_str().unwrap();
    let issued = Issued::of(&["t.example"]);
    let (config, client) = (state.path().join("tls.toml"), client(&[&issued]));
    let keys = certificate_keys(&issued, state.path());
    fs::write(&config, format!("[http]\n{keys}")).unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--http", &elsewhere, "--state-dir", state_dir];
    let flags = [&flags[..], &["--config", config.to_str().unwrap()]].concat();
    let mut daemon = activated(&["--fdname=web:tls"], &[http, https], &flags);
    // The first connection starts the daemon and waits in the listener.
    let mut first = Connection::to(http);
    first.send(get("/health"));
    let [udp] = daemon.serving()[..] else { panic!("one address") };
    assert_eq!(first.next_reply().unwrap().0, 200);
    let serves = format!("http://{http} and https://{https} (HTTP and HTTPS sockets by systemd)");
    for _ in 0..2 {
        assert_eq!(daemon.upgrade(), [udp]);
        Connection::to(http).get("/health");
        ask(&mut connect(https, &client), &announce(random_hash(), 7_001, ""));
        daemon.check();
    }
    let ended = daemon.stop();
    assert_eq!(ended.log.iter().filter(|line| line.contains(&serves)).count(), 3);
    ended.has_line("`http.listen` of ", &[" WARN ", "--http", &http.to_string()]);
}

#[test]
fn sockets_of_another_kind_and_inconsistent_ones_are_refused() {
    let [v4, v6] = both();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let program = ["systemd-socket-activate", "-l", path.to_str().unwrap()];
    let mut daemon = Launch::new(&[]).under(&program).start();
    daemon.line("Listening on ");
    // A connection starts the daemon.
    UnixStream::connect(path).unwrap();
    let remedies = ["ListenDatagram=ADDRESS:PORT", "ListenStream=ADDRESS:PORT"];
    daemon.refusal(&["LISTEN_FDS", remedies[0], remedies[1]]);
    // systemd-socket-activate binds an address twice without SO_REUSEPORT.
    for (addresses, part) in [
        ([v6, v4, v4].as_slice(), "each address needs as many"),
        ([v4, v4].as_slice(), "ReusePort=yes"),
    ] {
        let daemon = activated(&["--datagram"], addresses, &[]);
        Client::new(v4).send(b"wake up");
        daemon.refusal(&[part]);
    }
}
