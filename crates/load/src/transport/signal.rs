//! Offers and answers through a tracker, as messages of WebTorrent over WebSocket. Both processes
//! join one swarm: the server first, so that every offer of the client goes to it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Error, bail};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use onrush_proto::webtorrent::OfferId;
use onrush_proto::webtorrent::client::{
    BadReply, Reply, ReplyReader, write_announce, write_answer,
};
use onrush_proto::{Announce, Event, InfoHash, PeerId};
use onrush_verify::tcp::{Url, tls};
use rustls::{ClientConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use tungstenite::{Message, WebSocket};

use super::stack::Wake;

/// Time for the connection to the tracker, and for its reply to the first announce.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Offers without an answer at most. onrush forgets the oldest of more, as all of them are of one
/// sender to one member of one swarm, and drops the answer to a forgotten offer.
const MAX_UNANSWERED: usize = 4;

/// A swarm of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Swarm {
    /// The tracker: `wss://HOST:PORT/PATH`, or `ws://`.
    pub(super) url: String,
    info_hash: [u8; 20],
}

impl Swarm {
    /// A swarm with a random info hash.
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), info_hash: rand::random() }
    }
}

/// A side's connection to the tracker, which a thread serves.
pub(super) struct Tracker {
    descriptions: Sender<(u32, String)>,
    waker: Arc<Waker>,
    received: Receiver<Result<(u32, String), String>>,
}

impl Tracker {
    /// Joins the swarm, as the server or as the client; `wake` is called with each description.
    ///
    /// # Errors
    /// When the tracker cannot be reached, or does not reply to an announce.
    pub(super) fn join(swarm: &Swarm, is_server: bool, wake: Wake) -> anyhow::Result<Self> {
        let named = || format!("--signal {}", swarm.url);
        let (mut socket, tcp) = open(&swarm.url).with_context(named)?;
        let mut membership = Membership::new(InfoHash(swarm.info_hash), is_server);
        tcp.set_read_timeout(Some(REPLY_TIMEOUT))?;
        socket.send(Message::text(membership.announce(None)))?;
        let reply = loop {
            match socket.read().with_context(named)? {
                Message::Text(reply) => break reply,
                // The next read answers a ping.
                Message::Ping(_) | Message::Pong(_) => {}
                _ => bail!("{}: no reply to an announce", named()),
            }
        };
        membership.read(&reply).with_context(named)?;
        tcp.set_nonblocking(true)?;
        let poll = Poll::new()?;
        poll.registry().register(&mut SourceFd(&tcp.as_raw_fd()), Token(0), Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(1))?);
        let (descriptions, outgoing) = channel();
        let (incoming, received) = channel();
        std::thread::spawn(move || {
            // The descriptor is registered as long as the poll lives.
            let _open = tcp;
            let served = membership.serve(&mut socket, poll, &outgoing, |text| {
                let is_heard = incoming.send(Ok(text)).is_ok();
                wake();
                is_heard
            });
            if let Err(error) = served {
                drop(incoming.send(Err(format!("the tracker of --signal: {error:#}"))));
                wake();
            }
        });
        Ok(Self { descriptions, waker, received })
    }

    /// Passes a description on.
    ///
    /// # Errors
    /// When the thread cannot be woken.
    pub(super) fn send(&self, connection: u32, text: String) -> io::Result<()> {
        // Where the thread has ended, it has said why.
        drop(self.descriptions.send((connection, text)));
        self.waker.wake()
    }

    /// The next description of the other side; none if none has arrived.
    ///
    /// # Errors
    /// Why the connection to the tracker has ended.
    pub(super) fn receive(&self) -> Result<Option<(u32, String)>, String> {
        self.received.try_recv().ok().transpose()
    }
}

/// A member of the swarm.
struct Membership {
    info_hash: InfoHash,
    peer_id: PeerId,
    is_server: bool,
    /// The peer that offers.
    peer: PeerId,
    reader: ReplyReader,
    /// Descriptions that have not been sent.
    waiting: VecDeque<(u32, String)>,
    /// Connections whose offers have no answer.
    unanswered: Vec<u32>,
}

