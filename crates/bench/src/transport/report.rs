//! The report of transports: tables in Markdown, and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use onrush_load::chart::{Axis, Bar, Bars, bars};
use onrush_load::stats::Spread;
use onrush_load::transport::{SideReport, StackKind, TransportReport};
use onrush_text::numbers::{Unit, grouped};
use onrush_text::times::date;

use super::summary::{PAIRS, PUBLISHED, Ratio, Summary};
use super::{Program, TransportCase, TransportPlan, TransportSettings};
use crate::contender::Listed;
use crate::record;
use crate::report::picture::{range, stacked};
use crate::report::{hundredths, line, list, percent, spread};

/// The file name of the picture.
const PICTURE: &str = "report.svg";

/// Differences between this set-up and the published one, besides the ramp.
const DIFFERENCES: [&str; 6] = [
    "One host: server and client are processes on a vCPU each, joined by the loopback interface, \
     which has no network card and carries packets of 64 KiB over TCP. The published ones were two \
     c5.2xlarge instances (8 vCPUs, 16 GiB) of one network.",
    "No network: nothing is lost or delayed, unless a side is saturated.",
    "CPU time is per echo that came. The published figures are of CPU usage at the rate that each \
     transport reached. A saturated side answers fewer echoes than are due, and spends more on \
     each.",
    "Memory is what is resident when the last echoes of the window have come, or two seconds after \
     it. The published figure is an average.",
    "go-libp2p is a recent version on its transports alone, without a host, and with GOMAXPROCS=1 \
     on its vCPU. onrush-load has one thread per side.",
    "TCP of onrush-load is not encrypted. go-libp2p's is (Noise), so our TLS is beside it.",
];

/// Reads `directory`, writes its report there, and returns the text.
///
/// # Errors
/// When there are no results, or nothing can be written.
pub fn write(directory: &Path) -> anyhow::Result<String> {
    let plan = TransportPlan::read(directory)?;
    let summary = Summary { plan, records: record::read_lines(directory)? };
    let text = text(&summary);
    for (name, text) in [(PICTURE, &picture(&summary)), ("report.md", &text)] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(text)
}

fn text(summary: &Summary) -> String {
    let plan = &summary.plan;
    let TransportSettings { rounds, seconds, ramp_factor, .. } = &plan.settings;
    let mut text = format!(
        "# Transports compared, {}\n\n\
         Streams write 1,024 bytes every 500 ms, which the server returns. {rounds} rounds in \
         which the programs alternate, each in new processes; {seconds} s measured, after all \
         streams have opened. Medians, with minimum and maximum in brackets. Ratios are within a \
         round. Of two figures with a comma, the first is the server's, the second the client's. \
         Raw results: `raw.jsonl` (`scripts/bench-compare` packs it into `data.tar.gz`).\n\n\
         ![Results]({PICTURE})\n\n## Cost of an echo\n\n",
        date(plan.created)
    );
    costs(&mut text, summary);
    text += "\n## onrush-load beside go-libp2p\n\n";
    pairs(&mut text, summary);
    text += "\n## WebRTC beside TCP and QUIC\n\nHow many times more WebRTC costs.\n\n";
    webrtc(&mut text, summary);
    let ramp = format!(
        "The ramp is {ramp_factor} times that of the published load: one connection per second, \
         on each of which ten streams open per second."
    );
    let differences = DIFFERENCES.iter().map(ToString::to_string).chain([ramp]);
    list(&mut text, "What differs from the published set-up", differences);
    text += "\n## What this means for a tracker\n\n";
    text += &meaning(summary);
    list(&mut text, "Warnings", summary.warnings().into_iter());
    let failures = summary.records.iter().filter_map(|record| {
        let (reason, case) = (record.outcome.as_ref().err()?.replace('\n', " "), &record.case);
        Some(format!("round {} of {} {}: {reason}", record.round, case.name(), case.preset))
    });
    list(&mut text, "Failed measurements", failures);
    let programs = plan.programs.iter().map(|Listed { name, version, text }| {
        format!("{name} {}: {text}", version.as_deref().unwrap_or("**absent**"))
    });
    list(&mut text, "Programs", programs);
    let own = [
        ("pinned".into(), format!("server to vCPU {}, client to {}", plan.cpus[0], plan.cpus[1])),
        ("onrush-bench".into(), plan.version.clone()),
        ("command".into(), format!("`{}`", plan.command)),
    ];
    let facts = plan.machine.iter().cloned().chain(own);
    list(&mut text, "Machine", facts.map(|(name, value)| format!("{name}: {value}")));
    text
}

