//! A small tracker on ::1 and 127.0.0.1 that counts, with its counters over HTTP under the names of
//! onrush.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use onrush_net::bind::{Buffers, bind_client};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Socket as _};

use crate::faulty::{Fault, Tracker};

/// Action of an error reply.
const ERROR: u8 = 3;

#[derive(Default)]
struct Counts {
    received: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
    /// Datagrams that the kernel dropped, for want of room or for their checksum.
    dropped: AtomicU64,
    /// Received datagrams that are counted nowhere, for tests of the balance.
    forgotten: AtomicU64,
    stop: AtomicBool,
}

/// The tracker, until it is dropped.
pub(crate) struct Counting {
    pub(crate) targets: [SocketAddr; 2],
    pub(crate) admin: SocketAddr,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Counting {
    /// With `forgets`, one in a hundred received datagrams is not counted.
    pub(crate) fn start(fault: Fault, forgets: bool) -> Self {
        let buffers = Buffers { receive: 4 << 20, send: 0 };
        let bind = |ip: &str| bind_client(SocketAddr::new(ip.parse().unwrap(), 0), buffers);
        let sockets: Vec<_> = ["127.0.0.1", "::1"].map(|ip| bind(ip).unwrap().0).into();
        let targets = [sockets[0].address(), sockets[1].address()];
        let counts = Arc::new(Counts::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = listener.local_addr().unwrap();
        let (of_http, of_udp) = (Arc::clone(&counts), Arc::clone(&counts));
        // Ends with the process.
        std::thread::spawn(move || metrics(&listener, &of_http));
        let backend = Backend::new(sockets, Options::default()).unwrap();
        let thread =
            std::thread::spawn(move || serve(backend, Tracker::new(fault), &of_udp, forgets));
        Self { targets, admin, counts, thread: Some(thread) }
    }

    /// Datagrams received so far.
    pub(crate) fn received(&self) -> u64 {
        self.counts.received.load(Ordering::Relaxed)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(mut socket: Backend, mut tracker: Tracker, counts: &Counts, forgets: bool) {
    let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    while !counts.stop.load(Ordering::Relaxed) {
        socket.wait(Duration::from_millis(20)).unwrap();
        counts.dropped.store(socket.dropped().all(), Ordering::Relaxed);
        let mut replies = Vec::new();
        for (bytes, slot) in socket.receive(128).unwrap().iter() {
            let number = add(&counts.received);
            if forgets && number % 100 == 0 {
                add(&counts.forgotten);
            }
            let reply = tracker.answer(bytes, slot.source).pop();
            match &reply {
                None => add(&counts.refused),
                Some(reply) if reply[3] == ERROR => add(&counts.errors),
                Some(_) => add(&counts.answered),
            };
            replies.extend(reply.map(|reply| (reply, slot.reply_to)));
        }
        socket.send(replies.iter().map(|(bytes, to)| Reply { bytes, to }));
    }
}

fn metrics(listener: &TcpListener, counts: &Counts) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = [0; 4096];
        if stream.read(&mut head).unwrap_or(0) == 0 {
            continue;
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let received = read(&counts.received) - read(&counts.forgotten);
        let (dropped, checksums) = (read(&counts.dropped), checksum_errors());
        let (silent, errors) = (read(&counts.refused), read(&counts.errors));
        let mut body = String::new();
        for (series, value) in [
            ("onrush_received_datagrams_total", received),
            ("onrush_replies_total{kind=\"any\",worker=\"one\"}", read(&counts.answered)),
            ("onrush_replies_total{kind=\"error\",worker=\"one\"}", errors),
            ("onrush_refused_requests_total{reason=\"silent\"}", silent),
            ("onrush_refused_requests_total{reason=\"error\"}", errors),
            ("onrush_kernel_dropped_datagrams_total", dropped.saturating_sub(checksums)),
            ("onrush_checksum_errors_total", checksums),
            ("onrush_overload_step", 3),
            ("process_resident_memory_bytes", 50 << 20),
            ("process_cpu_seconds_total", 1),
        ] {
            writeln!(body, "{series} {value}").unwrap();
        }
        let len = body.len();
        let reply =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}");
        // A client that has gone needs no reply.
        let _ = stream.write_all(reply.as_bytes());
    }
}

/// Datagrams with a wrong checksum, counted by the namespace over both families.
fn checksum_errors() -> u64 {
    let v4 = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
    let mut lines = v4.lines().filter(|line| line.starts_with("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|word| word == "InCsumErrors").unwrap();
    let v6 = std::fs::read_to_string("/proc/self/net/snmp6").unwrap();
    let of_v6 = v6.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors ")).unwrap_or("0");
    let values = [values.split(' ').nth(place).unwrap(), of_v6.trim()];
    values.iter().map(|value| value.parse::<u64>().unwrap()).sum()
}
