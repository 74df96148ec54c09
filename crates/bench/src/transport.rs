//! The cost of transports: `onrush-load transport` and the same load on go-libp2p
//! (`scripts/peers/libp2p`) in turns, after libp2p's comparison of WebRTC with TCP and QUIC (2023).
//!
//! | module | contents |
//! |---|---|
//! | `summary` | medians, and ratios within rounds |
//! | `report` | the tables and the picture |

mod report;
mod summary;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::Args;
use onrush_load::options::{command_line, number};
use onrush_load::transport::{Preset, StackKind, TransportReport};
use onrush_text::times::duration;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display};

use crate::contender::{Launch, Listed, Search, version_of_ours};
use crate::machine;
use crate::process::{Child, Stop, Stopped};
use crate::record::{self, Raw};

pub use report::write;

/// Estimated seconds of a measurement besides ramp and window.
const AROUND: f64 = 3.0;
/// Seconds that a measurement may take longer than estimated.
const MAX_DELAY: f64 = 120.0;

/// The arguments of `onrush-bench transport`.
#[derive(Debug, Args)]
pub struct TransportArgs {
    /// The measurements.
    #[command(flatten)]
    pub settings: TransportSettings,

    /// Write results and report to this directory, which must not have any
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Exit with 1 when a measurement failed or an echo was wrong
    #[arg(long)]
    pub strict: bool,
}

/// How transports are measured.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct TransportSettings {
    /// Connections x streams on each
    #[arg(
        long, value_name = "CxS,CxS", value_delimiter = ',', default_value = "10x1000,100x100",
        value_parser = preset
    )]
    pub preset: Vec<String>,

    /// Number of rounds of each transport
    #[arg(
        long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Seconds of a measurement
    #[arg(
        long, value_name = "S", default_value_t = 10.0,
        value_parser = number(0.5..=3600.0, " seconds")
    )]
    pub seconds: f64,

    /// Establish connections and open streams this many times faster than was published
    #[arg(
        long, value_name = "N", default_value_t = 20.0, value_parser = number(1.0..=1000.0, "")
    )]
    pub ramp_factor: f64,
}

/// The text of a preset.
fn preset(text: &str) -> Result<String, String> {
    text.parse::<Preset>().map(|_| text.to_owned())
}

impl TransportSettings {
    /// Estimated seconds of a measurement.
    fn seconds_of(&self, preset: &str) -> f64 {
        let ramp = preset.parse::<Preset>().map_or(0.0, |it| it.shape(self.ramp_factor).ramp());
        ramp + self.seconds + AROUND
    }
}

/// Whose transports.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, AsRefStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Program {
    /// `onrush-load transport`.
    OnrushLoad,
    /// The same load on go-libp2p.
    GoLibp2p,
}

/// A transport of a program under a load, measured once per round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportCase {
    /// The load, like `10x1000`.
    pub preset: String,
    /// The transport.
    pub stack: StackKind,
    /// The program.
    pub program: Program,
}

impl TransportCase {
    /// Program and transport: `go-libp2p webrtc`.
    fn name(&self) -> String {
        format!("{} {}", self.program, self.stack.as_ref())
    }
}

/// A comparison, as written to its result directory before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportPlan {
    /// This tool's version.
    pub version: String,
    /// Time of the plan, in seconds since 1970.
    pub created: u64,
    /// The command line.
    pub command: String,
    /// Facts about the host, in order.
    pub machine: Vec<(String, String)>,
    /// The settings.
    pub settings: TransportSettings,
    /// The vCPUs of server and client.
    pub cpus: [usize; 2],
    /// Both programs, also where the reference is absent.
    pub programs: Vec<Listed>,
    /// Those measured, in the order of a round.
    pub cases: Vec<TransportCase>,
}

impl TransportPlan {
    /// The name of the file in a result directory.
    pub const NAME: &'static str = "transport.json";

