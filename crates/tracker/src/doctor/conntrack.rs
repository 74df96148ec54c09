//! Connection tracking on the tracker's port: a table that a flood fills, and CPU time for nothing.

mod rules;

use super::{Facts, Finding};
use rules::{Way, leave_out};

const NAME: &str = "conntrack";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(conntrack) = &facts.conntrack else {
        return vec![Finding::ok(NAME, "connection tracking is not loaded")];
    };
    let (count, max) = (conntrack.count, conntrack.max);
    let ports = facts.ports();
    let left_out = |way| {
        let rules = conntrack.rules.as_ref();
        rules.is_some_and(|rules| ports.iter().all(|port| leave_out(rules, *port, way)))
    };
    let table = format!("{count} of {max} entries are in use");
    // The kernel tracks nothing until a rule asks for it.
    if count == 0 {
        return vec![Finding::ok(NAME, "connection tracking is loaded and tracks nothing")];
    }
    let unread = conntrack.rules.is_none() && count < max / 2;
    vec![match (left_out(Way::In), left_out(Way::Out)) {
        (true, true) => {
            Finding::ok(NAME, format!("the port is left out of connection tracking ({table})"))
        }
        (true, false) => {
            let what = format!(
                "requests are left out of connection tracking, but no rule leaves out replies, each of which \
                 takes an entry then ({table})"
            );
            mend(Finding::problem(NAME, what), &ports)
        }
        _ if unread => {
            let what = format!(
                "connection tracking is at work ({table}), and the firewall's rules cannot be read: is \
                 the port left out of it?"
            );
            Finding::note(NAME, what).fix("nft list ruleset | grep notrack")
        }
        _ => {
            let what = format!(
                "each client takes an entry of the connection table for 30 s ({table}): about 15 % of \
                 CPU time, and when it is full the kernel drops packets"
            );
            mend(Finding::problem(NAME, what), &ports)
        }
    }]
}

fn mend(finding: Finding, ports: &[u16]) -> Finding {
    finding
        .fix(rules_for(ports))
        .keep("the same rules in /etc/nftables.conf, which also have to accept the port both ways")
}

fn rules_for(ports: &[u16]) -> String {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports = ports.join(", ");
    format!(
        "nft add table inet onrush; \
         nft add chain inet onrush early '{{ type filter hook prerouting priority raw; }}'; \
         nft add chain inet onrush early_out '{{ type filter hook output priority raw; }}'; \
         nft add rule inet onrush early udp dport '{{ {ports} }}' notrack; \
         nft add rule inet onrush early_out udp sport '{{ {ports} }}' notrack"
    )
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::facts::{Asked, Conntrack};
    use super::*;

    fn found(count: u64, rules: Option<&str>) -> Finding {
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6969".parse().unwrap()];
        let rules = rules.map(str::to_owned);
        let facts = Facts {
            asked: Asked { addresses, ..Asked::default() },
            conntrack: Some(Conntrack { count, max: 1000, rules }),
            ..Facts::default()
        };
        check(&facts).remove(0)
    }

    #[test]
    fn a_port_that_is_tracked_is_a_problem() {
        let finding =
            found(10, Some("table inet x { udp dport 80 notrack\n udp dport 6969 accept }"));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.fix.unwrap().contains("udp dport '{ 6969 }' notrack"));
    }

    #[test]
    fn a_port_that_is_left_out_is_fine() {
        for rules in [
            "udp dport 6969 notrack\nudp sport 6969 notrack",
            "-A PREROUTING -p udp --dport 6969 -j CT --notrack\n-A OUTPUT -p udp --sport 6969 -j CT --notrack",
            "udp dport { 6969, 6881-6999 } notrack\nudp sport { 6881-6999 } notrack",
        ] {
            assert_eq!(found(10, Some(rules)).severity, Severity::Ok, "{rules}");
        }
        assert_eq!(found(10, Some("udp dport 16969 notrack")).severity, Severity::Problem);
        assert_eq!(found(0, None).severity, Severity::Ok, "nothing is tracked");
        assert_eq!(check(&Facts::default())[0].severity, Severity::Ok, "it is not loaded");
    }

    #[test]
    fn replies_that_are_tracked_are_a_problem_too() {
        let finding = found(10, Some("udp dport 6969 notrack"));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("no rule leaves out replies"), "{}", finding.what);
    }

    /// What is told as the remedy is understood as one.
    #[test]
    fn the_remedy_mends_it() {
        let fix = found(10, Some("")).fix.unwrap();
        assert_eq!(found(10, Some(&fix.replace("; ", "\n"))).severity, Severity::Ok, "{fix}");
    }

    #[test]
    fn without_a_look_at_the_rules_a_full_table_is_a_problem_and_another_a_note() {
        assert_eq!(found(10, None).severity, Severity::Note);
        assert_eq!(found(900, None).severity, Severity::Problem);
    }
}
