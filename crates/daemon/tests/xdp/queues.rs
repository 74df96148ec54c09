//! Announces by AF_XDP: which way they take, and queues that cannot be opened or fail.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use onrush_net::xdp::device::devices;
use onrush_net::xdp::{Queue, QueueOptions};
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::{Daemon, TIMEOUT, connect, eventually, run};
use crate::link::{
    INTERFACE, PORT, QUEUES, client, frames, launch, launch_with, metrics, of_queue,
    open_to_all_users, with_program_of_clients,
};
use crate::sandbox::{CLIENTS, Hosts, TRACKER};

/// Takes a queue of the tracker's interface.
fn take_queue(queue: u32) -> Queue {
    let (interface, place, ring, batch) = (INTERFACE.to_owned(), 0, 64, 64);
    let (zero_copy, busy_poll) = (false, 0);
    let options = QueueOptions { interface, queue, place, ring, batch, zero_copy, busy_poll };
    Queue::open(options, Duration::ZERO).unwrap()
}

/// Both queues and both families; announces reach the owner of their shard from either queue. Each
/// datagram is counted once.
#[test]
fn requests_of_all_queues_are_answered_past_the_network_stack() {
    Hosts::with(|hosts| {
        let daemon = launch("", &format!("{QUEUES}busy_poll = 20\n")).serve();
        let line = "2 AF_XDP queues of 2 workers with 4 MiB";
        assert!(daemon.log().iter().any(|log| log.contains(line)), "{:?}", daemon.log());
        let mut sent = 0;
        // A client's port decides by which queue its requests arrive.
        while sent < 32 || [0, 1].iter().any(|queue| received(&daemon, *queue) == 0) {
            client(hosts, sent % 2).connect_and_check();
            sent += 1;
        }
        let all = 4 * sent as u64;
        eventually("the queues have received and sent all, once", || {
            let metrics = metrics(&daemon);
            let sum = |name: &str| metrics.sum(&format!("onrush_{name}_total"), &[]) as u64;
            ["xdp_queue_received_datagrams", "xdp_queue_sent_datagrams", "xdp_frames", "requests"]
                .map(sum)
                == [all; 4]
        });
        let shards = |way: &str| metrics(&daemon).sum("onrush_shard_requests_total", &[way]);
        assert!(shards("way=\"local\"") > 0.0 && shards("way=\"foreign\"") > 0.0);
        other_traffic_is_the_kernels(hosts);
        daemon.stop();
    });
}

pub(crate) fn received(daemon: &Daemon, queue: u32) -> u64 {
    of_queue(daemon, "received_datagrams_total", queue)
}

/// ICMP, TCP and another UDP port.
fn other_traffic_is_the_kernels(hosts: &Hosts) {
    let [v4, v6] = TRACKER;
    let listener = TcpListener::bind((v4, 0)).unwrap();
    hosts.on_clients(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap();
    let other = UdpSocket::bind((v6, 0)).unwrap();
    other.set_read_timeout(Some(TIMEOUT)).unwrap();
    let sender = hosts.on_clients(|| UdpSocket::bind("[::]:0").unwrap());
    sender.send_to(b"other", other.local_addr().unwrap()).unwrap();
    assert_eq!(other.recv(&mut [0; 16]).unwrap(), 5);
    // Echo, and its checksum (RFC 792).
    let raw = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    let ping = hosts.on_clients(raw);
    ping.set_read_timeout(Some(TIMEOUT)).unwrap();
    let to = SocketAddr::new(v4.parse().unwrap(), 0);
    ping.send_to(&[8, 0, 0xF7, 0xFF, 0, 0, 0, 0], &to.into()).unwrap();
    assert_eq!((&ping).read(&mut [0; 64]).unwrap(), 20 + 8);
}

/// With forwarding on no interface but the loopback device: from the program, and from a worker by
/// its queue.
#[test]
fn replies_go_to_the_next_hop_of_the_routing_table() {
    /// Of which no frame comes.
    const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 9];
    let neighbour = |ip: &str, mac: [u8; 6], device: &str| {
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        run(&format!("ip neighbour replace {ip} lladdr {mac} dev {device} nud permanent"));
    };
    with_program_of_clients(|hosts| {
        let own = devices().unwrap().into_iter().find(|it| it.name == INTERFACE).unwrap().mac;
        CLIENTS.iter().for_each(|ip| neighbour(ip, NEXT_HOP, INTERFACE));
        let mut link = hosts.on_clients(|| {
            TRACKER.iter().for_each(|ip| neighbour(ip, own, "clients"));
            // ETH_P_ALL
            let protocol = Protocol::from(i32::from(3_u16.to_be()));
            Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap()
        });
        link.set_read_timeout(Some(TIMEOUT)).unwrap();
        for (by, verdict, by_queue) in [("driver", "answered", 0), ("workers", "redirected", 2)] {
            let xdp = format!("{QUEUES}replies = \"table\"\nconnects = \"{by}\"\n");
            let mut daemon = launch("", &xdp).serve();
            for (family, port_at) in [14 + 20, 14 + 40].into_iter().enumerate() {
                let sysctl = format!("net/ipv{}/conf/lo/forwarding", [4, 6][family]);
                if verdict == "answered" {
                    daemon.wait_for_line(&format!("sysctl -w {sysctl}=1"));
                }
                fs::write(format!("/proc/sys/{sysctl}"), "1").unwrap();
                client(hosts, family).send(&connect(1));
                let mut frame = [0; 2048];
                while frame[..6] != NEXT_HOP || frame[port_at..port_at + 2] != PORT.to_be_bytes() {
                    assert!(link.read(&mut frame).expect("a reply") > 0);
                }
            }
            let sent = |queue| of_queue(&daemon, "sent_datagrams_total", queue);
            eventually("both are counted", || {
                frames(&daemon, verdict) == 2 && sent(0) + sent(1) == by_queue
            });
            assert_eq!(frames(&daemon, "passed"), 0);
            daemon.stop();
        }
    });
}

