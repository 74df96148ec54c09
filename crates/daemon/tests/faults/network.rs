//! Faults of the network: replies that the kernel refuses for each reason, and a link, addresses
//! and IPv6 that disappear and return. The tracker keeps its sockets and serves again by itself. A
//! send buffer that the kernel has filled is in `crates/net/tests/namespaces/mio.rs`.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;

use crate::account::Account;
use crate::harness::{
    AnnounceReply, Client, Daemon, Launch, hash, in_own_network, leecher, output, run, seeder,
    transaction,
};
use crate::load::{Load, swarms};
use crate::sandbox::{CLIENTS, Hosts, TRACKER, failing};

/// Errors of send calls, with the label of their counter, and a part of the cause and of the remedy
/// in the log.
const ERRORS: [[&str; 4]; 6] = [
    ["EPERM", "permission", "EPERM", "nft list ruleset"],
    ["EAGAIN", "full_buffer", "the send buffer is full", "socket.send_buffer"],
    ["ENOBUFS", "no_buffers", "ENOBUFS", "txqueuelen"],
    ["EMSGSIZE", "too_long", "EMSGSIZE", "announce.max_peers_v4"],
    ["ENETUNREACH", "unreachable", "ENETUNREACH", "ip route"],
    ["EHOSTUNREACH", "unreachable", "EHOSTUNREACH", "ip route"],
];

/// Asserts that all unsent replies are counted with this cause, and that the log names the remedy.
fn assert_reported(daemon: &mut Daemon, [_, label, cause, remedy]: [&str; 4]) {
    let metrics = daemon.metrics();
    let unsent = |labels: &[&str]| metrics.sum("onrush_unsent_replies_total", labels);
    assert!(unsent(&[label]) > 0.0 && unsent(&[label]) == unsent(&[]), "{metrics:?}");
    daemon.line_with(cause, &[" WARN ", remedy]);
}

/// The port of trackers in networks of their own.
const PORT: u16 = 6_969;
/// Replies that are refused while a fault lasts, at least.
const REFUSED: u64 = 20;
/// Requests at once, whose replies a short queue does not hold.
const FLOOD: u32 = 200;

/// The number behind a word in the output of a command.
fn number(output: &str, word: &str) -> u64 {
    let mut words = output.split_whitespace().skip_while(|it| *it != word).skip(1);
    let number = words.next().and_then(|it| it.trim_end_matches(',').parse().ok());
    number.unwrap_or_else(|| panic!("no number behind `{word}` in {output}"))
}

/// A tracker in a network of its own, at these addresses.
fn serve(addresses: &[&str]) -> Daemon {
    let addresses: Vec<String> =
        addresses.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), PORT).to_string()).collect();
    // A client of these tests represents many.
    let config = format!("listen = {addresses:?}\n[limits]\nsource_peers_per_swarm = 0\n");
    Launch::new(&["--workers", "2"]).admin().config(&config).serve()
}

/// Ends a test whose fault is over: the load is served again, every datagram is in a counter, and
/// the peers have stayed.
fn end_served(load: Load, daemon: Daemon) -> Account {
    load.served_again();
    load.end();
    let account = Account::balanced(&daemon);
    assert_peers_stayed(&daemon);
    daemon.stop();
    account
}

/// A load from the clients' host.
fn load_from(hosts: &Hosts, source: &str, daemon: &Daemon) -> Load {
    let source: IpAddr = source.parse().unwrap();
    let tracker = daemon.addresses().iter().find(|to| to.is_ipv4() == source.is_ipv4());
    Load::by(hosts.on_clients(|| Client::at(source, *tracker.unwrap())))
}

/// Asserts that the swarms of the load have its two peers.
fn assert_peers_stayed(daemon: &Daemon) {
    let metrics = daemon.metrics();
    let peers = swarms().len() as f64 * 2.0;
    assert_eq!(metrics.sum("onrush_peers", &["ipv4"]), peers);
    assert_eq!(metrics.sum("onrush_expired_peers_total", &[]), 0.0);
}

/// The kernel refuses each reply with EPERM, which is counted. Requests that a firewall drops or
/// rejects do not reach the tracker, and leave no trace.
#[test]
fn replies_that_a_firewall_refuses_are_counted_and_requests_are_not() {
    for verdict in ["drop", "reject"] {
        in_own_network(&[], || {
            let mut daemon = serve(&["127.0.0.1"]);
            let load = Load::start("127.0.3.6", daemon.address());
            run("nft add table inet fault");
            run("nft add counter inet fault refused");
            run("nft add chain inet fault in { type filter hook input priority 0 ; }");
            let rule = format!("udp dport {PORT} counter name refused {verdict}");
            run(&format!("nft add rule inet fault in {rule}"));
            load.not_served();
            run("nft flush chain inet fault in");
            load.served_again();
            let account = Account::of(&daemon);
            assert_eq!((account.dropped, account.refused, account.unsent), (0, 0, 0));

            run("nft add chain inet fault out { type filter hook output priority 0 ; }");
            run(&format!("nft add rule inet fault out udp sport {PORT} {verdict}"));
            load.not_served();
            load.until("replies are refused", || Account::of(&daemon).unsent >= REFUSED);
            assert_eq!(daemon.get("/health").status, 200);
            run("nft flush chain inet fault out");
            load.served_again();
            let refused = number(&output("nft list counter inet fault refused"), "packets");
            assert!(refused > 0);
            Account::balanced_with(&daemon, load, refused);
            assert_reported(&mut daemon, ERRORS[0]);
            assert_peers_stayed(&daemon);
        });
    }
}

