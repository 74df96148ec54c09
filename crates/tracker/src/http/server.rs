//! The HTTP side as a thread: its socket, its runtime, and connections that cannot pile up.
//!
//! The runtime is of one thread and knows nothing of the workers. Whoever is slow is cut off: to send a request,
//! to read an answer and to stay at all take their time at most, and there are so many connections at once.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{interval, sleep, timeout};

use super::patience::Patient;
use super::routes;
use super::shared::Shared;
use super::source::Source;
use super::stage::Stage;
use super::token::Token;
use crate::settings::{HttpSettings, Listen};

/// How many time-outs a connection may last, however lively it is.
const LIFE: u32 = 30;

/// Bytes that a request's head may have.
const HEAD: usize = 16 << 10;

/// How often workers are looked at, to know for how long one stands still.
const LOOK: Duration = Duration::from_secs(1);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// How long answers that are under way at the end may take, and how often they are looked at.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
const LAST_LOOK: Duration = Duration::from_millis(10);

/// What a connection too many gets.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 82\r\n\r\n\
    {\"error\":\"too many connections at once: try again, or raise http.connections\"}\n   ";

/// Why HTTP cannot be served.
#[derive(Debug, Error)]
pub enum HttpError {
    /// Somebody else has the address.
    #[error(
        "http.listen: {0} is taken\n  find out by whom with `ss -ltnp 'sport = :{port}'`; name another \
         address as `http.listen` (or --http), or \"off\"",
        port = .0.port()
    )]
    Taken(SocketAddr),
    /// The host does not have the address, or not for this user.
    #[error(
        "http.listen: cannot listen on {address}: {cause}\n  name an address of this host (`ip addr`) and a \
         port above 1023 as `http.listen` (or --http), or \"off\""
    )]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The thread or what it needs.
    #[error(
        "cannot start the HTTP thread: {0}\n  raise the limits of tasks and open files, or set http.listen to \"off\""
    )]
    Start(io::Error),
}

/// A socket that HTTP is going to be served on.
#[derive(Debug)]
pub struct Bound {
    /// `None` where somebody else has the address for a moment yet.
    listener: Option<TcpListener>,
    /// Where, with the port that the kernel picked where 0 was asked.
    pub address: SocketAddr,
}

/// Binds where the settings say.
///
/// # Errors
/// [`HttpError`], for an address that somebody named.
pub fn bind(listen: Listen, warnings: &mut Vec<String>) -> Result<Option<Bound>, HttpError> {
    let address = listen.address;
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener: Some(listener) })
    });
    let error = match bound {
        Ok(bound) => return Ok(Some(bound)),
        Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => HttpError::Taken(address),
        Err(cause) => HttpError::Bind { address, cause },
    };
    if !listen.optional {
        return Err(error);
    }
    warnings.push(format!("no metrics, health and control over HTTP: {error}"));
    Ok(None)
}

/// Binds there as soon as whoever has the address now has given it up.
pub fn bind_later(address: SocketAddr) -> Bound {
    Bound { listener: None, address }
}

/// A socket that connections are accepted from, in the runtime that this is called in.
async fn listening(bound: Bound) -> io::Result<tokio::net::TcpListener> {
    if let Some(listener) = bound.listener {
        return tokio::net::TcpListener::from_std(listener);
    }
    loop {
        match tokio::net::TcpListener::bind(bound.address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => sleep(AGAIN).await,
            other => return other,
        }
    }
}

