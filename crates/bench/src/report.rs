//! The report of a result directory: tables in Markdown, which are readable as text, and one
//! picture.

mod by_cores;
pub(crate) mod picture;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use onrush_load::affinity::format_list;
use onrush_load::stats::Spread;
use onrush_text::numbers::{Unit, grouped};
use onrush_text::times::date;

use crate::contender::{Listed, unique};
use crate::mix::Protocol;
use crate::plan::Plan;
use crate::record::{self, Case};
use crate::summary::{Row, Summary, called};

/// The file name of the picture.
const PICTURE: &str = "report.svg";

/// The sentence that defines a reply over WebSocket.
const MESSAGES: &str = "Over WebSocket every right message that the load tester sends or receives \
                        counts as a reply: announces, their replies, offers and answers; replies \
                        to answers, of which clients have no use, do not count. ";

/// The sentences that define the figures over veth devices.
const VETH: &str = "Tracker and load are in two network namespaces. CPU time of the tracker is \
                    that of its process, of the thread that polls its device (NAPI), and of \
                    ksoftirqd on its vCPU. Requests are frames of an XDP program, not of sockets. ";

/// Reads `directory`, writes its report there, and returns the text.
///
/// # Errors
/// When there are no results, or nothing can be written.
pub fn write(directory: &Path) -> anyhow::Result<String> {
    let summary = Summary::new(&Plan::read(directory)?, &record::read(directory)?);
    let text = text(&summary);
    for (name, text) in [(PICTURE, &picture::picture(&summary)), ("report.md", &text)] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(text)
}

fn text(summary: &Summary) -> String {
    let plan = &summary.plan;
    let (settings, dose) = (&plan.settings, &plan.settings.dose);
    let date = date(plan.created);
    let mut text = format!(
        "# Trackers compared, {date}\n\n\
         Every tracker is a process on vCPUs of its own; the load uses other vCPUs. {} rounds in \
         which the contenders alternate, each in a new process; {} s of warm-up, {} s measured. \
         Medians, with minimum and maximum in brackets. Ratios are to {} within a round; only \
         ratios within one report compare to other hosts. Of each load and number of cores the \
         highest rate is bold. Only right replies count. {}Raw results: `raw.jsonl` \
         (`scripts/bench-compare` packs it into `data.tar.gz`).\n\n\
         ![Results]({PICTURE})\n\n",
        settings.rounds,
        dose.warmup,
        dose.seconds,
        settings.baseline,
        match plan.cases.first().map(|case| case.mix.protocol()) {
            Some(Protocol::Veth) => VETH,
            _ if plan.cases.iter().any(|case| case.mix.protocol().is_webtorrent()) => MESSAGES,
            _ => "",
        }
    );
    table(&mut text, summary);
    by_cores::tables(&mut text, summary);
    let mixes = unique(plan.cases.iter().map(|case| case.mix));
    list(&mut text, "Loads", mixes.iter().map(|mix| format!("{mix}: {}", mix.about())));
    list(&mut text, "Warnings", summary.warnings.iter().chain(&plan.notices).cloned());
    let failures = summary.failures.iter().map(|failure| {
        let reason = failure.reason.replace('\n', " ");
        format!("round {} of {}: {reason}", failure.round, called(&failure.case))
    });
    list(&mut text, "Failed rounds", failures);
    let listed = plan.listed.iter().chain(&plan.testers);
    let listed = listed.map(|Listed { name, version, text }| {
        format!("{name} {}: {text}", version.as_deref().unwrap_or("**absent**"))
    });
    list(&mut text, "Contenders and load testers", listed);
    let own = [("onrush-bench", plan.version.clone()), ("command", format!("`{}`", plan.command))];
    let machine = plan.machine.iter().map(|(name, value)| (name.as_str(), value.clone()));
    list(&mut text, "Machine", machine.chain(own).map(|(name, value)| format!("{name}: {value}")));
    text
}

