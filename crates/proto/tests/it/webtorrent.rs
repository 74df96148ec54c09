//! WebTorrent: messages are read like a naive model reads them from a tree of values, and replies
//! are such trees.

use std::collections::BTreeSet;

use onrush_proto::webtorrent::{
    Action, Announce, Answer, BadMessage, Limits, Message, Offer, OfferId, Rejected, parse,
    write_answer, write_counts, write_failure, write_offer, write_scrape,
};
use onrush_proto::{Event, InfoHash, PeerId, ScrapeCounts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

const LIMITS: Limits = Limits { offers: 3, hashes: 4 };
/// Characters that JSON escapes, or may escape, and their bytes.
const HASH: &str = r#""\u0000\u001f \"\\\/\b\f\n\r\t~\u007f\u0080\u00FFÿ\u00c3aA0""#;
const HASH_BYTES: [u8; 20] = *b"\0\x1F \"\\/\x08\x0C\n\r\t~\x7F\x80\xFF\xFF\xC3aA0";
const PEER: &str = r#""-WW0208-abcdefghijkl""#;
const PEER_BYTES: [u8; 20] = *b"-WW0208-abcdefghijkl";
const OFFER_ID: &str = r#""\u0001bcdefghijklmnopqrst""#;
const OFFER_ID_BYTES: [u8; 20] = *b"\x01bcdefghijklmnopqrst";
/// With spaces, escapes and a field that must not be lost.
const SDP: &str =
    "{ \"type\" : \"offer\",\"sdp\":\"v=0\\r\\n\\u0041\u{e4}\",\n\"x\":\"\\ud83d\\ude00\"}";

fn message(text: &str) -> Result<Message<'_>, Rejected> {
    parse(text, LIMITS)
}

fn announce(text: &str) -> Announce<'_> {
    match message(text) {
        Ok(Message::Announce(announce)) => announce,
        other => panic!("{text}: {other:?}"),
    }
}

/// An announce with these further fields.
fn with(fields: &str) -> String {
    format!(r#"{{"action":"announce","info_hash":{HASH},"peer_id":{PEER}{fields}}}"#)
}

fn offer(offer: &str) -> Offer<'_> {
    Offer { offer_id: OfferId(OFFER_ID_BYTES), offer }
}

