//! The contract of a backend of streams, point by point (see the crate's documentation), on every
//! backend: mio, the in-memory network, and the in-memory network with faults.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_net::Waker;
use onrush_net::bind::Address;
use onrush_net::stream::memory::{self, Conditions, Network};
use onrush_net::stream::{Ready, Stream, Streams, listen, mio};
use socket2::SockRef;

/// Longer than any operation here; a wait of this length has failed.
const LONG: Duration = Duration::from_secs(120);
/// Shorter than `LONG`, and more than a loaded machine needs for any operation here.
const SOON: Duration = Duration::from_secs(60);

/// A backend with clients.
trait Rig: Sized {
    type Streams: Streams;
    type Client: Read + Write;

    /// A server with this many listeners.
    fn server(listeners: usize) -> (Self, Self::Streams);

    /// A nonblocking client of a listener, and its address.
    fn connect(&self, listener: usize) -> (Self::Client, SocketAddr);

    fn finish(client: &mut Self::Client);

    fn reset(client: Self::Client);
}

/// The mio backend over the kernel's loopback.
struct Kernel(Vec<SocketAddr>);

impl Rig for Kernel {
    type Streams = mio::Backend;
    type Client = TcpStream;

    fn server(listeners: usize) -> (Self, mio::Backend) {
        let at = ["127.0.0.1:0", "[::1]:0"];
        let at = (0..listeners).map(|number| at[number % 2].parse().unwrap());
        let at: Vec<_> = at.map(|address| Address { address, optional: false }).collect();
        let bound = listen::bind(&at, 1, true).unwrap().groups;
        let addresses = bound.iter().map(|group| group.address).collect();
        let listeners = bound.into_iter().flat_map(|group| group.listeners).collect();
        (Self(addresses), mio::Backend::new(listeners).unwrap())
    }

    fn connect(&self, listener: usize) -> (TcpStream, SocketAddr) {
        let client = TcpStream::connect(self.0[listener]).unwrap();
        client.set_nonblocking(true).unwrap();
        let address = client.local_addr().unwrap();
        (client, address)
    }

    fn finish(client: &mut TcpStream) {
        client.shutdown(std::net::Shutdown::Write).unwrap();
    }

    fn reset(client: TcpStream) {
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// The in-memory network, with or without faults.
struct Memory<const FAULTS: bool> {
    network: Network,
    listeners: Vec<memory::Listener>,
    next: AtomicU32,
}

const FAULTS: Conditions =
    Conditions { short_reads: 0.5, short_writes: 0.5, stalls: 0.5, repeats: 0.5, capacity: 100 };

impl<const FAULTY: bool> Rig for Memory<FAULTY> {
    type Streams = memory::Backend;
    type Client = memory::Client;

    fn server(listeners: usize) -> (Self, memory::Backend) {
        let network = Network::new(1, if FAULTY { FAULTS } else { Conditions::default() });
        let backend = network.listen(listeners);
        let listeners = (0..listeners).map(|number| backend.listener(number)).collect();
        (Self { network, listeners, next: 0.into() }, backend)
    }

    fn connect(&self, listener: usize) -> (memory::Client, SocketAddr) {
        let last = self.next.fetch_add(1, Ordering::Relaxed) as u16;
        let from = SocketAddr::from(([10, 0, 0, 1], 1024 + last));
        (self.network.connect(self.listeners[listener], from), from)
    }

    fn finish(client: &mut memory::Client) {
        client.finish().unwrap();
    }

    fn reset(client: memory::Client) {
        client.reset();
    }
}

/// All events of one wait.
fn events(streams: &mut impl Streams, timeout: Duration) -> Vec<Ready> {
    streams.wait(timeout).unwrap();
    std::iter::from_fn(|| streams.ready()).collect()
}

/// Calls `step` until it returns a value.
fn poll<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

/// Waits until an event for which `found` holds.
fn until(streams: &mut impl Streams, what: &str, found: impl Fn(Ready) -> bool) {
    poll(what, || events(streams, Duration::from_millis(100)).into_iter().find(|it| found(*it)));
}

/// Waits until the stream with `key` is readable.
fn until_readable(streams: &mut impl Streams, key: u64) {
    until(
        streams,
        "readable",
        |ready| matches!(ready, Ready::Stream { key: of, readable: true, .. } if of == key),
    );
}

/// Accepts the only connection of a listener and watches it.
fn accept<S: Streams>(streams: &mut S, listener: usize, key: u64) -> (S::Stream, SocketAddr) {
    until(streams, "a connection", |ready| ready == Ready::Listener(listener));
    let (mut stream, from) = streams.accept(listener).unwrap().unwrap();
    assert!(streams.accept(listener).unwrap().is_none());
    streams.watch(&mut stream, key).unwrap();
    (stream, from)
}

/// A server with a client whose connection has the key 7.
fn pair<R: Rig>() -> (R, R::Streams, R::Client, <R::Streams as Streams>::Stream) {
    let (rig, mut streams) = R::server(1);
    let (client, from) = rig.connect(0);
    let (stream, source) = accept(&mut streams, 0, 7);
    assert_eq!(source, from);
    (rig, streams, client, stream)
}

/// Reads until nothing is left; returns the error, or `None` at the end of the input.
fn read(source: &mut impl Read, got: &mut Vec<u8>) -> Option<ErrorKind> {
    let mut buffer = [0; 4096];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return None,
            Ok(len) => got.extend_from_slice(&buffer[..len]),
            Err(error) => return Some(error.kind()),
        }
    }
}

