//! The load of one measurement, a process on its own vCPUs, and its result.

mod published;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use onrush_load::check::Finding;
use onrush_load::options::number;
use onrush_load::plan::Kind;
use onrush_load::report::{Report, WsReport};
use serde::{Deserialize, Serialize};

use crate::contender::{Launch, Listed, version_by_cargo, version_of_ours};
use crate::cpus::Assignment;
use crate::mix::{Mix, Protocol};
use crate::process::{Child, Stop};
use crate::record::{Measured, Point};

pub use published::Published;

/// The device of a load over veth devices (scripts/bench-xdp).
const VETH: &str = "--xdp onrush1 --live-frames --burst 80";
/// Connections per second that even the slowest tracker accepts by TLS.
const IDLE_PER_SECOND: f64 = 500.0;

/// Durations and population of a load.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
pub struct LoadSettings {
    /// Seconds of a measurement
    #[arg(
        long, value_name = "S", default_value_t = 2.0,
        value_parser = number(0.1..=3600.0, " seconds")
    )]
    pub seconds: f64,

    /// Seconds of load before a measurement
    #[arg(
        long, value_name = "S", default_value_t = 1.0,
        value_parser = number(0.1..=3600.0, " seconds")
    )]
    pub warmup: f64,

    /// Swarms of the population [default: 1,000,000 under real, 560,000 under spread and bursts,
    /// 10,000 over HTTP]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub swarms: Option<u32>,

    /// Idle connections by which a tracker's memory is measured under ws and wss; 0: none
    #[arg(
        long, value_name = "N", default_value_t = 5000,
        value_parser = clap::value_parser!(u32).range(0..=100_000)
    )]
    #[serde(default)]
    pub idle: u32,

    /// The network namespace of a load over veth devices (scripts/bench-xdp)
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub namespace: Option<String>,

    /// Threads of the kernel whose CPU time counts as the tracker's, by process id
    #[arg(long, value_name = "PID,PID", value_delimiter = ',')]
    #[serde(default)]
    pub kernel_threads: Vec<u32>,
}

impl LoadSettings {
    /// Seconds in which idle connections are opened and held.
    pub fn idle_seconds(&self) -> f64 {
        self.seconds.max(f64::from(self.idle) / IDLE_PER_SECOND)
    }
}

/// The load testers.
#[derive(Clone, Debug)]
pub struct Tools {
    /// onrush-load.
    pub ours: PathBuf,
    /// Those of published comparisons that are installed.
    pub published: Vec<Published>,
}

impl Tools {
    /// The tool of published comparisons that makes this load.
    pub fn published(&self, mix: Mix) -> Option<&Published> {
        let name = mix.published_tool()?;
        self.published.iter().find(|tool| tool.name == name)
    }

    /// The load testers of these mixes, with their versions.
    pub fn listed(&self, mixes: &[Mix]) -> Vec<Listed> {
        let listed = |name: &str, version: Option<String>, text: &str| Listed {
            name: name.into(),
            version: Some(version.unwrap_or_else(|| "unknown".into())),
            text: text.into(),
        };
        let ours = mixes.iter().any(|mix| !mix.is_published()).then(|| {
            let version = version_of_ours(&self.ours);
            listed("onrush-load", version, "every reply is checked")
        });
        let named = |name| mixes.iter().any(|mix| mix.published_tool() == Some(name));
        let theirs = self.published.iter().filter(|tool| named(tool.name)).map(|tool| {
            let text = "errors are counted, nothing else is checked";
            listed(tool.name, version_by_cargo(&tool.program, tool.name), text)
        });
        ours.into_iter().chain(theirs).collect()
    }
}

/// One load.
#[derive(Debug)]
pub struct Load<'a> {
    /// The kind of load.
    pub mix: Mix,
    /// The vCPUs.
    pub seats: &'a Assignment,
    /// Durations and population.
    pub dose: &'a LoadSettings,
    /// Whether the replies are meant to be right; otherwise all of them count.
    pub checked: bool,
    /// Whether the tracker does not see the addresses of peers, so that those that it lists are
    /// none of the load's.
    pub proxied: bool,
    /// Seed of population and mix.
    pub seed: u64,
    /// The tracker's address.
    pub address: SocketAddr,
    /// A directory for files.
    pub directory: &'a Path,
}

