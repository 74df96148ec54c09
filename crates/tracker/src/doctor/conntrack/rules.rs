//! Which ports a firewall's rules take out of connection tracking, as `nft list ruleset` and
//! `iptables-save` write them.

use std::ops::RangeInclusive;

/// Which way a datagram goes: its port is the one of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the port.
    In,
    /// From the port.
    Out,
}

/// What rules narrow themselves to besides ports: a rule without a port says nothing of ours then.
const NARROWS: [&str; 12] =
    ["iif", "iifname", "oif", "oifname", "saddr", "daddr", "-i", "-o", "-s", "-d", "-m", "mark"];

/// Whether a rule takes UDP datagrams of this port out of tracking.
pub(super) fn leave_out(rules: &str, port: u16, way: Way) -> bool {
    let rules = rules.to_ascii_lowercase();
    lines(&rules).iter().any(|line| rule_leaves_out(line, &rules, port, way))
}

/// One line a rule: nft breaks long sets behind a comma.
fn lines(rules: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in rules.lines() {
        match lines.last_mut() {
            Some(last) if last.trim_end().ends_with(',') => *last += line,
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

fn rule_leaves_out(rule: &str, rules: &str, port: u16, way: Way) -> bool {
    // Braces and commas stand with or without spaces around them, and quotes where a shell reads them.
    let spaced: String = rule.chars().map(|c| if "{},;'".contains(c) { ' ' } else { c }).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if !words.iter().any(|word| *word == "notrack" || *word == "--notrack") {
        return false;
    }
    if words.contains(&"tcp") && !words.contains(&"udp") {
        return false;
    }
    let (own, other) = match way {
        Way::In => (["dport", "--dport", "--dports"], ["sport", "--sport", "--sports"]),
        Way::Out => (["sport", "--sport", "--sports"], ["dport", "--dport", "--dports"]),
    };
    let both = ["--ports", "--port"];
    match words.iter().position(|word| own.contains(word) || both.contains(word)) {
        Some(at) => {
            let negated = words.get(at + 1) == Some(&"!=") || (at > 0 && words[at - 1] == "!");
            let values = words[at + 1..].iter().filter(|word| **word != "!=");
            let ports: Vec<_> = values.map_while(|word| ports(word, rules)).flatten().collect();
            ports.iter().any(|range| range.contains(&port)) != negated
        }
        None => !words.iter().any(|word| other.contains(word) || NARROWS.contains(word)),
    }
}

/// `6969`, `6881-6999`, `6881:6999`, or a named set's name with what is in it.
fn ports(word: &str, rules: &str) -> Option<Vec<RangeInclusive<u16>>> {
    if let Some(name) = word.strip_prefix('@') {
        return Some(named(name, rules));
    }
    let (first, last) = word.split_once(['-', ':']).unwrap_or((word, word));
    // iptables leaves out an end that is an end of all ports.
    let end = |text: &str, all: u16| if text.is_empty() { Some(all) } else { text.parse().ok() };
    Some(vec![end(first, 0)?..=end(last, u16::MAX)?])
}

/// What is in the set `name { ... elements = { ... } }`.
fn named(name: &str, rules: &str) -> Vec<RangeInclusive<u16>> {
    let set = rules.split("set ").find(|part| part.split_whitespace().next() == Some(name));
    let elements = set.and_then(|set| {
        let (before, elements) = set.split_once("elements")?;
        // Of this set, not of one behind it.
        (before.matches('{').count() > before.matches('}').count()).then_some(elements)
    });
    let elements = elements.and_then(|text| text.split_once('{')?.1.split_once('}'));
    let words = elements.map_or("", |(inside, _)| inside).split([',', ' ', '\t', '\n']);
    words.filter(|word| !word.is_empty()).filter_map(|word| ports(word, "")).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incoming(rules: &str) -> bool {
        leave_out(rules, 6969, Way::In)
    }

    #[test]
    fn single_ports_sets_and_ranges_are_understood() {
        for rule in [
            "udp dport 6969 notrack",
            "\t\tudp dport { 6969, 6881-6999 } notrack",
            "udp dport { 80, 6881-6999 } counter notrack",
            "udp dport 6900-7000 notrack comment \"tracker\"",
            "udp dport {80,6969} notrack",
            "meta l4proto { tcp, udp } th dport 6969 notrack",
            "udp dport { 1, 2, 3,\n\t\t\t     6969 } notrack",
            "udp dport != { 80, 443 } notrack",
            "-A PREROUTING -p udp -m udp --dport 6969 -j CT --notrack",
            "-A PREROUTING -p udp -m udp --dport 6881:6999 -j NOTRACK",
            "-A PREROUTING -p udp -m multiport --dports 80,6969 -j CT --notrack",
            "-A PREROUTING -p udp -m multiport --dports 80,6881:6999,9000 -j CT --notrack",
            "-A PREROUTING -p udp -m multiport --ports 6969 -j CT --notrack",
            "-A PREROUTING -p udp -m udp ! --dport 53 -j CT --notrack",
            "-A PREROUTING -p udp -m udp --dport 6000: -j CT --notrack",
            "-A PREROUTING -p udp -j CT --notrack",
            "notrack",
            "set trackers {\n type inet_service\n flags interval\n elements = { 80,\n 6960-6970 }\n }\nudp dport @trackers notrack",
        ] {
            assert!(incoming(rule), "{rule}");
        }
    }

    #[test]
    fn rules_on_something_else_are_not_taken_for_it() {
        for rule in [
            "udp dport 6969 accept",
            "udp dport 16969 notrack",
            "udp dport { 6881-6968, 6970 } notrack",
            "udp dport != 6969 notrack",
            "udp dport 80 ip saddr 69.69.0.0/16 meta mark 6969 notrack",
            "udp sport 6969 notrack",
            "tcp dport 6969 notrack",
            "-A PREROUTING -p tcp -m tcp --dport 6969 -j CT --notrack",
            "-A PREROUTING -p udp -m multiport --dports 80,6881:6960 -j CT --notrack",
            "-A PREROUTING -i lo -j CT --notrack",
            "iif \"lo\" notrack",
            "set others {\n type inet_service\n elements = { 80 }\n }\nset trackers {\n type inet_service\n \
             elements = { 6969 }\n }\nudp dport @others notrack",
            "set empty {\n type inet_service\n }\nset trackers {\n elements = { 6969 }\n }\nudp dport @empty notrack",
            "",
        ] {
            assert!(!incoming(rule), "{rule}");
        }
    }

    #[test]
    fn replies_have_the_port_as_their_source() {
        let of = |rule| leave_out(rule, 6969, Way::Out);
        assert!(of("udp sport { 6969 } notrack"));
        assert!(of("-A OUTPUT -p udp -m udp --sport 6969 -j CT --notrack"));
        assert!(!of("udp dport 6969 notrack"));
    }
}
