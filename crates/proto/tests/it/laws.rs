//! Properties of arbitrary datagrams: parsing inverts writing, truncated and lengthened datagrams
//! are read as BEP 15 and BEP 41 require, and nothing panics.

use std::net::Ipv6Addr;

use onrush_proto::announce::{self, Announce, AnnounceHead};
use onrush_proto::connect::{self, Connect, ConnectResponse};
use onrush_proto::options::{self, Opt, Options};
use onrush_proto::response::{BadResponse, Response};
use onrush_proto::scrape::{self, Scrape, ScrapeCounts};
use onrush_proto::{
    ConnectionId, Endpoint, Event, Family, InfoHash, Malformed, PeerId, Request, TransactionId,
    error,
};
use proptest::collection::vec;
use proptest::prelude::*;

// ---------------------------------------------------------------------------- requests

proptest! {
    #[test]
    fn connect_round_trips(transaction_id: u32) {
        let (connect, wire) = written_connect(transaction_id);
        prop_assert_eq!(Request::parse(&wire), Ok(Request::Connect(connect)));
    }

    #[test]
    fn announce_round_trips(announce in announces(), trailing in vec(any::<u8>(), 0..300)) {
        let announce = Announce { options: Options(&trailing), ..announce };
        let wire = written(&announce);
        prop_assert_eq!(wire.len(), announce::REQUEST_LEN + trailing.len());
        prop_assert_eq!(Request::parse(&wire), Ok(Request::Announce(announce)));
    }

    #[test]
    fn scrape_round_trips(connection_id: u64, transaction_id: u32, hashes in info_hashes()) {
        let wire = written_scrape(connection_id, transaction_id, &hashes);
        prop_assert_eq!(wire.len(), scrape::REQUEST_HEAD_LEN + hashes.len() * scrape::HASH_LEN);
        let Ok(Request::Scrape(scrape)) = Request::parse(&wire) else {
            panic!("a scrape request was written")
        };
        prop_assert_eq!(scrape.connection_id, ConnectionId(connection_id));
        prop_assert_eq!(scrape.transaction_id, TransactionId(transaction_id));
        prop_assert_eq!(scrape.info_hashes().len(), hashes.len());
        prop_assert_eq!(scrape.info_hashes().collect::<Vec<_>>(), hashes);
    }

    /// No two fields of an announce overlap: a changed byte changes the parsed request, except in
    /// an undefined event.
    #[test]
    fn every_byte_of_an_announce_counts(
        announce in announces(), at in 0usize..98, by in 1u8..,
    ) {
        let wire = written(&announce);
        let mut changed = wire.clone();
        changed[at] ^= by;
        if (8..12).contains(&at) {
            prop_assert!(!matches!(Request::parse(&changed), Ok(Request::Announce(_))));
        } else if !(80..84).contains(&at) {
            prop_assert_ne!(Request::parse(&changed), Request::parse(&wire));
        }
    }

    /// BEP 15, "Announce": the event is a number; undefined numbers are read as no event.
    #[test]
    fn any_event_number_is_an_event(number in prop_oneof![0u32..8, any::<u32>()]) {
        let event = Event::from_wire(number);
        let expected = if number <= 4 { number } else { 0 };
        prop_assert_eq!(event.to_wire(), expected);
    }

    #[test]
    fn a_prefix_of_a_connect_is_short(transaction_id: u32, cut in 0..connect::REQUEST_LEN) {
        let (_, wire) = written_connect(transaction_id);
        prop_assert_eq!(Request::parse(&wire[..cut]), Err(Malformed::Short));
    }

    #[test]
    fn a_prefix_of_an_announce_is_short_until_its_port(
        announce in announces(),
        trailing in vec(any::<u8>(), 0..60),
        cut: prop::sample::Index,
    ) {
        let announce = Announce { options: Options(&trailing), ..announce };
        let wire = written(&announce);
        let cut = cut.index(wire.len());
        let expected = match cut.checked_sub(announce::REQUEST_LEN) {
            None => Err(Malformed::Short),
            Some(left) => Ok(Request::Announce(Announce {
                options: Options(&trailing[..left]),
                ..announce
            })),
        };
        prop_assert_eq!(Request::parse(&wire[..cut]), expected);
    }

    #[test]
    fn a_prefix_of_a_scrape_keeps_its_whole_hashes(
        connection_id: u64,
        hashes in info_hashes(),
        cut: prop::sample::Index,
    ) {
        let wire = written_scrape(connection_id, 7, &hashes);
        let cut = cut.index(wire.len());
        match (cut.checked_sub(scrape::REQUEST_HEAD_LEN), Request::parse(&wire[..cut])) {
            (None, parsed) => prop_assert_eq!(parsed, Err(Malformed::Short)),
            (Some(left), Ok(Request::Scrape(scrape))) => {
                let whole = left / scrape::HASH_LEN;
                prop_assert_eq!(scrape.connection_id, ConnectionId(connection_id));
                prop_assert!(scrape.info_hashes().eq(hashes[..whole].iter().copied()));
            }
            (_, other) => prop_assert!(false, "{other:?}"),
        }
    }

    /// BEP 15, "UDP tracker protocol": packets may have bytes behind the known fields.
    #[test]
    fn trailing_bytes_change_no_field(
        announce in announces(),
        hashes in info_hashes(),
        trailing in vec(any::<u8>(), 1..scrape::HASH_LEN),
    ) {
        let (connect, head) = written_connect(announce.transaction_id.0);
        let longer = [&head[..], &trailing].concat();
        prop_assert_eq!(Request::parse(&longer), Ok(Request::Connect(connect)));

        let longer = [written(&announce), trailing.clone()].concat();
        let expected = Announce { options: Options(&trailing), ..announce };
        prop_assert_eq!(Request::parse(&longer), Ok(Request::Announce(expected)));

        let wire = written_scrape(1, 2, &hashes);
        let longer = [wire.clone(), trailing].concat();
        prop_assert_eq!(Request::parse(&longer), Request::parse(&wire));
    }

    #[test]
    fn a_connect_needs_the_magic_number(wrong: u64, transaction_id: u32) {
        prop_assume!(wrong != connect::MAGIC);
        let (_, mut wire) = written_connect(transaction_id);
        wire[..8].copy_from_slice(&wrong.to_be_bytes());
        prop_assert_eq!(Request::parse(&wire), Err(Malformed::Magic));
    }

    #[test]
    fn an_unknown_action_is_malformed(action in 3u32.., trailing in vec(any::<u8>(), 0..120)) {
        let mut wire = [0; 16];
        wire[8..12].copy_from_slice(&action.to_be_bytes());
        let wire = [&wire[..], &trailing].concat();
        prop_assert_eq!(Request::parse(&wire), Err(Malformed::Action));
    }

    /// Arbitrary bytes are parsed without a panic. A parsed request, written again, gives the same
    /// bytes, except for undefined events and a trailing partial hash.
    #[test]
    fn any_bytes_are_read(datagram in datagrams()) {
        match Request::parse(&datagram) {
            Ok(Request::Connect(connect)) => {
                let mut wire = [0; connect::REQUEST_LEN];
                connect.write(&mut wire);
                prop_assert_eq!(&datagram[..connect::REQUEST_LEN], &wire);
            }
            Ok(Request::Announce(announce)) => {
                let mut wire = written(&announce);
                if u32::from_be_bytes(datagram[80..84].try_into().unwrap()) > 4 {
                    prop_assert_eq!(announce.event, Event::None);
                    wire[80..84].copy_from_slice(&datagram[80..84]);
                }
                prop_assert_eq!(&datagram, &wire);
                let _ = format!("{:?}", announce);
            }
            Ok(Request::Scrape(scrape)) => {
                let hashes: Vec<_> = scrape.info_hashes().collect();
                let wire =
                    written_scrape(scrape.connection_id.0, scrape.transaction_id.0, &hashes);
                prop_assert!(datagram.starts_with(&wire));
                prop_assert!(datagram.len() - wire.len() < scrape::HASH_LEN);
            }
            Err(Malformed::Short) => prop_assert!(datagram.len() < announce::REQUEST_LEN),
            Err(Malformed::Magic) => prop_assert_eq!(&datagram[8..12], &[0; 4]),
            Err(Malformed::Action) => prop_assert!(datagram[8..12] > [0, 0, 0, 2][..]),
        }
    }
}

