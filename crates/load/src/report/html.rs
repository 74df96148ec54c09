//! The report as a self-contained page, without scripts.

use askama::Template;

use super::figures::{Grid, by_step, figures, kinds, latencies, rounds, setup};
use super::verdict::verdict;
use super::{CurvePoint, Findings, Report};
use crate::chart::{Axis, Line, Lines, lines};
use crate::series::Sample;
use onrush_text::numbers::{Unit, bytes, grouped};

/// The values of the template, which is that of all reports.
#[derive(Template)]
#[template(path = "page.html")]
pub(crate) struct Page<'a> {
    pub(crate) title: String,
    /// Whether all is right, and the reasons.
    pub(crate) verdict: (bool, Vec<String>),
    pub(crate) headline: Vec<(&'static str, String, String)>,
    pub(crate) warnings: &'a [String],
    pub(crate) plots: Vec<String>,
    pub(crate) grids: Vec<Grid>,
    /// Findings under their titles.
    pub(crate) findings: [(&'static str, &'a [Findings]); 2],
    /// Lists of facts under their titles.
    pub(crate) lists: Vec<(&'static str, Vec<(&'a str, String)>)>,
    pub(crate) command: &'a str,
}

impl Report {
    /// The report as one HTML page.
    ///
    /// # Panics
    /// Never: rendering into text does not fail.
    pub fn to_html(&self) -> String {
        let page = Page {
            title: format!("{} under load", self.setup.targets.join(", ")),
            verdict: verdict(self),
            headline: headline(self),
            warnings: &self.warnings,
            plots: plots(self),
            grids: [rounds(self), by_step(self), Some(kinds(self)), Some(latencies(self))]
                .into_iter()
                .flatten()
                .collect(),
            findings: [
                ("Wrong replies", &self.wrong),
                ("Left open by the BEPs, and done differently", &self.differs),
            ],
            lists: vec![
                ("Figures", figures(self)),
                ("Setup", setup(self)),
                ("Machine", machine(self)),
            ],
            command: &self.command,
        };
        page.render().expect("rendering into text does not fail")
    }
}

fn headline(report: &Report) -> Vec<(&'static str, String, String)> {
    let mut all = Vec::new();
    if let Some(search) = &report.search {
        let unit = if search.confirmed { "requests per second" } else { "not confirmed" };
        let rate = search.found.map_or_else(|| "none".into(), grouped);
        all.push(("highest rate", rate, unit.to_owned()));
    }
    all.extend([
        ("right replies", grouped(report.rate), "per second".to_owned()),
        ("lost", format!("{:.3}", report.loss_percent), "% of requests".into()),
        ("latency p50", Unit::Micros.label(report.latency.p50), String::new()),
        ("latency p99", Unit::Micros.label(report.latency.p99), String::new()),
    ]);
    match &report.ws {
        Some(ws) => {
            let arrived = 100.0 - ws.offers.lost_percent;
            all.push(("messages", grouped(ws.message_rate), "per second".into()));
            all.push(("offers delivered", format!("{arrived:.2}"), "% of those due".into()));
        }
        None => {
            let peers = format!("{:.1}", report.peers_per_reply);
            all.push(("peers per reply", peers, String::new()));
        }
    }
    if let Some(cpu) = report.tracker_cpu {
        all.push(("tracker's CPU", format!("{:.2}", cpu.per_reply), "us per right reply".into()));
    }
    if let Some(tracker) = &report.tracker {
        all.push(("tracker's memory", bytes(tracker.peak_rss), "peak".into()));
    }
    all
}

