//! Limits of WebTorrent, and what is not the usual way of a connection: a worker that is far
//! behind, TLS, proxies, control frames within messages, and ends while a request is in flight.

use std::io::Write;

use onrush_net::stream::memory::{Client, Conditions};
use onrush_proto::InfoHash;
use onrush_testing::memory_tracker::{rules, secrets, settings};
use onrush_testing::tls::client as tls_client;
use onrush_tracker::assemble::shard_map;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::member::MemberThread;
use onrush_tracker::metrics::WebCounters;
use onrush_web::webtorrent::exchange::PARCELS;
use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::proxies::PROXY;
use crate::tls::TlsClient;
use crate::webtorrent::{
    Browser, CLOSE, HASH, KEY, PING, PONG, TEXT, UPGRADE, announce, counts, frame, long_offer,
    messages, offer, part, peer_id, whole_frames,
};
use crate::world::{CERTIFICATE, World, binary_header, read_all, source, tls};

/// Memory for buffers of each worker of a [`pair`].
const MEMORY: u64 = 1 << 20;

/// A close frame of the tracker.
fn close(code: u16) -> (OpCode, Vec<u8>) {
    (CLOSE, code.to_be_bytes().to_vec())
}

/// Two web workers with two parcels for each other.
fn pair() -> World {
    workers(2, 0)
}

/// So many web workers, with parcels of each for the others.
fn workers(count: usize, parcels: usize) -> World {
    let config = format!("buffer_memory = {MEMORY}\n[webtorrent]\nmax_message = 100_000\n");
    let conditions = Conditions { capacity: 1 << 20, ..Conditions::default() };
    World::with_workers(1, &config, conditions, tls(&[&CERTIFICATE]), (count, parcels))
}

/// The info hash of a swarm that this worker of a [`pair`] owns.
fn swarm_of(worker: usize) -> String {
    let map = shard_map(2, &secrets(1));
    let owner = |hash: &str| map.shard_of(&InfoHash(hash.as_bytes().try_into().unwrap()));
    (0..).map(|number| format!("{number:020}")).find(|hash| owner(hash) == worker).unwrap()
}

/// The counters of the second worker of a [`pair`].
fn second(world: &World) -> &WebCounters {
    &world.others[0].1.web
}

/// Announces to a swarm of the second worker until the first one has no room for more, while the
/// second one takes no turns. Returns the three clients.
fn fill(world: &mut World) -> Vec<Browser> {
    let mut browsers: Vec<_> = (101..=103).map(|number| Browser::new(world, number)).collect();
    let fields = json!({"left": 1, "offers": [long_offer(40 << 10)]});
    for browser in &mut browsers {
        browser.send(&browser.announce(&swarm_of(1), fields.clone()));
    }
    world.turn_first();
    browsers
}

/// What the first worker has counted: requests, announces, scrapes, and refusals as busy.
fn counted(world: &World) -> [u64; 4] {
    let incoming = &world.metrics.incoming.v4;
    let requests = world.counters().ws_requests.get();
    [requests, incoming.announces.get(), incoming.scrapes.get(), world.refused("busy")]
}

/// Clients whose requests wait for the second worker: an announce, a `stopped` and a scrape.
struct Starved {
    world: World,
    waiting: Vec<Browser>,
    requests: [Value; 3],
    fillers: Vec<Browser>,
    /// A member of a swarm of the first worker.
    idle: Browser,
    /// What was counted before.
    counted: [u64; 4],
}

