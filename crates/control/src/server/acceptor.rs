//! Accepts connections and serves their requests, within time limits.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use super::listener::{Bound, RETRY_INTERVAL, listening};
use super::routes;
use super::stream::WatchedStream;
use crate::caller::Caller;
use crate::connections::Slot;
use crate::state::ServerState;
use onrush_config::settings::AdminSettings;
use onrush_net::connection_limits::{Event, Source};

/// Maximum lifetime of a connection, in multiples of `admin.timeout`.
const CONNECTION_LIFETIME: u32 = 30;

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Time limit for the request's head on a connection of the reserve, if `admin.timeout` is longer.
/// In tests connections last as long as `admin.timeout` permits.
const RESERVE_TIMEOUT: Duration = if cfg!(test) { Duration::MAX } else { Duration::from_secs(2) };

/// Accepts connections, and starts a task for each.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) state: Arc<ServerState>,
    /// The routes of ordinary connections.
    all: Router,
    /// The routes of connections of the reserve.
    reserve: Router,
}

impl Acceptor {
    /// The acceptor of a server with this state.
    pub(super) fn new(state: Arc<ServerState>, settings: &AdminSettings) -> Self {
        let all = routes::router(state.clone(), settings);
        let reserve = routes::reserve_router(state.clone());
        Self { state, all, reserve }
    }

    /// Accepts connections at the TCP address, once it is bound.
    pub(super) async fn accept_tcp(self, bound: Bound, text: String) {
        let (address, is_bound) = (bound.address, bound.listener.is_some());
        let listener = match listening(bound, &self.state).await {
            Ok(listener) => listener,
            Err(error) => return log::error!("HTTP is not served at {address}: {error}"),
        };
        if !is_bound {
            log::info!("{text}");
        }
        loop {
            let Some((stream, peer)) = accepted(listener.accept().await).await else { continue };
            let _ = stream.set_nodelay(true);
            self.serve(stream, Caller::Address(peer), Source::of(peer.ip())).await;
        }
    }

    /// Accepts connections at the control socket.
    pub(super) async fn accept_local(self, listener: UnixListener) {
        loop {
            let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
            // The user at the time of connecting.
            let Ok(user) = stream.peer_cred().map(|peer| peer.uid()) else { continue };
            self.serve(stream, Caller::User(user), Source::User(user)).await;
        }
    }

    /// Starts a task that serves a connection. Without a place for it, the connection is closed.
    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        caller: Caller,
        source: Source,
    ) {
        let Self { state, all, reserve } = self;
        let Some(slot) = state.connections.admit(source, Instant::now()) else { return };
        let (router, number) = (if slot.in_reserve { reserve } else { all }, slot.number);
        let task = tokio::spawn(serve(stream, caller, router.clone(), state.timeout, slot));
        state.connections.serves(number, task.abort_handle());
        // The connection reads a request that has arrived before further ones can displace it.
        yield_now().await;
    }
}

/// The accepted connection; `None` after a failure and a pause.
async fn accepted<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            // Most likely out of file descriptors: without a pause this would be a busy loop.
            log::debug!("HTTP: cannot accept: {error}");
            sleep(RETRY_INTERVAL).await;
            None
        }
    }
}

