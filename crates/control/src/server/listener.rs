//! The listening socket of the admin side: bound at once, or as soon as another process closes its
//! own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::time::sleep;

use crate::readiness::Readiness;
use crate::state::ServerState;
use onrush_config::settings::Listen;

/// Pause between attempts to bind or to accept.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long the predecessor may keep the address, from when this process serves, before a warning.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why HTTP cannot be served.
#[derive(Debug, Error)]
pub enum AdminError {
    /// Another process listens at the address.
    #[error(
        "admin.listen: {0} is taken\n  find the process with `ss -ltnp 'sport = :{port}'`; write \
         another address as `admin.listen` (or --admin), or \"off\"",
        port = .0.port()
    )]
    Taken(SocketAddr),
    /// The host does not have the address, or the user may not bind the port.
    #[error(
        "admin.listen: cannot listen on {address}: {cause}\n  write an address of this host (`ip \
         addr`) and a port above 1023 as `admin.listen` (or --admin), or \"off\""
    )]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// The kernel's error.
        cause: io::Error,
    },
    /// The thread or its runtime cannot start.
    #[error("cannot start the admin thread: {0}\n  raise the limits of tasks and open files")]
    Start(io::Error),
}

/// The socket of the admin side, bound or still to be bound.
#[derive(Debug)]
pub struct Bound {
    /// `None` while another process has the address.
    pub(super) listener: Option<TcpListener>,
    /// The address; a configured port 0 is replaced by the kernel's choice.
    pub address: SocketAddr,
}

impl Bound {
    /// Whether the address is still to be bound.
    pub fn is_later(&self) -> bool {
        self.listener.is_none()
    }
}

/// Binds the configured address.
///
/// # Errors
/// [`AdminError`]. The caller exits if the operator configured the address, and warns otherwise.
pub fn bind(listen: Listen) -> Result<Bound, AdminError> {
    let address = listen.address;
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener: Some(listener) })
    });
    bound.map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => AdminError::Taken(address),
        _ => AdminError::Bind { address, cause },
    })
}

/// Defers binding until the process that has the address now, the predecessor, closes its socket.
pub fn bind_later(address: SocketAddr) -> Bound {
    Bound { listener: None, address }
}

/// The bound socket, registered in the current runtime. Retries while the address is in use.
pub(super) async fn listening(
    bound: Bound,
    state: &ServerState,
) -> io::Result<tokio::net::TcpListener> {
    if let Some(listener) = bound.listener {
        return tokio::net::TcpListener::from_std(listener);
    }
    let mut wait = ReleaseWait::default();
    loop {
        match tokio::net::TcpListener::bind(bound.address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if wait.should_warn(state.readiness(), Instant::now()) {
                    log::warn!("{}", still_taken(bound.address));
                }
                sleep(RETRY_INTERVAL).await;
            }
            result => return result,
        }
    }
}

/// A wait for the predecessor to release its address.
#[derive(Debug, Default)]
struct ReleaseWait {
    serving_since: Option<Instant>,
    warned: bool,
}

impl ReleaseWait {
    /// Returns true once, when the wait lasts so long that a third process must have the address.
    fn should_warn(&mut self, readiness: Readiness, now: Instant) -> bool {
        // Until this process serves, its predecessor does, and keeps the address.
        if readiness != Readiness::Serving || self.warned {
            return false;
        }
        let since = *self.serving_since.get_or_insert(now);
        self.warned = now.duration_since(since) >= RELEASE_TIMEOUT;
        self.warned
    }
}

fn still_taken(address: SocketAddr) -> String {
    format!(
        "no metrics, health and admin API over HTTP yet: {address} is still taken, though the \
         predecessor has closed it: find the process with `ss -ltnp 'sport = :{}'`; HTTP \
         starts once the address is free, or write another address as `admin.listen` (or --admin) \
         and upgrade again",
        address.port()
    )
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::super::tests::settings;
    use super::*;

    #[test]
    fn an_address_that_cannot_be_bound_is_reported_with_the_remedy() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = first.local_addr().unwrap();
        for (address, problem, remedy) in [
            (taken, "is taken", format!("ss -ltnp 'sport = :{}'", taken.port())),
            ("192.0.2.7:6970".parse().unwrap(), "cannot listen", "--admin".to_owned()),
        ] {
            let error = bind(Listen { address, optional: false }).unwrap_err().to_string();
            assert!(error.starts_with("admin.listen: ") && error.contains(problem), "{error}");
            assert!(error.contains(&address.to_string()) && error.contains(&remedy), "{error}");
        }
    }

    #[test]
    fn a_taken_address_is_bound_once_it_is_free() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waiting = tokio::spawn(async move {
                listening(bind_later(address), &ServerState::new(None, &settings())).await
            });
            tokio::task::yield_now().await;
            drop(first);
            let listener = waiting.await.unwrap().unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
        });
    }

    #[test]
    fn the_warning_comes_once_and_only_while_serving() {
        let (start, mut wait) = (Instant::now(), ReleaseWait::default());
        let mut at =
            |seconds, readiness| wait.should_warn(readiness, start + Duration::from_secs(seconds));
        assert!(!at(0, Readiness::Starting) && !at(600, Readiness::Starting), "loading");
        assert!(!at(601, Readiness::Serving) && !at(605, Readiness::Serving));
        assert!(at(606, Readiness::Serving));
        assert!(!at(700, Readiness::Serving), "warned already");
    }
}
