//! The result of a run: figures for machines, and text for people.

use onrush_text::numbers::{Unit, bytes, grouped};
use serde::{Deserialize, Serialize};

use super::client::{Outcome, SHORTEST, Task};
use super::echoes::{PERIOD, Shape};
use super::pattern::BLOCK;
use crate::cpu::Cpu;
use crate::environment::Environment;
use crate::latency::Latency;
use crate::report::{CurvePoint, Fact, TrackerReport, curve};
use crate::series::{ProcessSample, Sample};
use crate::text::{fact, wrapped};

/// The version of the JSON. Keys are only added under one version.
pub const FORMAT: u32 = 1;
/// Percent of its vCPU above which a side is at its limit.
const FULL_PERCENT: f64 = 95.0;
/// Microseconds by which the client may write late at p99.
const LATE: f64 = 50_000.0;
/// Percent of due echoes below which the rate was not reached.
const REACHED_PERCENT: f64 = 99.9;

/// A run's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransportReport {
    /// [`FORMAT`].
    pub format: u32,
    /// This tool's version.
    pub version: String,
    /// Start of the run, in seconds since 1970.
    pub started: u64,
    /// The command line that repeats the run.
    pub command: String,
    /// The transport.
    pub stack: String,
    /// The size of the load.
    pub shape: Shape,
    /// Bytes of a block.
    pub block: usize,
    /// Seconds between two blocks of a stream.
    pub period: f64,
    /// The vCPUs that server and client were pinned to.
    pub pin: [Option<usize>; 2],
    /// Seconds of the measured window.
    pub seconds: f64,
    /// Blocks due within the window.
    pub due: u64,
    /// Those that the client did not write, as the transport had no room, or eight blocks of the
    /// stream were without an echo.
    pub refused: u64,
    /// Those whose echo was right.
    pub right: u64,
    /// Wrong echoes of the whole run.
    pub wrong: u64,
    /// The first of them.
    pub examples: Vec<String>,
    /// Blocks due per second.
    pub due_rate: f64,
    /// Right echoes per second that arrived within the window.
    pub echo_rate: f64,
    /// From the due time of a block to its echo.
    pub round_trip: Latency,
    /// The distribution of the same.
    pub curve: Vec<CurvePoint>,
    /// From the due time of a block to its writing: the client's own part of the round trip.
    pub behind: Latency,
    /// Time to connect.
    pub connect: Latency,
    /// Connections that ended during the run.
    pub lost_connections: u32,
    /// The server's process.
    pub server: SideReport,
    /// The client's process.
    pub client: SideReport,
    /// The measuring machine.
    pub environment: Option<Environment>,
    /// The run over time, ramp and drain included.
    pub series: Vec<Interval>,
    /// Reasons to doubt these figures.
    pub warnings: Vec<String>,
}

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// CPU time within the window, in seconds.
    pub cpu: Cpu,
    /// The same in percent of one vCPU.
    pub mean_percent: f64,
    /// The lowest of the samples that are long enough; the mean without any.
    pub min_percent: f64,
    /// The highest of the same.
    pub max_percent: f64,
    /// Microseconds of CPU time per echo.
    pub us_per_echo: f64,
    /// Resident memory in bytes, when the last echoes of the window have come, or two seconds
    /// after it.
    pub rss: u64,
    /// Peak resident memory, in bytes.
    pub peak_rss: u64,
    /// Datagrams that the kernel dropped because its receive buffers were full, over the whole run;
    /// none where its sockets are not readable.
    pub drops: Option<u64>,
    /// Echoes that the server could not write.
    pub refused: u64,
    /// Datagrams that the kernel refused to send.
    pub unsent: u64,
}

