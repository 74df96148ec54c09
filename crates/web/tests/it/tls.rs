//! TLS: handshakes, what they cost, and which certificate a client gets.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use onrush_net::stream::memory::{Client, Conditions};
use onrush_testing::tls::{Issued, PKCS_RSA_SHA256, client, client_1_2};
use onrush_tracker::close_cause::CloseCause;
use rustls::crypto::cipher::OutboundPlainMessage;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, HandshakeKind,
    ProtocolVersion, SupportedCipherSuite,
};

use crate::world::{
    ANNOUNCE, CERTIFICATE, Reply, World, get, loaded, read_all, replies, source, tls,
};

/// A client of HTTPS. It moves bytes when it is told to.
pub(crate) struct TlsClient {
    pub(crate) tls: ClientConnection,
    pub(crate) client: Client,
    /// What was encrypted and not sent.
    unsent: Vec<u8>,
    /// What the server has sent.
    pub(crate) received: Vec<u8>,
    /// Whether the server has ended its direction, and whether by `close_notify`.
    pub(crate) ended: Option<bool>,
    pub(crate) error: Option<rustls::Error>,
}

impl TlsClient {
    pub(crate) fn new(client: Client, config: &Arc<ClientConfig>) -> Self {
        Self::of_name(client, config, "t")
    }

    /// Behind this header of a proxy.
    pub(crate) fn behind(header: Vec<u8>, client: Client, config: &Arc<ClientConfig>) -> Self {
        Self { unsent: header, ..Self::new(client, config) }
    }

    fn of_name(client: Client, config: &Arc<ClientConfig>, name: &str) -> Self {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        let (unsent, received) = (Vec::new(), Vec::new());
        Self { tls, client, unsent, received, ended: None, error: None }
    }

    /// Encrypts bytes. [`pump`](Self::pump) sends them, when the handshake is over.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.tls.writer().write_all(bytes.as_ref()).unwrap();
    }

    /// Whether everything was sent.
    pub(crate) fn has_sent(&self) -> bool {
        self.unsent.is_empty() && !self.tls.wants_write()
    }

    /// Sends and receives once, up to so many bytes. Whether anything was moved.
    pub(crate) fn pump(&mut self, most: usize) -> bool {
        self.send(most) || self.receive(most)
    }

    /// Sends up to so many bytes. Whether any were sent.
    pub(crate) fn send(&mut self, most: usize) -> bool {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.unsent).unwrap();
        }
        let part = &self.unsent[..self.unsent.len().min(most)];
        let sent = if part.is_empty() { 0 } else { self.client.write(part).unwrap_or(0) };
        self.unsent.drain(..sent);
        sent > 0
    }

    pub(crate) fn receive(&mut self, most: usize) -> bool {
        let mut buffer = vec![0; most.min(1 << 14)];
        let received = match self.client.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Ok(received) if received > 0 => received,
            _ => {
                self.ended.get_or_insert(false);
                return false;
            }
        };
        let mut bytes = &buffer[..received];
        while !bytes.is_empty() && self.error.is_none() && self.ended != Some(true) {
            self.tls.read_tls(&mut bytes).unwrap();
            match self.tls.process_new_packets() {
                Ok(state) => {
                    let before = self.received.len();
                    self.received.resize(before + state.plaintext_bytes_to_read(), 0);
                    self.tls.reader().read_exact(&mut self.received[before..]).unwrap();
                    if state.peer_has_closed() {
                        self.ended = Some(true);
                    }
                }
                Err(error) => self.error = Some(error),
            }
        }
        true
    }

    /// Moves everything, with the turns of the world.
    pub(crate) fn settle(&mut self, world: &mut World) {
        loop {
            let moved = self.pump(usize::MAX);
            world.settle();
            if !moved && !self.pump(usize::MAX) {
                return;
            }
        }
    }

    /// The replies since the last call.
    pub(crate) fn replies(&mut self) -> Vec<Reply> {
        replies(&std::mem::take(&mut self.received))
    }
}

fn connect(world: &World, config: &Arc<ClientConfig>) -> TlsClient {
    TlsClient::new(world.connect_tls(source("198.51.100.1", 40_000)), config)
}

