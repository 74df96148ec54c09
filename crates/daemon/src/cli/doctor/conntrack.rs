//! Connection tracking on the tracker's port: a table that a flood fills, and CPU time for nothing.

mod rules;

use std::net::SocketAddr;

use super::facts::Rules;
use super::{Facts, Finding};
use rules::{Way, leave_out};

const NAME: &str = "conntrack";
/// Per cent of the table in use from which on it is a matter of moments.
const NEARLY_FULL: u64 = 90;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(conntrack) = &facts.conntrack else {
        return vec![Finding::ok(NAME, "connection tracking is not loaded")];
    };
    let (count, max) = (conntrack.count, conntrack.max);
    let table = format!("{count} of {max} entries are in use");
    // The kernel tracks nothing until a rule asks for it.
    if count == 0 {
        return vec![Finding::ok(NAME, "connection tracking is loaded and tracks nothing")];
    }
    let Some(rules) = &conntrack.rules else { return vec![unread(&table, count, max)] };
    let ports = facts.ports();
    let (requests, replies) = (tracked(facts, rules, Way::In), tracked(facts, rules, Way::Out));
    vec![match (requests, replies) {
        (None, None) => {
            Finding::ok(NAME, format!("the port is left out of connection tracking ({table})"))
        }
        (None, Some(over)) => {
            let what = format!(
                "requests are left out of connection tracking, but no rule leaves out all replies{over}, each of \
                 which takes an entry then ({table})"
            );
            mend(Finding::problem(NAME, what), &ports)
        }
        (Some(over), _) => {
            let what = format!(
                "each client{over} takes an entry of the connection table for 30 s ({table}), as no rule leaves \
                 out all of them: about 15 % of CPU time, and when it is full the kernel drops packets"
            );
            mend(Finding::problem(NAME, what), &ports)
        }
    }]
}

/// What can be said without the rules: the port may be left out of what fills the table.
fn unread(table: &str, count: u64, max: u64) -> Finding {
    let look = "nft list ruleset | grep notrack";
    if count.saturating_mul(100) >= max.saturating_mul(NEARLY_FULL) {
        let what = format!(
            "the connection table is nearly full ({table}), and when it is the kernel drops packets; is the port \
             left out of it?"
        );
        return Finding::problem(NAME, what).fix(look);
    }
    let what = format!(
        "connection tracking is at work ({table}), and the firewall's rules cannot be read: is the port left \
         out of it?"
    );
    Finding::note(NAME, what).fix(look)
}

/// Whose datagrams of this way are tracked, at one address at least: an ending for "each client". Nobody's where
/// there is a rule for every address.
fn tracked(facts: &Facts, rules: &Rules, way: Way) -> Option<&'static str> {
    let comes =
        |address: &&SocketAddr| address.port() != 0 && !(address.is_ipv6() && facts.no_ipv6);
    let asked = || facts.asked.addresses.iter().filter(comes);
    let tracked: Vec<_> = asked().filter(|address| !leave_out(rules, **address, way)).collect();
    let all_of = |v4: bool| asked().filter(|address| address.is_ipv4() == v4).count();
    let some_of = |v4: bool| tracked.iter().any(|address| address.is_ipv4() == v4);
    match (some_of(true), some_of(false)) {
        (false, false) => None,
        (true, false) if all_of(false) > 0 => Some(" over IPv4"),
        (false, true) if all_of(true) > 0 => Some(" over IPv6"),
        _ => Some(""),
    }
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

    /// With these rules, by nft or, where they are of that form, of iptables for both families.
    fn found(count: u64, rules: Option<&str>) -> Finding {
        found_by(
            count,
            rules.map(|rules| match rules.starts_with("-A") {
                true => {
                    Rules { iptables: rules.into(), ip6tables: rules.into(), ..Rules::default() }
                }
                false => Rules { nft: rules.into(), ..Rules::default() },
            }),
        )
    }

    fn found_by(count: u64, rules: Option<Rules>) -> Finding {
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6969".parse().unwrap()];
        let facts = Facts {
            asked: Asked { addresses, ..Asked::default() },
            conntrack: Some(Conntrack { count, max: 1000, rules }),
            ..Facts::default()
        };
        check(&facts).remove(0)
    }

    /// The default is to listen on both, where the host has both.
    #[test]
    fn a_host_without_ipv6_needs_no_rule_for_it() {
        let rules = "table ip x {\n udp dport 6969 notrack\n udp sport 6969 notrack\n }";
        let rules = Rules { nft: rules.into(), ..Rules::default() };
        let addresses = vec!["0.0.0.0:6969".parse().unwrap(), "[::]:6969".parse().unwrap()];
        let severity = |no_ipv6| {
            let facts = Facts {
                asked: Asked { addresses: addresses.clone(), ..Asked::default() },
                conntrack: Some(Conntrack { count: 10, max: 1000, rules: Some(rules.clone()) }),
                no_ipv6,
                ..Facts::default()
            };
            check(&facts).remove(0).severity
        };
        assert_eq!([true, false].map(severity), [Severity::Ok, Severity::Problem]);
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
        assert!(finding.what.contains("no rule leaves out all replies"), "{}", finding.what);
    }

    /// What is told as the remedy is understood as one.
    #[test]
    fn the_remedy_mends_it() {
        let fix = found(10, Some("")).fix.unwrap();
        assert_eq!(found(10, Some(&fix.replace("; ", "\n"))).severity, Severity::Ok, "{fix}");
    }

    /// A rule for one family says nothing of the other.
    #[test]
    fn a_family_that_is_tracked_is_named() {
        let rules = "-A PREROUTING -p udp --dport 6969 -j CT --notrack\n\
                     -A OUTPUT -p udp --sport 6969 -j CT --notrack";
        let iptables = Rules { iptables: rules.into(), ..Rules::default() };
        let finding = found_by(10, Some(iptables.clone()));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("each client over IPv6 takes"), "{}", finding.what);
        let replies = Rules { nft: "table ip6 x {\n udp dport 6969 notrack\n}".into(), ..iptables };
        let finding = found_by(10, Some(replies));
        assert!(finding.what.contains("all replies over IPv6, each"), "{}", finding.what);
        let ip6 = "table ip6 x {\n udp dport 6969 notrack\n udp sport 6969 notrack\n}";
        let finding = found(10, Some(ip6));
        assert!(finding.what.contains("each client over IPv4 takes"), "{}", finding.what);
    }

    #[test]
    fn a_rule_for_some_clients_leaves_out_not_all() {
        let finding =
            found(10, Some("iifname \"lo\" udp dport 6969 notrack\nudp sport 6969 notrack"));
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.what.contains("each client takes an entry"), "{}", finding.what);
    }

    #[test]
    fn without_a_look_at_the_rules_a_table_that_is_nearly_full_is_a_problem_and_another_a_note() {
        assert_eq!(found(10, None).severity, Severity::Note);
        assert_eq!(found(600, None).severity, Severity::Note);
        let full = found(900, None);
        assert_eq!(full.severity, Severity::Problem);
        assert!(full.what.contains("nearly full (900 of 1000"), "{}", full.what);
    }
}
