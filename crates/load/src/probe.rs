//! Probes before a run: whether the target answers a connect, also while it sheds load, and whether
//! a tracker with an allow list serves a certain swarm yet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::connect::REQUEST_LEN;
use onrush_proto::options::Options;
use onrush_proto::{
    Announce, Connect, ConnectionId, Event, Family, InfoHash, PeerId, Response, TransactionId,
    announce,
};

/// Interval between announces to a swarm that is refused.
const RETRY: Duration = Duration::from_millis(50);
/// Number of connects of a probe.
const TRIES: u32 = 5;

/// How long a target is probed.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time of one probe.
    pub probe: Duration,
    /// How long probes of a silent target are repeated. A tracker under overload drops the connects
    /// of a part of all sources; onrush makes another choice every 16 s.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { probe: Duration::from_secs(2), silence: Duration::from_secs(20) }
    }
}

/// Why a target is not usable.
#[derive(Debug)]
pub enum ProbeError {
    /// The host reports that the port is closed (ICMP port unreachable).
    Closed,
    /// No datagram came back.
    Silent,
    /// A datagram came back that is no connect reply.
    NotATracker,
    /// This host cannot send there.
    Unreachable(io::Error),
}

/// Requests a connection id of `target` from `source`, or from the address that routing picks, for
/// `timeout` in all. Returns the source address.
///
/// # Errors
/// Why the target is not usable.
pub fn probe(
    target: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<IpAddr, ProbeError> {
    let (socket, _) = connect(target, source, timeout)?;
    Ok(socket.local_addr().map_err(ProbeError::Unreachable)?.ip())
}

/// [`probe`]s a target until it answers: from the address that routing picks and, where nothing
/// comes back, also from `sources` in turn. Calls `waiting` once before it repeats.
///
/// # Errors
/// Why the target is not usable.
pub fn patiently(
    target: SocketAddr,
    sources: &[IpAddr],
    patience: Patience,
    waiting: impl FnOnce(),
) -> Result<IpAddr, ProbeError> {
    let mut found = probe(target, None, patience.probe);
    if matches!(found, Err(ProbeError::Silent)) {
        waiting();
    }
    let end = Instant::now() + patience.silence;
    let each = sources.iter().copied().map(Some).chain([None]);
    for source in each.cycle() {
        if !matches!(found, Err(ProbeError::Silent)) || Instant::now() >= end {
            break;
        }
        found = probe(target, source, patience.probe / 2);
    }
    found
}

/// Whether `target` serves the swarm of this info hash within `timeout`. Announces a peer until it
/// is accepted, and then its stop, so that no peer remains.
///
/// # Errors
/// When the target answers no connect, or the text is no info hash.
pub fn serves(target: SocketAddr, info_hash: &str, timeout: Duration) -> io::Result<bool> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let info_hash: InfoHash = info_hash.parse().map_err(invalid)?;
    let end = Instant::now() + timeout;
    let (socket, connection_id) =
        connect(target, None, timeout).map_err(|error| io::Error::other(error.advice(target)))?;
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut announce = Announce {
        connection_id,
        transaction_id: TransactionId(0x7365_7276),
        info_hash,
        peer_id: PeerId(*b"-OL0000-probe-000000"),
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
        match socket.send(&request).and_then(|_| receive(&socket, RETRY)) {
            // Any other reply, like an error or a truncated one, is a refusal.
            Ok(reply) if matches!(Response::parse(&reply, family), Ok(Response::Announce(..))) => {
                announce.event = Event::Stopped;
                announce.write(&mut request);
                // A lost stop leaves a peer, which expires.
                let _ = socket.send(&request).and_then(|_| receive(&socket, RETRY));
                return Ok(true);
            }
            #[expect(clippy::disallowed_methods, reason = "a refusal ends without an event")]
            Ok(_) => std::thread::sleep(RETRY),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// A connected socket and a connection id.
fn connect(
    target: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<(UdpSocket, ConnectionId), ProbeError> {
    let source = source.unwrap_or(match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    });
    let family = if target.is_ipv4() { Family::V4 } else { Family::V6 };
    let socket = UdpSocket::bind((source, 0)).map_err(ProbeError::Unreachable)?;
    socket.connect(target).map_err(ProbeError::Unreachable)?;
    let transaction_id = TransactionId(0x6F6E_7273);
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id }.write(&mut request);
    let mut failure = ProbeError::Silent;
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        match socket.send(&request).and_then(|_| receive(&socket, timeout / TRIES)) {
            Ok(reply) => match Response::parse(&reply, family) {
                Ok(Response::Connect(response)) if response.transaction_id == transaction_id => {
                    return Ok((socket, response.connection_id));
                }
                _ => failure = ProbeError::NotATracker,
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failure = ProbeError::Closed;
                // A tracker that is starting may open its port later.
                #[expect(clippy::disallowed_methods, reason = "a port opens without an event")]
                std::thread::sleep(timeout / TRIES);
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(ProbeError::Unreachable(error)),
        }
    }
    Err(failure)
}

fn receive(socket: &UdpSocket, timeout: Duration) -> io::Result<Vec<u8>> {
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

impl ProbeError {
    /// The error with a remedy.
    pub fn advice(&self, target: SocketAddr) -> String {
        let port = target.port();
        let look = format!("try: ss -lun 'sport = :{port}'");
        match self {
            Self::Closed => format!(
                "nothing listens on {target} (UDP): start a tracker there, or name the right \
                 address ({look})"
            ),
            Self::Silent => format!(
                "{target} does not answer a connect request: check that it is a UDP tracker and \
                 that no firewall drops UDP ({look}, and: tcpdump -ni any udp port {port}). A \
                 tracker under overload may shed connects: try again in a minute, or configure \
                 overload.drop_share = 0 in onrush to measure it"
            ),
            Self::NotATracker => format!(
                "{target} answers, but not as a UDP tracker (BEP 15): check which service listens \
                 there ({look} -p)"
            ),
            Self::Unreachable(cause) => {
                format!("{target} is unreachable: {cause} (try: ip route get {})", target.ip())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::ConnectionId;
    use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};
    use std::thread::JoinHandle;

    /// The time of a probe that ends in silence.
    const SHORT: Duration = Duration::from_millis(300);
    /// The time of a probe that takes all of it and gets a datagram: a busy host may be late.
    const LONG: Duration = Duration::from_secs(4);
    /// The time of a probe that ends with its reply.
    const PATIENT: Duration = Duration::from_secs(120);

    /// A port where requests are answered; those with `None` are not. An empty datagram ends the
    /// thread, and each answer that `is_last`.
    fn answering(
        mut answer: impl FnMut(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
        is_last: impl Fn(&[u8]) -> bool + Send + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut request = [0; 256];
            loop {
                let (len, client) = socket.recv_from(&mut request).unwrap();
                let request = &request[..len];
                if let Some(reply) = answer(request, client) {
                    socket.send_to(&reply, client).unwrap();
                }
                if request.is_empty() || is_last(request) {
                    break;
                }
            }
        });
        (address, thread)
    }

    #[test]
    fn a_closed_port_is_reported() {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let dead = probe(target, None, LONG).unwrap_err();
        assert!(matches!(dead, ProbeError::Closed), "{dead:?}");
        assert!(dead.advice(target).contains(&target.to_string()));
        let dead = serves(target, &"ab".repeat(20), LONG).unwrap_err().to_string();
        assert!(dead.contains("nothing listens"), "{dead}");
    }

    #[test]
    fn a_silent_port_is_reported_with_shedding_as_a_cause() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = silent.local_addr().unwrap();
        let patience = Patience { probe: SHORT, silence: SHORT };
        let mut waited = 0;
        let dead = patiently(target, &[], patience, || waited += 1).unwrap_err();
        assert!(matches!(dead, ProbeError::Silent), "{dead:?}");
        assert_eq!(waited, 1);
        assert!(dead.advice(target).contains("overload.drop_share = 0"));
    }

    /// A tracker that sheds load answers some sources only: here none of the first probe.
    #[test]
    fn other_sources_are_tried_where_nothing_comes_back() {
        let served: IpAddr = "127.0.0.9".parse().unwrap();
        let answer = move |request: &[u8], client: SocketAddr| {
            (client.ip() == served && !request.is_empty()).then(|| connect_reply(request))
        };
        let (target, thread) = answering(answer, |_| false);
        let sources = ["127.0.0.8".parse().unwrap(), served];
        let patience = Patience { probe: SHORT, silence: PATIENT };
        let found = patiently(target, &sources, patience, || ()).unwrap();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], target).unwrap();
        thread.join().unwrap();
        assert_eq!(found, served);
    }

    #[test]
    fn a_closed_port_needs_no_patience() {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = SocketAddr::from(([127, 0, 0, 1], port));
        let patience = Patience { probe: LONG, silence: Duration::from_secs(3600) };
        let dead = patiently(target, &[], patience, || panic!("it waits")).unwrap_err();
        assert!(matches!(dead, ProbeError::Closed), "{dead:?}");
    }

    fn connect_reply(request: &[u8]) -> Vec<u8> {
        let transaction = u32::from_be_bytes(*request[12..].first_chunk().unwrap());
        let mut reply = [0; RESPONSE_LEN];
        let transaction_id = TransactionId(transaction);
        ConnectResponse { transaction_id, connection_id: ConnectionId(9) }.write(&mut reply);
        reply.to_vec()
    }

    #[test]
    fn a_tracker_answers_and_the_source_is_returned() {
        let (target, thread) = answering(|request, _| Some(connect_reply(request)), |_| true);
        let source = "127.0.0.9".parse().unwrap();
        let found = probe(target, Some(source), PATIENT).unwrap();
        thread.join().unwrap();
        assert_eq!(found, source);
    }

    /// A tracker that refuses its first announces, as while it reads its allow list.
    #[test]
    fn serves_waits_for_the_swarm() {
        const EVENT: usize = 83;
        let mut announces = 0;
        let answer = move |request: &[u8], _| {
            let is_connect = request.len() == REQUEST_LEN;
            let mut reply = vec![0; if is_connect { RESPONSE_LEN } else { 20 }];
            reply[4..8].copy_from_slice(&request[12..16]);
            if !is_connect {
                announces += 1;
                reply[3] = 1;
                assert_eq!(request[16..36], [0xAB; 20]);
                // An announce whose reply is late is repeated.
                assert!(request[EVENT] == 2 || request[EVENT] == 3 && announces > 3, "the event");
                if announces < 3 {
                    reply.truncate(8);
                }
            }
            Some(reply)
        };
        let (target, thread) = answering(answer, |request| request.get(EVENT) == Some(&3));
        assert!(serves(target, &"ab".repeat(20), PATIENT).unwrap());
        thread.join().unwrap();
        assert!(serves(target, "ab", SHORT).is_err(), "no info hash");
    }

    #[test]
    fn another_service_is_reported() {
        let (target, thread) = answering(|_, _| Some(b"hello".to_vec()), |_| true);
        let dead = probe(target, None, LONG);
        thread.join().unwrap();
        // The port closes after the reply.
        assert!(matches!(dead, Err(ProbeError::NotATracker | ProbeError::Closed)), "{dead:?}");
    }
}
