//! The figures of a report, laid out once for the text and for the page.

use super::{CpuReport, KindReport, Report, steps};
use crate::check::SHORT_LIST;
use crate::latency::Latency;
use onrush_text::numbers::{Unit, bytes, grouped};

/// A name and its value.
pub(super) type Fact = (&'static str, String);

/// A table.
pub(super) struct Grid {
    pub(super) title: &'static str,
    /// The class of the table in the page.
    pub(super) class: &'static str,
    /// A sentence above the table.
    pub(super) note: Option<String>,
    pub(super) heads: &'static [&'static str],
    /// As many cells as `heads` in each row.
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    /// Lines of text: the first column starts at the left, the others end at the right.
    pub(super) fn lines(&self) -> Vec<String> {
        let heads: Vec<String> = self.heads.iter().map(ToString::to_string).collect();
        let lines = || std::iter::once(&heads).chain(&self.rows);
        let width = |n: usize| lines().map(|cells| cells[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let mut text = format!("{:<1$}", cells[0], widths[0]);
            for (cell, width) in cells.iter().zip(&widths).skip(1) {
                text += &format!("  {cell:>width$}");
            }
            text.trim_end().to_owned()
        };
        lines().map(line).collect()
    }
}

/// The load and its sources.
pub(super) fn setup(report: &Report) -> Vec<Fact> {
    let (setup, load) = (&report.setup, &report.setup.load);
    let sum = |[v4, v6]: [u32; 2]| grouped(u64::from(v4) + u64::from(v6));
    let segments = if load.bursts { "grouped" } else { "single" };
    let replies = if load.coalescing { "" } else { ", replies one by one" };
    vec![
        ("tracker", setup.targets.join(", ")),
        ("profile", setup.profile.name.clone()),
        ("pace", load.pace.describe()),
        ("bursts", format!("of {}, {segments}{replies}", load.burst)),
        ("seed", load.seed.to_string()),
        ("swarms", grouped(setup.swarms)),
        ("peers", sum(setup.peers)),
        ("source addresses", sum(setup.sources)),
        ("load workers", load.workers.to_string()),
        ("measured", format!("{:.1} s after {:.1} s of warm-up", report.seconds, load.warmup)),
    ]
}

/// The result.
pub(super) fn figures(report: &Report) -> Vec<Fact> {
    let Report { rate, sent_rate, reply_megabits, loss_percent, late, dropped_here, .. } = report;
    let Report { peers_per_reply, peers_checked_percent, .. } = report;
    let [right, sent] = [*rate, *sent_rate].map(grouped);
    let sample = report.setup.load.strictness.sample;
    let peers = format!(
        "{peers_per_reply:.2} ({peers_checked_percent:.0} % of them checked: lists over \
         {SHORT_LIST} one in {sample} in full)"
    );
    let mut figures = vec![
        ("right replies", format!("{right} per second ({reply_megabits:.1} Mbit/s)")),
        ("sent", format!("{sent} per second")),
        ("loss", format!("{loss_percent:.3} % ({late} late, {dropped_here} dropped here)")),
        ("peers per reply", peers),
    ];
    let cpu = |CpuReport { time, percent, per_reply }| {
        format!(
            "{percent:.0} % ({:.2} s user, {:.2} s system), {per_reply:.3} us per right reply",
            time.user, time.system
        )
    };
    let thread = report.tracker_busiest_percent.map(|percent| format!("{percent:.0} %"));
    figures.extend(report.tracker_cpu.map(|tracker| ("tracker CPU", cpu(tracker))));
    figures.extend(thread.map(|text| ("busiest thread", text)));
    figures.extend(report.own_cpu.map(|own| ("load tester CPU", cpu(own))));
    if let Some(tracker) = &report.tracker {
        let [rss, peak] = [tracker.rss, tracker.peak_rss].map(bytes);
        let drops = tracker.drops.map_or("not readable".into(), grouped);
        let text = format!("{rss}, {peak} peak; dropped at its sockets: {drops}");
        figures.push(("tracker memory", text));
    }
    figures
}

/// Counts: a row per kind of request, and one of all.
pub(super) fn kinds(report: &Report) -> Grid {
    let counts =
        |kind: &KindReport| [kind.requests, kind.right, kind.wrong, kind.lost, kind.repeats];
    let row = |kind: &KindReport| {
        let mut cells = counts(kind).map(grouped);
        if !kind.kind.is_answered() {
            // Silence is their right reply.
            cells[1..].fill(String::new());
            cells[1] = "silence".into();
        }
        std::iter::once(kind.kind.as_ref().to_owned()).chain(cells).collect()
    };
    let all = report.kinds.iter().map(counts);
    let all = all.fold([0; 5], |sums, of| std::array::from_fn(|n| sums[n] + of[n]));
    let all = std::iter::once("all".to_owned()).chain(all.map(grouped)).collect();
    Grid {
        title: "By kind of request",
        class: "kinds",
        note: None,
        heads: &["kind", "requests", "right", "wrong", "lost", "repeats"],
        rows: sent(report).map(row).chain([all]).collect(),
    }
}

/// Latencies: a row per kind of request that is answered, and one of all.
pub(super) fn latencies(report: &Report) -> Grid {
    let row = |name: &str, latency: &Latency| {
        let Latency { p50, p90, p99, p999, max, .. } = *latency;
        let cells = [p50, p90, p99, p999, max].map(|us| Unit::Micros.label(us));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let answered = sent(report).filter(|kind| kind.kind.is_answered());
    let rows = answered.map(|kind| row(kind.kind.as_ref(), &kind.latency));
    Grid {
        title: "Latency by kind of request",
        class: "latencies",
        note: None,
        heads: &["latency", "p50", "p90", "p99", "p99.9", "max"],
        rows: rows.chain([row("all", &report.latency)]).collect(),
    }
}

/// The kinds of request that were sent.
fn sent(report: &Report) -> impl Iterator<Item = &KindReport> {
    report.kinds.iter().filter(|kind| kind.requests > 0)
}

/// A row per step of the load; none where it has only one.
pub(super) fn by_step(report: &Report) -> Option<Grid> {
    let rows = steps::rows(report);
    (!rows.is_empty()).then_some(Grid {
        title: "By step",
        class: "steps",
        note: None,
        heads: &["step", "measured", "sent/s", "right/s", "lost", "p99 max"],
        rows,
    })
}

/// A row per round of the search, where this is the result of one.
pub(super) fn rounds(report: &Report) -> Option<Grid> {
    let search = report.search.as_ref()?;
    Some(Grid {
        title: "The search for the highest rate",
        class: "rounds",
        note: Some(search.headline()),
        heads: &[
            "round",
            "due per second",
            "right replies",
            "lost",
            "p99",
            "sent late, p99",
            "verdict",
        ],
        rows: search.rounds.iter().map(|round| round.cells().to_vec()).collect(),
    })
}
