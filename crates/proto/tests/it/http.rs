//! HTTP: queries are read like naive models read them, and replies are the bencoding of a tree of
//! values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use onrush_proto::http::{
    AnnounceQuery, BadQuery, Target, scrape_hashes, write_announce, write_failure, write_scrape,
};
use onrush_proto::{
    AnnounceHead, Endpoint, Event, InfoHash, PeerId, ScrapeCounts, TransactionId, scrape,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

// ---------------------------------------------------------------------------- targets

#[test]
fn targets() {
    for (target, expected) in [
        ("/announce", Target::Announce(b"")),
        ("/announce?", Target::Announce(b"")),
        ("/announce?a=b&c?d/e", Target::Announce(b"a=b&c?d/e")),
        ("/announce?a=b#c?d", Target::Announce(b"a=b")),
        ("/announce#a?b=c", Target::Announce(b"")),
        ("/x/announce.php?a", Target::Announce(b"a")),
        ("http://example.org:6969/announce?a", Target::Announce(b"a")),
        ("HTTPS://[2001:db8::1]/x/announce?a", Target::Announce(b"a")),
        ("/scrape?a", Target::Scrape(b"a")),
        ("/announce/scrape.php?a", Target::Scrape(b"a")),
        ("/", Target::Root),
        ("/?a", Target::Root),
        ("http://example.org", Target::Root),
        ("http://example.org?/announce", Target::Root),
        ("http://example.org/", Target::Root),
        ("/health", Target::Health),
        ("/health?a#b", Target::Health),
        ("", Target::Other),
    ] {
        assert_eq!(Target::parse(target.as_bytes()), expected, "{target}");
    }
    const OTHERS: &str = "/healthy /x/health /announce/ /Announce /%61nnounce /x?/announce \
         announce example.org:80 ftp://example.org/announce http:/announce *";
    for target in OTHERS.split(' ') {
        assert_eq!(Target::parse(target.as_bytes()), Target::Other, "{target}");
    }
}

// ---------------------------------------------------------------------------- queries

/// The query of aria2 1.36.0 for its first announce.
const ARIA2: &str = "info_hash=%2C%B5%A2A%E1%C9%B0i%A5%85%FCa%E03%86%F6%C0%C6.V\
     &peer_id=A2-1-36-0-%B8Zl%28%FF%D2%CB%07F%28&uploaded=0&downloaded=0&left=50000&compact=1\
     &key=l%28%FF%D2%CB%07F%28&numwant=50&no_peer_id=1&port=6978&event=started&supportcrypto=1";

#[test]
fn the_query_of_a_client() {
    let expected = AnnounceQuery {
        info_hash: "2cb5a241e1c9b069a585fc61e03386f6c0c62e56".parse().unwrap(),
        peer_id: PeerId(*b"A2-1-36-0-\xB8Zl\x28\xFF\xD2\xCB\x07F\x28"),
        port: 6978,
        seeder: false,
        event: Event::Started,
        num_want: 50,
        compact: true,
    };
    assert_eq!(AnnounceQuery::parse(ARIA2.as_bytes()), Ok(expected));
}

/// The result of [`read`] without `more`.
const PLAIN: AnnounceQuery = AnnounceQuery {
    info_hash: InfoHash(*b"ABCDEFGHIJKLMNOPQRST"),
    peer_id: PeerId(*b"abcdefghijklmnopqrst"),
    port: 1000,
    seeder: false,
    event: Event::None,
    num_want: -1,
    compact: true,
};

/// Reads a valid announce with `more` at its end.
fn read(more: &str) -> Result<AnnounceQuery, BadQuery> {
    const VALID: &str = "info_hash=ABCDEFGHIJKLMNOPQRST&peer_id=abcdefghijklmnopqrst&port=1000";
    AnnounceQuery::parse(format!("{VALID}{more}").as_bytes())
}

#[test]
fn keys_that_an_announce_needs() {
    const IGNORED: &str =
        " & &&=& &ip=1.2.3.4&key=0 &x=%zz &%6=1 &info_hashes &left=1event=stopped";
    for ignored in IGNORED.split(' ') {
        assert_eq!(read(ignored), Ok(PLAIN), "{ignored}");
    }
    for (text, port) in [("0", 0), ("1", 1), ("0065535", 65535), ("%36", 6)] {
        assert_eq!(read(&format!("&port={text}")), Ok(AnnounceQuery { port, ..PLAIN }), "{text}");
    }
    for text in ["65536", "-1", "+1", "", "1;left=0", "%3", "99999999999999999999999"] {
        assert_eq!(read(&format!("&port={text}")), Err(BadQuery::Port), "{text}");
    }
    assert_eq!(read("&info_hash=ABCDEFGHIJKLMNOPQRST"), Err(BadQuery::InfoHashes));
    assert_eq!(read("&peer_id=abcdefghijklmnopqrs"), Err(BadQuery::PeerId));
    assert_eq!(read("&%70eer_i%64=%"), Err(BadQuery::PeerId));
    assert_eq!(read("&peer_id=++++++++++++++++++++").unwrap().peer_id, PeerId([b'+'; 20]));
    assert_eq!(AnnounceQuery::parse(b""), Err(BadQuery::InfoHash));
}

#[test]
fn keys_that_an_announce_may_have() {
    for left in ["=0", "=00", "=-0"] {
        assert!(read(&format!("&left=7&left{left}")).unwrap().seeder, "{left}");
    }
    for left in ["=1", "=-1", "=18446744073709551616", "=0x", "=", ""] {
        assert!(!read(&format!("&left=0&left{left}")).unwrap().seeder, "{left}");
    }
    for (event, expected) in [
        ("started", Event::Started),
        ("%63ompleted", Event::Completed),
        ("stopped", Event::Stopped),
        ("paused", Event::Paused),
        ("completedx", Event::None),
        ("empty", Event::None),
        ("", Event::None),
    ] {
        assert_eq!(read(&format!("&event={event}")).unwrap().event, expected, "{event}");
    }
    for (text, number) in [("0", 0), ("50", 50), ("-7", -7), ("2147483648", i32::MAX)] {
        assert_eq!(read(&format!("&numwant={text}")).unwrap().num_want, number, "{text}");
    }
    for text in ["", "-", "--5", "many"] {
        assert_eq!(read(&format!("&numwant={text}")).unwrap().num_want, -1, "{text}");
    }
    assert_eq!(read("&numwant=-99999999999999999999").unwrap().num_want, i32::MIN);
    for (value, expected) in [("0", false), ("1", true), ("", true), ("no", true)] {
        assert_eq!(read(&format!("&compact={value}")).unwrap().compact, expected, "{value}");
    }
}

proptest! {
    #[test]
    fn an_announce_is_read_as_by_the_model(query in queries(announces())) {
        prop_assert_eq!(AnnounceQuery::parse(&query), announce_model(&query));
    }

    #[test]
    fn any_bytes_are_read_as_by_the_model(query in vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(AnnounceQuery::parse(&query), announce_model(&query));
    }

    #[test]
    fn hashes_of_a_scrape_are_read_as_by_the_model(query in queries(scrapes()), max in 0usize..6) {
        const EARLIER: [u8; 20] = [0x55; 20];
        let mut hashes = vec![EARLIER];
        let result = scrape_hashes(&query, max, &mut hashes);
        let expected = scrape_model(&query, max);
        prop_assert_eq!(hashes[0], EARLIER);
        prop_assert_eq!(result.map(|()| hashes[1..].to_vec()), expected);
        prop_assert!(result.is_ok() || hashes.len() == 1);
    }
}

fn announce_model(query: &[u8]) -> Result<AnnounceQuery, BadQuery> {
    let pairs = pairs(query);
    let values = |key: &'static str| {
        let of_key = pairs.iter().filter(move |(name, _)| name.as_deref() == Some(key.as_bytes()));
        of_key.map(|(_, value)| value.clone())
    };
    let last = |key| values(key).next_back().flatten();
    let id = |key| last(key).and_then(|value| <[u8; 20]>::try_from(value).ok());
    let number = |key| {
        let text = String::from_utf8(last(key)?).ok()?;
        let digits = text.strip_prefix('-').unwrap_or(&text);
        let valid = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let sign: i128 = if text.starts_with('-') { -1 } else { 1 };
        valid.then(|| sign * digits.parse().unwrap_or(i128::MAX))
    };
    let info_hash = InfoHash(id("info_hash").ok_or(BadQuery::InfoHash)?);
    if values("info_hash").count() > 1 {
        return Err(BadQuery::InfoHashes);
    }
    Ok(AnnounceQuery {
        info_hash,
        peer_id: PeerId(id("peer_id").ok_or(BadQuery::PeerId)?),
        port: number("port").and_then(|port| port.try_into().ok()).ok_or(BadQuery::Port)?,
        seeder: number("left") == Some(0),
        event: match last("event").as_deref() {
            Some(b"started") => Event::Started,
            Some(b"completed") => Event::Completed,
            Some(b"stopped") => Event::Stopped,
            Some(b"paused") => Event::Paused,
            _ => Event::None,
        },
        num_want: match number("numwant") {
            Some(number) if number < 0 => number.try_into().unwrap_or(i32::MIN),
            Some(number) => number.try_into().unwrap_or(i32::MAX),
            None => -1,
        },
        compact: number("compact") != Some(0),
    })
}

