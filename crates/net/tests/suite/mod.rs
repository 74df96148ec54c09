//! The contract of a backend, point by point (see the crate's documentation), as functions of any
//! backend. A new one implements [`Rig`] and calls [`conformance_of`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_net::{Reply, Return, Sent, Socket, Waker};

/// Longer than any operation here; a wait of this length has failed.
const LONG: Duration = Duration::from_secs(120);
/// Shorter than `LONG`, and more than a loaded machine needs for any operation here.
const SOON: Duration = Duration::from_secs(60);
/// Bytes that a backend keeps of one datagram.
const SLOT: usize = 2048;

/// Creates sockets of one backend.
pub(crate) trait Rig {
    type Socket: Socket + Send + 'static;

    /// The server's address for a loopback address. On another network it is another one.
    fn server_ip(&self, loopback: &str) -> IpAddr {
        loopback.parse().unwrap()
    }

    /// Returns once `count` datagrams wait at a server. Loopback delivers within the call that
    /// sends.
    fn arrive(&self, server: &mut Self::Socket, count: usize) {
        let _ = (server, count);
    }

    /// A server's socket at these addresses (port 0), receiving `batch` datagrams at a time, with a
    /// receive buffer for about `buffer` bytes; and its addresses with their ports.
    fn server(&self, at: &[&str], batch: usize, buffer: usize) -> (Self::Socket, Vec<SocketAddr>);

    /// A client's socket at these addresses (port 0).
    fn client(&self, at: &[String]) -> (Self::Socket, Vec<SocketAddr>);
}

/// A server with the default sizes at one address.
fn server<R: Rig>(rig: &R, at: &str) -> (R::Socket, SocketAddr) {
    let (socket, addresses) = rig.server(&[at], 64, 1 << 20);
    (socket, addresses[0])
}

/// A client at one address.
fn client<R: Rig>(rig: &R, at: &str) -> (R::Socket, SocketAddr) {
    let (socket, addresses) = rig.client(&[at.to_owned()]);
    (socket, addresses[0])
}

/// Sends each of `payloads` to one address, from the socket's first address.
fn send_to(socket: &mut impl Socket, peer: SocketAddr, payloads: &[&[u8]]) -> Sent {
    let to = Return::to(peer, 0);
    socket.send(payloads.iter().map(|bytes| Reply { bytes, to: &to }))
}

/// A copy of a received datagram.
#[derive(Debug)]
struct Datagram {
    bytes: Vec<u8>,
    source: SocketAddr,
    reply_to: Return,
}

/// Receives until there are `count` datagrams.
fn receive(socket: &mut impl Socket, count: usize) -> Vec<Datagram> {
    let end = Instant::now() + SOON;
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} datagrams arrived", all.len());
        socket.wait(Duration::from_millis(100)).unwrap();
        take(socket, usize::MAX, &mut all);
    }
    assert_eq!(all.len(), count, "more than were sent");
    all
}

/// Receives one batch; returns its size.
fn take(socket: &mut impl Socket, limit: usize, all: &mut Vec<Datagram>) -> usize {
    let batch = socket.receive(limit).unwrap();
    all.extend(batch.iter().map(|(bytes, slot)| Datagram {
        bytes: bytes.to_vec(),
        source: slot.source,
        reply_to: slot.reply_to,
    }));
    batch.len()
}

/// The duration of some work.
fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// A request arrives with its bytes and its source; the reply comes from the address that the
/// request was sent to.
pub(crate) fn a_reply_reaches_the_sender<R: Rig>(rig: &R) {
    for at in ["127.0.0.1", "127.0.0.9", "::1"] {
        let (mut server, there) = server(rig, at);
        let (mut client, here) = client(rig, at);
        let sent = send_to(&mut client, there, &[b"question"]);
        assert_eq!((sent.datagrams, sent.bytes, sent.blocked(), sent.failed()), (1, 8, 0, 0));
        assert!(sent.calls >= 1);
        let request = receive(&mut server, 1).remove(0);
        assert_eq!((&*request.bytes, request.source), (&b"question"[..], here));
        let back = request.reply_to;
        assert_eq!((back.peer(), back.local(), back.socket()), (here, None, 0));
        server.send([Reply { bytes: b"answer", to: &back }].into_iter());
        let reply = receive(&mut client, 1).remove(0);
        assert_eq!((&*reply.bytes, reply.source), (&b"answer"[..], there));
    }
}

