//! The load of one measurement, a process on its own vCPUs, and its result.

mod published;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use onrush_load::options::number;
use onrush_load::report::Report;
use serde::{Deserialize, Serialize};

use crate::contender::{Launch, Listed, version_by_cargo, version_of_ours};
use crate::cpus::Assignment;
use crate::mix::Mix;
use crate::process::{Child, Stop};
use crate::record::Point;

pub use published::Published;

/// Durations and population of a load.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
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

    /// Swarms of the population [default: 1,000,000 under real, 560,000 under spread and bursts]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub swarms: Option<u32>,
}

/// The load testers.
#[derive(Clone, Debug)]
pub struct Tools {
    /// onrush-load.
    pub ours: PathBuf,
    /// aquatic_udp_load_test, if installed.
    pub published: Option<Published>,
}

impl Tools {
    /// The load testers of these mixes, with their versions.
    pub fn listed(&self, mixes: &[Mix]) -> Vec<Listed> {
        let any = |published: bool| mixes.iter().any(|mix| mix.is_published() == published);
        let listed = |name: &str, version: Option<String>, text: &str| Listed {
            name: name.into(),
            version: Some(version.unwrap_or_else(|| "unknown".into())),
            text: text.into(),
        };
        let ours = any(false).then(|| {
            let version = version_of_ours(&self.ours);
            listed("onrush-load", version, "every reply is checked")
        });
        let theirs = self.published.as_ref().filter(|_| any(true)).map(|published| {
            let name = Published::PROGRAM;
            let text = "errors are counted, nothing else is checked";
            listed(name, version_by_cargo(&published.program, name), text)
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
    /// Seed of population and mix.
    pub seed: u64,
    /// The tracker's port on 127.0.0.1.
    pub port: u16,
    /// A directory for files.
    pub directory: &'a Path,
}

impl Load<'_> {
    /// Runs the load against the tracker with process id `pid`: at `rate` requests per second, or
    /// in a closed loop.
    ///
    /// # Errors
    /// When it did not run to its end.
    pub fn run(
        &self,
        tools: &Tools,
        pid: u32,
        rate: Option<f64>,
        stop: &Stop,
    ) -> anyhow::Result<Point> {
        let Some(mix) = self.mix.arguments() else {
            let published = tools.published.as_ref();
            let published =
                published.context("aquatic_udp_load_test is not installed: scripts/bench-peers")?;
            return published.run(self, pid, stop);
        };
        let file = self.directory.join("load.json");
        let LoadSettings { seconds, warmup, .. } = self.dose;
        let line = format!("{mix} --duration {seconds} --warmup {warmup} --tracker-pid {pid}");
        let mut arguments = self.arguments(&line);
        arguments.extend(["--json".into(), file.display().to_string()]);
        match (rate, self.mix.in_flight()) {
            (Some(rate), _) => arguments.extend(["--rate".into(), format!("{rate:.1}")]),
            (None, Some(limit)) => arguments.extend(["--in-flight".into(), limit.to_string()]),
            (None, None) => {}
        }
        arguments.push("--quiet".into());
        let limit = Duration::from_secs_f64(self.dose.seconds + self.dose.warmup + 60.0);
        let (child, status) = self.ended(tools, arguments, limit, stop)?;
        // Status 1: some replies were wrong, which is a result.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("onrush-load ended ({status}): {}", child.output_tail());
        }
        let text = fs::read_to_string(&file).context("onrush-load wrote no report")?;
        let report: Report = serde_json::from_str(&text).context("onrush-load's report")?;
        point(&report, self.checked)
    }

    /// Writes the info hashes of this load's population, a line of 40 hexadecimal digits each.
    ///
    /// # Errors
    /// When onrush-load fails, or this load belongs to another tool.
    pub fn write_hashes(&self, tools: &Tools, file: &Path, stop: &Stop) -> anyhow::Result<()> {
        let mix = self.mix.arguments().context(
            "aquatic_udp_load_test does not report its info hashes, so a tracker with an allow \
             list cannot be measured with it",
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
        let (port, seed, cpus) = (self.port, self.seed, &self.seats.load);
        let pins = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let line = format!("{mix} --target 127.0.0.1:{port} --seed {seed}");
        let line = format!("{line} --workers {} --pin {pins}", cpus.len());
        let mut arguments: Vec<String> = line.split(' ').map(Into::into).collect();
        if let Some(swarms) = self.dose.swarms {
            arguments.extend(["--swarms".into(), swarms.to_string()]);
        }
        if !self.checked {
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
        let launch = Launch { program: tools.ours.clone(), arguments, ..Launch::default() };
        let mut child = Child::start(&launch, &self.seats.load, self.directory)?;
        let status = child.wait(limit, stop, || ())?;
        Ok((child, status))
    }
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
        right,
        wrong,
        findings,
        loss_percent: Some(report.loss_percent),
        cpu_percent: cpu.percent,
        cpu_per_reply: cpu.per_reply / counted,
        load_percent: report.worker_percent.iter().copied().reduce(f64::max),
        load_per_reply: report.own_cpu.map(|cpu| cpu.per_reply / counted),
        p50: Some(report.latency.p50),
        p99: Some(report.latency.p99),
        peers_per_reply: Some(report.peers_per_reply),
        warnings: report.warnings.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::tests::script;

    #[test]
    fn each_worker_is_pinned() {
        let dose = LoadSettings { seconds: 1.0, warmup: 0.5, swarms: Some(1000) };
        let seats = &Assignment::new(&[0, 4, 5], 1, 2).unwrap();
        let load = Load {
            mix: Mix::Spread,
            seats,
            dose: &dose,
            checked: true,
            seed: 7,
            port: 7000,
            directory: Path::new("/tmp"),
        };
        let text = load.arguments("--profile classic").join(" ");
        assert_eq!(
            text,
            "--profile classic --target 127.0.0.1:7000 --seed 7 --workers 2 --pin 4,5 --swarms 1000"
        );
    }

    #[test]
    fn load_testers_are_listed_where_they_are_needed() {
        let root = tempfile::tempdir().unwrap();
        let program = script(root.path(), "onrush-load", "echo 'onrush-load 0.1.0 (30029cd)'");
        let tools = Tools { ours: program, published: None };
        let listed = tools.listed(&[Mix::Published, Mix::Spread]);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].version.as_deref(), Some("0.1.0 (30029cd)"));
        assert!(tools.listed(&[Mix::Published]).is_empty());
    }
}