fn scrape_model(query: &[u8], max: usize) -> Result<Vec<[u8; 20]>, BadQuery> {
    let mut hashes = Vec::new();
    for (key, value) in pairs(query) {
        if key.as_deref() != Some(&b"info_hash"[..]) {
            continue;
        }
        let hash: [u8; 20] =
            value.and_then(|value| value.try_into().ok()).ok_or(BadQuery::InfoHash)?;
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
    }
    hashes.truncate(max);
    hashes.sort();
    Ok(hashes)
}

type Text = Option<Vec<u8>>;

/// Keys and values in order, decoded; `None` for one with a broken `%`.
fn pairs(query: &[u8]) -> Vec<(Text, Text)> {
    let pairs = query.split(|byte| *byte == b'&').map(|pair| {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        (decode(parts.next().unwrap()), decode(parts.next().unwrap_or_default()))
    });
    pairs.collect()
}

fn decode(text: &[u8]) -> Text {
    let mut bytes = text.iter();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(*bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => *byte,
        });
    }
    Some(decoded)
}

type Pair = (Vec<u8>, Vec<u8>);

/// Queries of the pairs, partly encoded, some with a changed byte.
fn queries(pairs: impl Strategy<Value = Vec<Pair>>) -> impl Strategy<Value = Vec<u8>> {
    let change = prop::option::weighted(0.1, any::<(Index, u8)>());
    (pairs, vec(any::<u8>(), 30), change).prop_map(|(pairs, forms, change)| {
        let pairs = pairs.iter().map(|(key, value)| {
            let key = encode(key, &forms, 20);
            if value.is_empty() { key } else { key + "=" + &encode(value, &forms, 3) }
        });
        let mut query = pairs.collect::<Vec<_>>().join("&").into_bytes();
        if let Some((at, byte)) = change
            && !query.is_empty()
        {
            let at = at.index(query.len());
            query[at] = byte;
        }
        query
    })
}

