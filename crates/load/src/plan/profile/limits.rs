//! What a profile's values may be: each alone, and together.

use super::{Events, Profile, Tail};

/// What fits a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fits {
    /// A number from the one to the other.
    Number(f64, f64),
    /// A whole number from the one to the other.
    Whole(i64, i64),
    /// Text of so many characters at least and at most, none beyond U+00FF.
    Text(usize, usize),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// Every key, `*` for a place in a list.
const KEYS: [(&str, Fits); 30] = [
    ("name", Fits::Text(1, 40)),
    ("seeders", SHARE),
    ("v6", SHARE),
    ("mix.connect", WEIGHT),
    ("mix.announce", WEIGHT),
    ("mix.scrape", WEIGHT),
    ("mix.unusable", WEIGHT),
    ("mix.junk", WEIGHT),
    ("events.stopped", SHARE),
    ("events.vanished", SHARE),
    ("events.completed", SHARE),
    ("events.paused", SHARE),
    ("odd.port_zero", SHARE),
    ("odd.hot", SHARE),
    ("unusable.unknown", WEIGHT),
    ("unusable.foreign", WEIGHT),
    ("unusable.zero", WEIGHT),
    ("junk.short", WEIGHT),
    ("junk.magic", WEIGHT),
    ("junk.action", WEIGHT),
    ("junk.cut", WEIGHT),
    ("flood.share", Fits::Number(0.0, 0.95)),
    ("flood.addresses", Fits::Whole(1, 64_000)),
    ("clients.*.weight", WEIGHT),
    ("clients.*.prefix", Fits::Text(8, 8)),
    ("clients.*.num_want", Fits::Whole(i32::MIN as i64, i32::MAX as i64)),
    ("clients.*.options", Fits::Text(0, MAX_OPTIONS)),
    ("scrapes.*.weight", WEIGHT),
    ("scrapes.*.hashes", Fits::Whole(0, MAX_HASHES as i64)),
    ("swarms.count", Fits::Whole(1, 500_000_000)),
];
/// The others: their meaning depends on each other.
const OF_SWARMS: [(&str, Fits); 3] = [
    ("swarms.mean", Fits::Number(1.0, 10_000.0)),
    ("swarms.tail", Fits::Word(&Tail::WORDS)),
    ("swarms.exponent", Fits::Number(0.1, 100_000.0)),
];
const SHARE: Fits = Fits::Number(0.0, 1.0);
const WEIGHT: Fits = Fits::Number(0.0, 1_000_000.0);

/// Info hashes of a scrape at most: more than trackers answer, and one datagram of 2016 bytes.
pub const MAX_HASHES: u8 = 100;
/// Bytes behind an announce at most: what makes it as long as a scrape of 74 swarms.
pub const MAX_OPTIONS: usize = 1398;
/// Peers at most.
const MAX_PEERS: f64 = 4e9;

/// What fits the key at this path.
pub(super) fn of(path: &str) -> Option<Fits> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = path.split('.').map(|part| if digits(part) { "*" } else { part });
    let path = parts.collect::<Vec<_>>().join(".");
    KEYS.iter().chain(&OF_SWARMS).find(|(key, _)| *key == path).map(|(_, fits)| *fits)
}

/// The share of announces that are of leechers who stay: room for `completed` and `paused`.
pub(super) fn leechers_that_stay(seeders: f64, events: &Events) -> f64 {
    let turnover = events.turnover();
    // Of all announces the share 1 - turnover is of peers that were there before, of whom
    // turnover / (1 - turnover) leave.
    ((1.0 - 2.0 * turnover) * (1.0 - seeders)).max(0.0)
}

/// What does not fit together: a key, and what is wrong and would be right.
pub(in crate::plan) fn together(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let sum = |weights: &[f64]| weights.iter().sum::<f64>();
    let mut nothing = |key, needed: bool, weights: &[f64]| {
        if needed && sum(weights) <= 0.0 {
            wrong.push((key, "all weights are 0, expected at least one above".to_owned()));
        }
    };
    let (mix, unusable, junk) = (&profile.mix, &profile.unusable, &profile.junk);
    nothing("mix", true, &mix.weights());
    let clients: Vec<f64> = profile.clients.iter().map(|client| client.weight).collect();
    nothing("clients", true, &clients);
    let scrapes: Vec<f64> = profile.scrapes.iter().map(|scrape| scrape.weight).collect();
    nothing("scrapes", mix.scrape > 0.0, &scrapes);
    nothing("unusable", mix.unusable > 0.0, &unusable.weights());
    nothing("junk", mix.junk > 0.0, &junk.weights());
    wrong.extend(of_events(profile));
    wrong.extend(of_swarms(profile));
    if profile.odd.port_zero + profile.odd.hot > 1.0 {
        let both = "port_zero and hot together are more than all announces (1)".to_owned();
        wrong.push(("odd.hot", both));
    }
    wrong
}

fn of_events(profile: &Profile) -> Option<(&'static str, String)> {
    /// Sums of shares that were written in decimal.
    const SLACK: f64 = 1e-9;
    let events = &profile.events;
    let turnover = events.turnover();
    if turnover > 0.5 {
        let what = format!(
            "stopped and vanished together are {turnover}, expected at most 0.5: everybody arrives before leaving"
        );
        return Some(("events.stopped", what));
    }
    let most = turnover * profile.seeders;
    if events.completed > most + SLACK {
        let what = format!(
            "found {}, expected at most (stopped + vanished) * seeders = {most}: else there would be ever more seeders",
            events.completed
        );
        return Some(("events.completed", what));
    }
    let room = leechers_that_stay(profile.seeders, events);
    if events.completed + events.paused > room + SLACK {
        let what = format!(
            "completed and paused together are {}, expected at most {room}: that many announces are of leechers who stay",
            events.completed + events.paused
        );
        return Some(("events.paused", what));
    }
    None
}

fn of_swarms(profile: &Profile) -> Option<(&'static str, String)> {
    let swarms = &profile.swarms;
    let peers = f64::from(swarms.count) * swarms.mean;
    if peers > MAX_PEERS {
        let what = format!(
            "{} swarms of {} peers are {peers} peers, expected at most {MAX_PEERS}",
            swarms.count, swarms.mean
        );
        return Some(("swarms.mean", what));
    }
    let (low, high) = swarms.tail.exponents();
    if !(low..=high).contains(&swarms.exponent) {
        let word = Tail::WORDS[swarms.tail as usize];
        let what = format!(
            "found {}, expected a number from {low} to {high} where tail = \"{word}\"",
            swarms.exponent
        );
        return Some(("swarms.exponent", what));
    }
    None
}
