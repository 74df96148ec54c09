//! The report in Markdown, in the form of the published comparisons.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::number::{date, grouped, hundredths, mebibytes, percent, spread};
use crate::contender::{Listed, unique};
use crate::load::Published;
use crate::mix::Mix;
use crate::record::Case;
use crate::run::written;
use crate::stats::Spread;
use crate::summary::{Ratio, Row, Summary, called};
use onrush_load::affinity::format_list;
use onrush_load::number::Unit;

/// The whole report; `pictures` are names of files beside it.
pub fn markdown(summary: &Summary, pictures: &[String]) -> String {
    let plan = &summary.plan;
    let mut text = format!("# Trackers compared, {}\n\n", date(plan.created));
    let settings = &plan.settings;
    let dose = &settings.dose;
    let _ = writeln!(
        text,
        "Every tracker is a process on vCPUs of its own; the load uses other vCPUs. {} rounds in \
         which the contenders alternate, each in a new process; {} s of warm-up, {} s measured. \
         Medians, with minimum and maximum in brackets. Ratios are to {} within a round; only \
         ratios within one report compare to other hosts. Raw results: `raw.jsonl`.",
        settings.rounds, dose.warmup, dose.seconds, settings.baseline
    );
    machine(&mut text, summary);
    contenders(&mut text, &plan.listed);
    // Mixes without a figure are shown, too.
    for mix in plan.cases.iter().map(|case| case.mix).collect::<BTreeSet<_>>() {
        of_mix(&mut text, summary, mix, pictures);
    }
    list(&mut text, "Warnings", summary.warnings.iter().chain(&plan.notices).cloned());
    let failures = summary.failures.iter().map(|failure| {
        let reason = failure.reason.replace('\n', " ");
        format!("round {} of {}: {reason}", failure.round, called(&failure.case))
    });
    list(&mut text, "Failed rounds", failures);
    let _ = write!(text, "\n## Command\n\n```sh\n{}\n```\n", plan.command);
    text
}

fn machine(text: &mut String, summary: &Summary) {
    text.push_str("\n## Machine\n\n| | |\n|---|---|\n");
    for (name, value) in &summary.plan.machine {
        let _ = writeln!(text, "| {name} | {} |", value.replace('|', "\\|"));
    }
    let _ = writeln!(text, "| vCPUs are handed out | {} |", summary.plan.settings.mode);
    let _ = writeln!(text, "| onrush-bench | {} |", summary.plan.version);
    for Listed { name, version, text: about, .. } in &summary.plan.testers {
        let version = version.as_deref().unwrap_or("unknown");
        let _ = writeln!(text, "| load tester | {name} {version}: {about} |");
    }
}

fn contenders(text: &mut String, listed: &[Listed]) {
    text.push_str(
        "\n## Contenders\n\n| tracker | version | settings and their source |\n|---|---|---|\n",
    );
    for Listed { name, version, text: about, .. } in listed {
        let version = version.as_deref().unwrap_or("**absent**");
        let _ = writeln!(text, "| {name} | {version} | {about} |");
    }
}

fn of_mix(text: &mut String, summary: &Summary, mix: Mix, pictures: &[String]) {
    let rows: Vec<_> = summary.of_mix(mix).collect();
    let _ = write!(text, "\n## Load: {mix}\n\nThe {}.\n", mix.about());
    if mix == Mix::Published {
        let seconds = Published::seconds(&summary.plan.settings.dose);
        let _ = writeln!(
            text,
            "Its rates are means of a whole run of {seconds} s, warm-up included, as it reads the \
             clock every five seconds only; its population is the same in every round."
        );
    }
    for picture in pictures.iter().filter(|name| name.ends_with(&format!("-{mix}.svg"))) {
        let _ = write!(
            text,
            "\n![{}]({picture})\n",
            picture.trim_end_matches(".svg").replace('-', ", ")
        );
    }
    if rows.is_empty() {
        text.push_str("\nNo round of this load has a figure.\n");
        return;
    }
    side_by_side(text, summary, mix);
    wrong_ones_too(text, &rows);
    let title = format!("UDP BitTorrent tracker throughput ({})", date(summary.plan.created));
    let _ = write!(text, "\n### {title}\n\nThousands of responses per second, best variant.\n\n");
    throughput(text, "Tracker cores", summary, mix, |case| case.seats.tracker_cores);
    text.push('\n');
    throughput(text, "Number of workers", summary, mix, |case| {
        case.variant.total().unwrap_or(case.seats.tracker.len())
    });
    benchmark_report(text, summary, &rows);
}

