//! Tests that a tracker answers connect requests, before checks or a load start.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onrush_proto::{Connect, Family, Response, TransactionId, connect::REQUEST_LEN};

use crate::exchange::{receive, report_refusals, send};
use crate::target::unspecified;

/// How long each of the connect requests is waited for.
const WAIT: Duration = Duration::from_millis(500);
/// The time for a closed port to open: a tracker may be starting.
const OPENING: Duration = Duration::from_secs(3);
/// The time for one source address of several.
const TURN: Duration = Duration::from_secs(1);
/// The time for a first reply, where all that follows depends on it: a tracker under overload loses
/// requests.
pub const REACH_TIMEOUT: Duration = Duration::from_secs(20);
/// The transaction id of the requests: a late reply to an earlier one counts too.
const TRANSACTION: TransactionId = TransactionId(0x6F6E_7273);
/// The time for the address of the other family to answer.
pub(crate) const BRIEFLY: Duration = Duration::from_secs(3);

/// Why a tracker is not usable, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The host reports that the port is closed (ICMP port unreachable).
    #[error(
        "nothing listens on {0} (UDP): start a tracker there, or name the right address (try: \
         ss -lun 'sport = :{port}')",
        port = .0.port()
    )]
    Closed(SocketAddr),
    /// No datagram came back.
    #[error(
        "{0} does not answer a connect request: check that it is a UDP tracker and that no \
         firewall drops UDP (try: ss -lun 'sport = :{port}', and: tcpdump -ni any udp port \
         {port}). A tracker under overload loses connects: try again in a minute",
        port = .0.port()
    )]
    Silent(SocketAddr),
    /// A datagram came back that is no connect reply.
    #[error(
        "{0} answers, but not as a UDP tracker (BEP 15): check which service listens there (try: \
         ss -lun 'sport = :{port}' -p)",
        port = .0.port()
    )]
    NotATracker(SocketAddr),
    /// This host cannot send there.
    #[error("{0} is unreachable: {1} (try: ip route get {ip})", ip = .0.ip())]
    NoRoute(SocketAddr, #[source] io::Error),
}

/// Sends connect requests from `source`, or from the address that routing picks, until a datagram
/// comes back from the target's address. A wrong reply and a reply from another port count: the
/// checks report what is wrong with them. Returns the source address.
///
/// # Errors
/// When none comes back within `timeout`, or the port is closed for three seconds.
pub fn check(
    target: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<IpAddr, Unreachable> {
    ask(target, source, timeout, |_, from| from.ip() == target.ip())
}

/// [`check`], where only a connect reply counts.
///
/// # Errors
/// Why the target is not usable.
pub fn connect(
    target: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
) -> Result<IpAddr, Unreachable> {
    let family = Family::of(target.ip());
    ask(target, source, timeout, |bytes, from| {
        let Ok(Response::Connect(reply)) = Response::parse(bytes, family) else { return false };
        let is_asked = (from.ip(), from.port()) == (target.ip(), target.port());
        is_asked && reply.transaction_id == TRANSACTION
    })
}

/// [`connect`] from the address that routing picks and, where nothing comes back, also from
/// `sources` in turn. Calls `waiting` once before it repeats.
///
/// # Errors
/// Why the target is not usable.
pub fn connect_from_any(
    target: SocketAddr,
    sources: &[IpAddr],
    timeout: Duration,
    waiting: impl FnOnce(),
) -> Result<IpAddr, Unreachable> {
    let mut found = connect(target, None, TURN.min(timeout));
    if matches!(found, Err(Unreachable::Silent(_))) {
        waiting();
    }
    let end = Instant::now() + timeout;
    for source in sources.iter().copied().map(Some).chain([None]).cycle() {
        if !matches!(found, Err(Unreachable::Silent(_))) || Instant::now() >= end {
            break;
        }
        found = connect(target, source, TURN);
    }
    found
}

/// Sends connect requests until a datagram `is_answer`.
fn ask(
    target: SocketAddr,
    source: Option<IpAddr>,
    timeout: Duration,
    is_answer: impl Fn(&[u8], SocketAddr) -> bool,
) -> Result<IpAddr, Unreachable> {
    let no_route = |error| Unreachable::NoRoute(target, error);
    let local = source.map_or_else(|| route_to(target), Ok).map_err(no_route)?;
    let socket = UdpSocket::bind((local, 0)).map_err(no_route)?;
    report_refusals(&socket, target).map_err(no_route)?;
    let mut request = [0; REQUEST_LEN];
    Connect { transaction_id: TRANSACTION }.write(&mut request);
    let begin = Instant::now();
    let (mut closed, mut odd) = (false, false);
    loop {
        let timeout = if closed { timeout.min(OPENING) } else { timeout };
        let rest = timeout.saturating_sub(begin.elapsed());
        if rest.is_zero() {
            break;
        }
        let end = Instant::now() + WAIT.min(rest);
        let mut asked = send(&socket, &request, target).and_then(|()| receive(&socket, end));
        while let Ok(Some((bytes, from))) = &asked {
            if is_answer(bytes, *from) {
                return Ok(local);
            }
            odd |= from.ip() == target.ip();
            asked = receive(&socket, end);
        }
        match asked {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                closed = true;
                // A tracker that is starting may open its port later.
                #[expect(clippy::disallowed_methods, reason = "a port opens without an event")]
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
            }
            Err(error) => return Err(no_route(error)),
            Ok(_) => {}
        }
    }
    Err(match (closed, odd) {
        (_, true) => Unreachable::NotATracker(target),
        (true, false) => Unreachable::Closed(target),
        (false, false) => Unreachable::Silent(target),
    })
}

