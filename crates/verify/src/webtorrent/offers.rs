//! Checks of what the tracker passes on: offers and answers.

use serde_json::Value;

use super::announce::{LEECHER, SEEDER, joined};
use super::member::{Member, Received, json, random_id, text};
use super::{Check, Web};
use crate::check::{CheckResult, Finding, Group, Needs, demand, prefer};

pub(super) const CHECKS: &[Check] = &[
    Check::new(Group::Offers, "offer-fields", Needs::Hashes(1), offer_fields)
        .expects("an offer reaches another member with info hash, offer id and offerer's peer id")
        .source("webtorrent and libtorrent answer by them"),
    Check::new(Group::Offers, "offer-unchanged", Needs::Hashes(1), offer_unchanged)
        .expects("an offer is passed on byte for byte")
        .source("the description is between the peers: RFC 8829"),
    Check::new(Group::Offers, "offer-to-one", Needs::Hashes(1), offer_to_one)
        .expects("an offer reaches exactly one member")
        .source("RFC 8829: an offer has one answer"),
    Check::new(Group::Offers, "offer-not-to-sender", Needs::Hashes(1), offer_not_to_sender)
        .expects("an offer does not come back to its sender")
        .source("a peer does not connect to itself"),
    Check::new(Group::Offers, "offer-stays-in-swarm", Needs::Hashes(2), offer_stays)
        .expects("an offer reaches no member of another swarm")
        .source("webtorrent and libtorrent drop it"),
    Check::new(Group::Offers, "offers-to-different", Needs::Hashes(1), offers_to_different)
        .expects("several offers of an announce reach as many members, one each")
        .source("webtorrent sends one offer for each peer that it wants"),
    Check::new(Group::Offers, "offers-more-than-members", Needs::Hashes(1), more_than_members)
        .expects("of more offers than there are other members each gets one")
        .source("a second connection to the same peer is of no use"),
    Check::new(Group::Offers, "numwant-0", Needs::Hashes(1), numwant_0)
        .expects("with numwant 0 offers reach nobody")
        .source("webtorrent: numwant is how many peers it wants"),
    Check::new(Group::Offers, "seeder-to-seeder", Needs::Hashes(1), seeder_to_seeder)
        .expects("offers of a seeder do not reach seeders")
        .source("seeders do not connect to each other"),
    Check::new(Group::Offers, "binary-ids", Needs::Hashes(1), binary_ids)
        .expects("ids of any 20 characters up to U+00FF, however escaped, come back the same")
        .source("webtorrent: ids are binary strings"),
    Check::new(Group::Offers, "answer-fields", Needs::Hashes(1), answer_fields)
        .expects("an answer reaches its offerer with info hash, offer id and answerer's peer id")
        .source("webtorrent and libtorrent find the offer by them"),
    Check::new(Group::Offers, "answer-unchanged", Needs::Hashes(1), answer_unchanged)
        .expects("an answer is passed on byte for byte")
        .source("the description is between the peers: RFC 8829"),
    Check::new(Group::Offers, "answer-to-no-other", Needs::Hashes(1), answer_to_no_other)
        .expects("an answer reaches nobody else")
        .source("the description has the peer's addresses"),
    Check::new(Group::Offers, "answer-to-unknown", Needs::Hashes(1), answer_to_unknown)
        .expects("an answer to an unknown peer is dropped, and the connection stays open")
        .source("the peer may have left meanwhile"),
    Check::new(Group::Offers, "answer-unasked", Needs::Hashes(1), answer_unasked)
        .expects("an answer to no offer of the peer is dropped")
        .source("otherwise who knows a peer id can send to the peer"),
];

/// Descriptions that a reader of JSON would write in another form.
const OFFER: &str = r#"{ "sdp" :"v=0\r\no=- \u00e9\ud83d\ude00\/" ,"type":"offer"}"#;
const ANSWER: &str = r#"{"type":"answer","x" : "", "sdp":"\"}]\\\u0041"}"#;