impl Starved {
    /// Each client has sent a scrape of a swarm of the first worker behind its request.
    fn new() -> Self {
        let mut world = pair();
        let mut waiting: Vec<_> = (1..=3).map(|number| Browser::new(&mut world, number)).collect();
        let mut idle = Browser::new(&mut world, 4);
        idle.ask(&mut world, &idle.announce(&swarm_of(0), json!({"left": 1})));
        let fillers = fill(&mut world);
        let (far, counted) = (swarm_of(1), counted(&world));
        let requests = [
            waiting[0].announce(&far, json!({"left": 1})),
            waiting[1].announce(&far, json!({"event": "stopped"})),
            json!({"action": "scrape", "info_hash": far}),
        ];
        for (browser, request) in waiting.iter_mut().zip(&requests) {
            browser.send(request);
        }
        world.turn_first();
        let read = world.counters().http_received_bytes.get();
        for browser in &mut waiting {
            browser.send(&json!({"action": "scrape", "info_hash": swarm_of(0)}));
        }
        world.turn_first();
        assert_eq!(world.counters().http_received_bytes.get(), read);
        Self { world, waiting, requests, fillers, idle, counted }
    }

    /// Lets seconds pass without the second worker, in which nothing happens.
    fn pass(&mut self, seconds: usize) {
        (0..seconds).for_each(|_| self.world.second_of_first());
        assert!(self.waiting.iter_mut().all(|it| it.arrived().is_empty() && !it.has_ended));
        assert_eq!(counted(&self.world), self.counted);
    }

    /// The first message to each client. The second one is the reply to the scrape behind.
    fn replies(&mut self) -> Vec<Value> {
        let waiting = self.waiting.iter_mut();
        let replies = waiting.map(|it| <[Value; 2]>::try_from(messages(it.arrived())).unwrap());
        let replies = replies.map(|[reply, behind]| {
            assert!(behind["files"].get(swarm_of(0)).is_some(), "{behind}");
            reply
        });
        replies.collect()
    }

    /// The counts with these added.
    fn counted_with(&self, added: [u64; 4]) -> [u64; 4] {
        std::array::from_fn(|at| self.counted[at] + added[at])
    }
}

#[test]
fn requests_wait_for_the_owner_of_their_swarm() {
    let mut it = Starved::new();
    it.pass(2);
    it.world.settle();
    let replies = it.replies();
    assert_eq!((&replies[0]["incomplete"], &replies[1]["incomplete"]), (&json!(4), &json!(4)));
    assert_eq!(replies[2]["files"][swarm_of(1)]["incomplete"], 4);
    // With the announces of those that have filled the lane.
    assert_eq!(counted(&it.world), it.counted_with([3 + 6, 2, 1 + 3, 0]));
    it.world.check();
}

#[test]
fn requests_without_room_are_refused_after_two_seconds() {
    let mut it = Starved::new();
    it.pass(2);
    it.world.second_of_first();
    for (reply, request) in it.replies().iter().zip(&it.requests) {
        assert!(reply["failure reason"].is_string(), "{reply}");
        // Minutes (BEP 31).
        assert_eq!((&reply["retry in"], &reply["action"]), (&json!(5), &request["action"]));
        let is_announce = request["action"] == "announce";
        let info_hash = is_announce.then(|| request["info_hash"].clone());
        assert_eq!(reply.get("info_hash").cloned(), info_hash, "{reply}");
    }
    it.counted = it.counted_with([6, 0, 3, 3]);
    assert_eq!(counted(&it.world), it.counted);
    assert_eq!(it.world.metrics.incoming.v4.refused.iter().map(|it| it.get()).sum::<u64>(), 3);
    // The next request has its own time.
    it.waiting[0].send(&it.requests[0]);
    it.world.turn_first();
    it.pass(2);
    it.world.second_of_first();
    assert_eq!(messages(it.waiting[0].arrived()).len(), 1);
    it.world.settle();
    assert!(it.waiting.iter_mut().all(|it| it.arrived().is_empty()), "one reply each");
    assert_eq!(it.fillers[0].messages(&mut it.world)[0]["interval"], 120);
    assert_eq!(second(&it.world).webrtc_leechers.get(), 3);
    it.world.check();
}

