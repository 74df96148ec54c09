//! Tests that a tracker takes connections, before checks or a load start.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::reachability::REACH_TIMEOUT;

/// The time for one attempt.
const TURN: Duration = Duration::from_secs(1);
/// The time for a closed port to open: a tracker may be starting.
const OPENING: Duration = Duration::from_secs(3);

/// Connects, and returns this host's address towards the tracker.
///
/// # Errors
/// A sentence with a remedy, when the tracker takes no connection within 20 seconds, or the port is
/// closed for three.
pub fn reach(target: SocketAddr) -> Result<IpAddr, String> {
    let begin = Instant::now();
    loop {
        let connected = TcpStream::connect_timeout(&target, TURN);
        let error = match connected.and_then(|stream| stream.local_addr()) {
            Ok(address) => return Ok(address.ip()),
            Err(error) => error,
        };
        let patience = match error.kind() {
            ErrorKind::ConnectionRefused => OPENING,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => REACH_TIMEOUT,
            _ => Duration::ZERO,
        };
        if begin.elapsed() >= patience {
            return Err(unreachable(target, &error));
        }
        if error.kind() == ErrorKind::ConnectionRefused {
            #[expect(clippy::disallowed_methods, reason = "a port opens without an event")]
            std::thread::sleep(TURN / 10);
        }
    }
}

fn unreachable(target: SocketAddr, error: &io::Error) -> String {
    let port = target.port();
    format!(
        "{target} takes no connection: {error}. Start a tracker there, or name the right address \
         (try: ss -ltn 'sport = :{port}')"
    )
}