/// A line's name, and its value for a sample.
type Shown = (&'static str, fn(&Sample) -> Option<f64>);

const LATENCY: [Shown; 3] = [
    ("p50", |s| Some(s.latency.p50)),
    ("p99", |s| Some(s.latency.p99)),
    ("maximum", |s| Some(s.latency.max)),
];
const PROCESSOR: [Shown; 2] =
    [("tracker", |s| Some(s.tracker?.cpu_percent)), ("load tester", |s| s.own_cpu_percent)];
const MEMORY: [Shown; 1] = [("resident", |s| Some(s.tracker?.rss as f64))];

fn plots(report: &Report) -> Vec<String> {
    let over_time = |title, y, shown| over_time(report, title, y, shown);
    let latency = || Axis::log("latency").unit(Unit::Micros);
    let mut plots = vec![
        rates(report),
        over_time("Latency over time", latency(), &LATENCY),
        percentiles(report, latency()),
    ];
    if report.series.iter().any(|sample| sample.tracker.is_some()) {
        let resident = Axis::linear("resident").unit(Unit::Bytes);
        plots.extend([
            over_time("Processor time", Axis::linear("percent of one vCPU"), &PROCESSOR),
            over_time("Memory of the tracker", resident, &MEMORY),
        ]);
    }
    plots
}

/// A picture of lines over time.
fn over_time(report: &Report, title: &str, y: Axis, shown: &[Shown]) -> String {
    let middle = |sample: &Sample| sample.time - sample.seconds / 2.0;
    let line = |(name, of): &Shown| {
        let point = |sample: &Sample| (middle(sample), of(sample).unwrap_or(f64::NAN));
        // No requests are sent while the run drains, so samples of the drain are left out.
        let under_load = report.series.iter().filter(|sample| sample.phase != "drain");
        Line::new(*name, under_load.map(point))
    };
    let warmup = report.setup.load.warmup;
    let spans = (warmup > 0.0).then_some(("warm-up", 0.0, warmup));
    lines(&Lines {
        title: title.into(),
        x: Axis::linear("seconds since the start"),
        y,
        lines: shown.iter().map(line).collect(),
        spans: spans.into_iter().collect(),
    })
}

fn rates(report: &Report) -> String {
    let mut shown: Vec<Shown> =
        vec![("sent", |s| Some(s.sent_rate())), ("right replies", |s| Some(s.rate()))];
    if report.series.iter().any(|sample| sample.lost > 0) {
        shown.push(("lost", |s| Some(s.lost as f64 / s.seconds)));
    }
    if report.series.iter().any(|sample| sample.wrong > 0) {
        shown.push(("wrong replies", |s| Some(s.wrong as f64 / s.seconds)));
    }
    over_time(report, "Rate over time", Axis::linear("per second"), &shown)
}

fn percentiles(report: &Report, y: Axis) -> String {
    let line = |name: &str, curve: &[CurvePoint]| {
        Line::new(name, curve.iter().map(|point| (point.share, point.latency)))
    };
    let kinds = report.kinds.iter().map(|kind| (kind.kind.as_ref(), &kind.curve));
    let exchanged = report.ws.iter().flat_map(|ws| {
        [("offer", &ws.offers), ("answer", &ws.answers)].map(|(name, of)| (name, &of.curve))
    });
    let shown = kinds.chain(exchanged).filter(|(_, curve)| !curve.is_empty());
    lines(&Lines {
        title: "Latency by percentile".into(),
        x: Axis::nines("share of replies that took no longer"),
        y,
        lines: shown.map(|(name, curve)| line(name, curve)).collect(),
        spans: Vec::new(),
    })
}

fn machine(report: &Report) -> Vec<(&str, String)> {
    let Some(machine) = &report.environment else { return Vec::new() };
    let tool = ("onrush-load", report.version.clone());
    std::iter::once(tool).chain(machine.facts()).collect()
}

#[cfg(test)]
mod tests {
    use crate::report::search::{Purpose, Round, Verdict};
    use crate::report::tests::example;

    #[test]
    fn a_search_is_shown_round_by_round() {
        let mut report = example();
        assert!(!report.to_html().contains("search for the highest rate"), "there was none");
        let mut search = crate::report::search::tests::example();
        let failed = search.rounds[0].clone();
        let held = Round { verdict: Verdict::Held, purpose: Purpose::Confirm, ..failed };
        search.rounds.push(held);
        report.search = Some(search);
        let page = report.to_html();
        let (_, table) = page.split_once("<h2>The search for the highest rate</h2>").unwrap();
        let (table, _) = table.split_once("</table>").unwrap();
        assert_eq!(table.matches("<tr>").count(), 3, "{table}");
        for part in ["grow", "20,000", "confirm", "<td>held</td>", "loss 3.000 %"] {
            assert!(table.contains(part), "{part} is not in {table}");
        }
        let first = page.split("class=\"figures\"").nth(1).unwrap().split("</div>").next().unwrap();
        assert!(first.contains("highest rate") && first.contains("12,346"), "{first}");
        let verdict = page.split("class=\"verdict").nth(1).unwrap().split("</p>").next().unwrap();
        assert!(verdict.contains("12,346 requests per second"), "{verdict}");
    }

    #[test]
    fn the_page_stands_by_itself_and_escapes() {
        let mut report = example();
        report.wrong[0].examples[0].asked = "<script>alert(1)</script>".into();
        report.command = "onrush-load --seed 7".into();
        let page = report.to_html();
        assert!(!page.contains("<script"), "escaped, and no scripts of its own");
        assert!(page.contains("&#60;script&#62;") || page.contains("&lt;script&gt;"), "{page}");
        for outside in ["src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in [
            "Rate over time",
            "Latency over time",
            "Latency by percentile",
            "1 of 1,001 replies were wrong",
            "dead",
            "onrush-load --seed 7",
            "a notice",
            "prefers-color-scheme",
        ] {
            assert!(page.contains(part), "{part:?} is not in the page");
        }
        assert_eq!(page.matches("<svg").count(), 3, "no tracker was watched");
    }
}
