//! Connection tracking on the tracker's port: a table that a flood fills, and CPU time for nothing.

use super::{Facts, Finding};

const NAME: &str = "conntrack";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(conntrack) = &facts.conntrack else {
        return vec![Finding::ok(NAME, "connection tracking is not loaded")];
    };
    let (count, max) = (conntrack.count, conntrack.max);
    let ports = facts.ports();
    let tracked = |rules: &String| ports.iter().any(|port| !leaves_out(rules, *port));
    let table = format!("{count} of {max} entries are in use");
    vec![match &conntrack.rules {
        Some(rules) if !tracked(rules) => {
            Finding::ok(NAME, format!("the port is left out of connection tracking ({table})"))
        }
        // The kernel tracks nothing until a rule asks for it.
        _ if count == 0 => Finding::ok(NAME, "connection tracking is loaded and tracks nothing"),
        None if count < max / 2 => {
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
            Finding::problem(NAME, what)
                .fix(rules_for(&ports))
                .keep("the same rules in /etc/nftables.conf, which also have to accept the port both ways")
        }
    }]
}

/// Whether a rule takes datagrams to `port` out of tracking: a line that says so, with the port.
fn leaves_out(rules: &str, port: u16) -> bool {
    let port = port.to_string();
    rules.lines().map(str::to_ascii_lowercase).any(|line| {
        let says_so = line.contains("notrack");
        let numbers = line.split(|c: char| !c.is_ascii_digit());
        says_so && numbers.into_iter().any(|number| number == port)
    })
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
        for rules in ["udp dport 6969 notrack", "-A PREROUTING -p udp --dport 6969 -j CT --notrack"]
        {
            assert_eq!(found(10, Some(rules)).severity, Severity::Ok);
        }
        assert_eq!(found(10, Some("udp dport 16969 notrack")).severity, Severity::Problem);
        assert_eq!(found(0, None).severity, Severity::Ok, "nothing is tracked");
        assert_eq!(check(&Facts::default())[0].severity, Severity::Ok, "it is not loaded");
    }

    #[test]
    fn without_a_look_at_the_rules_a_full_table_is_a_problem_and_another_a_note() {
        assert_eq!(found(10, None).severity, Severity::Note);
        assert_eq!(found(900, None).severity, Severity::Problem);
    }
}
