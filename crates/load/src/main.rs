//! `onrush-load`: asks whether anybody answers, lets the workers run, reports.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use onrush_load::args::{Args, Command, VerifyArgs};
use onrush_load::environment::Environment;
use onrush_load::plan::population::Addresses;
use onrush_load::plan::{Plan, Population};
use onrush_load::probe::probe;
use onrush_load::report::search::Round;
use onrush_load::report::{Report, Setup};
use onrush_load::run::{Course, run};
use onrush_load::search::search;
use onrush_load::{hashes, interrupt, sources};
use onrush_net::affinity::{self, AffinityError};
use onrush_net::mio::{Backend, Options};
use onrush_proto::Family;

/// Some reply was wrong.
const WRONG: u8 = 1;
/// The arguments or this host are not fit for it. Clap exits with the same.
const UNFIT: u8 = 2;
/// Nobody answers.
const NOBODY: u8 = 3;
/// A bound was not kept. Loss is part of what a load test measures, so it fails a run only where
/// `--max-loss` is given; a status of its own, because a wrong reply ([`WRONG`], which takes
/// precedence) is a fault at any rate, and loss is one at this rate only.
const BEYOND: u8 = 4;
/// How long to wait for a first sign of life.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::Verify(args)) = &args.command {
        return verify(args);
    }
    if args.output.print_schema {
        println!("{}", Report::schema());
        return ExitCode::SUCCESS;
    }
    if args.mix.print_profile {
        return match args.mix.printed() {
            Ok(text) => {
                println!("{}", text.trim_end());
                ExitCode::SUCCESS
            }
            Err(reason) => unfit(&anyhow::anyhow!(reason)),
        };
    }
    if let Some(file) = &args.output.write_hashes {
        return match write_hashes(&args, file) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => unfit(&error),
        };
    }
    match measure(&args) {
        Ok(Outcome::Dead(reason)) => {
            eprintln!("onrush-load: {reason}");
            NOBODY.into()
        }
        Ok(Outcome::Measured(report)) => match show(&args, &report) {
            // A tracker that meets nothing but junk with silence is right to do so.
            Ok(())
                if report.answerable() > 0
                    && report.right_replies() + report.wrong_replies() == 0 =>
            {
                eprintln!("onrush-load: no reply came within the measured time");
                NOBODY.into()
            }
            Ok(()) if report.wrong_replies() > 0 => WRONG.into(),
            Ok(()) if beyond(&args, &report) => BEYOND.into(),
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => unfit(&error),
        },
        Err(error) => unfit(&error),
    }
}

