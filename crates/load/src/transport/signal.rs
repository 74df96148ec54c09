//! Offers and answers through a tracker, as messages of WebTorrent over WebSocket. Both processes
//! join one swarm: the server first, so that every offer of the client goes to it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Error, bail};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use onrush_verify::tcp::{Url, tls};
use rustls::{ClientConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tungstenite::{Message, WebSocket};

use super::stack::Wake;

/// Time for the connection to the tracker, and for its reply to the first announce.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an offer's id.
const ID: usize = 20;

/// A swarm of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Swarm {
    /// The tracker: `wss://HOST:PORT/PATH`, or `ws://`.
    pub(super) url: String,
    /// The info hash, as text of 20 bytes.
    info_hash: String,
}

impl Swarm {
    /// A swarm with a random info hash.
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), info_hash: format!("{:020x}", rand::random::<u64>()) }
    }
}

/// What a tracker passes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// An offer, with its connection and the id of the peer that offers.
    Offer(u32, String, String),
    /// The answer to an offer, with its connection.
    Answer(u32, String),
    /// Anything else.
    Other,
}

/// Fields of a message that matter here.
#[derive(Deserialize)]
struct Fields {
    #[serde(rename = "failure reason")]
    failure: Option<String>,
    offer_id: Option<String>,
    peer_id: Option<String>,
    offer: Option<Sdp>,
    answer: Option<Sdp>,
}

#[derive(Deserialize)]
struct Sdp {
    sdp: String,
}

/// Reads a message of a tracker.
///
/// # Errors
/// When it is a failure, or no message.
pub fn parse(text: &str) -> Result<Signal, String> {
    let fields: Fields = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(failure) = fields.failure {
        return Err(failure);
    }
    let number = fields.offer_id.and_then(|id| id.parse().ok());
    Ok(match (number, fields.offer, fields.answer, fields.peer_id) {
        (Some(number), Some(offer), _, Some(peer)) => Signal::Offer(number, offer.sdp, peer),
        (Some(number), None, Some(answer), _) => Signal::Answer(number, answer.sdp),
        _ => Signal::Other,
    })
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
        let peer_id = if is_server { "-OL0001-server000000" } else { "-OL0001-client000000" };
        let (mut socket, tcp) = open(&swarm.url).with_context(named)?;
        let mut membership =
            Membership { info_hash: swarm.info_hash.clone(), peer_id, is_server, peer: None };
        tcp.set_read_timeout(Some(REPLY_TIMEOUT))?;
        socket.send(Message::text(membership.announce(None)))?;
        let Message::Text(reply) = socket.read().with_context(named)? else {
            bail!("{}: no reply to an announce", named());
        };
        parse(&reply).map_err(Error::msg).with_context(named)?;
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
    info_hash: String,
    peer_id: &'static str,
    is_server: bool,
    /// The peer that offers.
    peer: Option<String>,
}

impl Membership {
    fn announce(&self, offer: Option<(u32, String)>) -> String {
        let Self { info_hash, peer_id, .. } = self;
        let event = if offer.is_none() { Some("started") } else { None };
        let offers: Vec<_> = offer
            .into_iter()
            .map(|(number, sdp)| {
                let offer = json!({ "type": "offer", "sdp": sdp });
                json!({ "offer_id": format!("{number:0ID$}"), "offer": offer })
            })
            .collect();
        let mut announce = json!({
            "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "left": 1,
            "uploaded": 0, "downloaded": 0, "numwant": offers.len(), "offers": offers,
        });
        if let Some(event) = event {
            announce["event"] = event.into();
        }
        announce.to_string()
    }

    fn answer(&self, number: u32, sdp: &str) -> String {
        let Self { info_hash, peer_id, peer, .. } = self;
        let answer = json!({ "type": "answer", "sdp": sdp });
        json!({
            "action": "announce", "info_hash": info_hash, "peer_id": peer_id, "to_peer_id": peer,
            "offer_id": format!("{number:0ID$}"), "answer": answer,
        })
        .to_string()
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
            for (number, text) in outgoing.try_iter() {
                let message = match self.is_server {
                    true => self.answer(number, &text),
                    false => self.announce(Some((number, text))),
                };
                unless_blocked(socket.write(Message::text(message)))?;
            }
            unless_blocked(socket.flush())?;
            while let Some(message) = unless_blocked(socket.read())? {
                let Message::Text(text) = message else { continue };
                let heard = match parse(&text).map_err(Error::msg)? {
                    Signal::Offer(number, text, peer) if self.is_server => {
                        self.peer = Some(peer);
                        hear((number, text))
                    }
                    Signal::Answer(number, text) if !self.is_server => hear((number, text)),
                    _ => true,
                };
                if !heard {
                    return Ok(());
                }
            }
            poll.poll(&mut events, None)?;
        }
    }
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
        let offer = r#"{"action":"announce","info_hash":"x","peer_id":"p","offer_id":
            "00000000000000000042","offer":{"type":"offer","sdp":"v=0"}}"#;
        assert_eq!(parse(offer), Ok(Signal::Offer(42, "v=0".into(), "p".into())));
        let answer = offer.replace("\"offer\":{", "\"answer\":{");
        assert_eq!(parse(&answer), Ok(Signal::Answer(42, "v=0".into())));
        let counts = r#"{"action":"announce","info_hash":"x","complete":0,"incomplete":2}"#;
        assert_eq!(parse(counts), Ok(Signal::Other));
        assert_eq!(parse(&offer.replace("00042", "x0042")), Ok(Signal::Other), "of another peer");
        assert_eq!(parse(r#"{"failure reason":"no"}"#), Err("no".into()));
        assert!(parse("[").is_err());
    }
}
