//! Network cards: the vCPUs that packets reach.

use super::facts::Card;
use super::{Facts, Finding};

const NAME: &str = "cards";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let cards = facts.cards.iter().map(|card| of(card, facts.vcpus));
    cards.chain(facts.flow_entries.map(flows)).collect()
}

/// Receive flow steering: moves packets to the vCPU that reads the socket of their flow.
fn flows(entries: u64) -> Finding {
    if entries == 0 {
        return Finding::ok("rfs", "RFS is off");
    }
    let what = format!(
        "RFS is on (net.core.rps_sock_flow_entries = {entries}): it learns from connected \
         sockets, which a tracker does not have, so it costs a look-up per packet for no use"
    );
    Finding::note("rfs", what).sysctl("net.core.rps_sock_flow_entries", 0)
}

fn of(card: &Card, vcpus: u64) -> Finding {
    let Card { name, queues, rps_queues, interrupts } = card;
    let first = interrupts.first();
    // The other interrupts of a card with one queue are rare.
    let all_on_one = *queues > 1
        && interrupts.len() > 1
        && first.is_some_and(|cpus| cpus.len() == 1)
        && interrupts.iter().all(|i| Some(i) == first);
    if all_on_one && vcpus > 1 {
        let cpu = first.map_or(0, |cpus| cpus[0]);
        let what = format!(
            "all {} interrupts of {name} reach vCPU {cpu} only: it saturates while others are idle",
            interrupts.len()
        );
        return Finding::problem(NAME, what)
            .fix("systemctl start irqbalance")
            .keep("systemctl enable irqbalance, or set /proc/irq/N/smp_affinity_list at boot");
    }
    if *queues > 1 && *rps_queues > 0 {
        let what = format!(
            "{name} has {queues} queues, and RPS moves the packets of {rps_queues} of them again: \
             a third more CPU time per packet (measured)"
        );
        return Finding::note(NAME, what).fix(format!(
            "for q in /sys/class/net/{name}/queues/rx-*; do echo 0 > $q/rps_cpus; done"
        ));
    }
    if *queues == 1 && *rps_queues == 0 && vcpus > 1 {
        let what = format!(
            "{name} has one queue, so one vCPU receives all packets of {vcpus}: it saturates first"
        );
        return Finding::note(NAME, what).fix(format!(
            "ethtool -L {name} combined {vcpus}, or if the card has one queue only: echo {} > \
             /sys/class/net/{name}/queues/rx-0/rps_cpus",
            mask(vcpus)
        ));
    }
    Finding::ok(NAME, format!("{name} spreads packets over {queues} queues"))
}

/// The first `vcpus` of them as the kernel writes sets: words of 32 bits, the highest first.
fn mask(vcpus: u64) -> String {
    let words = vcpus.div_ceil(32).max(1);
    let word = |index: u64| {
        let bits = vcpus.saturating_sub(32 * index).min(32);
        format!("{:x}", (1u64 << bits) - 1)
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}