/// The fields of an announce with offers of these ids.
fn offers(state: &str, ids: &[&str]) -> String {
    let of = |id: &&str| format!(r#"{{"offer_id":{},"offer":{OFFER}}}"#, json(id));
    format!(r#"{state},"offers":[{}]"#, ids.iter().map(of).collect::<Vec<_>>().join(","))
}

/// Sends an announce with one offer, and returns the id of that.
fn offer(from: &mut Member<'_>, hash: &str, state: &str) -> Result<String, Finding> {
    let id = random_id();
    from.announce(hash, &offers(state, &[&id]))?;
    Ok(id)
}

/// A leecher, another one, and the offer of the second that the first has got.
fn offered<'s>(web: &Web<'s>) -> Result<([Member<'s>; 2], String, Received), Finding> {
    let hash = web.hash(0);
    let (mut to, _) = joined(web, &hash, LEECHER)?;
    let mut from = web.member()?;
    let id = offer(&mut from, &hash, LEECHER)?;
    let got = to.expect("offer", Received::is_offer)?;
    Ok(([to, from], id, got))
}

/// Passes where a message names info hash, peer and offer.
fn demand_ids(got: &Received, hash: &str, peer: &str, offer: &str) -> CheckResult {
    let found = ["action", "info_hash", "peer_id", "offer_id"].map(|key| &got.value[key]);
    demand(found == ["announce", hash, peer, offer], || got.shown())
}

/// Passes where a description is the same; another form of the same JSON is a difference.
fn demand_same(got: &Received, key: &str, sent: &str) -> CheckResult {
    let value: Value = serde_json::from_str(sent).expect("valid JSON");
    demand(got.value[key] == value, || got.shown())?;
    let open = "RFC 8259 has several forms of a string, and no specification names one";
    prefer(got.text.contains(sent), open, || got.shown())
}

fn offer_fields(web: &Web<'_>) -> CheckResult {
    let ([_to, from], id, got) = offered(web)?;
    demand_ids(&got, &web.hash(0), &from.id, &id)
}

fn offer_unchanged(web: &Web<'_>) -> CheckResult {
    let (_members, _, got) = offered(web)?;
    demand_same(&got, "offer", OFFER)
}

fn offer_to_one(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let mut others = [joined(web, &hash, LEECHER)?.0, joined(web, &hash, LEECHER)?.0];
    offer(&mut web.member()?, &hash, LEECHER)?;
    let found = others.each_mut().map(|member| member.rest(Received::is_offer).len());
    demand(found.iter().sum::<usize>() == 1, || format!("two members get {found:?} offers"))
}

fn offer_not_to_sender(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut member, _) = joined(web, &hash, LEECHER)?;
    offer(&mut member, &hash, LEECHER)?;
    let found = member.rest(Received::is_offer);
    demand(found.is_empty(), || found[0].shown())
}

fn offer_stays(web: &Web<'_>) -> CheckResult {
    let (mut other, _) = joined(web, &web.hash(1), LEECHER)?;
    let (_members, ..) = offered(web)?;
    let found = other.rest(Received::is_offer);
    demand(found.is_empty(), || found[0].shown())
}

/// The numbers of offers that two members get of an announce with so many.
fn distributed(web: &Web<'_>, count: usize, state: &str) -> Result<[usize; 2], Finding> {
    let hash = web.hash(0);
    let mut others = [joined(web, &hash, LEECHER)?.0, joined(web, &hash, LEECHER)?.0];
    let ids: Vec<String> = std::iter::repeat_with(random_id).take(count).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (mut member, _) = joined(web, &hash, &offers(state, &ids))?;
    member.pause(0.1);
    Ok(others.each_mut().map(|member| member.rest(Received::is_offer).len()))
}

fn offers_to_different(web: &Web<'_>) -> CheckResult {
    let found = distributed(web, 2, LEECHER)?;
    demand(found == [1, 1], || format!("two members get {found:?} of 2 offers"))
}

fn more_than_members(web: &Web<'_>) -> CheckResult {
    let found = distributed(web, 4, LEECHER)?;
    demand(found.iter().all(|count| *count > 0), || format!("two members get {found:?} of 4"))?;
    let open = "no specification limits the offers that a member gets";
    prefer(found == [1, 1], open, || format!("two members get {found:?} of 4 offers"))
}

fn numwant_0(web: &Web<'_>) -> CheckResult {
    let found = distributed(web, 2, r#""left":1,"numwant":0"#)?;
    let open = "clients send as many offers as they want peers";
    prefer(found == [0, 0], open, || format!("two members get {found:?} of 2 offers"))
}

fn seeder_to_seeder(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut seeder, _) = joined(web, &hash, SEEDER)?;
    offer(&mut web.member()?, &hash, SEEDER)?;
    let found = seeder.rest(Received::is_offer);
    prefer(found.is_empty(), "no specification says who gets offers", || found[0].shown())
}

fn binary_ids(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut to, _) = joined(web, &hash, LEECHER)?;
    let mut from = web.member()?;
    let ids: [&[u8; 20]; 2] = [
        b"\x00\"\\/\x7F\x80\xFF\xE9\n\x1F\xC2\xA0 abcdefg",
        b"\xFF\xFE\x00\x01\xF0\x9F\x98\x80\"\\\xED\xA0\x80\xC3\xA9\xA9\x08\t \x85",
    ];
    let id = text(ids[1]);
    from.id = text(ids[0]);
    let [escaped, bare] = [escaped(&id), json(&id)];
    from.announce(&hash, &offers(LEECHER, &[&id]).replace(&bare, &escaped))?;
    let got = to.expect("offer", Received::is_offer)?;
    demand_ids(&got, &hash, &from.id, &id)
}