/// Point 2: `receive` never blocks, and an empty batch means that no datagram is available.
pub(crate) fn receive_never_blocks<R: Rig>(rig: &R) {
    let (mut server, there) = server(rig, "127.0.0.1");
    let (mut client, _) = client(rig, "127.0.0.1");
    for round in 0..3u8 {
        let empty = time(|| assert!(server.receive(64).unwrap().is_empty()));
        assert!(empty < SOON);
        send_to(&mut client, there, &[&[round]]);
        rig.arrive(&mut server, 1);
        let mut all = Vec::new();
        assert_eq!(take(&mut server, 64, &mut all), 1, "without a wait before");
        assert_eq!(all[0].bytes, [round]);
        server.wait(Duration::ZERO).unwrap();
        send_to(&mut client, there, &[&[round]]);
        rig.arrive(&mut server, 1);
        // A wait whose event preceded the datagram does not hide it for longer than one call.
        let found = take(&mut server, 64, &mut all) + take(&mut server, 64, &mut all);
        assert_eq!(found, 1);
    }
}

/// Point 2: neither the caller's limit nor the backend's batch is exceeded; nothing is lost.
pub(crate) fn limits_are_respected<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["127.0.0.1"], 8, 1 << 20);
    let (mut client, _) = client(rig, "127.0.0.1");
    let payloads: Vec<_> = (0..30u8).map(|n| [n]).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(|p| &p[..]).collect();
    send_to(&mut client, there[0], &payloads);
    rig.arrive(&mut server, payloads.len());
    server.wait(LONG).unwrap();
    let mut all = Vec::new();
    assert_eq!(take(&mut server, 0, &mut all), 0);
    assert_eq!(take(&mut server, 3, &mut all), 3);
    assert_eq!(take(&mut server, 1, &mut all), 1);
    assert_eq!(take(&mut server, usize::MAX, &mut all), 8);
    all.extend(receive(&mut server, 18));
    let order: Vec<u8> = all.iter().map(|kept| kept.bytes[0]).collect();
    assert_eq!(order, (0..30).collect::<Vec<u8>>());
}

/// Points 1 and 2: `wait` does not block while datagrams are left at any address.
pub(crate) fn wait_returns_while_datagrams_are_left<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["127.0.0.1", "::1"], 4, 1 << 20);
    let (mut v4, _) = client(rig, "127.0.0.1");
    let (mut v6, _) = client(rig, "::1");
    let payloads = [&[1u8][..]; 10];
    send_to(&mut v4, there[0], &payloads);
    send_to(&mut v6, there[1], &payloads);
    let mut all = Vec::new();
    let taken = time(|| {
        while all.len() < 20 {
            server.wait(LONG).unwrap();
            take(&mut server, 4, &mut all);
        }
    });
    assert!(taken < SOON, "{taken:?}");
    let sockets = |n| all.iter().filter(|kept| kept.reply_to.socket() == n).count();
    assert_eq!((sockets(0), sockets(1)), (10, 10));
}

/// Point 1: a datagram ends a wait in progress; without one, a wait lasts.
pub(crate) fn wait_waits_for_a_datagram<R: Rig>(rig: &R) {
    let (mut server, there) = server(rig, "127.0.0.1");
    let (mut client, _) = client(rig, "127.0.0.1");
    // Spurious returns are allowed, busy waiting is not.
    let idle = time(|| {
        for _ in 0..10 {
            server.wait(Duration::from_millis(20)).unwrap();
            assert!(server.receive(8).unwrap().is_empty());
        }
    });
    assert!(idle > Duration::from_millis(100), "{idle:?}");
    let waiting = thread::spawn(move || {
        let taken = time(|| drop(receive(&mut server, 1)));
        (taken, server)
    });
    send_to(&mut client, there, &[b"x"]);
    let (taken, mut server) = waiting.join().unwrap();
    assert!(taken < SOON);
    let again = time(|| server.wait(Duration::from_millis(1)).unwrap());
    assert!(again < SOON);
}