/// Valid and invalid values, most often with all that an announce needs among them.
fn announces() -> impl Strategy<Value = Vec<Pair>> {
    let required = ["info_hash", "peer_id", "port"].map(|key| {
        let value = match key {
            "port" => (0u16..).prop_map(|port| port.to_string().into_bytes()).boxed(),
            _ => vec(any::<u8>(), 20).boxed(),
        };
        let pair = (Just(key), value).prop_map(|(key, value)| (key.as_bytes().to_vec(), value));
        prop::option::weighted(0.97, pair)
    });
    let pairs = (required, vec(pair(), 0..9)).prop_map(|(required, mut more)| {
        more.extend(required.into_iter().flatten());
        more
    });
    pairs.prop_shuffle()
}

/// Info hashes, some of them the same, few of them invalid.
fn scrapes() -> impl Strategy<Value = Vec<Pair>> {
    let hash = prop_oneof![
        30 => (0u8..5).prop_map(|byte| vec![byte; 20]),
        1 => vec(any::<u8>(), 18..23),
    ];
    let hash = hash.prop_map(|hash| (b"info_hash".to_vec(), hash));
    vec(prop_oneof![9 => hash, 1 => pair()], 0..9)
}

fn pair() -> impl Strategy<Value = Pair> {
    const KEYS: &str = "info_hash peer_id port left left event event numwant numwant compact \
         compact uploaded  info_hash2 info_has Port";
    const TEXTS: &str = " started completed stopped paused 0 +1 -";
    let one_of = |texts: &'static str| {
        let texts = texts.split(' ').map(|text| text.as_bytes().to_vec());
        select(texts.collect::<Vec<_>>())
    };
    let number = prop_oneof![-2i128..3, 65_530i128..65_540, any::<i64>().prop_map(i128::from)];
    let value = prop_oneof![
        3 => number.prop_map(|number| number.to_string().into_bytes()),
        3 => one_of(TEXTS),
        2 => (0u8..5).prop_map(|byte| vec![byte; 20]),
        1 => vec(any::<u8>(), 0..30),
    ];
    (one_of(KEYS), value)
}

