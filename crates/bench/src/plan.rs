//! The rounds and their order: each case once per round, with cases that are compared adjacent (A,
//! B, A, B), so that changes of the host over time affect all cases equally.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::contender::{Found, Listed, unique};
use crate::cpus::Assignment;
use crate::load::{LoadSettings, Published};
use crate::mix::Mix;
use crate::record::Case;

/// Estimated seconds of a round for starting, probing and stopping.
const AROUND: f64 = 1.5;
/// Estimated seconds of a measurement besides warm-up and window: opening sockets, the drain.
const AROUND_LOAD: f64 = 0.7;

/// A bench, as written to its result directory before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// This tool's version.
    pub version: String,
    /// Time of the plan, in seconds since 1970.
    pub created: u64,
    /// The command line.
    pub command: String,
    /// Facts about the host, in order.
    pub machine: Vec<(String, String)>,
    /// Its settings.
    pub settings: BenchSettings,
    /// The trackers, including absent ones.
    pub listed: Vec<Listed>,
    /// The load testers.
    pub testers: Vec<Listed>,
    /// The cases.
    pub cases: Vec<Case>,
    /// Notices about omissions and about the host.
    pub notices: Vec<String>,
}

/// The settings of a bench.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
pub struct BenchSettings {
    /// Number of rounds of each case
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub rounds: u32,

    /// Durations and population.
    #[command(flatten)]
    pub dose: LoadSettings,

    /// Shares of its own maximum at which a tracker's latency is measured
    #[arg(
        long = "latency-at", value_name = "%,%", value_delimiter = ',', default_value = "50,80",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub shares: Vec<u32>,

    /// Port of the trackers, on 127.0.0.1 or in 127.0.1/24; behind hitch a tracker has the next one
    #[arg(
        long, value_name = "PORT", default_value_t = 16_969,
        value_parser = clap::value_parser!(u16).range(1..=65_534)
    )]
    pub port: u16,

    /// Trackers listen on 0.0.0.0, where each datagram comes with its local address (IP_PKTINFO)
    #[arg(long)]
    #[serde(default)]
    pub wildcard: bool,

    /// The baseline of ratios: a tracker, or one of its variants ("onrush (split)")
    #[arg(long, value_name = "NAME", default_value = "onrush")]
    pub baseline: String,

    /// Spread of the rounds, in percent of the median, above which a figure is marked as noisy
    #[arg(long, value_name = "%", default_value_t = 10.0)]
    pub noise: f64,

    /// Seed of populations and mixes; each round adds 1
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl Plan {
    /// The name of the file in a result directory.
    pub const NAME: &'static str = "plan.json";

    /// Reads the plan of a result directory.
    ///
    /// # Errors
    /// When there is none, or it is that of another version.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(Self::NAME);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: no bench was started there", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: use the onrush-bench that made it", path.display()))
    }

    /// Writes the plan to its directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(Self::NAME);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// All rounds in order.
    pub fn steps(&self) -> Vec<(u32, &Case)> {
        let rounds = 1..=self.settings.rounds;
        rounds.flat_map(|round| self.cases.iter().map(move |case| (round, case))).collect()
    }
}

impl BenchSettings {
    /// Seconds that a round of this case takes, as far as one can tell before.
    pub fn seconds(&self, case: &Case) -> f64 {
        if case.mix.is_published() {
            return AROUND + AROUND_LOAD + Published::seconds(&self.dose) as f64;
        }
        let shares = if case.mix.has_latency() { self.shares.len() } else { 0 };
        let idle = match case.mix.has_idle() && self.dose.idle > 0 {
            true => AROUND + AROUND_LOAD + self.dose.idle_seconds(),
            false => 0.0,
        };
        idle + AROUND + (1 + shares) as f64 * (AROUND_LOAD + self.dose.warmup + self.dose.seconds)
    }
}