impl Load<'_> {
    /// Runs the load against the tracker with these process ids: at `rate` requests per second, or
    /// in a closed loop.
    ///
    /// # Errors
    /// When it did not run to its end.
    pub fn run(
        &self,
        tools: &Tools,
        pids: &[u32],
        rate: Option<f64>,
        stop: &Stop,
    ) -> anyhow::Result<Point> {
        let Some(mix) = self.mix.arguments() else {
            let published = tools.published(self.mix);
            return published.context("its load tester is not installed")?.run(self, pids, stop);
        };
        let LoadSettings { seconds, warmup, .. } = self.dose;
        let mut arguments = self.arguments(mix);
        let line = format!("--duration {seconds} --warmup {warmup}");
        arguments.extend(line.split(' ').map(Into::into));
        match (rate.or(self.mix.refused_rate()), self.mix.in_flight()) {
            (Some(rate), _) => arguments.extend(["--rate".into(), format!("{rate:.1}")]),
            (None, Some(limit)) => arguments.extend(["--in-flight".into(), limit.to_string()]),
            (None, None) => {}
        }
        let report = self.report(tools, pids, arguments, stop)?;
        let point = point(&report, self.checked)?;
        Ok(match (&report.ws, self.mix.refused_rate()) {
            (Some(ws), _) => over_ws(&report, ws, point),
            (None, Some(_)) => per_message(point, report.rate + unusable(&report)),
            (None, None) => point,
        })
    }

    /// Idle connections by which memory is measured.
    pub fn idle(&self) -> Option<u32> {
        (self.mix.has_idle() && self.dose.idle > 0).then_some(self.dose.idle)
    }

    /// Opens `connections` idle connections, and measures the memory of the processes `pids` for
    /// each that was held. The result has no figures of a load.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn idle_memory(
        &self,
        connections: u32,
        tools: &Tools,
        pids: &[u32],
        stop: &Stop,
    ) -> anyhow::Result<Measured> {
        let seconds = self.dose.idle_seconds();
        // 256 handshakes of TLS at a time take longer than the default on slow hosts.
        let line = format!("--idle {connections} --duration {seconds} --timeout 10");
        let mut arguments = self.arguments("ws");
        arguments.extend(line.split(' ').map(Into::into));
        of_idle(self.report(tools, pids, arguments, stop)?)
    }

    /// Runs onrush-load with these arguments, and reads its report on the processes `pids`.
    fn report(
        &self,
        tools: &Tools,
        pids: &[u32],
        mut arguments: Vec<String>,
        stop: &Stop,
    ) -> anyhow::Result<Report> {
        let file = self.directory.join("load.json");
        let seconds = self.dose.idle_seconds() + self.dose.warmup + 60.0;
        let limit = Duration::from_secs_f64(seconds);
        let json = ["--quiet", "--json", &file.display().to_string()].map(Into::into);
        arguments.extend(json);
        let observed = [pids, &self.dose.kernel_threads].concat();
        arguments.extend(["--tracker-pid".into(), joined(&observed, ",")]);
        let (child, status) = self.ended(tools, arguments, limit, stop)?;
        // Status 1: some replies were wrong, which is a result.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("onrush-load ended ({status}): {}", child.output_tail());
        }
        let text = fs::read_to_string(&file).context("onrush-load wrote no report")?;
        serde_json::from_str(&text).context("onrush-load's report")
    }

    /// Writes the info hashes of this load's population, a line of 40 hexadecimal digits each.
    ///
    /// # Errors
    /// When onrush-load fails, or this load belongs to another tool.
    pub fn write_hashes(&self, tools: &Tools, file: &Path, stop: &Stop) -> anyhow::Result<()> {
        let mix = self.mix.arguments().context(
            "the load tester does not report its info hashes, so a tracker with an allow list \
             cannot be measured with it",
        )?;
        let mut arguments = self.arguments(mix);
        arguments.extend(["--write-hashes".into(), file.display().to_string()]);
        let (child, status) = self.ended(tools, arguments, Duration::from_secs(300), stop)?;
        if !status.success() {
            bail!("onrush-load --write-hashes ended ({status}): {}", child.output_tail());
        }
        Ok(())
    }

    /// The arguments that determine the population, and workers each on a vCPU of its own.
    fn arguments(&self, mix: &str) -> Vec<String> {
        let (address, seed, cpus) = (self.address, self.seed, &self.seats.load);
        let target = match self.mix.protocol() {
            protocol if protocol.is_udp() => address.to_string(),
            protocol => format!("{protocol}://{address}/announce"),
        };
        let line = format!("{mix} --target {target} --seed {seed}");
        let line = format!("{line} --workers {} --pin {}", cpus.len(), joined(cpus, ","));
        let mut arguments: Vec<String> = line.split(' ').map(Into::into).collect();
        if self.mix.protocol() == Protocol::Veth {
            arguments.extend(VETH.split(' ').map(Into::into));
            arguments.extend(networks());
        }
        // Over WebSocket swarms follow from the connections: an offer needs another member.
        let swarms = self.dose.swarms.filter(|_| !self.mix.protocol().is_webtorrent());
        if let Some(swarms) = swarms {
            arguments.extend(["--swarms".into(), swarms.to_string()]);
        }
        if !self.checked || self.proxied {
            arguments.push("--strangers".into());
        }
        arguments
    }

    /// Runs onrush-load with these arguments to its end.
    fn ended(
        &self,
        tools: &Tools,
        arguments: Vec<String>,
        limit: Duration,
        stop: &Stop,
    ) -> anyhow::Result<(Child, ExitStatus)> {
        let (program, namespace) = (tools.ours.clone(), self.dose.namespace.clone());
        let launch = Launch { program, arguments, namespace, ..Launch::default() };
        let mut child = Child::start(&launch, &self.seats.load, self.directory)?;
        let status = child.wait(limit, stop, || ())?;
        Ok((child, status))
    }
}

