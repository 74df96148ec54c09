//! The worth of each lever of the receive and send path: a server that answers every datagram, one
//! per lever, and clients, all in one thread over loopback.
//!
//! ```text
//! cargo run --release -p onrush-lab --bin levers -- [rounds] [name of one lever ...]
//! ```
//!
//! In every round each server in turn gets 512 requests and answers them; only its receiving and
//! sending is timed. A lever's ratio is taken round by round against the base (the tracker's own
//! options), so that other load on the machine affects both alike. Two kinds of traffic: *spread*,
//! where no client sends twice, and *repeating*, 16 clients with 32 requests each, sent in one
//! call. `scripts/bench-levers` generates the table of docs/benchmarks/levers.md from this.

#![allow(unsafe_code, reason = "compared with raw system calls")]

mod raw;
mod uring;

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use onrush_lab::measure::quantile;
use onrush_net::bind::{Address, BoundSocket, Buffers, bind_client, bind_group};
use onrush_net::mio::{Backend, Options};
use onrush_net::{Reply, Return, Socket, bind};

/// Requests in a round.
const REQUESTS: usize = 512;
/// Bytes of a request, like a usual announce.
const REQUEST: [u8; 98] = [7; 98];
/// Bytes of a reply, like that to the only announcer of a swarm.
const REPLY: [u8; 20] = [3; 20];
/// The tracker's default buffer sizes.
const BUFFERS: Buffers = Buffers { receive: 4 << 20, send: 1 << 20 };

/// An option or call that may make receiving and sending cheaper.
#[derive(Clone, Copy)]
struct Lever {
    name: &'static str,
    options: Options,
    /// Listen on the wildcard address, so that each datagram reports its local address.
    wildcard: bool,
    buffers: Buffers,
    /// Socket options: level, name, value.
    socket: &'static [(libc::c_int, libc::c_int, libc::c_int)],
    /// Registered with epoll all the time.
    registered: bool,
    way: Way,
}

/// The system calls in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Those of the network backend.
    Backend,
    /// Direct ones, with and without MSG_ZEROCOPY.
    Raw { zero_copy: bool },
    /// io_uring's.
    Uring,
}

/// Those of the tracker.
fn base() -> Lever {
    Lever {
        name: "base",
        options: Options::default(),
        wildcard: false,
        buffers: BUFFERS,
        socket: &[],
        registered: false,
        way: Way::Backend,
    }
}

/// All levers, the base first.
fn levers() -> Vec<Lever> {
    let mut all = vec![base(), Lever { name: "base again", ..base() }];
    let batches =
        [(1, "batch 1"), (8, "batch 8"), (32, "batch 32"), (64, "batch 64"), (256, "batch 256")];
    for (batch, name) in batches {
        all.push(Lever { name, options: Options { batch, ..Options::default() }, ..base() });
    }
    let options = |name, options| Lever { name, options, ..base() };
    all.push(options("a call per datagram", Options { portable: true, ..Options::default() }));
    let segmentation = Options { segmentation: false, ..Options::default() };
    all.push(options("no UDP_SEGMENT", segmentation));
    all.push(options("UDP_GRO", Options { coalesced: true, ..Options::default() }));
    all.push(Lever { name: "IP_PKTINFO (wildcard)", wildcard: true, ..base() });
    all.push(Lever { name: "registered with epoll", registered: true, ..base() });
    let buffers = |name, buffers| Lever { name, buffers, ..base() };
    all.push(buffers("SO_SNDBUF 64 kB", Buffers { send: 64 << 10, ..BUFFERS }));
    all.push(buffers("SO_SNDBUF 16 MB", Buffers { send: 16 << 20, ..BUFFERS }));
    let socket = |name, socket| Lever { name, socket, ..base() };
    use libc::{IPPROTO_IP, SOL_SOCKET};
    const WANT: libc::c_int = libc::IP_PMTUDISC_WANT;
    all.extend([
        socket("identification (PMTUDISC_WANT)", &[(IPPROTO_IP, libc::IP_MTU_DISCOVER, WANT)]),
        socket("SO_RXQ_OVFL", &[(SOL_SOCKET, libc::SO_RXQ_OVFL, 1)]),
        socket("SO_BUSY_POLL 50", &[(SOL_SOCKET, libc::SO_BUSY_POLL, 50)]),
        socket(
            "SO_PREFER_BUSY_POLL",
            &[(SOL_SOCKET, libc::SO_BUSY_POLL, 50), (SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, 1)],
        ),
        socket("SO_INCOMING_CPU 0", &[(SOL_SOCKET, libc::SO_INCOMING_CPU, 0)]),
        socket("SO_NO_CHECK", &[(SOL_SOCKET, libc::SO_NO_CHECK, 1)]),
        socket("SO_PRIORITY 6", &[(SOL_SOCKET, libc::SO_PRIORITY, 6)]),
        socket("IP_TOS 0x10", &[(IPPROTO_IP, libc::IP_TOS, 0x10)]),
    ]);
    let bare = Way::Raw { zero_copy: false };
    all.push(Lever { name: "bare recvmmsg and sendmmsg", way: bare, ..base() });
    all.push(Lever {
        name: "bare, MSG_ZEROCOPY",
        socket: &[(SOL_SOCKET, libc::SO_ZEROCOPY, 1)],
        way: Way::Raw { zero_copy: true },
        ..base()
    });
    all.push(Lever { name: "io_uring", way: Way::Uring, ..base() });
    all
}

/// Receives and sends.
trait Serve {
    /// Answers all available requests; returns their number.
    fn serve(&mut self) -> Result<u64, Box<dyn Error>>;
}

