//! Whether anybody answers at all, before any load is made: one connect, repeated a few times.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::connect::REQUEST_LEN;
use onrush_proto::{Connect, Family, Response, TransactionId};

/// How often a connect is repeated.
const TRIES: u32 = 5;

/// Why a target is taken for dead.
#[derive(Debug)]
pub enum Dead {
    /// The host says that nobody has this port.
    Closed,
    /// Nothing came back.
    Silent,
    /// Something came back that is no connect response.
    Babbling,
    /// It cannot even be asked.
    Unreachable(io::Error),
}

/// Asks `target` for a connection id from `source`, or from where routing says, and waits for
/// `patience` in all. Returns the address that the question came from.
///
/// # Errors
/// Why it is taken for dead.
pub fn probe(
    target: SocketAddr,
    source: Option<IpAddr>,
    patience: Duration,
) -> Result<IpAddr, Dead> {
    let source = source.unwrap_or(match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    });
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let socket = UdpSocket::bind((source, 0)).map_err(Dead::Unreachable)?;
    socket.connect(target).map_err(Dead::Unreachable)?;
    let local = socket.local_addr().map_err(Dead::Unreachable)?.ip();
    let transaction_id = TransactionId(0x6F6E_7273);
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id }.write(&mut request);
    let mut dead = Dead::Silent;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match socket.send(&request).and_then(|_| answer(&socket, patience / TRIES)) {
            Ok(reply) => match Response::parse(&reply, family) {
                Ok(Response::Connect(response)) if response.transaction_id == transaction_id => {
                    return Ok(local);
                }
                _ => dead = Dead::Babbling,
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                dead = Dead::Closed;
                // A tracker that has just been started may need a moment.
                std::thread::sleep(patience / TRIES);
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(Dead::Unreachable(error)),
        }
    }
    Err(dead)
}

fn answer(socket: &UdpSocket, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut reply = vec![0; 2048];
    socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    let len = socket.recv(&mut reply)?;
    reply.truncate(len);
    Ok(reply)
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | Interrupted)
}

impl Dead {
    /// A sentence with what to try next.
    pub fn advice(&self, target: SocketAddr) -> String {
        let port = target.port();
        let look = format!("try: ss -lun 'sport = :{port}'");
        match self {
            Self::Closed => format!(
                "nobody listens on {target} (UDP): start a tracker there, or name the right \
                 address with --target ({look})"
            ),
            Self::Silent => format!(
                "{target} does not answer a connect request: is it a UDP tracker, and does a \
                 firewall let UDP through? ({look}, and on the way: tcpdump -ni any udp port {port})"
            ),
            Self::Babbling => format!(
                "{target} answers, but not as a UDP tracker (BEP 15) does: is another service \
                 listening there? ({look} -p)"
            ),
            Self::Unreachable(cause) => {
                format!("{target} cannot be reached: {cause} (try: ip route get {})", target.ip())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::ConnectionId;
    use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};

    const PATIENCE: Duration = Duration::from_millis(300);

    #[test]
    fn a_closed_port_is_closed() {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let dead = probe(target, None, PATIENCE).unwrap_err();
        assert!(matches!(dead, Dead::Closed), "{dead:?}");
        assert!(dead.advice(target).contains(&target.to_string()));
    }

    #[test]
    fn a_silent_port_is_silent() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let dead = probe(silent.local_addr().unwrap(), None, PATIENCE).unwrap_err();
        assert!(matches!(dead, Dead::Silent), "{dead:?}");
    }

    #[test]
    fn a_tracker_answers_and_tells_our_address() {
        let tracker = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = tracker.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut request = [0; 64];
            let (_, client) = tracker.recv_from(&mut request).unwrap();
            let transaction = u32::from_be_bytes(*request[12..].first_chunk().unwrap());
            let mut reply = [0; RESPONSE_LEN];
            let transaction_id = TransactionId(transaction);
            ConnectResponse { transaction_id, connection_id: ConnectionId(9) }.write(&mut reply);
            tracker.send_to(&reply, client).unwrap();
        });
        let source = "127.0.0.9".parse().unwrap();
        let found = probe(target, Some(source), Duration::from_secs(5)).unwrap();
        thread.join().unwrap();
        assert_eq!(found, source);
    }

    #[test]
    fn another_service_is_told_apart() {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = other.local_addr().unwrap();
        other.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let thread = std::thread::spawn(move || {
            let mut request = [0; 64];
            let (_, client) = other.recv_from(&mut request).unwrap();
            other.send_to(b"hello", client).unwrap();
        });
        let dead = probe(target, None, PATIENCE);
        thread.join().unwrap();
        // After its one word the port closes.
        assert!(matches!(dead, Err(Dead::Babbling | Dead::Closed)), "{dead:?}");
    }
}