/// The counts of full, resumed and failed handshakes.
fn handshakes(world: &World) -> [u64; 3] {
    let counters = world.counters();
    [&counters.full_handshakes, &counters.resumed_handshakes, &counters.failed_handshakes]
        .map(|counter| counter.get())
}

#[test]
fn requests_are_served_and_counted_as_those_of_https() {
    for (config, version) in [
        (client(&[&CERTIFICATE]), ProtocolVersion::TLSv1_3),
        (client_1_2(&[&CERTIFICATE]), ProtocolVersion::TLSv1_2),
    ] {
        let mut world = World::new("");
        let mut client = connect(&world, &config);
        client.write(get(ANNOUNCE) + &get("/health"));
        client.settle(&mut world);
        assert_eq!(client.tls.protocol_version(), Some(version));
        let suite = client.tls.negotiated_cipher_suite().unwrap().suite();
        assert!(suite.as_str().unwrap().contains("AES_128"), "{suite:?} takes longer");
        assert_eq!(client.tls.alpn_protocol(), Some(&b"http/1.1"[..]));
        let replies = client.replies();
        assert!(replies[0].body.starts_with(b"d8:complete") && replies[1].body == b"ok\n");
        // The connection is kept.
        client.write(get("/health"));
        client.settle(&mut world);
        assert_eq!((client.replies().len(), client.ended), (1, None));
        assert_eq!(world.counters().buffered_bytes.get(), 0);
        let counters = world.counters();
        let over_tls = [&counters.https_accepted, &counters.https_open, &counters.https_requests];
        assert_eq!(over_tls.map(|counter| counter.get()), [1, 1, 3]);
        let plain = [&counters.accepted, &counters.open, &counters.requests];
        assert_eq!(plain.map(|counter| counter.get()), [0; 3]);
        assert_eq!(handshakes(&world), [1, 0, 0]);
        // The client ends it, or the tracker.
        let mut idle = connect(&world, &config);
        idle.write(get("/health"));
        idle.settle(&mut world);
        client.tls.send_close_notify();
        client.settle(&mut world);
        assert_eq!((client.ended, world.closed(CloseCause::Client)), (Some(true), 1));
        world.pass(17);
        idle.settle(&mut world);
        assert_eq!((idle.ended, world.closed(CloseCause::Idle)), (Some(true), 1));
        world.check();
    }
}

#[test]
fn a_ticket_resumes_the_session_on_another_connection() {
    for (mut config, tickets) in [(client(&[&CERTIFICATE]), 1), (client_1_2(&[&CERTIFICATE]), 0)] {
        Arc::make_mut(&mut config).enable_early_data = true;
        let mut world = World::new("");
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            let mut client = connect(&world, &config);
            assert!(client.tls.early_data().is_none(), "no ticket allows it");
            client.write(get("/health"));
            client.settle(&mut world);
            assert_eq!(client.tls.handshake_kind(), Some(expected));
            assert_eq!(client.tls.tls13_tickets_received(), tickets);
            assert_eq!(client.replies().len(), 1);
        }
        assert_eq!(handshakes(&world), [1, 2, 0]);
    }
}

/// Without `close_notify` a client cannot tell the end from an attack (RFC 8446, section 6.1).
#[test]
fn the_end_is_told_by_close_notify_and_then_by_fin() {
    let mut world = World::new("");
    let mut client = connect(&world, &client(&[&CERTIFICATE]));
    client.write(b"GET /health HTTP/1.0\r\n\r\n");
    client.settle(&mut world);
    assert_eq!((client.replies().len(), client.ended), (1, Some(true)));
    assert_eq!(read_all(&mut client.client), (Vec::new(), true), "FIN");
    assert_eq!(world.counters().https_open.get(), 1, "input is discarded for a second");
    client.client.finish().unwrap();
    client.settle(&mut world);
    assert_eq!((world.counters().https_open.get(), world.closed(CloseCause::Served)), (0, 1));
    world.check();
}