#[test]
fn half_closed_clients_get_the_replies_that_wait_for_room() {
    for is_served in [true, false] {
        let mut it = Starved::new();
        it.waiting.iter_mut().for_each(|it| it.client.finish().unwrap());
        it.pass(1);
        match is_served {
            true => it.world.settle(),
            false => (0..2).for_each(|_| it.world.second_of_first()),
        }
        let failures = it.replies().iter().filter(|it| it.get("failure reason").is_some()).count();
        assert_eq!(failures, if is_served { 0 } else { 3 });
        assert!(it.waiting.iter().all(|it| it.has_ended));
        assert_eq!(it.world.closed(CloseCause::Client), 3);
        it.world.settle();
        assert_eq!(second(&it.world).webrtc_leechers.get(), 3);
        it.world.check();
    }
}

#[test]
fn a_pause_ends_the_wait_for_room() {
    let mut it = Starved::new();
    let _paused = it.world.orders().pause_fronts().unwrap();
    it.world.turn_first();
    assert!(it.waiting.iter_mut().chain([&mut it.idle]).all(|it| it.arrived_code() == 1012));
    assert_eq!(counted(&it.world), it.counted);
    // Those that the lane has taken get their replies before.
    assert!(it.fillers.iter_mut().all(|it| it.arrived().is_empty() && !it.has_ended));
    assert!(it.fillers.iter_mut().all(|filler| filler.close_code(&mut it.world) == 1012));
    it.world.pass(2);
    assert_eq!((it.world.closed(CloseCause::Stop), it.world.counters().abandoned.get()), (7, 0));
    let swarms = [it.world.counters(), second(&it.world)].map(|it| it.webrtc_swarms.get());
    assert_eq!(swarms, [0, 0]);
    it.world.check();
}

#[test]
fn without_memory_those_that_have_waited_longest_for_room_are_closed() {
    let mut world = pair();
    let mut waiting: Vec<_> = (1..=24).map(|number| Browser::new(&mut world, number)).collect();
    let _fillers = fill(&mut world);
    let fields = json!({"left": 1, "offers": [long_offer(60_000)]});
    for (at, browser) in waiting.iter_mut().enumerate() {
        if at == 20 {
            world.second_of_first();
        }
        browser.send(&browser.announce(&swarm_of(1), fields.clone()));
        world.turn_first();
        assert!(world.counters().buffered_bytes.get() <= MEMORY);
        // For unread input, a connection is reset.
        browser.client.write_all(&frame(PING, b"")).unwrap();
    }
    let closed: Vec<_> = waiting.iter_mut().map(|it| it.arrived() == [close(1008)]).collect();
    assert!(closed.contains(&true) && !closed[20..].contains(&true), "{closed:?}");
    world.settle();
    world.check();
}

#[test]
fn without_memory_messages_that_clients_can_take_are_sent_at_once() {
    let mut world = workers(1, PARCELS);
    let mut browsers: Vec<_> = (0..150).map(|number| Browser::new(&mut world, number)).collect();
    browsers.iter_mut().for_each(|it| _ = it.join(&mut world));
    let offers = json!({"left": 1, "offers": vec![long_offer(1_500); 10]});
    for browser in &mut browsers[..100] {
        browser.send(&browser.announce(HASH, offers.clone()));
    }
    while world.web.turn(world.now()).unwrap() {
        assert!(world.counters().buffered_bytes.get() <= MEMORY);
    }
    let frames: usize = browsers.iter_mut().map(|it| it.arrived().len()).sum();
    assert_eq!((frames, world.closed(CloseCause::Memory)), (100 + 1_000, 0));
    world.check();
}