    /// Reads the plan of a result directory.
    ///
    /// # Errors
    /// When there is none, or it is that of another version.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(Self::NAME);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: use the onrush-bench that made it", path.display()))
    }

    /// Whether `directory` has results of transports.
    pub fn is_of(directory: &Path) -> bool {
        directory.join(Self::NAME).exists()
    }

    fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(Self::NAME);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// All measurements in order: each transport of ours beside that of the reference.
    fn steps(&self) -> Vec<(u32, &TransportCase)> {
        let rounds = 1..=self.settings.rounds;
        rounds.flat_map(|round| self.cases.iter().map(move |case| (round, case))).collect()
    }
}

/// A measurement, or why it failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransportRecord {
    /// From 1.
    pub round: u32,
    /// The transport, the program and the load.
    pub case: TransportCase,
    /// The report of the program.
    pub outcome: Result<Box<TransportReport>, String>,
}

/// A plan, and the programs that it needs.
#[derive(Debug)]
pub struct Comparison {
    plan: TransportPlan,
    ours: PathBuf,
    /// None where it is absent.
    theirs: Option<PathBuf>,
}

/// A comparison, whose plan is in its directory.
///
/// # Errors
/// When this host has fewer than two cores, `onrush-load` is absent, or the directory has results.
pub fn begin(args: &TransportArgs) -> anyhow::Result<Comparison> {
    let search = Search::here();
    let build = "onrush-load was not found: cargo build --release -p onrush-load";
    let (ours, theirs) = (search.program("onrush-load").context(build)?, search.program("libp2p"));
    let [server, .., client] = machine::cores()?[..] else {
        bail!("one core is too few: server and client need one each")
    };
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let plan = TransportPlan {
        version: onrush_text::version::version().into(),
        created: created.as_secs(),
        command: command_line("onrush-bench"),
        machine: machine::facts(),
        cases: cases(&args.settings.preset, theirs.is_some()),
        settings: args.settings.clone(),
        cpus: [server, client],
        programs: listed(&ours, theirs.as_deref()),
    };
    if fs::metadata(args.out.join(Raw::NAME)).is_ok_and(|raw| raw.len() > 0) {
        bail!("{} holds results already: take another directory", args.out.display());
    }
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    plan.write(&args.out)?;
    Ok(Comparison { plan, ours, theirs })
}

fn listed(ours: &Path, theirs: Option<&Path>) -> Vec<Listed> {
    let version = |program: &Path| version_of_ours(program).unwrap_or_else(|| "unknown".into());
    let text = match theirs {
        Some(_) => "tcp: Noise and yamux; quic: quic-v1; webrtc: webrtc-direct; its defaults",
        None => "not installed; install it with: scripts/bench-peers --only libp2p",
    };
    let row = |program: Program, version: Option<String>, text: &str| Listed {
        name: program.to_string(),
        version,
        text: text.into(),
    };
    vec![
        row(Program::OnrushLoad, Some(version(ours)), "tcp: not encrypted; tls: TLS 1.3 over TCP"),
        row(Program::GoLibp2p, theirs.map(version), text),
    ]
}

/// The transports of each preset; go-libp2p's TCP is beside our TLS, as both are encrypted.
fn cases(presets: &[String], theirs: bool) -> Vec<TransportCase> {
    use Program::{GoLibp2p, OnrushLoad};
    use StackKind::{Quic, Tcp, Tls, Webrtc};
    let order = [
        (OnrushLoad, Tcp),
        (OnrushLoad, Tls),
        (GoLibp2p, Tcp),
        (OnrushLoad, Quic),
        (GoLibp2p, Quic),
        (OnrushLoad, Webrtc),
        (GoLibp2p, Webrtc),
    ];
    let of = |preset: &String| {
        let case = |(program, stack)| TransportCase { preset: preset.clone(), stack, program };
        order.map(case).into_iter().filter(|case| theirs || case.program == OnrushLoad)
    };
    presets.iter().flat_map(of).collect()
}

