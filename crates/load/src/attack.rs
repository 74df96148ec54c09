//! An attack beside an honest load: what a tracker does for its clients meanwhile.
//!
//! An attack is a [run](crate::run) whose worker simulates *established clients* with connection
//! ids, in an open loop whose replies are all checked. Two more threads send beside it:
//! *newcomers*, one connect each from a source that is new each time, and the *attack*, from
//! spoofed sources ([`onrush_net::raw`]) or from proven ones. A third one observes the tracker. The
//! measured window is that of the attack; before it honest clients warm up.

mod args;
mod connects;
mod flood;
mod isolation;
mod kind;
mod newcomers;
mod prefix;
mod report;
mod tracker;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Error};
use ipnet::IpNet;
use procfs_core::FromRead as _;
use procfs_core::net::InterfaceDeviceStatus;

use crate::check::Strictness;
use crate::options::command_line;
use crate::plan::profile::{Mix, Swarms};
use crate::plan::{Plan, Population, Profile};
use crate::run::{Beside, RunClock, RunSettings, over_udp};
use crate::sources;
use crate::worker::pace::{Arrivals, Schedule};
use crate::worker::{LoadSettings, Pace};
use flood::Flood;
use newcomers::Newcomers;
use prefix::Prefix;
use tracker::{Metrics, Reading, names};

pub use args::AttackArgs;
#[cfg(test)]
pub(crate) use args::EXAMPLES;
pub use kind::Attack;
pub use report::{
    AttackBounds, AttackReport, Conservation, FORMAT, FloodReport, HonestReport, TrackerFigures,
};

/// Peers per honest swarm on average.
const SWARM_SIZE: f64 = 4.0;

/// Checks that the attack may be sent from here.
///
/// # Errors
/// For spoofed sources outside of an isolated network namespace.
pub fn check_isolation(attack: Attack) -> Result<(), String> {
    if attack.is_spoofed() { isolation::check() } else { Ok(()) }
}

/// Runs the attack beside the honest load, until its end or until `stop` is set. `routed` is this
/// host's address towards a target.
///
/// # Errors
/// When a socket cannot be opened, an address block is missing, the tracker cannot be observed, or
/// the run was interrupted before the attack.
pub fn attack(
    args: &AttackArgs,
    stop: &AtomicBool,
    routed: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> anyhow::Result<AttackReport> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let profile = profile(args.swarms);
    let addresses = args.network.addresses(routed);
    // Attackers' peers may be listed: they are in honest swarms.
    let population = Population::new(&profile.swarms, profile.v6, addresses, seed, true);
    let plan = Plan::new(profile, population, seed);
    sources::reserve(&plan.population.addresses, 1).map_err(Error::msg)?;
    let newcomers_from = blocks(args, &args.newcomers_from, "--newcomers-from")?;
    let mut newcomers = Newcomers::open(args, seed, newcomers_from)?;
    let attack_from = blocks(args, &args.attack_from, "--attack-from")?;
    let mut flood = Flood::open(args, seed, plan.population.info_hash(0), &attack_from)?;
    let before = tracker::metrics_at_rest(args.admin)?;
    let lost_before = device_drops();
    let mut readings = Vec::new();
    let observe = |span: &RunClock| {
        readings = tracker::observe(args.admin, span);
        Ok(())
    };
    let beside: Vec<Beside<'_>> = vec![
        ("observer", Box::new(observe)),
        ("newcomers", Box::new(|span| Ok(newcomers.run(span)?))),
        ("attack", Box::new(|span| Ok(flood.run(span)?))),
    ];
    let honest =
        over_udp(&plan, &args.network.target, &run_settings(args, seed), stop, beside, Vec::new())?;
    let after = tracker::metrics_at_rest(args.admin)?;
    let lost = device_drops().saturating_sub(lost_before);
    let grown = before.zip(after).map(|(before, after)| after.since(&before));
    let sent = [honest.datagrams_sent, newcomers.connects.sent, flood.datagrams()];
    let tracker = figures(&readings, args.warmup.as_secs_f64(), honest.seconds);
    let mut report = AttackReport {
        format: FORMAT,
        version: onrush_text::version::version().into(),
        started: honest.started,
        command: command_line("onrush-load"),
        attack: args.attack,
        targets: honest.setup.targets.clone(),
        duration: args.duration.as_secs_f64(),
        seconds: honest.seconds,
        seed,
        flood: flood.report(),
        established: HonestReport {
            requests: honest.answerable() + honest.unsent,
            answered: honest.right_replies(),
            latency: honest.latency,
        },
        newcomers: newcomers.report(),
        wrong_replies: honest.wrong_replies(),
        behind: honest.behind,
        tracker,
        conservation: grown.as_ref().map(|grown| conservation(sent, grown, lost)),
        counters: grown.map(|grown| grown.counters()).unwrap_or_default(),
        bounds: args.bounds,
        warnings: honest.warnings,
        failures: Vec::new(),
    };
    report.warn();
    report.judge();
    Ok(report)
}

