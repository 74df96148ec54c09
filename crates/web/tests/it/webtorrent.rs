//! WebTorrent over WebSocket: what a client gets for its messages, and how its connection ends.

use std::io::{Cursor, Write};

use onrush_net::stream::memory::{Client, Conditions};
use onrush_testing::memory_tracker::{rules, settings};
use onrush_tracker::close_cause::CloseCause;
use serde_json::{Value, json};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::world::{ANNOUNCE, World, read_all, replies, source};

pub(crate) const KEY: &str = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
pub(crate) const UPGRADE: &str =
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";

/// A frame as a client sends it.
pub(crate) fn frame(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 255, 99];
    let header = FrameHeader { opcode, mask: Some(mask), ..FrameHeader::default() };
    let mut frame = Vec::new();
    header.format(payload.len() as u64, &mut frame).unwrap();
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A frame that is not the last one of its message.
pub(crate) fn part(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut frame = frame(opcode, payload);
    frame[0] &= 0x7f;
    frame
}

/// Takes the frames that have arrived whole.
pub(crate) fn whole_frames(received: &mut Vec<u8>) -> Vec<(OpCode, Vec<u8>)> {
    let mut frames = Vec::new();
    loop {
        let mut cursor = Cursor::new(&received[..]);
        let Some((header, len)) = FrameHeader::parse(&mut cursor).unwrap() else { break };
        let (start, end) = (cursor.position() as usize, (cursor.position() + len) as usize);
        if end > received.len() {
            break;
        }
        assert!(header.is_final && header.mask.is_none());
        frames.push((header.opcode, received[start..end].to_vec()));
        received.drain(..end);
    }
    frames
}

pub(crate) const TEXT: OpCode = OpCode::Data(Data::Text);
pub(crate) const PING: OpCode = OpCode::Control(Control::Ping);
pub(crate) const PONG: OpCode = OpCode::Control(Control::Pong);
pub(crate) const CLOSE: OpCode = OpCode::Control(Control::Close);

/// A client by WebSocket.
pub(crate) struct Browser {
    pub(crate) client: Client,
    received: Vec<u8>,
    /// The number of its peer id.
    number: u8,
    pub(crate) has_ended: bool,
}

impl Browser {
    /// Number `number`, which has upgraded its connection.
    pub(crate) fn new(world: &mut World, number: u8) -> Self {
        Self::at(world, 0, number)
    }

    /// The same at this web worker.
    pub(crate) fn at(world: &mut World, worker: usize, number: u8) -> Self {
        let client = world.connect_to(worker, 0, source(&format!("198.51.100.{number}"), 40_000));
        Self::over(world, client, number, "")
    }

    /// The same over this connection, with further fields.
    pub(crate) fn over(world: &mut World, client: Client, number: u8, fields: &str) -> Self {
        let mut browser = Self { client, received: Vec::new(), number, has_ended: false };
        write!(browser.client, "GET /any HTTP/1.1\r\n{UPGRADE}{KEY}{fields}\r\n").unwrap();
        world.settle();
        browser.read();
        let end = browser.received.windows(4).position(|it| it == b"\r\n\r\n").expect("a head");
        let head: Vec<u8> = browser.received.drain(..end + 4).collect();
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        browser
    }

    fn read(&mut self) {
        let (bytes, ended) = read_all(&mut self.client);
        self.received.extend(bytes);
        self.has_ended |= ended;
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.client.write_all(&frame(TEXT, message.to_string().as_bytes())).unwrap();
    }

    /// The frames that have arrived.
    pub(crate) fn frames(&mut self, world: &mut World) -> Vec<(OpCode, Vec<u8>)> {
        world.settle();
        self.arrived()
    }

    /// The frames that have arrived, without further turns.
    pub(crate) fn arrived(&mut self) -> Vec<(OpCode, Vec<u8>)> {
        self.read();
        let frames = whole_frames(&mut self.received);
        assert!(self.received.is_empty());
        frames
    }

    /// The messages that have arrived.
    pub(crate) fn messages(&mut self, world: &mut World) -> Vec<Value> {
        messages(self.frames(world))
    }