// ---------------------------------------------------------------------------- responses

proptest! {
    #[test]
    fn connect_response_round_trips(transaction_id: u32, connection_id: u64, family in family()) {
        let response = ConnectResponse {
            transaction_id: TransactionId(transaction_id),
            connection_id: ConnectionId(connection_id),
        };
        let mut wire = [0xAA; connect::RESPONSE_LEN];
        response.write(&mut wire);
        let parsed = Response::parse(&wire, family).unwrap();
        prop_assert_eq!(parsed, Response::Connect(response));
        prop_assert_eq!(parsed.transaction_id().0, transaction_id);
        for cut in 0..wire.len() {
            let expected = if cut < 8 { BadResponse::Short } else { BadResponse::Length };
            prop_assert_eq!(Response::parse(&wire[..cut], family), Err(expected));
        }
        let longer = [&wire[..], &[0]].concat();
        prop_assert_eq!(Response::parse(&longer, family), Err(BadResponse::Length));
    }

    #[test]
    fn announce_response_round_trips(
        counts: (u32, u32, u32, u32),
        (family, peers) in endpoints(),
        cut: prop::sample::Index,
    ) {
        let head = AnnounceHead {
            transaction_id: TransactionId(counts.0),
            interval: counts.1,
            leechers: counts.2,
            seeders: counts.3,
        };
        let mut wire = [0xAA; announce::HEAD_LEN];
        head.write(&mut wire);
        let mut wire = wire.to_vec();
        peers.iter().for_each(|peer| wire.extend_from_slice(peer.as_bytes()));
        let Ok(Response::Announce(read, list)) = Response::parse(&wire, family) else {
            panic!("an announce response was written")
        };
        prop_assert_eq!(read, head);
        prop_assert_eq!((list.len(), list.is_empty()), (peers.len(), peers.is_empty()));
        prop_assert_eq!(list.iter().len(), peers.len());
        prop_assert!(list.iter().eq(peers.iter().copied()));

        let cut = cut.index(wire.len());
        match (cut, Response::parse(&wire[..cut], family)) {
            (..20, parsed) => prop_assert_eq!(parsed, Err(BadResponse::Short)),
            (_, Ok(Response::Announce(_, list))) => {
                prop_assert_eq!(20 + list.len() * family.peer_len(), cut);
            }
            (_, parsed) => {
                prop_assert_eq!(parsed, Err(BadResponse::Length));
                prop_assert_ne!((cut - 20) % family.peer_len(), 0);
            }
        }
    }

    #[test]
    fn scrape_response_round_trips(
        transaction_id: u32,
        numbers in vec(any::<(u32, u32, u32)>(), 0..80),
        family in family(),
        torn in 1..scrape::COUNTS_LEN,
    ) {
        let mut head = [0xAA; scrape::HEAD_LEN];
        scrape::write_head(TransactionId(transaction_id), &mut head);
        let mut wire = head.to_vec();
        let counts: Vec<_> = numbers
            .into_iter()
            .map(|(seeders, completed, leechers)| ScrapeCounts { seeders, completed, leechers })
            .collect();
        for count in &counts {
            let mut one = [0xAA; scrape::COUNTS_LEN];
            count.write(&mut one);
            wire.extend_from_slice(&one);
        }
        let Ok(Response::Scrape(read, list)) = Response::parse(&wire, family) else {
            panic!("a scrape response was written")
        };
        prop_assert_eq!(read.0, transaction_id);
        prop_assert_eq!((list.len(), list.is_empty()), (counts.len(), counts.is_empty()));
        prop_assert!(list.iter().eq(counts.iter().copied()));
        wire.extend(std::iter::repeat_n(0, torn));
        prop_assert_eq!(Response::parse(&wire, family), Err(BadResponse::Length));
    }

    #[test]
    fn error_round_trips(transaction_id: u32, text: String, family in family()) {
        let mut wire = vec![0xAA; error::HEAD_LEN + text.len() + 3];
        let len = error::write(TransactionId(transaction_id), &text, &mut wire);
        prop_assert_eq!(len, error::HEAD_LEN + text.len());
        prop_assert_eq!(
            Response::parse(&wire[..len], family),
            Ok(Response::Error(TransactionId(transaction_id), text.as_bytes()))
        );
    }

    #[test]
    fn any_bytes_are_read_as_a_response(datagram in datagrams(), family in family()) {
        if let Ok(response) = Response::parse(&datagram, family) {
            let transaction_id = u32::from_be_bytes(datagram[4..8].try_into().unwrap());
            prop_assert_eq!(response.transaction_id().0, transaction_id);
            let _ = format!("{response:?}");
        }
    }

    #[test]
    fn an_endpoint_round_trips((family, peers) in endpoints()) {
        for peer in peers {
            prop_assert_eq!(peer.family(), family);
            prop_assert_eq!(peer.as_bytes().len(), family.peer_len());
            let again = Endpoint::new(peer.ip(), peer.port());
            let mapped = peer.ip() != peer.ip().to_canonical();
            prop_assert!(again == peer || mapped, "{:?}", peer);
        }
    }
}