/// Every case: each mix on each assignment by each variant, those of one assignment adjacent.
pub fn cases(contenders: &[Found], seats: &[Assignment], mixes: &[Mix]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &mix in mixes {
        for seats in seats {
            for found in contenders {
                if found.needs_whitelist() && mix.is_published() {
                    continue;
                }
                let case = |variant| Case { variant, seats: seats.clone(), mix };
                cases.extend(found.variants(seats, mix.protocol()).into_iter().map(case));
            }
        }
    }
    // A duplicate (`--cores 1,1`) is measured once per round.
    unique(cases)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contender::Variant;
    use crate::contender::opentracker::OWN_BUILD;
    use crate::contender::tests::found;
    use crate::cpus::sweep;
    use crate::record::tests::measured;
    use clap::{Command, FromArgMatches as _};

    /// A plan for two variants on one core.
    pub(crate) fn example(rounds: u32) -> Plan {
        let variant = |kind: &str| Variant::new("onrush", Some(kind), &[("workers", 1)]);
        let cases = ["colocated", "split"].map(|kind| measured(variant(kind), 1, 1.0).case);
        let defaults =
            BenchSettings::augment_args(Command::new("bench")).get_matches_from(["bench"]);
        let settings = BenchSettings::from_arg_matches(&defaults).unwrap();
        let settings = BenchSettings { rounds, ..settings };
        Plan {
            version: "0.1.0".into(),
            created: 1_790_000_000,
            command: "onrush-bench run".into(),
            machine: vec![("CPU".into(), "Made up, 2 vCPUs".into())],
            settings,
            listed: vec![],
            testers: vec![],
            cases: cases.into(),
            notices: vec![],
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let plan = example(3);
        plan.write(directory.path()).unwrap();
        assert_eq!(Plan::read(directory.path()).unwrap(), plan);
        let nowhere = directory.path().join("nowhere");
        assert!(Plan::read(&nowhere).unwrap_err().to_string().contains("no bench was started"));
    }

    #[test]
    fn what_is_named_twice_is_measured_once() {
        let contenders = found();
        let of = |cores: &[usize], mixes: &[Mix]| {
            let (seats, _) = sweep(&[0, 1], cores, &[]);
            cases(&contenders, &seats, mixes)
        };
        let once = of(&[1], &[Mix::Spread, Mix::Bursts]);
        assert_eq!(of(&[1, 1], &[Mix::Spread, Mix::Bursts, Mix::Spread]), once);
        assert_eq!(unique(once.iter()).len(), once.len(), "{once:?}");
    }

    #[test]
    fn a_whitelist_and_the_published_tool_do_not_go_together() {
        let (seats, _) = sweep(&[0, 1], &[], &[]);
        let mut contenders = found();
        let mixes = [Mix::Spread, Mix::Published];
        let debians = cases(&contenders, &seats, &mixes);
        contenders.iter_mut().for_each(|found| found.version = OWN_BUILD.into());
        let own = cases(&contenders, &seats, &mixes);
        let of = |mix: Mix, tracker: &str| {
            debians.iter().filter(|c| c.mix == mix && c.variant.tracker == tracker).count()
        };
        assert_eq!(of(Mix::Spread, "opentracker"), 2);
        assert_eq!(of(Mix::Published, "opentracker"), 0);
        let here = |c: &&Case| c.mix == Mix::Published && c.variant.tracker == "opentracker";
        assert_eq!(own.iter().filter(here).count(), 2, "a public build needs no list");
        assert_eq!(of(Mix::Spread, "onrush"), of(Mix::Published, "onrush"));
    }

    #[test]
    fn time_is_foreseen() {
        let plan = example(1);
        let mut case = plan.cases[0].clone();
        assert!((plan.settings.seconds(&case) - (1.5 + 3.0 * 3.7)).abs() < 1e-9);
        case.mix = Mix::Bursts;
        assert!((plan.settings.seconds(&case) - (1.5 + 3.7)).abs() < 1e-9);
        // Its tool measures in steps of 5 s.
        case.mix = Mix::Published;
        assert!((plan.settings.seconds(&case) - (1.5 + 5.7)).abs() < 1e-9);
    }
}