    /// The replies to a message.
    pub(crate) fn ask(&mut self, world: &mut World, message: &Value) -> Vec<Value> {
        self.send(message);
        self.messages(world)
    }

    /// The replies to an announce to the swarm [`HASH`], with these fields.
    pub(crate) fn announced(&mut self, world: &mut World, fields: Value) -> Vec<Value> {
        self.ask(world, &self.announce(HASH, fields))
    }

    /// The same as a leecher.
    pub(crate) fn join(&mut self, world: &mut World) -> Vec<Value> {
        self.announced(world, json!({"left": 1}))
    }

    /// An announce to the swarm `hash`, with these fields.
    pub(crate) fn announce(&self, hash: &str, fields: Value) -> Value {
        announce(self.number, hash, fields)
    }

    /// The code of the close frame with which the tracker has ended the connection.
    pub(crate) fn close_code(&mut self, world: &mut World) -> u16 {
        world.settle();
        self.arrived_code()
    }

    /// The same without further turns.
    pub(crate) fn arrived_code(&mut self) -> u16 {
        let frames = self.arrived();
        assert!(self.has_ended);
        let (opcode, payload) = frames.last().expect("a close frame");
        assert_eq!(*opcode, CLOSE);
        u16::from_be_bytes(payload[..].try_into().unwrap())
    }
}

/// The messages in text frames.
pub(crate) fn messages(frames: Vec<(OpCode, Vec<u8>)>) -> Vec<Value> {
    let message = |(opcode, payload): (OpCode, Vec<u8>)| {
        assert_eq!(opcode, TEXT);
        let mut message: Value = serde_json::from_slice(&payload).unwrap();
        // The interval has jitter.
        if let Some(interval) = message.get_mut("interval") {
            assert!((114..=126).contains(&interval.as_u64().unwrap()));
            *interval = 120.into();
        }
        message
    };
    frames.into_iter().map(message).collect()
}

/// An announce of peer `number` to the swarm `hash`, with these fields.
pub(crate) fn announce(number: u8, hash: &str, fields: Value) -> Value {
    let mut announce = json!({"action": "announce", "info_hash": hash, "peer_id": peer_id(number)});
    announce.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    announce
}

pub(crate) const HASH: &str = "aaaaaaaaaaaaaaaaaa\u{ff}\u{80}";

pub(crate) fn peer_id(number: u8) -> String {
    format!("-WW0301-00000000{number:04}")
}

pub(crate) fn offer(number: u8) -> Value {
    let id = format!("{number:020}");
    json!({"offer_id": id, "offer": {"type": "offer", "sdp": format!("v=0 {number}")}})
}

/// An offer with an SDP of `len` bytes.
pub(crate) fn long_offer(len: usize) -> Value {
    json!({"offer_id": "0".repeat(20), "offer": {"sdp": "x".repeat(len)}})
}

pub(crate) fn counts(complete: u32, incomplete: u32) -> Value {
    let (action, interval) = ("announce", 120);
    json!({"action": action, "info_hash": HASH, "interval": interval, "complete": complete,
           "incomplete": incomplete})
}

/// Without WebTorrent, and over HTTP/1.0.
#[test]
fn an_upgrade_that_is_not_possible_is_a_request_like_others() {
    let mut world = World::new("");
    let request = format!("GET /health HTTP/1.0\r\n{UPGRADE}{KEY}\r\n");
    assert_eq!(replies(world.exchange(&request).0.as_bytes())[0].status, 200);
    let mut off = World::new("[webtorrent]\nenabled = false\n");
    let request = format!("GET /health HTTP/1.1\r\n{UPGRADE}{KEY}\r\n");
    assert_eq!(replies(off.exchange(&request).0.as_bytes())[0].status, 200);
    world.pass(2);
    world.check();
}

