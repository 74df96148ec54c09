//! The mio backend's own behaviour: turns of its sockets, grouping by UDP_SEGMENT and its fallback
//! where the kernel refuses it, full send buffers, clamped receive buffers, reasons of drops.
//!
//! Tests of conditions that the loopback device does not produce run in a network namespace of
//! their own.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::bind::{Address, Buffers, Group, Options, bind_client, bind_group};
use onrush_net::filter::{Check, Filter, Kind};
use onrush_net::mio::drops::DropReasons;
use onrush_net::mio::{self, Backend};
use onrush_net::{Cause, Drops, Reply, Return, Sent, Socket};

use crate::namespace::{in_a_namespace, ip};

fn group(addresses: &[&str], buffers: Buffers) -> Group {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|address| Address { address: address.parse().unwrap(), optional: false })
        .collect();
    bind_group(&addresses, &Options { workers: 1, buffers, probe: true }).unwrap()
}

fn backend(addresses: &[&str], buffers: Buffers, batch: usize) -> (Backend, Vec<SocketAddr>) {
    let mut group = group(addresses, buffers);
    let options = mio::Options { batch, ..mio::Options::default() };
    (Backend::new(group.workers.remove(0), options).unwrap(), group.addresses)
}

fn client(at: &str) -> (Backend, SocketAddr) {
    let (socket, _) =
        bind_client(at.parse().unwrap(), Buffers { receive: 1 << 20, send: 0 }).unwrap();
    let address = socket.address();
    (Backend::new(vec![socket], mio::Options::default()).unwrap(), address)
}

/// A client, and its return address.
fn receiver() -> (Backend, Return) {
    let (client, here) = client("127.0.0.1:0");
    (client, Return::to(here, 0))
}

/// As many clients, and the return address of each.
fn receivers(count: usize) -> (Vec<Backend>, Vec<Return>) {
    (0..count).map(|_| receiver()).unzip()
}

/// A server that sends `batch` replies at a time.
fn server(batch: usize) -> Backend {
    backend(&["127.0.0.1:0"], Buffers::default(), batch).0
}

/// The payloads at a socket; loopback has delivered them by now.
fn drain(socket: &mut Backend) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let batch = socket.receive(1024).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|(bytes, _)| bytes.to_vec()));
    }
}

/// A server of both families gets many datagrams over IPv4 and, while it reads them, one over IPv6.
/// Returns how many were read over each in six batches of four.
fn flood(datagrams: usize, waits: bool) -> [usize; 2] {
    let (mut server, there) =
        backend(&["127.0.0.1:0", "[::1]:0"], Buffers { receive: 1 << 20, send: 0 }, 4);
    let (mut v4, _) = client("127.0.0.1:0");
    let (mut v6, _) = client("[::1]:0");
    let (to_v4, to_v6) = (Return::to(there[0], 0), Return::to(there[1], 0));
    v4.send((0..datagrams).map(|_| Reply { bytes: b"flood", to: &to_v4 }));
    server.wait(Duration::ZERO).unwrap();
    let mut seen = [0; 2];
    for round in 0..6 {
        if round == 2 {
            // The second socket becomes readable while the first still is.
            v6.send([Reply { bytes: b"rare", to: &to_v6 }].into_iter());
        }
        if waits {
            server.wait(Duration::from_secs(60)).unwrap();
        }
        for (_, slot) in server.receive(4).unwrap().iter() {
            seen[usize::from(slot.reply_to.socket())] += 1;
        }
        if round == 3 {
            assert_eq!(seen[1], 1, "the other socket is read within two rounds: {seen:?}");
        }
    }
    seen
}

#[test]
fn a_busy_socket_does_not_keep_another_waiting() {
    assert_eq!(flood(20, true), [20, 1]);
}

/// A worker that is always busy never waits: a flood over one family must not starve the other.
#[test]
fn a_socket_that_is_never_empty_does_not_starve_another_without_waits() {
    let seen = flood(40, false);
    assert!(seen[0] < 40, "{seen:?}");
}