fn header(text: &mut String, names: &str) -> usize {
    let names: Vec<_> = names.split('|').collect();
    line(text, &names);
    line(text, &vec!["---"; names.len()]);
    names.len()
}

/// A row for each case of the plan, including those without a figure.
fn costs(text: &mut String, summary: &Summary) {
    let columns = header(
        text,
        "load|program and transport|echoes/s|of due|us CPU of the server|us CPU of the client|\
         CPU|RSS|time to connect p50, p99|round trip p50, p99",
    );
    for case in &summary.plan.cases {
        let mut cells = vec![case.preset.clone(), case.name()];
        match figures(summary, case) {
            Some(figures) => cells.extend(figures),
            None if summary.records.iter().any(|record| record.case == *case) => {
                cells.push("**failed**".into());
            }
            None => cells.push("**not done**".into()),
        }
        cells.resize(columns, String::new());
        line(text, &cells);
    }
}

/// The cells of a row from its rate on. A median over fewer than all rounds is marked.
fn figures(summary: &Summary, case: &TransportCase) -> Option<[String; 8]> {
    let of = |figure: fn(&TransportReport) -> f64| summary.spread(case, figure);
    let both = |figure: fn(&SideReport) -> f64, label: fn(f64) -> String| {
        let server = summary.spread(case, |it| figure(&it.server))?;
        let client = summary.spread(case, |it| figure(&it.client))?;
        Some(format!("{}, {}", label(server.median), label(client.median)))
    };
    let micros = |low: Spread, high: Spread| {
        let [low, high] = [low, high].map(|spread| Unit::Micros.label(spread.median));
        format!("{low}, {high}")
    };
    // A saturated side may answer no echo in time.
    let times = match of(|it| it.right as f64)?.median {
        0.0 => "none".to_owned(),
        _ => micros(of(|it| it.round_trip.p50)?, of(|it| it.round_trip.p99)?),
    };
    let (rounds, echoes) = (summary.plan.settings.rounds, of(|it| it.echo_rate)?);
    let mut rate = spread(&echoes, grouped);
    if echoes.count != rounds as usize {
        let _ = write!(rate, " ({} of {rounds})", echoes.count);
    }
    Some([
        rate,
        percent(of(|it| it.echo_rate / it.due_rate * 100.0)?.median),
        spread(&of(|it| it.server.us_per_echo)?, hundredths),
        spread(&of(|it| it.client.us_per_echo)?, hundredths),
        both(|side| side.mean_percent, percent)?,
        both(|side| side.rss as f64, |bytes| Unit::Bytes.label(bytes))?,
        micros(of(|it| it.connect.p50)?, of(|it| it.connect.p99)?),
        times,
    ])
}

/// CPU time and memory of two sides, or `n/a`.
fn ratios(ratio: Option<Ratio>) -> [String; 2] {
    let both = |[server, client]: [f64; 2]| format!("{server:.2}, {client:.2}");
    ratio.map_or_else(|| ["n/a"; 2].map(Into::into), |it| [both(it.cpu), both(it.memory)])
}

/// Ours divided by theirs.
fn pairs(text: &mut String, summary: &Summary) {
    header(text, "load|onrush-load|go-libp2p|CPU per echo|target|memory|target|all echoes|targets");
    for preset in &summary.plan.settings.preset {
        for (ours, theirs, targets) in PAIRS {
            let case = summary.case(preset, Program::OnrushLoad, ours);
            let base = summary.case(preset, Program::GoLibp2p, theirs);
            let ratio = case.zip(base).and_then(|(case, base)| summary.ratio(case, base));
            // The targets are of the published loads.
            let targets = targets.filter(|_| PUBLISHED.iter().any(|(load, ..)| load == preset));
            let target = |which: usize| targets.map_or("".into(), |it| format!("{}", it[which]));
            let answered =
                |case: Option<&TransportCase>| match case.and_then(|case| summary.answered(case)) {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "n/a",
                };
            let [all, base_all] = [answered(case), answered(base)];
            let met = match (targets, ratio) {
                (Some(targets), Some(ratio)) if ratio.meets(targets) && all == "yes" => {
                    if base_all == "yes" { "met" } else { "met beside a saturated reference" }
                }
                (Some(_), Some(_)) => "**not met**",
                (Some(_), None) => "n/a",
                (None, _) => "",
            };
            let [cpu, memory] = ratios(ratio);
            line(
                text,
                &[
                    preset.clone(),
                    ours.as_ref().into(),
                    theirs.as_ref().into(),
                    cpu,
                    target(0),
                    memory,
                    target(1),
                    format!("{all}, {base_all}"),
                    met.into(),
                ],
            );
        }
    }
    *text += "\n*all echoes*: whether all that were due came, of onrush-load and of go-libp2p.\n";
}