/// Each target with the block of its family, from the argument `flag`.
fn blocks(
    args: &AttackArgs,
    nets: &[IpNet],
    flag: &str,
) -> anyhow::Result<Vec<(SocketAddr, Prefix)>> {
    let of = |target: &SocketAddr| {
        let net = nets.iter().find(|net| net.addr().is_ipv4() == target.is_ipv4());
        let net = net.with_context(|| format!("{flag} has no block of the family of {target}"))?;
        Ok((*target, Prefix::new(*net)))
    };
    args.network.target.iter().map(of).collect()
}

/// Datagrams that this namespace's devices dropped on sending (proc_net_dev: a pair of veth devices
/// counts what the other end has no room for).
fn device_drops() -> u64 {
    let devices = InterfaceDeviceStatus::from_file("/proc/self/net/dev");
    devices.map_or(0, |devices| devices.0.values().map(|device| device.sent_drop).sum())
}

/// The run of the established clients.
fn run_settings(args: &AttackArgs, seed: u64) -> RunSettings {
    let schedule = Schedule::constant(Arrivals::Poisson, args.honest, args.duration);
    let load = LoadSettings {
        pace: Pace::Open(schedule),
        // As from clients that do not know each other.
        burst: 1,
        bursts: false,
        warmup: args.warmup.as_secs_f64(),
        timeout: args.timeout.as_secs_f64(),
        strictness: Strictness { strangers: true, sample: 8 },
        seed,
        ..LoadSettings::default()
    };
    let (tracker, quiet) = (Vec::new(), args.report.quiet);
    RunSettings { load, duration: args.duration, tracker, quiet, xdp: None }
}

/// Requests of established clients: the real mix without its invalid requests, and with more
/// scrapes.
fn profile(swarms: u32) -> Profile {
    let real = Profile::real();
    let mix = Mix { connect: 22.0, announce: 72.0, scrape: 6.0, unusable: 0.0, junk: 0.0 };
    let swarms = Swarms { count: swarms, mean: SWARM_SIZE, ..real.swarms };
    Profile { name: "honest".into(), mix, v6: 0.5, swarms, ..real }
}

/// The balance of the datagrams that were `sent`, with the growth of the tracker's counters and the
/// drops of the devices here.
fn conservation(sent: [u64; 3], grown: &Metrics, devices: u64) -> Conservation {
    let labelled = |name: &str, label: &str| -> BTreeMap<String, u64> {
        let counted = grown.of(name).map(|(labels, value)| {
            let label = labels.strip_prefix(label).and_then(|text| text.strip_prefix("=\""));
            let label = label.and_then(|text| text.strip_suffix('"')).unwrap_or(labels);
            (label.to_owned(), value as u64)
        });
        counted.collect()
    };
    let replies = labelled(names::REPLIES, "kind");
    let answered = replies.iter().filter(|(kind, _)| *kind != "error").map(|(_, count)| count);
    let dropped = names::DROPPED.map(|(reason, name)| (reason.to_owned(), grown.sum(name) as u64));
    Conservation {
        sent,
        received: grown.sum(names::RECEIVED) as u64,
        dropped: dropped.into_iter().chain([("by a device".into(), devices)]).collect(),
        answered: answered.sum(),
        refused: labelled(names::REFUSED, "reason"),
    }
}

/// Figures of the readings since `start` of an attack of this length; none for fewer than two.
fn figures(readings: &[Reading], start: f64, seconds: f64) -> Option<TrackerFigures> {
    let within = &readings[readings.partition_point(|reading| reading.time < start)..];
    let [first, .., last] = within else { return None };
    let highest = |pick: fn(&Reading) -> f64| within.iter().map(pick).fold(0.0, f64::max);
    let growth = |pick: fn(&Reading) -> f64| {
        let readings: Vec<_> = within.iter().map(|reading| (reading.time, pick(reading))).collect();
        tracker::growth(&readings, start, seconds)
    };
    Some(TrackerFigures {
        cpu_percent: (last.cpu - first.cpu) / (last.time - first.time).max(1e-9) * 100.0,
        memory: [first.rss, highest(|reading| reading.rss), last.rss],
        memory_slope: growth(|reading| reading.rss),
        peers_slope: growth(|reading| reading.peers),
        step: [highest(|reading| reading.step), last.step],
        peers: [first.peers, last.peers],
    })
}