#[test]
fn what_is_no_handshake_fails_with_an_alert() {
    for bytes in
        [&b"\x16\x03\x01\x00\x05hello"[..], b"\x80\x2e\x01\x00\x02", b"\x15\x03\x03\0\x02\x02\x28"]
    {
        let mut world = World::new("");
        let mut client = world.connect_tls(source("198.51.100.1", 1));
        client.write_all(bytes).unwrap();
        // What follows is discarded.
        client.write_all(&[0; 100]).unwrap();
        world.settle();
        let (reply, ended) = read_all(&mut client);
        assert!(reply.starts_with(b"\x15\x03\x03\0\x02") && ended, "{bytes:x?}: {reply:x?}");
        world.pass(2);
        assert_eq!((handshakes(&world), world.closed(CloseCause::TlsError)), ([0, 0, 1], 1));
        world.check();
    }
}

#[test]
fn a_refused_certificate_and_an_invalid_record_end_the_connection() {
    let other = Issued::of(&["t"]);
    for (accepted, is_open) in [(&other, false), (&CERTIFICATE, true)] {
        let mut world = World::new("");
        let mut client = connect(&world, &client(&[accepted]));
        client.settle(&mut world);
        if is_open {
            client.client.write_all(b"\x17\x03\x03\0\x14aaaaaaaaaaaaaaaaaaaa").unwrap();
            client.settle(&mut world);
        }
        let is_alert = matches!(client.error, Some(rustls::Error::AlertReceived(_)));
        assert!(client.error.is_some() && is_alert == is_open);
        world.pass(2);
        let expected = [u64::from(is_open), 0, u64::from(!is_open)];
        assert_eq!((handshakes(&world), world.closed(CloseCause::TlsError)), (expected, 1));
        world.check();
    }
}

#[test]
fn a_slow_handshake_times_out_however_it_arrives() {
    let mut world = World::with(
        1,
        "timeout = 10\n",
        // The server's part of the handshake does not fit.
        Conditions { capacity: 400, ..Conditions::default() },
    );
    let silent = world.connect_tls(source("198.51.100.1", 1));
    let mut left = connect(&world, &client(&[&CERTIFICATE]));
    left.send(100);
    left.client.finish().unwrap();
    world.settle();
    assert_eq!((world.closed(CloseCause::Client), handshakes(&world)), (1, [0, 0, 1]));
    let mut slow = connect(&world, &client(&[&CERTIFICATE]));
    let mut deaf = connect(&world, &client(&[&CERTIFICATE]));
    while deaf.send(usize::MAX) {
        world.settle();
    }
    for _ in 0..10 {
        slow.pump(10);
        world.pass(1);
    }
    assert_eq!(world.counters().https_open.get(), 3, "the time-out is not over");
    assert!(world.counters().buffered_bytes.get() > 500, "what the client does not read counts");
    world.pass(1);
    assert_eq!((world.counters().https_open.get(), world.closed(CloseCause::Timeout)), (0, 3));
    // One has not begun.
    assert_eq!((world.counters().buffered_bytes.get(), handshakes(&world)), (0, [0, 0, 3]));
    drop(silent);
    world.check();
}

#[test]
fn the_time_for_the_first_request_includes_the_handshake() {
    let mut world = World::new("timeout = 10\nkeep_alive = 60\n");
    let mut client = connect(&world, &client(&[&CERTIFICATE]));
    world.pass(6);
    client.settle(&mut world);
    assert_eq!(handshakes(&world), [1, 0, 0]);
    world.pass(5);
    assert_eq!(world.counters().https_open.get(), 1);
    world.pass(1);
    client.settle(&mut world);
    assert_eq!((world.closed(CloseCause::Timeout), client.ended), (1, Some(true)));
}

/// A client's configuration for [`encrypt`].
fn with_secrets() -> Arc<ClientConfig> {
    let mut config = client(&[&CERTIFICATE]);
    Arc::make_mut(&mut config).enable_secret_extraction = true;
    config
}

