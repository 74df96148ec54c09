//! The flags and the table of `top-sources`.

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
fn sources_below_the_least_share_are_left_out() {
    let rows = |line: &str| flags(line).show(&top()).matches("\n19").count();
    assert_eq!((rows(""), rows("--min-share 1")), (2, 1));
}
