//! Whether anything answers at the target, before the checks start. A wrong reply and a reply from
//! another port count as answers: the checks report what is wrong with them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::message::connect_request;

/// How long each of the connect requests is waited for.
const WAIT: Duration = Duration::from_millis(500);
/// The time for a first reply, where the checks depend on it. A tracker under overload drops the
/// connects of a part of all sources; onrush makes another choice every 16 s.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The time for a closed port to open, and for the address of the other family to answer.
pub(crate) const BRIEFLY: Duration = Duration::from_secs(3);

/// Why the checks cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The host reports that the port is closed (ICMP port unreachable).
    #[error(
        "nothing listens on {0} (UDP): start a tracker there or name the right address (try: \
         ss -lun 'sport = :{port}')",
        port = .0.port()
    )]
    Closed(SocketAddr),
    /// No datagram came back.
    #[error(
        "{0} does not answer a connect request: check that it is a UDP tracker and that no \
         firewall drops UDP (try: ss -lun 'sport = :{port}', and: tcpdump -ni any udp port \
         {port}). A tracker under overload may shed connects: try again in a minute",
        port = .0.port()
    )]
    Silent(SocketAddr),
    /// This host cannot send there.
    #[error("{0} is unreachable: {1} (try: ip route get {ip})", ip = .0.ip())]
    NoRoute(SocketAddr, #[source] io::Error),
}

/// Sends connect requests from `source`, or from the address that routing picks, until a datagram
/// comes back from the target's address. Returns the source address.
///
/// # Errors
/// When none comes back within `patience`, or the port is closed for three seconds.
pub fn check(
    target: SocketAddr,
    source: Option<IpAddr>,
    patience: Duration,
) -> Result<IpAddr, Unreachable> {
    let no_route = |error| Unreachable::NoRoute(target, error);
    let local = source.map_or_else(|| route_to(target), Ok).map_err(no_route)?;
    // A connected socket reports a closed port; the other one sees replies from another port.
    let connected = UdpSocket::bind((local, 0)).map_err(no_route)?;
    connected.connect(target).map_err(no_route)?;
    let any_port = UdpSocket::bind((local, 0)).map_err(no_route)?;
    let begin = Instant::now();
    let mut closed = false;
    for attempt in 0.. {
        let patience = if closed { patience.min(BRIEFLY) } else { patience };
        if begin.elapsed() >= patience {
            break;
        }
        let end = Instant::now() + WAIT;
        let reply = match attempt % 2 {
            0 => connected.send(&connect_request()).and_then(|_| receive(&connected, target)),
            _ => any_port
                .send_to(&connect_request(), target)
                .and_then(|_| receive(&any_port, target)),
        };
        match reply {
            Ok(true) => return Ok(local),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                closed = true;
                // A tracker that is starting may open its port later.
                #[expect(clippy::disallowed_methods, reason = "a port opens without an event")]
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            }
            Err(error) => return Err(no_route(error)),
        }
    }
    Err(if closed { Unreachable::Closed(target) } else { Unreachable::Silent(target) })
}

/// Whether a datagram of the target's address arrives in time.
fn receive(socket: &UdpSocket, target: SocketAddr) -> io::Result<bool> {
    socket.set_read_timeout(Some(WAIT))?;
    match socket.recv_from(&mut [0; 64]) {
        Ok((_, from)) => Ok(from.ip() == target.ip()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(error),
        Err(_) => Ok(false),
    }
}

/// The address of this host that routing picks for datagrams to `target`.
fn route_to(target: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}