/// Serves one connection until it closes or exceeds a time limit, then frees its slot.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    caller: Caller,
    router: Router,
    limit: Duration,
    slot: Slot,
) {
    let mut stream = TimeoutStream::new(stream);
    // A client that does not read its response must not keep the connection.
    stream.set_write_timeout(Some(limit));
    let mut server = http1::Builder::new();
    let head_limit = if slot.in_reserve { limit.min(RESERVE_TIMEOUT) } else { limit };
    server.timer(TokioTimer::new()).header_read_timeout(head_limit).max_buf_size(MAX_HEAD);
    server.keep_alive(!slot.in_reserve);
    let slot = &slot;
    let stream = WatchedStream { stream: TokioIo::new(Box::pin(stream)), slot, waits: false };
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        let (received, produced) = slot.begin_request();
        let response = router.call(request.map(|body| received.at_the_end_of(body)));
        async move {
            let response = response.await?;
            slot.observe(Event::Body);
            Ok::<_, Infallible>(response.map(|body| produced.at_the_end_of(body)))
        }
    });
    let connection = server.serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    if timeout(limit * CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limit, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread;

    use axum::routing::get;
    use tokio::net::TcpStream;
    use tokio::runtime::Builder;

    use super::super::tests::{DEADLINE, eventually, head_without_a_body, short_limits};
    use super::*;
    use crate::connections::Connections;

    /// Over ordinary connections, and over those of the reserve.
    #[test]
    fn requests_that_do_not_arrive_are_cut_off() {
        let settings = AdminSettings { connections: 1, ..short_limits() };
        let state = Arc::new(ServerState::new(None, &settings));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // The response to a client that has sent this before the time limits begin, and no more.
        let response_to = |sent: &str, slot: Slot| {
            let (mut client, stream) = UnixStream::pair().unwrap();
            client.write_all(sent.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            let router = routes::router(state.clone(), &settings);
            runtime.block_on(async {
                let stream = tokio::net::UnixStream::from_std(stream).unwrap();
                serve(stream, Caller::User(0), router, settings.timeout, slot).await;
            });
            io::read_to_string(client).unwrap()
        };
        let admit =
            || state.connections.admit(Source::of([127, 0, 0, 1].into()), Instant::now()).unwrap();
        let response = response_to(&head_without_a_body(), admit());
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
        let heads = ["", "GET /health HT"];
        heads.iter().for_each(|head| drop(response_to(head, admit())));
        let ordinary = admit();
        let (received, _in_use) = ordinary.begin_request();
        drop(received);
        for head in heads {
            let slot = admit();
            assert!(slot.in_reserve);
            response_to(head, slot);
        }
    }

    /// A connection, the only one that has a place, over which a client gets a hundred short
    /// responses and then a long one, of which it has read the first byte.
    struct Busy {
        connections: Arc<Connections>,
        client: std::net::TcpStream,
        server: thread::JoinHandle<()>,
    }

    /// More than the buffers of two sockets take.
    const LENGTH: usize = 64 << 20;

    impl Busy {
        /// The client sends all requests at once, or each one after the response to the previous.
        fn new(at_once: bool) -> Self {
            let router = Router::new()
                .route("/short", get(async || "!"))
                .route("/long", get(async || vec![b'.'; LENGTH]));
            let connections = Connections::new(1, 10 * DEADLINE);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(DEADLINE)).unwrap();
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let slot = admit(&connections);
            let server = thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let caller = Caller::Address(stream.peer_addr().unwrap());
                    let stream = TcpStream::from_std(stream).unwrap();
                    serve(stream, caller, router, 10 * DEADLINE, slot).await;
                });
            });
            let request = |path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let mut sent = String::new();
            for _ in 0..100 {
                sent += &request("/short");
                if !at_once {
                    client.write_all(sent.as_bytes()).unwrap();
                    read_to(&mut client, b"!");
                    sent.clear();
                }
            }
            sent += &request("/long");
            client.write_all(sent.as_bytes()).unwrap();
            // The body has been produced when its first byte arrives.
            read_to(&mut client, b"\r\n\r\n.");
            Self { connections, client, server }
        }

        fn end(self) {
            drop(self.client);
            self.server.join().unwrap();
        }
    }

    fn admit(connections: &Arc<Connections>) -> Slot {
        connections.admit(Source::of([127, 0, 0, 1].into()), Instant::now()).unwrap()
    }

    fn read_to(client: &mut std::net::TcpStream, end: &[u8]) {
        let mut read = Vec::new();
        while !read.ends_with(end) {
            read.push(0);
            let last = read.len() - 1;
            client.read_exact(&mut read[last..]).unwrap();
        }
    }

    /// A client that reads a long response slowly is not idle before it has read all of it, though
    /// hyper has all of it in its buffers. The requests before it had pauses between them.
    #[test]
    fn a_connection_that_is_being_written_to_is_not_closed_for_another() {
        let mut busy = Busy::new(false);
        let connections = busy.connections.clone();
        assert!(admit(&connections).in_reserve);
        busy.client.read_exact(&mut vec![0; LENGTH - 1]).unwrap();
        eventually("the connection is idle", || !admit(&connections).in_reserve);
        assert_eq!(connections.counters.evicted.get(), 1);
        busy.end();
    }

    #[test]
    fn a_connection_that_is_being_written_to_without_a_pause_is_closed_for_another() {
        let busy = Busy::new(true);
        assert!(!admit(&busy.connections).in_reserve);
        assert_eq!(busy.connections.counters.evicted.get(), 1);
        busy.end();
    }
}