/// With chosen ports, as two clients may share an entry of the index of groups, and random ports
/// sometimes do.
#[test]
fn only_replies_to_one_client_are_grouped() {
    in_a_namespace("mio::only_replies_to_one_client_are_grouped", || {
        ip("link set lo up");
        let mut server = server(64);
        let mut clients: Vec<_> = (1..5).map(|n| client(&format!("127.0.0.1:200{n}"))).collect();
        let tokens: Vec<_> = clients.iter().map(|(_, here)| Return::to(*here, 0)).collect();
        // One reply per client: no group.
        server.send(tokens.iter().map(|to| Reply { bytes: b"alone", to }));
        assert_eq!(server.segmentation(), mio::Segmentation::default());
        // Clients in turn: four groups of eight, in one call.
        let sent = server.send((0..32).map(|n| Reply { bytes: b"grouped", to: &tokens[n % 4] }));
        assert_eq!((sent.datagrams, sent.calls), (32, 1));
        let count = server.segmentation();
        assert_eq!((count.groups, count.datagrams, count.refused), (4, 32, 0));
        // Sizes 10, 10, 4 | 10, 4 | 12: a shorter one ends a group, a longer one begins another.
        let sizes = [10, 10, 4, 10, 4, 12];
        server.send(sizes.iter().map(|&len| Reply { bytes: &[3; 12][..len], to: &tokens[0] }));
        let count = server.segmentation();
        assert_eq!((count.groups, count.datagrams), (6, 37));
        let sizes: Vec<_> = drain(&mut clients[0].0).iter().map(Vec::len).collect();
        assert_eq!(sizes, [5, 7, 7, 7, 7, 7, 7, 7, 7, 10, 10, 4, 10, 4, 12]);
        for (client, _) in &mut clients[1..] {
            assert_eq!(drain(client).len(), 9);
        }
    });
}

/// With chosen ports, as above.
#[test]
fn coalesced_messages_are_split_at_any_limit() {
    in_a_namespace("mio::coalesced_messages_are_split_at_any_limit", || {
        ip("link set lo up");
        let mut server = server(256);
        for limit in [1, 7, 63, 64, 65, 128, 1024] {
            let mut sockets = Vec::new();
            for at in ["127.0.0.1:2001", "127.0.0.2:2002"] {
                let buffers = Buffers { receive: 1 << 20, send: 0 };
                sockets.push(bind_client(at.parse().unwrap(), buffers).unwrap().0);
            }
            let tokens: Vec<_> = sockets.iter().map(|here| Return::to(here.address(), 0)).collect();
            let options = mio::Options { coalesced: true, ..mio::Options::default() };
            let mut client = Backend::new(sockets, options).unwrap();
            // To each in turn, numbered; the last payload is shorter.
            let payloads: Vec<Vec<u8>> =
                (0..200).map(|n| vec![n; if n < 199 { 30 } else { 3 }]).collect();
            let to = |n: usize| &tokens[n % 2];
            server.send(payloads.iter().enumerate().map(|(n, bytes)| Reply { bytes, to: to(n) }));
            let mut got = [Vec::new(), Vec::new()];
            while got[0].len() + got[1].len() < payloads.len() {
                // With messages left to split, a blocking wait would not return.
                client.wait(Duration::from_secs(60)).unwrap();
                let batch = client.receive(limit).unwrap();
                assert!(batch.len() <= limit.min(128), "{} of {limit}", batch.len());
                for (bytes, slot) in batch.iter() {
                    got[usize::from(slot.reply_to.socket())].push(bytes.to_vec());
                }
            }
            for (who, got) in got.iter().enumerate() {
                assert!(got.iter().eq(payloads.iter().skip(who).step_by(2)), "limit {limit}");
            }
            assert_eq!(client.joined(), 200, "the kernel coalesced them");
            assert!(client.receive(limit).unwrap().is_empty());
        }
    });
}

#[test]
fn groups_stay_within_the_kernels_limits() {
    let mut server = server(256);
    let (mut client, to) = receiver();
    // 64 + 64 + 22 segments; then 54 + 6, as 55 of them exceed the size of a datagram.
    for (count, len, groups) in [(150, 20, 3), (60, 1200, 5)] {
        server.send((0..count).map(|_| Reply { bytes: &[3; 1200][..len], to: &to }));
        let grouped = server.segmentation();
        assert_eq!((grouped.groups, grouped.refused), (groups, 0), "{count} of {len}");
        assert_eq!(drain(&mut client).len(), count);
    }
}