#[test]
fn without_memory_only_those_are_closed_that_do_not_read() {
    let mut world = World::new(&format!("buffer_memory = {MEMORY}\n"));
    let pair = |number: u8| {
        let [mut deaf, mut sender] = [number, 100 + number].map(|it| Browser::new(&mut world, it));
        let hash = format!("{number:020}");
        deaf.send(&deaf.announce(&hash, json!({"left": 1})));
        world.settle();
        let offer = sender.announce(&hash, json!({"left": 1, "offers": [long_offer(60_000)]}));
        assert_eq!(sender.ask(&mut world, &offer).len(), 1);
        (deaf, sender, offer)
    };
    let mut pairs: Vec<_> = (0..24).map(pair).collect();
    assert_eq!(world.counters().buffered_bytes.get(), 0);
    // Clients have room for one of these offers.
    pairs.iter_mut().for_each(|(_, sender, offer)| sender.send(offer));
    world.turn_first();
    assert!(pairs.iter_mut().all(|(_, sender, _)| messages(sender.arrived()).len() == 1));
    let buffered = world.counters().buffered_bytes.get();
    assert!((MEMORY * 3 / 4..=MEMORY).contains(&buffered), "no more than necessary are closed");
    assert!(world.closed(CloseCause::Memory) > 0);
    assert!(!pairs.iter().any(|(_, sender, _)| sender.has_ended));
    world.check();
}

#[test]
fn offers_and_answers_without_room_are_dropped() {
    let mut world = pair();
    let near = swarm_of(0);
    let mut far = Browser::at(&mut world, 1, 2);
    let mut browser = Browser::new(&mut world, 1);
    browser.ask(&mut world, &browser.announce(&near, json!({"left": 1})));
    for number in [2, 3] {
        far.ask(&mut world, &far.announce(&near, json!({"left": 1, "offers": [offer(number)]})));
    }
    assert_eq!(browser.messages(&mut world).len(), 2);
    let _fillers = fill(&mut world);
    // The first answer takes the room that requests and offers leave.
    for (number, length) in [(2, 90_000), (3, 0)] {
        let (id, sdp) = (&offer(number)["offer_id"], "x".repeat(length));
        let answer = json!({"type": "answer", "sdp": sdp});
        let answer = json!({"answer": answer, "to_peer_id": peer_id(2), "offer_id": id});
        browser.send(&browser.announce(&near, answer));
    }
    browser.send(&browser.announce(&near, json!({"left": 1, "offers": [offer(1)]})));
    world.turn_first();
    assert_eq!(messages(browser.arrived())[0]["incomplete"], 2, "the announce does not wait");
    let counters = world.counters();
    let dropped = [&counters.webrtc_offers_dropped, &counters.webrtc_answers_dropped];
    assert_eq!(dropped.map(|it| it.get()), [1, 1]);
    assert_eq!(far.frames(&mut world).len(), 1);
    world.check();
}

/// Sends a message over TLS; the frames that have arrived.
fn ask_secure(world: &mut World, client: &mut TlsClient, message: &[u8]) -> Vec<(OpCode, Vec<u8>)> {
    client.write(message);
    client.settle(world);
    whole_frames(&mut client.received)
}

