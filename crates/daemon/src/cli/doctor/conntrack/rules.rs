//! Which addresses a firewall's rules take out of connection tracking, as `nft list ruleset` and
//! `iptables-save` write them.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::cli::doctor::facts::Rules;

/// Which way a datagram goes: its port is the one of the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the port.
    In,
    /// From the port.
    Out,
}

/// What narrows a rule to some of the datagrams, whoever they are: of clients in general it says nothing then.
const NARROWS: [&str; 14] = [
    "iif", "iifname", "oif", "oifname", "saddr", "daddr", "-i", "-o", "-s", "-d", "mark", "limit",
    "skuid", "ether",
];
/// Modules of iptables that narrow nothing by themselves.
const PLAIN_MODULES: [&str; 2] = ["udp", "multiport"];
/// Protocols that are not UDP.
const OTHERS: [&str; 6] = ["tcp", "icmp", "icmpv6", "ipv6-icmp", "sctp", "esp"];

/// Whether a rule takes everybody's UDP datagrams to or from this address out of tracking. Each family has rules of
/// its own, but for those in nft's tables `inet`.
pub(super) fn leave_out(rules: &Rules, address: SocketAddr, way: Way) -> bool {
    let own = if address.is_ipv4() { &rules.iptables } else { &rules.ip6tables };
    let (nft, own) = (rules.nft.to_ascii_lowercase(), own.to_ascii_lowercase());
    of_family(lines(&nft), address.ip()).any(|line| rule_leaves_out(&line, &nft, address, way))
        || lines(&own).iter().any(|line| rule_leaves_out(line, &own, address, way))
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

/// The lines of nft that are in tables for the family of an address.
fn of_family(lines: Vec<String>, ip: IpAddr) -> impl Iterator<Item = String> {
    let families: &'static [&str] = if ip.is_ipv4() { &["ip", "inet"] } else { &["ip6", "inet"] };
    let (mut is_in, own) =
        (true, |family: Option<&str>| family.is_some_and(|f| families.contains(&f)));
    lines.into_iter().filter(move |line| {
        // As it is shown, or as it is told to nft: `table inet x {`, `nft add rule inet x y ...`.
        let mut words = line.split_whitespace().skip_while(|word| ["nft", "add"].contains(word));
        if let Some("table" | "rule") = words.next() {
            is_in = own(words.next());
        }
        is_in
    })
}

fn rule_leaves_out(rule: &str, rules: &str, address: SocketAddr, way: Way) -> bool {
    // Braces and commas stand with or without spaces around them, and quotes where a shell reads them.
    let blank = |c| if "{},;'\"".contains(c) { ' ' } else { c };
    let spaced: String = without_comments(rule).chars().map(blank).collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if !words.iter().any(|word| *word == "notrack" || *word == "--notrack") {
        return false;
    }
    if words.iter().any(|word| OTHERS.contains(word)) && !words.contains(&"udp") {
        return false;
    }
    if narrows(&words, address.ip(), way) {
        return false;
    }
    let (own, other) = match way {
        Way::In => (["dport", "--dport", "--dports"], ["sport", "--sport", "--sports"]),
        Way::Out => (["sport", "--sport", "--sports"], ["dport", "--dport", "--dports"]),
    };
    if words.iter().any(|word| other.contains(word)) {
        return false;
    }
    let both = ["--ports", "--port"];
    match words.iter().position(|word| own.contains(word) || both.contains(word)) {
        Some(at) => {
            let values = words[at + 1..].iter().filter(|word| **word != "!=");
            let ports: Vec<_> = values.map_while(|word| ports(word, rules)).flatten().collect();
            ports.iter().any(|range| range.contains(&address.port())) != negated(&words, at)
        }
        None => true,
    }
}

/// What people have written beside a rule says nothing of it.
fn without_comments(rule: &str) -> String {
    let rule = rule.replace("-m comment ", "");
    let (mut left, mut rest) = (String::new(), rule.as_str());
    while let Some((before, behind)) = rest.split_once("comment ") {
        left += before;
        rest = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map_or("", |(_, rest)| rest),
            // iptables writes one word without quotes.
            None => behind.split_once(' ').map_or("", |(_, rest)| rest),
        };
    }
    left + rest
}