/// Point 1: a wake-up before `wait` makes the next one return at once, also after a receive call in
/// between; several wake-ups count as one.
pub(crate) fn a_wake_up_before_wait_is_not_lost<R: Rig>(rig: &R) {
    let (mut server, _) = server(rig, "127.0.0.1");
    let waker = server.waker();
    // A new backend may poll its sockets once before it can wait.
    assert!(server.receive(8).unwrap().is_empty());
    for wake_ups in [1, 1, 5] {
        (0..wake_ups).for_each(|_| waker.wake());
        let taken = time(|| server.wait(LONG).unwrap());
        assert!(taken < SOON, "{taken:?}");
    }
    for _ in 0..3 {
        server.wait(Duration::ZERO).unwrap();
        waker.wake();
        assert!(server.receive(8).unwrap().is_empty());
        assert!(server.receive(8).unwrap().is_empty());
        let taken = time(|| server.wait(LONG).unwrap());
        assert!(taken < SOON, "{taken:?}");
    }
}

/// Point 1: wake-ups from another thread, in every order that the scheduler produces: two sockets
/// wake each other in turn, and no wake-up may be lost.
pub(crate) fn wake_ups_from_another_thread_are_not_lost<R: Rig>(rig: &R) {
    const ROUNDS: u32 = 2000;
    let (mut ours, _) = server(rig, "127.0.0.1");
    let (mut theirs, _) = server(rig, "127.0.0.2");
    let turn = Arc::new(AtomicU32::new(0));
    let play = |socket: &mut R::Socket, other: &dyn Fn(), turn: &AtomicU32, odd: u32| {
        // A new backend may poll its sockets once before it can wait.
        assert!(socket.receive(8).unwrap().is_empty());
        for round in (odd..ROUNDS).step_by(2) {
            while turn.load(Ordering::Acquire) != round {
                let taken = time(|| socket.wait(LONG).unwrap());
                assert!(taken < SOON, "a wake-up was lost in round {round}");
            }
            turn.store(round + 1, Ordering::Release);
            other();
        }
    };
    let (ring_ours, ring_theirs) = (ours.waker(), theirs.waker());
    let their_ball = Arc::clone(&turn);
    let other = thread::spawn(move || play(&mut theirs, &|| ring_ours.wake(), &their_ball, 1));
    play(&mut ours, &|| ring_theirs.wake(), &turn, 0);
    other.join().unwrap();
    assert_eq!(turn.load(Ordering::Acquire), ROUNDS);
}

/// A datagram longer than a slot is truncated; empty ones arrive; their neighbours are complete.
pub(crate) fn unusual_sizes_arrive<R: Rig>(rig: &R) {
    let (mut server, there) = server(rig, "127.0.0.1");
    let (mut client, _) = client(rig, "127.0.0.1");
    let long: Vec<u8> = (0..3000u32).map(|n| (n % 251) as u8).collect();
    let sizes = [1, 0, SLOT - 1, SLOT, 3000, 2, 0, 0, 5];
    let payloads: Vec<&[u8]> = sizes.iter().map(|&len| &long[..len]).collect();
    let sent = send_to(&mut client, there, &payloads);
    assert_eq!(sent.datagrams, 9);
    assert_eq!(sent.bytes, sizes.iter().sum::<usize>() as u64);
    // Fragments of a datagram may take another way than a datagram in one piece.
    let mut kept: Vec<_> = receive(&mut server, 9).into_iter().map(|kept| kept.bytes).collect();
    kept.sort();
    let mut expected = sizes.map(|len| long[..len.min(SLOT)].to_vec());
    expected.sort();
    assert!(kept == expected, "{:?}", kept.iter().map(Vec::len).collect::<Vec<_>>());
}

