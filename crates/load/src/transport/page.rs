//! The report as a self-contained page, without scripts.

use askama::Template as _;
use onrush_text::numbers::{Unit, bytes, grouped};

use super::report::{Interval, TransportReport};
use crate::chart::{Axis, Line, Lines, lines};
use crate::report::Page;

/// A line's name, and its value for an interval.
type Shown = (&'static str, fn(&Interval) -> f64);

const RATES: [Shown; 4] = [
    ("due", |of| of.due as f64 / of.seconds),
    ("right echoes", |of| of.right as f64 / of.seconds),
    ("refused", |of| of.refused as f64 / of.seconds),
    ("wrong", |of| of.wrong as f64 / of.seconds),
];
const PROCESSOR: [Shown; 2] =
    [("server", |of| of.server.cpu_percent), ("client", |of| of.client.cpu_percent)];
const MEMORY: [Shown; 2] =
    [("server", |of| of.server.rss as f64), ("client", |of| of.client.rss as f64)];
const ROUND_TRIP: [Shown; 3] = [
    ("p50", |of| of.round_trip.p50),
    ("p99", |of| of.round_trip.p99),
    ("maximum", |of| of.round_trip.max),
];

impl TransportReport {
    /// The report as one HTML page.
    ///
    /// # Panics
    /// Never: rendering into text does not fail.
    pub fn to_html(&self) -> String {
        let tool = ("onrush-load", self.version.clone());
        let machine = self.environment.iter().flat_map(|machine| machine.facts());
        let wrong = self.examples.iter().map(|text| ("wrong", text.clone()));
        let page = Page {
            title: format!(
                "{} under load: {} connections of {} streams",
                self.stack,
                grouped(self.shape.connections),
                grouped(self.shape.streams)
            ),
            verdict: self.verdict(),
            headline: self.headline(),
            warnings: &self.warnings,
            plots: self.plots(),
            grids: Vec::new(),
            findings: [("", &[]); 2],
            lists: vec![
                ("Figures", self.figures()),
                ("Setup", self.setup()),
                ("Wrong echoes", wrong.collect()),
                ("Machine", std::iter::once(tool).chain(machine).collect()),
            ],
            command: &self.command,
        };
        page.render().expect("rendering into text does not fail")
    }

    fn headline(&self) -> Vec<(&'static str, String, String)> {
        let cpu = |us: f64| format!("{us:.2}");
        let unit = || "us of CPU time per echo".to_owned();
        vec![
            ("echoes", grouped(self.echo_rate), "per second".into()),
            ("server", cpu(self.server.us_per_echo), unit()),
            ("client", cpu(self.client.us_per_echo), unit()),
            ("server's memory", bytes(self.server.rss), "resident".into()),
            ("client's memory", bytes(self.client.rss), "resident".into()),
            ("round trip p99", Unit::Micros.label(self.round_trip.p99), String::new()),
        ]
    }

    fn plots(&self) -> Vec<String> {
        let plot = |title: &str, y: Axis, shown: &[Shown]| {
            let point = |of: fn(&Interval) -> f64| {
                let middle = |interval: &Interval| interval.time - interval.seconds / 2.0;
                self.series.iter().map(move |interval| (middle(interval), of(interval)))
            };
            let begin = |phase: &str| {
                let first = self.series.iter().find(|interval| interval.phase == phase);
                first.map(|interval| interval.time - interval.seconds)
            };
            let spans = begin("measure").map(|start| ("ramp", 0.0, start));
            lines(&Lines {
                title: title.into(),
                x: Axis::linear("seconds since the start"),
                y,
                lines: shown.iter().map(|(name, of)| Line::new(*name, point(*of))).collect(),
                spans: spans.into_iter().collect(),
            })
        };
        let percentiles = self.curve.iter().map(|point| (point.share, point.latency));
        vec![
            plot("Echoes over time", Axis::linear("per second"), &RATES),
            plot("Processor time", Axis::linear("percent of one vCPU"), &PROCESSOR),
            plot("Memory", Axis::linear("resident").unit(Unit::Bytes), &MEMORY),
            plot("Round trips", Axis::log("time").unit(Unit::Micros), &ROUND_TRIP),
            lines(&Lines {
                title: "Round trips by percentile".into(),
                x: Axis::nines("share of echoes that took no longer"),
                y: Axis::log("time").unit(Unit::Micros),
                lines: vec![Line::new("round trip", percentiles)],
                spans: Vec::new(),
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::transport::report::tests::example;

    #[test]
    fn the_page_stands_by_itself_and_escapes() {
        let mut report = example();
        report.examples.push("<script>".into());
        let page = report.to_html();
        for outside in ["<script", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for part in ["quic under load: 500 connections", "Echoes over time", "us of CPU time"] {
            assert!(page.contains(part), "{part:?} is not in the page");
        }
    }
}