/// `dport != 53`, or `! --dport 53`.
fn negated(words: &[&str], at: usize) -> bool {
    words.get(at + 1) == Some(&"!=") || (at > 0 && words[at - 1] == "!")
}

/// Whether a rule is about fewer than all datagrams to or from an address, besides ports.
fn narrows(words: &[&str], ip: IpAddr, way: Way) -> bool {
    let (address, interface): ([&str; 2], [&str; 3]) = match way {
        Way::In => (["daddr", "-d"], ["iif", "iifname", "-i"]),
        Way::Out => (["saddr", "-s"], ["oif", "oifname", "-o"]),
    };
    (0..words.len()).any(|at| {
        let (word, behind) = (words[at], &words[at + 1..]);
        let not = negated(words, at);
        if address.contains(&word) && !not {
            // `fib daddr type local` is any of the host's own.
            return !behind.starts_with(&["type", "local"]) && !has_address(behind, ip);
        }
        if interface.contains(&word) {
            // A card that is named is the one that everybody's datagrams come by, as far as can be told.
            let loopback = behind.iter().find(|word| **word != "!=") == Some(&"lo");
            return loopback != not;
        }
        match word {
            "nfproto" => behind.first() != Some(if ip.is_ipv4() { &"ipv4" } else { &"ipv6" }),
            "ip" if words.get(at.wrapping_sub(1)) != Some(&"table") => ip.is_ipv6(),
            "ip6" => ip.is_ipv4(),
            "-m" => !behind.first().is_some_and(|module| PLAIN_MODULES.contains(module)),
            _ => NARROWS.contains(&word),
        }
    })
}