impl Membership {
    fn new(info_hash: InfoHash, is_server: bool) -> Self {
        let peer_id = if is_server { b"-OL0001-server000000" } else { b"-OL0001-client000000" };
        let (peer_id, peer) = (PeerId(*peer_id), PeerId([0; 20]));
        let (waiting, unanswered) = (VecDeque::new(), Vec::new());
        let reader = ReplyReader::default();
        Self { info_hash, peer_id, is_server, peer, reader, waiting, unanswered }
    }

    /// An announce with the offer of a connection, or the first one.
    fn announce(&self, offer: Option<(u32, &str)>) -> String {
        let event = if offer.is_none() { Event::Started } else { Event::None };
        let Self { info_hash, peer_id, .. } = *self;
        let announce = Announce { info_hash, peer_id, left: 1, event, ..Announce::default() };
        let ids: Vec<_> = offer.iter().map(|(number, _)| offer_id(*number)).collect();
        let sdp = |_: &OfferId, out: &mut Vec<u8>| offer.iter().for_each(|it| escape(it.1, out));
        text(|out| write_announce(&announce, &ids, sdp, out))
    }

    fn answer(&self, number: u32, sdp: &str) -> String {
        let (peers, id) = ((&self.peer_id, &self.peer), offer_id(number));
        text(|out| write_answer(&self.info_hash, peers, &id, |out| escape(sdp, out), out))
    }

    /// Reads a message: a description of the other side, with its connection.
    ///
    /// # Errors
    /// When it is a failure, or malformed.
    fn read(&mut self, text: &str) -> anyhow::Result<Option<(u32, String)>> {
        let forwarded = match self.reader.read(text) {
            Ok(Reply::Offer(offer)) if self.is_server => offer,
            Ok(Reply::Answer(answer)) if !self.is_server => answer,
            Ok(Reply::Failure(failure)) => bail!("{}", failure.reason),
            Ok(_) => return Ok(None),
            Err(BadReply::Json) => bail!("malformed: {text}"),
            // Other messages of a tracker need not be valid: only offers and answers are used.
            Err(_) => return Ok(None),
        };
        let number = str::from_utf8(&forwarded.offer_id.0).ok().and_then(|id| id.parse().ok());
        // Anybody may offer in a swarm.
        let Some(number) = number else { return Ok(None) };
        self.peer = forwarded.peer_id;
        self.unanswered.retain(|it| *it != number);
        Ok(Some((number, serde_json::from_str(&format!("\"{}\"", forwarded.sdp))?)))
    }

    /// The next message to send; none while too many offers have no answer.
    fn next(&mut self) -> Option<String> {
        if self.unanswered.len() == MAX_UNANSWERED {
            return None;
        }
        let (number, sdp) = self.waiting.pop_front()?;
        if self.is_server {
            return Some(self.answer(number, &sdp));
        }
        self.unanswered.push(number);
        Some(self.announce(Some((number, &sdp))))
    }

    /// Sends descriptions and receives those of the other side, until that is no longer heard.
    fn serve(
        &mut self,
        socket: &mut WebSocket<impl Read + Write>,
        mut poll: Poll,
        outgoing: &Receiver<(u32, String)>,
        mut hear: impl FnMut((u32, String)) -> bool,
    ) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(4);
        loop {
            // First, as an answer makes room for an offer.
            while let Some(message) = unless_blocked(socket.read())? {
                let Message::Text(text) = message else { continue };
                if let Some(description) = self.read(&text)?
                    && !hear(description)
                {
                    return Ok(());
                }
            }
            self.waiting.extend(outgoing.try_iter());
            while let Some(message) = self.next() {
                unless_blocked(socket.write(Message::text(message)))?;
            }
            unless_blocked(socket.flush())?;
            match poll.poll(&mut events, None) {
                // Ctrl-C ends the measured window, not the connection to the tracker.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other?,
            }
        }
    }
}