#[test]
fn grouping_can_be_disabled() {
    let mut group = group(&["127.0.0.1:0"], Buffers::default());
    let options = mio::Options { segmentation: false, ..mio::Options::default() };
    let mut server = Backend::new(group.workers.remove(0), options).unwrap();
    let (mut client, to) = receiver();
    server.send((0..10).map(|_| Reply { bytes: b"x", to: &to }));
    assert_eq!(server.segmentation(), mio::Segmentation::default());
    assert_eq!(drain(&mut client).len(), 10);
}

#[test]
fn a_panic_in_the_callers_iterator_leaves_a_working_backend() {
    let mut server = server(64);
    let (mut client, to) = receiver();
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        server.send((0..5).map(|n| {
            assert!(n < 3, "a deliberate panic");
            Reply { bytes: b"before", to: &to }
        }))
    }));
    assert!(broken.is_err());
    let sent = server.send((0..5).map(|_| Reply { bytes: b"after", to: &to }));
    assert_eq!(sent.datagrams, 5);
    assert_eq!(drain(&mut client), vec![b"after".to_vec(); 5]);
}

#[test]
fn refused_segments_are_sent_one_by_one() {
    in_a_namespace("mio::refused_segments_are_sent_one_by_one", || {
        // Segments may not exceed the MTU, datagrams may (they become fragments).
        ip("link set lo mtu 1280 up");
        let mut server = server(64);
        let (mut client, to) = receiver();
        let large = [5u8; 1400];
        for round in 1..=10u64 {
            let sent = server.send((0..3).map(|_| Reply { bytes: &large, to: &to }));
            assert_eq!((sent.datagrams, sent.bytes, sent.failed()), (3, 4200, 0));
            assert_eq!(drain(&mut client), vec![large.to_vec(); 3]);
            // The MTU of one path must not disable grouping for other clients.
            let count = server.segmentation();
            assert_eq!((count.refused, count.off, count.fragmented), (round, 0, round));
        }
        assert_eq!(server.segmentation().groups, 0);
    });
}

#[test]
fn replies_larger_than_the_mtu_are_fragmented() {
    in_a_namespace("mio::replies_larger_than_the_mtu_are_fragmented", || {
        ip("link set lo mtu 1280 up");
        let mut server = server(64);
        let (mut clients, tokens) = receivers(3);
        let lens = [100, 1400, 200];
        let replies =
            tokens.iter().zip(lens).map(|(to, len)| Reply { bytes: &[5; 1400][..len], to });
        let sent = server.send(replies);
        assert_eq!((sent.datagrams, sent.bytes, sent.failed()), (3, 1700, 0));
        for (client, len) in clients.iter_mut().zip(lens) {
            assert_eq!(drain(client), vec![vec![5; len]], "the replies around it arrive as well");
        }
        let count = server.segmentation();
        assert_eq!((count.fragmented, count.refused), (1, 0));
    });
}

/// Any host can send ICMP messages that lower a path's MTU: replies larger than it must not cost a
/// call each.
#[test]
fn a_round_of_replies_larger_than_the_mtu_costs_one_call_more() {
    in_a_namespace("mio::a_round_of_replies_larger_than_the_mtu_costs_one_call_more", || {
        ip("link set lo mtu 1280 up");
        let mut server = server(64);
        let (mut clients, tokens) = receivers(40);
        for round in 1..=3 {
            let sent = server.send(tokens.iter().map(|to| Reply { bytes: &[5; 1400], to }));
            assert_eq!((sent.datagrams, sent.failed(), sent.calls), (40, 0, 2));
            for client in &mut clients {
                assert_eq!(drain(client), vec![vec![5; 1400]]);
            }
            // The fragments are noticed anew, so the previous round restored the option.
            assert_eq!(server.segmentation().fragmented, round);
        }
    });
}

/// All groups of a round are laid out before the first is refused.
#[test]
fn a_whole_round_of_refused_groups_is_sent_one_by_one() {
    in_a_namespace("mio::a_whole_round_of_refused_groups_is_sent_one_by_one", || {
        ip("link set lo mtu 1280 up");
        let mut server = server(1024);
        // A datagram can be sent without a receiver.
        let tokens: Vec<_> =
            (0..300).map(|n| Return::to(([127, 0, 0, 1], 20_000 + n).into(), 0)).collect();
        let twice = tokens.iter().flat_map(|to| [to, to]);
        let sent = server.send(twice.map(|to| Reply { bytes: &[5; 1400], to }));
        assert_eq!((sent.datagrams, sent.failed()), (600, 0));
        let count = server.segmentation();
        assert_eq!((count.refused, count.off), (300, 0));
    });
}