/// The bytes that a client reads until an error or the end.
fn read_all(client: &mut impl Read) -> (Vec<u8>, Option<ErrorKind>) {
    let mut got = Vec::new();
    let end = poll("the end", || match read(client, &mut got) {
        Some(ErrorKind::WouldBlock) => None,
        end => Some(end),
    });
    (got, end)
}

/// Points 2, 5 and 6: bytes arrive in both directions on connections of all listeners, and the end
/// arrives after them; a stream whose input has ended can be written, and one whose output has
/// ended can be read.
fn bytes_arrive_and_then_the_end<R: Rig>() {
    let (rig, mut streams) = R::server(2);
    for (listener, key) in [(0, 7), (1, (1 << 63) - 1)] {
        let (mut client, from) = rig.connect(listener);
        client.write_all(b"question").unwrap();
        let (mut stream, source) = accept(&mut streams, listener, key);
        assert_eq!(source, from);
        let mut got = Vec::new();
        until_readable(&mut streams, key);
        assert_eq!(read(&mut stream, &mut got), Some(ErrorKind::WouldBlock));
        assert_eq!(got, b"question");
        if listener == 0 {
            R::finish(&mut client);
            until_readable(&mut streams, key);
            assert_eq!(read(&mut stream, &mut got), None);
        }
        // Short writes are possible, a full buffer is not.
        stream.write_all(b"ans").unwrap();
        let mut last = &b"wer"[..];
        while !last.is_empty() {
            last = &last[stream.write_last(last).unwrap()..];
        }
        stream.finish().unwrap();
        assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!(read_all(&mut client), (b"answer".to_vec(), None));
        if listener == 1 {
            client.write_all(b" and more").unwrap();
            until_readable(&mut streams, key);
            read(&mut stream, &mut got);
            assert_eq!(got, b"question and more");
        }
    }
}

/// Points 1 and 2: what is ready is reported once, each event is taken once, and a wait forgets
/// those that were not; after `WouldBlock` the stream is reported again.
fn an_event_comes_once<R: Rig>() {
    for takes in [true, false] {
        let (_rig, mut streams, mut client, mut stream) = pair::<R>();
        let ready = poll("an event", || {
            streams.wait(SOON).unwrap();
            streams.ready()
        });
        let event = Ready::Stream { key: 7, readable: false, writable: true, ended: false };
        assert_eq!(ready, event);
        assert_eq!(streams.ready(), None);
        client.write_all(b"1").unwrap();
        if takes {
            until_readable(&mut streams, 7);
        } else {
            // A stall leaves the event to one of the next waits.
            (0..100).for_each(|_| streams.wait(Duration::from_millis(1)).unwrap());
        }
        for _ in 0..100 {
            assert_eq!(events(&mut streams, Duration::ZERO), []);
        }
        for number in *b"123" {
            let mut got = Vec::new();
            assert_eq!(read(&mut stream, &mut got), Some(ErrorKind::WouldBlock));
            assert_eq!(got, [number]);
            client.write_all(&[number + 1]).unwrap();
            until_readable(&mut streams, 7);
        }
    }
}