/// The HTTP side while it runs. Ends when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to answer: that the tracker is starting, until [`serve`](Self::serve).
    ///
    /// # Errors
    /// [`HttpError::Start`].
    pub fn start(
        bound: Bound,
        settings: &HttpSettings,
        token: Option<Token>,
    ) -> Result<Self, HttpError> {
        let shared = Arc::new(Shared::new(token, settings));
        let (stop, stopped) = oneshot::channel();
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(HttpError::Start)?;
        let address = bound.address;
        let door = Door {
            router: routes::router(shared.clone(), settings),
            shared: shared.clone(),
            patience: settings.timeout,
            slots: Arc::new(Semaphore::new(settings.connections)),
        };
        let ending = shared.clone();
        let run = move || {
            runtime.block_on(async move {
                let accepting = tokio::spawn(async move {
                    match listening(bound).await {
                        Ok(listener) => door.accept(listener).await,
                        Err(error) => log::error!("HTTP is not served at {address}: {error}"),
                    }
                });
                // The end of whoever holds the other side.
                let _ = stopped.await;
                accepting.abort();
                // Whoever has asked for that end is told.
                let _ = timeout(LAST_ANSWERS, async {
                    sleep(LAST_LOOK).await;
                    while ending.is_busy() {
                        sleep(LAST_LOOK).await;
                    }
                })
                .await;
            });
            runtime.shutdown_background();
        };
        let thread =
            thread::Builder::new().name("http".into()).spawn(run).map_err(HttpError::Start)?;
        Ok(Self { shared, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The tracker serves, and this is where everything about it is read.
    pub fn serve(&self, source: Source) {
        self.shared.serve(source);
    }

    /// Goes by this token from now on.
    pub fn follow(&self, token: Option<Token>) {
        self.shared.follow(token);
    }

    /// The tracker is about to stop: it is not ready any more.
    pub fn stopping(&self) {
        self.shared.stage.set(Stage::Stopping);
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

/// What lets connections in.
struct Door {
    router: Router,
    shared: Arc<Shared>,
    patience: Duration,
    slots: Arc<Semaphore>,
}

impl Door {
    async fn accept(self, listener: tokio::net::TcpListener) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let mut seconds = interval(LOOK);
            loop {
                seconds.tick().await;
                shared.look(Instant::now());
            }
        });
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    // Out of descriptors, most likely: without a pause this would go round and round.
                    log::debug!("HTTP: cannot accept: {error}");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            self.shared.turned_away();
            let _ = stream.try_write(FULL);
            return;
        };
        let (router, patience) = (self.router.clone(), self.patience);
        let counted = self.shared.connection();
        tokio::spawn(async move {
            serve(stream, router, patience).await;
            drop((slot, counted));
        });
    }
}

/// One connection from its beginning to its end.
async fn serve(stream: TcpStream, router: Router, patience: Duration) {
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Patient::new(stream, patience));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(HEAD);
    let connection = server.serve_connection(stream, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    if timeout(patience * LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(patience, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_an_error_for_who_named_it_and_a_warning_for_the_default() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let mut warnings = Vec::new();
        let error =
            bind(Listen { address, optional: false }, &mut warnings).unwrap_err().to_string();
        assert!(error.starts_with(&format!("http.listen: {address} is taken\n")), "{error}");
        assert!(error.contains(&format!("ss -ltnp 'sport = :{}'", address.port())), "{error}");
        assert!(warnings.is_empty());
        assert!(bind(Listen { address, optional: true }, &mut warnings).unwrap().is_none());
        assert!(warnings[0].contains("is taken"), "{warnings:?}");
    }

    /// The answer to a request, as it comes.
    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        io::read_to_string(stream).unwrap()
    }

    #[test]
    fn before_and_after_it_serves_it_is_alive_and_not_ready() {
        let settings = HttpSettings {
            listen: None,
            token_file: None,
            publish_lists: false,
            connections: 4,
            max_body: 1024,
            timeout: Duration::from_secs(10),
        };
        let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        let bound = bind(listen, &mut Vec::new()).unwrap().unwrap();
        let server = Server::start(bound, &settings, None).unwrap();
        let of = |path| get(server.address(), path);
        assert!(of("/health").starts_with("HTTP/1.1 200 "));
        let ready = of("/ready");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"starting\""), "{ready}");
        let stats = of("/stats.json");
        assert!(stats.starts_with("HTTP/1.1 503 ") && stats.contains("/ready says"), "{stats}");
        server.stopping();
        let ready = of("/ready");
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains("\"stopping\""), "{ready}");
        let address = server.address();
        drop(server);
        assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
    }

    #[test]
    fn an_address_is_taken_over_as_soon_as_it_is_free() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waiting = tokio::spawn(listening(bind_later(address)));
            tokio::task::yield_now().await;
            drop(first);
            let listener = waiting.await.unwrap().unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
        });
    }

    #[test]
    fn an_address_of_another_host_is_told_with_the_remedy() {
        let address = "192.0.2.7:6970".parse().unwrap();
        let error = bind(Listen { address, optional: false }, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("`ip addr`"), "{error}");
    }

    #[test]
    fn the_answer_to_one_too_many_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"].is_string());
    }
}
