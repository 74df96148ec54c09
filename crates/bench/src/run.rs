//! Runs the rounds of a plan with progress; each result is appended at once.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use crate::contender::floor::MODEL;
use crate::prepare::Prepared;
use crate::process::Stop;
use crate::record::{Case, Raw, Record, RoundOutcome};
use crate::round::Rounds;
use crate::summary::called;

/// Runs the rounds of a plan, writes each result to `directory`, and calls `say` with a line per
/// round.
///
/// # Errors
/// When the bench is stopped ([`crate::process::Stopped`]), the port is in use, or results
/// cannot be written. A failed round is a result.
pub fn run(
    prepared: &Prepared,
    directory: &Path,
    stop: &Stop,
    mut say: impl FnMut(&str),
) -> anyhow::Result<()> {
    let plan = &prepared.plan;
    let steps = plan.steps();
    let mut raw = Raw::create(directory)?;
    let rounds = Rounds { prepared, stop };
    // Peers in a reply of the floor, by load.
    let mut peers = HashMap::new();
    for (number, (round, case)) in steps.iter().enumerate() {
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let peers_of_floor = peers.get(&case.mix).copied().unwrap_or(0);
        let outcome = rounds.round((number, *round, case), peers_of_floor)?;
        if let RoundOutcome::Measured(measured) = &outcome
            && case.variant.is_called(MODEL)
        {
            let count = measured.most.peers_per_reply.unwrap_or(0.0).round();
            peers.insert(case.mix, count as usize);
        }
        say(&format!("{} of {}: {}", number + 1, steps.len(), line(*round, case, &outcome)));
        let started = started.as_secs();
        raw.append(&Record { round: *round, started, case: (*case).clone(), outcome })?;
    }
    Ok(())
}

fn line(round: u32, case: &Case, outcome: &RoundOutcome) -> String {
    let result = match outcome {
        RoundOutcome::Failed(reason) => format!("FAILED: {reason}"),
        RoundOutcome::Measured(measured) => {
            let most = &measured.most;
            let wrong =
                if most.wrong > 0 { format!(", {} wrong", most.wrong) } else { String::new() };
            format!("{:.0} replies/s, {:.2} us each{wrong}", most.rate, most.cpu_per_reply)
        }
    };
    format!("round {round} of {}: {result}", called(case))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_round_is_marked() {
        let record = crate::record::tests::measured(
            crate::contender::Variant::new("opentracker", None, &[("workers", 0)]),
            1,
            1e5,
        );
        let text = line(2, &record.case, &RoundOutcome::Failed("it ended".into()));
        let case = "opentracker, workers: 0 (spread, 1 cores, 1 load workers)";
        assert_eq!(text, format!("round 2 of {case}: FAILED: it ended"));
        let text = line(2, &record.case, &record.outcome);
        assert!(text.ends_with(": 100000 replies/s, 9.80 us each"), "{text}");
    }
}
