//! Reports of given probes.

use onrush_verify::exchange::ExchangeError;
use onrush_verify::probe::{Answered, Probe, Step};

use super::report::{Report, Verdict};
use super::*;

fn probe(address: &str, times: [u64; 3], failed: Option<Step>) -> Probe {
    let steps = [Step::Connect, Step::Announce, Step::Scrape];
    let answered =
        steps.into_iter().zip(times).filter(|(step, _)| failed.is_none_or(|failed| *step < failed));
    let answered = answered.map(|(step, time)| Answered {
        step,
        time: Duration::from_millis(time),
        repeated: u64::from(time >= 100),
    });
    let error = |step| (step, ExchangeError::Refused { to: "it".into(), text: "no | bar".into() });
    let address = address.parse().unwrap();
    Probe { address, answered: answered.collect(), failed: failed.map(error) }
}

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";

fn report(probes: Vec<Probe>, warning: Option<f64>, critical: Option<f64>) -> Report<'static> {
    Report { target: "udp://a\"b\\c:1", probes, warning, critical }
}

#[test]
fn the_verdict_follows_from_failures_and_times() {
    let fine = || probe(V4, [1, 2, 30], None);
    let broken = || probe(V6, [1, 2, 3], Some(Step::Announce));
    for (probes, warning, critical, verdict) in [
        (vec![fine()], None, None, Verdict::Ok),
        (vec![fine()], Some(30.0), Some(40.0), Verdict::Ok),
        (vec![fine()], Some(29.0), Some(40.0), Verdict::Warning),
        (vec![fine()], Some(10.0), Some(29.0), Verdict::Critical),
        (vec![fine(), broken()], None, None, Verdict::Warning),
        (vec![broken()], None, None, Verdict::Critical),
        (vec![broken(), broken()], Some(1000.0), None, Verdict::Critical),
    ] {
        let text = format!("{probes:?}");
        assert_eq!(report(probes, warning, critical).verdict(), verdict, "{text}");
    }
}

#[test]
fn the_line_of_a_plugin_has_one_bar_and_performance_data() {
    let probes = vec![probe(V4, [1, 2, 150], None), probe(V6, [4, 5, 6], Some(Step::Scrape))];
    let line = report(probes, Some(200.0), None).text(Format::Nagios);
    assert!(line.starts_with("WARNING: IPv6: scrape failed: "), "{line}");
    assert_eq!((line.matches('|').count(), line.lines().count()), (1, 1), "{line}");
    let data: Vec<_> = line.split_once(" | ").unwrap().1.split_whitespace().collect();
    assert_eq!(
        data,
        [
            "ipv4_connect=1.000ms;200;;0",
            "ipv4_announce=2.000ms;200;;0",
            "ipv4_scrape=150.000ms;200;;0",
            "ipv4_repeated=1;;;0",
            "ipv6_connect=4.000ms;200;;0",
            "ipv6_announce=5.000ms;200;;0",
            "ipv6_repeated=0;;;0",
        ]
    );
}

#[test]
fn limits_are_positive_numbers() {
    assert_eq!(milliseconds("2.5"), Ok(2.5));
    for text in ["0", "-1", "x", "inf", "NaN"] {
        assert!(milliseconds(text).is_err(), "{text}");
    }
}
