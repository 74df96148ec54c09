//! The figures of a report, laid out once for the text and for the page.

use super::{CpuReport, ExchangeReport, KindReport, Report, WsReport};
use crate::check::SHORT_LIST;
use crate::http::HttpSettings;
use crate::latency::Latency;
use crate::series::Sample;
use crate::tally::QueueTally;
use crate::ws::WsSettings;
use onrush_text::numbers::{Unit, bytes, grouped};

/// A name and its value.
pub(crate) type Fact = (&'static str, String);

/// A table.
pub(crate) struct Grid {
    pub(crate) title: &'static str,
    /// A sentence above the table.
    pub(crate) note: Option<String>,
    pub(crate) heads: &'static [&'static str],
    /// As many cells as `heads` in each row.
    pub(crate) rows: Vec<Vec<String>>,
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
    let bursts = match (&setup.http, &setup.ws) {
        (Some(http), _) => ("connections", connections(http)),
        (_, Some(ws)) => ("connections", connections_ws(ws)),
        _ if load.bursts => ("bursts", format!("of {}, grouped", load.burst)),
        _ => ("bursts", format!("of {}, single", load.burst)),
    };
    let mut facts = vec![
        ("tracker", setup.targets.join(", ")),
        ("profile", setup.profile.name.clone()),
        ("pace", load.pace.describe()),
        bursts,
        ("seed", load.seed.to_string()),
        ("swarms", grouped(setup.swarms)),
        ("peers", sum(setup.peers)),
        ("source addresses", sum(setup.sources)),
        ("load workers", load.workers.to_string()),
        ("measured", format!("{:.1} s after {:.1} s of warm-up", report.seconds, load.warmup)),
    ];
    if let Some(interface) = &setup.xdp {
        let by = if setup.live_frames { "an XDP program" } else { "AF_XDP" };
        facts.push(("sent by", format!("{by} at {interface}, native")));
    }
    facts
}

/// The settings of connections over HTTP.
fn connections(http: &HttpSettings) -> String {
    let kept = match (http.keep_alive, http.pipeline) {
        (false, _) => "one request each".to_owned(),
        (true, 1) => "kept".into(),
        (true, pipeline) => format!("kept, {pipeline} requests at a time"),
    };
    let tls = match (http.tls, http.resume) {
        (false, _) => "",
        (true, false) => ", with TLS",
        (true, true) => ", with TLS, sessions resumed",
    };
    format!("{}, {kept}{tls}", grouped(http.connections as u64))
}

/// The settings of connections over WebSocket.
fn connections_ws(ws: &WsSettings) -> String {
    let WsSettings { offers, answers, disconnects, sdp, .. } = ws;
    let (idle, tls) =
        (if ws.is_idle { ", idle" } else { "" }, if ws.tls { ", with TLS" } else { "" });
    format!(
        "{}{idle}{tls}; {offers} offers of {} to {} bytes per announce, {:.0} % answered; {:.1} % \
         of the announces end the connection",
        grouped(ws.connections as u64),
        sdp.min,
        sdp.max,
        answers * 100.0,
        disconnects * 100.0
    )
}

/// The figures of a load over WebSocket.
fn figures_ws(ws: &WsReport) -> Vec<Fact> {
    let [opened, failed, ended] = [ws.opened, ws.failed, ws.disconnected].map(grouped);
    let exchanged = |of: &ExchangeReport| {
        let [sent, due, arrived, late] = [of.sent, of.due, of.arrived, of.late].map(grouped);
        format!(
            "{sent} sent, {due} due; {arrived} delivered, {late} late, {:.3} % lost",
            of.lost_percent
        )
    };
    let mut figures = vec![
        ("messages", format!("{} per second, sent and received", grouped(ws.message_rate))),
        ("offers", exchanged(&ws.offers)),
        ("answers", exchanged(&ws.answers)),
        (
            "connections",
            format!("{opened} opened; {failed} failed; {ended} ended by --disconnects"),
        ),
    ];
    if let Some(idle) = &ws.idle {
        let [held, rate] = [idle.held as f64, idle.connect_rate].map(grouped);
        let memory = idle.rss_per_connection.map(|bytes| {
            format!(
                "; {} of the tracker's memory each",
                onrush_text::numbers::bytes(bytes.max(0.0) as u64)
            )
        });
        let text =
            format!("{held} held, opened at {rate} per second{}", memory.unwrap_or_default());
        figures.push(("idle connections", text));
    }
    figures
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
    ];
    match &report.ws {
        Some(ws) => figures.extend(figures_ws(ws)),
        None => figures.push(("peers per reply", peers)),
    }
    if !report.queues.is_empty() {
        figures.push(("queues", queues(report)));
    }
    let cpu = |CpuReport { time, percent, per_reply }| {
        format!(
            "{percent:.0} % ({:.2} s user, {:.2} s system), {per_reply:.3} us per right reply",
            time.user, time.system
        )
    };
    if let Some(http) = &report.http {
        let [opened, resumed, failed] = [http.opened, http.resumed, http.failed].map(grouped);
        let text = format!("{opened} opened, {resumed} of them resumed; {failed} failed");
        figures.push(("connections", text));
    }
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