#[test]
fn peers_exchange_offers_over_tls() {
    let conditions = Conditions { capacity: 4_096, ..Conditions::default() };
    let mut world = World::with(1, "", conditions);
    let config = tls_client(&[&CERTIFICATE]);
    let [mut first, mut other] = [1, 2].map(|number| {
        let from = source(&format!("198.51.100.{number}"), 40_000);
        let mut client = TlsClient::new(world.connect_tls(from), &config);
        client.write(format!("GET / HTTP/1.1\r\n{UPGRADE}{KEY}\r\n"));
        client.settle(&mut world);
        let head = std::mem::take(&mut client.received);
        assert!(head.starts_with(b"HTTP/1.1 101 ") && head.ends_with(b"\r\n\r\n"));
        client
    });
    let ask = |world: &mut World, client: &mut TlsClient, message: Value| {
        let message = frame(TEXT, message.to_string().as_bytes());
        messages(ask_secure(world, client, &message))
    };
    let joins = announce(1, HASH, json!({"left": 1}));
    assert_eq!(ask(&mut world, &mut first, joins), [counts(0, 1)]);
    let offers = announce(2, HASH, json!({"left": 0, "offers": [long_offer(8_000)]}));
    assert_eq!(ask(&mut world, &mut other, offers), [counts(1, 1)]);
    // It takes a part of the record, and the rest in time.
    world.pass(5);
    let got = messages(ask_secure(&mut world, &mut first, b""));
    assert_eq!((got.len(), &got[0]["offer"]), (1, &long_offer(8_000)["offer"]));
    world.pass(12);
    let counters = world.counters();
    assert_eq!(counters.webrtc_offers.get(), 1);
    let requests = [&counters.https_requests, &counters.wss_requests, &counters.ws_requests];
    assert_eq!(requests.map(|it| it.get()), [2, 2, 0], "upgrades are those of HTTPS");
    let open = [&counters.wss_open, &counters.https_open, &counters.ws_open];
    assert_eq!((open.map(|it| it.get()), counters.buffered_bytes.get()), ([2, 0, 0], 0));
    world.pass(14);
    let ping = || (PING, Vec::new());
    assert_eq!(ask_secure(&mut world, &mut first, b""), [ping()]);
    let closes = frame(CLOSE, &close(1000).1);
    assert_eq!(ask_secure(&mut world, &mut other, &closes), [ping(), close(1000)]);
    let open = (world.counters().wss_open.get(), world.counters().webrtc_seeders.get());
    assert_eq!(open, (2, 0), "what lingers is open");
    world.pass(2);
    assert_eq!((world.closed(CloseCause::Client), world.counters().wss_open.get()), (1, 1));
    world.check();
}

/// Tables of a tracker that trusts [`PROXY`] to name clients so.
fn behind_proxy(by: &str, more: &str) -> World {
    World::new(&format!("proxies = [\"{PROXY}\"]\nclient_address = \"{by}\"\n{more}"))
}

#[test]
fn clients_behind_a_proxy_are_members_by_their_own_addresses() {
    for by in ["x-forwarded-for", "proxy-protocol"] {
        let mut world = behind_proxy(by, "");
        // All have the same peer id.
        let connect = |world: &mut World, ip: &str| {
            let mut client = world.connect(source(PROXY, 1));
            if by == "x-forwarded-for" {
                let field = format!("X-Forwarded-For: {ip}\r\n");
                return Browser::over(world, client, 1, &field);
            }
            client.write_all(&binary_header(source(ip, 9))).unwrap();
            Browser::over(world, client, 1, "")
        };
        let mut browsers =
            ["8.8.8.8", "9.9.9.9", "2a00::1", "8.8.8.8"].map(|ip| connect(&mut world, ip));
        for (browser, members) in browsers.iter_mut().zip([1, 2, 3, 3]) {
            assert_eq!(browser.join(&mut world), [counts(0, members)], "{by}");
        }
        let incoming = &world.metrics.incoming;
        assert_eq!((incoming.v4.announces.get(), incoming.v6.announces.get()), (3, 1));
        // Offers reach the connection that has replaced the first one, whose end ends nothing.
        let [replaced, mut sender, _v6, mut again] = browsers;
        drop(replaced);
        let offers = json!({"left": 1, "offers": [offer(1), offer(2), offer(3)]});
        assert_eq!(sender.announced(&mut world, offers), [counts(0, 3)]);
        assert_eq!(again.messages(&mut world).len(), 1);
        let counters = world.counters();
        assert_eq!((counters.webrtc_offers.get(), counters.ws_open.get()), (2, 3));
        world.check();
    }
}

/// Asks for an upgrade for a client that a proxy names in a field; the status of the reply.
fn status_for(world: &mut World, client: &str) -> (Client, String) {
    let mut proxy = world.connect(source(PROXY, 1));
    write!(proxy, "GET / HTTP/1.1\r\n{UPGRADE}{KEY}X-Forwarded-For: {client}\r\n\r\n").unwrap();
    world.settle();
    let (bytes, _) = read_all(&mut proxy);
    (proxy, String::from_utf8_lossy(&bytes[9..12]).into_owned())
}

