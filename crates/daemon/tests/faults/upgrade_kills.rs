//! SIGKILL of the predecessor, of the successor and of the launcher between them, at each stage of
//! an upgrade: at once after each of its log lines. Each outcome is right that leaves one tracker
//! with all peers, or its snapshot. `tests/timed/upgrade_kills.rs` has kills at random moments,
//! which have to meet with every outcome.

use std::time::Duration;

use crate::upgrade_rounds::{Moment, Victim, kill_at};

/// Kills for each line after which the process runs.
const KILLS: usize = 2;
/// Upgrades for each of them at most: when the kill comes, the process may not run any more.
const ROUNDS: usize = 8;

fn kill_after_each_line(victim: Victim) {
    let steps = victim.steps();
    let after = |step: &&'static str| Moment { step: Some(*step), after: Duration::ZERO };
    let moments = steps.iter().map(after).cycle().take(ROUNDS * steps.len());
    let kills = kill_at(victim, moments, |kills| kills.number == KILLS * steps.len());
    assert!(kills.number > 0, "the process has run in no upgrade");
}

#[test]
fn the_predecessor_killed_at_each_stage_of_an_upgrade() {
    kill_after_each_line(Victim::Old);
}

#[test]
fn the_successor_killed_at_each_stage_of_an_upgrade() {
    kill_after_each_line(Victim::New);
}

#[test]
fn the_launcher_killed_at_each_stage_of_an_upgrade() {
    kill_after_each_line(Victim::Launcher);
}