/// The counts of all queues, from warm-up to drain.
fn queues(report: &Report) -> String {
    let sum = |count: fn(&QueueTally) -> u64| grouped(report.queues.iter().map(count).sum::<u64>());
    format!(
        "{}: {} received, {} of {} requests sent, {} blocked, {} dropped",
        report.queues.len(),
        sum(|queue| queue.received),
        sum(|queue| queue.sent),
        grouped(report.datagrams_sent),
        sum(|queue| queue.blocked),
        sum(|queue| queue.dropped)
    )
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
    // Connections that are kept may all be older than the window.
    let opened = report.http.iter().filter(|http| http.opened > 0);
    let handshake = opened.map(|http| row("handshake", &http.handshake));
    let first_byte = report.http.iter().map(|http| row("first byte", &http.first_byte));
    let ws = report.ws.iter().flat_map(|ws| {
        let handshake = (ws.opened > 0).then(|| row("handshake", &ws.handshake));
        let exchanged = [("offer", &ws.offers), ("answer", &ws.answers)];
        let exchanged = exchanged.into_iter().filter(|(_, of)| of.arrived > 0);
        handshake.into_iter().chain(exchanged.map(|(name, of)| row(name, &of.latency)))
    });
    let rows = handshake.chain(first_byte).chain(ws).chain(rows);
    Grid {
        title: "Latency by kind of request",
        note: None,
        heads: &["latency", "p50", "p90", "p99", "p99.9", "max"],
        rows: rows.chain([row("all", &report.latency)]).collect(),
    }
}

/// The kinds of request that were sent.
fn sent(report: &Report) -> impl Iterator<Item = &KindReport> {
    report.kinds.iter().filter(|kind| kind.requests > 0)
}

/// A row per step of the load, of its samples together; none where it has only one. A request is
/// lost a timeout after it was sent, so the losses of a step are in later samples.
pub(super) fn by_step(report: &Report) -> Option<Grid> {
    let measured = || report.series.iter().filter(|sample| sample.phase.starts_with("step "));
    let mut names: Vec<&str> = measured().map(|sample| sample.phase.as_str()).collect();
    names.dedup();
    let row = |name: &str| {
        let samples: Vec<&Sample> = measured().filter(|sample| sample.phase == name).collect();
        let sum = |of: fn(&Sample) -> f64| samples.iter().map(|sample| of(sample)).sum::<f64>();
        let seconds = sum(|sample| sample.seconds);
        let sent = sum(|sample| sample.sent as f64);
        let right = sum(|sample| sample.right as f64);
        // Percentiles do not add up.
        let p99 = samples.iter().map(|sample| sample.latency.p99).fold(0.0, f64::max);
        let start = samples.first().map_or(0.0, |sample| sample.time - sample.seconds);
        let end = samples.last().map_or(0.0, |sample| sample.time);
        let sent_then = |sample: &&Sample| {
            let middle = sample.time - sample.seconds / 2.0 - report.setup.load.timeout;
            start <= middle && middle < end
        };
        let lost = report.series.iter().filter(sent_then).map(|sample| sample.lost).sum::<u64>();
        vec![
            name.trim_start_matches("step ").replace(" per second", "/s"),
            format!("{seconds:.1} s"),
            grouped(sent / seconds),
            grouped(right / seconds),
            format!("{:.3} %", lost as f64 * 100.0 / sent.max(1.0)),
            Unit::Micros.label(p99),
        ]
    };
    (!names.is_empty()).then(|| Grid {
        title: "By step",
        note: None,
        heads: &["step", "measured", "sent/s", "right/s", "lost", "p99 max"],
        rows: names.into_iter().map(row).collect(),
    })
}

/// A row per round of the search, where this is the result of one.
pub(super) fn rounds(report: &Report) -> Option<Grid> {
    let search = report.search.as_ref()?;
    Some(Grid {
        title: "The search for the highest rate",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: f64, phase: &str, right: u64, lost: u64, p99: f64) -> Sample {
        let latency = Latency { p99, ..Latency::default() };
        let phase = phase.into();
        let sent = right + 100;
        Sample { time, phase, seconds: 0.5, sent, right, lost, latency, ..Sample::default() }
    }

    /// Requests of the first step are lost in the second one, as the timeout is a second.
    #[test]
    fn a_step_has_its_samples_and_its_losses() {
        let mut report = super::super::tests::example();
        assert_eq!(report.setup.load.timeout, 1.0);
        let (one, two) = ("step 1: 1,000 per second", "step 2: 2,000 per second");
        report.series = vec![
            sample(0.5, "warm-up", 900, 0, 9e9),
            sample(1.0, one, 500, 7, 100.0),
            sample(1.5, one, 300, 7, 300.0),
            sample(2.0, two, 900, 60, 200.0),
            sample(2.5, two, 900, 40, 200.0),
            sample(3.0, "drain", 0, 30, 9e9),
            sample(3.5, "drain", 0, 10, 9e9),
        ];
        let wanted = [
            ["1: 1,000/s", "1.0 s", "1,000", "800", "10.000 %", "300 us"],
            ["2: 2,000/s", "1.0 s", "2,000", "1,800", "2.000 %", "200 us"],
        ];
        assert_eq!(by_step(&report).unwrap().rows, wanted);
        let shown = report.to_table();
        assert!(shown.contains("2: 2,000/s"), "{shown}");
        assert!(report.to_html().contains("1: 1,000/s"));
    }

    #[test]
    fn a_load_of_one_rate_has_no_steps() {
        let mut report = super::super::tests::example();
        report.series = vec![sample(0.5, "measure", 10, 0, 1.0)];
        assert!(by_step(&report).is_none());
        assert!(!report.to_table().contains("1: "));
    }
}