/// Points 2 and 5: a stream that takes no more is reported when its reader has made room; no byte
/// is lost or written twice.
fn a_full_stream_becomes_writable<R: Rig>() {
    let (_rig, mut streams, mut client, mut stream) = pair::<R>();
    let pattern: Vec<u8> = (0..251 + 8192).map(|n| (n % 251) as u8).collect();
    let (mut sent, mut got) = (0, Vec::new());
    for _ in 0..3 {
        let error = loop {
            match stream.write(&pattern[sent % 251..][..8192]) {
                Ok(len) => sent += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        poll("writable", || {
            read(&mut client, &mut got);
            let ready = events(&mut streams, Duration::from_millis(1));
            ready.iter().find(|it| matches!(it, Ready::Stream { writable: true, .. })).copied()
        });
    }
    stream.finish().unwrap();
    got.extend(read_all(&mut client).0);
    assert!(got.chunks(251).all(|chunk| chunk == &pattern[..chunk.len()]));
    assert_eq!(got.len(), sent);
}

/// Points 2 and 4: `accept` returns what waits and then `None`; the listener is reported again.
fn a_listener_is_reported_again<R: Rig>() {
    let (rig, mut streams) = R::server(3);
    for round in 0..3 {
        let clients: Vec<_> = (0..5).map(|_| rig.connect(1)).collect();
        until(&mut streams, "the listener", |ready| ready == Ready::Listener(1));
        poll("all connections", || (streams.accept_queue() == clients.len()).then_some(()));
        for (_, from) in &clients {
            let accepted = poll("a connection", || streams.accept(1).unwrap());
            assert_eq!(accepted.1, *from, "round {round}");
        }
        for listener in 0..3 {
            assert!(streams.accept(listener).unwrap().is_none());
        }
        assert_eq!(streams.accept_queue(), 0);
    }
}

/// Point 3: a connection that the client resets is readable and writable, and reads fail.
fn a_reset_is_reported<R: Rig>() {
    let (_rig, mut streams, client, mut stream) = pair::<R>();
    assert_eq!(read(&mut stream, &mut Vec::new()), Some(ErrorKind::WouldBlock));
    R::reset(client);
    until(&mut streams, "the reset", |ready| {
        ready == Ready::Stream { key: 7, readable: true, writable: true, ended: true }
    });
    assert_eq!(read(&mut stream, &mut Vec::new()), Some(ErrorKind::ConnectionReset));
    assert!(stream.finish().is_err());
}

/// Point 7: dropping a stream ends it for the client, unread or later input resets the connection.
fn a_dropped_stream_is_closed<R: Rig>() {
    let (_rig, _streams, mut client, mut stream) = pair::<R>();
    stream.write_all(b"bye").unwrap();
    drop(stream);
    assert_eq!(read_all(&mut client), (b"bye".to_vec(), None));
    let kind = poll("a reset", || client.write(b"late").err()).kind();
    assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&kind), "{kind}");

    let (_rig, mut streams, mut client, stream) = pair::<R>();
    client.write_all(b"unread").unwrap();
    until_readable(&mut streams, 7);
    drop(stream);
    assert_eq!(read_all(&mut client), (Vec::new(), Some(ErrorKind::ConnectionReset)));
}

/// Point 8: no wait after the drop reports the stream, and another stream can have its key.
fn a_dropped_stream_is_not_reported<R: Rig>() {
    let (rig, mut streams, mut client, stream) = pair::<R>();
    client.write_all(b"x").unwrap();
    drop(stream);
    for _ in 0..100 {
        assert_eq!(events(&mut streams, Duration::ZERO), []);
    }
    let (mut other, _) = rig.connect(0);
    let (_stream, _) = accept(&mut streams, 0, 7);
    other.write_all(b"y").unwrap();
    until_readable(&mut streams, 7);
}

/// Point 1: a wake-up before `wait` makes the next one return at once; several count as one.
fn a_wake_up_before_wait_is_not_lost<R: Rig>() {
    let (_rig, mut streams) = R::server(1);
    let waker = streams.waker();
    for wake_ups in [1, 5, 1] {
        (0..wake_ups).for_each(|_| waker.wake());
        let start = Instant::now();
        assert_eq!(events(&mut streams, LONG), []);
        assert!(start.elapsed() < SOON);
    }
}

macro_rules! conformance {
    ($($backend:ident: $rig:ty),* ; $tests:tt) => {
        $(conformance!(@ $backend, $rig, $tests);)*
    };
    (@ $backend:ident, $rig:ty, [$($test:ident),* $(,)?]) => {
        mod $backend {
            $(#[test]
            fn $test() {
                super::$test::<$rig>();
            })*
        }
    };
}

conformance!(
    kernel: super::Kernel,
    in_memory: super::Memory<false>,
    in_memory_with_faults: super::Memory<true>;
    [
        bytes_arrive_and_then_the_end,
        an_event_comes_once,
        a_full_stream_becomes_writable,
        a_listener_is_reported_again,
        a_reset_is_reported,
        a_dropped_stream_is_closed,
        a_dropped_stream_is_not_reported,
        a_wake_up_before_wait_is_not_lost,
    ]
);