/// Each error that a send call can return, made by a tracer: the replies are counted, later ones
/// are sent, and nothing else is lost.
#[test]
fn replies_that_the_kernel_refuses_are_counted_whatever_the_error() {
    thread::scope(|scope| {
        for (number, reported) in ERRORS.into_iter().enumerate() {
            scope.spawn(move || {
                let flags = ["--workers", "1", "--listen", "127.0.0.1:0"];
                let error = reported[0];
                let strace = failing("sendmmsg", error, "200..250");
                let mut daemon = Launch::new(&flags).admin().under(&strace).serve();
                let load = Load::start(&format!("127.0.4.{number}"), daemon.address());
                load.until("replies are refused", || Account::of(&daemon).unsent > 0);
                load.served_again();
                let account = Account::balanced_with(&daemon, load, 0);
                // After EMSGSIZE a reply is sent again, in fragments.
                assert!(account.unsent >= REFUSED, "{error}: {account:?}");
                assert_reported(&mut daemon, reported);
                assert_peers_stayed(&daemon);
            });
        }
    });
}

/// The queue of the device overflows: the kernel drops what is sent (ENOBUFS inside of it).
#[test]
fn an_overflowing_device_queue_loses_replies_and_nothing_else() {
    Hosts::with(|hosts| {
        let daemon = serve(&TRACKER);
        let load = load_from(hosts, CLIENTS[0], &daemon);
        run("tc qdisc add dev tracker root tbf rate 8kbit burst 1600 limit 1600");
        load.flood(FLOOD);
        let lost = || number(&output("tc -s qdisc show dev tracker"), "(dropped");
        load.until("the queue overflows", || lost() > 0);
        run("tc qdisc del dev tracker root");
        let account = end_served(load, daemon);
        assert_eq!((account.dropped, account.refused), (0, 0), "{account:?}");
    });
}

/// Replies larger than the path's MTU would be refused with EMSGSIZE, as they carry "don't
/// fragment" (decision 14): they are sent in fragments.
#[test]
fn replies_larger_than_the_path_arrive_whole() {
    Hosts::with(|hosts| {
        // The smallest MTU of each family that every host has to accept.
        run("ip route replace 10.9.0.0/24 dev tracker src 10.9.0.1 mtu 576");
        run("ip link set tracker mtu 1280");
        let daemon = serve(&TRACKER);
        let load = load_from(hosts, CLIENTS[0], &daemon);
        for (address, source) in daemon.addresses().iter().zip(CLIENTS) {
            let swarm = hash(7_000 + u32::from(address.is_ipv6()));
            let client = || Client::at(source.parse().unwrap(), *address).connected();
            let client = hosts.on_clients(client);
            for port in 1_000..1_400 {
                client.announce(&seeder(swarm, port).want(0));
            }
            let request = leecher(swarm, 999).want(200);
            let reply = client.exchange(&request.bytes(client.id, transaction()));
            let peers = AnnounceReply::read(&reply, client.family()).peers;
            assert!(reply.len() > 1_200 && peers.len() >= 67, "{peers:?}");
        }
        // Small replies beside them.
        load.end_answered();
        assert_eq!(Account::balanced(&daemon).unsent, 0);
    });
}

const DISABLE_IPV6: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

#[test]
fn service_returns_with_the_link_the_addresses_and_ipv6() {
    Hosts::with(|hosts| {
        let daemon = serve(&TRACKER);
        let loads = CLIENTS.map(|source| load_from(hosts, source, &daemon));
        // Whether IPv4 and IPv6 are lost with each.
        for (what, lost) in
            [("the link", [true, true]), ("the addresses", [true, true]), ("IPv6", [false, true])]
        {
            match what {
                "the link" => run("ip link set tracker down"),
                "the addresses" => run("ip address flush dev tracker scope global"),
                _ => fs::write(DISABLE_IPV6, "1").unwrap(),
            }
            for (load, lost) in loads.iter().zip(lost) {
                if lost { load.not_served() } else { load.served_again() }
            }
            assert_eq!(daemon.get("/health").status, 200, "{what}");
            fs::write(DISABLE_IPV6, "0").unwrap();
            // The kernel removes addresses of IPv6 with the link.
            hosts.set_up("tracker", TRACKER);
            loads.iter().for_each(Load::served_again);
        }
        loads.into_iter().for_each(|load| _ = load.end());
        let account = Account::balanced(&daemon);
        assert_eq!(account.dropped, 0, "{account:?}");
        assert_peers_stayed(&daemon);
    });
}