/// One interval of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its end, in seconds since the start of the run.
    pub time: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// `ramp`, `measure` or `drain`.
    pub phase: String,
    /// Connections established so far.
    pub connections: u32,
    /// Streams opened so far.
    pub streams: u32,
    /// Blocks that were due.
    pub due: u64,
    /// Blocks that were not written.
    pub refused: u64,
    /// Right echoes.
    pub right: u64,
    /// Wrong echoes.
    pub wrong: u64,
    /// From the due time of a block to its echo.
    pub round_trip: Latency,
    /// The server's process.
    pub server: ProcessSample,
    /// The client's process.
    pub client: ProcessSample,
}

impl Interval {
    /// The same as a sample of a load, for the progress bar.
    pub(super) fn to_sample(&self) -> Sample {
        let Self { time, seconds, right, wrong, .. } = *self;
        let (phase, latency) = (self.phase.clone(), self.round_trip);
        Sample {
            time,
            seconds,
            phase,
            sent: self.due - self.refused,
            right,
            wrong,
            lost: self.refused,
            latency,
            ..Sample::default()
        }
    }
}

/// What was observed of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    cpu: Cpu,
    rss: u64,
    peak_rss: u64,
    drops: Option<u64>,
}

impl Observed {
    /// Memory and drops of a process, and its CPU time within the window.
    pub(super) fn new(process: TrackerReport, cpu: Cpu) -> Self {
        let TrackerReport { rss, peak_rss, drops, .. } = process;
        Self { cpu, rss, peak_rss, drops }
    }
}

/// What was counted of a side.
#[derive(Clone, Copy, Debug)]
pub(super) struct SideCounts {
    pub(super) observed: Observed,
    pub(super) refused: u64,
    pub(super) unsent: u64,
}

impl TransportReport {
    /// The report on a run; machine, command and warnings of the caller are left out.
    pub(super) fn new(task: &Task, outcome: Outcome, pin: [Option<usize>; 2]) -> Self {
        let Outcome { echoes, seconds, series, sides } = outcome;
        let counts = &echoes.measured;
        // The last sample may be cut. A hundredth of a second is much of a short one.
        let shortest = SHORTEST.as_secs_f64();
        let is_whole = |it: &&Interval| it.phase == "measure" && it.seconds >= shortest;
        let percents =
            |of: fn(&Interval) -> f64| series.iter().filter(is_whole).map(of).collect::<Vec<_>>();
        let side = |counts: SideCounts, percents: &[f64]| {
            let SideCounts { observed, refused, unsent } = counts;
            let Observed { cpu, rss, peak_rss, drops } = observed;
            let mean_percent = cpu.total() / seconds * 100.0;
            let extreme = |of: fn(f64, f64) -> f64| {
                percents.iter().copied().reduce(of).unwrap_or(mean_percent)
            };
            SideReport {
                cpu,
                mean_percent,
                min_percent: extreme(f64::min),
                max_percent: extreme(f64::max),
                us_per_echo: cpu.total() * 1e6 / echoes.arrived.max(1) as f64,
                rss,
                peak_rss,
                drops,
                refused,
                unsent,
            }
        };
        let mut report = Self {
            format: FORMAT,
            version: onrush_text::version::version().into(),
            stack: task.stack.as_ref().to_owned(),
            shape: task.shape,
            block: BLOCK,
            period: PERIOD as f64 / 1e9,
            pin,
            seconds,
            due: counts.due,
            refused: counts.refused,
            right: counts.right,
            wrong: counts.wrong,
            due_rate: counts.due as f64 / seconds,
            echo_rate: echoes.arrived as f64 / seconds,
            round_trip: Latency::of(&counts.round_trip.0),
            curve: curve(&counts.round_trip.0),
            behind: Latency::of(&echoes.behind.0),
            connect: Latency::of(&echoes.connect.0),
            lost_connections: echoes.lost.0,
            server: side(sides[0], &percents(|interval| interval.server.cpu_percent)),
            client: side(sides[1], &percents(|interval| interval.client.cpu_percent)),
            ..Self::default()
        };
        (report.examples, report.series) = (echoes.examples, series);
        if let Some(reason) = echoes.lost.1 {
            let lost = report.lost_connections;
            report.warnings.push(format!("{lost} connections ended during the run: {reason}"));
        }
        report.warn();
        report
    }