#[test]
fn occasional_refusals_do_not_disable_grouping() {
    in_a_namespace("mio::occasional_refusals_do_not_disable_grouping", || {
        ip("link set lo mtu 1280 up");
        let mut server = server(64);
        let (mut client, to) = receiver();
        for _ in 0..10 {
            server.send((0..2).map(|_| Reply { bytes: &[5; 1400], to: &to }));
            server.send((0..2).map(|_| Reply { bytes: &[5; 100], to: &to }));
            assert_eq!(drain(&mut client).len(), 4);
        }
        let count = server.segmentation();
        assert_eq!((count.refused, count.groups, count.off), (10, 10, 0));
    });
}

#[test]
fn a_full_send_buffer_drops_and_counts_and_does_not_block() {
    in_a_namespace("mio::a_full_send_buffer_drops_and_counts_and_does_not_block", || {
        // The peer's address does not resolve on this link: datagrams wait for it and fill the
        // socket's buffer.
        ip("link add here type veth peer name there");
        ip("addr add 10.9.9.1/24 dev here");
        ip("link set here up");
        ip("link set there up");
        ip("link set lo up");
        let buffers = Buffers { receive: 0, send: 20_000 };
        let (mut server, _) = backend(&["0.0.0.0:0"], buffers, 64);
        let silent = Return::to("10.9.9.2:9".parse().unwrap(), 0);
        let silent_too = Return::to("10.9.9.3:9".parse().unwrap(), 0);
        let replies = (0..200).map(|n| Reply {
            bytes: &[1; 500],
            to: if n % 2 == 0 { &silent } else { &silent_too },
        });
        let sent = server.send(replies);
        // A call that waits for room reports none of them.
        assert!(sent.datagrams > 5 && sent.blocked() > 100, "{sent:?}");
        assert_eq!(sent.datagrams + sent.unsent, 200, "{sent:?}");
        assert_eq!(sent.failed(), 0, "{sent:?}");

        // The kernel drops the datagrams that wait for an address to resolve. The socket has room
        // again, and reports no error for them.
        ip("link del here");
        let (mut client, to) = receiver();
        let sent = server.send([Reply { bytes: &[1; 500], to: &to }].into_iter());
        assert_eq!((sent.datagrams, sent.unsent), (1, 0), "{sent:?}");
        assert_eq!(drain(&mut client).len(), 1);
    });
}

#[test]
fn drops_are_counted_by_reason() {
    in_a_namespace("mio::drops_are_counted_by_reason", || {
        ip("link set lo up");
        let buffers = Buffers { receive: 4096, send: 0 };
        let (server, addresses) = backend(&["127.0.0.1:0"], buffers, 64);
        let mut server = server.with_drop_reasons(&DropReasons::of_namespace());
        let (mut client, _) = client("127.0.0.1:0");
        let there = Return::to(addresses[0], 0);
        let mut send =
            |count| client.send((0..count).map(|_| Reply { bytes: &[9; 700], to: &there }));
        assert_eq!(server.dropped(), Drops::default());
        send(100);
        let full_buffer = 100 - drain(&mut server).len() as u64;
        assert!(full_buffer > 50, "{full_buffer}");
        assert_eq!(server.dropped(), Drops { full_buffer, ..Drops::default() });
        let kind = Kind { value: 0, min_len: 16, check: Check::Head([0; 2]) };
        server.set_filter(Some(&Filter { kind_at: 8, kinds: [kind; 3] })).unwrap();
        send(30);
        let drops = Drops { full_buffer, checksum: 0, filter: 30 };
        assert_eq!(server.dropped(), drops);
        server.set_filter(None).unwrap();
        assert_eq!(server.dropped(), drops);
    });
}