#[test]
fn announces_and_scrapes_are_answered_with_counts_of_webrtc_peers() {
    let mut world = World::new("");
    let mut seeder = Browser::new(&mut world, 1);
    let started = json!({"left": 0, "event": "started"});
    assert_eq!(seeder.announced(&mut world, started), [counts(1, 0)]);
    let mut leecher = Browser::new(&mut world, 2);
    assert_eq!(leecher.join(&mut world), [counts(1, 1)]);
    // The end of the download is counted once.
    for _ in 0..2 {
        let completed = json!({"event": "completed"});
        assert_eq!(leecher.announced(&mut world, completed), [counts(2, 0)]);
    }
    let scrape = json!({"action": "scrape", "info_hash": [HASH, "b".repeat(20)]});
    let files = leecher.ask(&mut world, &scrape)[0]["files"].clone();
    let none = json!({"complete": 0, "incomplete": 0, "downloaded": 0});
    let expected = json!({"complete": 2, "incomplete": 0, "downloaded": 1});
    assert_eq!((&files[HASH], &files["b".repeat(20)]), (&expected, &none));
    // Peers of other kinds are not among them.
    let over_http = ANNOUNCE.replace(&"a".repeat(20), "aaaaaaaaaaaaaaaaaa%ff%80");
    assert!(world.get("198.51.100.3", &over_http).starts_with(b"d8:completei0e"));
    assert_eq!(leecher.announced(&mut world, json!({"event": "stopped"})), [counts(1, 0)]);
    let counters = world.counters();
    let shown = [&counters.ws_open, &counters.ws_requests, &counters.webrtc_swarms];
    assert_eq!(shown.map(|it| it.get()), [2, 6, 1]);
    assert_eq!((counters.webrtc_seeders.get(), counters.webrtc_leechers.get()), (1, 0));
    // A member leaves with its connection.
    drop(seeder);
    assert_eq!(leecher.join(&mut world), [counts(0, 1)]);
    world.check();
}

#[test]
fn offers_and_answers_are_forwarded_as_they_are() {
    let mut world = World::new("");
    let [mut first, mut second, mut third] = [1, 2, 3].map(|it| Browser::new(&mut world, it));
    first.join(&mut world);
    second.join(&mut world);
    let fields = json!({"left": 1, "offers": [offer(1)], "numwant": 5});
    assert_eq!(third.announced(&mut world, fields), [counts(0, 3)]);
    let (got, other) = (first.messages(&mut world), second.messages(&mut world));
    let (mut receiver, mut other, got) = match got.is_empty() {
        true => (second, first, other),
        false => (first, second, got),
    };
    let expected = json!({"action": "announce", "info_hash": HASH, "peer_id": peer_id(3),
        "offer_id": offer(1)["offer_id"], "offer": offer(1)["offer"]});
    assert_eq!(got, [expected]);
    // Only the one that got the offer can answer, and once.
    let answer = json!({"type": "answer", "sdp": "v=0 \u{e9}"});
    let fields = json!({"answer": answer, "to_peer_id": peer_id(3),
        "offer_id": offer(1)["offer_id"]});
    assert!(other.announced(&mut world, fields.clone()).is_empty());
    assert!(third.messages(&mut world).is_empty());
    for _ in 0..2 {
        assert!(receiver.announced(&mut world, fields.clone()).is_empty());
    }
    let expected = json!({"action": "announce", "info_hash": HASH,
        "peer_id": peer_id(receiver.number), "offer_id": offer(1)["offer_id"], "answer": answer});
    assert_eq!(third.messages(&mut world), [expected]);
    let counters = world.counters();
    assert_eq!((counters.webrtc_offers.get(), counters.webrtc_answers.get()), (1, 1));
    assert_eq!(counters.webrtc_answers_dropped.get(), 2);
    world.check();
}