/// Whether all datagrams to this address are to one of those that the words begin with. One that is for any
/// (`0.0.0.0`) is only in the block of all.
fn has_address(words: &[&str], ip: IpAddr) -> bool {
    let net = |word: &&str| {
        word.parse::<IpNet>().ok().or_else(|| Some(word.parse::<IpAddr>().ok()?.into()))
    };
    let covers = |net: IpNet| net.contains(&ip) && (!ip.is_unspecified() || net.prefix_len() == 0);
    words.iter().map_while(net).any(covers)
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

    const V4: &str = "0.0.0.0:6969";
    const V6: &str = "[::]:6969";

    /// By either of the tools that write rules.
    fn by(nft: &str, iptables: &str, ip6tables: &str, address: &str, way: Way) -> bool {
        let [nft, iptables, ip6tables] = [nft, iptables, ip6tables].map(str::to_owned);
        leave_out(&Rules { nft, iptables, ip6tables }, address.parse().unwrap(), way)
    }

    fn of(rules: &str, address: &str, way: Way) -> bool {
        match rules.starts_with("-A") {
            true => by("", rules, rules, address, way),
            false => by(rules, "", "", address, way),
        }
    }

    fn incoming(rules: &str) -> bool {
        let [v4, v6] = [V4, V6].map(|address| of(rules, address, Way::In));
        assert_eq!(v4, v6, "{rules}");
        v4
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
            "-A PREROUTING -p udp -m udp --dport 6969 -m comment --comment \"by -i eth0; mark\" -j CT --notrack",
            "-A PREROUTING -p udp -m comment --comment mark -m udp --dport 6969 -j CT --notrack",
            "-A PREROUTING ! -i lo -p udp -m udp --dport 6969 -j CT --notrack",
            "iifname != \"lo\" udp dport 6969 notrack comment \"not limit mark\"",
            "iifname \"eth0\" udp dport 6969 notrack",
            "udp dport 6969 iif eth1 notrack",
            "-A PREROUTING -i eth0 -p udp -m udp --dport 6969 -j CT --notrack",
            "fib daddr type local udp dport 6969 notrack",
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
            "iifname \"lo\" udp dport 6969 notrack",
            "ip saddr 10.0.0.0/8 udp dport 6969 notrack",
            "ip daddr 192.0.2.7 udp dport 6969 notrack",
            "meta mark 1 udp dport 6969 notrack",
            "udp dport 6969 limit rate 10/second notrack",
            "meta l4proto icmp notrack",
            "udp sport 53 udp dport 6969 notrack",
            "-A PREROUTING -s 10.0.0.0/8 -p udp -m udp --dport 6969 -j CT --notrack",
            "-A PREROUTING -i lo -p udp -m udp --dport 6969 -j CT --notrack",
            "-A PREROUTING ! -i eth0 -p udp -m udp --dport 6969 -j CT --notrack",
            "-A PREROUTING -p udp -m mark --mark 0x1 -m udp --dport 6969 -j CT --notrack",
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
        let out = |rule| of(rule, V4, Way::Out);
        assert!(out("udp sport { 6969 } notrack"));
        assert!(out("-A OUTPUT -p udp -m udp --sport 6969 -j CT --notrack"));
        assert!(!out("udp dport 6969 notrack"));
        assert!(!out("oifname \"lo\" udp sport 6969 notrack"));
        assert!(!out("-A OUTPUT -d 10.0.0.0/8 -p udp -m udp --sport 6969 -j CT --notrack"));
    }

    /// What each family's rules say is nothing to the other.
    #[test]
    fn families_are_told_apart() {
        let rule = "-A PREROUTING -p udp -m udp --dport 6969 -j CT --notrack";
        let both = |nft: &str, iptables: &str, ip6tables: &str| {
            [V4, V6].map(|address| by(nft, iptables, ip6tables, address, Way::In))
        };
        assert_eq!(both("", rule, ""), [true, false]);
        assert_eq!(both("", "", rule), [false, true]);
        for (nft, expected) in [
            ("table ip raw {\n chain a {\n udp dport 6969 notrack\n }\n}", [true, false]),
            ("table ip6 raw {\n chain a {\n udp dport 6969 notrack\n }\n}", [false, true]),
            ("table inet raw {\n chain a {\n udp dport 6969 notrack\n }\n}", [true, true]),
            ("table bridge raw {\n chain a {\n udp dport 6969 notrack\n }\n}", [false, false]),
            ("table ip a {\n }\ntable inet raw {\n udp dport 6969 notrack\n }\n}", [true, true]),
            ("table inet raw {\n meta nfproto ipv6 udp dport 6969 notrack\n}", [false, true]),
            ("table inet raw {\n ip protocol udp udp dport 6969 notrack\n}", [true, false]),
            ("table inet raw {\n ip6 nexthdr udp udp dport 6969 notrack\n}", [false, true]),
            ("nft add rule ip onrush early udp dport '{ 6969 }' notrack", [true, false]),
        ] {
            assert_eq!(both(nft, "", ""), expected, "{nft}");
        }
    }

    /// A rule on the address that is listened on is about all that comes there.
    #[test]
    fn a_rule_may_be_for_the_address_that_is_asked_for() {
        let asked = "192.0.2.7:6969";
        for (rule, expected) in [
            ("ip daddr 192.0.2.7 udp dport 6969 notrack", true),
            ("ip daddr { 192.0.2.1, 192.0.2.0/29 } udp dport 6969 notrack", true),
            ("ip daddr 192.0.2.8 udp dport 6969 notrack", false),
            ("ip daddr != 192.0.2.8 udp dport 6969 notrack", false),
            ("ip saddr 192.0.2.7 udp dport 6969 notrack", false),
            ("-A PREROUTING -d 192.0.2.7/32 -p udp -m udp --dport 6969 -j CT --notrack", true),
        ] {
            assert_eq!(of(rule, asked, Way::In), expected, "{rule}");
        }
        let reply = "-A OUTPUT -s 192.0.2.7/32 -p udp -m udp --sport 6969 -j CT --notrack";
        assert!(of(reply, asked, Way::Out) && !of(reply, V4, Way::Out));
    }
}