/// The layout of BEP 15, "Connect", "Announce", "Scrape", "Errors", and of BEP 7, independent of
/// the parser.
#[test]
fn responses_byte_by_byte() {
    let number = TransactionId(0x0102_0304);
    let mut connect = [0xAA; connect::RESPONSE_LEN];
    let id = ConnectionId(0x1122_3344_5566_7788);
    ConnectResponse { transaction_id: number, connection_id: id }.write(&mut connect);
    assert_eq!(connect, *b"\0\0\0\0\x01\x02\x03\x04\x11\x22\x33\x44\x55\x66\x77\x88");
    let mut announce = [0xAA; announce::HEAD_LEN];
    let head = AnnounceHead { transaction_id: number, interval: 1800, leechers: 2, seeders: 3 };
    head.write(&mut announce);
    assert_eq!(announce, *b"\0\0\0\x01\x01\x02\x03\x04\0\0\x07\x08\0\0\0\x02\0\0\0\x03");
    let v4 = Endpoint::new("127.7.8.9".parse().unwrap(), 0x1AE1);
    assert_eq!(v4.as_bytes(), [127, 7, 8, 9, 0x1A, 0xE1]);
    let v6 = Endpoint::new("2001:db8::7".parse().unwrap(), 0x1AE1);
    assert_eq!(v6.as_bytes(), b"\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x07\x1A\xE1");
    let mut head = [0xAA; scrape::HEAD_LEN];
    scrape::write_head(number, &mut head);
    assert_eq!(head, [0, 0, 0, 2, 1, 2, 3, 4]);
    let mut counts = [0xAA; scrape::COUNTS_LEN];
    ScrapeCounts { seeders: 2, completed: 1, leechers: 3 }.write(&mut counts);
    assert_eq!(counts, [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3]);
    let mut error = [0xAA; 10];
    error::write(number, "no", &mut error);
    assert_eq!(error, *b"\0\0\0\x03\x01\x02\x03\x04no");
}

