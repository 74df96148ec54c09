//! An attack beside an honest load: what a tracker does for its clients meanwhile.
//!
//! Three kinds of traffic run at the same time, each on a thread of its own: *established clients*
//! with connection ids, as an open loop whose replies are all checked ([`crate::run`]);
//! *newcomers*, one connect each from a source that is new each time; and the *attack*, from
//! spoofed sources ([`onrush_net::raw`]) or from proven ones. The measured window is that of the
//! attack; before it honest clients warm up.

mod flood;
mod isolation;
mod kind;
mod newcomers;
mod prefix;
mod report;
mod tracker;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use ipnet::IpNet;
use onrush_net::mio::{Backend, Options};
use onrush_proto::Family;

use crate::generator::pace::{Arrivals, Schedule, Segment};
use crate::generator::{Pace, Settings as WorkerSettings};
use crate::latency::{Latency, Nanos};
use crate::plan::profile::{Mix, Swarms};
use crate::plan::{Plan, Population, Profile};
use crate::report::{Report, Setup};
use crate::run::{RunSettings, run};
use crate::sources::{self, Range};
use flood::{Flood, Pace as FloodPace};
use newcomers::Newcomers;
use prefix::Prefix;
use tracker::{Metrics, Sample, names};

pub use kind::Attack;
pub use report::{
    AttackReport, Bounds, Conservation, FORMAT, FloodReport, HonestReport, TrackerFigures,
};
pub use tracker::Tracker;

/// Peers per honest swarm on average.
const SWARM_SIZE: f64 = 4.0;

/// What is sent to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The attack.
    pub attack: Attack,
    /// The tracker's addresses, at most one of each family.
    pub targets: Vec<SocketAddr>,
    /// Addresses of established clients; for a target on 127/8 may be empty.
    pub sources: Vec<Range>,
    /// Number of established clients where `sources` is empty.
    pub source_count: u32,
    /// Requests per second of established clients.
    pub honest: f64,
    /// Newcomers per second.
    pub newcomers: f64,
    /// Blocks of newcomers, one per family of the targets.
    pub newcomers_from: Vec<IpNet>,
    /// Datagrams per second of the attack, in bursts while sending.
    pub rate: f64,
    /// Blocks of the attack, one per family of the targets.
    pub attack_from: Vec<IpNet>,
    /// Number of sources of an attack from proven ones.
    pub attackers: u32,
    /// Period and length of the bursts of [`Attack::Bursts`].
    pub bursts: (Duration, Duration),
    /// Honest load before the attack.
    pub warmup: Duration,
    /// Length of the attack.
    pub duration: Duration,
    /// Time after which a request is not answered.
    pub timeout: Duration,
    /// Honest swarms.
    pub swarms: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Where the tracker is observed.
    pub tracker: Tracker,
    /// Bounds of a success.
    pub bounds: Bounds,
    /// Hides progress.
    pub quiet: bool,
    /// Ends the run early once it is set.
    pub stop: Arc<AtomicBool>,
}

/// The time of a run.
struct Span {
    epoch: Instant,
    /// Start and end of the attack.
    start: Nanos,
    end: Nanos,
    stop: Arc<AtomicBool>,
}

impl Span {
    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    fn is_over(&self) -> bool {
        self.now() >= self.end || self.stop.load(Ordering::Relaxed)
    }
}

/// Any address of a target's family, with any port.
fn wildcard(target: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}

/// Checks that the attack may be sent from here.
///
/// # Errors
/// For spoofed sources outside of an isolated network namespace.
pub fn check_isolation(attack: Attack) -> Result<(), String> {
    if attack.is_spoofed() { isolation::check() } else { Ok(()) }
}

