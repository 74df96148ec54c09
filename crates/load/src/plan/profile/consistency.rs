//! Checks of a profile's keys against each other.

use super::{Events, Profile, Swarms, Tail};

/// Peers of a population.
const MAX_PEERS: f64 = 4e9;

/// Tolerance for sums of shares that are written in decimal.
const TOLERANCE: f64 = 1e-9;

/// The share of announces by leechers that stay: the most that `completed` and `paused` can be.
pub(super) fn remaining_leechers(seeders: f64, events: &Events) -> f64 {
    let turnover = events.turnover();
    // The share 1 - turnover of all announces is of peers that were there before, of which turnover
    // / (1 - turnover) leave.
    ((1.0 - 2.0 * turnover) * (1.0 - seeders)).max(0.0)
}

/// Contradictions between keys: the key to change, and a message.
pub(in crate::plan) fn contradictions(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut found = weights(profile);
    found.extend(events(profile));
    found.extend(swarms(profile));
    if profile.odd.port_zero + profile.odd.hot > 1.0 {
        let what = "the sum of port_zero and hot is more than all announces (1)".to_owned();
        found.push(("odd.hot", what));
    }
    found
}

/// Lists of weights that are needed and have a sum of 0.
fn weights(profile: &Profile) -> Vec<(&'static str, String)> {
    let (mix, unusable, junk) = (&profile.mix, &profile.unusable, &profile.junk);
    let clients: Vec<f64> = profile.clients.iter().map(|client| client.weight).collect();
    let scrapes: Vec<f64> = profile.scrapes.iter().map(|scrape| scrape.weight).collect();
    let lists: [(_, _, &[f64]); 5] = [
        ("mix", true, &mix.weights()),
        ("clients", true, &clients),
        ("scrapes", mix.scrape > 0.0, &scrapes),
        ("unusable", mix.unusable > 0.0, &unusable.weights()),
        ("junk", mix.junk > 0.0, &junk.weights()),
    ];
    let zero = lists.iter().filter(|(_, needed, list)| *needed && list.iter().sum::<f64>() <= 0.0);
    zero.map(|(key, ..)| (*key, "all weights are 0, expected at least one above".to_owned()))
        .collect()
}

fn events(profile: &Profile) -> Option<(&'static str, String)> {
    let events = &profile.events;
    let (turnover, completed) = (events.turnover(), events.completed);
    let most_completed = turnover * profile.seeders;
    let remaining = remaining_leechers(profile.seeders, events);
    let sum = completed + events.paused;
    if turnover > 0.5 {
        let what = format!(
            "the sum of stopped and vanished is {turnover}, expected at most 0.5: each peer that \
             leaves has to arrive first"
        );
        Some(("events.stopped", what))
    } else if completed > most_completed + TOLERANCE {
        let what = format!(
            "found {completed}, expected at most (stopped + vanished) * seeders = \
             {most_completed}: otherwise the share of seeders would grow"
        );
        Some(("events.completed", what))
    } else if sum > remaining + TOLERANCE {
        let what = format!(
            "the sum of completed and paused is {sum}, expected at most {remaining}, the share of \
             announces by leechers that stay"
        );
        Some(("events.paused", what))
    } else {
        None
    }
}

fn swarms(profile: &Profile) -> Option<(&'static str, String)> {
    let Swarms { count, mean, tail, exponent } = profile.swarms;
    let peers = f64::from(count) * mean;
    let (low, high) = tail.exponents();
    if peers > MAX_PEERS {
        let what = format!(
            "{count} swarms of {mean} peers are {peers} peers, expected at most {MAX_PEERS}"
        );
        Some(("swarms.mean", what))
    } else if !(low..=high).contains(&exponent) {
        let word = Tail::WORDS[tail as usize];
        let what = format!(
            "found {exponent}, expected a number from {low} to {high} where tail = \"{word}\""
        );
        Some(("swarms.exponent", what))
    } else {
        None
    }
}