/// A row for each case of the plan, including those without a figure.
fn side_by_side(text: &mut String, summary: &Summary, mix: Mix) {
    let latency = summary.of_mix(mix).flat_map(|row| &row.latency);
    let shares: BTreeSet<u32> = latency.map(|lag| lag.percent).collect();
    text.push_str(
        "\n### Side by side\n\n| tracker | workers | cores | load workers | responses/s | ratio \
         | us CPU per reply | ratio |",
    );
    let lags: String = shares.iter().map(|share| format!(" p50, p99 at {share} % |")).collect();
    let _ = write!(
        text,
        " CPU | peak RSS |{lags} wrong | lost | peers per reply |\n|{}\n",
        "---|".repeat(13 + shares.len())
    );
    for case in summary.plan.cases.iter().filter(|case| case.mix == mix) {
        let (seats, variant) = (&case.seats, &case.variant);
        let _ = write!(
            text,
            "| {} | {} | {} | {} |",
            variant.name(),
            variant.split(),
            seats.tracker_cores,
            seats.load_workers
        );
        match summary.rows.iter().find(|row| row.case == *case) {
            Some(row) => figures(text, row, &shares, summary.plan.settings.rounds),
            None => {
                let rest = " |".repeat(8 + shares.len());
                let _ = writeln!(text, " **{}** |{rest}", without_figure(summary, case));
            }
        }
    }
}

/// Why a case has no figure.
fn without_figure(summary: &Summary, case: &Case) -> &'static str {
    match summary.failures.iter().any(|failure| failure.case == *case) {
        true => "failed",
        false => "not done",
    }
}

/// The cells of a row from its rate on. A median over fewer than all `rounds` is marked.
fn figures(text: &mut String, row: &Row, shares: &BTreeSet<u32>, rounds: u32) {
    let ratio = |pick: fn(&Ratio) -> &Spread| match &row.ratio {
        Some(ratio) => format!("{:.2}", pick(ratio).median),
        None if row.base => "1".into(),
        None => "n/a".into(),
    };
    let of = match row.rate.count == rounds as usize {
        true => String::new(),
        false => format!(" ({} of {rounds})", row.rate.count),
    };
    let _ = write!(
        text,
        " {}{of} | {} | {} | {} | {} | {} |",
        spread(&row.rate, grouped),
        ratio(|ratio| &ratio.rate),
        spread(&row.cpu_per_reply, hundredths),
        ratio(|ratio| &ratio.cpu_per_reply),
        percent(row.cpu_percent.median),
        row.peak_rss.map_or("?".into(), |rss| mebibytes(rss.median)),
    );
    for share in shares {
        let lag = row.latency.iter().find(|lag| lag.percent == *share);
        let micros = |latency: &Spread| Unit::Micros.label(latency.median);
        let lag = lag.map(|lag| format!("{}, {}", micros(&lag.p50), micros(&lag.p99)));
        let _ = write!(text, " {} |", lag.unwrap_or_default());
    }
    let wrong = match row.case.mix {
        Mix::Published => format!("{:.3} % errors", row.wrong_percent),
        _ => format!("{:.3} %", row.wrong_percent),
    };
    let lost =
        row.loss_percent.map_or("not counted".into(), |loss| format!("{:.3} %", loss.median));
    let peers = row.peers_per_reply.map_or(String::new(), |peers| format!("{:.1}", peers.median));
    let _ = writeln!(text, " {wrong} | {lost} | {peers} |");
}

