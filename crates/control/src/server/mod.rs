//! The HTTP server on a thread of its own, with bounded connections.
//!
//! Its runtime has one thread, apart from the workers. Time limits apply to the request's head, to
//! each write and to the connection as a whole, and the number of connections is limited, so slow
//! clients cannot exhaust the server.

pub mod listener;

mod auth;
mod lists;
mod observation;
pub(crate) mod openapi;
mod routes;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{interval, sleep, timeout};
use tokio_io_timeout::TimeoutStream;

pub use listener::{AdminError, Bound, bind, bind_later};

use crate::readiness::Readiness;
use crate::state::ServerState;
use crate::token::Token;
use crate::view::View;
use listener::{RETRY_INTERVAL, listening};
use onrush_config::settings::AdminSettings;

/// Maximum lifetime of a connection, in multiples of `admin.timeout`.
const CONNECTION_LIFETIME: u32 = 30;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// How often the turn counters are read while no request does.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);

/// At shutdown: time limit for responses in progress, and how often they are checked.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// Response to a connection above the limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 82\r\n\r\n\
    {\"error\":\"too many connections at once: try again, or raise admin.connections\"}\n  ";

/// The log line about the admin side.
fn announcement(address: SocketAddr, settings: &AdminSettings) -> String {
    let admin = match &settings.token_file {
        Some(_) => "",
        None => " (off: no admin.token_file)",
    };
    format!("http://{address} shows metrics, health and statistics, and takes the admin API{admin}")
}

/// The running HTTP server. Dropping it stops the thread.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
    address: SocketAddr,
    announcement: Option<String>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the server. It reports that the tracker is starting until [`serve`](Self::serve).
    ///
    /// # Errors
    /// [`AdminError::Start`].
    pub fn start(
        bound: Bound,
        settings: &AdminSettings,
        token: Option<Token>,
    ) -> Result<Self, AdminError> {
        let state = Arc::new(ServerState::new(token, settings));
        let (stop, stopped) = oneshot::channel();
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(AdminError::Start)?;
        let address = bound.address;
        let text = announcement(address, settings);
        let is_bound = bound.listener.is_some();
        let announcement = is_bound.then(|| text.clone());
        let (router, accepted) = (routes::router(state.clone(), settings), state.clone());
        let draining = state.clone();
        let run = move || {
            runtime.block_on(async move {
                let accepting = tokio::spawn(async move {
                    match listening(bound, &accepted).await {
                        Ok(listener) => {
                            if !is_bound {
                                log::info!("{text}");
                            }
                            accept(listener, router, accepted).await;
                        }
                        Err(error) => log::error!("HTTP is not served at {address}: {error}"),
                    }
                });
                // Fails when the `Server` drops its sender.
                let _ = stopped.await;
                accepting.abort();
                // A request may have caused the shutdown; its response is still to be sent.
                let _ = timeout(DRAIN_TIMEOUT, async {
                    sleep(DRAIN_INTERVAL).await;
                    while draining.is_busy() {
                        sleep(DRAIN_INTERVAL).await;
                    }
                })
                .await;
            });
            runtime.shutdown_background();
        };
        let thread =
            thread::Builder::new().name("admin".into()).spawn(run).map_err(AdminError::Start)?;
        Ok(Self { state, address, announcement, stop: Some(stop), thread: Some(thread) })
    }

    /// The address, bound or still to be bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The log line about the admin side. `None` while another process has the address: then the
    /// server logs the line itself once it listens.
    pub fn announcement(&self) -> Option<&str> {
        self.announcement.as_deref()
    }

    /// Publishes the view of a tracker that has started.
    pub fn serve(&self, view: View) {
        self.state.serve(view);
    }

    /// Replaces the token.
    pub fn set_token(&self, token: Option<Token>) {
        self.state.set_token(token);
    }

    /// Reports the tracker as not ready from now on, because it is about to stop.
    pub fn stopping(&self) {
        self.state.set_readiness(Readiness::Stopping);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections up to the limit.
async fn accept(listener: tokio::net::TcpListener, router: Router, state: Arc<ServerState>) {
    let observed = state.clone();
    tokio::spawn(async move {
        let mut ticks = interval(OBSERVE_INTERVAL);
        loop {
            ticks.tick().await;
            observed.observe_turns(Instant::now());
        }
    });
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely out of file descriptors: without a pause this would be a busy loop.
                log::debug!("HTTP: cannot accept: {error}");
                sleep(RETRY_INTERVAL).await;
                continue;
            }
        };
        if let Ok(slot) = state.slots.clone().try_acquire_owned() {
            tokio::spawn(serve(stream, router.clone(), state.timeout, slot));
        } else {
            state.rejected.add(1);
            let _ = stream.try_write(TOO_MANY_CONNECTIONS);
        }
    }
}

/// Serves one connection until it closes or exceeds a time limit, then frees its slot.
async fn serve(stream: TcpStream, router: Router, limit: Duration, _slot: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    // A client that does not read its response must not keep the connection.
    stream.set_write_timeout(Some(limit));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limit).max_buf_size(MAX_HEAD);
    let stream = TokioIo::new(Box::pin(stream));
    let connection = server.serve_connection(stream, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    if timeout(limit * CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limit, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use super::*;
    use onrush_config::Settings;
    use onrush_config::settings::Listen;

    pub(super) fn settings() -> AdminSettings {
        Settings::for_test("").admin
    }

    /// The complete response to a request.
    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        io::read_to_string(stream).unwrap()
    }

    #[test]
    fn the_server_is_alive_and_not_ready_unless_the_tracker_serves() {
        let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        let server = Server::start(bind(listen).unwrap(), &settings(), None).unwrap();
        assert!(server.announcement().unwrap().contains("admin.token_file"));
        let get = |path| get(server.address(), path);
        assert!(get("/health").starts_with("HTTP/1.1 200 "));
        let ready = get("/ready");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"starting\""), "{ready}");
        let stats = get("/stats.json");
        assert!(stats.starts_with("HTTP/1.1 503 ") && stats.contains("/ready"), "{stats}");
        server.stopping();
        let ready = get("/ready");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"stopping\""), "{ready}");
        let address = server.address();
        drop(server);
        assert!(std::net::TcpStream::connect(address).is_err(), "the socket is closed");
    }

    #[test]
    fn a_server_that_waits_for_its_address_has_no_announcement() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let waits = bind_later(first.local_addr().unwrap());
        assert_eq!(Server::start(waits, &settings(), None).unwrap().announcement(), None);
    }

    #[test]
    fn the_response_to_too_many_connections_has_the_stated_length() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"].is_string());
    }

    #[test]
    fn a_client_that_does_not_read_is_disconnected() {
        let settings = AdminSettings { timeout: Duration::from_secs(1), ..settings() };
        let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        let server = Server::start(bind(listen).unwrap(), &settings, None).unwrap();
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = b"GET /openapi.json HTTP/1.1\r\nHost: t\r\n\r\n";
        let error = loop {
            if let Err(error) = io::Write::write_all(&mut stream, request) {
                break error;
            }
        };
        // Not WouldBlock: the server has closed the connection.
        let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
