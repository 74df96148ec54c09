//! WebTorrent over real sockets: what ws and wss exchange, close codes, and the limit of memory.
//! Each rule in detail: crates/web/tests.

use std::fs;
use std::io::{Read, Write};
use std::mem;
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use onrush_proto::InfoHash;
use onrush_testing::tls::{Issued, client};
use rustls::ClientConfig;
use serde_json::Value;
use socket2::SockRef;
use tungstenite::{Error, Message, WebSocket};

use crate::harness::messages::{RELOADED, STOPPED};
use crate::harness::{Daemon, TIMEOUT, eventually, free_address, random_hash};
use crate::http::{Connection, await_sum, check_sums, closed, refused, sum};
use crate::https::{self, Tls, connect};

/// TCP, or TLS over it.
pub(crate) trait Stream: Read + Write {
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for Tls {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

/// A daemon with two web workers, and its addresses over IPv4 and IPv6.
pub(crate) struct Tracker {
    daemon: Daemon,
    pub(crate) http: [SocketAddr; 2],
    pub(crate) https: [SocketAddr; 2],
    tls: Arc<ClientConfig>,
}

impl Tracker {
    /// `more` may begin with further keys of `[http]`.
    pub(crate) fn with(more: &str) -> Self {
        let issued = Issued::of(&["t.example"]);
        let (launch, https) = https::launch(&issued, &format!("workers = 2\n{more}"));
        let v4 = free_address();
        let http = [v4, SocketAddr::from((Ipv6Addr::LOCALHOST, v4.port()))];
        let [first, second] = http.map(|address| address.to_string());
        let daemon = launch.flags(&["--http", &first, "--http", &second]).serve();
        Self { daemon, http, https, tls: client(&[&issued]) }
    }

    /// One by ws and one by wss, over IPv4 (0) or IPv6 (1).
    fn browsers(&self, family: usize) -> [Browser; 2] {
        self.streams(family).map(Browser::over)
    }

    fn streams(&self, family: usize) -> [Box<dyn Stream>; 2] {
        let plain = Connection::to(self.http[family]).0.into_inner();
        [Box::new(plain), Box::new(connect(self.https[family], &self.tls).0.into_inner())]
    }

    fn webtorrent(&self, name: &str, label: &str) -> u64 {
        self.daemon.metrics().sum(&format!("onrush_webtorrent_{name}"), &[label]) as u64
    }
}

/// An id as JSON.
fn id() -> String {
    json(random_hash())
}

/// The same of this info hash.
pub(crate) fn json(hash: InfoHash) -> String {
    Value::String(hash.0.map(char::from).iter().collect()).to_string()
}

/// A client by WebSocket, with its peer id.
pub(crate) struct Browser(WebSocket<Box<dyn Stream>>, String);

impl Browser {
    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        let upgraded = tungstenite::client("ws://t/any", stream);
        Self(upgraded.unwrap_or_else(|error| panic!("{error}")).0, id())
    }

    /// Sends bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// Announces to a swarm with these fields.
    pub(crate) fn send(&mut self, hash: &str, fields: &str) -> Result<(), Error> {
        let Self(socket, id) = self;
        let begin = r#"{"action":"announce","info_hash":"#;
        socket.send(Message::text(format!(r#"{begin}{hash},"peer_id":{id},{fields}}}"#)))
    }

    /// The next message, and the same as JSON.
    pub(crate) fn next(&mut self) -> (String, Value) {
        let text = self.0.read().expect("a message").into_text().unwrap().to_string();
        let value = serde_json::from_str(&text).unwrap();
        (text, value)
    }

    /// The seeders and leechers in the reply to an announce.
    pub(crate) fn announce(&mut self, hash: &str, fields: &str) -> [u64; 2] {
        self.send(hash, fields).unwrap();
        let (text, reply) = self.next();
        assert!(reply["interval"].is_u64(), "{text}");
        ["complete", "incomplete"].map(|name| reply[name].as_u64().expect("a count"))
    }

    /// The code of the close frame that comes next, or behind replies.
    fn close_code(&mut self) -> u16 {
        loop {
            if let Message::Close(frame) = self.0.read().expect("a close frame") {
                return frame.expect("a code").code.into();
            }
        }
    }

    /// Whether the tracker ends the connection without a close frame.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.read(), Ok(_) | Err(Error::ConnectionClosed))
    }
}

/// A leecher gets the offer of a seeder in a new swarm, and answers it.
fn exchange(from: &mut Browser, to: &mut Browser) {
    let offer = r#"{ "sdp" :"v=0\r\n\u00e9é\ud83d\ude00\/" ,"type":"offer"}"#;
    let answer = r#"{"type":"answer","x" : "", "sdp":"\"}]\\"}"#;
    let (hash, offer_id) = (id(), id());
    assert_eq!(to.announce(&hash, r#""left":1"#), [0, 1]);
    let offers = format!(r#""left":0,"offers":[{{"offer_id":{offer_id},"offer":{offer}}}]"#);
    assert_eq!(from.announce(&hash, &offers), [1, 1]);
    let ids = |of: &Browser| [hash.clone(), of.1.clone(), offer_id.clone()];
    let ids_in = |it: &Value| ["info_hash", "peer_id", "offer_id"].map(|key| it[key].to_string());
    let (text, value) = to.next();
    assert_eq!(ids_in(&value), ids(from));
    assert!(text.ends_with(&format!(r#""offer":{offer}}}"#)), "{text}");
    let answers = format!(r#""to_peer_id":{},"offer_id":{offer_id},"answer":{answer}"#, from.1);
    to.send(&hash, &answers).unwrap();
    let (text, value) = from.next();
    assert_eq!(ids_in(&value), ids(to));
    assert!(text.ends_with(&format!(r#""answer":{answer}}}"#)), "{text}");
}

#[test]
fn peers_exchange_offers_over_ws_and_wss() {
    const ROUNDS: u64 = 8;
    let tracker = Tracker::with("");
    let mut rounds: Vec<_> = (0..ROUNDS).map(|_| tracker.browsers(0)).collect();
    for [ws, wss] in &mut rounds {
        exchange(ws, wss);
        exchange(wss, ws);
    }
    for transport in ["ws", "wss"] {
        let label = format!("transport=\"{transport}\"");
        // An answer gets no reply, and is no request.
        await_sum(&tracker.daemon, "requests_total", &label, 2 * ROUNDS);
        await_sum(&tracker.daemon, "connections", &label, ROUNDS);
    }
    for (name, label) in [
        ("swarms", ""),
        ("peers", "role=\"seeder\""),
        ("peers", "role=\"leecher\""),
        ("forwarded_messages_total", "kind=\"offer\""),
        ("forwarded_messages_total", "kind=\"answer\""),
    ] {
        // Gauges are set at the end of a turn, after its messages are sent.
        eventually(name, || tracker.webtorrent(name, label) == 2 * ROUNDS);
    }
    assert_eq!(tracker.webtorrent("dropped_messages_total", ""), 0);
    drop(rounds);
    eventually("all have left", || tracker.webtorrent("peers", "") == 0);
    await_sum(&tracker.daemon, "closed_connections_total", "", 2 * ROUNDS);
    check_sums(&tracker.daemon);
}

#[test]
fn each_message_has_its_reply() {
    let tracker = Tracker::with("");
    for family in [0, 1] {
        for mut browser in tracker.browsers(family) {
            let (hash, unknown) = (id(), id());
            for (message, info_hash) in [
                (r#"{"action":"fly"}"#.to_owned(), None),
                (format!(r#"{{"action":"announce","info_hash":{hash}}}"#), Some(&hash)),
            ] {
                browser.0.send(Message::text(message)).unwrap();
                let (text, failure) = browser.next();
                assert!(failure["failure reason"].is_string(), "{text}");
                let named = failure.get("info_hash").map(Value::to_string);
                assert_eq!((&failure["action"], named.as_ref()), (&"announce".into(), info_hash));
            }
            // An answer to an offer that was not sent is dropped, without a reply.
            let to = &browser.1;
            let answer = format!(r#""to_peer_id":{to},"offer_id":{to},"answer":{{"sdp":""}}"#);
            browser.send(&hash, &answer).unwrap();
            assert_eq!(browser.announce(&hash, r#""left":0,"event":"completed""#), [1, 0]);
            let own = mem::replace(&mut browser.1, id());
            browser.send(&hash, r#""left":1"#).unwrap();
            let (text, failure) = browser.next();
            assert!(failure["failure reason"].is_string(), "a second peer id: {text}");
            browser.1 = own;
            let scrape = format!(r#"{{"action":"scrape","info_hash":[{hash},{unknown},{hash}]}}"#);
            browser.0.send(Message::binary(scrape)).unwrap();
            let (text, reply) = browser.next();
            for (hash, seeders) in [(hash, 1), (unknown, 0)] {
                let counts = &reply["files"][serde_json::from_str::<String>(&hash).unwrap()];
                let of = |name: &str| counts[name].as_u64();
                assert_eq!([of("complete"), of("incomplete")], [Some(seeders), Some(0)], "{text}");
            }
        }
    }
    let dropped = || tracker.webtorrent("dropped_messages_total", "kind=\"answer\"");
    eventually("answers to no offer are dropped", || dropped() == 4);
    for transport in ["transport=\"ws\"", "transport=\"wss\""] {
        await_sum(&tracker.daemon, "refused_requests_total", transport, 2 * 3);
    }
    check_sums(&tracker.daemon);
}

#[test]
fn settings_show_in_what_peers_get() {
    let jitter = "[announce]\ninterval_jitter_percent = 0\n";
    let tracker = Tracker::with(&format!("{jitter}[webtorrent]\ninterval = 300\nmax_offers = 1\n"));
    let [mut seeder, mut leecher] = tracker.browsers(0);
    let [mut other, _] = tracker.browsers(0);
    let hash = id();
    for browser in [&mut leecher, &mut other] {
        browser.send(&hash, r#""left":1"#).unwrap();
        let (text, reply) = browser.next();
        assert_eq!(reply["interval"], 300, "{text}");
    }
    let offer = |id: String| format!(r#"{{"offer_id":{id},"offer":{{"sdp":""}}}}"#);
    let offers = format!(r#""left":0,"offers":[{},{}]"#, offer(id()), offer(id()));
    assert_eq!(seeder.announce(&hash, &offers), [1, 2]);
    let forwarded = || tracker.webtorrent("forwarded_messages_total", "");
    eventually("the first offer is forwarded", || forwarded() == 1);
    // The second would have been before this reply.
    assert_eq!(seeder.announce(&hash, r#""left":0"#), [1, 2]);
    assert_eq!(forwarded(), 1);

    let tracker = Tracker::with("[webtorrent]\nenabled = false\n");
    for stream in tracker.streams(0) {
        let error = tungstenite::client("ws://t/any", stream).err().expect("no upgrade");
        assert!(error.to_string().contains("404"), "{error}");
    }
}

#[test]
fn a_peer_that_connects_again_replaces_its_membership() {
    let tracker = Tracker::with("");
    let [mut first, mut again] = tracker.browsers(0);
    let [mut other, _] = tracker.browsers(0);
    again.1 = first.1.clone();
    let hash = id();
    for browser in [&mut first, &mut again] {
        assert_eq!(browser.announce(&hash, r#""left":1"#), [0, 1]);
    }
    drop(first);
    await_sum(&tracker.daemon, "connections", "", 2);
    assert_eq!(other.announce(&hash, r#""left":1"#), [0, 2]);
    check_sums(&tracker.daemon);
}

#[test]
fn what_breaks_a_rule_has_its_close_code() {
    let tracker = Tracker::with("[webtorrent]\nmemberships = 2\n");
    let daemon = &tracker.daemon;
    let mut honest = tracker.browsers(1);
    let hash = id();
    let joined = honest.each_mut().map(|browser| browser.announce(&hash, r#""left":1"#));
    assert_eq!(joined, [[0, 1], [0, 2]]);
    let frames: [(&[u8], u16); 3] = [
        (b"\x81\x02hi", 1002),
        (b"\x81\x81\0\0\0\0\xFF", 1007),
        // Of one byte more than the default of `max_message`.
        (b"\x81\xFF\0\0\0\0\0\x01\0\x01\0\0\0\0", 1009),
    ];
    for (frame, code) in frames {
        for mut browser in tracker.browsers(0) {
            browser.write(frame);
            assert_eq!(browser.close_code(), code);
            assert!(matches!(browser.0.read(), Err(Error::ConnectionClosed)), "{code}");
        }
    }
    for mut browser in tracker.browsers(0) {
        for _ in 0..2 {
            browser.announce(&id(), r#""left":1"#);
        }
        browser.send(&id(), r#""left":1"#).unwrap();
        assert_eq!(browser.close_code(), 1008);
    }
    let upgrade = "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    for (fields, status) in [
        ("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", 400),
        ("Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 426),
    ] {
        for mut stream in tracker.streams(0) {
            write!(stream, "{upgrade}{fields}\r\n").unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
        }
    }
    for browser in &mut honest {
        assert_eq!(browser.announce(&hash, r#""left":1"#), [0, 2]);
    }
    for (cause, number) in [("frame", 6), ("memberships", 2), ("bad_request", 4)] {
        let label = format!("cause=\"{cause}\"");
        await_sum(daemon, "closed_connections_total", &label, number);
    }
    let reasons = ["upgrade", "upgrade_version", "memberships"];
    assert_eq!(reasons.map(|reason| refused(daemon, reason)), [2; 3]);
    await_sum(daemon, "connections", "", 2);
    check_sums(daemon);
}

/// The first half of a message of 64 KiB.
fn half() -> Vec<u8> {
    [&b"\x81\xFF\0\0\0\0\0\x01\0\0\0\0\0\0"[..], &[b'a'; 32_768]].concat()
}

#[test]
fn an_upgrade_and_a_stop_close_with_1012() {
    let mut tracker = Tracker::with("");
    for signal in ["USR2", "TERM"] {
        // To the successor, too.
        let [mut idle, mut busy, mut halfway] = [(); 3].map(|()| tracker.browsers(0));
        for browser in idle.iter_mut().chain(&mut busy) {
            let stream = browser.0.get_ref().tcp();
            SockRef::from(stream).set_send_buffer_size(200_000).unwrap();
            // The kernel may grant less (net.core.wmem_max).
            stream.set_write_timeout(Some(TIMEOUT)).unwrap();
            assert_eq!(browser.announce(&id(), r#""left":1"#), [0, 1]);
        }
        let daemon = &mut tracker.daemon;
        daemon.signal("STOP");
        for (busy, halfway) in busy.iter_mut().zip(&mut halfway) {
            // So many that the tracker has not read all of them when it stops.
            busy.write(&b"\x8A\x80\0\0\0\0".repeat(20_000));
            halfway.write(&half());
        }
        daemon.signal(signal);
        daemon.signal("CONT");
        match signal {
            "USR2" => _ = daemon.upgraded(),
            _ => {
                daemon.line(STOPPED);
                daemon.await_exit().exits(0, &[]);
            }
        }
        for browser in idle.iter_mut().chain(&mut busy).chain(&mut halfway) {
            // A reset could destroy the close frame before the client reads it.
            let error = browser.0.get_ref().tcp().take_error().unwrap();
            assert!(error.is_none(), "{signal}: {error:?}");
            assert_eq!(browser.close_code(), 1012);
        }
    }
}

#[test]
fn a_source_that_a_reload_blocks_is_closed_at_its_next_message() {
    let mut tracker = Tracker::with("");
    let [mut honest, blocked] = [0, 1].map(|family| tracker.browsers(family));
    let text = fs::read_to_string(tracker.daemon.config_path()).unwrap();
    tracker.daemon.configure(&format!("{text}[access]\nblocked = [\"::1\"]\n"));
    tracker.daemon.signal("HUP");
    tracker.daemon.line(RELOADED);
    for mut browser in blocked {
        eventually("a message is not served any more", || {
            browser.send(&id(), r#""left":1"#).unwrap();
            browser.has_ended()
        });
    }
    honest.iter_mut().for_each(|it| _ = it.announce(&id(), r#""left":1"#));
    let daemon = &tracker.daemon;
    await_sum(daemon, "closed_connections_total", "cause=\"blocked\"", 2);
    assert_eq!(refused(daemon, "blocked"), 2);
    check_sums(daemon);
}

#[test]
fn half_sent_messages_stay_within_their_memory() {
    const HALVES: usize = 2_000;
    const MEMORY: usize = 1 << 20;
    // Open files: one per client of this test, all open until its end, and those of other tests,
    // which run in the same process.
    let (needed, wanted) = (HALVES as u64 + 500, 2 * HALVES as u64);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(needed <= hard, "needs {needed} open files: raise the hard limit (ulimit -Hn)");
    setrlimit(Resource::RLIMIT_NOFILE, wanted.clamp(soft, hard), hard).unwrap();
    let keys = format!("buffer_memory = {MEMORY}\ntimeout = 300\nconnections_per_source = 5000\n");
    let tracker = Tracker::with(&keys);
    let daemon = &tracker.daemon;
    let buffered = || sum(daemon, "buffered_bytes", "") as usize;
    let (mut honest, hash, half) = (tracker.browsers(1), id(), half());
    let mut slow = Vec::new();
    for number in 0..HALVES / 2 {
        for mut browser in tracker.browsers(0) {
            // It may be the next one to be closed.
            let _ = browser.0.get_mut().write_all(&half);
            slow.push(browser);
        }
        if number % 50 == 0 {
            honest.iter_mut().for_each(|it| _ = it.announce(&hash, r#""left":1"#));
            assert!(buffered() <= MEMORY, "{} bytes", buffered());
        }
    }
    let most = MEMORY / half.len();
    eventually("all others are closed", || closed(daemon, "memory") as usize >= HALVES - most);
    assert!((MEMORY / 4..=MEMORY).contains(&buffered()), "{} bytes", buffered());
    for browser in &mut honest {
        assert_eq!(browser.announce(&hash, r#""left":1"#), [0, 2]);
    }
    check_sums(daemon);
}
