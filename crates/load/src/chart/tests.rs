//! Pictures show their data. Their look is for the browser test.

use super::*;
use onrush_text::numbers::Unit;

fn some_lines() -> Lines {
    let curve = |n: f64| (1..=100).map(move |x| (f64::from(x), n * 50.0 * f64::from(x)));
    let few = Point { x: 3.0, y: 100.0, spread: Some((80.0, 120.0)) };
    Lines {
        title: "Latency <& more> over time".into(),
        x: Axis::linear("seconds since the start"),
        y: Axis::log("latency").unit(Unit::Micros),
        lines: vec![
            Line::new("p50", curve(1.0)),
            Line::new("p99", curve(9.0).map(|(x, y)| (x, if x == 50.0 { 0.0 } else { y }))),
            Line { name: "few".into(), points: vec![few] },
        ],
        spans: vec![("warm-up", 1.0, 20.0)],
    }
}

fn some_bars(bars: Vec<Bar>) -> Bars {
    Bars {
        title: "CPU time per reply".into(),
        y: Axis::linear("microseconds per right reply"),
        legend: "one core".into(),
        bars,
    }
}

fn bar(name: impl Into<String>, value: f64) -> Bar {
    Bar { name: name.into(), value, spread: None, pale: false }
}

/// Points of each polyline with more than `more` of them.
fn polylines(svg: &str, more: usize) -> Vec<usize> {
    let count = |rest: &str| rest.split('"').next().map_or(0, |p| p.split_whitespace().count());
    svg.split("points=\"").skip(1).map(count).filter(|count| *count > more).collect()
}

#[test]
fn a_line_has_its_points_and_breaks_at_gaps() {
    let svg = lines(&some_lines());
    assert_eq!(polylines(&svg, 10), [100, 49, 50], "{svg}");
    for part in
        ["Latency &#60;&#38; more&#62;", "seconds since the start", "warm-up", "1 ms", "p99"]
    {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 1, "few points are marked");
    assert!(svg.starts_with("<svg role=\"img\" aria-label=\"Latency &#60;&#38; more"), "{svg}");
}

#[test]
fn pictures_without_data_are_pictures() {
    let nothing = Lines { lines: vec![], spans: vec![], ..some_lines() };
    assert!(lines(&nothing).contains("</svg>"));
    let constant = Lines { lines: vec![Line::new("one", [(1.0, 1.0)])], ..nothing };
    assert!(lines(&constant).contains("<circle"));
    assert!(bars(&some_bars(vec![])).contains("</svg>"));
}

#[test]
fn bars_have_values_whiskers_and_names() {
    let first = Bar { spread: Some((2.4, 2.7)), ..bar("classic mix, 1,000 sources", 2.57) };
    let svg = bars(&some_bars(vec![first, bar("real", 1.21)]));
    for part in ["2.57", "1.21", "one core", "1,000", "real", "microseconds per right reply"] {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
    assert_eq!(svg.matches("stroke=\"#222222\"").count(), 3, "a whisker with two caps: {svg}");
}

#[test]
fn names_of_bars_are_wrapped() {
    let all = (0..6).map(|n| bar(format!("a long name of group {n}"), 1.0));
    let svg = bars(&some_bars(all.collect()));
    assert!(!svg.contains("a long name of group"), "{svg}");
    assert!(svg.contains("group 5") || svg.contains("of group"), "{svg}");
}

#[test]
fn bars_beside_a_highlighted_one_are_paler() {
    let svg = bars(&some_bars(vec![bar("a", 1.0), Bar { pale: true, ..bar("b", 1.0) }]));
    assert_eq!(svg.matches("opacity=\"0.45\"").count(), 1, "{svg}");
}
