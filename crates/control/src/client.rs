//! HTTP client for a tracker's admin side, used by `onrush ctl` and `onrush top`.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::api::Problem;
use crate::token::Token;

/// Maximum size of a response that is held in memory, in bytes: statistics of a thousand workers,
/// or a configuration with long lists. [`Client::download`] has none.
const MAX_RESPONSE: usize = 32 << 20;

/// Why there is no response.
type Cause = Box<dyn Error + Send + Sync>;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The command line is wrong; complete lines for the terminal.
    #[error("{0}")]
    Usage(String),
    /// No tracker answers at the URL or the socket, or not in time.
    #[error(
        "{url} cannot be reached: {cause}\n  is it running, and is this its admin.listen or its \
         control.sock? (--url, or --config FILE)"
    )]
    Unreachable {
        /// The URL of the tracker, or the path of its socket.
        url: String,
        /// The cause.
        cause: String,
    },
    /// The response is not complete in time.
    #[error(
        "{url}: no complete response within {} s\n  the tracker or the disk of this host is slow, \
         or the response is long: allow more time (ctl: --timeout SECONDS)",
        .limit.as_secs_f64()
    )]
    Late {
        /// The URL of the tracker, or the path of its socket.
        url: String,
        /// The time that the request had.
        limit: Duration,
    },
    /// The cause is on this host, with its remedy: no tracker answers, it is not known which one is
    /// meant, or this program cannot write the answer.
    #[error("{0}")]
    Local(String),
    /// The tracker's error response.
    #[error("{0}")]
    Refused(String),
    /// The response is not what this version of onrush sends.
    #[error("{0} answered, but not as this version of onrush does: {1}")]
    Unexpected(String, String),
}

/// A client of one tracker.
#[derive(Debug)]
pub struct Client {
    /// The URL, or the path of the socket.
    url: String,
    place: Place,
    /// Value of the `Host` header.
    host: String,
    /// Path of the URL, without a slash at the end.
    base: String,
    token: Option<Token>,
    timeout: Duration,
    /// The remedy where the token is missing, if it is known.
    hint: Option<String>,
}

/// The body of a request, with its media type.
type Content = (&'static str, Vec<u8>);

/// A body in JSON.
fn json(text: &str) -> Option<Content> {
    Some(("application/json", text.into()))
}

/// Where the tracker listens.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Host and port.
    Tcp(String),
    /// A Unix socket.
    Socket(PathBuf),
}

/// The remedy where the token is missing, if nothing more is known.
const HINT: &str = "give the token with --token-file, or run this command on the tracker's host \
                    without --url";

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub text: String,
    url: String,
}

impl Response {
    /// Parses the body.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`].
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        serde_json::from_str(&self.text)
            .map_err(|error| ClientError::Unexpected(self.url.clone(), error.to_string()))
    }
}