/// Point 3: a reply is sent from the address that the request was sent to, on a host with several.
pub(crate) fn replies_are_sent_from_the_local_address<R: Rig>(rig: &R) {
    let cases: [(&str, &[&str]); 2] =
        [("0.0.0.0", &["127.0.0.1", "127.0.0.2", "127.3.2.1"]), ("::", &["::1"])];
    for (wildcard, asked) in cases {
        let (mut server, there) = server(rig, wildcard);
        let (mut client, _) = client(rig, asked[0]);
        let asked: Vec<IpAddr> = asked.iter().map(|ip| rig.server_ip(ip)).collect();
        for _ in 0..3 {
            for &ip in &asked {
                send_to(&mut client, SocketAddr::new(ip, there.port()), &[b"q"]);
            }
            let requests = receive(&mut server, asked.len());
            let mut told: Vec<_> = requests.iter().filter_map(|r| r.reply_to.local()).collect();
            told.sort();
            assert_eq!(told, asked);
            // All replies in one call, in reverse: neither batching nor grouping may mix them up.
            let reply = |r| Reply { bytes: b"same size", to: r };
            let sent = server.send(requests.iter().rev().map(|r| reply(&r.reply_to)));
            assert_eq!((sent.datagrams, sent.failed()), (asked.len() as u64, 0));
            let replies = receive(&mut client, asked.len());
            let mut from: Vec<_> = replies.iter().map(|reply| reply.source.ip()).collect();
            from.sort();
            assert_eq!(from, asked);
        }
    }
}

/// Point 3 for every kind of datagram in the first place of a batch: without a local address,
/// short, long.
pub(crate) fn the_local_address_is_reported_for_each_family<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["127.0.0.5", "0.0.0.0", "::"], 8, 1 << 20);
    let (mut v4, _) = client(rig, "127.0.0.1");
    let (mut v6, _) = client(rig, "::1");
    for _ in 0..3 {
        for (number, told) in [None, Some("127.0.0.7"), Some("::1")].into_iter().enumerate() {
            let told = told.map(|ip| rig.server_ip(ip));
            let asked = told.unwrap_or(there[0].ip());
            let client = if asked.is_ipv4() { &mut v4 } else { &mut v6 };
            send_to(client, SocketAddr::new(asked, there[number].port()), &[b"q"]);
            let request = receive(&mut server, 1).remove(0);
            assert_eq!(request.reply_to.local(), told);
            server.send([Reply { bytes: b"a", to: &request.reply_to }].into_iter());
            assert_eq!(receive(client, 1)[0].source.ip(), asked);
        }
    }
}

/// Point 4: a token stays valid over later batches, and so do its copies.
pub(crate) fn tokens_stay_valid<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["127.0.0.1", "::1"], 2, 1 << 20);
    let mut clients = [client(rig, "127.0.0.1"), client(rig, "::1")];
    let mut tokens = Vec::new();
    for round in 0..4 {
        for (number, (client, here)) in clients.iter_mut().enumerate() {
            send_to(client, there[number], &[&[round]]);
            // The same place of the batch holds one family after the other.
            let request = receive(&mut server, 1).remove(0);
            assert_eq!((request.source, request.reply_to.peer()), (*here, *here));
            tokens.push((number, request.reply_to));
        }
    }
    for (number, token) in &tokens {
        let copy = *token;
        server.send([Reply { bytes: &[*number as u8], to: &copy }].into_iter());
    }
    for (number, (client, _)) in clients.iter_mut().enumerate() {
        for reply in receive(client, 4) {
            assert_eq!((reply.bytes, reply.source), (vec![number as u8], there[number]));
        }
    }
}

/// Point 3: in order for each destination with any grouping: sizes that grow, shrink and repeat,
/// destinations in uneven turns, more replies than any round has.
pub(crate) fn order_is_kept_for_each_destination<R: Rig>(rig: &R) {
    let (mut server, _) = server(rig, "127.0.0.1");
    let mut clients: Vec<_> = (0..3).map(|_| client(rig, "127.0.0.1")).collect();
    let tokens: Vec<_> = clients.iter().map(|(_, here)| Return::to(*here, 0)).collect();
    let filler = [0xEE; 64];
    let mut counts = [0u8; 3];
    let mut payloads = Vec::new();
    for n in 0..400usize {
        let who = [0, 1, 0, 2, 0, 0, 1, 2, 2][n % 9];
        let mut payload = vec![counts[who]];
        payload.extend(&filler[..[10, 10, 20, 10, 20, 20, 5, 10][n % 8]]);
        counts[who] += 1;
        payloads.push((who, payload));
    }
    let sent = server
        .send(payloads.iter().map(|(who, bytes)| Reply { bytes: &bytes[..], to: &tokens[*who] }));
    assert_eq!((sent.datagrams, sent.blocked(), sent.failed()), (400, 0, 0));
    for (who, (client, _)) in clients.iter_mut().enumerate() {
        let got: Vec<_> =
            receive(client, counts[who].into()).into_iter().map(|k| k.bytes).collect();
        let meant: Vec<_> =
            payloads.iter().filter(|(to, _)| *to == who).map(|(_, bytes)| bytes.clone()).collect();
        assert!(got == meant, "destination {who}");
    }
}

