//! A small conforming WebTorrent tracker with one fault at a time: a thread per connection.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tungstenite::handshake::server::Response;
use tungstenite::http::HeaderValue;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, accept_hdr_with_config};

use super::over_tcp::Listener;

/// The fault of the tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Nothing,
    WrongAccept,
    // Announces
    Refuses,
    NoAction,
    NoCounts,
    ZeroInterval,
    SwapsCounts,
    CountsBefore,
    TwiceIsTwo,
    NeverCompletes,
    KeepsStopped,
    KeepsClosed,
    OneSwarm,
    StrictFields,
    IgnoresBinary,
    AnyHash,
    FailsWithoutHash,
    // Offers and answers
    OtherOfferId,
    Rewrites,
    ChangesOffer,
    OfferToAll,
    OfferToSender,
    OfferAnywhere,
    OffersToFirst,
    RepeatsMembers,
    IgnoresNumwant,
    SeedersToSeeders,
    AsciiIds,
    AnswerFromOther,
    ChangesAnswer,
    AnswerToAll,
    UnknownToAll,
    AnswersUnasked,
    // Scrapes
    ScrapeSwapped,
    ScrapesFirst,
    CountsUnknown,
    AnswersEmptyScrape,
    // Frames
    NoPong,
    NoClose,
    NoFragments,
    AcceptsUnmasked,
    NoLimit,
    NoCodes,
    IgnoresBad,
    /// What is no object; an object that ends early is ignored.
    AnswersBad,
}

#[derive(Clone)]
struct Member {
    connection: usize,
    id: String,
    seeder: bool,
}

#[derive(Default)]
struct Swarm {
    members: Vec<Member>,
    completed: u64,
    /// Offers that were passed on: offerer, who got it, offer id.
    offers: Vec<(usize, usize, String)>,
}

impl Swarm {
    fn counts(&self) -> [usize; 2] {
        let seeders = self.members.iter().filter(|member| member.seeder).count();
        [seeders, self.members.len() - seeders]
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    action: String,
    #[serde(default)]
    info_hash: Value,
    #[serde(default)]
    peer_id: String,
    left: Option<u64>,
    #[serde(default)]
    event: String,
    numwant: Option<usize>,
    #[serde(borrow, default)]
    offers: Vec<Offer<'a>>,
    #[serde(borrow)]
    answer: Option<&'a RawValue>,
    #[serde(default)]
    to_peer_id: String,
    #[serde(default)]
    offer_id: String,
}

#[derive(Deserialize)]
struct Offer<'a> {
    offer_id: String,
    #[serde(borrow)]
    offer: &'a RawValue,
}

struct Tracker {
    fault: Fault,
    swarms: HashMap<String, Swarm>,
    /// Where each connection is written to.
    connections: Vec<TcpStream>,
}

/// A tracker at an unused port of 127.0.0.1.
pub(crate) struct WsServer {
    listener: Listener,
}