impl Client {
    /// A client of the tracker at `url`, with the token of its admin API. `timeout` limits each
    /// request from the connect to the end of the response.
    ///
    /// # Errors
    /// [`ClientError::Usage`], when `url` is not an `http://` URL.
    pub fn new(url: &str, token: Option<Token>, timeout: Duration) -> Result<Self, ClientError> {
        let url = url.trim_end_matches('/');
        if url.starts_with("https://") {
            return Err(ClientError::Usage(format!(
                "onrush: --url {url}: there is no TLS in this command: run it on the tracker's \
                 host, or reach that with `ssh -L 6970:127.0.0.1:6970 HOST`\n"
            )));
        }
        let parsed =
            url.strip_prefix("http://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
        let Some((host, base)) = parsed.filter(|(host, _)| !host.is_empty()) else {
            return Err(ClientError::Usage(format!(
                "onrush: --url {url}: write it as http://HOST:PORT, like http://127.0.0.1:6970\n"
            )));
        };
        // The last colon belongs to an IPv6 address where a bracket follows.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        Ok(Self {
            url: url.to_owned(),
            place: Place::Tcp(if has_port { host.to_owned() } else { format!("{host}:80") }),
            host: host.to_owned(),
            base: if base.is_empty() { String::new() } else { format!("/{base}") },
            token,
            timeout,
            hint: None,
        })
    }

    /// A client of the tracker that listens at a Unix socket.
    ///
    /// # Errors
    /// When no process listens there, or this user may not connect.
    pub fn at_socket(path: &Path, token: Option<Token>, timeout: Duration) -> io::Result<Self> {
        // Without waiting: many connections may queue at a process that hangs.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(UnixStream::connect(path)) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        Ok(Self {
            url: path.display().to_string(),
            place: Place::Socket(path.to_owned()),
            host: "localhost".to_owned(),
            base: String::new(),
            token,
            timeout,
            hint: None,
        })
    }

    /// The same client with this remedy where the token is missing.
    #[must_use]
    pub fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// Whether it reaches the tracker at its socket, and so on the same host.
    pub fn is_local(&self) -> bool {
        matches!(self.place, Place::Socket(_))
    }

    /// The URL of the tracker, or the path of its socket.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Gets a path.
    ///
    /// # Errors
    /// [`ClientError`], also for an error response.
    pub fn get(&self, path: &str) -> Result<Response, ClientError> {
        self.successful(self.get_any(path, Instant::now())?)
    }

    /// Gets a path, and returns error responses as responses. The timeout counts from `since`, so
    /// that several requests can share one.
    ///
    /// # Errors
    /// [`ClientError`], when there is no response.
    pub fn get_any(&self, path: &str, since: Instant) -> Result<Response, ClientError> {
        self.exchange(Method::GET, path, None, None, since)
    }

    /// Posts a JSON body to a path.
    ///
    /// # Errors
    /// [`ClientError`], also for an error response.
    pub fn post(&self, path: &str, body: &str) -> Result<Response, ClientError> {
        self.successful(self.exchange(Method::POST, path, json(body), None, Instant::now())?)
    }

    /// Posts bytes to a path.
    ///
    /// # Errors
    /// [`ClientError`], also for an error response.
    pub fn post_bytes(&self, path: &str, body: Vec<u8>) -> Result<Response, ClientError> {
        let body = Some(("application/octet-stream", body));
        self.successful(self.exchange(Method::POST, path, body, None, Instant::now())?)
    }

    /// Sends a DELETE request with a JSON body to a path.
    ///
    /// # Errors
    /// [`ClientError`], also for an error response.
    pub fn delete(&self, path: &str, body: &str) -> Result<Response, ClientError> {
        self.successful(self.exchange(Method::DELETE, path, json(body), None, Instant::now())?)
    }

    /// Gets a path whose text may be longer than fits into memory, and writes it `to` somewhere.
    ///
    /// # Errors
    /// [`ClientError`], also for an error response.
    pub fn download(&self, path: &str, to: &mut dyn Write) -> Result<(), ClientError> {
        let exchanged = self.exchange(Method::GET, path, None, Some(to), Instant::now())?;
        self.successful(exchanged).map(drop)
    }

    /// One request over a new connection. The body of a good response is written `to` a place, if
    /// there is one.
    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Content>,
        to: Option<&mut dyn Write>,
        since: Instant,
    ) -> Result<Response, ClientError> {
        let late = || ClientError::Late { url: self.url.clone(), limit: self.timeout };
        let left = self.timeout.checked_sub(since.elapsed()).ok_or_else(late)?;
        let unreachable = |cause: Cause| ClientError::Unreachable {
            url: self.url.clone(),
            cause: cause.to_string(),
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreachable(error.into()))?;
        let sending = async { timeout(left, self.send(method, path, body, to)).await };
        let sent = runtime.block_on(sending);
        // A lookup of the host name may still block its thread.
        runtime.shutdown_background();
        let response = sent.map_err(|_| late())?;
        let (status, text) = response.map_err(|cause| match cause.downcast::<ClientError>() {
            Ok(error) => *error,
            Err(cause) => unreachable(cause),
        })?;
        Ok(Response { status, text, url: format!("{}{path}", self.url) })
    }

    /// Sends a request; returns status and body.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Content>,
        to: Option<&mut dyn Write>,
    ) -> Result<(u16, String), Cause> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let mut request = request.header(HOST, &self.host);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let body = match body {
            None => Body::empty(),
            Some((media_type, bytes)) => {
                request = request.header(CONTENT_TYPE, media_type);
                bytes.into()
            }
        };
        let request = request.body(body)?;
        let response = match &self.place {
            Place::Tcp(address) => send_over(TcpStream::connect(address).await?, request).await,
            Place::Socket(path) => send_over(UnixStream::connect(path).await?, request).await,
        }?;
        let status = response.status();
        if let Some(to) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
            let to = String::from_utf8_lossy(to.as_bytes());
            let text = format!("a redirect to {to}: write the URL of the tracker itself as --url");
            return Ok((status.as_u16(), text));
        }
        let mut body = response.into_body();
        let mut to = to.filter(|_| status.is_success());
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            match &mut to {
                Some(to) => to.write_all(&data).map_err(unwritten)?,
                None if text.len() + data.len() > MAX_RESPONSE => {
                    let what = format!("the response has more than {MAX_RESPONSE} bytes");
                    return Err(ClientError::Unexpected(self.url.clone(), what).into());
                }
                None => text.extend_from_slice(&data),
            }
        }
        to.map_or(Ok(()), |to| to.flush()).map_err(unwritten)?;
        Ok((status.as_u16(), String::from_utf8(text)?))
    }

    /// Turns an error response into a [`ClientError::Refused`].
    ///
    /// # Errors
    /// The error.
    pub fn successful(&self, response: Response) -> Result<Response, ClientError> {
        if (200..300).contains(&response.status) {
            return Ok(response);
        }
        let problem = serde_json::from_str::<Problem>(&response.text);
        let error =
            problem.map_or_else(|_| response.text.trim().to_owned(), |problem| problem.error);
        Err(ClientError::Refused(match (response.status, &self.hint) {
            (401 | 403, Some(hint)) => format!("{error}\n  {hint}"),
            (401, None) => format!("{error}\n  {HINT}"),
            (400, _) => return Err(ClientError::Usage(format!("onrush: {error}\n"))),
            (404, _) if !self.base.is_empty() => format!("{} answers 404: {error}", response.url),
            (300..400, _) => format!("{} answers with {error}", response.url),
            (status, _) if error.is_empty() => format!("{} answers {status}", response.url),
            _ => error,
        }))
    }
}