/// Datagrams per second that the tracker had to refuse.
fn unusable(report: &Report) -> f64 {
    let refused = report.kinds.iter().filter(|kind| kind.kind == Kind::Unusable);
    refused.map(|kind| kind.requests as f64 / report.seconds).sum()
}

/// A result with the figures of messages or refusals, besides requests that are answered.
fn per_message(point: Point, rate: f64) -> Point {
    let share = point.rate / rate;
    Point {
        rate,
        requests: Some(point.rate),
        cpu_per_reply: point.cpu_per_reply * share,
        load_per_reply: point.load_per_reply.map(|micros| micros * share),
        peers_per_reply: None,
        ..point
    }
}

/// A result with the figures of messages: those sent, and those received that are right and of use.
fn over_ws(report: &Report, ws: &WsReport, point: Point) -> Point {
    let needless = report.differs.iter().filter(|found| found.finding == Finding::AnswerReply);
    let not_counted = point.wrong + needless.map(|found| found.count).sum::<u64>();
    let right = ws.messages_received.saturating_sub(not_counted);
    let rate = (ws.messages_sent + right) as f64 / report.seconds;
    Point { right, ..per_message(point, rate) }
}

/// The figures of idle connections.
fn of_idle(report: Report) -> anyhow::Result<Measured> {
    let idle = report.ws.and_then(|ws| ws.idle).context("no report on idle connections")?;
    if idle.held == 0 {
        bail!("no connection was held: {}", report.warnings.join("; "));
    }
    let bytes = idle.rss_per_connection.context("no memory of idle connections")?;
    Ok(Measured {
        idle_bytes: Some(bytes),
        idle_held: Some(idle.held),
        idle_warnings: report.warnings,
        ..Measured::default()
    })
}

/// The 1,000 addresses of a load over veth devices: replies have few peers of one /24, so a load
/// from few of them costs a tracker of ours more than the clients of public swarms do.
fn networks() -> impl Iterator<Item = String> {
    let four = |network| format!("198.19.{network}.1-198.19.{network}.4");
    (0..250).flat_map(move |network| ["--source".into(), four(network)])
}

fn joined<T: ToString>(items: &[T], separator: &str) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

