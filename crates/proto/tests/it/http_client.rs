//! The client's side of HTTP: what it writes is read by the tracker's side and the other way round,
//! and each fault of a reply is found.

use onrush_proto::http::client::{
    BadReply, Body, BodyReader, Failure, Framing, MAX_BODY, ReplyHead, write_announce_query,
    write_scrape_query,
};
use onrush_proto::http::{
    AnnounceQuery, scrape_hashes, write_announce, write_failure, write_scrape,
};
use onrush_proto::{
    Announce, AnnounceHead, Endpoint, Event, Family, InfoHash, PeerId, ScrapeCounts, TransactionId,
    scrape,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

// ---------------------------------------------------------------------------- queries

proptest! {
    #[test]
    fn a_written_announce_is_read(
        ids: ([u8; 20], [u8; 20]), numbers: (u16, u64, i32), event in 0u32..5, compact: bool,
    ) {
        let (port, left, num_want) = numbers;
        let (info_hash, peer_id) = (InfoHash(ids.0), PeerId(ids.1));
        let event = Event::from_wire(event);
        let announce =
            Announce { info_hash, peer_id, port, left, num_want, event, ..Announce::default() };
        let mut query = Vec::new();
        write_announce_query(&announce, compact, &mut query);
        let (seeder, num_want) = (left == 0, num_want.max(-1));
        let expected =
            AnnounceQuery { info_hash, peer_id, port, seeder, event, num_want, compact };
        prop_assert_eq!(AnnounceQuery::parse(&query), Ok(expected));
    }

    #[test]
    fn a_written_scrape_is_read(hashes in vec(any::<[u8; 20]>(), 0..9)) {
        let mut query = Vec::new();
        write_scrape_query(hashes.iter().copied().map(InfoHash), &mut query);
        let (mut found, mut sorted) = (Vec::new(), hashes);
        scrape_hashes(&query, 100, &mut found).unwrap();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(found, sorted);
    }
}

// ---------------------------------------------------------------------------- bodies

proptest! {
    #[test]
    fn a_written_announce_reply_is_read(
        numbers: (u32, u32, u32),
        peers in prop_oneof![
            vec(any::<[u8; 6]>().prop_map(Endpoint::V4), 0..30),
            // Not IPv4-mapped ones, which are IPv4 in a list.
            vec(any::<[u8; 17]>().prop_map(|rest| {
                let mut wire = [0x20; 18];
                wire[1..].copy_from_slice(&rest);
                Endpoint::V6(wire)
            }), 1..30),
        ],
        compact: bool,
    ) {
        let (interval, leechers, seeders) = numbers;
        let transaction_id = TransactionId(0);
        let head = AnnounceHead { transaction_id, interval, leechers, seeders };
        let family = peers.first().map_or(Family::V4, Endpoint::family);
        let client = if family == Family::V4 { "192.0.2.7" } else { "2001:db8::7" };
        let wire: Vec<u8> = peers.iter().flat_map(|peer| peer.as_bytes()).copied().collect();
        let mut body = Vec::new();
        write_announce(&head, &wire, client.parse().unwrap(), compact, &mut body);
        let mut reader = BodyReader::default();
        let Ok(Body::Announce(found)) = reader.read(&body) else { panic!("{body:?}") };
        let counts = (found.interval, found.leechers, found.seeders);
        prop_assert_eq!(counts, (interval, Some(leechers), Some(seeders)));
        prop_assert_eq!(found.is_list, !compact);
        let (own, other) = match family {
            Family::V4 => (found.v4, found.v6),
            Family::V6 => (found.v6, found.v4),
        };
        prop_assert!(own.iter().eq(peers.iter().copied()) && other.is_empty());
    }

    #[test]
    fn a_written_scrape_reply_is_read(
        swarms in btree_map(any::<[u8; 20]>(), any::<(u32, u32, u32)>(), 0..80),
    ) {
        let counts = swarms.values().map(|&(seeders, completed, leechers)| {
            ScrapeCounts { seeders, completed, leechers }
        });
        let counts: Vec<_> = counts.collect();
        let hashes: Vec<_> = swarms.keys().copied().collect();
        let mut wire = vec![[0; scrape::COUNTS_LEN]; counts.len()];
        wire.iter_mut().zip(&counts).for_each(|(wire, counts)| counts.write(wire));
        let mut body = Vec::new();
        write_scrape(&hashes, &wire, &mut body);
        let mut reader = BodyReader::default();
        let Ok(Body::Scrape(files)) = reader.read(&body) else { panic!("{body:?}") };
        prop_assert_eq!(files.hashes, &hashes[..]);
        prop_assert!(files.counts.iter().eq(counts));
    }

    #[test]
    fn a_written_failure_is_read(reason: String, retry_in: Option<u32>) {
        let mut body = Vec::new();
        write_failure(&reason, retry_in, &mut body);
        let failure = Failure { reason: reason.as_bytes(), retry_in };
        let mut reader = BodyReader::default();
        prop_assert_eq!(reader.read(&body), Ok(Body::Failure(failure)));
    }

    /// What is behind a body, or missing of it, is found.
    #[test]
    fn a_part_of_a_body_is_none(cut in 1usize..160, more: u8) {
        let mut body = Vec::new();
        let transaction_id = TransactionId(0);
        let head = AnnounceHead { transaction_id, interval: 9, leechers: 3, seeders: 2 };
        write_announce(&head, &[7; 18], "192.0.2.7".parse().unwrap(), cut % 2 == 0, &mut body);
        let whole = body.len();
        body.push(more);
        let mut reader = BodyReader::default();
        prop_assert_eq!(reader.read(&body), Err(BadReply::Bencoding));
        body.truncate(whole - cut.min(whole));
        prop_assert!(reader.read(&body).is_err());
    }
}

#[test]
fn faults_of_a_body_are_found() {
    const HASH: &str = "20:abcdefghijklmnopqrst";
    let scrape = |counts: &str| format!("d5:filesd{HASH}d{counts}eee");
    let peer = |peer: &str| format!("d8:intervali1e5:peersl{peer}ee");
    let deep = format!("d1:a{}{}8:intervali1e5:peers0:e", "l".repeat(20), "e".repeat(20));
    for (body, bad) in [
        ("", BadReply::Bencoding),
        ("le", BadReply::Value),
        ("i1e", BadReply::Value),
        ("d8:intervali1e5:peers0:", BadReply::Bencoding),
        ("d8:intervali01e5:peers0:e", BadReply::Bencoding),
        ("d8:intervali-0e5:peers0:e", BadReply::Bencoding),
        ("d8:intervalie5:peers0:e", BadReply::Bencoding),
        ("d8:intervali1e5:peers00:e", BadReply::Bencoding),
        ("d8:intervali1e5:peers9:e", BadReply::Bencoding),
        ("di1ei1ee", BadReply::Bencoding),
        (&deep, BadReply::Bencoding),
        ("d5:peers0:8:intervali1ee", BadReply::KeyOrder),
        ("d8:intervali1e8:intervali1e5:peers0:e", BadReply::KeyOrder),
        ("d1:ad1:b0:1:a0:e8:intervali1e5:peers0:e", BadReply::KeyOrder),
        ("d8:interval1:15:peers0:e", BadReply::Value),
        ("d8:intervali-1e5:peers0:e", BadReply::Value),
        ("d8:intervali4294967296e5:peers0:e", BadReply::Value),
        ("d8:complete0:8:intervali1e5:peers0:e", BadReply::Value),
        ("d5:peers0:e", BadReply::Value),
        ("d8:intervali1ee", BadReply::Value),
        ("de", BadReply::Value),
        ("d8:intervali1e5:peers5:aaaaae", BadReply::Peers),
        ("d8:intervali1e6:peers66:aaaaaae", BadReply::Peers),
        (&peer("de"), BadReply::Peers),
        (&peer("d2:ip7:1.2.3.4e"), BadReply::Peers),
        (&peer("d2:ip7:1.2.3.44:porti65536ee"), BadReply::Peers),
        (&peer("d2:ip1:x4:porti1ee"), BadReply::Peers),
        (&peer("d4:porti1e2:ip7:1.2.3.4e"), BadReply::KeyOrder),
        (&peer("0:"), BadReply::Value),
        (&scrape("8:completei1e"), BadReply::Value),
        (&scrape("10:incompletei1e8:completei1e"), BadReply::KeyOrder),
        ("d5:filesd3:abcd8:completei1e10:incompletei1eeee", BadReply::Value),
        ("d14:failure reasoni1ee", BadReply::Value),
    ] {
        assert_eq!(BodyReader::default().read(body.as_bytes()), Err(bad), "{body}");
    }
}

#[test]
fn unusual_bodies_are_read() {
    let mut reader = BodyReader::default();
    let plain = "d8:intervali1e5:peers6:aaaaaa6:peers618:bbbbbbbbbbbbbbbbbbe";
    let Ok(Body::Announce(found)) = reader.read(plain.as_bytes()) else { panic!() };
    assert_eq!((found.seeders, found.leechers), (None, None));
    assert_eq!((found.v4.len(), found.v6.len()), (1, 1));
    let listed = "d8:intervali1e5:peersld2:ip3:::17:peer id1:x4:porti2eed2:ip7:1.2.3.44:porti2eeee";
    let Ok(Body::Announce(found)) = reader.read(listed.as_bytes()) else { panic!() };
    assert_eq!((found.v4.len(), found.v6.len(), found.is_list), (1, 1, true));
    assert_eq!(found.v6.as_bytes()[14..], [0, 1, 0, 2]);
    let never = "d14:failure reason1:x8:retry in5:nevere";
    let failure = Failure { reason: b"x", retry_in: None };
    assert_eq!(reader.read(never.as_bytes()), Ok(Body::Failure(failure)));
    assert!(matches!(reader.read(b"d5:filesdee"), Ok(Body::Scrape(_))));
}

// ---------------------------------------------------------------------------- heads

fn head(text: &str) -> Result<Option<ReplyHead>, BadReply> {
    ReplyHead::parse(text.as_bytes())
}

/// The body of a whole reply.
fn body(text: &str, ended: bool) -> Result<Option<(String, usize)>, BadReply> {
    let mut joined = Vec::new();
    let found = head(text)?.unwrap().body(text.as_bytes(), ended, &mut joined)?;
    Ok(found.map(|(body, len)| (String::from_utf8(body.to_vec()).unwrap(), len)))
}

#[test]
fn a_head_says_where_its_reply_ends() {
    let text =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\ncontent-length:  5  \r\n\r\nhellomore";
    let found = head(text).unwrap().unwrap();
    assert_eq!((found.status, found.framing, found.keep_alive), (200, Framing::Length(5), true));
    assert_eq!(body(text, false), Ok(Some(("hello".into(), text.len() - 4))));
    for end in 0..found.len {
        assert_eq!(head(&text[..end]), Ok(None), "{end} bytes are a part");
    }
    for end in found.len..found.len + 5 {
        assert_eq!(body(&text[..end], true), Ok(None), "{end} bytes are a part");
    }
    let until_end = "HTTP/1.1 404 Not Found\r\n\r\nbody";
    assert_eq!(body(until_end, false), Ok(None));
    assert_eq!(body(until_end, true), Ok(Some(("body".into(), until_end.len()))));
    assert!(!head(until_end).unwrap().unwrap().keep_alive);
}

#[test]
fn connections_are_kept_by_version_and_field() {
    let keep = |start: &str, field: &str| {
        let text = format!("{start} 200 OK\r\nContent-Length: 0\r\n{field}\r\n");
        head(&text).unwrap().unwrap().keep_alive
    };
    assert!(keep("HTTP/1.1", "") && keep("HTTP/1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keep("HTTP/1.0", "") && !keep("HTTP/1.1", "connection: x, CLOSE\r\n"));
}

#[test]
fn chunks_are_put_together() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let whole = format!("{chunked}3\r\nabc\r\n0A;x=y\r\n0123456789\r\n0\r\nx: y\r\n\r\n");
    let text = format!("{whole}more");
    assert_eq!(body(&text, false), Ok(Some(("abc0123456789".into(), whole.len()))));
    for end in chunked.len()..whole.len() {
        assert_eq!(body(&text[..end], true), Ok(None), "{end} bytes are a part");
    }
    for (bad, why) in [
        ("x\r\n", BadReply::Head),
        ("+1\r\na\r\n", BadReply::Head),
        ("1\r\nabc\r\n", BadReply::Head),
        ("200000\r\n", BadReply::Long),
        ("ffffffffffffffff\r\n", BadReply::Long),
    ] {
        assert_eq!(body(&format!("{chunked}{bad}"), false), Err(why), "{bad}");
    }
}

#[test]
fn faults_of_a_head_are_found() {
    let long = MAX_BODY + 1;
    for (text, bad) in [
        ("HTTP/2 200 OK\r\n\r\n".to_owned(), BadReply::Head),
        ("d8:intervali1e5:peers0:e".into(), BadReply::Head),
        ("HTTP/1.1 OK\r\n\r\n".into(), BadReply::Head),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n".into(), BadReply::Head),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".into(), BadReply::Head),
        ("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n".into(), BadReply::Head),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            BadReply::Head,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n".into(), BadReply::Head),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            BadReply::Head,
        ),
        (format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(8192)), BadReply::Head),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n"), BadReply::Long),
    ] {
        assert_eq!(head(&text), Err(bad), "{text:.70}");
    }
}
