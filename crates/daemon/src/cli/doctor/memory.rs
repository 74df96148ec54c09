//! Memory: room for `limits.peers`, swap, and transparent huge pages.

use super::{Facts, Finding};
use onrush_config::settings::BYTES_PER_PEER;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [peers(facts), swap(facts), huge_pages(facts)].into_iter().flatten().collect()
}

fn peers(facts: &Facts) -> Option<Finding> {
    let (memory, most) = (facts.memory?, facts.settings.limits.peers * BYTES_PER_PEER);
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
