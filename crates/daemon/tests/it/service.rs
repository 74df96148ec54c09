//! Under a service manager: what the daemon tells it, and sockets that it has opened. The manager is
//! the test itself, and systemd's own `systemd-socket-activate` (package systemd); `scripts/unit-test` is
//! the unit under the real one.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::client::{Client, fresh_hash, seeder};
use crate::harness::process::{Daemon, Launch, PATIENCE, free_address};

/// Whoever is told: the other end of NOTIFY_SOCKET.
struct Ear {
    socket: UnixDatagram,
    place: TempDir,
}

impl Ear {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(place.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self { socket, place }
    }

    fn launch(&self, launch: Launch) -> Launch {
        launch.environment("NOTIFY_SOCKET", self.place.path().join("notify").to_str().unwrap())
    }

    /// One message, if there is one within a moment.
    fn heard(&self) -> Option<String> {
        let mut bytes = [0; 4096];
        match self.socket.recv(&mut bytes) {
            Ok(length) => Some(String::from_utf8(bytes[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message that has this line, or one that begins so.
    fn next(&self, line: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        while Instant::now() < deadline {
            match self.heard() {
                Some(message) if message.lines().any(|l| l.starts_with(line)) => return message,
                Some(message) => others.push(message),
                None => {}
            }
        }
        panic!("no {line} in {others:?}");
    }

    /// Which of these words the next message has that has any.
    fn next_of<'w>(&self, words: &[&'w str]) -> &'w str {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let message = self.heard().unwrap_or_default();
            if let Some(word) = words.iter().find(|word| message.lines().any(|line| line == **word))
            {
                return word;
            }
        }
        panic!("none of {words:?}");
    }
}

#[test]
fn it_is_ready_when_it_serves_and_tells_how_it_is() {
    let ear = Ear::new();
    let mut daemon = ear.launch(Launch::on_loopback()).start();
    let ready = ear.next("READY=1");
    let addresses = daemon.serving();
    let serves = format!("STATUS=serves udp://{} and udp://{}", addresses[0], addresses[1]);
    assert!(ready.contains(&serves), "{ready}");
    for address in &addresses {
        Client::new(*address).converse();
    }
    let live = ear.next(&format!("{serves}: "));
    assert!(live.contains("requests/s") && live.contains("swarms"), "{live}");
    daemon.signal("TERM");
    assert!(ear.next("STOPPING=1").contains("STATUS="));
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn who_cannot_serve_is_never_ready() {
    let ear = Ear::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let daemon = ear.launch(Launch::new(&["--listen", "[::1]:0", "--listen", &address])).start();
    assert!(daemon.refusal().contains(&address));
    assert_eq!(ear.heard(), None);
}

#[test]
fn a_reload_begins_and_ends_whatever_comes_of_it() {
    let ear = Ear::new();
    let mut daemon = ear.launch(Launch::on_loopback().config("[log]\nlevel = \"info\"\n")).start();
    daemon.serving();
    ear.next("READY=1");
    for text in ["[announce]\ninterval = 900\n", "nonsense\n"] {
        std::fs::write(daemon.home().join("onrush.toml"), text).unwrap();
        daemon.signal("HUP");
        let begun = ear.next("RELOADING=1");
        let stamp = begun.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(stamp.parse::<u64>().unwrap() > 0, "{begun}");
        ear.next("READY=1");
    }
    daemon.stop();
}

/// Loading and writing peers may take longer than the unit's time-outs allow: that is said before it begins, and it is
/// ready only with its peers.
#[test]
fn a_snapshot_asks_for_time_at_the_start_and_at_the_end() {
    let state = tempfile::tempdir().unwrap();
    let launch = || Launch::on_loopback().flag("--state-dir", state.path());
    let [extend, ready, stopping] = ["EXTEND_TIMEOUT_USEC=30000000", "READY=1", "STOPPING=1"];
    // One extension is enough for both passes over a small file.
    for start in [&[ready][..], &[extend, ready]] {
        let ear = Ear::new();
        let mut daemon = ear.launch(launch()).start();
        let hear = |words: &[&str]| {
            words
                .iter()
                .for_each(|word| assert_eq!(ear.next_of(&[extend, ready, stopping]), *word));
        };
        hear(start);
        let mut client = Client::new(daemon.serving()[0]);
        client.connect();
        client.announce(fresh_hash(), seeder(4_001));
        daemon.signal("TERM");
        hear(&[stopping, extend]);
        assert_eq!(daemon.end().code, Some(0));
    }
}

/// So may lists of many millions, at the start and, as long as `RELOADING=1` holds, at a reload: whichever of the two it is.
#[test]
fn a_list_asks_for_time_while_it_is_read() {
    let [extend, ready, reloading] = ["EXTEND_TIMEOUT_USEC=30000000", "READY=1", "RELOADING=1"];
    let list = tempfile::NamedTempFile::new().unwrap();
    let hashes: String = (0..50_000).map(|n| format!("{n:040x}\n")).collect();
    let blocks: String =
        (0..50_000u32).map(|n| format!("10.{}.{}.1\n", n >> 8, n & 0xFF)).collect();
    for (text, table) in [
        (&hashes, format!("mode = \"deny\"\nfile = {:?}\n", list.path())),
        (&blocks, format!("blocked_file = {:?}\n", list.path())),
    ] {
        std::fs::write(list.path(), text).unwrap();
        let ear = Ear::new();
        let config = format!("[access]\n{table}");
        let mut daemon = ear.launch(Launch::on_loopback().config(&config)).start();
        let hear = |words: &[&str]| {
            words.iter().for_each(|word| {
                assert_eq!(ear.next_of(&[extend, ready, reloading]), *word, "{table}");
            });
        };
        hear(&[extend, ready]);
        daemon.serving();
        daemon.signal("HUP");
        hear(&[reloading, extend, ready]);
        // A short one is read before anybody could lose patience.
        std::fs::write(list.path(), "").unwrap();
        daemon.signal("HUP");
        hear(&[reloading, ready]);
        daemon.stop();
    }
}

/// One that comes while the file is still read is part of the same reload: its end is told once.
#[test]
fn reloads_that_overlap_end_once() {
    let ear = Ear::new();
    let list = tempfile::NamedTempFile::new().unwrap();
    let hashes: String = (0..100_000).map(|n| format!("{n:040x}\n")).collect();
    std::fs::write(list.path(), hashes).unwrap();
    let config = format!("[access]\nmode = \"deny\"\nfile = {:?}\n", list.path());
    let mut daemon = ear.launch(Launch::on_loopback().config(&config)).start();
    daemon.serving();
    ear.next("READY=1");
    let mut said = Vec::new();
    let mut hear_until = |what| loop {
        let word = ear.next_of(&["RELOADING=1", "READY=1", "STOPPING=1"]);
        said.push(word);
        if word == what {
            return;
        }
    };
    for _ in 0..3 {
        daemon.signal("HUP");
        hear_until("RELOADING=1");
    }
    hear_until("READY=1");
    daemon.signal("TERM");
    hear_until("STOPPING=1");
    assert!(said.windows(2).all(|two| two != ["READY=1"; 2]), "{said:?}");
    assert!(said.ends_with(&["READY=1", "STOPPING=1"]), "{said:?}");
    daemon.end();
}

#[test]
fn the_watchdog_is_fed_in_time() {
    let ear = Ear::new();
    let launch = Launch::on_loopback().environment("WATCHDOG_USEC", "6000000");
    let mut daemon = ear.launch(launch).start();
    daemon.serving();
    ear.next("WATCHDOG=1");
    let fed = Instant::now();
    ear.next("WATCHDOG=1");
    assert!(fed.elapsed() < Duration::from_secs(6), "{:?}", fed.elapsed());
    daemon.stop();
}

#[test]
fn without_a_watchdog_nobody_is_fed() {
    let ear = Ear::new();
    // Of another process.
    let launch = Launch::on_loopback().environment("WATCHDOG_USEC", "1000000");
    let mut daemon = ear.launch(launch.environment("WATCHDOG_PID", "1")).start();
    daemon.serving();
    let mut statuses = 0;
    while statuses < 2 {
        if let Some(message) = ear.heard() {
            assert!(!message.contains("WATCHDOG"), "{message}");
            statuses += usize::from(message.starts_with("STATUS="));
        }
    }
    daemon.stop();
}

/// Under systemd-socket-activate, on sockets for these addresses.
fn activated(kind: &[&str], addresses: &[SocketAddr]) -> Daemon {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut program = vec!["systemd-socket-activate"];
    program.extend(kind);
    addresses.iter().for_each(|address| program.extend(["-l", address.as_str()]));
    let mut daemon = Launch::new(&[]).under(&program).start();
    for _ in addresses {
        daemon.line("Listening on ");
    }
    daemon
}

/// A free port of both loopback addresses.
fn both() -> [SocketAddr; 2] {
    let v4 = free_address();
    [v4, SocketAddr::new("::1".parse().unwrap(), v4.port())]
}

#[test]
fn it_serves_from_sockets_that_systemd_has_opened() {
    let addresses = both();
    let mut daemon = activated(&["--datagram"], &addresses);
    // The first datagram starts it, and waits in its socket meanwhile.
    let mut client = Client::new(addresses[0]);
    client.await_tracker();
    assert_eq!(daemon.serving(), addresses);
    for address in addresses {
        Client::new(address).converse();
    }
    let text = daemon.stop().text();
    assert!(text.contains("sockets by systemd"), "{text}");
    assert!(text.contains("1 colocated"), "{text}");
}

#[test]
fn what_is_asked_for_by_flag_is_not_followed_then_and_that_is_said() {
    let [address, other] = both();
    let program = ["systemd-socket-activate", "--datagram", "-l", &address.to_string()];
    let flags = ["--listen", &other.to_string(), "--workers", "3"];
    let mut daemon = Launch::new(&flags).under(&program).start();
    daemon.line("Listening on ");
    Client::new(address).await_tracker();
    assert_eq!(daemon.serving(), [address]);
    let text = daemon.stop().text();
    let warns = |parts: [&str; 2]| {
        let has = |line: &str| line.contains(" WARN ") && parts.iter().all(|it| line.contains(it));
        assert!(text.lines().any(has), "{parts:?}: {text}");
    };
    warns(["sockets", "1 of 3 workers"]);
    warns([&address.to_string(), "--listen"]);
}

#[test]
fn sockets_of_another_kind_are_refused() {
    let [address, _] = both();
    let daemon = activated(&[], &[address]);
    // A connection starts it.
    TcpStream::connect(address).unwrap();
    let text = daemon.refusal();
    assert!(text.contains("LISTEN_FDS") && text.contains("UDP"), "{text}");
    assert!(text.contains("ListenDatagram=ADDRESS:PORT"), "{text}");
}

#[test]
fn sockets_that_do_not_fit_together_are_refused() {
    // systemd-socket-activate binds an address twice, but makes no group of it.
    let [v4, v6] = both();
    for (addresses, said) in [
        ([v4, v4, v6].as_slice(), "each address needs as many"),
        ([v4, v4].as_slice(), "ReusePort=yes"),
    ] {
        let daemon = activated(&["--datagram"], addresses);
        Client::new(v4).send(b"wake up");
        let text = daemon.refusal();
        assert!(text.contains(said), "{text}");
    }
}