/// A row for each case of the plan, including those without a figure.
fn table(text: &mut String, summary: &Summary) {
    let latency = summary.rows.iter().flat_map(|row| &row.latency);
    let shares: BTreeSet<u32> = latency.map(|lag| lag.percent).collect();
    let lags = shares.iter().map(|share| format!("p50, p99 at {share} %"));
    let idle = summary.rows.iter().any(|row| row.idle_bytes.is_some());
    let idle = idle.then(|| "memory of an idle connection".to_owned());
    let first = "load|cores (vCPUs)|load workers (vCPUs)|tracker|workers|replies/s|ratio|\
                 us CPU per reply|ratio|CPU|us of the load|peak RSS|wrong|lost|peers per reply";
    let names: Vec<_> = first.split('|').map(str::to_owned).chain(lags).chain(idle).collect();
    line(text, &names);
    line(text, &vec!["---"; names.len()]);
    for case in &summary.plan.cases {
        let Case { seats, variant, mix } = case;
        let mut cells = vec![
            mix.to_string(),
            format!("{} ({})", seats.tracker.len(), format_list(&seats.tracker)),
            format!("{} ({})", seats.load.len(), format_list(&seats.load)),
            variant.name(),
            variant.split(),
        ];
        match summary.rows.iter().find(|row| row.case == *case) {
            Some(row) => cells.extend(figures(row, summary, &shares)),
            None if summary.failures.iter().any(|failure| failure.case == *case) => {
                cells.push("**failed**".into());
            }
            None => cells.push("**not done**".into()),
        }
        cells.resize(names.len(), String::new());
        line(text, &cells);
    }
}

pub(crate) fn line(text: &mut String, cells: &[impl AsRef<str>]) {
    let cells: Vec<_> = cells.iter().map(|cell| cell.as_ref().replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// The cells of a row from its rate on. A median over fewer than all rounds is marked.
fn figures(row: &Row, summary: &Summary, shares: &BTreeSet<u32>) -> Vec<String> {
    let rounds = summary.plan.settings.rounds;
    let mut rate = spread(&row.rate, grouped);
    let beside = |other: &&Row| {
        let (own, other) = (&row.case, &other.case);
        (own.mix, own.seats.tracker.len()) == (other.mix, other.seats.tracker.len())
    };
    let best = summary.rows.iter().filter(beside).map(|row| row.rate.median).reduce(f64::max);
    if best == Some(row.rate.median) {
        rate = format!("**{rate}**");
    }
    if row.rate.count != rounds as usize {
        let _ = write!(rate, " ({} of {rounds})", row.rate.count);
    }
    let ratio = |which: usize| match row.ratio {
        Some(ratio) => hundredths(ratio[which]),
        None if row.base => "1".into(),
        None => "n/a".into(),
    };
    let mut cells = vec![
        rate,
        ratio(0),
        spread(&row.cpu_per_reply, hundredths),
        ratio(1),
        percent(row.cpu_percent),
        row.load_per_reply.map_or("?".into(), hundredths),
        row.peak_rss.map_or("?".into(), |bytes| Unit::Bytes.label(bytes)),
        format!("{:.3} %", row.wrong_percent),
        row.loss_percent.map_or("not counted".into(), |loss| format!("{loss:.3} %")),
        row.peers_per_reply.map_or(String::new(), |peers| format!("{peers:.1}")),
    ];
    cells.extend(shares.iter().map(|share| {
        let lag = row.latency.iter().find(|lag| lag.percent == *share);
        let micros = |latency| Unit::Micros.label(latency);
        lag.map_or(String::new(), |lag| format!("{}, {}", micros(lag.p50), micros(lag.p99)))
    }));
    let asked = u64::from(summary.plan.settings.dose.idle);
    let held = row.idle_held.filter(|held| *held < asked);
    let held = held.map_or(String::new(), |held| format!(" ({held} of {asked} held)"));
    let memory = |bytes| spread(&bytes, |bytes| Unit::Bytes.label(bytes)) + &held;
    cells.extend(row.idle_bytes.map(memory));
    cells
}

pub(crate) fn list(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: String = lines.map(|line| format!("- {line}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n## {title}\n\n{lines}");
    }
}

/// `95.5%`, `190%`: as published.
pub(crate) fn percent(percent: f64) -> String {
    if percent >= 100.0 { format!("{percent:.0}%") } else { format!("{percent:.1}%") }
}

pub(crate) fn hundredths(number: f64) -> String {
    format!("{number:.2}")
}

/// `2.57 [2.50-2.71]`: median, minimum and maximum; the number alone where there is only one.
pub(crate) fn spread(spread: &Spread, number: fn(f64) -> String) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(number);
    if spread.count == 1 { median } else { format!("{median} [{min}-{max}]") }
}

#[cfg(test)]
mod tests;
