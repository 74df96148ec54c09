//! The program attached to a pair of veth devices, each in a network namespace of its own. No
//! socket listens at the tracker's address, so only the program can answer.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use onrush_net::clock::monotonic;
use onrush_net::xdp::{AttachError, Mode};
use onrush_proto::connect::{REQUEST_LEN, RESPONSE_LEN};
use onrush_proto::{Connect, TransactionId};
use onrush_tracker::xdp::{Place, XdpIntake};

use crate::host::{ANSWERING, Host, NOW, OWN_MAC, PORT};

/// The tracker's device and the client's.
const DEVICES: [&str; 2] = ["onrush0", "onrush1"];
/// The tracker's address and the client's, of each family.
const ADDRESSES: [[&str; 2]; 2] = [["198.18.0.1", "198.18.0.2"], ["2001:2::1", "2001:2::2"]];
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `ip` of iproute2 in the namespace of this thread.
fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("`ip` of iproute2 is needed");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Gives the device with this number its addresses.
fn configure(number: usize) {
    for (addresses, length) in ADDRESSES.iter().zip([24, 64]) {
        let flag = if length == 64 { " nodad" } else { "" };
        ip(&format!("address add {}/{length} dev {}{flag}", addresses[number], DEVICES[number]));
    }
    ip(&format!("link set {} up", DEVICES[number]));
}

/// What the client does with a connect request: the reply, or none where the port is closed.
type Reply = Option<[u8; RESPONSE_LEN]>;

/// The client: sends each request that it is told to, and returns the reply.
fn client(requests: &Receiver<usize>, ready: &Sender<i32>, replies: &Sender<Reply>) {
    unshare(CloneFlags::CLONE_NEWNET).expect("run it as root: scripts/xdp-test");
    ready.send(gettid().as_raw()).unwrap();
    // The device has come.
    requests.recv().unwrap();
    configure(1);
    // What a program transmits reaches a veth device only where that has a program as well.
    let mut program = XdpIntake::load().unwrap();
    program.attach(DEVICES[1], Mode::Native).unwrap();
    ready.send(0).unwrap();
    while let Ok(family) = requests.recv() {
        let [to, from] = ADDRESSES[family].map(|ip| ip.parse::<IpAddr>().unwrap());
        replies.send(connect((to, PORT).into(), from)).unwrap();
    }
}

fn connect(to: SocketAddr, from: IpAddr) -> Reply {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id: TransactionId(7) }.write(&mut request);
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        // An error is that of an earlier request.
        let _ = socket.send(&request);
        let mut reply = [0; RESPONSE_LEN + 1];
        match socket.recv(&mut reply) {
            Ok(len) => return Some(reply[..len].try_into().unwrap()),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
            Err(_) => {}
        }
    }
    panic!("no reply from {to}");
}

#[test]
fn connects_over_a_link_are_answered_while_the_program_is_attached() {
    unshare(CloneFlags::CLONE_NEWNET).expect("run it as root: scripts/xdp-test");
    let (request, requests) = channel();
    let (ready, readiness) = channel();
    let (reply, replies) = channel();
    let client = thread::spawn(move || client(&requests, &ready, &reply));
    let thread = readiness.recv_timeout(TIMEOUT).unwrap();
    let [own, other] = DEVICES;
    let mac = OWN_MAC.map(|byte| format!("{byte:02x}")).join(":");
    ip(&format!("link add {own} address {mac} type veth peer name {other} netns {thread}"));
    configure(0);
    request.send(0).unwrap();
    readiness.recv_timeout(TIMEOUT).unwrap();

    let mut host = Host::new("");
    let interface = host.program.attach(own, Mode::Native).unwrap();
    for addresses in ADDRESSES {
        let address = SocketAddr::new(addresses[0].parse().unwrap(), PORT);
        host.program.serve(&Place { interface, vlan: 0, address }, OWN_MAC, 0).unwrap();
    }
    host.renew_as_of(ANSWERING, monotonic());
    for (family, addresses) in ADDRESSES.iter().enumerate() {
        request.send(family).unwrap();
        let reply = replies.recv_timeout(2 * TIMEOUT).unwrap().expect("a reply");
        let id = host.ids.issue(addresses[1].parse::<IpAddr>().unwrap(), NOW);
        assert_eq!(reply[..8], [0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(reply[8..], id.0.to_be_bytes());
    }
    let counters = host.program.counters(0).unwrap();
    assert!(counters.v4.answered > 0 && counters.v6.answered > 0, "{counters:?}");

    let mut second = XdpIntake::load().unwrap();
    let occupied = second.attach(own, Mode::Native).unwrap_err();
    assert!(
        matches!(&occupied, AttachError::Occupied(name, by)
        if name == own && by.starts_with("id ") && by.ends_with(", onrush")),
        "{occupied:?}"
    );
    drop(host);
    request.send(0).unwrap();
    assert_eq!(replies.recv_timeout(2 * TIMEOUT).unwrap(), None, "the port is closed");
    drop(request);
    client.join().unwrap();
}

#[test]
fn an_interface_that_cannot_have_the_program_is_named() {
    let mut program = XdpIntake::load().expect("run it as root: scripts/xdp-test");
    let missing = program.attach("onrush9", Mode::Native).unwrap_err();
    assert!(matches!(&missing, AttachError::NoInterface(name) if name == "onrush9"));
    let loopback = program.attach("lo", Mode::Native).unwrap_err();
    assert!(matches!(&loopback, AttachError::NoNative(name, _) if name == "lo"), "{loopback:?}");
}