/// The messages of bittorrent-tracker (npm) and libtorrent.
#[test]
fn messages_of_clients() {
    let offers = format!(r#"[{{"offer":{SDP},"offer_id":{OFFER_ID}}}]"#);
    let text = with(&format!(
        r#","uploaded":0,"left":null,"event":"started","numwant":5,"offers":{offers}"#
    ));
    let expected = Announce {
        info_hash: InfoHash(HASH_BYTES),
        peer_id: PeerId(PEER_BYTES),
        seeder: None,
        event: Event::Started,
        num_want: 5,
        offers: vec![offer(SDP)],
        answer: None,
    };
    assert_eq!(announce(&text), expected);
    let text =
        with(r#","corrupt":0,"key":"0000ABCD","left":0,"event":"paused","numwant":0,"offers":[]"#);
    let (seeder, event) = (Some(true), Event::Paused);
    let no_offer = Announce { seeder, event, num_want: 0, offers: vec![], ..expected };
    assert_eq!(announce(&text), no_offer);
    let text = with(&format!(r#","to_peer_id":{PEER},"answer":{SDP},"offer_id":{OFFER_ID}"#));
    let (to_peer_id, offer_id) = (PeerId(PEER_BYTES), OfferId(OFFER_ID_BYTES));
    let answer = Some(Answer { to_peer_id, offer_id, answer: SDP });
    let (event, num_want) = (Event::None, usize::MAX);
    assert_eq!(announce(&text), Announce { seeder: None, event, num_want, answer, ..no_offer });
    for (hashes, expected) in [
        (HASH.to_owned(), vec![HASH_BYTES]),
        (format!("[{HASH},{PEER}]"), sorted([HASH_BYTES, PEER_BYTES])),
        (format!("[{PEER},{HASH}]"), sorted([HASH_BYTES, PEER_BYTES])),
        (format!("[{}]", [PEER, PEER, PEER, PEER, HASH].join(",")), vec![PEER_BYTES]),
        ("[]".to_owned(), vec![]),
    ] {
        let text = format!(r#"{{"info_hash":{hashes},"action":"scrape"}}"#);
        assert_eq!(message(&text), Ok(Message::Scrape(expected)), "{text}");
    }
    assert_eq!(message(r#"{"action":"scrape"}"#), Ok(Message::Scrape(vec![])));
}

#[test]
fn values_of_other_types_are_missing() {
    for (fields, seeder, num_want) in [
        ("", None, usize::MAX),
        (r#","left":"0","numwant":"5""#, None, usize::MAX),
        (r#","left":[0],"numwant":{"a":[]}"#, None, usize::MAX),
        (r#","left":0.0,"numwant":2.9"#, Some(true), 2),
        (r#","left":18446744073709551616,"numwant":1e99"#, Some(false), usize::MAX),
        (r#","left":-1,"numwant":-1"#, Some(false), usize::MAX),
        (r#","left":0,"left":1,"numwant":1,"numwant":null"#, Some(false), usize::MAX),
        (r#","event":"completed""#, Some(true), usize::MAX),
        (r#","event":"completed","left":7"#, Some(false), usize::MAX),
        (r#","event":3,"offers":{},"answer":null,"x":{"offers":[1]}"#, None, usize::MAX),
    ] {
        let text = with(fields);
        let announce = announce(&text);
        assert_eq!((announce.seeder, announce.num_want), (seeder, num_want), "{fields}");
        assert!(announce.offers.is_empty() && announce.answer.is_none(), "{fields}");
    }
}

/// Descriptions that are passed on are valid for every client, and beyond the limit none is looked
/// at.
#[test]
fn each_bad_message_has_its_reason() {
    let valid = format!(r#"{{"offer":{SDP},"offer_id":{OFFER_ID}}}"#);
    let (known, hash) = (Some(Action::Announce), Some(InfoHash(HASH_BYTES)));
    let mut bad = vec![
        (String::new(), BadMessage::Json, None, None),
        ("[]".to_owned(), BadMessage::Json, None, None),
        (with("") + "x", BadMessage::Json, known, hash),
        (with(r#","offers":["#), BadMessage::Json, known, hash),
        (with(r#","action":"Announce""#), BadMessage::Action, None, hash),
        (with(r#","action":null"#), BadMessage::Action, None, hash),
        ("{}".to_owned(), BadMessage::Action, None, None),
        (with(r#","info_hash":"a""#), BadMessage::InfoHash, known, None),
        (with(&format!(r#","info_hash":[{HASH}]"#)), BadMessage::InfoHash, known, None),
        (with(r#","peer_id":"0123456789012345678\u0100""#), BadMessage::PeerId, known, hash),
        (with(r#","peer_id":"012345678901234567890""#), BadMessage::PeerId, known, hash),
    ];
    let late = format!("[{},1]", [HASH; 9].join(","));
    let mut skipped = Vec::new();
    for hashes in ["null", "1", r#""a""#, &format!(r#"["a",{HASH}]"#), &late] {
        let text = format!(r#"{{"action":"scrape","info_hash":{hashes}}}"#);
        bad.push((text, BadMessage::InfoHash, Some(Action::Scrape), None));
    }
    for description in [
        "null",
        "1",
        r#""v=0""#,
        "[]",
        "{}",
        r#"{"sdp":1}"#,
        r#"{"sdp":"v=0","x":1}"#,
        r#"{"sdp":"v=0","x":{}}"#,
        r#"{"sdp":"\ud800"}"#,
        r#"{"sdp":"v=0","\ud800":""}"#,
    ] {
        let id = format!(r#""offer_id":{OFFER_ID}"#);
        let offers = format!(r#","offers":[{valid},{{{id},"offer":{description}}}]"#);
        skipped.push(with(&offers));
        if description != "null" {
            let answer = format!(r#","to_peer_id":{PEER},{id},"answer":{description}"#);
            bad.push((with(&answer), BadMessage::Answer, known, hash));
        }
    }
    for offer in ["1", "{}", &format!(r#"{{"offer":{SDP},"offer_id":"a"}}"#)] {
        skipped.push(with(&format!(r#","offers":[{valid},{offer}]"#)));
    }
    for ids in [format!(r#""to_peer_id":{PEER}"#), format!(r#""offer_id":{OFFER_ID}"#)] {
        let text = with(&format!(r#",{ids},"answer":{SDP}"#));
        bad.push((text, BadMessage::Answer, known, hash));
    }
    for (text, reason, action, info_hash) in bad {
        assert_eq!(message(&text), Err(Rejected { reason, action, info_hash }), "{text}");
    }
    for text in skipped {
        assert_eq!(announce(&text).offers, [offer(SDP)], "{text}");
    }
    let text = with(&format!(r#","offers":[1,{valid},{{"offer":1}},{valid},{valid},{valid}]"#));
    assert_eq!(announce(&text).offers, [offer(SDP); 3]);
    let deep = with(&format!(r#","x":{}{}"#, "[".repeat(30_000), "]".repeat(30_000)));
    assert_eq!(announce(&deep).offers, []);
}

// ---------------------------------------------------------------------------- the model

/// A message, with descriptions as trees.
#[derive(PartialEq, Debug)]
enum Tree {
    Announce {
        ids: (InfoHash, PeerId),
        state: (Option<bool>, Event, usize),
        offers: Vec<(OfferId, Value)>,
        answer: Option<(PeerId, OfferId, Value)>,
    },
    Scrape(Vec<[u8; 20]>),
}

fn tree(message: Message<'_>) -> Tree {
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    match message {
        Message::Announce(it) => Tree::Announce {
            ids: (it.info_hash, it.peer_id),
            state: (it.seeder, it.event, it.num_want),
            offers: it.offers.iter().map(|offer| (offer.offer_id, value(offer.offer))).collect(),
            answer: it.answer.map(|it| (it.to_peer_id, it.offer_id, value(it.answer))),
        },
        Message::Scrape(hashes) => Tree::Scrape(hashes),
    }
}

/// Each hash once.
fn sorted(hashes: impl IntoIterator<Item = [u8; 20]>) -> Vec<[u8; 20]> {
    BTreeSet::from_iter(hashes).into_iter().collect()
}

fn model(text: &str) -> Result<Tree, BadMessage> {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
        return Err(BadMessage::Json);
    };
    let fields = Value::Object(fields);
    let id = |value: &Value| {
        let characters = value.as_str()?.chars().map(u8::try_from);
        <[u8; 20]>::try_from(characters.collect::<Result<Vec<_>, _>>().ok()?).ok()
    };
    let description = |value: &Value| {
        let is_valid =
            value.as_object()?.values().all(Value::is_string) && value["sdp"].is_string();
        is_valid.then(|| value.clone())
    };
    let hash = &fields["info_hash"];
    match fields["action"].as_str() {
        Some("scrape") if fields.get("info_hash").is_none() => return Ok(Tree::Scrape(vec![])),
        Some("scrape") => {
            let list = hash.as_array().cloned().unwrap_or_else(|| vec![hash.clone()]);
            let hashes = list.iter().map(id).collect::<Option<Vec<_>>>();
            let mut hashes = hashes.ok_or(BadMessage::InfoHash)?;
            hashes.truncate(LIMITS.hashes);
            return Ok(Tree::Scrape(sorted(hashes)));
        }
        Some("announce") => {}
        _ => return Err(BadMessage::Action),
    }
    let ids = (
        InfoHash(id(hash).ok_or(BadMessage::InfoHash)?),
        PeerId(id(&fields["peer_id"]).ok_or(BadMessage::PeerId)?),
    );
    let offer = |it: &Value| Some((OfferId(id(&it["offer_id"])?), description(&it["offer"])?));
    let offers = fields["offers"].as_array().map_or(&[][..], Vec::as_slice);
    let offers = offers.iter().filter_map(offer).take(LIMITS.offers).collect();
    let answer = || {
        let to = PeerId(id(&fields["to_peer_id"])?);
        Some((to, OfferId(id(&fields["offer_id"])?), description(&fields["answer"])?))
    };
    let answer = match fields["answer"] {
        Value::Null => None,
        _ => Some(answer().ok_or(BadMessage::Answer)?),
    };
    let event = fields["event"].as_str().unwrap_or_default();
    let seeder = match (fields["left"].as_f64(), event) {
        (None, "completed") => Some(true),
        (left, _) => left.map(|left| left == 0.0),
    };
    let wanted = fields["numwant"].as_f64().filter(|number| *number >= 0.0);
    let num_want = wanted.map_or(usize::MAX, |number| number as usize);
    let state = (seeder, Event::from_text(event.as_bytes()), num_want);
    Ok(Tree::Announce { ids, state, offers, answer })
}

proptest! {
    #[test]
    fn a_message_is_read_as_by_the_model(text in texts()) {
        let read = message(&text);
        prop_assert_eq!(read.clone().map(tree).map_err(|it| it.reason), model(&text), "{}", text);
        if let Err(rejected) = read && rejected.reason != BadMessage::Json {
            let fields: Value = serde_json::from_str(&text).unwrap();
            let action = rejected.action.map(Action::name);
            prop_assert!(action.is_none_or(|name| fields["action"] == *name));
            prop_assert!(action.is_some() || rejected.reason == BadMessage::Action);
            let characters = rejected.info_hash.map(|hash| hash.0.map(char::from));
            let hash = characters.map(|characters| Value::from(String::from_iter(characters)));
            prop_assert!(hash.is_none_or(|hash| fields["info_hash"] == hash));
        }
    }
}

/// Messages with all that is needed, most often, and changes.
fn texts() -> impl Strategy<Value = String> {
    let required = ["info_hash", "peer_id", "action"].map(|key| {
        let action = prop_oneof![3 => Just(json!("announce")), 1 => Just(json!("scrape"))];
        let value = if key == "action" { action.boxed() } else { id().boxed() };
        prop::option::weighted(0.97, (Just(key), value))
    });
    let change = prop::option::weighted(0.1, (any::<Index>(), "[ -DF-df-~]"));
    let fields = (required, vec((select(KEYS), value()), 0..7)).prop_map(|(required, more)| {
        required.into_iter().flatten().chain(more).collect::<Vec<_>>()
    });
    let fields = fields.prop_shuffle();
    (fields, vec(any::<u8>(), 40), change).prop_map(|(fields, forms, change)| {
        let mut forms = forms.into_iter().cycle();
        let fields = fields.iter().map(|(key, value)| {
            format!("{} : {}", encoded(&json!(key), &mut forms), encoded(value, &mut forms))
        });
        let mut text = format!("{{{}}}", fields.collect::<Vec<_>>().join(","));
        if let Some((at, with)) = change {
            let places = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
            let at = *at.get(&places);
            let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
            text.replace_range(at..end, &with);
        }
        text
    })
}

const KEYS: &[&str] = &[
    "info_hash",
    "peer_id",
    "left",
    "left",
    "event",
    "event",
    "numwant",
    "offers",
    "offers",
    "answer",
    "answer",
    "to_peer_id",
    "to_peer_id",
    "offer_id",
    "offer_id",
    "offer",
    "sdp",
    "x",
];

fn id() -> impl Strategy<Value = Value> {
    let text = vec(any::<u8>().prop_map(char::from), 20).prop_map(String::from_iter);
    text.prop_map(Value::from)
}

fn value() -> impl Strategy<Value = Value> {
    let description = prop_oneof![
        6 => "[ -~\r\nä]{0,9}".prop_map(|sdp| json!({"type": "offer", "sdp": sdp})),
        1 => select(vec![json!({}), json!({"sdp": 1}), json!({"sdp": "", "x": []}), json!(1)]),
    ];
    let description = description.boxed();
    let offer = prop_oneof![
        9 => (id(), description.clone()).prop_map(|(id, it)| json!({"offer_id": id, "offer": it})),
        1 => select(vec![json!(1), json!([]), json!({"offer_id": "a"})]),
    ];
    const TEXTS: [&str; 5] = ["started", "completed", "stopped", "paused", "announce"];
    prop_oneof![
        4 => id(),
        1 => "[a-zÿĀ]{18,22}".prop_map(Value::from),
        3 => select(&TEXTS).prop_map(Value::from),
        3 => prop_oneof![-2i64..3, any::<i64>()].prop_map(Value::from),
        1 => (-2.0f64..2.0).prop_map(Value::from),
        1 => any::<Option<bool>>().prop_map(Value::from),
        3 => description,
        3 => vec(offer, 0..6).prop_map(Value::from),
        1 => vec(id(), 0..6).prop_map(Value::from),
    ]
}

/// JSON in which characters are escaped or not, by the numbers in `forms`.
fn encoded(value: &Value, forms: &mut impl Iterator<Item = u8>) -> String {
    match value {
        Value::String(text) => {
            let mut encoded = String::new();
            for character in text.chars() {
                let form = forms.next().unwrap();
                match character {
                    '\0'..' ' | '"' | '\\' => encoded += &format!("\\u{:04x}", character as u32),
                    _ if form < 32 => encoded += &format!("\\u{:04X}", character as u32),
                    _ => encoded.push(character),
                }
            }
            format!("\"{encoded}\"")
        }
        Value::Array(values) => {
            let values = values.iter().map(|value| encoded(value, forms)).collect::<Vec<_>>();
            format!("[ {}]", values.join(" , "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| {
                format!("{}:{}", encoded(&json!(key), forms), encoded(value, forms))
            });
            format!("{{{} }}", fields.collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

// ---------------------------------------------------------------------------- replies

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"frame".to_vec();
    write(&mut out);
    assert_eq!(out[..5], *b"frame", "a reply is appended");
    String::from_utf8(out.split_off(5)).unwrap()
}

#[test]
fn replies_byte_by_byte() {
    let counts = ScrapeCounts { seeders: 1, completed: 3, leechers: u32::MAX };
    let (hash, peer) =
        (InfoHash(*b"\0\x1F\"\\/\x7F\x80\xBF\xC0\xFFabcdefghij"), PeerId(PEER_BYTES));
    let text = "\"\\u0000\\u001f\\\"\\\\/\u{7F}\u{80}\u{BF}\u{C0}\u{FF}abcdefghij\"";
    let head = format!(r#"{{"action":"announce","info_hash":{text}"#);
    assert_eq!(
        written(|out| write_counts(&hash, 120, &counts, out)),
        format!(r#"{head},"interval":120,"complete":1,"incomplete":4294967295}}"#)
    );
    let head_of_peer = format!(r#"{head},"peer_id":{PEER},"offer_id":{OFFER_ID}"#);
    assert_eq!(
        written(|out| write_offer(&hash, &peer, &offer(SDP), out)),
        format!(r#"{head_of_peer},"offer":{SDP}}}"#)
    );
    let answer = Answer { to_peer_id: peer, offer_id: OfferId(OFFER_ID_BYTES), answer: SDP };
    assert_eq!(
        written(|out| write_answer(&hash, &peer, &answer, out)),
        format!(r#"{head_of_peer},"answer":{SDP}}}"#)
    );
    let files = r#"{"complete":1,"incomplete":4294967295,"downloaded":3}"#;
    assert_eq!(
        written(|out| write_scrape([(hash.0, counts), (PEER_BYTES, counts)], out)),
        format!(r#"{{"action":"scrape","files":{{{text}:{files},{PEER}:{files}}}}}"#)
    );
    assert_eq!(written(|out| write_scrape([], out)), r#"{"action":"scrape","files":{}}"#);
    assert_eq!(
        written(|out| write_failure(Action::Announce, Some(&hash), "\"no\"", None, out)),
        format!(r#"{head},"failure reason":"\"no\""}}"#)
    );
    assert_eq!(
        written(|out| write_failure(Action::Scrape, None, "busy", Some(5), out)),
        r#"{"action":"scrape","failure reason":"busy","retry in":5}"#
    );
}

proptest! {
    #[test]
    fn every_id_is_read_as_it_was_written(hash: [u8; 20], peer: [u8; 20], offer_id: [u8; 20]) {
        let offer = Offer { offer_id: OfferId(offer_id), offer: SDP };
        let text = written(|out| write_offer(&InfoHash(hash), &PeerId(peer), &offer, out));
        let fields: Value = serde_json::from_str(&text).unwrap();
        for (key, id) in [("info_hash", hash), ("peer_id", peer), ("offer_id", offer_id)] {
            prop_assert_eq!(&fields[key], &String::from_iter(id.map(char::from)));
        }
        let read = parse(&text, LIMITS).unwrap();
        let Message::Announce(Announce { info_hash, peer_id, .. }) = read else { panic!() };
        prop_assert_eq!((info_hash.0, peer_id.0), (hash, peer));
    }
}
