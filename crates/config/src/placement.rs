//! The default placement: workers of each kind, and how long they poll.

use std::time::Duration;

use onrush_tracker::limits::Placement;

/// The least number of workers that `auto` splits.
pub const SPLIT_FROM: usize = 14;

/// A split has one swarm worker in this many workers.
const SWARM_SHARE: usize = 7;

/// The placement for `placement = "auto"`: colocated below [`SPLIT_FROM`] workers, else split with
/// one swarm worker in seven, by the cost model (`docs/benchmarks/scaling-model.md`).
pub fn auto(workers: usize) -> Placement {
    if workers < SPLIT_FROM {
        Placement::Colocated { workers: workers.max(1) }
    } else {
        split(workers)
    }
}

/// How long idle workers poll by default: only if each has a vCPU of its own and is woken by many
/// others (`docs/decisions`, "spinning").
pub fn auto_spin(placement: Placement, pinned: bool) -> Duration {
    match placement {
        Placement::Split { .. } if pinned && placement.workers() >= SPLIT_FROM => {
            Duration::from_micros(20)
        }
        _ => Duration::ZERO,
    }
}

/// A split of `workers` workers, with at least one of each kind.
pub fn split(workers: usize) -> Placement {
    let swarm_workers = (workers / SWARM_SHARE).max(1);
    let socket_workers = workers.saturating_sub(swarm_workers).max(1);
    Placement::Split { socket_workers, swarm_workers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_has_both_kinds() {
        for workers in 0..200 {
            let Placement::Split { socket_workers, swarm_workers } = split(workers) else {
                panic!("{workers} workers are not split");
            };
            assert!(socket_workers > 0 && swarm_workers > 0);
            assert_eq!(socket_workers + swarm_workers, workers.max(2));
        }
    }
}
