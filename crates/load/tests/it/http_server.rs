//! The conforming tracker with one fault at a time, over HTTP: a thread per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onrush_proto::http::{
    AnnounceQuery, Target, scrape_hashes, write_announce, write_failure, write_scrape,
};

use super::counted::Counted;
use super::faulty::Fault;
use super::over_tcp::{HttpTracker, Listener};

/// The fault of what carries the replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Right,
    /// A status that is not 200.
    Status,
    /// A length that is no number.
    NoLength,
    /// A body with a byte behind its dictionary.
    Trailing,
    /// A body with a line end behind its dictionary.
    LineEnd,
    /// A second `interval` behind the last key.
    KeyOrder,
    /// Half of a reply, and the end.
    Half,
    /// Each reply twice.
    Twice,
    /// An empty scrape to everything.
    Scrape,
    /// A part of a peer in each list.
    PartOfPeer,
    /// A further swarm in each scrape.
    OtherSwarm,
    /// Strings of peers alone.
    AlwaysCompact,
    /// Announces without counts.
    NoCounts,
    /// `retry in` to each third request.
    Defers,
    /// The end in place of each third reply.
    Closes,
    /// The end behind each reply, without a word about it.
    ClosesLater,
    /// Chunks, each of a byte.
    Chunks,
    /// No length: bodies end with the connection.
    UntilEnd,
    /// No reply to each fiftieth request.
    Silent,
    /// A delay before each reply.
    Slow,
}

/// A tracker over HTTP at an unused port of 127.0.0.1.
pub(crate) struct HttpServer {
    listener: Listener,
    state: Arc<State>,
}

struct State {
    wire: Wire,
    tracker: HttpTracker,
    requests: Mutex<u64>,
    /// Reads that returned requests or parts of them.
    reads: AtomicU64,
    counts: Sender<usize>,
}

impl HttpServer {
    /// A tracker, and the requests that come.
    pub(crate) fn start(fault: Fault, wire: Wire) -> Counted<Self> {
        let (counts, received) = channel();
        let (tracker, requests, reads) =
            (HttpTracker::new(fault), Mutex::default(), AtomicU64::new(0));
        let state = Arc::new(State { wire, tracker, requests, reads, counts });
        let of_threads = Arc::clone(&state);
        let listener = Listener::start("127.0.0.1", move |stream| _ = serve(stream, &of_threads));
        Counted { server: Self { listener: listener.unwrap(), state }, received }
    }

    /// Requests, and the reads that have returned them.
    pub(crate) fn received(&self) -> [u64; 2] {
        [*self.state.requests.lock().unwrap(), self.state.reads.load(Ordering::Relaxed)]
    }

    pub(crate) fn target(&self) -> String {
        format!("--target=http://{}/announce", self.listener.address)
    }
}

/// Serves a connection to its end.
fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let source = stream.peer_addr()?;
    let (mut input, mut space) = (Vec::new(), [0; 4096]);
    loop {
        let end = loop {
            match input.windows(4).position(|end| end == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => match stream.read(&mut space)? {
                    0 => return Ok(()),
                    len => {
                        state.reads.fetch_add(1, Ordering::Relaxed);
                        input.extend_from_slice(&space[..len]);
                    }
                },
            }
        };
        let head = String::from_utf8(input.drain(..end).collect()).unwrap();
        let number = {
            let mut requests = state.requests.lock().unwrap();
            *requests += 1;
            *requests
        };
        let keeps = !head.contains("Connection: close");
        let target = head.strip_prefix("GET ").unwrap().split(' ').next().unwrap();
        let body = state.body(target, source, number);
        let (reply, ends) = state.reply(body, number, keeps);
        let _ = state.counts.send(1);
        stream.write_all(&reply)?;
        if ends || !keeps {
            return Ok(());
        }
    }
}

impl State {
    /// The reply with this body, and whether the connection ends behind it.
    fn reply(&self, body: Vec<u8>, number: u64, keeps: bool) -> (Vec<u8>, bool) {
        let status = if self.wire == Wire::Status { "503 Busy" } else { "200 OK" };
        let framing = match self.wire {
            Wire::NoLength => "Content-Length: x\r\n".to_owned(),
            Wire::Chunks => "Transfer-Encoding: chunked\r\n".into(),
            Wire::UntilEnd => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let connection = if keeps { "" } else { "Connection: close\r\n" };
        let mut reply = format!("HTTP/1.1 {status}\r\n{framing}{connection}\r\n").into_bytes();
        match self.wire {
            Wire::Chunks => {
                for byte in body {
                    reply.extend_from_slice(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
                }
                reply.extend_from_slice(b"0\r\n\r\n");
            }
            _ => reply.extend(body),
        }
        match self.wire {
            Wire::Half => reply.truncate(reply.len() / 2),
            Wire::Twice => reply.extend_from_within(..),
            Wire::Closes if number.is_multiple_of(3) => reply.clear(),
            Wire::Silent if number.is_multiple_of(50) => return (Vec::new(), false),
            Wire::Slow => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "slow replies are the subject of the test"
                )]
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => {}
        }
        let ends = matches!(self.wire, Wire::Half | Wire::ClosesLater | Wire::UntilEnd);
        (reply, ends || self.wire == Wire::Closes && number.is_multiple_of(3))
    }

    /// The body of the reply to a request.
    fn body(&self, target: &str, source: SocketAddr, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        match Target::parse(target.as_bytes()) {
            _ if self.wire == Wire::Scrape => body.extend_from_slice(b"d5:filesdee"),
            _ if self.wire == Wire::Defers && number.is_multiple_of(3) => {
                write_failure("busy", Some(1), &mut body);
            }
            Target::Announce(query) => self.announce(query, source, &mut body),
            Target::Scrape(query) => self.scrape(query, source, &mut body),
            other => panic!("{other:?}: {target}"),
        }
        match self.wire {
            Wire::Trailing => body.push(b'e'),
            Wire::LineEnd => body.extend_from_slice(b"\r\n"),
            Wire::KeyOrder => {
                body.pop();
                body.extend_from_slice(b"8:intervali1ee");
            }
            _ => {}
        }
        body
    }

    fn announce(&self, query: &[u8], source: SocketAddr, body: &mut Vec<u8>) {
        let query = AnnounceQuery::parse(query).unwrap();
        let (head, peers) = match self.tracker.announce(&query, 0, source) {
            Ok(reply) => reply,
            Err(why) => return write_failure(&why, None, body),
        };
        let mut peers = &peers[..];
        if self.wire == Wire::PartOfPeer && !peers.is_empty() {
            peers = &peers[1..];
        }
        if self.wire == Wire::NoCounts {
            write!(body, "d8:intervali{}e5:peers{}:", head.interval, peers.len()).unwrap();
            body.extend_from_slice(peers);
            return body.push(b'e');
        }
        let compact = query.compact || matches!(self.wire, Wire::AlwaysCompact | Wire::PartOfPeer);
        write_announce(&head, peers, source.ip(), compact, body);
    }

    fn scrape(&self, query: &[u8], source: SocketAddr, body: &mut Vec<u8>) {
        let mut hashes = Vec::new();
        scrape_hashes(query, 100, &mut hashes).unwrap();
        let mut counts = match self.tracker.scrape(&mut hashes, source) {
            Ok(counts) => counts,
            Err(why) => return write_failure(&why, None, body),
        };
        if self.wire == Wire::OtherSwarm && !hashes.contains(&[0xFF; 20]) {
            hashes.push([0xFF; 20]);
            counts.push([0; 12]);
        }
        write_scrape(&hashes, &counts, body);
    }
}