/// Point 3: a run of equal replies to one client, which a backend may pass on as one message,
/// arrives as that many datagrams; so does a run with a shorter last reply, and one beyond 64 kB.
pub(crate) fn grouped_replies_arrive_as_datagrams<R: Rig>(rig: &R) {
    for at in ["127.0.0.1", "::1"] {
        let (mut server, _) = server(rig, at);
        let (mut client, here) = client(rig, at);
        for (count, len, last) in
            [(2, 1, 1), (64, 20, 20), (65, 20, 7), (150, 20, 19), (60, 1200, 3)]
        {
            let mut payloads: Vec<Vec<u8>> = (0..count).map(|n| vec![n as u8; len]).collect();
            payloads[count - 1].truncate(last);
            let views: Vec<&[u8]> = payloads.iter().map(|p| &p[..]).collect();
            let sent = send_to(&mut server, here, &views);
            let bytes = payloads.iter().map(Vec::len).sum::<usize>() as u64;
            assert_eq!((sent.datagrams, sent.bytes), (count as u64, bytes));
            let got: Vec<_> = receive(&mut client, count).into_iter().map(|k| k.bytes).collect();
            assert!(got == payloads, "{count} of {len}");
        }
    }
}

/// Point 3: replies that cannot be sent are counted and do not delay others.
pub(crate) fn a_reply_that_fails_delays_no_other<R: Rig>(rig: &R) {
    let (mut server, _) = server(rig, "127.0.0.1");
    let (mut first, here) = client(rig, "127.0.0.1");
    let (mut second, there) = client(rig, "127.0.0.2");
    let (good, good_too) = (Return::to(here, 0), Return::to(there, 0));
    let other_family = Return::to("[::1]:9".parse().unwrap(), 0);
    let no_such_socket = Return::to(here, 7);
    let tokens = [&good, &other_family, &good, &no_such_socket, &other_family, &good_too];
    let sent = server.send(tokens.iter().map(|to| Reply { bytes: b"reply", to }));
    assert_eq!((sent.datagrams, sent.bytes, sent.blocked(), sent.failed()), (3, 15, 0, 3));
    receive(&mut first, 2);
    receive(&mut second, 1);
}

/// An error that the network reports (the peer's port is closed) does not surface.
pub(crate) fn errors_of_unreachable_peers_do_not_surface<R: Rig>(rig: &R) {
    let (mut server, there) = server(rig, "127.0.0.1");
    let (gone, nowhere) = client(rig, "127.0.0.1");
    drop(gone);
    let (mut client, here) = client(rig, "127.0.0.1");
    for _ in 0..5 {
        send_to(&mut server, nowhere, &[b"lost"]);
        send_to(&mut client, there, &[b"question"]);
        let request = receive(&mut server, 1).remove(0);
        assert_eq!((&*request.bytes, request.source), (&b"question"[..], here));
    }
}

/// Each datagram without space in the buffer is counted once. (They are sent one by one, because a
/// dropped coalesced message counts as one.)
pub(crate) fn drops_are_counted<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["127.0.0.1", "127.0.0.2"], 64, 8000);
    let (mut client, _) = client(rig, "127.0.0.1");
    assert_eq!(server.dropped().all(), 0);
    let mut all = Vec::new();
    for round in 1..=3 {
        for &address in &there {
            for _ in 0..100 {
                send_to(&mut client, address, &[&[9; 700]]);
            }
        }
        let end = Instant::now() + SOON;
        let mut counted = 0;
        while counted < round * 200 {
            assert!(Instant::now() < end, "{counted} of {}", round * 200);
            while take(&mut server, 64, &mut all) > 0 {}
            counted = server.dropped().full_buffer + all.len() as u64;
        }
        assert_eq!(counted, round * 200);
        assert_eq!(server.dropped().full_buffer + all.len() as u64, round * 200, "asked twice");
    }
    let dropped = server.dropped();
    assert!(!all.is_empty() && dropped.all() > 100, "{} {dropped:?}", all.len());
}