/// The figures with wrong replies counted, for trackers that do other work than the checked one.
fn wrong_ones_too(text: &mut String, rows: &[&Row]) {
    let wrong: Vec<_> = rows.iter().filter(|row| row.wrong_percent > 0.0).collect();
    if wrong.is_empty() {
        return;
    }
    text.push_str(
        "\nOnly right replies count above. With all replies counted:\n\n\
         | tracker | workers | cores | load workers | replies/s | us CPU per reply | findings |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in wrong {
        let seats = &row.case.seats;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.name,
            row.case.variant.split(),
            seats.tracker_cores,
            seats.load_workers,
            spread(&row.any_rate, grouped),
            spread(&row.any_cpu_per_reply, hundredths),
            row.findings.join("; "),
        );
    }
}

/// The best of each tracker by a number, the best of all in bold: the form of the published tables.
fn throughput(
    text: &mut String,
    title: &str,
    summary: &Summary,
    mix: Mix,
    key: impl Fn(&Case) -> usize,
) {
    let cases: Vec<_> = summary.plan.cases.iter().filter(|case| case.mix == mix).collect();
    let names = unique(cases.iter().map(|case| case.variant.name()));
    let _ =
        writeln!(text, "| {title} | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
    for number in cases.iter().map(|case| key(case)).collect::<BTreeSet<_>>() {
        let best = |name: &str| {
            let rows =
                summary.of_mix(mix).filter(|row| key(&row.case) == number && row.name == name);
            rows.map(|row| row.rate.median).reduce(f64::max)
        };
        let absent = |name: &str| {
            let case = cases.iter().find(|c| key(c) == number && c.variant.name() == name);
            case.map_or("n/a", |case| without_figure(summary, case)).to_owned()
        };
        let most = names.iter().filter_map(|name| best(name)).fold(0.0, f64::max);
        let cells = names.iter().map(|name| match best(name) {
            None => absent(name),
            Some(rate) if rate == most => format!("**{:.0}**", rate / 1000.0),
            Some(rate) => format!("{:.0}", rate / 1000.0),
        });
        let _ = writeln!(text, "| {number} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

/// The form of the report of aquatic's bencher, as published by Torrust.
fn benchmark_report(text: &mut String, summary: &Summary, rows: &[&Row]) {
    let plan = &summary.plan;
    let mix = rows[0].case.mix;
    let cases: Vec<_> = plan.cases.iter().filter(|case| case.mix == mix).collect();
    let seconds: f64 = cases.iter().map(|case| plan.settings.seconds(case)).sum();
    let rounds = plan.settings.rounds;
    let took = written(std::time::Duration::from_secs_f64(seconds * f64::from(rounds)));
    let _ = write!(
        text,
        "\n### Benchmark report\n\nTotal number of load test runs: {}\n\
         Estimated duration: {took}\n",
        cases.len() * rounds as usize
    );
    let mut seats: Vec<_> =
        rows.iter().map(|row| (row.case.seats.tracker_cores, &row.case.seats.tracker)).collect();
    seats.sort();
    seats.dedup();
    for (cores, cpus) in seats {
        let _ = write!(text, "\n#### Tracker cores: {cores} (cpus: {})\n", format_list(cpus));
        for row in rows.iter().filter(|row| row.case.seats.tracker == *cpus) {
            let load = &row.case.seats;
            let _ = write!(
                text,
                "\n##### {} run ({}) (load test workers: {}, cpus: {})\n\n\
                 - Average responses per second: {}\n\
                 - Average tracker CPU utilization: {}\n\
                 - Peak tracker RSS: {}\n",
                row.name,
                row.case.variant.split(),
                load.load_workers,
                format_list(&load.load),
                grouped(row.rate.median),
                percent(row.cpu_percent.median),
                row.peak_rss.map_or("unknown".into(), |rss| mebibytes(rss.median)),
            );
        }
    }
}

fn list(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<_> = lines.collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n## {title}\n\n");
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    }
}