#[test]
fn queues_serve_again_after_their_interface_was_down() {
    Hosts::with(|hosts| {
        let daemon = launch("", QUEUES).serve();
        client(hosts, 0).connect_and_check();
        let all = || received(&daemon, 0) + received(&daemon, 1);
        eventually("the requests are counted", || all() == 4);
        run("ip link set tracker down");
        run("ip link set tracker up");
        client(hosts, 0).connected_later().check_swarm();
        eventually("the queues receive", || all() > 4);
        daemon.stop();
    });
}

/// A successor gets it from then on.
#[test]
fn a_queue_of_another_process_is_opened_once_that_has_released_it() {
    Hosts::with(|hosts| {
        let other = take_queue(1);
        let part = "queue 1 of tracker has another AF_XDP socket";
        launch("", &format!("{QUEUES}required = true\n")).run().exits(2, &[part, "nothing was"]);
        let daemon = launch("user = \"nobody\"\nstate_dir = \"HOME/state\"\n", QUEUES);
        let mut daemon = open_to_all_users(daemon).serve();
        daemon.wait_for_line(part);
        assert_eq!(daemon.status("CapEff"), "0000000000000000");
        client(hosts, 0).connect_and_check();
        let open = |daemon: &Daemon| [0, 1].map(|queue| of_queue(daemon, "open", queue));
        eventually("queue 0 is open", || open(&daemon) == [1, 0]);
        drop(other);
        eventually("both are open", || open(&daemon) == [1, 1]);
        daemon.upgrade();
        client(hosts, 0).connect_and_check();
        eventually("both are open", || open(&daemon) == [1, 1]);
        assert_eq!(daemon.stop().text().matches("of tracker is open").count(), 1);
    });
}

#[test]
fn queues_beyond_those_of_the_workers_are_reported() {
    Hosts::with(|_| {
        run("ip link add name many numtxqueues 35 numrxqueues 35 type veth peer name other");
        let xdp = QUEUES.replace("tracker", "many");
        let mut daemon = launch_with(&["--workers", "1"], "", &xdp).serve();
        daemon.wait_for_line("3 of the 35 queues of many have no AF_XDP socket");
        daemon.stop();
    });
}

/// Root, and a process that root has started, have no limit.
#[test]
fn without_locked_memory_sockets_serve() {
    Hosts::with(|hosts| {
        const CAPABILITIES: &str = "+bpf,+net_admin,+net_raw,+perfmon";
        let [inherited, ambient] =
            ["inh", "ambient"].map(|set| format!("--{set}-caps={CAPABILITIES}"));
        let user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"];
        let limited = ["prlimit", "--memlock=65536", "setpriv"].into_iter().chain(user);
        let limited: Vec<_> = limited.chain([inherited.as_str(), ambient.as_str()]).collect();
        let mut daemon = open_to_all_users(launch("", QUEUES)).under(&limited).serve();
        daemon.wait_for_line("needs 2097152 bytes of locked memory, and all sockets of this user");
        client(hosts, 0).connect_and_check();
        daemon.stop();
    });
}
