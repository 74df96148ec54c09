//! The formats of `top-sources`.

use clap::Parser;

use super::*;
use onrush_control::api::sources::Grouping;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    sources: Sources,
}

fn flags(text: &str) -> Sources {
    Line::try_parse_from(["top-sources"].into_iter().chain(text.split_whitespace()))
        .unwrap()
        .sources
}

fn share(source: &str, share: f64) -> SourceShare {
    let source = source.parse().unwrap();
    SourceShare { source, share, error: 0.0012, rate: 1_234.56, sampled: 7 }
}

fn top() -> TopSources {
    TopSources {
        by: Grouping::Network,
        kind: RequestKind::Connect,
        seconds: 10.02,
        requests: 1_000_000,
        sampled: 65_536,
        confidence: 0.999,
        unverified: true,
        shed: 0,
        others_at_most: 0.0103,
        ports: [6969, 6970].into(),
        sources: vec![
            share("192.0.2.0/24", 0.5),
            share("2001:db8::/48", 0.25),
            share("198.51.100.7/32", 0.009),
        ],
    }
}

#[test]
fn the_path_has_all_parameters() {
    assert_eq!(flags("").path(), "/api/v1/sources/top?seconds=10&by=ip&kind=all&limit=20");
    assert_eq!(
        flags("--seconds 60 --by 48 --kind refused --limit 5").path(),
        "/api/v1/sources/top?seconds=60&by=48&kind=refused&limit=5"
    );
    for wrong in [
        "--seconds 0",
        "--seconds 61",
        "--by 32",
        "--kind scrape",
        "--limit 0",
        "--limit 1001",
        "--min-share 101",
        "--min-share NaN",
        "--format json",
    ] {
        let line = ["top-sources"].into_iter().chain(wrong.split_whitespace());
        assert!(Line::try_parse_from(line).is_err(), "{wrong}");
    }
}

#[test]
fn the_table_has_shares_errors_and_what_limits_them() {
    let text = flags("").show(&top());
    let first: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(first, ["192.0.2.0/24", "50.00", "%", "0.12", "%", "1,235"]);
    assert!(text.lines().nth(3).unwrap().starts_with("198.51.100.7 "), "{text}");
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    for part in ["1,000,000 connects in 10.0 s", "65,536 of them", "99.9 %", "1.03 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("unverified") && !text.contains("dropped"), "{text}");

    let proven =
        TopSources { kind: RequestKind::Announce, unverified: false, shed: 12_345, ..top() };
    let text = flags("").show(&proven);
    assert!(text.contains("dropped 12,345 ") && !text.contains("unverified"), "{text}");
    let whole = TopSources { requests: 20, sampled: 20, others_at_most: 0.0, ..top() };
    assert!(!flags("").show(&whole).contains("99.9"));
    let none = TopSources { requests: 0, sampled: 0, sources: Vec::new(), ..top() };
    assert!(flags("").show(&none).contains("\n0 connects in 10.0 s\n"));
}

#[test]
fn csv_has_a_header_and_stable_columns() {
    assert_eq!(
        flags("--format csv --limit 2").show(&top()),
        "source,share,error,requests_per_second,sampled\n\
         192.0.2.0/24,0.500000,0.001200,1234.6,7\n\
         2001:db8::/48,0.250000,0.001200,1234.6,7\n\
         198.51.100.7,0.009000,0.001200,1234.6,7\n"
    );
}

#[test]
fn sources_below_the_least_share_are_left_out() {
    let rows = |line: &str| flags(line).show(&top()).matches("\n1").count();
    assert_eq!((rows("--format csv"), rows("--format csv --min-share 1")), (2, 1));
    assert!(!flags("--format nft").show(&top()).contains("198.51.100.7"));
    assert!(flags("--format nft --min-share 0.5").show(&top()).contains("198.51.100.7"));
}

/// The statements of nftables, without comments.
fn statements(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn nft_rules_are_complete_and_can_be_applied_again() {
    let text = flags("--format nft").show(&top());
    assert_eq!(
        statements(&text),
        [
            "add table inet onrush_block",
            "add set inet onrush_block sources_v4 { type ipv4_addr; flags interval; auto-merge; }",
            "add set inet onrush_block sources_v6 { type ipv6_addr; flags interval; auto-merge; }",
            "add chain inet onrush_block input { type filter hook input priority -10; policy \
             accept; }",
            "flush chain inet onrush_block input",
            "add rule inet onrush_block input udp dport { 6969, 6970 } ip saddr @sources_v4 \
             counter drop",
            "add rule inet onrush_block input udp dport { 6969, 6970 } ip6 saddr @sources_v6 \
             counter drop",
            "add element inet onrush_block sources_v4 { 192.0.2.0/24 }",
            "add element inet onrush_block sources_v6 { 2001:db8::/48 }",
        ]
    );
    for part in ["nft delete table inet onrush_block", "# 192.0.2.0/24: 50.00 %", "unverified"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // An empty element list would be an error of nft.
    let none = statements(&flags("--format nft --min-share 90").show(&top())).join("\n");
    assert!(!none.contains("add element"), "{none}");
}
