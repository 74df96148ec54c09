//! Connection tracking of the tracker's port: a table that a flood fills, and CPU time for no use.

use std::collections::BTreeSet;

use super::facts::{Conntrack, ports};
use super::{Facts, Finding};

const NAME: &str = "conntrack";
/// Percentage of the table in use from which it is about to overflow.
const NEARLY_FULL: u64 = 90;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(Conntrack { entries, max, of_tracker }) = facts.conntrack else {
        return vec![Finding::ok(NAME, "connection tracking is not loaded")];
    };
    // The module tracks nothing until a firewall rule needs it.
    if entries == 0 {
        return vec![Finding::ok(NAME, "connection tracking is loaded and tracks nothing")];
    }
    let table = format!("{entries} of {max} entries in use");
    let nearly_full = entries.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL);
    let ports = ports(&facts.settings);
    vec![match of_tracker {
        // An entry lasts 30 s, so the table says nothing of a port without traffic.
        Some(0) if facts.tracker.is_some() => Finding::ok(
            NAME,
            format!(
                "no client of the tracker is tracked, if any sent a request in the last 30 s \
                 ({table})"
            ),
        ),
        Some(0) => Finding::note(
            NAME,
            format!(
                "connection tracking is active ({table}): run this again while the tracker has \
                 clients"
            ),
        ),
        Some(tracked) => {
            let what = format!(
                "{tracked} clients of the tracker are tracked ({table}): each takes an entry for \
                 30 s and about 15 % of CPU time, and a full table drops packets"
            );
            notrack(Finding::problem(NAME, what), &ports)
        }
        None if nearly_full => {
            let what =
                format!("the table is nearly full ({table}), and a full table drops packets");
            notrack(Finding::problem(NAME, what), &ports)
        }
        None => {
            let what = format!(
                "connection tracking is active ({table}), and its table cannot be read: the \
                 tracker's port should not be tracked"
            );
            Finding::note(NAME, what).fix("conntrack -L -p udp, as root, lists what is tracked")
        }
    }]
}

/// The remedy: rules that exempt requests and replies of these ports.
fn notrack(finding: Finding, ports: &BTreeSet<u16>) -> Finding {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    finding
        .fix(format!(
            "nft add table inet onrush; \
             nft add chain inet onrush early '{{ type filter hook prerouting priority raw; }}'; \
             nft add chain inet onrush early_out '{{ type filter hook output priority raw; }}'; \
             nft add rule inet onrush early udp dport '{{ {ports} }}' notrack; \
             nft add rule inet onrush early_out udp sport '{{ {ports} }}' notrack"
        ))
        .keep(
            "the same rules in /etc/nftables.conf, which must also accept the port in both \
               directions",
        )
}