#[test]
fn upgrades_of_a_client_that_a_proxy_names_are_limited_and_refused_as_its_connections_are() {
    let keys = "connections_per_source = 2\n[access]\nblocked = [\"7.7.7.7\"]\n";
    let mut world = behind_proxy("x-forwarded-for", &format!("{keys}refuse_bogons = true\n"));
    let mut open = Vec::new();
    for (client, status, refusal) in [
        ("8.8.8.8", "101", None),
        ("8.8.8.8", "101", None),
        ("8.8.8.8", "403", Some("source_limit")),
        ("9.9.9.9", "101", None),
        ("2a00::1", "101", None),
        ("2a00::2", "101", None),
        ("2a00::3", "403", Some("source_limit")),
        ("7.7.7.7", "403", Some("blocked")),
        ("10.0.0.1", "403", Some("bogon")),
    ] {
        let before = refusal.map(|it| world.refused(it));
        let (proxy, got) = status_for(&mut world, client);
        assert_eq!(got, status, "{client}");
        assert_eq!(refusal.map(|it| world.refused(it)), before.map(|it| it + 1), "{client}");
        open.push(proxy);
    }
    assert_eq!(world.counters().ws_open.get(), 5);
    // The end of one makes place for another.
    drop(open.remove(0));
    world.settle();
    assert_eq!(status_for(&mut world, "8.8.8.8").1, "101");
    world.pass(2);
    assert_eq!((world.counters().answered.get(), world.counters().requests.get()), (6, 10));
    world.check();
}

#[test]
fn an_upgrade_over_a_connection_of_a_proxy_that_was_a_client_is_none_of_its_own() {
    let mut world = World::new("connections_per_source = 2\n");
    let connections = [1, 2].map(|port| world.connect(source(PROXY, port)));
    world.settle();
    let proxies = format!("[http]\nproxies = [\"{PROXY}\"]\n");
    world.update_rules(rules(&settings(&proxies)));
    let field = "X-Forwarded-For: 8.8.8.8\r\n";
    drop(connections.map(|it| Browser::over(&mut world, it, 1, field)));
    world.update_rules(rules(&settings("")));
    let _again = [1, 2, 3].map(|port| world.connect(source(PROXY, port)));
    world.settle();
    assert_eq!((world.closed(CloseCause::SourceLimit), world.counters().open.get()), (1, 2));
    world.check();
}

/// A client of the first worker that is a member of a swarm there, and whose announce to a swarm of
/// the second worker is in flight.
fn in_flight() -> (World, Browser) {
    let mut world = pair();
    let mut browser = Browser::new(&mut world, 1);
    let [near, far] = [0, 1].map(|of| browser.announce(&swarm_of(of), json!({"left": 1})));
    assert_eq!(browser.ask(&mut world, &near).len(), 1);
    browser.send(&far);
    world.turn_first();
    (world, browser)
}

/// Checks that both swarms are without members, and how the connection and the request have ended.
#[track_caller]
fn assert_left(world: &mut World, cause: CloseCause, abandoned: u64) {
    world.pass(2);
    for counters in [world.counters(), second(world)] {
        let left = [&counters.webrtc_swarms, &counters.webrtc_leechers];
        assert_eq!(left.map(|it| it.get()), [0, 0]);
    }
    assert_eq!((world.closed(cause), world.counters().abandoned.get()), (1, abandoned));
    world.check();
}

#[test]
fn no_member_stays_when_its_connection_ends_with_the_announce_in_flight() {
    type End = fn(&mut World, &mut Browser);
    // Also within a message.
    let close: End = |_, it| {
        it.client.write_all(&[part(TEXT, b"{"), frame(CLOSE, b"")].concat()).unwrap();
    };
    let finish: End = |_, it| it.client.finish().unwrap();
    let pause: End = |world, _| drop(world.orders().pause_fronts().unwrap());
    let stop: End = |world, it| {
        // For unread input, a connection is reset.
        it.client.write_all(&frame(PING, b"")).unwrap();
        world.web.end();
        assert_eq!(it.arrived_code(), 1012);
    };
    for (end, cause, replies) in [
        (close, CloseCause::Client, 1),
        (finish, CloseCause::Client, 1),
        (pause, CloseCause::Stop, 1),
        (stop, CloseCause::Stop, 0),
    ] {
        let (mut world, mut browser) = in_flight();
        end(&mut world, &mut browser);
        world.settle();
        let frames = browser.arrived();
        let texts = frames.iter().filter(|(opcode, _)| *opcode == TEXT).count();
        assert_eq!((texts, browser.has_ended), (replies, true), "{frames:?}");
        assert_left(&mut world, cause, 1 - replies as u64);
    }
}