/// The id of the offer of a connection.
fn offer_id(connection: u32) -> OfferId {
    OfferId(*format!("{connection:020}").as_bytes().first_chunk().expect("20 digits"))
}

/// Appends a text as it is within a JSON string.
fn escape(text: &str, out: &mut Vec<u8>) {
    let json = serde_json::Value::from(text).to_string();
    out.extend_from_slice(&json.as_bytes()[1..json.len() - 1]);
}

/// The text that `write` writes.
fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// What a call has done; none where it would have had to wait.
fn unless_blocked<T>(done: tungstenite::Result<T>) -> tungstenite::Result<Option<T>> {
    match done {
        Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other.map(Some),
    }
}

/// A stream of TCP or TLS.
trait Transport: Read + Write + Send {}
impl<T: Read + Write + Send> Transport for T {}

/// Opens a connection to a tracker, and its socket.
fn open(url: &str) -> anyhow::Result<(WebSocket<Box<dyn Transport>>, TcpStream)> {
    let url: Url = url.parse().map_err(Error::msg)?;
    if !url.scheme.is_websocket() {
        bail!("it does not begin with wss:// or ws://");
    }
    let tcp = TcpStream::connect(url.address)?;
    tcp.set_nodelay(true)?;
    let mut stream: Box<dyn Transport> = Box::new(tcp.try_clone()?);
    if url.scheme.has_tls() {
        let config = tls::client(None, false, false).map_err(Error::msg)?;
        let session = ClientConnection::new(config, url.server_name())?;
        stream = Box::new(StreamOwned::new(session, stream));
    }
    tcp.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let upgraded = tungstenite::client(url.to_string(), stream);
    let (socket, _) = upgraded.map_err(|error| Error::msg(error.to_string()))?;
    Ok((socket, tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_trackers_are_read() {
        let [mut server, mut client] =
            [true, false].map(|is_server| Membership::new(InfoHash([7; 20]), is_server));
        let offer = r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":
            "-OL0001-client000000","offer_id":"00000000000000000042","offer":{"type":"offer",
            "sdp":"v=0\r\n"}}"#;
        assert_eq!(server.read(offer).unwrap(), Some((42, "v=0\r\n".into())));
        assert_eq!(server.peer, client.peer_id);
        let answer = offer.replace("\"offer\":{", "\"answer\":{").replace(":\"offer", ":\"answer");
        assert_eq!(client.read(&answer).unwrap(), Some((42, "v=0\r\n".into())));
        assert_eq!(client.read(offer).unwrap(), None, "of another peer");
        assert_eq!(server.read(&offer.replace("00042", "x0042")).unwrap(), None, "likewise");
        let failure = r#"{"action":"announce","failure reason":"no"}"#;
        assert_eq!(client.read(failure).unwrap_err().to_string(), "no");
        assert!(client.read("[").is_err());
    }

    #[test]
    fn four_offers_are_without_an_answer_at_most() {
        let mut client = Membership::new(InfoHash([7; 20]), false);
        client.waiting.extend((0..6).map(|number| (number, "v=0".into())));
        let sent = |client: &mut Membership| std::iter::from_fn(|| client.next()).count();
        assert_eq!((sent(&mut client), client.waiting.len()), (4, 2));
        let answer = r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","peer_id":
            "-OL0001-server000000","offer_id":"00000000000000000002","answer":{"type":"answer",
            "sdp":"v=0"}}"#;
        for more in [1, 0] {
            client.read(answer).unwrap();
            assert_eq!(sent(&mut client), more, "an answer counts once");
        }
        let mut server = Membership::new(InfoHash([7; 20]), true);
        server.waiting.extend((0..6).map(|number| (number, "v=0".into())));
        assert_eq!(sent(&mut server), 6, "answers wait for nothing");
    }
}