/// Encrypts what rustls would not send, each part in a record.
fn encrypt(tls: ClientConnection, typ: ContentType, parts: &[&[u8]]) -> Vec<u8> {
    let Some(SupportedCipherSuite::Tls13(suite)) = tls.negotiated_cipher_suite() else {
        panic!("TLS 1.3");
    };
    let (sequence, secrets) = tls.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("AES-128") };
    let mut encrypter = suite.aead_alg.encrypter(key, iv);
    let mut encrypt = |(part, sequence): (&&[u8], u64)| {
        let version = ProtocolVersion::TLSv1_2;
        let message = OutboundPlainMessage { typ, version, payload: (*part).into() };
        encrypter.encrypt(message, sequence).unwrap().encode()
    };
    // It counts from the first record.
    (0..sequence).for_each(|sent| _ = encrypt((&&b""[..], sent)));
    parts.iter().zip(sequence..).flat_map(encrypt).collect()
}

#[test]
fn incomplete_records_and_messages_count_as_memory() {
    let config = with_secrets();
    let record = |_: ClientConnection| [&b"\x17\x03\x03\x40\x00"[..], &[0; 16_000]].concat();
    let parts = [&b"\x18\0\xff\xff"[..], &[0; 16_000], &[0; 16_000]];
    let message = |tls| encrypt(tls, ContentType::Handshake, &parts);
    let kinds: [&dyn Fn(ClientConnection) -> Vec<u8>; 2] = [&record, &message];
    for part_of in kinds {
        let mut world = World::new("buffer_memory = 1_048_576\nconnections_per_source = 1000\n");
        let (mut clients, mut part_len) = (Vec::new(), 0);
        for number in 1..=100 {
            let mut client = connect(&world, &config);
            client.write(get("/health"));
            client.settle(&mut world);
            let part = part_of(client.tls);
            client.client.write_all(&part).unwrap();
            world.settle();
            part_len = part.len() as u64;
            let buffered = world.counters().buffered_bytes.get();
            assert_eq!(buffered, part_len * number.min((1 << 20) / part_len));
            clients.push(client.client);
        }
        assert_eq!(world.closed(CloseCause::Memory), 100 - (1 << 20) / part_len);
        // A request of many parts counts like a slow head.
        world.pass(11);
        let counters = world.counters();
        assert_eq!((counters.https_open.get(), counters.buffered_bytes.get()), (0, 0));
        world.check();
    }
}

#[test]
fn complete_records_without_data_are_no_part_of_a_request() {
    for (typ, content) in [
        // An update of keys (RFC 8446, section 4.6.3).
        (ContentType::Handshake, &b"\x18\0\0\x01\0"[..]),
        (ContentType::ApplicationData, b""),
    ] {
        let mut world = World::new("timeout = 5\nkeep_alive = 60\n");
        let mut client = connect(&world, &with_secrets());
        client.write(get("/health"));
        client.settle(&mut world);
        client.client.write_all(&encrypt(client.tls, typ, &[content])).unwrap();
        world.pass(30);
        let counters = world.counters();
        assert_eq!((counters.https_open.get(), counters.buffered_bytes.get()), (1, 0), "{typ:?}");
        world.pass(32);
        assert_eq!(world.closed(CloseCause::Idle), 1, "{typ:?}");
        world.check();
    }
}

#[test]
fn the_certificate_is_that_of_the_name() {
    let pairs = [["a.example", "*.b.example"], ["c.example", "*.c.example"]];
    let [first, second] = pairs.map(|names| Issued::of(&names));
    let tls = tls(&[&first, &second]);
    let mut world = World::with_tls(1, "", Conditions::default(), tls.clone());
    let certificate = |world: &mut World, name: &str, accepted: &[&Issued]| {
        let stream = world.connect_tls(source("198.51.100.1", 1));
        let mut client = TlsClient::of_name(stream, &client(accepted), name);
        client.settle(world);
        client.tls.peer_certificates().map(|chain| chain[0].clone())
    };
    for (name, issued) in [
        ("a.example", &first),
        ("x.b.example", &first),
        ("c.example", &second),
        ("C.example", &second),
        ("x.c.example", &second),
    ] {
        let got = certificate(&mut world, name, &[&first, &second]);
        assert_eq!(got.as_ref(), Some(&issued.der), "{name}");
    }
    // Others get the first one, which the client then refuses.
    for name in ["b.example", "x.x.c.example", "other.example"] {
        certificate(&mut world, name, &[&second]);
    }
    assert_eq!(handshakes(&world), [5, 0, 3]);
    // New handshakes get the certificate that has replaced it.
    let renewed = Issued::of(&["a.example"]);
    tls.replace(loaded(&[&renewed]));
    let got = certificate(&mut world, "a.example", &[&first, &renewed]);
    assert_eq!(got.as_ref(), Some(&renewed.der));
}