/// Runs the attack beside the honest load. `routed` is this host's address towards a target.
///
/// # Errors
/// When a socket cannot be opened, an address block is missing, the tracker cannot be observed, or
/// the run was interrupted before the attack.
pub fn attack(
    settings: &Settings,
    routed: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> anyhow::Result<AttackReport> {
    check_isolation(settings.attack).map_err(|reason| anyhow!(reason))?;
    let honest = Honest::new(settings, routed)?;
    let blocks = |nets: &[IpNet], flag: &str| {
        let of = |target: &SocketAddr| {
            let net = nets.iter().find(|net| net.addr().is_ipv4() == target.is_ipv4());
            let net = net.with_context(|| format!("{flag} has no block of the family of {target}"));
            Ok((*target, Prefix::new(*net?)))
        };
        settings.targets.iter().map(of).collect::<anyhow::Result<Vec<_>>>()
    };
    let timeout = nanos(settings.timeout);
    let newcomers = Newcomers::open(
        blocks(&settings.newcomers_from, "--newcomers-from")?,
        settings.newcomers,
        timeout,
        settings.seed,
    )?;
    let (period, burst) = settings.bursts;
    let bursts = settings.attack == Attack::Bursts;
    let flood = Flood::open(
        settings.attack,
        FloodPace { rate: settings.rate, bursts: bursts.then_some((nanos(period), nanos(burst))) },
        kind::Payloads::new(settings.attack, honest.plan.population.info_hash(0), settings.seed),
        &blocks(&settings.attack_from, "--attack-from")?,
        settings.attackers,
        settings.seed,
    )?;
    let before = settings.tracker.metrics_at_rest()?;
    let lost_before = device_drops();
    let measured = measure(settings, honest, newcomers, flood)?;
    let after = settings.tracker.metrics_at_rest()?;
    let lost = device_drops().saturating_sub(lost_before);
    Ok(report(settings, &measured, before.zip(after), lost))
}

fn nanos(duration: Duration) -> Nanos {
    duration.as_nanos() as Nanos
}

/// Datagrams that this namespace's devices dropped on sending (proc_net_dev: a pair of veth devices
/// counts what the other end has no room for).
fn device_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let dropped = text
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_whitespace().nth(11)?.parse::<u64>().ok());
    dropped.sum()
}

/// The established clients.
struct Honest {
    plan: Plan,
    run: RunSettings,
    network: (Backend, Vec<crate::generator::Route>),
    setup: Setup,
}

impl Honest {
    fn new(
        settings: &Settings,
        routed: impl Fn(SocketAddr) -> Option<IpAddr>,
    ) -> anyhow::Result<Self> {
        let Settings { targets, seed, warmup, duration, .. } = settings;
        let profile = profile(settings.swarms);
        let addresses =
            sources::addresses(targets, &settings.sources, settings.source_count, routed);
        // Attackers' peers may be listed: they are in honest swarms.
        let population = Population::new(&profile.swarms, profile.v6, addresses, *seed, true);
        let plan = Plan::new(profile, population, *seed);
        sources::reserve(plan.population.addresses(), 1).map_err(|error| anyhow!(error))?;
        let opened = sources::open(plan.population.addresses(), targets)
            .context("cannot open the sockets of established clients")?;
        let (rate, seconds) = (settings.honest, duration.as_secs_f64());
        let segments = vec![Segment { from: rate, to: rate, seconds }];
        let pace = Pace::Open(Schedule { arrivals: Arrivals::Poisson, segments });
        let unanswered = (rate * settings.timeout.as_secs_f64() * 1.25) as usize;
        let worker = WorkerSettings {
            pace: pace.clone(),
            limit: unanswered.clamp(1024, 1 << 20),
            // As from clients that do not know each other.
            burst: 1,
            group: false,
            timeout: nanos(settings.timeout),
            strictness: crate::check::Strictness { strangers: true, sample: 8 },
            seed: *seed,
            ..WorkerSettings::default()
        };
        let families = [Family::V4, Family::V6];
        let setup = Setup {
            targets: targets.iter().map(ToString::to_string).collect(),
            sources: families.map(|family| plan.population.addresses().count(family)),
            sockets: opened.sockets.len(),
            workers: 1,
            pin: Vec::new(),
            pace,
            burst: worker.burst,
            bursts: worker.group,
            coalescing: true,
            warmup: warmup.as_secs_f64(),
            timeout: settings.timeout.as_secs_f64(),
            seed: *seed,
            profile: plan.profile().clone(),
            swarms: plan.population.swarms(),
            peers: families.map(|family| plan.population.peers(family)),
            strictness: worker.strictness,
            strict: false,
        };
        let run = RunSettings {
            worker,
            warmup: *warmup,
            duration: *duration,
            pin: Vec::new(),
            tracker: None,
            quiet: settings.quiet,
            stop: Arc::clone(&settings.stop),
        };
        let options = Options { segmentation: false, coalesced: true, ..Options::default() };
        let network = (Backend::new(opened.sockets, options)?, opened.routes);
        Ok(Self { plan, run, network, setup })
    }
}

