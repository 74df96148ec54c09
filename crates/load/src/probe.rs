//! Whether anybody answers at all, before any load is made: one connect, repeated a few times; and
//! whether a tracker that serves listed swarms only has come to a certain one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::connect::REQUEST_LEN;
use onrush_proto::options::Options;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, TransactionId,
    announce,
};

/// After which a refused swarm is asked for again.
const AGAIN: Duration = Duration::from_millis(50);
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
    let (socket, _) = connect(target, source, patience)?;
    Ok(socket.local_addr().map_err(Dead::Unreachable)?.ip())
}

/// Whether `target` serves the swarm of this info hash before `patience` is over: announces a peer again
/// and again, and once it was taken, that it stops, so that nothing of it stays.
///
/// # Errors
/// When it answers no connect, or the text is no info hash.
pub fn serves(target: SocketAddr, info_hash: &str, patience: Duration) -> io::Result<bool> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let info_hash: InfoHash = info_hash.parse().map_err(invalid)?;
    let end = Instant::now() + patience;
    let (socket, connection_id) =
        connect(target, None, patience).map_err(|dead| io::Error::other(dead.advice(target)))?;
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut announce = Announce {
        connection_id,
        transaction_id: TransactionId(0x7365_7276),
        info_hash,
        peer_id: PeerId(*b"-OL0000-is it there?"),
        downloaded: 0,
        left: 0,
        uploaded: 0,
        event: Event::Started,
        ip: 0,
        key: 0,
        num_want: 0,
        port: 9,
        options: Options(&[]),
    };
    let mut request = [0; announce::REQUEST_LEN];
    announce.write(&mut request);
    while Instant::now() < end {
        match socket.send(&request).and_then(|_| answer(&socket, AGAIN)) {
            // What is no announce response, as an error or a reply cut short, is a refusal.
            Ok(reply) if matches!(Response::parse(&reply, family), Ok(Response::Announce(..))) => {
                announce.event = Event::Stopped;
                announce.write(&mut request);
                // That it is served is known; one peer more in a swarm is no reason to fail.
                let _ = socket.send(&request).and_then(|_| answer(&socket, AGAIN));
                return Ok(true);
            }
            Ok(_) => std::thread::sleep(AGAIN),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// A socket that `target` has given a connection id to.
fn connect(
    target: SocketAddr,
    source: Option<IpAddr>,
    patience: Duration,
) -> Result<(UdpSocket, ConnectionId), Dead> {
    let source = source.unwrap_or(match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    });
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let socket = UdpSocket::bind((source, 0)).map_err(Dead::Unreachable)?;
    socket.connect(target).map_err(Dead::Unreachable)?;
    let transaction_id = TransactionId(0x6F6E_7273);
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id }.write(&mut request);
    let mut dead = Dead::Silent;
    let end = Instant::now() + patience;
    while Instant::now() < end {
        match socket.send(&request).and_then(|_| answer(&socket, patience / TRIES)) {
            Ok(reply) => match Response::parse(&reply, family) {
                Ok(Response::Connect(response)) if response.transaction_id == transaction_id => {
                    return Ok((socket, response.connection_id));
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

    /// A tracker that refuses its first announces, as one does that still reads its list.
    #[test]
    fn a_swarm_is_waited_for() {
        let tracker = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = tracker.local_addr().unwrap();
        tracker.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut request, mut announces) = ([0; 256], 0);
            while announces < 4 {
                let (len, client) = tracker.recv_from(&mut request).unwrap();
                let mut reply = vec![0; if len == REQUEST_LEN { RESPONSE_LEN } else { 20 }];
                reply[4..8].copy_from_slice(&request[12..16]);
                if len > REQUEST_LEN {
                    announces += 1;
                    reply[3] = 1;
                    assert_eq!(request[16..36], [0xAB; 20]);
                    assert_eq!(request[83], if announces < 4 { 2 } else { 3 }, "the event");
                    if announces < 3 {
                        reply.truncate(8);
                    }
                }
                tracker.send_to(&reply, client).unwrap();
            }
        });
        let hash = "ab".repeat(20);
        assert!(serves(target, &hash, Duration::from_secs(5)).unwrap());
        thread.join().unwrap();
        assert!(serves(target, "ab", PATIENCE).is_err(), "no info hash");
        let dead = serves(target, &hash, PATIENCE).unwrap_err().to_string();
        assert!(dead.contains("nobody listens"), "{dead}");
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
