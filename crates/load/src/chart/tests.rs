//! Pictures show their data. Their look is for the browser test.

use super::*;
use onrush_text::numbers::Unit;

fn some_lines() -> Lines {
    let curve = |n: f64| (1..=100).map(move |x| (f64::from(x), n * 50.0 * f64::from(x)));
    Lines {
        title: "Latency <& more> over time".into(),
        x: Axis::linear("seconds since the start"),
        y: Axis::log("latency").unit(Unit::Micros),
        lines: vec![
            Line::new("p50", curve(1.0)),
            Line::new("p99", curve(9.0).map(|(x, y)| (x, if x == 50.0 { 0.0 } else { y }))),
            Line::new("few", [Point { x: 3.0, y: 100.0, spread: Some((80.0, 120.0)) }]),
        ],
        spans: vec![ShadedSpan { name: "warm-up".into(), from: 1.0, to: 20.0 }],
    }
}

fn some_bars(groups: impl IntoIterator<Item = String>, rows: Vec<Row>) -> Bars {
    Bars {
        title: "CPU time per reply".into(),
        y: Axis::linear("microseconds per right reply"),
        groups: groups.into_iter().collect(),
        rows,
        marked: vec![],
    }
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
    for part in ["Latency &lt;&amp; more&gt;", "seconds since the start", "warm-up", "1 ms", "p99"]
    {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert_eq!(svg.matches("<circle").count(), 1, "few points are marked");
    assert!(svg.starts_with("<svg role=\"img\" aria-label=\"Latency &lt;&amp; more"), "{svg}");
}

#[test]
fn pictures_without_data_are_pictures() {
    let nothing = Lines { lines: vec![], spans: vec![], ..some_lines() };
    assert!(lines(&nothing).contains("</svg>"));
    let constant = Lines { lines: vec![Line::new("one", [(1.0, 1.0)])], ..nothing };
    assert!(lines(&constant).contains("<circle"));
    assert!(bars(&some_bars([], vec![])).contains("</svg>"));
}

#[test]
fn what_is_absent_is_not_zero() {
    let bar = Bar { value: 2.57, spread: Some((2.4, 2.7)) };
    let rows = vec![
        Row { name: "onrush".into(), bars: vec![Some(bar), Some(1.21.into())] },
        Row { name: "other".into(), bars: vec![None, Some(3.0.into())] },
    ];
    let svg = bars(&some_bars(["classic mix, 1,000 sources", "real"].map(String::from), rows));
    for part in ["2.57", "1.21", "absent", "onrush", "1,000", "microseconds per right reply"] {
        assert!(svg.contains(part), "{part} is not in {svg}");
    }
    assert_eq!(svg.matches("absent").count(), 1);
}

#[test]
fn names_of_groups_are_wrapped() {
    let groups = (0..6).map(|n| format!("a long name of group {n}"));
    let rows = vec![Row { name: "r".into(), bars: vec![Some(1.0.into()); 6] }];
    let svg = bars(&some_bars(groups, rows));
    assert!(!svg.contains("a long name of group"), "{svg}");
    assert!(svg.contains("group 5") || svg.contains("of group"), "{svg}");
}

#[test]
fn groups_that_stand_out_leave_the_others_paler() {
    let of = |marked: Vec<usize>| {
        let rows = vec![Row { name: "r".into(), bars: vec![Some(1.0.into()); 3] }];
        bars(&Bars { marked, ..some_bars(["a", "b", "c"].map(String::from), rows) })
    };
    let pale = |svg: &str| svg.matches("opacity=\"0.45\"").count();
    assert_eq!((pale(&of(vec![])), pale(&of(vec![1]))), (0, 2), "{}", of(vec![1]));
}