#[test]
fn offers_and_scrapes_are_limited() {
    let mut world = World::new("[webtorrent]\nmax_offers = 2\n[scrape]\nmax_hashes = 1\n");
    let mut members = [2, 3, 4, 5].map(|it| Browser::new(&mut world, it));
    members.iter_mut().for_each(|it| drop(it.join(&mut world)));
    let mut browser = Browser::new(&mut world, 1);
    for (num_want, offers, forwarded) in [(1, 3, 1), (0, 1, 0), (9, 4, 2)] {
        let offers: Vec<_> = (0..offers).map(offer).collect();
        let fields = json!({"left": 1, "numwant": num_want, "offers": offers});
        browser.announced(&mut world, fields);
        let got = members.iter_mut().map(|it| it.messages(&mut world).len());
        assert_eq!(got.sum::<usize>(), forwarded, "{num_want}");
    }
    let scrape = json!({"action": "scrape", "info_hash": [HASH, "b".repeat(20)]});
    let files = browser.ask(&mut world, &scrape)[0]["files"].clone();
    assert_eq!(files, json!({HASH: {"complete": 0, "incomplete": 5, "downloaded": 0}}));
    world.check();
}

#[test]
fn failures_name_the_action_and_the_info_hash() {
    let mut world = World::new("");
    let mut browser = Browser::new(&mut world, 1);
    browser.join(&mut world);
    let other = json!({"action": "announce", "info_hash": HASH, "peer_id": peer_id(9)});
    let forbidden = browser.announce(&"b".repeat(20), json!({}));
    let lists = settings(&format!(
        "[access]\nmode = \"deny\"\nerror = \"gone\"\ninfo_hashes = [\"{}\"]\n",
        "62".repeat(20)
    ));
    world.update_rules(rules(&lists));
    for (message, hash, refusal) in [
        (json!({"action": "fly", "info_hash": HASH}), Some(HASH), "message"),
        (json!([]), None, "message"),
        (json!({"action": "announce", "peer_id": peer_id(1)}), None, "info_hash"),
        (json!({"action": "announce", "info_hash": HASH}), Some(HASH), "peer_id"),
        (browser.announce(HASH, json!({"answer": 1})), Some(HASH), "answer"),
        (other, Some(HASH), "other_peer_id"),
        (forbidden, Some(&*"b".repeat(20)), "forbidden"),
        (json!({"action": "scrape"}), None, "no_hash"),
    ] {
        let before = world.refused(refusal);
        let replies = browser.ask(&mut world, &message);
        assert_eq!((replies.len(), world.refused(refusal)), (1, before + 1), "{message}");
        assert!(replies[0]["failure reason"].is_string() && replies[0]["action"].is_string());
        assert_eq!(replies[0].get("info_hash").and_then(Value::as_str), hash, "{message}");
    }
    // The connection is kept. Those of sources that are blocked by now are not.
    assert_eq!(browser.join(&mut world), [counts(0, 1)]);
    let mut other = Browser::new(&mut world, 1);
    let blocked = settings("[access]\nblocked = [\"198.51.100.1\"]\n");
    world.update_rules(rules(&blocked));
    assert!(browser.join(&mut world).is_empty() && browser.has_ended);
    assert!(other.ask(&mut world, &json!([])).is_empty() && other.has_ended);
    assert_eq!((world.closed(CloseCause::Blocked), world.refused("blocked")), (2, 2));
    world.check();
}

#[test]
fn the_membership_in_a_swarm_that_is_forbidden_ends_with_the_next_announce() {
    let mut world = World::new("[webtorrent]\nmemberships = 1\n");
    let mut browser = Browser::new(&mut world, 1);
    browser.join(&mut world);
    let hash = format!("{}ff80", "61".repeat(18));
    let lists = format!("[access]\nmode = \"deny\"\ninfo_hashes = [\"{hash}\"]\n");
    world.update_rules(rules(&settings(&lists)));
    let scrape = json!({"action": "scrape", "info_hash": HASH});
    let none = json!({"complete": 0, "incomplete": 0, "downloaded": 0});
    assert_eq!(browser.ask(&mut world, &scrape)[0]["files"][HASH], none);
    assert!(browser.join(&mut world)[0]["failure reason"].is_string());
    world.settle();
    assert_eq!((world.refused("forbidden"), world.counters().webrtc_swarms.get()), (1, 0));
    let other = browser.announce(&"b".repeat(20), json!({}));
    assert_eq!(browser.ask(&mut world, &other)[0]["incomplete"], 1);
    world.check();
}