fn point(report: &Report, checked: bool) -> anyhow::Result<Point> {
    let cpu = report.tracker_cpu.context("the report has no CPU time of the tracker")?;
    let (right, wrong) = (report.right_replies(), report.wrong_replies());
    let findings: Vec<_> =
        report.wrong.iter().map(|found| format!("{}: {}", found.text, found.count)).collect();
    // CPU time per reply needs a right reply.
    match (right, wrong) {
        (0, 0) => bail!("no reply arrived within the measured time"),
        (0, _) => bail!("no reply was right: {}", findings.join("; ")),
        _ => {}
    }
    let all = right + wrong;
    let (right, wrong, findings, counted) = match checked {
        true => (right, wrong, findings, 1.0),
        false => (all, 0, Vec::new(), all as f64 / right as f64),
    };
    Ok(Point {
        rate: report.rate * counted,
        requests: None,
        right,
        wrong,
        findings,
        loss_percent: Some(report.loss_percent),
        cpu_percent: cpu.percent,
        cpu_per_reply: cpu.per_reply / counted,
        load_percent: report.worker_percent.iter().copied().reduce(f64::max),
        load_cpu_percent: report.own_cpu.map(|cpu| cpu.percent),
        load_per_reply: report.own_cpu.map(|cpu| cpu.per_reply / counted),
        p50: Some(report.latency.p50),
        p99: Some(report.latency.p99),
        peers_per_reply: Some(report.peers_per_reply),
        warnings: report.warnings.clone(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::LazyLock;

    use onrush_load::cpu::Cpu;
    use onrush_load::report::{IdleReport, Setup};
    use onrush_load::tally::Tally;

    use super::*;
    use crate::contender::tests::script;

    static SEATS: LazyLock<Assignment> =
        LazyLock::new(|| Assignment::new(&[0, 4, 5], 1, 2).unwrap());
    static DOSE: LoadSettings = LoadSettings {
        seconds: 1.0,
        warmup: 0.5,
        swarms: Some(1000),
        idle: 0,
        namespace: None,
        kernel_threads: Vec::new(),
    };

    /// A load by two workers on port 7000.
    pub(crate) fn load(directory: &Path) -> Load<'_> {
        Load {
            mix: Mix::Spread,
            seats: &SEATS,
            dose: &DOSE,
            checked: true,
            proxied: false,
            seed: 7,
            address: ([127, 0, 0, 1], 7000).into(),
            directory,
        }
    }

    #[test]
    fn each_worker_is_pinned() {
        let load = load(Path::new("/tmp"));
        let text = load.arguments("--profile classic").join(" ");
        assert_eq!(
            text,
            "--profile classic --target 127.0.0.1:7000 --seed 7 --workers 2 --pin 4,5 --swarms 1000"
        );
        let behind_hitch = Load { mix: Mix::Wss, proxied: true, ..load };
        let text = behind_hitch.arguments("ws").join(" ");
        assert!(text.starts_with("ws --target wss://127.0.0.1:7000/announce --seed 7 "), "{text}");
        assert!(text.ends_with(" --pin 4,5 --strangers"), "{text}");
        let over_veth = Load { mix: Mix::VethConnects, ..load };
        let text = over_veth.arguments("--profile classic").join(" ");
        assert!(text.contains(" --target 127.0.0.1:7000 "), "{text}");
        assert!(
            text.contains(
                " --xdp onrush1 --live-frames --burst 80 --source 198.19.0.1-198.19.0.4 "
            )
        );
    }

    /// Ten announces and their replies, a right and a wrong offer, a right answer, a reply to one.
    #[test]
    fn over_websocket_right_messages_count() {
        let mut tally = Tally { right_in_window: 10, ..Tally::default() };
        tally.kinds[Kind::Announce as usize].right = 10;
        for finding in [Finding::OfferChanged, Finding::NoCounts, Finding::AnswerReply] {
            tally.findings[finding as usize].count = 1;
        }
        let mut report = Report::new(Setup::default(), &tally, 2.0);
        report.tracker_cpu = Some(report.cpu(Cpu { user: 1.0, system: 0.0 }));
        let ws = WsReport { messages_sent: 11, messages_received: 14, ..WsReport::default() };
        let of = over_ws(&report, &ws, point(&report, true).unwrap());
        assert_eq!((of.rate, of.requests), ((11.0 + 12.0) / 2.0, Some(5.0)));
        assert_eq!((of.right, of.wrong), (12, 1));
        assert!((of.cpu_per_reply - 1e6 / 23.0).abs() < 1e-6, "{}", of.cpu_per_reply);
    }

    #[test]
    fn memory_is_of_the_connections_that_were_held() {
        let report = |held| {
            let idle = Some(IdleReport::new((held, 1), Some((1000, 61_000))));
            let ws = Some(WsReport { idle, ..WsReport::default() });
            Report { ws, warnings: vec!["60 of 64".into()], ..Report::default() }
        };
        let of = of_idle(report(60)).unwrap();
        assert_eq!((of.idle_bytes, of.idle_held), (Some(1000.0), Some(60)));
        assert_eq!(of.idle_warnings, ["60 of 64"]);
        let error = of_idle(report(0)).unwrap_err().to_string();
        assert!(error.contains("60 of 64"), "{error}");
    }

    #[test]
    fn load_testers_are_listed_where_they_are_needed() {
        let root = tempfile::tempdir().unwrap();
        let program = script(root.path(), "onrush-load", "echo 'onrush-load 0.1.0 (30029cd)'");
        let tool = script(root.path(), "aquatic_http_load_test", "");
        let published = vec![Published::new(Published::PROGRAMS[1], tool).unwrap()];
        let tools = Tools { ours: program, published };
        let listed = tools.listed(&[Mix::Published, Mix::Spread]);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].version.as_deref(), Some("0.1.0 (30029cd)"));
        assert!(tools.listed(&[Mix::Published]).is_empty());
        assert_eq!(tools.listed(&[Mix::PublishedHttps])[0].name, "aquatic_http_load_test");
    }
}
