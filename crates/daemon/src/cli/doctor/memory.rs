//! Memory: room for `limits.peers`, swap, and transparent huge pages.

use super::{Facts, Finding};
use onrush_config::settings::BYTES_PER_PEER;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [peers(facts), swap(facts), huge_pages(facts)].into_iter().flatten().collect()
}

fn peers(facts: &Facts) -> Option<Finding> {
    let (memory, most) = (facts.needs.memory?, facts.needs.peer_bytes);
    let name = "memory";
    let (memory_mb, most_mb) = (memory / 1_000_000, most / 1_000_000);
    Some(if most > memory {
        let what = format!(
            "limits.peers allows peers of {most_mb} MB, and the process may use {memory_mb} MB: \
             the kernel will kill it before the limit is reached"
        );
        let fits = memory / 2 / BYTES_PER_PEER;
        Finding::problem(name, what)
            .fix(format!("limits.peers = {fits} in the configuration, or more memory"))
    } else {
        Finding::ok(
            name,
            format!(
                "limits.peers allows peers of {most_mb} MB, and the process may use {memory_mb} MB"
            ),
        )
    })
}

fn swap(facts: &Facts) -> Option<Finding> {
    let (all, used) = facts.swap?;
    let name = "swap";
    let (all_mb, used_mb) = (all / 1_000_000, used / 1_000_000);
    Some(if all == 0 {
        Finding::ok(name, "swap is off")
    } else {
        let what = format!(
            "{used_mb} MB of {all_mb} MB swap are used: reading a swapped-out swarm blocks its \
             worker for milliseconds"
        );
        Finding::note(name, what)
            .fix("systemctl set-property onrush.service MemorySwapMax=0")
            .keep("the same command: it is permanent")
    })
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    let mode = facts.huge_pages.as_deref()?;
    let name = "huge_pages";
    Some(if mode == "always" {
        let what = "transparent huge pages are \"always\": memory that the allocator returns in \
                    small pieces may stay in use";
        Finding::note(name, what)
            .fix("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
            .keep("transparent_hugepage=madvise on the kernel's command line")
    } else {
        Finding::ok(name, format!("transparent huge pages are \"{mode}\""))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::Needs;
    use super::*;

    #[test]
    fn more_peers_than_memory_are_a_problem_with_a_number_that_fits() {
        let of = |peer_bytes| {
            let needs = Needs { peer_bytes, memory: Some(2_000_000_000), ..Needs::default() };
            peers(&Facts { needs, ..Facts::default() }).unwrap()
        };
        assert_eq!(of(1_280_000_000).severity, Severity::Ok);
        let finding = of(6_400_000_000);
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("6400 MB") && finding.what.contains("2000 MB"));
        assert!(finding.fix.unwrap().starts_with("limits.peers = 15625000 "));
    }

    #[test]
    fn swap_and_huge_pages_are_notes() {
        let of = |swap_of, mode: &str| {
            let facts =
                Facts { swap: Some(swap_of), huge_pages: Some(mode.into()), ..Facts::default() };
            check(&facts).iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        assert_eq!(of((0, 0), "madvise"), [Severity::Ok, Severity::Ok]);
        assert_eq!(of((1 << 30, 0), "always"), [Severity::Note, Severity::Note]);
    }
}