/// A string as JSON, with every character escaped.
fn escaped(text: &str) -> String {
    let all: String = text.chars().map(|it| format!("\\u{:04x}", it as u32)).collect();
    format!("\"{all}\"")
}

/// An answer to an offer of a peer.
fn answer(from: &mut Member<'_>, hash: &str, to: &str, id: &str) {
    let (to, id) = (json(to), json(id));
    let fields = format!(r#""to_peer_id":{to},"offer_id":{id},"answer":{ANSWER}"#);
    let message = from.message(hash, &fields);
    from.send(&message);
}

/// The answerer, the offerer, the offer's id, and the answer that has returned.
fn answered<'s>(web: &Web<'s>) -> Result<([Member<'s>; 2], String, Received), Finding> {
    let ([mut to, mut from], id, _) = offered(web)?;
    answer(&mut to, &web.hash(0), &from.id, &id);
    let got = from.expect("answer", Received::is_answer)?;
    Ok(([to, from], id, got))
}

fn answer_fields(web: &Web<'_>) -> CheckResult {
    let ([answerer, _from], id, got) = answered(web)?;
    demand_ids(&got, &web.hash(0), &answerer.id, &id)
}

fn answer_unchanged(web: &Web<'_>) -> CheckResult {
    let (_members, _, got) = answered(web)?;
    demand_same(&got, "answer", ANSWER)
}

fn answer_to_no_other(web: &Web<'_>) -> CheckResult {
    let ([mut answerer, from], ..) = answered(web)?;
    let (mut third, _) = joined(web, &web.hash(0), LEECHER)?;
    let id = offer(&mut third, &web.hash(0), LEECHER)?;
    // One of the two has it, and answers; the other one is a bystander.
    let mut bystander = from;
    let got = [&mut answerer, &mut bystander]
        .map(|member| member.rest(|it| it.value["offer_id"] == id.as_str()).len());
    let (who, other) = match got {
        [0, _] => (&mut bystander, &mut answerer),
        _ => (&mut answerer, &mut bystander),
    };
    answer(who, &web.hash(0), &third.id, &id);
    third.expect("answer", Received::is_answer)?;
    let found = [who.rest(Received::is_answer), other.rest(Received::is_answer)].concat();
    demand(found.is_empty(), || found[0].shown())
}

fn answer_to_unknown(web: &Web<'_>) -> CheckResult {
    let ([mut to, mut from], id, _) = offered(web)?;
    let hash = web.hash(0);
    answer(&mut to, &hash, &random_id(), &id);
    let found = from.rest(Received::is_answer);
    demand(found.is_empty(), || found[0].shown())?;
    to.announce(&hash, r#""left":1"#).map(drop)
}

fn answer_unasked(web: &Web<'_>) -> CheckResult {
    let hash = web.hash(0);
    let (mut victim, _) = joined(web, &hash, LEECHER)?;
    let (mut other, _) = joined(web, &hash, LEECHER)?;
    answer(&mut other, &hash, &victim.id, &random_id());
    let found = victim.rest(Received::is_answer);
    let open = "no specification binds answers to offers";
    prefer(found.is_empty(), open, || found[0].shown())
}