impl Comparison {
    /// Measures, writes the report and returns its text.
    ///
    /// # Errors
    /// When it is stopped ([`Stopped`]), results cannot be written, or all measurements failed;
    /// with `--strict`, also when one failed or an echo was wrong.
    pub fn measured(&self, args: &TransportArgs) -> anyhow::Result<String> {
        let stop = Stop::on_signals().context("cannot catch signals")?;
        let TransportPlan { settings, cases, .. } = &self.plan;
        let one: f64 = cases.iter().map(|case| settings.seconds_of(&case.preset)).sum();
        let (rounds, took) = (settings.rounds, duration(one * f64::from(settings.rounds)));
        let say = |line: &str| eprintln!("onrush-bench: {line}");
        say(&format!("{} cases, {rounds} rounds of each, in turns: about {took}", cases.len()));
        self.run(&args.out, &stop, say)?;
        let text = write(&args.out)?;
        let records: Vec<TransportRecord> = record::read_lines(&args.out)?;
        let failed = records.iter().filter(|record| record.outcome.is_err()).count();
        if failed == records.len() || (args.strict && failed > 0) {
            bail!("{failed} of {} measurements failed, see the report", records.len());
        }
        let wrong: u64 = records.iter().flat_map(|it| &it.outcome).map(|it| it.wrong).sum();
        if args.strict && wrong > 0 {
            bail!("{wrong} echoes were wrong");
        }
        Ok(text)
    }

    /// Measures, writes each result at once, and calls `say` with a line for each. A failed
    /// measurement is a result.
    fn run(&self, out: &Path, stop: &Stop, mut say: impl FnMut(&str)) -> anyhow::Result<()> {
        let (mut raw, steps) = (Raw::create(out)?, self.plan.steps());
        for (number, (round, case)) in steps.iter().enumerate() {
            let outcome = match self.measure(case, stop) {
                Err(error) if error.is::<Stopped>() => return Err(error),
                outcome => outcome.map(Box::new).map_err(|error| format!("{error:#}")),
            };
            let result = match &outcome {
                Err(reason) => format!("FAILED: {reason}"),
                Ok(it) => format!(
                    "{:.0} of {:.0} echoes/s, {:.2} us each at the server, {} wrong",
                    it.echo_rate, it.due_rate, it.server.us_per_echo, it.wrong
                ),
            };
            let (name, preset, all) = (case.name(), &case.preset, steps.len());
            say(&format!("{} of {all}: round {round} of {name} {preset}: {result}", number + 1));
            raw.append(&TransportRecord { round: *round, case: (*case).clone(), outcome })?;
        }
        Ok(())
    }

    fn measure(&self, case: &TransportCase, stop: &Stop) -> anyhow::Result<TransportReport> {
        let directory = tempfile::tempdir().context("no temporary directory")?;
        let file = directory.path().join("report.json");
        let mut launch = self.launch(case)?;
        launch.arguments.extend(["--json".into(), file.display().to_string()]);
        let mut child = Child::start(&launch, &self.plan.cpus, directory.path())?;
        let limit = self.plan.settings.seconds_of(&case.preset) + MAX_DELAY;
        let status = child.wait(Duration::from_secs_f64(limit), stop, || ())?;
        // Status 1: some echoes were wrong, which is a result.
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("{} ended ({status}): {}", case.program, child.output_tail());
        }
        let text = fs::read_to_string(&file).context("no report was written")?;
        let report: TransportReport = serde_json::from_str(&text).context("the report")?;
        // CPU time per echo needs an echo. A saturated side may answer older blocks alone: none of
        // those that were due within the window, which `right` counts.
        if report.echo_rate == 0.0 {
            bail!("no echo came within the measured time");
        }
        Ok(report)
    }

    /// The same arguments for both programs.
    fn launch(&self, case: &TransportCase) -> anyhow::Result<Launch> {
        let TransportSettings { seconds, ramp_factor, .. } = self.plan.settings;
        let [server, client] = self.plan.cpus;
        let (program, command) = match case.program {
            Program::OnrushLoad => (&self.ours, "transport "),
            Program::GoLibp2p => (self.theirs.as_ref().context("libp2p is absent")?, ""),
        };
        let line = format!(
            "{command}--stack {} --preset {} --ramp-factor {ramp_factor} --seconds {seconds} \
             --pin {server},{client} --quiet",
            case.stack.as_ref(),
            case.preset
        );
        let arguments = line.split(' ').map(Into::into).collect();
        Ok(Launch { program: program.clone(), arguments, ..Launch::default() })
    }
}