fn unwritten(error: io::Error) -> ClientError {
    ClientError::Local(format!(
        "the response cannot be written: {error}\n  make room where it is written to, and run the \
         command again: what is written is incomplete"
    ))
}

/// Sends a request over a new connection.
async fn send_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Body>,
) -> Result<hyper::Response<Incoming>, Cause> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn client(url: &str) -> Result<Client, ClientError> {
        Client::new(url, None, Duration::from_secs(60))
    }

    /// A server that reads one request, sends `response` and returns the request.
    fn serve_once(response: &'static str) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
            request.truncate(length);
            String::from_utf8(request).unwrap()
        });
        (url, server)
    }

    #[test]
    fn an_invalid_url_is_reported_with_an_example() {
        for url in ["127.0.0.1:6970", "http://", ""] {
            let error = client(url).unwrap_err().to_string();
            assert!(error.contains("like http://127.0.0.1:6970"), "{error}");
        }
        let error = client("https://tracker.example.org").unwrap_err().to_string();
        assert!(error.contains("ssh -L"), "{error}");
    }

    #[test]
    fn the_port_defaults_to_80_and_the_path_is_kept() {
        for (url, address, base) in [
            ("http://a.example/", "a.example:80", ""),
            ("http://a.example:6970/tracker/", "a.example:6970", "/tracker"),
            ("http://[::1]", "[::1]:80", ""),
            ("http://[::1]:6970", "[::1]:6970", ""),
        ] {
            let client = client(url).unwrap();
            let place = Place::Tcp(address.to_owned());
            assert_eq!((&client.place, client.base.as_str()), (&place, base));
        }
    }

    #[test]
    fn an_unreachable_url_is_named_with_the_key_to_check() {
        // Bound, and not listening: no other program gets the port.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let error = client(&url).unwrap().get("/health").unwrap_err().to_string();
        assert!(error.starts_with(&format!("{url} cannot be reached")), "{error}");
        assert!(error.contains("admin.listen"), "{error}");
    }

    #[test]
    fn a_response_that_does_not_come_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::new(&url, None, Duration::from_millis(50)).unwrap();
        let error = client.get("/health").unwrap_err().to_string();
        assert!(error.contains("within 0.05 s") && error.contains("--timeout"), "{error}");
        assert!(!error.contains("is it running"), "{error}");
    }

    #[test]
    fn requests_that_share_a_timeout_end_with_it() {
        let (url, _server) = serve_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let client = client(&url).unwrap();
        let error = client.get_any("/ready", Instant::now() - 2 * client.timeout).unwrap_err();
        assert!(error.to_string().contains("within 60 s"), "{error}");
    }

    #[test]
    fn a_response_that_cannot_be_written_is_no_fault_of_the_tracker() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (url, server) = serve_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let error = client(&url).unwrap().download("/list", &mut Full).unwrap_err();
        server.join().unwrap();
        assert!(matches!(error, ClientError::Local(_)), "{error}");
        assert!(error.to_string().contains("make room"), "{error}");
    }

    #[test]
    fn a_response_without_end_is_read_up_to_a_limit_and_a_redirect_is_named() {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        let endless =
            Box::leak((head + &chunk.repeat(MAX_RESPONSE / (1 << 16) + 1)).into_boxed_str());
        let (url, server) = serve_once(endless);
        let error = client(&url).unwrap().get("/stats.json").unwrap_err();
        // The client closes the connection before the end.
        let _ = server.join();
        assert!(matches!(error, ClientError::Unexpected(..)), "{error}");
        assert!(error.to_string().contains(&format!("{MAX_RESPONSE} bytes")), "{error}");

        let redirect = "HTTP/1.1 301 Moved\r\nLocation: https://b.example/\r\n\r\n";
        let (url, server) = serve_once(redirect);
        let error = client(&url).unwrap().get("/stats.json").unwrap_err().to_string();
        server.join().unwrap();
        assert!(error.contains("redirect to https://b.example/: write "), "{error}");
    }

    #[test]
    fn a_delete_request_has_a_body_and_its_response_is_read() {
        let (url, server) = serve_once("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let response = client(&url).unwrap().delete("/api/v1/list", "{\"a\":1}").unwrap();
        assert_eq!((response.status, response.text.as_str()), (200, "{}"));
        let request = server.join().unwrap();
        assert!(request.starts_with("DELETE /api/v1/list HTTP/1.1\r\n"), "{request}");
        assert!(request.ends_with("{\"a\":1}"), "{request}");
    }

    #[test]
    fn an_error_response_is_reported_with_its_text() {
        let (url, server) = serve_once(
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 18\r\n\r\n{\"error\": \"wrong\"}",
        );
        let error = client(&url).unwrap().get("/api/v1/list").unwrap_err().to_string();
        assert!(error.starts_with("wrong\n") && error.contains("--token-file"), "{error}");
        server.join().unwrap();

        let response =
            "HTTP/1.1 404 Not Found\r\nContent-Length: 20\r\n\r\n{\"error\": \"nothing\"}";
        let (url, server) = serve_once(response);
        let nothing = client(&format!("{url}/prefix/")).unwrap().get("/health").unwrap_err();
        let named = format!("{url}/prefix/health answers 404: nothing");
        assert!(nothing.to_string().contains(&named), "{nothing}");
        server.join().unwrap();
    }
}
