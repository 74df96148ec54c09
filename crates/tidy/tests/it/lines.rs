//! A budget of lines for each crate, so that growth is a decision.

use std::collections::BTreeMap;

use onrush_tidy::{crate_of, demand, sources};

/// A crate; lines of code, and of tests, without comments and blank lines. A crate may grow by
/// [`GROWTH`] beyond its row. The commit that raises a row says why; one that removes more than
/// [`SLACK`] lowers it.
const BUDGETS: [(&str, [usize; 2]); 20] = [
    ("bench", [3_740, 1_810]),
    ("commands", [3_640, 1_610]),
    ("config", [2_290, 1_219]),
    ("control", [4_433, 2_100]),
    ("daemon", [7_900, 15_000]),
    ("fuzz", [742, 0]),
    ("lab", [1_002, 681]),
    ("load", [13_030, 7_000]),
    ("net", [6_100, 4_260]),
    ("proto", [2_500, 2_170]),
    ("replica", [629, 332]),
    ("store", [2_146, 1_475]),
    ("swarm", [4_209, 3_056]),
    ("testing", [284, 0]),
    ("text", [129, 66]),
    ("tidy", [169, 777]),
    ("toml-keys", [1_082, 522]),
    ("tracker", [4_850, 3_250]),
    ("verify", [5_300, 2_430]),
    // At most 9,000 together with their growth.
    ("web", [4_260, 4_478]),
];
/// Growth beyond a row, percent.
const GROWTH: usize = 3;
/// Lines below a row, percent.
const SLACK: usize = 10;
/// Lines that a small crate may differ by, whatever the percentage.
const MIN_TOLERANCE: usize = 20;

#[test]
fn crates_keep_to_their_budgets() {
    let mut lines: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for source in sources() {
        let sums = lines.entry(crate_of(&source.path).unwrap_or("fuzz")).or_default();
        for (sum, more) in sums.iter_mut().zip(source.code_lines()) {
            *sum += more;
        }
    }
    let budgets = BTreeMap::from(BUDGETS);
    let mut broken = Vec::new();
    for (name, now) in &lines {
        match budgets.get(name) {
            None => broken.push(format!("{name}: no row; it has {now:?} lines")),
            Some(row) => broken.extend(deviations(name, *row, *now)),
        }
    }
    let gone = budgets.keys().filter(|name| !lines.contains_key(*name));
    broken.extend(gone.map(|name| format!("{name}: a row without a crate")));
    demand("a crate keeps to its row of BUDGETS in crates/tidy/tests/it/lines.rs", broken);
}

/// Deviations of a crate from its row, in both directions.
fn deviations(name: &str, row: [usize; 2], now: [usize; 2]) -> Vec<String> {
    let mut broken = Vec::new();
    for (what, (row, now)) in ["code", "tests"].iter().zip(row.into_iter().zip(now)) {
        let tolerance = |percent: usize| (row * percent / 100).max(MIN_TOLERANCE);
        if now > row + tolerance(GROWTH) {
            broken.push(format!("{name}: {now} lines of {what}, over {GROWTH} % above {row}"));
        } else if now + tolerance(SLACK) < row {
            broken.push(format!("{name}: {now} lines of {what}: lower its row from {row}"));
        }
    }
    broken
}

#[test]
fn a_deviation_is_found() {
    assert_eq!(deviations("x", [1000, 100], [1030, 80]), Vec::<String>::new());
    assert_eq!(deviations("x", [1000, 100], [1031, 121]).len(), 2);
    assert_eq!(deviations("x", [1000, 100], [899, 100]).len(), 1);
}