/// The checks: 0 nothing fails, 1 something does, 2 nobody answers.
fn verify(args: &VerifyArgs) -> ExitCode {
    let found = match args.inquiry().map(|inquiry| (onrush_load::verify::verify(&inquiry), inquiry))
    {
        Ok((Ok(found), _)) => found,
        Ok((Err(dead), inquiry)) => {
            eprintln!("onrush-load: {}", dead.advice(inquiry.target));
            return UNFIT.into();
        }
        Err(error) => return unfit(&error),
    };
    let written = show_both(args.json.as_deref(), &found.to_list(), || found.to_json());
    match written {
        Err(error) => unfit(&error),
        Ok(()) if found.is_bad(args.strict) => WRONG.into(),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Text for people; JSON where it is asked for.
fn show_both(json: Option<&Path>, text: &str, to_json: impl Fn() -> String) -> anyhow::Result<()> {
    // Not by println!, which panics where a reader has gone or a disk is full.
    let say = |text: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the report")
    };
    match json {
        None => say(text),
        Some(path) if path.as_os_str() == "-" => {
            let _ = std::io::stderr().write_all(text.as_bytes());
            say(&(to_json() + "\n"))
        }
        Some(path) => {
            let written = std::fs::write(path, to_json() + "\n")
                .with_context(|| format!("cannot write {}", path.display()));
            say(text).and(written)
        }
    }
}

/// Whether a bound was not kept; says so.
fn beyond(args: &Args, report: &Report) -> bool {
    let lost = args.bounds.max_loss.filter(|most| report.missed_percent() > *most);
    let nothing = report.search.as_ref().is_some_and(|search| search.found.is_none());
    if nothing {
        eprintln!("onrush-load: no rate was found and confirmed within the bounds");
    } else if let Some(most) = lost {
        let loss = report.missed_percent();
        eprintln!(
            "onrush-load: {loss:.3} % of requests were lost or never sent, more than --max-loss {most} %"
        );
    }
    nothing || lost.is_some()
}

fn unfit(error: &anyhow::Error) -> ExitCode {
    eprintln!("onrush-load: {error:#}");
    UNFIT.into()
}

/// How a run can end without an error.
enum Outcome {
    Measured(Box<Report>),
    /// Nobody answers, and what to try.
    Dead(String),
}

/// The population that the same arguments would measure with.
fn write_hashes(args: &Args, file: &Path) -> anyhow::Result<()> {
    if let Err(reason) = args.check() {
        bail!("{reason}");
    }
    let targets = &args.target.target;
    let addresses =
        sources::addresses(targets, &args.target.source, args.target.sources, hashes::route);
    let profile = args.mix.profile().map_err(anyhow::Error::msg)?;
    let seed = args.mix.seed.unwrap_or_default();
    let strangers = args.checks.strangers;
    let population = Population::new(&profile.swarms, profile.v6, addresses, seed, strangers);
    hashes::write(&population, file).with_context(|| format!("cannot write {}", file.display()))
}

fn measure(args: &Args) -> anyhow::Result<Outcome> {
    if let Err(reason) = args.check() {
        bail!("{reason}");
    }
    let profile = args.mix.profile().map_err(anyhow::Error::msg)?;
    args.check_mix(&profile).map_err(anyhow::Error::msg)?;
    // Before anybody is asked: a tracker that does not answer is not the first thing to mend.
    usable(args)?;
    writable(args)?;
    let mut routed = Vec::new();
    for &target in &args.target.target {
        match probe(target, None, PATIENCE) {
            Ok(local) => routed.push((target, local)),
            Err(dead) => return Ok(Outcome::Dead(dead.advice(target))),
        }
    }
    let seed = args.mix.seed.unwrap_or_else(rand::random);
    let addresses = addresses(args, &routed);
    let population =
        Population::new(&profile.swarms, profile.v6, addresses, seed, args.checks.strangers);
    let plan = Plan::new(profile, population, seed);
    sources::reserve(plan.population.addresses(), args.target.workers)
        .map_err(anyhow::Error::msg)?;
    let stop = interrupt::watch().context("cannot watch for Ctrl-C")?;
    let report = match args.bounds.find_max {
        true => find_max(args, &plan, seed, &stop)?,
        false => once(args, &plan, seed, &Course { stop, ..args.course(seed) })?,
    };
    Ok(Outcome::Measured(Box::new(report)))
}

/// One run, from sockets of its own: what is late for one is not in the way of the next.
fn once(args: &Args, plan: &Plan, seed: u64, course: &Course) -> anyhow::Result<Report> {
    let environment = Environment::read();
    let mut warnings = environment.warnings();
    warnings.extend(deserted(&plan.population));
    let mut networks = Vec::new();
    let mut sockets = 0;
    for _ in 0..args.target.workers {
        let opened = sources::open(plan.population.addresses(), &args.target.target)
            .context("cannot send from here")?;
        if networks.is_empty() {
            warnings.extend(opened.notices.iter().map(ToString::to_string));
        }
        sockets = opened.sockets.len();
        let options = Options {
            segmentation: course.group,
            coalesced: !args.target.no_coalescing,
            ..Options::default()
        };
        networks.push((Backend::new(opened.sockets, options)?, opened.routes));
    }
    let setup = setup(args, plan, course, seed, sockets);
    let mut report = run(plan, networks, course, setup, warnings)?;
    report.environment = Some(environment);
    report.command = command(args, seed);
    Ok(report)
}

/// Rounds at several rates, each told of in a line.
fn find_max(args: &Args, plan: &Plan, seed: u64, stop: &Arc<AtomicBool>) -> anyhow::Result<Report> {
    let measure = |purpose, rate| once(args, plan, seed, &args.round(seed, purpose, rate, stop));
    let tell = |round: &Round| {
        if !args.output.quiet {
            // A closed stderr is no reason to stop measuring.
            drop(writeln!(std::io::stderr(), "{}", round.line()));
        }
    };
    search(args.bounds.aim(), measure, tell, || stop.load(Ordering::Relaxed))
}

/// Of addresses that can only connect, which makes another mix of it than was asked for.
fn deserted(population: &Population) -> Option<String> {
    let families = [Family::V4, Family::V6];
    let count: u32 = families.map(|family| population.deserted(family)).iter().sum();
    let all: u32 = families.map(|family| population.addresses().count(family)).iter().sum();
    (count > 0).then(|| {
        format!(
            "{count} of {all} source addresses have no peers and only connect: take fewer sources \
             or more swarms"
        )
    })
}

/// The command that does it again: as it was given, with the seed.
fn command(args: &Args, seed: u64) -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,[]%+".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', "'\\''")),
        }
    };
    let mut words: Vec<_> = std::env::args().skip(1).map(quoted).collect();
    words.insert(0, "onrush-load".into());
    if args.mix.seed.is_none() {
        words.push(format!("--seed {seed}"));
    }
    words.join(" ")
}