/// The address of this host that routing picks for datagrams to `target`; no datagram is sent.
///
/// # Errors
/// When there is no route.
pub fn route_to(target: SocketAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((unspecified(target), 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use onrush_proto::ConnectionId;
    use onrush_proto::connect::{ConnectResponse, RESPONSE_LEN};

    use super::*;

    /// The time of a call that ends in silence.
    const SHORT: Duration = Duration::from_millis(300);
    /// The time of a call that ends with its reply.
    const LONG_TIMEOUT: Duration = Duration::from_secs(120);

    /// A port where requests are answered; those with `None` are not. An empty datagram ends the
    /// thread.
    fn answering(
        answer: impl Fn(&[u8], SocketAddr) -> Option<Vec<u8>> + Send + 'static,
    ) -> (SocketAddr, JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut request = [0; 256];
            loop {
                let (len, client) = socket.recv_from(&mut request).unwrap();
                if len == 0 {
                    break;
                }
                if let Some(reply) = answer(&request[..len], client) {
                    socket.send_to(&reply, client).unwrap();
                }
            }
        });
        (address, thread)
    }

    fn end((address, thread): (SocketAddr, JoinHandle<()>)) {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], address).unwrap();
        thread.join().unwrap();
    }

    fn connect_reply(request: &[u8]) -> Vec<u8> {
        let transaction_id = TransactionId(u32::from_be_bytes(request[12..16].try_into().unwrap()));
        let mut reply = [0; RESPONSE_LEN];
        ConnectResponse { transaction_id, connection_id: ConnectionId(9) }.write(&mut reply);
        reply.to_vec()
    }

    #[test]
    fn a_closed_port_is_reported_without_patience() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let target = UdpSocket::bind(any).unwrap().local_addr().unwrap();
            let hour = Duration::from_secs(3600);
            let dead = connect_from_any(target, &[], hour, || panic!("it waits")).unwrap_err();
            assert!(matches!(dead, Unreachable::Closed(_)), "{dead:?}");
            assert!(dead.to_string().contains(&target.to_string()), "{dead}");
            assert!(matches!(check(target, None, hour), Err(Unreachable::Closed(_))));
        }
    }

    #[test]
    fn a_silent_port_is_reported_with_overload_as_a_cause() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = silent.local_addr().unwrap();
        let mut waited = 0;
        let dead = connect_from_any(target, &[], SHORT, || waited += 1).unwrap_err();
        assert!(matches!(dead, Unreachable::Silent(_)), "{dead:?}");
        assert_eq!(waited, 1);
        assert!(dead.to_string().contains("under overload"), "{dead}");
    }

    /// A firewall may let some sources pass only: here none of the first two.
    #[test]
    fn other_sources_are_tried_where_nothing_comes_back() {
        let served: IpAddr = "127.0.0.9".parse().unwrap();
        let server =
            answering(move |request, from| (from.ip() == served).then(|| connect_reply(request)));
        let sources = ["127.0.0.8".parse().unwrap(), served];
        assert_eq!(connect_from_any(server.0, &sources, LONG_TIMEOUT, || ()).unwrap(), served);
        end(server);
    }

    #[test]
    fn a_tracker_answers_and_the_source_is_returned() {
        let server = answering(|request, _| Some(connect_reply(request)));
        let source = "127.0.0.9".parse().unwrap();
        assert_eq!(connect(server.0, Some(source), LONG_TIMEOUT).unwrap(), source);
        assert_eq!(check(server.0, Some(source), LONG_TIMEOUT).unwrap(), source);
        end(server);
    }

    /// The checks begin, and report its replies.
    #[test]
    fn another_service_is_no_tracker() {
        let server = answering(|_, _| Some(b"hello".to_vec()));
        let dead = connect(server.0, None, Duration::from_secs(2));
        assert!(matches!(dead, Err(Unreachable::NotATracker(_))), "{dead:?}");
        check(server.0, None, LONG_TIMEOUT).unwrap();
        end(server);
    }

    #[test]
    fn routes_are_told_without_asking() {
        let route = route_to("127.0.0.1:9".parse().unwrap());
        assert_eq!(route.unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