/// WebRTC divided by the other transports of the same program, and the published ratios.
fn webrtc(text: &mut String, summary: &Summary) {
    header(text, "load|program|beside|CPU per echo|published|memory|published");
    let preset_of = |case: &&TransportCase| case.stack != StackKind::Webrtc;
    let mut cases: Vec<_> = summary.plan.cases.iter().filter(preset_of).collect();
    let place = |case: &TransportCase| {
        summary.plan.settings.preset.iter().position(|preset| *preset == case.preset)
    };
    cases.sort_by_key(|case| (place(case), case.program));
    for base in cases {
        let TransportCase { preset, stack, program } = base;
        let case = summary.case(preset, *program, StackKind::Webrtc);
        let [cpu, memory] = ratios(case.and_then(|case| summary.ratio(case, base)));
        // Of encrypted transports.
        let plain = (*program, *stack) == (Program::OnrushLoad, StackKind::Tcp);
        let like = if *stack == StackKind::Tls { StackKind::Tcp } else { *stack };
        let published = PUBLISHED.iter().find(|it| it.0 == preset && it.1 == like && !plain);
        let [more_cpu, more_memory] = published.map_or([""; 2], |it| [it.2, it.3]);
        let cells =
            [preset, program.as_ref(), stack.as_ref(), &cpu, more_cpu, &memory, more_memory];
        line(text, &cells);
    }
}

fn meaning(summary: &Summary) -> String {
    let mut text = String::from(
        "A tracker introduces peers to each other: of a WebRTC connection it passes on one offer \
         and one answer, over WebSocket, and none of the data. What the tables show is paid by the \
         peers, for every block, as long as they are connected; a tracker's own cost is that of \
         its messages (docs/BENCHMARKS.md).\n",
    );
    let ours = |stack, preset| summary.case(preset, Program::OnrushLoad, stack);
    for preset in &summary.plan.settings.preset {
        let pair = ours(StackKind::Webrtc, preset).zip(ours(StackKind::Tls, preset));
        if let Some((webrtc, tls)) = pair
            && let Some(ratio) = summary.ratio(webrtc, tls)
            && let Some(cost) = summary.spread(webrtc, |it| it.server.us_per_echo)
        {
            let ([cpu, _], [memory, _], us) = (ratio.cpu, ratio.memory, cost.median);
            let _ = writeln!(
                text,
                "- {preset}: a peer that returns a block of 1,024 bytes over WebRTC spends \
                 {us:.1} us of CPU time on it, {cpu:.1} times as much as over TLS, and holds \
                 {memory:.1} times the memory."
            );
        }
    }
    text
}

/// CPU time per echo and memory of the server, a panel of each for every load.
fn picture(summary: &Summary) -> String {
    let panel = |(preset, memory): (&String, bool)| {
        let bar = |case: &TransportCase| {
            let cost = |it: &TransportReport| match memory {
                true => it.server.rss as f64,
                false => it.server.us_per_echo,
            };
            let value = summary.spread(case, cost)?;
            let pale = case.program == Program::GoLibp2p;
            Some(Bar { name: case.name(), value: value.median, spread: range(&value), pale })
        };
        let cases = summary.plan.cases.iter().filter(|case| case.preset == *preset);
        let (what, axis) = match memory {
            true => ("Memory of the server", Axis::linear("resident memory").unit(Unit::Bytes)),
            false => ("CPU time of the server per echo", Axis::linear("CPU").unit(Unit::Micros)),
        };
        bars(&Bars {
            title: format!("{what}, load: {preset}"),
            y: axis,
            legend: "connections x streams on each; go-libp2p is paler".into(),
            bars: cases.filter_map(bar).collect(),
        })
    };
    let panels: Vec<_> = summary
        .plan
        .settings
        .preset
        .iter()
        .flat_map(|preset| [(preset, false), (preset, true)])
        .collect();
    stacked(panels.into_iter().map(panel))
}