    /// Due echoes that did not come or were not asked for, in percent.
    pub fn missed_percent(&self) -> f64 {
        (self.due - self.right.min(self.due)) as f64 * 100.0 / self.due.max(1) as f64
    }

    fn warn(&mut self) {
        let mut warnings = Vec::new();
        let (behind, client) = (self.behind.p99, self.client.mean_percent);
        if behind > LATE || client > FULL_PERCENT {
            warnings.push(format!(
                "the load tester was at its limit: it used {client:.0} % of a vCPU and wrote {} \
                 late at p99; the figures of the server are those of what it got",
                Unit::Micros.label(behind)
            ));
        }
        if self.server.mean_percent > FULL_PERCENT {
            let percent = self.server.mean_percent;
            warnings.push(format!("the server was at its limit: {percent:.0} % of a vCPU"));
        }
        if self.pin.contains(&None) {
            let text = "the sides are not pinned to vCPUs of their own: CPU times vary more";
            warnings.push(text.into());
        }
        for (name, side) in [("server", &self.server), ("client", &self.client)] {
            let (drops, SideReport { refused, unsent, .. }) = (side.drops.unwrap_or(0), *side);
            if drops + unsent > 0 {
                warnings.push(format!(
                    "the kernel dropped {drops} datagrams at the {name}'s full buffers and \
                     refused to send {unsent}: sysctl -w net.core.rmem_max=16777216"
                ));
            }
            if refused > 0 {
                warnings.push(format!("the {name} could not write {refused} echoes"));
            }
        }
        self.warnings.extend(warnings);
    }

    /// Whether all echoes were right and came, and the result in sentences.
    pub fn verdict(&self) -> (bool, Vec<String>) {
        let Self { due, right, wrong, refused, .. } = *self;
        let [rate, wanted] = [self.echo_rate, self.due_rate].map(grouped);
        let reached = self.missed_percent() <= 100.0 - REACHED_PERCENT;
        let mut sentences = vec![format!("{rate} echoes per second of {wanted} due.")];
        sentences.push(match (wrong, right) {
            (0, 0) => "No echo came.".into(),
            (0, _) => format!("All {} echoes were right.", grouped(right)),
            _ => format!("{} echoes were wrong.", grouped(wrong)),
        });
        if right + refused < due {
            let text = format!("{} did not come in time.", grouped(due - right - refused));
            sentences.push(text);
        }
        if refused > 0 {
            sentences.push(format!("{} writes were refused.", grouped(refused)));
        }
        (wrong == 0 && right > 0 && reached, sentences)
    }

    /// The load.
    pub(super) fn setup(&self) -> Vec<Fact> {
        let Shape { connections, streams, connect_rate, open_rate } = self.shape;
        let pin = self.pin.map(|cpu| cpu.map_or("none".into(), |cpu| cpu.to_string()));
        vec![
            ("transport", self.stack.clone()),
            ("connections", format!("{}, {connect_rate} per second", grouped(connections))),
            ("streams on each", format!("{}, {open_rate} per second", grouped(streams))),
            ("a stream writes", format!("{} bytes every {} s", self.block, self.period)),
            ("vCPUs", format!("server {}, client {}", pin[0], pin[1])),
            ("measured", format!("{:.1} s with all streams open", self.seconds)),
        ]
    }