/// The properties above rarely draw the empty list.
#[test]
fn a_response_may_be_empty() {
    let mut wire = [0; announce::HEAD_LEN];
    let head =
        AnnounceHead { transaction_id: TransactionId(1), interval: 1800, leechers: 0, seeders: 0 };
    head.write(&mut wire);
    for family in [Family::V4, Family::V6] {
        let Ok(Response::Announce(_, peers)) = Response::parse(&wire, family) else { panic!() };
        assert!(peers.is_empty() && peers.iter().next().is_none());
    }
    let mut wire = [0; scrape::HEAD_LEN];
    scrape::write_head(TransactionId(1), &mut wire);
    let Ok(Response::Scrape(_, counts)) = Response::parse(&wire, Family::V4) else { panic!() };
    assert!(counts.is_empty() && counts.iter().next().is_none());
}

// ---------------------------------------------------------------------------- options

proptest! {
    /// BEP 41: options are read in order, with any NOPs between them.
    #[test]
    fn options_round_trip(list in option_list(), nops in vec(0usize..3, 9), end: bool, tail: u64) {
        let mut wire = Vec::new();
        for ((kind, data), nops) in list.iter().zip(&nops) {
            wire.extend(std::iter::repeat_n(options::NOP, *nops));
            wire.extend([*kind, data.len() as u8]);
            wire.extend(data);
        }
        if end {
            wire.push(options::END);
            wire.extend(tail.to_be_bytes());
        }
        prop_assert_eq!(read_options(&wire), list);
    }

    /// A truncated list keeps its complete options: truncation neither adds nor changes an option.
    #[test]
    fn truncation_only_removes_options(wire in vec(any::<u8>(), 0..200), cut: prop::sample::Index) {
        let cut = cut.index(wire.len() + 1);
        let (whole, shorter) = (read_options(&wire), read_options(&wire[..cut]));
        prop_assert!(whole.starts_with(&shorter));
        for (_, data) in &shorter {
            prop_assert!(data.len() <= options::MAX_DATA_LEN);
        }
    }

    /// Each option takes two bytes and its data; none is an end mark or a NOP; the data borrows
    /// from the list in order; the iterator is fused.
    #[test]
    fn options_are_pieces_of_the_bytes_in_order(wire in vec(0u8..8, 0..200)) {
        let mut options = Options(&wire).iter();
        let mut rest = &wire[..];
        for Opt { kind, data } in options.by_ref() {
            prop_assert!(kind != options::END && kind != options::NOP);
            let nops = rest.iter().take_while(|byte| **byte == options::NOP).count();
            let (head, after) = rest[nops..].split_at(2);
            prop_assert_eq!(head, &[kind, data.len() as u8]);
            prop_assert!(std::ptr::eq(&after[..data.len()], data));
            rest = &after[data.len()..];
        }
        prop_assert_eq!((options.next(), options.next()), (None, None));
        let nops = rest.iter().take_while(|byte| **byte == options::NOP).count();
        let broken = match rest[nops..] {
            [] | [options::END, ..] | [_] => true,
            [_, length, ref after @ ..] => after.len() < usize::from(length),
        };
        prop_assert!(broken, "an option was left unread in {:?}", rest);
    }
}

