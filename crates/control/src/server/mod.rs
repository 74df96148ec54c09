//! The HTTP server on a thread of its own, over TCP and at the control socket, with bounded
//! connections.
//!
//! Its runtime has one thread, apart from the workers. Time limits apply to the request's head, to
//! each write and to the connection as a whole. The number of connections is limited, in all and
//! for each source; idle ones are closed for others, and `/health` and `/ready` have a reserve. So
//! slow clients cannot exhaust the server.

pub mod listener;

mod acceptor;
mod auth;
mod host;
mod observation;
pub(crate) mod openapi;
mod routes;
mod stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{interval, sleep, timeout};

pub use listener::{AdminError, Bound, bind, bind_later};

use crate::readiness::Readiness;
use crate::state::ServerState;
use crate::token::Token;
use crate::view::View;
use acceptor::Acceptor;
use onrush_config::settings::AdminSettings;

/// How often the turn counters are read while no request does.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);

/// At shutdown: time limit for responses in progress, and how often they are checked.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// The log line about the admin side.
fn announcement(address: SocketAddr, settings: &AdminSettings) -> String {
    let admin = match &settings.token_file {
        Some(_) => "",
        None => " (off: no admin.token_file)",
    };
    format!("http://{address} shows metrics, health and statistics, and takes the admin API{admin}")
}

/// The running HTTP server. Dropping it stops the thread.
pub struct Server {
    acceptor: Acceptor,
    /// The TCP address, bound or still to be bound.
    pub address: Option<SocketAddr>,
    /// The log line about the TCP address. `None` without one, and while another process has the
    /// address: then the server logs the line itself once it listens.
    pub announcement: Option<String>,
    runtime: Handle,
    /// The task that accepts connections at the control socket.
    socket: Option<AbortHandle>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server, over TCP if there is a `bound` address. It reports that the tracker is
    /// starting until [`serve`](Self::serve). Its thread calls `begin` first, before this returns:
    /// privileges are those of a thread, and a new thread has those of its creator.
    ///
    /// # Errors
    /// [`AdminError::Start`].
    pub fn start(
        bound: Option<Bound>,
        settings: &AdminSettings,
        token: Option<Token>,
        begin: fn(),
    ) -> Result<Self, AdminError> {
        let state = Arc::new(ServerState::new(token, settings));
        let (stop, stopped) = oneshot::channel();
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(AdminError::Start)?;
        let acceptor = Acceptor::new(state.clone(), settings);
        let address = bound.as_ref().map(|bound| bound.address);
        let announced = bound.as_ref().filter(|bound| bound.listener.is_some());
        let announced = announced.map(|bound| announcement(bound.address, settings));
        let tcp = bound.map(|bound| {
            let text = announcement(bound.address, settings);
            acceptor.clone().accept_tcp(bound, text)
        });
        let (observed, draining) = (state.clone(), state);
        let handle = runtime.handle().clone();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let run = move || {
            begin();
            let _ = begun.send(());
            runtime.block_on(async move {
                tokio::spawn(observe(observed));
                let accepting = tcp.map(tokio::spawn);
                // Fails when the `Server` drops its sender.
                let _ = stopped.await;
                if let Some(accepting) = accepting {
                    accepting.abort();
                }
                // A request may have caused the shutdown; its response is still to be sent. In an
                // upgrade, a client at the control socket whose connection was accepted here is not
                // answered by the successor.
                let _ = timeout(DRAIN_TIMEOUT, async {
                    sleep(DRAIN_INTERVAL).await;
                    while draining.is_busy() || draining.connections.awaits_user() {
                        sleep(DRAIN_INTERVAL).await;
                    }
                })
                .await;
            });
            runtime.shutdown_background();
        };
        let thread =
            thread::Builder::new().name("admin".into()).spawn(run).map_err(AdminError::Start)?;
        // Fails only if `begin` panics.
        let _ = has_begun.recv();
        Ok(Self {
            acceptor,
            address,
            announcement: announced,
            runtime: handle,
            socket: None,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Serves a Unix socket at this path too, in place of the one before. Its users are known to
    /// the kernel: root and the user of this process need no token.
    ///
    /// # Errors
    /// When the socket cannot be registered.
    pub fn serve_socket(&mut self, listener: UnixListener, path: &Path) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let _runtime = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let accepting = tokio::spawn(self.acceptor.clone().accept_local(listener));
        if let Some(before) = self.socket.replace(accepting.abort_handle()) {
            before.abort();
        }
        self.acceptor.state.set_socket(format!(
            "root and the tracker's user need none with `onrush ctl` at its control socket {}",
            path.display()
        ));
        Ok(())
    }

    /// Says to clients without a token `why` there is no Unix socket. Returns whether this is new.
    pub fn lacks_socket(&self, why: &str) -> bool {
        self.acceptor.state.set_socket(format!("this tracker has no control socket: {why}"))
    }

    /// Whether a Unix socket is served.
    pub fn serves_socket(&self) -> bool {
        self.socket.is_some()
    }

    /// Publishes the view of a tracker that has started.
    pub fn serve(&self, view: View) {
        self.acceptor.state.serve(view);
    }

    /// Replaces the token.
    pub fn set_token(&self, token: Option<Token>) {
        self.acceptor.state.set_token(token);
    }

    /// Reports the tracker as not ready from now on, because it is about to stop.
    pub fn stopping(&self) {
        self.acceptor.state.set_readiness(Readiness::Stopping);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            socket.abort();
        }
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads the turn counters at an interval.
async fn observe(state: Arc<ServerState>) {
    let mut ticks = interval(OBSERVE_INTERVAL);
    loop {
        ticks.tick().await;
        state.observe_turns(Instant::now());
    }
}

#[cfg(test)]
mod tests;
