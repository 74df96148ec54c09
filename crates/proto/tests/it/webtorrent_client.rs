//! The client's side of WebTorrent: a message is read as by a naive model that reads a tree of
//! values, and what it writes is read by the tracker's side and the other way round.

use onrush_proto::webtorrent::client::{
    Announced, BadReply, Failure, Forwarded, Reply, ReplyReader, Type, first_bytes, is_forwarded,
    write_announce, write_answer, write_scrape,
};
use onrush_proto::webtorrent::{self, Action, Answer, Limits, Message, Offer, OfferId, parse};
use onrush_proto::{Announce, Event, InfoHash, PeerId, ScrapeCounts};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

const LIMITS: Limits = Limits { offers: 9, hashes: 9 };
const SDP: &str = r"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n";

// ---------------------------------------------------------------------------- messages of clients

proptest! {
    #[test]
    fn a_written_announce_is_read(
        ids: ([u8; 20], [u8; 20]), left: u64, event in 0u32..5,
        offers in vec(any::<[u8; 20]>(), 0..4),
    ) {
        let (info_hash, peer_id) = (InfoHash(ids.0), PeerId(ids.1));
        let event = Event::from_wire(event);
        let announce = Announce { info_hash, peer_id, left, event, ..Announce::default() };
        let offers: Vec<_> = offers.into_iter().map(OfferId).collect();
        let sdp = |id: &OfferId, out: &mut Vec<u8>| {
            out.extend_from_slice(SDP.as_bytes());
            out.extend(id.0.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        };
        let mut out = Vec::new();
        write_announce(&announce, &offers, sdp, &mut out);
        let text = String::from_utf8(out).unwrap();
        let Ok(Message::Announce(read)) = parse(&text, LIMITS) else { panic!("{text}") };
        prop_assert_eq!((read.info_hash, read.peer_id, read.event), (info_hash, peer_id, event));
        prop_assert_eq!((read.seeder, read.num_want), (Some(left == 0), offers.len()));
        let sdps = offers.iter().map(|id| {
            let mut text = Vec::new();
            sdp(id, &mut text);
            let sdp = String::from_utf8(text).unwrap();
            format!(r#"{{"type":"offer","sdp":"{sdp}"}}"#)
        });
        let sdps: Vec<_> = sdps.collect();
        let expected = offers.iter().zip(&sdps).map(|(id, offer)| Offer { offer_id: *id, offer });
        prop_assert!(read.offers.iter().copied().eq(expected));
    }

    #[test]
    fn a_written_answer_is_read(hash: [u8; 20], from: [u8; 20], to: [u8; 20], offer_id: [u8; 20]) {
        let (hash, from, to) = (InfoHash(hash), PeerId(from), PeerId(to));
        let (offer_id, mut out) = (OfferId(offer_id), Vec::new());
        let sdp = |out: &mut Vec<u8>| out.extend_from_slice(SDP.as_bytes());
        write_answer(&hash, (&from, &to), &offer_id, sdp, &mut out);
        let text = String::from_utf8(out).unwrap();
        let Ok(Message::Announce(read)) = parse(&text, LIMITS) else { panic!("{text}") };
        prop_assert_eq!((read.info_hash, read.peer_id, read.seeder), (hash, from, None));
        let answer = format!(r#"{{"type":"answer","sdp":"{SDP}"}}"#);
        prop_assert_eq!(read.answer, Some(Answer { to_peer_id: to, offer_id, answer: &answer }));
    }

    #[test]
    fn a_written_scrape_is_read(mut hashes in vec(any::<[u8; 20]>(), 0..9)) {
        let mut out = Vec::new();
        write_scrape(hashes.iter().copied().map(InfoHash), &mut out);
        let text = String::from_utf8(out).unwrap();
        hashes.sort_unstable();
        hashes.dedup();
        prop_assert_eq!(parse(&text, LIMITS), Ok(Message::Scrape(hashes)));
    }
}

// ---------------------------------------------------------------------------- messages of trackers

proptest! {
    #[test]
    fn what_a_tracker_writes_is_read(
        ids: ([u8; 20], [u8; 20], [u8; 20]), counts: (u32, u32, u32), reason: String,
        swarms in btree_map(any::<[u8; 20]>(), any::<(u32, u32, u32)>(), 0..9),
    ) {
        let (info_hash, peer_id, offer_id) = (InfoHash(ids.0), PeerId(ids.1), OfferId(ids.2));
        let of = |(seeders, completed, leechers)| ScrapeCounts { seeders, completed, leechers };
        let (mut out, mut reader) = (Vec::new(), ReplyReader::default());
        let written = |out: &mut Vec<u8>| String::from_utf8(std::mem::take(out)).unwrap();
        webtorrent::write_counts(&info_hash, counts.1, &of(counts), &mut out);
        let (seeders, leechers) = (Some(counts.0), Some(counts.2));
        let announced = Announced { info_hash, interval: counts.1, seeders, leechers };
        let text = written(&mut out);
        prop_assert_eq!(reader.read(&text), Ok(Reply::Announce(announced)));
        let sdp = SDP;
        let forwarded = Forwarded { info_hash, peer_id, offer_id, sdp };
        let offer = format!(r#"{{"type":"offer","sdp":"{SDP}"}}"#);
        webtorrent::write_offer(&info_hash, &peer_id, &Offer { offer_id, offer: &offer }, &mut out);
        let text = written(&mut out);
        prop_assert_eq!(reader.read(&text), Ok(Reply::Offer(forwarded)));
        let answer = offer.replace("\"offer\"", "\"answer\"");
        let answer = Answer { to_peer_id: PeerId([0; 20]), offer_id, answer: &answer };
        webtorrent::write_answer(&info_hash, &peer_id, &answer, &mut out);
        let text = written(&mut out);
        prop_assert_eq!(reader.read(&text), Ok(Reply::Answer(forwarded)));
        webtorrent::write_failure(Action::Scrape, None, &reason, Some(3), &mut out);
        let (action, retry_in) = (Action::Scrape, Some(3));
        let failure = Failure { action, info_hash: None, reason, retry_in };
        let text = written(&mut out);
        prop_assert_eq!(reader.read(&text), Ok(Reply::Failure(failure)));
        webtorrent::write_scrape(swarms.iter().rev().map(|(hash, it)| (*hash, of(*it))), &mut out);
        let text = written(&mut out);
        let Ok(Reply::Scrape(files)) = reader.read(&text) else { panic!("{text}") };
        prop_assert!(files.hashes.iter().eq(swarms.keys()));
        prop_assert!(files.counts.iter().eq(swarms.values().map(|it| of(*it))));
    }
}

proptest! {
    #[test]
    fn an_offer_or_answer_is_recognized_in_the_usual_form(
        ids: ([u8; 20], [u8; 20], [u8; 20]), is_offer: bool,
        order in Just([0, 1, 2, 3, 4]).prop_shuffle(), at: Index, bits in 1..=u8::MAX,
    ) {
        let kind = if is_offer { Type::Offer } else { Type::Answer };
        let name = if is_offer { "offer" } else { "answer" };
        let id = |id: [u8; 20]| json!(String::from_iter(id.map(char::from)));
        let fields = [
            r#""action":"announce""#.to_owned(),
            format!(r#""info_hash":{}"#, id(ids.0)),
            format!(r#""peer_id":{}"#, id(ids.1)),
            format!(r#""offer_id":{}"#, id(ids.2)),
            format!(r#""{name}":{{"type":"{name}","sdp":"{SDP}"}}"#),
        ];
        let text = |order: [usize; 5]| format!("{{{}}}", order.map(|n| &*fields[n]).join(","));
        let (right, mut memory) = (text(order), Vec::new());
        let mut is_right = |text: &[u8]| {
            let it = (&InfoHash(ids.0), &PeerId(ids.1), &OfferId(ids.2));
            let sdp = |out: &mut Vec<u8>| out.extend_from_slice(SDP.as_bytes());
            is_forwarded(text, it, (kind, sdp), &mut memory)
        };
        prop_assert!(is_right(right.as_bytes()), "{}", right);
        let repeated = order.map(|n| if n == order[1] { order[3] } else { n });
        prop_assert!(!is_right(text(repeated).as_bytes()));
        let mut changed = right.clone().into_bytes();
        prop_assert!(!is_right(&changed[..at.index(changed.len())]));
        changed[at.index(right.len())] ^= bits;
        prop_assert!(!is_right(&changed));
        let id = right.find(r#""offer_id":""#).unwrap() + r#""offer_id":""#.len();
        prop_assert_eq!(first_bytes(&right.as_bytes()[id..]), ids.2.first_chunk().copied());
        // Of any text.
        first_bytes(&changed[at.index(right.len())..]);
    }
}

/// A message as a tree: which it is, and its values in the order of the fields of [`Reply`].
type Tree = (&'static str, Vec<Value>);

fn tree(reply: Reply<'_>) -> Tree {
    let text = |id: [u8; 20]| Value::from(String::from_iter(id.map(char::from)));
    let sdp = |it: Forwarded<'_>| {
        let sdp: Value = serde_json::from_str(&format!("\"{}\"", it.sdp)).unwrap();
        vec![text(it.info_hash.0), text(it.peer_id.0), text(it.offer_id.0), sdp]
    };
    match reply {
        Reply::Announce(Announced { info_hash, interval, seeders, leechers }) => {
            ("announce", vec![text(info_hash.0), json!(interval), json!(seeders), json!(leechers)])
        }
        Reply::Offer(it) => ("offer", sdp(it)),
        Reply::Answer(it) => ("answer", sdp(it)),
        Reply::Failure(Failure { action, info_hash, reason, retry_in }) => {
            let hash = info_hash.map(|hash| text(hash.0));
            ("failure", vec![json!(action.name()), json!(hash), json!(reason), json!(retry_in)])
        }
        Reply::Scrape(files) => {
            let counts = files.hashes.iter().zip(files.counts.iter());
            let of = |(hash, it): (&[u8; 20], ScrapeCounts)| {
                json!([text(*hash), it.seeders, it.completed, it.leechers])
            };
            ("scrape", counts.map(of).collect())
        }
    }
}

/// Reads a tree of values; `text` is only looked at for what a tree does not have: repeated fields.
fn model(text: &str) -> Result<Tree, BadReply> {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return Err(BadReply::Json) };
    let wrong = |_| BadReply::Value;
    let get = |key: &str, is_valid: fn(&Value) -> bool| match fields.get(key) {
        Some(value) if !is_valid(value) => Err(()),
        value => Ok(value.cloned()),
    };
    let is_id = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.chars().count() == 20 && text.chars().all(|it| it <= '\u{FF}')
    };
    let is_count = |value: &Value| {
        value.as_f64().is_some_and(|it| it.fract() == 0.0 && (0.0..=4_294_967_295.0).contains(&it))
    };
    let count = |key| {
        Ok(json!(get(key, is_count).map_err(wrong)?.and_then(|it| it.as_f64().map(|it| it as u32))))
    };
    let action = match fields.get("action").and_then(Value::as_str) {
        Some(action @ ("announce" | "scrape")) => action,
        _ => return Err(BadReply::Action),
    };
    let hash = get("info_hash", is_id).map_err(wrong)?;
    if let Some(reason) = get("failure reason", Value::is_string).map_err(wrong)? {
        let retry_in = count("retry in").unwrap_or(Value::Null);
        return Ok(("failure", vec![json!(action), json!(hash), reason, retry_in]));
    }
    if action == "scrape" {
        let files = get("files", Value::is_object).map_err(wrong)?.ok_or(BadReply::Value)?;
        let file = |(hash, counts): (&String, &Value)| {
            let valid = is_id(&json!(hash)) && counts.is_object();
            let number = |key: &str| match counts.get(key) {
                None if key == "downloaded" => Some(0),
                value => value.filter(|it| is_count(it))?.as_f64().map(|it| it as u32),
            };
            let of = [number("complete")?, number("downloaded")?, number("incomplete")?];
            valid.then(|| (hash.clone(), of))
        };
        let files = files.as_object().unwrap().iter().map(file).collect::<Option<Vec<_>>>();
        let mut files = files.ok_or(BadReply::Value)?;
        files.sort();
        let of = |(hash, [seeders, completed, leechers]): (String, [u32; 3])| {
            json!([hash, seeders, completed, leechers])
        };
        return Ok(("scrape", files.into_iter().map(of).collect()));
    }
    let hash = hash.ok_or(BadReply::Value)?;
    for kind in ["offer", "answer"] {
        let Some(description) = fields.get(kind) else { continue };
        let other = if kind == "offer" { "answer" } else { "offer" };
        let ids = ["peer_id", "offer_id"].map(|key| get(key, is_id).ok().flatten());
        let [Some(peer), Some(offer_id)] = ids else { return Err(BadReply::Value) };
        let is_whole = description["type"] == kind && description["sdp"].is_string();
        if !is_whole || fields.contains_key(other) {
            return Err(BadReply::Value);
        }
        return Ok((kind, vec![hash, peer, offer_id, description["sdp"].clone()]));
    }
    let interval = count("interval")?;
    match interval {
        Value::Null => Err(BadReply::Value),
        _ => Ok(("announce", vec![hash, interval, count("complete")?, count("incomplete")?])),
    }
}

/// Fields of trackers: most often right ones.
fn texts() -> impl Strategy<Value = String> {
    let id = vec(any::<u8>().prop_map(char::from), 20).prop_map(String::from_iter).boxed();
    let number = prop_oneof![8 => (0u32..9).prop_map(Value::from), 1 => select(vec![
        json!(-1), json!(1.5), json!(4_294_967_296u64), json!(7.0), json!("1"), json!(null),
    ])];
    let description = |kind: &'static str| {
        let kinds = select(vec![kind, kind, kind, kind, "pranswer"]);
        let sdp = prop_oneof![8 => "[ -~\r\nä]{0,9}".prop_map(Value::from), 1 => Just(json!(1))];
        (kinds, sdp).prop_map(|(kind, sdp)| json!({"type": kind, "sdp": sdp, "x": [1]})).boxed()
    };
    let counts = (number.clone(), number.clone())
        .prop_map(|(complete, incomplete)| json!({"complete": complete, "incomplete": incomplete}));
    let files = btree_map(id.clone(), counts, 0..3).prop_map(|files| json!(files)).boxed();
    let field = |key: &'static str, share: f64, value: BoxedStrategy<Value>| {
        let value = prop_oneof![30 => value, 1 => Just(json!([])), 1 => Just(json!("announce"))];
        prop::option::weighted(share, value.prop_map(move |value| (key, value)))
    };
    let action = select(vec!["announce", "announce", "announce", "scrape", "x"]).boxed();
    let id = id.prop_map(Value::from).boxed();
    let fields = [
        field("action", 0.97, action.prop_map(Value::from).boxed()),
        field("info_hash", 0.9, id.clone()),
        field("peer_id", 0.9, id.clone()),
        field("offer_id", 0.9, id),
        field("interval", 0.8, number.clone().boxed()),
        field("complete", 0.8, number.clone().boxed()),
        field("incomplete", 0.8, number.clone().boxed()),
        field("offer", 0.3, description("offer")),
        field("answer", 0.2, description("answer")),
        field("files", 0.6, files),
        field("failure reason", 0.1, "[ -~ä]{0,9}".prop_map(Value::from).boxed()),
        field("retry in", 0.1, number.boxed()),
    ];
    let change = prop::option::weighted(0.1, (any::<Index>(), "[ -DF-df-~]"));
    (fields.prop_shuffle(), change).prop_map(|(fields, change)| {
        let fields = fields.iter().flatten().map(|(key, value)| format!("\"{key}\" : {value}"));
        let mut text = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
        if let Some((at, with)) = change {
            let places: Vec<_> = text.char_indices().map(|(at, _)| at).collect();
            let at = *at.get(&places);
            let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
            text.replace_range(at..end, &with);
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_message_is_read_as_by_the_model(text in texts()) {
        let mut reader = ReplyReader::default();
        prop_assert_eq!(reader.read(&text).map(tree), model(&text), "{}", text);
    }
}

#[test]
fn an_id_is_read_in_each_form_of_its_characters() {
    let with = |info_hash: &str| {
        format!(r#"{{"action":"announce","info_hash":"{info_hash}","interval":9}}"#)
    };
    let read = |info_hash: &str| match ReplyReader::default().read(&with(info_hash))? {
        Reply::Announce(announced) => Ok(announced.info_hash.0),
        other => panic!("{other:?}"),
    };
    for byte in 0..=255u8 {
        let plain = matches!(byte, 0x20.. if !b"\"\\".contains(&byte));
        let short = b"\x08b\tt\nn\x0Cf\rr\"\"\\\\//".as_chunks::<2>().0;
        let short = short.iter().filter(|pair| pair[0] == byte);
        let forms = [format!("\\u{byte:04x}"), format!("\\u{byte:04X}")].into_iter();
        let forms = forms.chain(plain.then(|| char::from(byte).to_string()));
        for form in forms.chain(short.map(|pair| format!("\\{}", char::from(pair[1])))) {
            assert_eq!(read(&form.repeat(20)), Ok([byte; 20]), "{form}");
            assert_eq!(read(&form.repeat(19)), Err(BadReply::Value), "{form}");
            assert_eq!(read(&form.repeat(21)), Err(BadReply::Value), "{form}");
        }
    }
    for (form, bad) in [
        ("\u{100}", BadReply::Value),
        (r"\u0100", BadReply::Value),
        (r"\uD83D\uDE00", BadReply::Value),
        (r"\uD83D", BadReply::Json),
        (r"\x", BadReply::Json),
    ] {
        assert_eq!(read(&form.repeat(20)), Err(bad), "{form}");
    }
}

/// A tree keeps the last of them only.
#[test]
fn repeated_fields_are_found() {
    const HASH: &str = r#""abcdefghijklmnopqrst""#;
    let offer = |more: &str| {
        format!(
            r#"{{"action":"announce","info_hash":{HASH},"peer_id":{HASH},"offer_id":{HASH},
            "offer":{{"type":"offer","sdp":""{more}}}}}"#
        )
    };
    let file = r#"{"complete":1,"incomplete":2}"#;
    for (text, expected) in [
        (offer(""), None),
        (offer(r#"},"offer":{"type":"offer","sdp":"""#), Some(BadReply::Value)),
        (offer(r#","sdp":"""#), Some(BadReply::Value)),
        (offer(r#","type":"offer""#), Some(BadReply::Value)),
        (offer(&format!(r#"}},"peer_id":{HASH},"x":{{"#)), Some(BadReply::Value)),
        (offer(r#"},"action":"announce","x":{"#), Some(BadReply::Action)),
        (
            format!(r#"{{"action":"scrape","files":{{{HASH}:{file},{HASH}:{file}}}}}"#),
            Some(BadReply::Value),
        ),
        (format!(r#"{{"action":"scrape","files":{{{HASH}:{file}}}}}"#), None),
    ] {
        assert_eq!(ReplyReader::default().read(&text).err(), expected, "{text}");
    }
}