#[test]
fn url_data_skips_other_options() {
    let wire = [9, 1, b'x', options::URL_DATA, 2, b'/', b'a', options::NOP, options::URL_DATA, 0];
    assert_eq!(Options(&wire).url_data().collect::<Vec<_>>(), [&b"/a"[..], b""]);
}

// ---------------------------------------------------------------------------- values

fn announces() -> impl Strategy<Value = Announce<'static>> {
    const EVENTS: [Event; 5] =
        [Event::None, Event::Completed, Event::Started, Event::Stopped, Event::Paused];
    let ids = any::<(u64, u32, [u8; 20], [u8; 20])>();
    let rest = any::<(u32, u32, i32, u16)>();
    (ids, any::<(u64, u64, u64)>(), prop::sample::select(&EVENTS[..]), rest).prop_map(
        |(ids, (downloaded, left, uploaded), event, (ip, key, num_want, port))| Announce {
            connection_id: ConnectionId(ids.0),
            transaction_id: TransactionId(ids.1),
            info_hash: InfoHash(ids.2),
            peer_id: PeerId(ids.3),
            downloaded,
            left,
            uploaded,
            event,
            ip,
            key,
            num_want,
            port,
            options: Options(&[]),
        },
    )
}

fn info_hashes() -> impl Strategy<Value = Vec<InfoHash>> {
    vec(any::<[u8; 20]>().prop_map(InfoHash), 0..80)
}

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::V4), Just(Family::V6)]
}

fn endpoints() -> impl Strategy<Value = (Family, Vec<Endpoint>)> {
    prop_oneof![
        vec(any::<[u8; 6]>().prop_map(Endpoint::V4), 0..201).prop_map(|list| (Family::V4, list)),
        vec(any::<(Ipv6Addr, u16)>().prop_map(|(ip, port)| Endpoint::v6(ip, port)), 0..68)
            .prop_map(|list| (Family::V6, list)),
    ]
}

fn option_list() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    vec((2u8.., vec(any::<u8>(), 0..=options::MAX_DATA_LEN)), 0..9)
}

/// Arbitrary bytes, most of them with a defined action and the magic number.
fn datagrams() -> impl Strategy<Value = Vec<u8>> {
    (vec(any::<u8>(), 0..400), prop::option::weighted(0.9, 0u8..5), any::<bool>()).prop_map(
        |(mut bytes, action, magic)| {
            if let (Some(action), 12..) = (action, bytes.len()) {
                bytes[..4].copy_from_slice(&u32::from(action).to_be_bytes());
                bytes[8..12].copy_from_slice(&u32::from(action).to_be_bytes());
                if magic && action == 0 {
                    bytes[..8].copy_from_slice(&connect::MAGIC.to_be_bytes());
                }
            }
            bytes
        },
    )
}

fn written_connect(transaction_id: u32) -> (Connect, [u8; connect::REQUEST_LEN]) {
    let connect = Connect { transaction_id: TransactionId(transaction_id) };
    let mut wire = [0xAA; connect::REQUEST_LEN];
    connect.write(&mut wire);
    (connect, wire)
}

fn written(announce: &Announce<'_>) -> Vec<u8> {
    let mut wire = vec![0xAA; announce::REQUEST_LEN + announce.options.0.len()];
    let len = announce.write(&mut wire);
    wire.truncate(len);
    wire
}

fn written_scrape(connection_id: u64, transaction_id: u32, hashes: &[InfoHash]) -> Vec<u8> {
    let mut wire = vec![0xAA; scrape::REQUEST_HEAD_LEN + hashes.len() * scrape::HASH_LEN];
    let ids = (ConnectionId(connection_id), TransactionId(transaction_id));
    let len = Scrape::write(ids.0, ids.1, hashes, &mut wire);
    wire.truncate(len);
    wire
}

fn read_options(wire: &[u8]) -> Vec<(u8, Vec<u8>)> {
    Options(wire).iter().map(|option| (option.kind, option.data.to_vec())).collect()
}