/// What established clients send: the real mix without its invalid requests, and with more scrapes.
fn profile(swarms: u32) -> Profile {
    let real = Profile::real();
    let mix = Mix { connect: 22.0, announce: 72.0, scrape: 6.0, unusable: 0.0, junk: 0.0 };
    let swarms = Swarms { count: swarms, mean: SWARM_SIZE, ..real.swarms };
    Profile { name: "honest".into(), mix, v6: 0.5, swarms, ..real }
}

/// The results of all threads.
struct Measured {
    honest: Report,
    newcomers: newcomers::Outcome,
    flood: flood::Outcome,
    samples: Vec<Sample>,
    start: f64,
}

fn measure(
    settings: &Settings,
    honest: Honest,
    newcomers: Newcomers,
    flood: Flood,
) -> anyhow::Result<Measured> {
    let Honest { plan, run: run_settings, network, setup } = honest;
    let start = nanos(settings.warmup);
    let end = start + nanos(settings.duration);
    let span = Span { epoch: Instant::now(), start, end, stop: Arc::clone(&settings.stop) };
    let (running, over) = channel();
    std::thread::scope(|scope| {
        let span = &span;
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let observed = {
            let tracker = &settings.tracker;
            named("observer").spawn_scoped(scope, move || tracker.observe(span, &over))?
        };
        let newcomers = named("newcomers").spawn_scoped(scope, move || newcomers.run(span))?;
        let flood = named("attack").spawn_scoped(scope, move || flood.run(span))?;
        let honest = run(&plan, vec![network], &run_settings, setup, Vec::new());
        if honest.is_err() {
            // The other threads need not continue.
            span.stop.store(true, Ordering::Relaxed);
        }
        drop(running);
        let ended = || anyhow!("a thread of the load tester panicked");
        let newcomers = newcomers.join().map_err(|_| ended())?.context("newcomers")?;
        let flood = flood.join().map_err(|_| ended())?.context("the attack")?;
        let samples = observed.join().map_err(|_| ended())?;
        let start = start as f64 / 1e9;
        Ok(Measured { honest: honest?, newcomers, flood, samples, start })
    })
}

fn report(
    settings: &Settings,
    measured: &Measured,
    metrics: Option<(Metrics, Metrics)>,
    lost_by_devices: u64,
) -> AttackReport {
    let Measured { honest, newcomers, flood, samples, start } = measured;
    let conservation = metrics.as_ref().map(|(before, after)| {
        let sent = [honest.datagrams_sent, newcomers.sent, flood.sent.datagrams + flood.connects];
        conservation(sent, before, after, lost_by_devices)
    });
    let tracker = figures(samples, *start, honest.seconds);
    let mut report = AttackReport {
        format: report::FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        started: honest.started,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        attack: settings.attack,
        targets: honest.setup.targets.clone(),
        duration: settings.duration.as_secs_f64(),
        seconds: honest.seconds,
        seed: settings.seed,
        flood: FloodReport {
            rate: settings.rate,
            sent: flood.sent.datagrams,
            skipped: flood.skipped,
            refused: flood.sent.unsent,
            calls: flood.sent.calls,
        },
        established: HonestReport {
            requests: honest.answerable() + honest.unsent,
            answered: honest.right_replies(),
            latency: honest.latency,
        },
        newcomers: HonestReport {
            requests: newcomers.requests,
            answered: newcomers.answered,
            latency: Latency::of(&newcomers.latency),
        },
        wrong_replies: honest.wrong_replies(),
        behind: honest.behind,
        tracker,
        conservation,
        counters: metrics.map(|(before, after)| after.grown(&before)).unwrap_or_default(),
        bounds: settings.bounds,
        warnings: warnings(honest, flood, tracker.as_ref()),
        failures: Vec::new(),
    };
    report.judge();
    report
}

