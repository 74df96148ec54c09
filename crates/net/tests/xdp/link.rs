//! A link between a server and a client: two veth devices, each in a network namespace of its own.
//!
//! The server has 10.0.0.0/8 and fd00:1::/32, the client 11.0.0.0/8 and fd00:2::/32: a loopback
//! address with its first part replaced.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use onrush_net::bind::{BoundSocket, Buffers, bind_client};
use onrush_net::mio;
use onrush_net::xdp::{Backend, Mode, OpenError, Program, Queue, QueueOptions};

/// The server's device.
pub(crate) const DEVICE: &str = "onrush0";
/// How long anything may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long a queue may be busy: longer than the kernel needs to release it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The link. The thread is in the server's namespace.
pub(crate) struct Link {
    server: File,
    client: File,
    mode: Mode,
    queues: u32,
}

/// Runs `ip` of iproute2 in the namespace of this thread.
pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("`ip` of iproute2 is needed");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A new namespace, in which the thread is from now on.
fn namespace() -> File {
    unshare(CloneFlags::CLONE_NEWNET).expect("run it as root: scripts/xdp-test");
    ip("link set lo up");
    File::open("/proc/thread-self/ns/net").unwrap()
}

/// An address of the client (2) or the server (1) for a loopback address.
fn translate(loopback: &str, side: u8) -> IpAddr {
    match loopback.parse().unwrap() {
        IpAddr::V4(ip) if !ip.is_unspecified() => {
            let [_, b, c, d] = ip.octets();
            IpAddr::from([9 + side, b, c, d])
        }
        IpAddr::V6(ip) if !ip.is_unspecified() => {
            IpAddr::from([0xFD00, side.into(), 0, 0, 0, 0, 0, 1])
        }
        any => any,
    }
}

impl Link {
    pub(crate) fn new(mode: Mode, queues: u32) -> Self {
        let client = namespace();
        let server = namespace();
        let link = Self { server, client, mode, queues };
        link.create();
        link
    }

    /// Creates both devices, with fixed neighbours: no datagram waits until one is resolved.
    pub(crate) fn create(&self) {
        use std::os::fd::AsRawFd;
        let queues = format!("numtxqueues {0} numrxqueues {0}", self.queues);
        let peer = format!("/proc/{}/fd/{}", std::process::id(), self.client.as_raw_fd());
        ip(&format!(
            "link add {DEVICE} address 02:00:00:00:00:01 {queues} type veth peer name onrush1 \
             address 02:00:00:00:00:02 {queues} netns {peer}"
        ));
        configure(DEVICE, 1, 2);
        self.in_the_clients_namespace(|| configure("onrush1", 2, 1));
    }

    /// Does something in the client's namespace.
    pub(crate) fn in_the_clients_namespace<T>(&self, work: impl FnOnce() -> T) -> T {
        setns(&self.client, CloneFlags::CLONE_NEWNET).unwrap();
        let result = work();
        setns(&self.server, CloneFlags::CLONE_NEWNET).unwrap();
        result
    }

    pub(crate) fn server_ip(&self, loopback: &str) -> IpAddr {
        translate(loopback, 1)
    }

    /// The program for some ports, attached to the server's device.
    pub(crate) fn program(&self, ports: impl IntoIterator<Item = u16>) -> Program {
        let mut program = Program::redirect(&[ports.into_iter().collect()]).unwrap();
        let interface = program.attach(DEVICE, self.mode).unwrap();
        program.redirect_queues(interface, 0, self.queues).unwrap();
        program
    }

    /// The queues of the server's device; none while another backend has them.
    pub(crate) fn open(&self, ring: u32, batch: usize) -> Vec<(QueueOptions, Option<Queue>)> {
        let options = |queue| options(queue, ring, batch);
        let open = |queue| match Queue::open(options(queue), PATIENCE) {
            Ok(open) => Some((options(queue), Some(open))),
            Err(OpenError::Busy(..)) => None,
            Err(error) => panic!("{error}"),
        };
        (0..self.queues).filter_map(open).collect()
    }

    /// A client's UDP sockets at the client's addresses, and their addresses with ports.
    pub(crate) fn client(&self, at: &[String]) -> (mio::Backend, Vec<SocketAddr>) {
        let buffers = Buffers { receive: 1 << 20, send: 0 };
        let bind =
            |ip: &String| bind_client(SocketAddr::new(translate(ip, 2), 0), buffers).unwrap().0;
        let sockets: Vec<_> =
            self.in_the_clients_namespace(|| at.iter().map(bind).collect::<Vec<_>>());
        let addresses = sockets.iter().map(BoundSocket::address).collect();
        // A group of datagrams reaches a program in generic mode as one frame.
        let options = mio::Options { segmentation: false, ..mio::Options::default() };
        (mio::Backend::new(sockets, options).unwrap(), addresses)
    }
}

/// A queue of the server's device.
pub(crate) fn options(queue: u32, ring: u32, batch: usize) -> QueueOptions {
    QueueOptions {
        interface: DEVICE.to_owned(),
        queue,
        place: queue,
        ring,
        batch: batch.min(ring as usize),
        zero_copy: false,
        busy_poll: 0,
    }
}

/// Gives a device and its side their addresses, and the way to the other side.
fn configure(device: &str, side: u8, other: u8) {
    ip(&format!("address add 192.0.2.{side}/24 dev {device}"));
    ip(&format!("address add fd00::{side}/64 dev {device} nodad"));
    ip(&format!("address add fd00:{side}::1/128 dev {device} nodad"));
    ip(&format!("link set {device} up"));
    for neighbour in [format!("192.0.2.{other}"), format!("fd00::{other}")] {
        ip(&format!(
            "neighbour replace {neighbour} lladdr 02:00:00:00:00:0{other} dev {device} \
             nud permanent"
        ));
    }
    ip(&format!("route replace local {}.0.0.0/8 dev lo", 9 + side));
    ip(&format!("route add {}.0.0.0/8 via 192.0.2.{other}", 9 + other));
    ip(&format!("-6 route add fd00:{other}::/32 via fd00::{other} dev {device}"));
}

/// Datagrams that wait in the queues of a backend.
pub(crate) fn waiting(backend: &mut Backend) -> usize {
    backend.queues().map(|queue| queue.waiting as usize).sum()
}

/// Calls `done` until it holds.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < end, "not done after {SOON:?}");
        std::thread::yield_now();
    }
}
