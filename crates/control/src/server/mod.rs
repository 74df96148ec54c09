//! The HTTP server on a thread of its own, with bounded connections.
//!
//! Its runtime has one thread, apart from the workers. Time limits apply to the request's head, to
//! each write and to the connection as a whole, and the number of connections is limited, so slow
//! clients cannot exhaust the server.

pub mod listener;

mod auth;
mod health;
mod lists;
mod observation;
mod openapi;
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
use tokio::sync::{Semaphore, oneshot};
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

/// The log line about the HTTP side.
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
        let (now, later) = match bound.listener {
            Some(_) => (Some(text), None),
            None => (None, Some(text)),
        };
        let acceptor = Acceptor {
            router: routes::router(state.clone(), settings),
            state: state.clone(),
            timeout: settings.timeout,
            slots: Arc::new(Semaphore::new(settings.connections)),
        };
        let draining = state.clone();
        let run = move || {
            runtime.block_on(async move {
                let accepting = tokio::spawn(async move {
                    match listening(bound, &acceptor.state).await {
                        Ok(listener) => {
                            later.iter().for_each(|text| log::info!("{text}"));
                            acceptor.accept(listener).await;
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
            thread::Builder::new().name("http".into()).spawn(run).map_err(AdminError::Start)?;
        Ok(Self { state, address, announcement: now, stop: Some(stop), thread: Some(thread) })
    }

    /// The address, bound or still to be bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The log line about the HTTP side. `None` while another process has the address: then the
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
        self.state.readiness.set(Readiness::Stopping);
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
struct Acceptor {
    router: Router,
    state: Arc<ServerState>,
    timeout: Duration,
    slots: Arc<Semaphore>,
}

impl Acceptor {
    async fn accept(self, listener: tokio::net::TcpListener) {
        let state = self.state.clone();
        tokio::spawn(async move {
            let mut ticks = interval(OBSERVE_INTERVAL);
            loop {
                ticks.tick().await;
                state.observe_turns(Instant::now());
            }
        });
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    // Most likely out of file descriptors: without a pause this would be a busy
                    // loop.
                    log::debug!("HTTP: cannot accept: {error}");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            self.state.count_turned_away();
            let _ = stream.try_write(TOO_MANY_CONNECTIONS);
            return;
        };
        let (router, timeout) = (self.router.clone(), self.timeout);
        let counted = self.state.begin_connection();
        tokio::spawn(async move {
            serve(stream, router, timeout).await;
            drop((slot, counted));
        });
    }
}

/// Serves one connection until it closes or exceeds a time limit.
async fn serve(stream: TcpStream, router: Router, limit: Duration) {
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
    use onrush_config::settings::Listen;

    pub(super) fn settings() -> AdminSettings {
        AdminSettings {
            listen: None,
            token_file: None,
            publish_lists: false,
            connections: 4,
            max_body: 1024,
            timeout: Duration::from_secs(10),
        }
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
    fn a_write_that_makes_no_progress_times_out() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (stream, silent) = duplex(8);
            let mut stream = Box::pin(TimeoutStream::new(stream));
            stream.as_mut().set_write_timeout_pinned(Some(Duration::from_millis(20)));
            let error = stream.write_all(&[7; 64]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(silent);

            let (stream, mut reader) = duplex(8);
            let mut stream = Box::pin(TimeoutStream::new(stream));
            stream.as_mut().set_write_timeout_pinned(Some(Duration::from_secs(30)));
            let late = tokio::spawn(async move {
                tokio::task::yield_now().await;
                let mut read = [0; 64];
                reader.read_exact(&mut read).await.unwrap();
                read
            });
            stream.write_all(&[7; 64]).await.unwrap();
            assert_eq!(late.await.unwrap(), [7; 64]);
        });
    }
}