/// Point 1: wake-ups from another thread, in every order that the scheduler produces.
#[test]
fn wake_ups_from_another_thread_are_not_lost() {
    const ROUNDS: u32 = 2000;
    let (mut ours, mut theirs) = (Kernel::server(1).1, Kernel::server(1).1);
    let turn = AtomicU32::new(0);
    let play = |streams: &mut mio::Backend, other: &dyn Fn(), odd: u32| {
        for round in (odd..ROUNDS).step_by(2) {
            while turn.load(Ordering::Acquire) != round {
                let start = Instant::now();
                streams.wait(LONG).unwrap();
                assert!(start.elapsed() < SOON, "a wake-up was lost in round {round}");
            }
            turn.store(round + 1, Ordering::Release);
            other();
        }
    };
    let (wake_ours, wake_theirs) = (ours.waker(), theirs.waker());
    thread::scope(|scope| {
        scope.spawn(|| play(&mut theirs, &|| wake_ours.wake(), 1));
        play(&mut ours, &|| wake_theirs.wake(), 0);
    });
    assert_eq!(turn.load(Ordering::Acquire), ROUNDS);
}

/// Points 1 and 9: a wait without events lasts; nothing is allocated for a connection.
#[test]
fn the_kernels_backend_sleeps_and_allocates_nothing() {
    let (rig, mut streams) = Kernel::server(2);
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(events(&mut streams, Duration::from_millis(20)), []);
    }
    // Spurious returns are allowed, busy waiting is not.
    assert!(start.elapsed() > Duration::from_millis(100), "{:?}", start.elapsed());
    for key in 0..20 {
        let (mut client, _) = rig.connect(1);
        client.write_all(b"question").unwrap();
        let mut answered = false;
        let counted = allocation_counter::measure(|| {
            let end = Instant::now() + SOON;
            let mut open = None;
            while !answered && Instant::now() < end {
                streams.wait(Duration::from_millis(100)).unwrap();
                while let Some(ready) = streams.ready() {
                    match (ready, &mut open) {
                        (Ready::Listener(1), None) => {
                            let (mut stream, _) = streams.accept(1).unwrap().unwrap();
                            streams.watch(&mut stream, key).unwrap();
                            assert!(streams.accept(1).unwrap().is_none());
                            open = Some(stream);
                        }
                        (Ready::Stream { readable: true, .. }, Some(stream)) => {
                            answered = stream.read(&mut [0; 8]).is_ok_and(|len| len == 8);
                            stream.write_all(b"answer").unwrap();
                        }
                        _ => {}
                    }
                }
            }
        });
        assert!(answered);
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}

/// The reads and writes, with faults, of a server that returns its input, and how often it waits.
fn echo(seed: u64) -> (Vec<usize>, u64) {
    let network = Network::new(seed, FAULTS);
    let mut streams = network.listen(1);
    let mut client = network.connect(streams.listener(0), "10.0.0.1:1".parse().unwrap());
    let mut stream = accept(&mut streams, 0, 1).0;
    let (mut lens, mut waits) = (Vec::new(), 0);
    for _ in 0..20 {
        client.write_all(&[9; 80]).unwrap();
        let mut buffer = [0; 100];
        while let Ok(len) = stream.read(&mut buffer) {
            lens.push(len);
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                lens.push(stream.write(rest).unwrap());
                rest = &rest[lens[lens.len() - 1]..];
            }
        }
        let mut got = Vec::new();
        read(&mut client, &mut got);
        assert_eq!(got, [9; 80]);
        client.write_all(&[0]).unwrap();
        poll("readable", || {
            waits += 1;
            let ready = events(&mut streams, Duration::ZERO);
            ready.into_iter().find(|it| matches!(it, Ready::Stream { readable: true, .. }))
        });
        assert_eq!(stream.read(&mut buffer).unwrap(), 1);
    }
    (lens, waits)
}

#[test]
fn faults_follow_from_the_seed() {
    let (lens, waits) = echo(7);
    assert_eq!(echo(7), (lens.clone(), waits));
    assert_ne!(echo(8), (lens.clone(), waits));
    assert!(lens.len() > 80 && waits > 20, "{} transfers, {waits} waits", lens.len());
}

#[test]
fn a_client_of_a_dropped_backend_is_reset() {
    let network = Network::new(1, Conditions::default());
    let streams = network.listen(1);
    let listener = streams.listener(0);
    let from = "10.0.0.1:1".parse().unwrap();
    let mut waiting = network.connect(listener, from);
    drop(streams);
    for client in [&mut waiting, &mut network.connect(listener, from)] {
        assert_eq!(read_all(client), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    }
}