const PART: OpCode = OpCode::Data(Data::Continue);

#[test]
fn a_message_has_to_be_whole_in_time_whatever_is_within() {
    let cut = |frame: Vec<u8>, len: usize| frame[..len].to_vec();
    for (name, begin, between) in [
        ("ping", part(TEXT, b"{"), frame(PING, b"")),
        ("pong", part(TEXT, b"{"), frame(PONG, b"")),
        ("fragments", part(TEXT, b"{"), part(PART, b" ")),
        ("bytes", cut(frame(TEXT, &[b' '; 100]), 7), b" ".to_vec()),
        ("part of a header", cut(frame(TEXT, b"{}"), 3), Vec::new()),
        ("header only", cut(frame(TEXT, b"{}"), 6), Vec::new()),
    ] {
        let mut world = World::new("timeout = 5\n");
        let mut browser = Browser::new(&mut world, 1);
        browser.join(&mut world);
        browser.client.write_all(&begin).unwrap();
        world.settle();
        for _ in 0..5 {
            world.pass(1);
            browser.client.write_all(&between).unwrap();
            let pongs = if name == "ping" { vec![(PONG, Vec::new())] } else { vec![] };
            assert_eq!(browser.frames(&mut world), pongs);
        }
        assert_eq!(world.closed(CloseCause::Timeout), 0, "{name}");
        world.pass(3);
        assert_eq!(world.closed(CloseCause::Timeout), 1, "{name}");
        assert_eq!(world.counters().webrtc_leechers.get(), 0);
        world.check();
    }
}

#[test]
fn a_silent_client_without_a_membership_is_closed_for_others_and_members_last() {
    let mut world = World::new("connections = 4\ntimeout = 60\n");
    let mut member = Browser::new(&mut world, 1);
    member.join(&mut world);
    world.pass(1);
    let mut silent = Browser::new(&mut world, 2);
    let mut left = Browser::new(&mut world, 3);
    for event in ["started", "stopped"] {
        left.announced(&mut world, json!({"left": 1, "event": event}));
    }
    // It is in the middle of a message.
    let mut busy = Browser::new(&mut world, 4);
    busy.client.write_all(&part(TEXT, b"{")).unwrap();
    world.pass(1);
    let is_open = |it: &mut Browser| {
        let (had_ended, frames) = (it.has_ended, it.arrived());
        assert_eq!(it.has_ended, had_ended || frames == [close(1008)], "{frames:?}");
        !it.has_ended
    };
    let mut newcomers = Vec::new();
    for (replaced, full) in [(1, 0), (2, 0), (3, 0), (3, 1)] {
        newcomers.push(world.connect(source("198.51.100.9", replaced as u16)));
        world.pass(2);
        let closed = [CloseCause::Replaced, CloseCause::Full].map(|it| world.closed(it));
        assert_eq!(closed, [replaced, full]);
        // Two without memberships are closed before the member.
        let without = [&mut silent, &mut left].map(|it| u64::from(is_open(it)));
        assert_eq!(without.iter().sum::<u64>(), 2 - replaced.min(2));
        let members = u64::from(replaced < 3);
        assert_eq!(is_open(&mut member), members == 1);
        assert_eq!(world.counters().webrtc_leechers.get(), members);
    }
    assert!(is_open(&mut busy));
    world.check();
}