impl Serve for Backend {
    fn serve(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut sent = 0;
        let mut replies = [Return::to(([0; 4], 0).into(), 0); 256];
        loop {
            let batch = self.receive(replies.len())?;
            if batch.is_empty() {
                return Ok(sent);
            }
            let count = batch.len();
            for (reply, (_, slot)) in replies.iter_mut().zip(batch.iter()) {
                *reply = slot.reply_to;
            }
            let to_all = replies[..count].iter();
            sent += self.send(to_all.map(|to| Reply { bytes: &REPLY, to })).datagrams;
        }
    }
}

/// A server with its lever.
struct Server {
    way: Box<dyn Serve>,
    address: SocketAddr,
    /// Keeps the registration alive.
    _poll: Option<Poll>,
    /// Nanoseconds per reply of each round.
    times: Vec<f64>,
}

impl Server {
    fn start(lever: &Lever) -> Result<Self, Box<dyn Error>> {
        let host = if lever.wildcard { "0.0.0.0:0" } else { "127.0.0.1:0" };
        let wanted = Address { address: host.parse()?, optional: false };
        let options = bind::Options { workers: 1, buffers: lever.buffers, probe: true };
        let mut group = bind_group(&[wanted], &options)?;
        let mut sockets = group.workers.remove(0);
        for &(level, name, value) in lever.socket {
            set_option(&sockets[0], level, name, value)?;
        }
        let poll = lever.registered.then(|| register(&sockets[0])).transpose()?;
        let port = group.addresses[0].port();
        let way: Box<dyn Serve> = match lever.way {
            Way::Backend => Box::new(Backend::new(sockets, lever.options)?),
            Way::Raw { zero_copy } => Box::new(raw::Raw::new(sockets.remove(0), zero_copy)),
            Way::Uring => Box::new(uring::Uring::new(sockets.remove(0))?),
        };
        let address = ([127, 0, 0, 1], port).into();
        Ok(Self { way, address, _poll: poll, times: Vec::new() })
    }
}

/// Sets an option that no wrapper offers.
fn set_option(
    socket: &BoundSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> std::io::Result<()> {
    let (len, value) = (size_of::<libc::c_int>() as libc::socklen_t, &raw const value);
    // SAFETY: the kernel reads `len` bytes at `value`, which is an int of that size.
    // Reason: these options are used only in this experiment, so our wrappers do not have them.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value.cast(), len) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Registers a socket as an event loop would.
fn register(socket: &BoundSocket) -> std::io::Result<Poll> {
    let poll = Poll::new()?;
    let fd = socket.as_fd().as_raw_fd();
    poll.registry().register(&mut SourceFd(&fd), Token(0), Interest::READABLE)?;
    Ok(poll)
}

/// Sends requests, lets a server answer, and records the time of that.
fn round(server: &mut Server, client: &mut Backend, clients: usize) -> Result<(), Box<dyn Error>> {
    let to: Vec<_> = (0..clients).map(|n| Return::to(server.address, n as u16)).collect();
    let each = REQUESTS / clients;
    let all = to.iter().flat_map(|to| std::iter::repeat_n(to, each));
    client.send(all.map(|to| Reply { bytes: &REQUEST, to }));
    let start = Instant::now();
    let sent = server.way.serve()?;
    let taken = start.elapsed();
    server.times.push(taken.as_nanos() as f64 / sent.max(1) as f64);
    let mut received = 0;
    loop {
        client.wait(Duration::ZERO)?;
        match client.receive(usize::MAX)?.len() {
            0 => break,
            count => received += count,
        }
    }
    if (sent, received) != (REQUESTS as u64, REQUESTS) {
        return Err(format!("{sent} replies were sent and {received} received").into());
    }
    Ok(())
}

/// Measures all levers and prints the table.
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(400), |text| text.parse())?;
    let named: Vec<String> = arguments.collect();
    let mut levers = levers();
    levers.retain(|l| named.is_empty() || l.name == "base" || named.iter().any(|n| n == l.name));
    println!("| lever | spread: ratio to base | repeating: ratio to base |\n|---|---|---|");
    let mut columns = Vec::new();
    for clients in [REQUESTS, 16] {
        let mut sockets = Vec::new();
        for n in 0..clients {
            let source = format!("127.1.{}.{}:0", n / 250, n % 250 + 1).parse()?;
            sockets.push(bind_client(source, Buffers { receive: 1 << 20, send: 1 << 20 })?.0);
        }
        let mut client =
            Backend::new(sockets, Options { coalesced: true, batch: 1024, ..Options::default() })?;
        let mut servers = levers.iter().map(Server::start).collect::<Result<Vec<_>, _>>()?;
        for number in 0..rounds + rounds / 10 {
            // Each lever begins a round equally often.
            for n in 0..servers.len() {
                let at = (n + number) % levers.len();
                round(&mut servers[at], &mut client, clients)?;
            }
        }
        // The first tenth warms up the caches.
        servers.iter_mut().for_each(|server| drop(server.times.drain(..rounds / 10)));
        columns.push(servers);
    }
    for (n, lever) in levers.iter().enumerate() {
        let cells = columns.iter().map(|servers| {
            let ratios = servers[n].times.iter().zip(&servers[0].times);
            let mut ratios: Vec<f64> = ratios.map(|(this, base)| this / base).collect();
            let mut times = servers[n].times.clone();
            ratios.sort_by(f64::total_cmp);
            times.sort_by(f64::total_cmp);
            let [low, mid, high] = [0.25, 0.5, 0.75].map(|share| quantile(&ratios, share));
            let time = quantile(&times, 0.5);
            format!("{mid:.3} [{low:.3} to {high:.3}], {time:.0} ns")
        });
        println!("| {} | {} |", lever.name, cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}