impl WsServer {
    pub(crate) fn start(fault: Fault) -> Self {
        let (swarms, connections) = (HashMap::new(), Vec::new());
        let tracker = Mutex::new(Tracker { fault, swarms, connections });
        let serve = move |stream| _ = serve(stream, fault, &tracker);
        Self { listener: Listener::start("127.0.0.1", serve).unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/announce", self.listener.address)
    }
}

/// A stream that loses pongs, close frames or fragments, by the fault.
struct Wire(TcpStream, Fault);

impl Read for Wire {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let len = self.0.read(space)?;
        let is_fragment = self.1 == Fault::NoFragments && len > 0 && space[0] == 0x01;
        Ok(if is_fragment { 0 } else { len })
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.1, bytes.first()) {
            (Fault::NoPong, Some(0x8A)) | (Fault::NoClose, Some(0x88)) => Ok(bytes.len()),
            _ => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Upgrades a connection and serves it to its end.
fn serve(stream: TcpStream, fault: Fault, tracker: &Mutex<Tracker>) -> io::Result<()> {
    let limit = if fault == Fault::NoLimit { None } else { Some(1 << 16) };
    let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
    let config = config.accept_unmasked_frames(fault == Fault::AcceptsUnmasked);
    let writer = stream.try_clone()?;
    #[expect(clippy::result_large_err, reason = "the callback's type is that of tungstenite")]
    let accept = |_: &_, mut response: Response| {
        if fault == Fault::WrongAccept {
            let accept = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            response.headers_mut().insert("Sec-WebSocket-Accept", accept);
        }
        Ok(response)
    };
    let accepted = accept_hdr_with_config(Wire(stream, fault), accept, Some(config));
    let Ok(mut socket) = accepted else { return Ok(()) };
    let number = {
        let mut tracker = tracker.lock().unwrap();
        tracker.connections.push(writer);
        tracker.connections.len() - 1
    };
    let code = loop {
        match socket.read() {
            Ok(Message::Binary(_)) if fault == Fault::IgnoresBinary => {}
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                let text = message.into_data();
                tracker.lock().unwrap().message(number, &String::from_utf8_lossy(&text));
            }
            Ok(_) => {}
            Err(Error::Protocol(_)) => break 1002,
            Err(Error::Capacity(_)) => break 1009,
            Err(Error::Utf8(_)) => break 1007,
            Err(_) => break 0,
        }
    };
    if fault != Fault::KeepsClosed {
        tracker.lock().unwrap().leave(number, None);
    }
    let stream = &mut socket.get_mut().0;
    if code > 0 && fault != Fault::NoCodes {
        let [high, low] = u16::to_be_bytes(code);
        stream.write_all(&[0x88, 2, high, low])?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // Input that is not read would reset the connection.
    while stream.read(&mut [0; 4096])? > 0 {}
    Ok(())
}

/// The members that get so many offers, with repeats.
fn receivers(fault: Fault, others: &[Member], count: usize) -> Vec<Member> {
    let most = match fault {
        Fault::OffersToFirst | Fault::RepeatsMembers if !others.is_empty() => count,
        _ => count.min(others.len()),
    };
    let step = usize::from(fault != Fault::OffersToFirst);
    (0..most).map(|nth| others[nth * step % others.len()].clone()).collect()
}

impl Tracker {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Ends a membership, or all of a connection.
    fn leave(&mut self, connection: usize, hash: Option<&str>) {
        for (name, swarm) in &mut self.swarms {
            if hash.is_none_or(|hash| hash == name) {
                swarm.members.retain(|member| member.connection != connection);
            }
        }
    }

    /// Sends a text frame.
    fn send(&mut self, to: usize, text: &str) {
        let mut frame = vec![0x81];
        match text.len() {
            len @ 0..126 => frame.push(len as u8),
            len => {
                frame.push(126);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
            }
        }
        frame.extend_from_slice(text.as_bytes());
        let _ = self.connections[to].write_all(&frame);
    }

    fn fail(&mut self, to: usize, action: &str, hash: &str, reason: &str) {
        let mut reply = json!({ "action": action, "failure reason": reason });
        if !hash.is_empty() && !self.has(Fault::FailsWithoutHash) {
            reply["info_hash"] = hash.into();
        }
        self.send(to, &reply.to_string());
    }

    fn message(&mut self, from: usize, text: &str) {
        let strict = self.has(Fault::StrictFields) && text.contains("\"trackerid\"");
        let request = match serde_json::from_str::<Request<'_>>(text) {
            Ok(request) if !strict => request,
            _ if self.has(Fault::IgnoresBad) => return,
            _ if self.has(Fault::AnswersBad) && text.starts_with('{') => return,
            _ if self.has(Fault::AnswersBad) => return self.send(from, r#"{"action":"announce"}"#),
            _ => return self.fail(from, "announce", "", "no message"),
        };
        match request.action.as_str() {
            "announce" => self.announce(from, &request),
            "scrape" => self.scrape(from, &request),
            _ if self.has(Fault::IgnoresBad) => {}
            action => self.fail(from, action, "", "unknown action"),
        }
    }

    fn announce(&mut self, from: usize, request: &Request<'_>) {
        let hash = request.info_hash.as_str().unwrap_or_default();
        if hash.chars().count() != 20 && !self.has(Fault::AnyHash) {
            return self.fail(from, "announce", "", "bad info hash");
        }
        if request.peer_id.chars().count() != 20 {
            return self.fail(from, "announce", hash, "bad peer id");
        }
        if self.has(Fault::Refuses) {
            return self.fail(from, "announce", hash, "not here");
        }
        if let Some(answer) = request.answer {
            return self.answer(from, hash, request, answer.get());
        }
        if self.has(Fault::OneSwarm) {
            self.leave(from, None);
        }
        let before = self.swarms.entry(hash.to_owned()).or_default().counts();
        self.store(from, hash, request);
        let stays = request.event != "stopped";
        if stays {
            self.pass_on(from, hash, request);
        }
        let now = self.swarms[hash].counts();
        let [complete, incomplete] = match self.fault {
            Fault::CountsBefore => before,
            Fault::SwapsCounts => [now[1], now[0]],
            _ => now,
        };
        let interval = if self.has(Fault::ZeroInterval) { 0 } else { 120 };
        let mut reply = json!({ "action": "announce", "info_hash": hash, "interval": interval,
                                "complete": complete, "incomplete": incomplete });
        let fields: &[&str] = match self.fault {
            Fault::NoAction => &["action"],
            Fault::NoCounts => &["complete", "incomplete"],
            _ => &[],
        };
        fields.iter().for_each(|name| _ = reply.as_object_mut().unwrap().remove(*name));
        self.send(from, &reply.to_string());
    }

    fn store(&mut self, from: usize, hash: &str, request: &Request<'_>) {
        let fault = self.fault;
        let swarm = self.swarms.get_mut(hash).unwrap();
        let known = swarm.members.iter().position(|member| member.connection == from);
        let stops = request.event == "stopped";
        if stops && fault == Fault::KeepsStopped {
            return;
        }
        let seeder = request.left == Some(0);
        let member = Member { connection: from, id: request.peer_id.clone(), seeder };
        match known {
            Some(at) if stops || fault != Fault::TwiceIsTwo => {
                let was = swarm.members.swap_remove(at);
                let completes = request.event == "completed" && seeder && !was.seeder;
                swarm.completed += u64::from(completes && fault != Fault::NeverCompletes);
            }
            _ => {}
        }
        if !stops {
            swarm.members.push(member);
        }
    }

    /// Passes offers on.
    fn pass_on(&mut self, from: usize, hash: &str, request: &Request<'_>) {
        let fault = self.fault;
        let seeds = request.left == Some(0) && fault != Fault::SeedersToSeeders;
        let is_other = |member: &&Member| member.connection != from && !(seeds && member.seeder);
        let swarm = &self.swarms[hash];
        let others: Vec<Member> = swarm.members.iter().filter(is_other).cloned().collect();
        let want = request.numwant.filter(|_| fault != Fault::IgnoresNumwant);
        let count = request.offers.len().min(want.unwrap_or(usize::MAX));
        let chosen = receivers(fault, &others, count);
        for (nth, offer) in request.offers.iter().take(count).enumerate() {
            let mut to: Vec<usize> = chosen.get(nth).map(|it| it.connection).into_iter().collect();
            match fault {
                Fault::OfferToAll => to = others.iter().map(|it| it.connection).collect(),
                Fault::OfferToSender => to.push(from),
                Fault::OfferAnywhere => {
                    let elsewhere = self.swarms.iter().filter(|(name, _)| *name != hash);
                    to.extend(elsewhere.flat_map(|(_, it)| &it.members).map(|it| it.connection));
                }
                _ => {}
            }
            let text = match fault {
                Fault::ChangesOffer => offer.offer.get().replace("v=0", "v=1"),
                _ => offer.offer.get().to_owned(),
            };
            let offer_id = match fault {
                Fault::OtherOfferId => "z".repeat(20),
                _ => offer.offer_id.clone(),
            };
            for receiver in to {
                let swarm = self.swarms.get_mut(hash).unwrap();
                swarm.offers.push((from, receiver, offer_id.clone()));
                self.forward(receiver, hash, [&request.peer_id, &offer_id], ("offer", &text));
            }
        }
    }

    fn forward(&mut self, to: usize, hash: &str, ids: [&str; 2], (name, text): (&str, &str)) {
        let ascii = |it: char| if it.is_ascii() { it } else { '?' };
        let [peer_id, offer_id] = match self.fault {
            Fault::AsciiIds => ids.map(|id| id.chars().map(ascii).collect()),
            _ => ids.map(str::to_owned),
        };
        let text = match self.fault {
            Fault::Rewrites => serde_json::from_str::<Value>(text).unwrap().to_string(),
            _ => text.to_owned(),
        };
        let head = json!({ "action": "announce", "info_hash": hash, "peer_id": peer_id,
                           "offer_id": offer_id });
        let head = head.to_string();
        self.send(to, &format!("{},\"{name}\":{text}}}", &head[..head.len() - 1]));
    }

    fn answer(&mut self, from: usize, hash: &str, request: &Request<'_>, text: &str) {
        let Some(swarm) = self.swarms.get(hash) else { return };
        let is_asked = |member: &&Member| {
            let key = (member.connection, from, request.offer_id.clone());
            member.id == request.to_peer_id
                && (self.fault == Fault::AnswersUnasked || swarm.offers.contains(&key))
        };
        let found = swarm.members.iter().find(is_asked).map(|member| member.connection);
        let is_known = swarm.members.iter().any(|member| member.id == request.to_peer_id);
        let all = || swarm.members.iter().map(|member| member.connection).collect();
        let to: Vec<usize> = match self.fault {
            Fault::AnswerToAll if found.is_some() => all(),
            Fault::UnknownToAll if !is_known => all(),
            _ => found.into_iter().collect(),
        };
        let text = match self.fault {
            Fault::ChangesAnswer => text.replace("\"answer\"", "\"offer\""),
            _ => text.to_owned(),
        };
        let peer_id = match self.fault {
            Fault::AnswerFromOther => &request.to_peer_id,
            _ => &request.peer_id,
        };
        for receiver in to {
            self.forward(receiver, hash, [peer_id, &request.offer_id], ("answer", &text));
        }
    }

    fn scrape(&mut self, from: usize, request: &Request<'_>) {
        let mut hashes: Vec<&str> = match &request.info_hash {
            Value::String(one) => vec![one.as_str()],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ if self.has(Fault::AnswersEmptyScrape) => Vec::new(),
            _ => return self.fail(from, "scrape", "", "no info hash"),
        };
        if self.has(Fault::ScrapesFirst) {
            hashes.truncate(1);
        }
        let mut files = Map::new();
        for hash in hashes {
            let swarm = self.swarms.get(hash);
            let [mut seeders, mut leechers] = swarm.map_or([0, 0], Swarm::counts);
            if self.has(Fault::ScrapeSwapped) {
                (seeders, leechers) = (leechers, seeders);
            }
            if self.has(Fault::CountsUnknown) && swarm.is_none() {
                leechers = 1;
            }
            let completed = swarm.map_or(0, |swarm| swarm.completed);
            let file = json!({ "complete": seeders, "downloaded": completed,
                               "incomplete": leechers });
            files.insert(hash.to_owned(), file);
        }
        self.send(from, &json!({ "action": "scrape", "files": files }).to_string());
    }
}
