//! Connection tracking of the tracker's port: a table that a flood fills, and CPU time for no use.

use super::facts::Conntrack;
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
    let ports = facts.ports();
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
fn notrack(finding: Finding, ports: &[u16]) -> Finding {
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

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::Needs;
    use super::*;

    fn finding(entries: u64, of_tracker: Option<u64>, tracker: Option<u32>) -> Finding {
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6970".parse().unwrap()];
        let facts = Facts {
            needs: Needs { addresses, ..Needs::default() },
            conntrack: Some(Conntrack { entries, max: 1000, of_tracker }),
            tracker,
            ..Facts::default()
        };
        check(&facts).remove(0)
    }

    #[test]
    fn tracked_clients_are_a_problem_with_rules_for_every_port() {
        let tracked = finding(10, Some(3), Some(7));
        assert_eq!(tracked.severity, Severity::Problem);
        let fix = tracked.fix.unwrap();
        assert!(fix.contains("udp dport '{ 6969, 6970 }' notrack"), "{fix}");
        assert!(fix.contains("udp sport '{ 6969, 6970 }' notrack"), "{fix}");
    }

    #[test]
    fn a_port_without_entries_is_ok() {
        assert_eq!(finding(10, Some(0), Some(7)).severity, Severity::Ok);
        assert_eq!(finding(10, Some(0), None).severity, Severity::Note, "no tracker runs");
        assert_eq!(finding(0, None, None).severity, Severity::Ok);
        assert_eq!(check(&Facts::default())[0].severity, Severity::Ok, "not loaded");
    }

    #[test]
    fn an_unreadable_table_is_a_note_until_it_is_nearly_full() {
        assert_eq!(finding(10, None, None).severity, Severity::Note);
        assert_eq!(finding(899, None, None).severity, Severity::Note);
        assert_eq!(finding(900, None, None).severity, Severity::Problem);
    }
}