    /// The figures.
    pub(super) fn figures(&self) -> Vec<Fact> {
        let side = |side: &SideReport| {
            format!(
                "{:.2} us per echo; {:.1} % of a vCPU ({:.0} to {:.0}); {} resident, {} peak",
                side.us_per_echo,
                side.mean_percent,
                side.min_percent,
                side.max_percent,
                bytes(side.rss),
                bytes(side.peak_rss)
            )
        };
        let [rate, due] = [self.echo_rate, self.due_rate].map(grouped);
        vec![
            ("echoes", format!("{rate} per second of {due} due, {} wrong", grouped(self.wrong))),
            ("refused writes", grouped(self.refused)),
            ("server", side(&self.server)),
            ("client", side(&self.client)),
            ("round trip", percentiles(&self.round_trip)),
            ("written late by", percentiles(&self.behind)),
            ("time to connect", percentiles(&self.connect)),
        ]
    }

    /// The report as text; ends with a line feed.
    pub fn to_table(&self) -> String {
        let (_, sentences) = self.verdict();
        let named = |facts: Vec<Fact>| {
            facts.iter().flat_map(|(name, text)| fact(name, text)).collect::<Vec<_>>()
        };
        let sentences = sentences.iter().flat_map(|text| wrapped("", text)).collect();
        let sections: [Vec<String>; 3] = [sentences, named(self.setup()), named(self.figures())];
        let mut lines = sections.join(&String::new());
        lines.extend(self.examples.iter().flat_map(|text| wrapped("wrong: ", text)));
        lines.extend(self.warnings.iter().flat_map(|text| wrapped("warning: ", text)));
        lines.join("\n") + "\n"
    }
}

