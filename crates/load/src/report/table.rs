//! The report as a table.

use std::fmt::Write as _;

use super::steps::steps;
use super::{CpuReport, Findings, KindReport, Report};
use crate::latency::Latency;
use crate::number::grouped;

/// The whole table; ends with a line feed.
pub(super) fn table(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    kinds(&mut out, report);
    figures(&mut out, report);
    for step in steps(report) {
        line(&mut out, format_args!("{}", step.line()));
    }
    findings(&mut out, "wrong replies", &report.wrong);
    findings(&mut out, "different within what BEP 15 leaves open", &report.differs);
    if let Some(search) = &report.search {
        out += &search.to_table();
    }
    for warning in &report.warnings {
        line(&mut out, format_args!("warning: {warning}"));
    }
    out
}

/// Writing to a string does not fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

fn head(out: &mut String, report: &Report) {
    let setup = &report.setup;
    let pace = setup.pace.describe();
    let bursts = if setup.bursts { "grouped" } else { "single" };
    let replies = if setup.coalescing { "" } else { ", replies one by one" };
    line(
        out,
        format_args!(
            "{}: profile {}, seed {}, {pace}, {} worker(s), {} source addresses, bursts of {} \
             {bursts}{replies}",
            setup.targets.join(", "),
            setup.profile.name,
            setup.seed,
            setup.workers,
            setup.sources[0] + setup.sources[1],
            setup.burst,
        ),
    );
    line(
        out,
        format_args!(
            "{} swarms, {} peers; measured {:.1} s after {:.1} s of warm-up\n",
            grouped(f64::from(setup.swarms)),
            grouped(f64::from(setup.peers[0]) + f64::from(setup.peers[1])),
            report.seconds,
            setup.warmup,
        ),
    );
}

fn kinds(out: &mut String, report: &Report) {
    line(
        out,
        format_args!(
            "{:<12}{:>12}{:>12}{:>9}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}",
            "",
            "requests",
            "right",
            "wrong",
            "lost",
            "p50 us",
            "p90 us",
            "p99 us",
            "p99.9 us",
            "max us"
        ),
    );
    for kind in report.kinds.iter().filter(|kind| kind.requests > 0) {
        row(out, kind.kind.name(), kind, kind.kind.is_answered());
    }
    let sum = |of: fn(&KindReport) -> u64| report.kinds.iter().map(of).sum();
    let all = KindReport {
        requests: sum(|kind| kind.requests),
        right: sum(|kind| kind.right),
        wrong: sum(|kind| kind.wrong),
        lost: sum(|kind| kind.lost),
        latency: report.latency,
        ..report.kinds[0].clone()
    };
    row(out, "all", &all, true);
    let others = report.wrong_replies().saturating_sub(all.wrong);
    if others > 0 {
        let others = grouped(others as f64);
        line(out, format_args!("and {others} wrong replies to no request in flight"));
    }
}

fn row(out: &mut String, name: &str, kind: &KindReport, answered: bool) {
    let KindReport { requests, right, wrong, lost, .. } = kind;
    if !answered {
        return line(out, format_args!("{name:<12}{requests:>12}{:>12}", "(silence)"));
    }
    let Latency { p50, p90, p99, p999, max, .. } = kind.latency;
    line(
        out,
        format_args!(
            "{name:<12}{requests:>12}{right:>12}{wrong:>9}{lost:>9}\
             {p50:>11.0}{p90:>10.0}{p99:>10.0}{p999:>10.0}{max:>10.0}"
        ),
    );
}

fn figures(out: &mut String, report: &Report) {
    let megabits = report.reply_megabits;
    line(out, format_args!(""));
    line(
        out,
        format_args!(
            "right replies     {} per second ({megabits:.1} Mbit/s)",
            grouped(report.rate)
        ),
    );
    line(out, format_args!("sent              {} per second", grouped(report.sent_rate)));
    line(
        out,
        format_args!("loss              {:.3} % ({} late)", report.loss_percent, report.late),
    );
    line(
        out,
        format_args!(
            "peers per reply   {:.2} ({:.0} % of them checked: lists over {} one in {} in full)",
            report.peers_per_reply,
            report.peers_checked_percent,
            crate::check::SHORT_LIST,
            report.setup.strictness.sample,
        ),
    );
    cpu(out, "tracker CPU", report.tracker_cpu);
    cpu(out, "load tester CPU", report.own_cpu);
    if let Some(tracker) = &report.tracker {
        let [rss, peak] = [tracker.rss, tracker.peak_rss].map(|bytes| bytes as f64 / 1048576.0);
        let drops = tracker.drops.map_or("not readable".into(), |drops| grouped(drops as f64));
        line(
            out,
            format_args!(
                "tracker memory    {rss:.1} MiB, {peak:.1} MiB peak; dropped at its sockets: \
                 {drops}"
            ),
        );
    }
}

fn cpu(out: &mut String, name: &str, cpu: Option<CpuReport>) {
    if let Some(CpuReport { time, percent, per_reply }) = cpu {
        let (user, system) = (time.user, time.system);
        line(
            out,
            format_args!(
                "{name:<18}{percent:.0} % ({user:.2} s user, {system:.2} s system), \
                 {per_reply:.3} us per right reply"
            ),
        );
    }
}

fn findings(out: &mut String, title: &str, all: &[Findings]) {
    if all.is_empty() {
        return;
    }
    line(out, format_args!("\n{title}:"));
    for findings in all {
        line(out, format_args!("{:>12}  {}", findings.count, findings.text));
        for example in &findings.examples {
            let more = if example.reply.len() < example.len * 2 { "..." } else { "" };
            line(out, format_args!("{:>14}asked: {}", "", example.asked));
            line(
                out,
                format_args!("{:>14}reply: {}{more} ({} bytes)", "", example.reply, example.len),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_has_the_main_figures() {
        let table = super::super::tests::example().to_table();
        for part in [
            "announce            1010        1000        0       10",
            "junk                  90   (silence)",
            "500 per second",
            "1500.000 us per right reply",
            "and 1 wrong replies to no request",
            "peer listed twice",
            "reply: dead (2 bytes)",
            "what BEP 15 leaves open",
            "warning: a notice",
        ] {
            assert!(table.contains(part), "{part:?} is not in:\n{table}");
        }
        assert!(table.lines().all(|line| line.len() < 180));
    }
}