/// As many kernel sockets as a load tester uses.
pub(crate) fn many_sockets_are_all_served<R: Rig>(rig: &R) {
    let (mut server, there) = server(rig, "127.0.0.1");
    let at: Vec<_> = (0..300).map(|n| format!("127.1.{}.{}", n / 200, n % 200 + 1)).collect();
    let (mut client, here) = rig.client(&at);
    let tokens: Vec<_> = (0..300).map(|n| Return::to(there, n)).collect();
    let sent = client.send(tokens.iter().map(|to| Reply { bytes: b"ask", to }));
    assert_eq!(sent.datagrams, 300);
    let requests = receive(&mut server, 300);
    let mut sources: Vec<_> = requests.iter().map(|request| request.source).collect();
    sources.sort();
    let mut expected = here.clone();
    expected.sort();
    assert_eq!(sources, expected);
    server.send(requests.iter().map(|r| Reply { bytes: b"answer", to: &r.reply_to }));
    let mut numbers: Vec<_> =
        receive(&mut client, 300).iter().map(|r| r.reply_to.socket()).collect();
    numbers.sort();
    assert_eq!(numbers, (0..300).collect::<Vec<u16>>());
}

/// Point 5: nothing is allocated after construction, in the very first round or later.
pub(crate) fn nothing_is_allocated<R: Rig>(rig: &R) {
    let (mut server, there) = rig.server(&["0.0.0.0", "::"], 32, 1 << 20);
    let mut clients = [client(rig, "127.0.0.1"), client(rig, "::1")];
    let to: Vec<_> = [("127.0.0.1", 0), ("::1", 1)]
        .map(|(ip, n): (&str, usize)| SocketAddr::new(rig.server_ip(ip), there[n].port()))
        .map(|peer| Return::to(peer, 0))
        .into();
    let waker = server.waker();
    let mut tokens = Vec::with_capacity(200);
    let mut answered = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..4 {
            for ((client, _), to) in clients.iter_mut().zip(&to) {
                client.send((0..100).map(|n| Reply { bytes: &[7; 50][..n % 50], to }));
            }
            waker.wake();
            tokens.clear();
            let end = Instant::now() + SOON;
            while tokens.len() < 200 {
                assert!(Instant::now() < end, "{} of 200", tokens.len());
                server.wait(SOON).unwrap();
                let batch = server.receive(32).unwrap();
                tokens.extend(batch.iter().map(|(_, slot)| slot.reply_to));
            }
            let sent = server.send(tokens.iter().map(|to| Reply { bytes: &[1; 30], to }));
            answered += sent.datagrams;
            for (client, _) in &mut clients {
                while !client.receive(128).unwrap().is_empty() {}
            }
            server.dropped();
        }
    });
    assert_eq!(answered, 800);
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

/// Tests of the whole contract, in a module of this name.
macro_rules! conformance_of {
    ($backend:ident, $rig:expr) => {
        $crate::suite::conformance_of!(
            $backend,
            $rig,
            [
                a_reply_reaches_the_sender,
                receive_never_blocks,
                limits_are_respected,
                wait_returns_while_datagrams_are_left,
                wait_waits_for_a_datagram,
                a_wake_up_before_wait_is_not_lost,
                wake_ups_from_another_thread_are_not_lost,
                unusual_sizes_arrive,
                replies_are_sent_from_the_local_address,
                the_local_address_is_reported_for_each_family,
                tokens_stay_valid,
                order_is_kept_for_each_destination,
                grouped_replies_arrive_as_datagrams,
                a_reply_that_fails_delays_no_other,
                errors_of_unreachable_peers_do_not_surface,
                drops_are_counted,
                many_sockets_are_all_served,
                nothing_is_allocated,
            ]
        );
    };
    ($backend:ident, $rig:expr, [$($test:ident),* $(,)?]) => {
        mod $backend {
            $(#[test]
            fn $test() {
                $crate::suite::$test(&$rig);
            })*
        }
    };
}

pub(crate) use conformance_of;
