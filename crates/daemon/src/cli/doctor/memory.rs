//! Memory: room for `limits.peers`, swap, and transparent huge pages.

use super::{Facts, Finding};
use onrush_config::settings::BYTES_PER_PEER;
use onrush_text::numbers::bytes;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [peers(facts), swap(facts), huge_pages(facts)].into_iter().flatten().collect()
}

fn peers(facts: &Facts) -> Option<Finding> {
    let (memory, most) = (facts.memory?, facts.settings.limits.peers * BYTES_PER_PEER);
    let name = "memory";
    let what = format!(
        "limits.peers allows peers of {}, and the process may use {}",
        bytes(most),
        bytes(memory)
    );
    Some(if most > memory {
        let what = format!("{what}: the kernel will kill it before the limit is reached");
        let fits = memory / 2 / BYTES_PER_PEER;
        Finding::problem(name, what)
            .fix(format!("limits.peers = {fits} in the configuration, or more memory"))
    } else {
        Finding::ok(name, what)
    })
}

fn swap(facts: &Facts) -> Option<Finding> {
    let (all, used) = facts.swap?;
    let name = "swap";
    Some(if all == 0 {
        Finding::ok(name, "swap is off")
    } else {
        let what = format!(
            "{} of {} swap are used: reading a swapped-out swarm blocks its worker for \
             milliseconds",
            bytes(used),
            bytes(all)
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
