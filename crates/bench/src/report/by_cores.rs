//! The tables of the comparison of 2022 for each load over TCP: trackers by tracker cores, the best
//! variant of each.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use onrush_text::numbers::grouped;

use super::{hundredths, line, percent};
use crate::contender::unique;
use crate::mix::Mix;
use crate::summary::{Row, Summary};

/// The tables of all loads.
pub(super) fn tables(text: &mut String, summary: &Summary) {
    let mixes = unique(summary.rows.iter().map(|row| row.case.mix));
    for mix in mixes.into_iter().filter(|mix| !mix.protocol().is_udp()) {
        let _ = write!(text, "\n## By cores: {mix}\n");
        let what = if mix.protocol().is_webtorrent() { "message" } else { "response" };
        table(text, summary, mix, &format!("{what}s per second"), |row| grouped(row.rate.median));
        table(text, summary, mix, &format!("us of CPU time per {what}, tracker and load"), |row| {
            pair(hundredths(row.cpu_per_reply.median), row.load_per_reply.map(hundredths))
        });
        table(text, summary, mix, "CPU per core, tracker and load", |row| {
            let [tracker, load] = [&row.case.seats.tracker, &row.case.seats.load];
            let share = |all: f64, cpus: &[usize]| percent(all / cpus.len() as f64);
            let load = row.load_cpu_percent.map(|all| share(all, load));
            pair(share(row.cpu_percent, tracker), load)
        });
    }
}

fn pair(tracker: String, load: Option<String>) -> String {
    format!("{tracker}, {}", load.as_deref().unwrap_or("?"))
}

/// One table: a row for each number of tracker cores, a column for each tracker.
fn table(
    text: &mut String,
    summary: &Summary,
    mix: Mix,
    title: &str,
    cell: impl Fn(&Row) -> String,
) {
    let of = || summary.plan.cases.iter().filter(|case| case.mix == mix);
    let names = unique(of().map(|case| case.variant.name()));
    let cores: BTreeSet<_> = of().map(|case| case.seats.tracker.len()).collect();
    let _ = writeln!(text, "\n{title}:\n");
    let head: Vec<_> = ["cores".to_owned()].into_iter().chain(names.clone()).collect();
    line(text, &head);
    line(text, &vec!["---"; head.len()]);
    for cores in cores {
        let best = |name: &String| {
            let row = summary.best(mix, name, cores);
            row.map_or("none".to_owned(), &cell)
        };
        let cells: Vec<_> = [cores.to_string()].into_iter().chain(names.iter().map(best)).collect();
        line(text, &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::hitch::WORKERS;
    use crate::summary::tests::example;

    #[test]
    fn the_best_variant_of_each_tracker_is_shown() {
        let mut summary = example();
        let mut plain = String::new();
        tables(&mut plain, &summary);
        assert_eq!(plain, "", "loads over UDP have none");

        summary.rows.truncate(1);
        let row = &mut summary.rows[0];
        (row.case.mix, row.rate.median, row.cpu_percent) = (Mix::Https, 4313.0, 98.0);
        (row.cpu_per_reply.median, row.load_per_reply) = (227.2, None);
        (row.case.variant.tracker, row.case.variant.kind) = ("onrush".into(), None);
        for (workers, rate) in [(2, 3492.0), (1, 3000.0)] {
            let mut behind = summary.rows[0].clone();
            behind.case.variant.workers = vec![(WORKERS.into(), workers)];
            behind.case.variant.kind = Some("hitch".into());
            (behind.rate.median, behind.load_per_reply) = (rate, Some(60.0));
            summary.rows.push(behind);
        }
        summary.plan.cases = summary.rows.iter().map(|row| row.case.clone()).collect();
        let mut text = String::new();
        tables(&mut text, &summary);
        for table in [
            "\nresponses per second:\n\n| cores | onrush | onrush (hitch) |\n| --- | --- | --- |\n\
             | 1 | 4,313 | 3,492 |\n",
            "tracker and load:\n\n| cores | onrush | onrush (hitch) |\n| --- | --- | --- |\n\
             | 1 | 227.20, ? | 227.20, 60.00 |\n",
            "| 1 | 98.0%, 82.0% | 98.0%, 82.0% |\n",
        ] {
            assert!(text.contains(table), "{table}: {text}");
        }
    }
}