#[test]
fn handshakes_of_a_turn_are_limited_by_their_cost() {
    let rsa = Issued::with(&["t"], &PKCS_RSA_SHA256, 2100);
    let proxy = "proxies = [\"198.51.100.1\"]\nclient_address = \"proxy-protocol\"\n";
    let unnamed = "PROXY UNKNOWN\r\n";
    // What follows a client's first message, and is invalid.
    let invalid = &b"\x17\x03\x03\0\x01a"[..];
    for (issued, config, header, end, per_turn) in [
        (&*CERTIFICATE, "", "", &b""[..], 11),
        (&rsa, "", "", b"", 2),
        (&CERTIFICATE, proxy, unnamed, b"", 11),
        (&CERTIFICATE, "", "", invalid, 11),
    ] {
        let mut world = World::with_tls(1, config, Conditions::default(), tls(&[issued]));
        let config = client(&[issued]);
        let connect = |unsent: &str| {
            let stream = world.connect_tls(source("198.51.100.1", 40_000));
            TlsClient::behind(unsent.into(), stream, &config)
        };
        // Those that send a part of a message cost little.
        let mut clients: Vec<_> = (0..20).map(|_| connect(header)).collect();
        clients.iter_mut().for_each(|client| assert!(client.send(100)));
        clients.extend((0..40).map(|_| connect(header)));
        for client in &mut clients[20..] {
            assert!(client.send(usize::MAX));
            client.client.write_all(end).unwrap();
        }
        let mut plain = world.connect(source("198.51.100.2", 1));
        plain.write_all(get("/health").as_bytes()).unwrap();
        assert!(world.turn());
        assert_eq!(replies(&read_all(&mut plain).0).len(), 1, "plain requests do not wait");
        let served = |clients: &mut [TlsClient]| {
            clients.iter_mut().map(|client| usize::from(client.receive(usize::MAX))).sum::<usize>()
        };
        assert_eq!(served(&mut clients), per_turn);
        assert!(world.turn());
        assert_eq!(served(&mut clients), per_turn);
        world.settle();
        assert_eq!(served(&mut clients), 40 - 2 * per_turn);
        world.check();
    }
}

/// Clients whose handshakes are over.
fn twenty_connected(world: &mut World) -> Vec<TlsClient> {
    let config = client(&[&CERTIFICATE]);
    let mut clients: Vec<_> = (0..20).map(|_| connect(world, &config)).collect();
    clients.iter_mut().for_each(|client| client.settle(world));
    clients
}

#[test]
fn input_with_little_data_costs_as_much_as_handshakes() {
    let mut world = World::new("connections_per_source = 100\n");
    let mut clients = twenty_connected(&mut world);
    for client in &mut clients {
        get("/health").bytes().cycle().take(700).for_each(|byte| client.write([byte]));
        while client.send(usize::MAX) {}
    }
    let mut received = || {
        let before = world.counters().http_received_bytes.get();
        world.turn();
        world.counters().http_received_bytes.get() - before
    };
    let first = received();
    let per_client = first / 20;
    assert!(per_client < 200, "others come to their turn: {per_client}");
    assert_eq!(received(), 2 * per_client, "it counts as several handshakes");
}

#[test]
fn a_record_that_is_read_in_parts_costs_no_more_than_others() {
    let mut world = World::new("connections_per_source = 100\n");
    let mut clients = twenty_connected(&mut world);
    for client in &mut clients {
        client.write(get("/health").replace("\r\n\r\n", &format!("\r\nX: {:7000}\r\n\r\n", 0)));
        while client.send(usize::MAX) {}
    }
    world.turn();
    assert!(clients.iter_mut().all(|it| it.receive(usize::MAX) && it.replies().len() == 1));
    world.check();
}