/// Whether this host has the vCPUs and the addresses that were named.
fn usable(args: &Args) -> anyhow::Result<()> {
    let allowed = match args.target.pin.is_empty() {
        true => Vec::new(),
        false => affinity::allowed().context("--pin")?,
    };
    if let Some(&cpu) = args.target.pin.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(AffinityError::NotAllowed { cpu }).context("--pin");
    }
    for ip in args.target.source.iter().flat_map(sources::Range::iter) {
        UdpSocket::bind((ip, 0)).with_context(|| format!("--source: cannot send from {ip}"))?;
    }
    Ok(())
}

fn addresses(args: &Args, routed: &[(SocketAddr, IpAddr)]) -> Addresses {
    let find = |target| routed.iter().find(|(there, _)| *there == target).map(|(_, ip)| *ip);
    sources::addresses(&args.target.target, &args.target.source, args.target.sources, find)
}

fn setup(args: &Args, plan: &Plan, course: &Course, seed: u64, sockets: usize) -> Setup {
    let families = [Family::V4, Family::V6];
    Setup {
        targets: args.target.target.iter().map(ToString::to_string).collect(),
        sources: families.map(|family| plan.population.addresses().count(family)),
        sockets,
        workers: args.target.workers as usize,
        pin: args.target.pin.clone(),
        pace: course.pace.clone(),
        burst: course.burst,
        bursts: course.group,
        coalescing: !args.target.no_coalescing,
        warmup: course.warmup.as_secs_f64(),
        timeout: course.timeout.as_secs_f64(),
        seed,
        profile: plan.profile().clone(),
        swarms: plan.population.swarms(),
        peers: families.map(|family| plan.population.peers(family)),
        strictness: course.strictness,
        strict: args.checks.strict,
    }
}

/// The table for people, files where they are asked for. What cannot be written keeps nothing else
/// from being written; the first of it is the error.
fn show(args: &Args, report: &Report) -> anyhow::Result<()> {
    let cannot = |path: &Path| format!("cannot write {}", path.display());
    let output = &args.output;
    let shown = show_both(output.json.as_deref(), &report.to_table(), || report.to_json());
    let html = output.html.as_deref().map_or(Ok(()), |path| {
        std::fs::write(path, report.to_html()).with_context(|| cannot(path))
    });
    let hgrm = output
        .hgrm
        .as_deref()
        .map_or(Ok(()), |path| report.write_hgrm(path).with_context(|| cannot(path)));
    shown.and(html).and(hgrm)
}

/// Whether the files that are asked for can be written, seen before there is anything to lose.
fn writable(args: &Args) -> anyhow::Result<()> {
    let output = &args.output;
    let hgrm = output.hgrm.as_ref().map(|path| match path.is_dir() {
        true => path.join("all.hgrm"),
        false => path.clone(),
    });
    let json = output.json.clone().filter(|path| path.as_os_str() != "-");
    for path in [json, output.html.clone(), hgrm].into_iter().flatten() {
        // A pipe's reader would take the closing for the end.
        if path.exists() && !path.is_file() && !path.is_dir() {
            continue;
        }
        // A link that leads nowhere yet is somebody's, too.
        let new = path.symlink_metadata().is_err();
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        if new {
            // Nothing is left behind where nothing comes to be measured.
            drop(std::fs::remove_file(&path));
        }
    }
    Ok(())
}