/// Reasons to doubt the figures, which are this host's.
fn warnings(
    honest: &Report,
    flood: &flood::Outcome,
    tracker: Option<&TrackerFigures>,
) -> Vec<String> {
    let late = honest.behind.p99 > 1000.0 && honest.behind.p99 > honest.latency.p99 / 4.0;
    let (skipped, sent) = (flood.skipped, flood.sent.datagrams);
    let all = [
        (
            late,
            format!(
                "established clients were {:.0} us late at p99, which is part of their latency: \
                 give the load tester a vCPU of its own (taskset)",
                honest.behind.p99
            ),
        ),
        (
            honest.unsent > 0,
            format!("{} requests were due but never sent, and count as lost", honest.unsent),
        ),
        (
            honest.dropped_here > 0,
            format!(
                "{} replies were dropped here at full receive buffers, and count as lost: \
                 sysctl -w net.core.rmem_max=4194304",
                honest.dropped_here
            ),
        ),
        (
            skipped * 10 > sent,
            format!("{skipped} datagrams of the attack were left out: lower --attack"),
        ),
        (
            tracker.is_some_and(|tracker| tracker.memory_slope.is_none()),
            "the tracker's memory was read too seldom to say whether it grows: raise --duration"
                .into(),
        ),
    ];
    all.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text).collect()
}

fn conservation(sent: [u64; 3], before: &Metrics, after: &Metrics, devices: u64) -> Conservation {
    let grown = |name: &str| (after.sum(name) - before.sum(name)) as u64;
    let labelled = |name: &str, label: &str| -> BTreeMap<String, u64> {
        let counted = after.of(name).map(|(labels, value)| {
            let earlier = before.of(name).find(|(other, _)| *other == labels);
            let value = (value - earlier.map_or(0.0, |(_, value)| value)) as u64;
            let label = labels.strip_prefix(label).and_then(|text| text.strip_prefix("=\""));
            let label = label.and_then(|text| text.strip_suffix('"')).unwrap_or(labels);
            (label.to_owned(), value)
        });
        counted.collect()
    };
    let replies = labelled(names::REPLIES, "kind");
    let answered = replies.iter().filter(|(kind, _)| *kind != "error").map(|(_, count)| count);
    let mut dropped: BTreeMap<_, _> =
        names::DROPPED.iter().map(|(reason, name)| ((*reason).to_owned(), grown(name))).collect();
    dropped.insert("by a device".into(), devices);
    Conservation {
        sent,
        received: grown(names::RECEIVED),
        dropped,
        answered: answered.sum(),
        refused: labelled(names::REFUSED, "reason"),
    }
}

/// Figures of the samples since `start` of an attack of this length; none for fewer than two.
fn figures(samples: &[Sample], start: f64, seconds: f64) -> Option<TrackerFigures> {
    let within = &samples[samples.partition_point(|sample| sample.time < start)..];
    let [first, .., last] = within else { return None };
    let highest = |pick: fn(&Sample) -> f64| within.iter().map(pick).fold(0.0, f64::max);
    let growth = |pick: fn(&Sample) -> f64| {
        let readings: Vec<_> = within.iter().map(|sample| (sample.time, pick(sample))).collect();
        tracker::growth(&readings, start, seconds)
    };
    Some(TrackerFigures {
        cpu_percent: (last.cpu - first.cpu) / (last.time - first.time).max(1e-9) * 100.0,
        memory: [first.rss, highest(|sample| sample.rss), last.rss],
        memory_slope: growth(|sample| sample.rss),
        peers_slope: growth(|sample| sample.peers),
        step: [highest(|sample| sample.step), last.step],
        peers: [first.peers, last.peers],
    })
}

/// Checks settings that contradict each other.
///
/// # Errors
/// A sentence that names the contradiction.
pub fn check(settings: &Settings) -> anyhow::Result<()> {
    for v4 in [true, false] {
        if settings.targets.iter().filter(|target| target.is_ipv4() == v4).count() > 1 {
            bail!("--target: one address of each family is enough");
        }
    }
    if settings.bursts.1 > settings.bursts.0 {
        bail!("--burst is longer than --period");
    }
    Ok(())
}
