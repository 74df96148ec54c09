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
use onrush_config::settings::{AdminSettings, Listen};

/// How many time-outs a connection may last, however lively it is.
const LIFE: u32 = 30;

/// Bytes that a request's head may have.
const HEAD: usize = 16 << 10;

/// How often workers are looked at, to know for how long one stands still.
const LOOK: Duration = Duration::from_secs(1);

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(100);

/// How long the process before this one may take to give its address up, from when this one serves.
const LEFT: Duration = Duration::from_secs(5);

/// How long answers that are under way at the end may take, and how often they are looked at.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
const LAST_LOOK: Duration = Duration::from_millis(10);

/// What a connection too many gets.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 82\r\n\r\n\
    {\"error\":\"too many connections at once: try again, or raise admin.connections\"}\n  ";

/// Why HTTP cannot be served.
#[derive(Debug, Error)]
pub enum HttpError {
    /// Somebody else has the address.
    #[error(
        "admin.listen: {0} is taken\n  find out by whom with `ss -ltnp 'sport = :{port}'`; name another \
         address as `admin.listen` (or --admin), or \"off\"",
        port = .0.port()
    )]
    Taken(SocketAddr),
    /// The host does not have the address, or not for this user.
    #[error(
        "admin.listen: cannot listen on {address}: {cause}\n  name an address of this host (`ip addr`) and a \
         port above 1023 as `admin.listen` (or --admin), or \"off\""
    )]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the kernel says.
        cause: io::Error,
    },
    /// The thread or what it needs.
    #[error(
        "cannot start the HTTP thread: {0}\n  raise the limits of tasks and open files, or set admin.listen to \"off\""
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
/// [`HttpError`]: a reason not to start where somebody named the address, else for a warning.
pub fn bind(listen: Listen) -> Result<Bound, HttpError> {
    let address = listen.address;
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener: Some(listener) })
    });
    bound.map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => HttpError::Taken(address),
        _ => HttpError::Bind { address, cause },
    })
}

/// Binds there as soon as whoever has the address now has given it up.
pub fn bind_later(address: SocketAddr) -> Bound {
    Bound { listener: None, address }
}

/// A socket that connections are accepted from, in the runtime that this is called in.
async fn listening(bound: Bound, shared: &Shared) -> io::Result<tokio::net::TcpListener> {
    if let Some(listener) = bound.listener {
        return tokio::net::TcpListener::from_std(listener);
    }
    let mut wait = Wait::default();
    loop {
        match tokio::net::TcpListener::bind(bound.address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if wait.is_too_long(shared.stage.get(), Instant::now()) {
                    log::warn!("{}", still_taken(bound.address));
                }
                sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

/// A wait for an address that the process before this one has.
#[derive(Debug, Default)]
struct Wait {
    serves: Option<Instant>,
    told: bool,
}

impl Wait {
    /// Whether it has lasted for so long that somebody else must have the address: once.
    fn is_too_long(&mut self, stage: Stage, now: Instant) -> bool {
        // Until then the process before this one serves, and keeps it.
        if stage != Stage::Serving || self.told {
            return false;
        }
        self.told = now.duration_since(*self.serves.get_or_insert(now)) >= LEFT;
        self.told
    }
}

fn still_taken(address: SocketAddr) -> String {
    format!(
        "no metrics, health and control over HTTP yet: {address} is still taken, though the process before this \
         one has given it up: find out by whom with `ss -ltnp 'sport = :{}'`; they are there as soon as it is free, or \
         name another address as `admin.listen` (or --admin) and upgrade again",
        address.port()
    )
}

/// What the log says of HTTP that is served.
fn announcement(address: SocketAddr, settings: &AdminSettings) -> String {
    let admin = match &settings.token_file {
        Some(_) => "",
        None => " (off: no admin.token_file)",
    };
    format!("http://{address} shows metrics, health and statistics, and takes the admin API{admin}")
}

/// The HTTP side while it runs. Ends when dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    announcement: Option<String>,
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
        settings: &AdminSettings,
        token: Option<Token>,
    ) -> Result<Self, HttpError> {
        let shared = Arc::new(Shared::new(token, settings));
        let (stop, stopped) = oneshot::channel();
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(HttpError::Start)?;
        let address = bound.address;
        let text = announcement(address, settings);
        let (now, later) = match bound.listener {
            Some(_) => (Some(text), None),
            None => (None, Some(text)),
        };
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
                    match listening(bound, &door.shared).await {
                        Ok(listener) => {
                            later.iter().for_each(|text| log::info!("{text}"));
                            door.accept(listener).await;
                        }
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
        Ok(Self { shared, address, announcement: now, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, or is about to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a person wants to know of it. `None` where another process has the address for a moment yet: then this is
    /// said when it is served.
    pub fn announcement(&self) -> Option<&str> {
        self.announcement.as_deref()
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
    fn a_taken_address_is_told_with_the_remedy() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(Listen { address, optional: false }).unwrap_err().to_string();
        assert!(error.starts_with(&format!("admin.listen: {address} is taken\n")), "{error}");
        assert!(error.contains(&format!("ss -ltnp 'sport = :{}'", address.port())), "{error}");
    }

    /// The answer to a request, as it comes.
    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        io::read_to_string(stream).unwrap()
    }

    fn settings() -> AdminSettings {
        AdminSettings {
            listen: None,
            token_file: None,
            publish_lists: false,
            connections: 4,
            max_body: 1024,
            timeout: Duration::from_secs(10),
        }
    }

    #[test]
    fn before_and_after_it_serves_it_is_alive_and_not_ready() {
        let listen = Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false };
        let server = Server::start(bind(listen).unwrap(), &settings(), None).unwrap();
        assert!(server.announcement().unwrap().contains("(off: no admin.token_file)"));
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
            let waiting = tokio::spawn(async move {
                listening(bind_later(address), &Shared::new(None, &settings())).await
            });
            tokio::task::yield_now().await;
            drop(first);
            let listener = waiting.await.unwrap().unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
        });
    }

    #[test]
    fn what_is_not_served_yet_is_not_announced() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let waits = bind_later(first.local_addr().unwrap());
        assert_eq!(Server::start(waits, &settings(), None).unwrap().announcement(), None);
    }

    #[test]
    fn a_wait_is_too_long_once_and_only_after_this_process_serves() {
        let (start, mut wait) = (Instant::now(), Wait::default());
        let mut at = |seconds, stage| wait.is_too_long(stage, start + Duration::from_secs(seconds));
        assert!(!at(0, Stage::Starting) && !at(600, Stage::Starting), "a load may take long");
        assert!(!at(601, Stage::Serving) && !at(605, Stage::Serving));
        assert!(at(606, Stage::Serving));
        assert!(!at(700, Stage::Serving), "it is told once");
    }

    #[test]
    fn an_address_of_another_host_is_told_with_the_remedy() {
        let address = "192.0.2.7:6970".parse().unwrap();
        let error = bind(Listen { address, optional: false }).unwrap_err();
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
