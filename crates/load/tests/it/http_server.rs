//! The conforming tracker with one fault at a time, over HTTP: a thread per connection.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use onrush_proto::announce::{AnnounceHead, HEAD_LEN};
use onrush_proto::http::{
    AnnounceQuery, Target, scrape_hashes, write_announce, write_failure, write_scrape,
};
use onrush_proto::scrape;
use onrush_proto::{Announce, Connect, ConnectionId, InfoHash, Scrape, TransactionId};

use super::counted::Counted;
use super::faulty::{Fault, Tracker};

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
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    wire: Wire,
    tracker: Mutex<Tracker>,
    /// Connection ids of the tracker, which HTTP does not have.
    ids: Mutex<HashMap<IpAddr, u64>>,
    requests: Mutex<u64>,
    counts: Sender<usize>,
    stop: AtomicBool,
}

impl HttpServer {
    /// A tracker, and the requests that come.
    pub(crate) fn start(fault: Fault, wire: Wire) -> Counted<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, received) = channel();
        let state = Arc::new(State {
            wire,
            tracker: Mutex::new(Tracker::new(fault)),
            ids: Mutex::default(),
            requests: Mutex::new(0),
            counts,
            stop: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (stream, state) = (stream.unwrap(), Arc::clone(&of_thread));
                std::thread::spawn(move || _ = serve(stream, &state));
            }
        });
        Counted { server: Self { address, state, thread: Some(thread) }, received }
    }

    pub(crate) fn target(&self) -> String {
        format!("--target=http://{}/announce", self.address)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Serves a connection to its end.
fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let source = stream.peer_addr()?;
    let (mut input, mut space) = (Vec::new(), [0; 4096]);
    stream.set_nodelay(true)?;
    loop {
        let end = loop {
            match input.windows(4).position(|end| end == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => match stream.read(&mut space)? {
                    0 => return Ok(()),
                    len => input.extend_from_slice(&space[..len]),
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
        let announce = Announce {
            connection_id: self.id(source),
            info_hash: query.info_hash,
            peer_id: query.peer_id,
            left: u64::from(!query.seeder),
            event: query.event,
            num_want: query.num_want,
            port: query.port,
            ..Announce::default()
        };
        let mut datagram = [0; 98];
        announce.write(&mut datagram);
        let Some(reply) = self.answer(&datagram, source, body) else { return };
        let (head, mut peers) = reply.split_at(HEAD_LEN);
        let head = AnnounceHead::parse(head.try_into().unwrap());
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
        let asked: Vec<_> = hashes.iter().copied().map(InfoHash).collect();
        let mut datagram = vec![0; 16 + 20 * asked.len()];
        Scrape::write(self.id(source), TransactionId(0), &asked, &mut datagram);
        let Some(reply) = self.answer(&datagram, source, body) else { return };
        let mut counts = reply[scrape::HEAD_LEN..].as_chunks().0.to_vec();
        hashes.truncate(counts.len());
        if self.wire == Wire::OtherSwarm && !hashes.contains(&[0xFF; 20]) {
            hashes.push([0xFF; 20]);
            counts.push([0; 12]);
        }
        write_scrape(&hashes, &counts, body);
    }

    /// The tracker's reply to a datagram; a failure is written to `body`.
    fn answer(&self, datagram: &[u8], source: SocketAddr, body: &mut Vec<u8>) -> Option<Vec<u8>> {
        let reply = self.tracker.lock().unwrap().answer(datagram, source).remove(0);
        if reply[3] == 3 {
            write_failure(&String::from_utf8_lossy(&reply[8..]), None, body);
            return None;
        }
        Some(reply)
    }

    fn id(&self, source: SocketAddr) -> ConnectionId {
        let mut connect = [0; 16];
        Connect { transaction_id: TransactionId(0) }.write(&mut connect);
        let mut ids = self.ids.lock().unwrap();
        let id = ids.entry(source.ip()).or_insert_with(|| {
            let reply = self.tracker.lock().unwrap().answer(&connect, source).remove(0);
            u64::from_be_bytes(*reply[8..].first_chunk().unwrap())
        });
        ConnectionId(*id)
    }
}