#[test]
fn a_silent_client_gets_a_ping_and_is_closed_without_an_answer() {
    let mut world = World::new("");
    let mut browser = Browser::new(&mut world, 1);
    browser.client.write_all(&frame(PING, b"there?")).unwrap();
    assert_eq!(browser.frames(&mut world), [(PONG, b"there?".to_vec())]);
    world.pass(30);
    assert_eq!(browser.frames(&mut world), []);
    world.pass(1);
    assert_eq!(browser.frames(&mut world), [(PING, Vec::new())]);
    world.pass(30);
    browser.client.write_all(&frame(PONG, b"")).unwrap();
    assert_eq!(browser.frames(&mut world), []);
    world.pass(31);
    assert_eq!(browser.frames(&mut world), [(PING, Vec::new())]);
    world.pass(31);
    assert_eq!((browser.frames(&mut world), browser.has_ended), (Vec::new(), true));
    assert_eq!(world.closed(CloseCause::Timeout), 1);
    world.check();
}

#[test]
fn a_member_that_only_answers_pings_is_removed() {
    let mut world = World::new("[webtorrent]\nmemberships = 1\n");
    let mut browser = Browser::new(&mut world, 1);
    browser.join(&mut world);
    for members in [1, 0] {
        // Ten minutes, and then the time of a pass over all members.
        for _ in 0..if members == 1 { 19 } else { 3 } {
            world.pass(31);
            assert_eq!(browser.frames(&mut world), [(PING, Vec::new())]);
            browser.client.write_all(&frame(PONG, b"")).unwrap();
            world.settle();
        }
        let counters = world.counters();
        let gauges = [&counters.webrtc_swarms, &counters.webrtc_leechers, &counters.ws_open];
        assert_eq!(gauges.map(|gauge| gauge.get()), [members, members, 1]);
    }
    let other = browser.announce(&"b".repeat(20), json!({}));
    assert_eq!(browser.ask(&mut world, &other)[0]["incomplete"], 1);
    world.check();
}

#[test]
fn a_client_that_does_not_read_gets_no_more_offers_and_is_closed() {
    let mut world = World::with(1, "", Conditions { capacity: 1000, ..Conditions::default() });
    let [mut deaf, mut other] = [1, 2].map(|number| Browser::new(&mut world, number));
    deaf.join(&mut world);
    other.join(&mut world);
    let fields = json!({"left": 1, "offers": [long_offer(500)]});
    for _ in 0..200 {
        assert_eq!(other.announced(&mut world, fields.clone()), [counts(0, 2)]);
    }
    let counters = world.counters();
    assert_eq!(counters.webrtc_offers.get() + counters.webrtc_offers_dropped.get(), 200);
    assert!(counters.webrtc_offers_dropped.get() > 50, "about 64 KiB wait");
    assert!((64 << 10..=130 << 10).contains(&counters.buffered_bytes.get()));
    world.pass(12);
    assert_eq!((world.closed(CloseCause::Timeout), world.counters().ws_open.get()), (1, 1));
    world.check();
}

#[test]
fn offers_that_wait_at_times_do_not_keep_a_silent_client_open() {
    let conditions = Conditions { capacity: 1000, ..Conditions::default() };
    // From the ping on, and from the first message on.
    for first in [32, 1] {
        let mut world = World::with(1, "", conditions);
        let [mut other, mut silent] = [1, 2].map(|number| Browser::new(&mut world, number));
        silent.join(&mut world);
        for second in 1..=62 {
            let offers = if second < first { vec![] } else { vec![long_offer(500)] };
            let announce = other.announce(HASH, json!({"left": 1, "offers": offers}));
            (0..3).for_each(|_| _ = other.ask(&mut world, &announce));
            assert_eq!(world.counters().buffered_bytes.get() > 0, second >= first);
            world.pass(1);
            for _ in 0..4 {
                silent.read();
                world.settle();
            }
        }
        assert_eq!(world.closed(CloseCause::Timeout), 1, "{first}");
        world.check();
    }
}
