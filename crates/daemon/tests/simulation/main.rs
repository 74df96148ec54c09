//! The whole tracker under simulation, on one thread and from one seed: clients over a network that
//! loses, delays, reorders and duplicates datagrams, while the wall clock is set, workers stall,
//! batches run out, rules and lists change, and successors start to serve. Each reply is checked
//! against a naive model, and all counters against the datagrams that passed. A failure prints its
//! seed: `ONRUSH_SEED=N` runs only that one, `ONRUSH_SEEDS=N` the first N, and `ONRUSH_SEEDS=M..N`
//! those from M to N, so that several processes can share them. `scripts/test-all` runs others each
//! time.

mod clock;
mod coverage;
mod history;
mod ids;
mod limits;
mod link;
mod model;
mod operator;
mod peers;
mod process;
mod scenario;
mod socket;
mod upgrade;
mod world;

use std::ops::RangeInclusive;

use coverage::Coverage;
use scenario::Scenario;

/// Seeds without `ONRUSH_SEEDS`.
const SEEDS: u64 = 100;
/// Seeds of runs of `scripts/test-all` that have found an error: they run beside the others.
const FOUND: [u64; 2] = [186_105_375, 712_045_398];

fn run(seed: u64) -> Coverage {
    let scenario = Scenario::draw(seed);
    match std::panic::catch_unwind(|| world::run(seed, &scenario)) {
        Ok(Ok(coverage)) => coverage,
        Ok(Err(problem)) => panic!("seed {seed}, {problem}\n  again with: ONRUSH_SEED={seed}"),
        Err(_) => panic!("seed {seed} panicked\n  again with: ONRUSH_SEED={seed}"),
    }
}

/// The seed that `ONRUSH_SEED` asks for.
fn wanted() -> Option<u64> {
    Some(std::env::var("ONRUSH_SEED").ok()?.parse().expect("ONRUSH_SEED is a number"))
}

/// The seeds of a run.
fn seeds() -> RangeInclusive<u64> {
    let Ok(text) = std::env::var("ONRUSH_SEEDS") else { return 1..=SEEDS };
    let number = |text: &str| text.parse().expect("ONRUSH_SEEDS is a number or two, as in 1..9");
    match text.split_once("..") {
        Some((first, last)) => number(first)..=number(last),
        None => 1..=number(&text),
    }
}

#[test]
fn every_seed_agrees_with_the_model() {
    if let Some(seed) = wanted() {
        eprintln!("{:#?}\n{:?}", Scenario::draw(seed), run(seed));
        return;
    }
    let seeds = seeds();
    // Coverage by a few other seeds is left to chance.
    let enough = *seeds.start() == 1 && *seeds.end() >= SEEDS;
    let mut coverage = Coverage::default();
    seeds.chain(FOUND).for_each(|seed| coverage += run(seed));
    let missing = coverage.missing();
    assert!(!enough || missing.is_empty(), "{missing:?} did not occur: {coverage:#?}");
    assert!(!enough || coverage.has_few_exceptions(), "{coverage:#?}");
    eprintln!("{coverage:#?}");
}
