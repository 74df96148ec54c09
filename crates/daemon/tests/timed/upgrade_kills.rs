//! SIGKILL of the predecessor, of the successor and of the launcher between them, at random moments
//! of an upgrade: at several stages, with every outcome that is possible. What has to hold after
//! each kill is in `tests/faults/upgrade_rounds.rs`.
//!
//! Moments come from a seed, which a failure prints; `ONRUSH_SEED=N` repeats them.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::upgrade_rounds::{KillOutcome, Kills, Moment, Victim, kill_at};

/// Kills of each process at least.
const KILLS: usize = 20;
/// Upgrades for them at most: when the moment comes, the process may not run yet or any more.
const ROUNDS: usize = 4 * KILLS;
/// Stages in which each process is killed at least.
const MIN_STAGES: usize = 3;
/// Upper bound of the time between a log line and the kill.
const AFTER_STEP: Duration = Duration::from_millis(4);
/// Upper bound of the time between the start of an upgrade and a kill at a random time.
const UPGRADE_TIME: Duration = Duration::from_millis(120);

/// The outcomes before and after the handoff.
fn outcomes(victim: Victim) -> &'static [KillOutcome] {
    match victim {
        Victim::Old => &[KillOutcome::New, KillOutcome::Neither],
        Victim::New => &[KillOutcome::Old, KillOutcome::Neither],
        Victim::Launcher => &[KillOutcome::New],
    }
}

#[test]
fn the_predecessor_killed_at_any_moment_of_an_upgrade() {
    kill_at_random(Victim::Old);
}

#[test]
fn the_successor_killed_at_any_moment_of_an_upgrade() {
    kill_at_random(Victim::New);
}

#[test]
fn the_launcher_killed_at_any_moment_of_an_upgrade() {
    kill_at_random(Victim::Launcher);
}

fn kill_at_random(victim: Victim) {
    let seed = std::env::var("ONRUSH_SEED").map_or_else(
        |_| rand::random::<u32>().into(),
        |seed| seed.parse().expect("ONRUSH_SEED is a number"),
    );
    eprintln!("{victim:?}: again with ONRUSH_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let steps = victim.steps();
    let moments = (0..ROUNDS).map(|round| match round % 3 {
        0 | 1 => Moment {
            step: Some(steps[(round - round / 3) % steps.len()]),
            after: random.random_range(Duration::ZERO..AFTER_STEP),
        },
        _ => Moment { step: None, after: random.random_range(Duration::ZERO..UPGRADE_TIME) },
    });
    let is_complete = |kills: &Kills| {
        let has_all = outcomes(victim).iter().all(|outcome| kills.outcomes.contains_key(outcome));
        kills.number >= KILLS && kills.stages.len() >= MIN_STAGES && has_all
    };
    let kills = kill_at(victim, moments, is_complete);
    assert!(is_complete(&kills), "{kills:?}");
}