/// Percent-encodes what has to be, and one in `rarity` of the other bytes, by the numbers in
/// `forms`, which also choose the case of digits.
fn encode(text: &[u8], forms: &[u8], rarity: u8) -> String {
    let mut encoded = String::new();
    for (byte, form) in text.iter().zip(forms.iter().cycle()) {
        let plain = byte.is_ascii_graphic() && !b"%&=#".contains(byte);
        match (plain && form % rarity != 0, form & 64) {
            (true, _) => encoded.push(char::from(*byte)),
            (false, 0) => encoded += &format!("%{byte:02x}"),
            (false, _) => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

// ---------------------------------------------------------------------------- replies

const V4: &str = "192.0.2.7";
const V6: &str = "2001:db8::7";

/// The layout of BEP 3, 7, 23 and 24, independent of the model.
#[test]
fn replies_byte_by_byte() {
    let peers = b"\x7F\x07\x08\x09\x1A\xE1\xC0\0\x02\x01\0\x50";
    let start = "d8:completei3e11:external ip4:\u{1}\u{2}\u{3}\u{4}10:incompletei2e\
         8:intervali1801e12:min intervali900e";
    let reply = announce_reply(counts(3, 2, 1801), peers, "1.2.3.4", true);
    assert_eq!(reply, [start.as_bytes(), b"5:peers12:", &peers[..], b"e"].concat());
    let reply = announce_reply(counts(3, 2, 1801), peers, "1.2.3.4", false);
    let list = b"5:peersld2:ip9:127.7.8.94:porti6881eed2:ip9:192.0.2.14:porti80eeee";
    assert_eq!(reply, [start.as_bytes(), list].concat());

    let peer = b"\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x07\x1A\xE1";
    let start = b"d8:completei0e11:external ip16:\x20\x01\x0D\xB8\0\0\0\0\0\0\0\0\0\0\0\x0710:\
        incompletei4294967295e8:intervali0e12:min intervali0e";
    let reply = announce_reply(counts(0, u32::MAX, 0), peer, V6, true);
    assert_eq!(reply, [&start[..], b"5:peers0:6:peers618:", peer, b"e"].concat());
    let reply = announce_reply(counts(0, u32::MAX, 0), peer, V6, false);
    let list = b"5:peersld2:ip11:2001:db8::74:porti6881eeee";
    assert_eq!(reply, [&start[..], list].concat());

    let mut reply = b"HTTP".to_vec();
    write_scrape(&[*b"abcdefghijklmnopqrst"], &[*b"\0\0\0\x01\0\0\x01\0\0\0\0\x0A"], &mut reply);
    let counts = "d8:completei1e10:downloadedi256e10:incompletei10ee";
    assert_eq!(reply, format!("HTTPd5:filesd20:abcdefghijklmnopqrst{counts}ee").into_bytes());

    assert_eq!(failure_reply("port cannot be 0", None), b"d14:failure reason16:port cannot be 0e");
    assert_eq!(failure_reply("", Some(15)), b"d14:failure reason0:8:retry ini15ee");
}

/// An IPv4-mapped client has IPv4 peers.
#[test]
fn a_mapped_client_is_told_its_ipv4_address() {
    let reply = |client| announce_reply(counts(1, 2, 3), &[7; 12], client, true);
    assert_eq!(reply("::ffff:192.0.2.7"), reply(V4));
}

/// The longest address as text.
#[test]
fn every_address_fits_a_list() {
    let peer = Endpoint::V6([0xFF; 18]);
    let reply = announce_reply(counts(1, 2, 3), peer.as_bytes(), V6, false);
    let entry = "ld2:ip39:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff4:porti65535eee";
    assert!(reply.ends_with(format!("5:peers{entry}e").as_bytes()));
}

proptest! {
    #[test]
    fn an_announce_reply_is_the_encoded_tree(
        head: (u32, u32, u32),
        peers in prop_oneof![
            vec(any::<[u8; 6]>().prop_map(Endpoint::V4), 0..30).prop_map(|peers| (V4, peers)),
            vec(any::<[u8; 18]>().prop_map(Endpoint::V6), 0..30).prop_map(|peers| (V6, peers)),
        ],
        compact: bool,
    ) {
        let ((seeders, leechers, interval), (client, peers)) = (head, peers);
        let wire = peers.iter().flat_map(|peer| peer.as_bytes()).copied().collect::<Vec<u8>>();
        let mut expected = BTreeMap::from([
            ("complete", Value::Number(seeders)),
            ("incomplete", Value::Number(leechers)),
            ("interval", Value::Number(interval)),
            ("min interval", Value::Number(interval / 2)),
            ("external ip", Value::Bytes(match client.parse().unwrap() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            })),
        ]);
        if !compact {
            let list = peers.iter().map(|peer| dictionary(BTreeMap::from([
                ("ip", Value::Bytes(peer.ip().to_string().into_bytes())),
                ("port", Value::Number(peer.port().into())),
            ])));
            expected.insert("peers", Value::List(list.collect()));
        } else if client == V4 {
            expected.insert("peers", Value::Bytes(wire.clone()));
        } else {
            expected.insert("peers", Value::Bytes(Vec::new()));
            expected.insert("peers6", Value::Bytes(wire.clone()));
        }
        let reply = announce_reply(counts(seeders, leechers, interval), &wire, client, compact);
        prop_assert_eq!(reply, dictionary(expected).encoded());
    }

    #[test]
    fn a_scrape_reply_is_the_encoded_tree(
        swarms in prop::collection::btree_map(any::<[u8; 20]>(), any::<(u32, u32, u32)>(), 0..80),
    ) {
        let (mut hashes, mut wire, mut files) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (hash, (seeders, completed, leechers)) in swarms {
            let mut counts = [0; scrape::COUNTS_LEN];
            ScrapeCounts { seeders, completed, leechers }.write(&mut counts);
            hashes.push(hash);
            wire.push(counts);
            files.insert(hash.to_vec(), dictionary(BTreeMap::from([
                ("complete", Value::Number(seeders)),
                ("downloaded", Value::Number(completed)),
                ("incomplete", Value::Number(leechers)),
            ])));
        }
        let mut reply = Vec::new();
        write_scrape(&hashes, &wire, &mut reply);
        let expected = dictionary(BTreeMap::from([("files", Value::Dictionary(files))]));
        prop_assert_eq!(reply, expected.encoded());
    }

    #[test]
    fn a_failure_is_the_encoded_tree(reason: String, retry_in: Option<u32>) {
        let text = Value::Bytes(reason.clone().into_bytes());
        let mut expected = BTreeMap::from([("failure reason", text)]);
        expected.extend(retry_in.map(|minutes| ("retry in", Value::Number(minutes))));
        prop_assert_eq!(failure_reply(&reason, retry_in), dictionary(expected).encoded());
    }
}

fn counts(seeders: u32, leechers: u32, interval: u32) -> AnnounceHead {
    AnnounceHead { transaction_id: TransactionId(7), interval, leechers, seeders }
}

fn announce_reply(head: AnnounceHead, peers: &[u8], client: &str, compact: bool) -> Vec<u8> {
    let mut reply = b"HTTP".to_vec();
    write_announce(&head, peers, client.parse().unwrap(), compact, &mut reply);
    assert_eq!(reply[..4], *b"HTTP", "a reply is appended");
    reply.split_off(4)
}

fn failure_reply(reason: &str, retry_in: Option<u32>) -> Vec<u8> {
    let mut reply = Vec::new();
    write_failure(reason, retry_in, &mut reply);
    reply
}

/// A value of BEP 3's "bencoding".
enum Value {
    Number(u32),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Dictionary(BTreeMap<Vec<u8>, Value>),
}

fn dictionary(entries: BTreeMap<&str, Value>) -> Value {
    let entries = entries.into_iter().map(|(key, value)| (key.as_bytes().to_vec(), value));
    Value::Dictionary(entries.collect())
}

impl Value {
    fn encoded(&self) -> Vec<u8> {
        let string = |bytes: &[u8]| [format!("{}:", bytes.len()).as_bytes(), bytes].concat();
        match self {
            Self::Number(number) => format!("i{number}e").into_bytes(),
            Self::Bytes(bytes) => string(bytes),
            Self::List(values) => {
                let values: Vec<u8> = values.iter().flat_map(Self::encoded).collect();
                [&b"l"[..], &values, b"e"].concat()
            }
            Self::Dictionary(entries) => {
                let entries = entries.iter().flat_map(|(key, it)| [string(key), it.encoded()]);
                [&b"d"[..], &entries.collect::<Vec<_>>().concat(), b"e"].concat()
            }
        }
    }
}