fn percentiles(latency: &Latency) -> String {
    let Latency { p50, p99, max, .. } = *latency;
    let [p50, p99, max] = [p50, p99, max].map(|us| Unit::Micros.label(us));
    format!("p50 {p50}, p99 {p99}, max {max}")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::text::WIDTH;
    use crate::transport::echoes::Echoes;
    use crate::transport::stack::StackKind;
    use std::time::Duration;

    pub(crate) fn example() -> TransportReport {
        let latency = Latency { p50: 400.0, p99: 9.99e5, max: 9.99e6, ..Latency::default() };
        let side = SideReport {
            mean_percent: 99.9,
            max_percent: 100.0,
            us_per_echo: 12_345.67,
            rss: 1 << 30,
            peak_rss: 1 << 30,
            ..SideReport::default()
        };
        TransportReport {
            stack: "quic".into(),
            shape: Shape { connections: 500, streams: 100, connect_rate: 1.0, open_rate: 10.0 },
            due: 100,
            right: 100,
            due_rate: 20_000.0,
            echo_rate: 20_000.4,
            round_trip: latency,
            behind: Latency { p99: 1000.0, ..Latency::default() },
            connect: latency,
            server: SideReport { mean_percent: 20.0, ..side },
            client: SideReport { mean_percent: 20.0, ..side },
            pin: [Some(0), Some(1)],
            ..TransportReport::default()
        }
    }

    /// CPU time is of the window. The lowest and the highest sample are of whole ones within it.
    #[test]
    fn cpu_time_is_per_echo_and_in_percent_of_samples() {
        let sides = [[1.0, 0.5], [0.25, 0.25]].map(|[user, system]| SideCounts {
            observed: Observed { cpu: Cpu { user, system }, rss: 1, peak_rss: 2, drops: None },
            refused: 0,
            unsent: 0,
        });
        let task = Task {
            stack: StackKind::Tcp,
            server: Vec::new(),
            shape: Shape { connections: 1, streams: 1, ..Shape::default() },
            seconds: Duration::from_secs(3),
            server_cpu: None,
            swarm: None,
            quiet: true,
        };
        let sample = |phase: &str, seconds, server, client| Interval {
            phase: phase.into(),
            seconds,
            server: ProcessSample { cpu_percent: server, rss: 0 },
            client: ProcessSample { cpu_percent: client, rss: 0 },
            ..Interval::default()
        };
        let of = |series: Vec<Interval>| {
            let mut echoes = Echoes::new(task.shape);
            echoes.arrived = 1500;
            let outcome = Outcome { echoes, seconds: 3.0, series, sides };
            let report = TransportReport::new(&task, outcome, [None; 2]);
            assert_eq!((report.echo_rate, report.server.cpu), (500.0, sides[0].observed.cpu));
            [report.server, report.client].map(|it| {
                (it.us_per_echo, [it.mean_percent, it.min_percent, it.max_percent].map(f64::round))
            })
        };
        let [server, client] = of(vec![
            sample("ramp", 1.0, 0.0, 99.0),
            sample("measure", 1.5, 40.0, 20.0),
            sample("measure", 1.4, 60.0, 14.0),
            sample("measure", 0.1, 400.0, 0.0),
            sample("drain", 1.0, 0.0, 0.0),
        ]);
        assert_eq!(server, (1000.0, [50.0, 40.0, 60.0]));
        let (us, percents) = client;
        assert!((us - 1000.0 / 3.0).abs() < 1e-9 && percents == [17.0, 14.0, 20.0], "{client:?}");
        let [server, _] = of(vec![sample("measure", 0.1, 400.0, 0.0)]);
        assert_eq!(server.1, [50.0; 3], "no sample is long enough");
    }

    fn warned(change: impl FnOnce(&mut TransportReport)) -> Vec<String> {
        let mut report = example();
        change(&mut report);
        report.warn();
        report.warnings
    }

    /// Each by itself; the words name whose limit it is.
    #[test]
    fn limits_and_losses_are_warned_of() {
        assert_eq!(warned(|_| ()), [""; 0]);
        type Change = fn(&mut TransportReport);
        let cases: [(Change, &str); 7] = [
            (|report| report.behind.p99 = 60_000.0, "load tester was at its limit"),
            (|report| report.client.mean_percent = 97.0, "it used 97 % of a vCPU"),
            (|report| report.server.mean_percent = 97.0, "the server was at its limit: 97 %"),
            (|report| report.pin = [None; 2], "not pinned"),
            (|report| report.server.drops = Some(7), "dropped 7 datagrams at the server's"),
            (|report| report.client.unsent = 8, "the client's full buffers and refused to send 8"),
            (|report| report.server.refused = 9, "the server could not write 9 echoes"),
        ];
        for (change, named) in cases {
            let warnings = warned(change);
            assert!(warnings.len() == 1 && warnings[0].contains(named), "{named}: {warnings:?}");
        }
    }

    #[test]
    fn the_verdict_counts_what_did_not_come() {
        let of = |change: fn(&mut TransportReport)| {
            let mut report = example();
            change(&mut report);
            let (good, sentences) = report.verdict();
            (good, sentences.join(" "))
        };
        let all = "20,000 echoes per second of 20,000 due. All 100 echoes were right.";
        assert_eq!(of(|_| ()), (true, all.into()));
        let (good, text) = of(|report| (report.right, report.refused) = (90, 4));
        assert!(!good && text.contains("6 did not come in time. 4 writes were refused."), "{text}");
        let (good, text) = of(|report| report.wrong = 3);
        assert!(!good && text.contains("3 echoes were wrong."), "{text}");
        let (good, text) = of(|report| (report.due, report.right) = (0, 0));
        assert!(!good && text.contains("No echo came."), "{text}");
        let missed = TransportReport { right: 99, ..example() }.missed_percent();
        assert!((missed - 1.0).abs() < 1e-9, "{missed}");
    }

    #[test]
    fn the_table_fits_80_columns() {
        let mut report = example();
        report.warnings.push("a long warning ".repeat(20));
        report.examples.push("connection 1, stream 2, echo 3: its bytes differ".into());
        let table = report.to_table();
        let long = table.lines().find(|line| line.chars().count() > WIDTH);
        assert_eq!(long, None, "{table}");
        assert!(table.contains("wrong: connection 1, stream 2"), "{table}");
        let back: TransportReport =
            serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(back, report);
    }
}