#[test]
fn refusals_of_the_kernel_are_counted_by_cause() {
    in_a_namespace("mio::refusals_of_the_kernel_are_counted_by_cause", || {
        ip("link set lo up");
        ip("route add prohibit 10.1.0.0/16");
        ip("route add unreachable 10.2.0.0/16");
        let (mut server, _) = backend(&["0.0.0.0:0"], Buffers::default(), 64);
        let long = vec![0; 70_000];
        for (peer, bytes, cause) in [
            ("10.1.0.1:9", &b"reply"[..], Cause::Permission),
            ("10.2.0.1:9", b"reply", Cause::Unreachable),
            // There is no route.
            ("10.3.0.1:9", b"reply", Cause::Unreachable),
            ("127.0.0.1:9", &long, Cause::TooLong),
        ] {
            let to = Return::to(peer.parse().unwrap(), 0);
            let sent = server.send([Reply { bytes, to: &to }].into_iter());
            let mut expected = Sent { calls: sent.calls, ..Sent::default() };
            expected.reject(1, cause);
            assert_eq!(sent, expected, "{peer}");
        }
    });
}

#[test]
fn a_clamped_buffer_is_reported_with_its_remedy() {
    in_a_namespace("mio::a_clamped_buffer_is_reported_with_its_remedy", || {
        // Root of a user namespace may not exceed the limit.
        ip("link set lo up");
        let asked = 1 << 28;
        let group = group(&["127.0.0.1:0"], Buffers { receive: asked, send: 0 });
        match &group.notices[..] {
            [notice] => {
                let given = group.workers[0][0].buffers().unwrap().receive / 2;
                let told = format!("are {given} bytes each instead of {asked}");
                let remedy = format!("sysctl -w net.core.rmem_max={asked}");
                assert!(notice.contains(&told) && notice.contains(&remedy), "{notice}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_host_without_ipv6_is_served_over_ipv4() {
    in_a_namespace("mio::a_host_without_ipv6_is_served_over_ipv4", || {
        // With its device down the namespace has no ::1.
        let wanted = ["[::1]:0", "0.0.0.0:0"]
            .map(|address| Address { address: address.parse().unwrap(), optional: true });
        let buffers = Buffers::default();
        let group = bind_group(&wanted, &Options { workers: 1, buffers, probe: true }).unwrap();
        assert_eq!(group.addresses.len(), 1);
        match &group.notices[..] {
            [notice] => {
                let parts = ["not listening on", "IPv6"];
                assert!(parts.iter().all(|part| notice.contains(part)), "{notice}");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// Few sockets are polled in turn, many are registered with the kernel: in both cases a worker that
/// waits for a wake-up sleeps although datagrams are available, and after `retain_addresses` it
/// receives only from the remaining sockets.
#[test]
fn wait_for_wake_ignores_datagrams_and_excluded_sockets_keep_theirs() {
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for addresses in [vec!["127.0.0.1:0"; 2], vec!["127.0.0.1:0"; 6]] {
        let mut group = group(&addresses, Buffers::default());
        let [kept, dropped] = [group.addresses[0], group.addresses[1]];
        let copies: Vec<_> =
            group.workers[0].iter().map(|socket| socket.try_clone().unwrap()).collect();
        let mut backend = Backend::new(group.workers.remove(0), mio::Options::default()).unwrap();
        // Their readiness is consumed once, so that the sockets cause no new event.
        backend.receive(8).unwrap();
        for address in [kept, dropped] {
            client.send_to(b"x", address).unwrap();
        }
        while backend.wait_for_wake(Duration::from_millis(1)).is_ok()
            && copies[1].as_udp().peek(&mut [0; 8]).is_err()
        {}
        backend.wait_for_wake(Duration::from_millis(1)).unwrap();
        let began = std::time::Instant::now();
        backend.wait_for_wake(Duration::from_millis(50)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(45), "{:?}", began.elapsed());
        // A wake-up ends the wait.
        onrush_net::Waker::wake(&backend.waker());
        let began = std::time::Instant::now();
        backend.wait_for_wake(Duration::from_secs(120)).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        backend.retain_addresses(&|address| address == dropped);
        let received = backend.receive(8).unwrap();
        let sockets: Vec<u16> = received.iter().map(|(_, slot)| slot.reply_to.socket()).collect();
        assert_eq!(sockets, [1]);
        assert!(backend.receive(8).unwrap().is_empty());
        assert_eq!(
            copies[0].as_udp().recv(&mut [0; 8]).unwrap(),
            1,
            "the datagram stays in the excluded socket"
        );
    }
}
