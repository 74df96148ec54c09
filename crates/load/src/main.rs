//! `onrush-load`: probes the target, runs the workers, reports.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Error};
use onrush_load::args::{self, Args, Command, HttpArgs, LoadArgs, VerifyArgs, VerifyRun, WsArgs};
use onrush_load::attack::{self, AttackArgs};
use onrush_load::environment::Environment;
use onrush_load::interrupt::{self, SIGINT, SIGTERM};
use onrush_load::options::{NetworkArgs, ReportArgs, SourceArgs, command_line};
use onrush_load::plan::{Plan, Population, Profile};
use onrush_load::report::Report;
use onrush_load::report::search::Round;
use onrush_load::run::{RunSettings, over_http, over_udp, over_ws};
use onrush_load::search::search;
use onrush_load::sources;
use onrush_load::transport::{self, TransportArgs};
use onrush_load::xdp;
use onrush_net::affinity::{self, AffinityError};
use onrush_proto::Family;
use onrush_text::numbers::grouped;
use onrush_verify::reachability::{self, REACH_TIMEOUT};
use onrush_verify::tcp::reach::reach;
use serde::Serialize;

/// Exit status: a reply was wrong, or a conformance check failed.
const WRONG: u8 = 1;
/// Exit status: the arguments or this host cannot be used. Clap exits with the same status.
const UNUSABLE: u8 = 2;
/// Exit status: the target does not answer.
const NO_REPLY: u8 = 3;
/// Exit status: a bound was exceeded. Loss is part of what a load test measures, so it fails a run
/// only with `--max-loss`. The status differs from [`WRONG`], which takes precedence: a wrong reply
/// is a fault at any rate, loss only at this one.
const EXCEEDED: u8 = 4;
/// Number of source addresses that are tried while a target is silent.
const PROBED_SOURCES: u32 = 8;

fn main() -> ExitCode {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    onrush_net::name_service::use_built_in_sources();
    let status = execute(&args::parse()).unwrap_or_else(|error| {
        eprintln!("onrush-load: {error:#}");
        UNUSABLE
    });
    status.into()
}

/// Does what the arguments ask for; returns the exit status.
fn execute(args: &Args) -> anyhow::Result<u8> {
    match &args.command {
        Some(Command::Http(args)) => return http(args),
        Some(Command::Ws(args)) => return ws(args),
        Some(Command::Verify(args)) => return verify(args),
        Some(Command::Attack(args)) => return attack(args),
        Some(Command::Transport(args)) => return transport(args),
        None => {}
    }
    let mix = &args.load.mix;
    if mix.print_profile {
        println!("{}", mix.printed().map_err(Error::msg)?.trim_end());
        return Ok(0);
    }
    args.target.check().and_then(|()| args.load.check()).map_err(Error::msg)?;
    let profile = mix.profile().map_err(Error::msg)?;
    match &args.load.output.write_hashes {
        Some(file) => write_hashes(args, profile, file),
        None => load(args, profile),
    }
}

/// Runs the conformance checks.
fn verify(args: &VerifyArgs) -> anyhow::Result<u8> {
    let report = match args.settings()? {
        VerifyRun::Udp(settings) => onrush_verify::verify(&settings)?,
        VerifyRun::Tcp(settings) => onrush_verify::verify_tcp(&settings).map_err(Error::msg)?,
    };
    print(args.json.as_deref(), &report.to_list(), &report)?;
    Ok(if report.has_failed(args.strict) { WRONG } else { 0 })
}

/// Attacks beside an honest load.
fn attack(args: &AttackArgs) -> anyhow::Result<u8> {
    args.check().map_err(Error::msg)?;
    attack::check_isolation(args.attack).map_err(Error::msg)?;
    let Some(routed) = routed(&args.network, &args.report) else { return Ok(NO_REPLY) };
    let stop = interrupt::watch([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let report = attack::attack(args, &stop, |target| routed.get(&target).copied())?;
    print(args.report.json.as_deref(), &report.to_table(), &report)?;
    Ok(if report.failures.is_empty() { 0 } else { WRONG })
}

/// Measures a transport, or is the server of that.
fn transport(args: &TransportArgs) -> anyhow::Result<u8> {
    if args.serve {
        return transport::serve().map(|()| 0);
    }
    args.check().map_err(Error::msg)?;
    check_files(args.report.json.as_deref(), args.html.as_deref())?;
    let stop = interrupt::watch([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let report = match transport::transport(args, &stop)? {
        Ok(report) => report,
        Err(reason) => {
            eprintln!("onrush-load: {reason}");
            return Ok(NO_REPLY);
        }
    };
    let printed = print(args.report.json.as_deref(), &report.to_table(), &report);
    printed.and(write_page(args.html.as_deref(), || report.to_html()))?;
    let missed = report.missed_percent();
    let exceeded = args.max_loss.filter(|max| missed > *max);
    Ok(if report.due > 0 && report.right + report.wrong == 0 {
        eprintln!("onrush-load: no echo came");
        NO_REPLY
    } else if report.wrong > 0 {
        WRONG
    } else if let Some(max) = exceeded {
        eprintln!(
            "onrush-load: {missed:.3} % of echoes did not come, more than --max-loss {max} %"
        );
        EXCEEDED
    } else {
        0
    })
}

/// This host's address towards each target; `None`, with the reason on standard error, when one of
/// them does not answer.
fn routed(network: &NetworkArgs, output: &ReportArgs) -> Option<HashMap<SocketAddr, IpAddr>> {
    let mut routed = HashMap::new();
    for &target in &network.target {
        let family = Family::of(target.ip());
        let count = network.from.sources.min(PROBED_SOURCES);
        let sources = sources::addresses(&[target], &network.from.source, count, |_| None);
        let known = sources.count(family).min(PROBED_SOURCES);
        let sources: Vec<_> = (0..known).map(|number| sources.get(family, number)).collect();
        let waiting = || {
            if !output.quiet {
                eprintln!(
                    "onrush-load: no reply from {target} yet; a tracker under overload loses \
                     connects: trying for {} s",
                    REACH_TIMEOUT.as_secs()
                );
            }
        };
        match reachability::connect_from_any(target, &sources, REACH_TIMEOUT, waiting) {
            Ok(local) => drop(routed.insert(target, local)),
            Err(failure) => {
                eprintln!("onrush-load: --target: {failure}");
                return None;
            }
        }
    }
    Some(routed)
}

/// Prints the text; writes the JSON to a file or, with the text on standard error, to standard
/// output.
fn print(json: Option<&Path>, text: &str, report: &impl Serialize) -> anyhow::Result<()> {
    // println! would panic where the reader has closed the pipe or the disk is full.
    let print = |text: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write the report")
    };
    let Some(path) = json else { return print(text) };
    let report = serde_json::to_string_pretty(report)? + "\n";
    if path.as_os_str() == "-" {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return print(&report);
    }
    let written = std::fs::write(path, report);
    print(text).and(written.with_context(|| format!("cannot write {}", path.display())))
}

/// Writes the info hashes of the population that the same arguments measure with.
fn write_hashes(args: &Args, profile: Profile, file: &Path) -> anyhow::Result<u8> {
    let seed = args.load.mix.seed.unwrap_or_default();
    // The list is needed before the tracker runs, so the source is found without a request.
    let population = population(args, &profile, seed, |target| reachability::route_to(target).ok());
    population.write_hashes(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(0)
}

/// Measures over UDP, and writes the report.
fn load(args: &Args, profile: Profile) -> anyhow::Result<u8> {
    args.check_mix(&profile).map_err(Error::msg)?;
    // Unusable arguments are reported before a tracker that does not answer.
    check_host(&args.load, &args.target.network.from)?;
    let interface = args.target.xdp.as_deref();
    let passing = interface.map(|name| xdp::check(name).and_then(|()| xdp::passing(name)));
    let passing = passing.transpose().context("--xdp")?;
    let Some(routed) = routed(&args.target.network, &args.load.output.report) else {
        return Ok(NO_REPLY);
    };
    drop(passing);
    let seed = args.load.mix.seed.unwrap_or_else(rand::random);
    let population = population(args, &profile, seed, |target| routed.get(&target).copied());
    let plan = Plan::new(profile, population, seed);
    sources::reserve(&plan.population.addresses, args.load.workers).map_err(Error::msg)?;
    let stop = interrupt::watch([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let targets = &args.target.network.target;
    let run = |settings: &RunSettings, warnings| {
        over_udp(&plan, targets, settings, &stop, Vec::new(), warnings)
    };
    measure(&args.load, &plan, &args.run_settings(seed), &stop, run)
}

/// Measures by a function that makes a run, writes the report, and returns the exit status.
fn measure(
    args: &LoadArgs,
    plan: &Plan,
    settings: &RunSettings,
    stop: &AtomicBool,
    run: impl Fn(&RunSettings, Vec<String>) -> anyhow::Result<Report>,
) -> anyhow::Result<u8> {
    let once = |settings: &RunSettings| once(args, plan, settings, &run);
    let report = match args.bounds.find_max {
        true => find_max(args, settings, stop, once)?,
        false => once(settings)?,
    };
    write(args, &report)?;
    Ok(status(args, &report))
}

/// Measures over HTTP, and writes the report.
fn http(args: &HttpArgs) -> anyhow::Result<u8> {
    let load = &args.load;
    if load.mix.print_profile {
        println!("{}", args.mix().printed().map_err(Error::msg)?.trim_end());
        return Ok(0);
    }
    let profile = args.profile().map_err(Error::msg)?;
    let (target, targets) =
        (args.target().map_err(anyhow::Error::msg)?, args.target.iter().map(|url| url.address));
    check_host(load, &args.from)?;
    let seed = load.mix.seed.unwrap_or_else(rand::random);
    let targets: Vec<_> = targets.collect();
    let population = |routed: &dyn Fn(SocketAddr) -> Option<IpAddr>| {
        let sources = sources::addresses(&targets, &args.from.source, args.sources(), routed);
        let strangers = load.strictness.strangers;
        Population::new(&profile.swarms, profile.v6, sources, seed, strangers)
    };
    if let Some(file) = &load.output.write_hashes {
        let population = population(&|target| reachability::route_to(target).ok());
        population
            .write_hashes(file)
            .with_context(|| format!("cannot write {}", file.display()))?;
        return Ok(0);
    }
    let Some(routed) = reached(&targets) else { return Ok(NO_REPLY) };
    let population = population(&|target| routed.get(&target).copied());
    let plan = Plan::new(profile, population, seed);
    let connections = u64::try_from(target.settings.connections)?;
    sources::raise_file_limit(connections).map_err(Error::msg)?;
    let stop = interrupt::watch([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let run =
        |settings: &RunSettings, warnings| over_http(&plan, &target, settings, &stop, warnings);
    measure(load, &plan, &args.run_settings(seed), &stop, run)
}

/// Measures over WebSocket, and writes the report.
fn ws(args: &WsArgs) -> anyhow::Result<u8> {
    let load = &args.load;
    if load.mix.print_profile {
        println!("{}", load.mix.printed().map_err(Error::msg)?.trim_end());
        return Ok(0);
    }
    let profile = args.profile().map_err(Error::msg)?;
    check_host(load, &args.from)?;
    let seed = load.mix.seed.unwrap_or_else(rand::random);
    let connections = u32::try_from(args.settings().connections)?;
    let population = Population::of_connections(&profile.swarms, connections, seed);
    if let Some(file) = &load.output.write_hashes {
        let written = population.write_hashes(file);
        written.with_context(|| format!("cannot write {}", file.display()))?;
        return Ok(0);
    }
    let targets: Vec<_> = args.target.iter().map(|url| url.address).collect();
    let Some(routed) = reached(&targets) else { return Ok(NO_REPLY) };
    let routed = |target: SocketAddr| routed.get(&target).copied();
    let sources = sources::addresses(&targets, &args.from.source, args.sources(), routed);
    let target = args.target(sources).map_err(Error::msg)?;
    let plan = Plan::new(profile, population, seed);
    sources::raise_file_limit(connections.into()).map_err(Error::msg)?;
    let stop = interrupt::watch([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let run = |settings: &RunSettings, warnings| over_ws(&plan, &target, settings, &stop, warnings);
    measure(load, &plan, &args.run_settings(seed), &stop, run)
}

/// This host's address towards each target; `None`, with the reason on standard error, when one of
/// them takes no connection.
fn reached(targets: &[SocketAddr]) -> Option<HashMap<SocketAddr, IpAddr>> {
    let mut routed = HashMap::new();
    for &address in targets {
        match reach(address) {
            Ok(local) => drop(routed.insert(address, local)),
            Err(failure) => {
                eprintln!("onrush-load: --target: {failure}");
                return None;
            }
        }
    }
    Some(routed)
}

fn population(
    args: &Args,
    profile: &Profile,
    seed: u64,
    routed: impl Fn(SocketAddr) -> Option<IpAddr>,
) -> Population {
    let addresses = args.target.network.addresses(routed);
    let strangers = args.load.strictness.strangers;
    Population::new(&profile.swarms, profile.v6, addresses, seed, strangers)
}

/// The exit status of a measurement; prints why it is not 0.
fn status(args: &LoadArgs, report: &Report) -> u8 {
    let loss = report.missed_percent();
    let not_found = report.search.as_ref().is_some_and(|search| search.found.is_none());
    let exceeded = args.bounds.max_loss.filter(|max| loss > *max);
    // Silence is the right answer where all requests are junk.
    if report.answerable() > 0 && report.right_replies() + report.wrong_replies() == 0 {
        eprintln!("onrush-load: no reply arrived within the measured time");
        NO_REPLY
    } else if report.wrong_replies() > 0 {
        WRONG
    } else if not_found {
        eprintln!("onrush-load: no rate was held within the bounds");
        EXCEEDED
    } else if let Some(max) = exceeded {
        eprintln!(
            "onrush-load: {loss:.3} % of requests were lost or never sent, more than --max-loss \
             {max} %"
        );
        EXCEEDED
    } else {
        0
    }
}

/// One run.
fn once(
    args: &LoadArgs,
    plan: &Plan,
    settings: &RunSettings,
    run: impl Fn(&RunSettings, Vec<String>) -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    let environment = Environment::read();
    let warnings = environment.warning().into_iter().chain(unused_sources(&plan.population));
    let report = run(settings, warnings.collect())?;
    let mut command = command_line("onrush-load");
    if args.mix.seed.is_none() {
        command += &format!(" --seed {}", settings.load.seed);
    }
    Ok(Report { environment: Some(environment), command, ..report })
}

/// Runs a closed loop, then rounds at several rates, each reported by a line.
fn find_max(
    args: &LoadArgs,
    settings: &RunSettings,
    stop: &AtomicBool,
    once: impl Fn(&RunSettings) -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let closed = once(&args.closed_loop(settings))?;
    let measure = |purpose, rate| once(&args.round(settings, purpose, rate));
    let print = |line: &str| {
        if !args.output.report.quiet {
            // A closed standard error does not end the measurement.
            drop(writeln!(std::io::stderr(), "{line}"));
        }
    };
    print(&format!("closed loop: {} requests per second", grouped(closed.sent_rate)));
    let print = |round: &Round| print(&round.line());
    let stopped = || stop.load(Ordering::Relaxed);
    search(args.aim(), closed, measure, print, || begin.elapsed(), stopped)
}

/// A warning about source addresses without peers: they only connect, which changes the mix.
fn unused_sources(population: &Population) -> Option<String> {
    let families = [Family::V4, Family::V6];
    let count: u32 = families.map(|family| population.unused(family)).iter().sum();
    let all: u32 = families.map(|family| population.addresses.count(family)).iter().sum();
    (count > 0).then(|| {
        format!(
            "{count} of {all} source addresses have no peers and only connect: take fewer sources \
             or more swarms"
        )
    })
}

/// Checks that this host has the vCPUs and the source addresses of the arguments, and that the
/// files of the report can be written.
fn check_host(args: &LoadArgs, from: &SourceArgs) -> anyhow::Result<()> {
    for &cpu in &args.pin {
        if !affinity::allowed().context("--pin")?.contains(&cpu) {
            return Err(AffinityError::NotAllowed { cpu }).context("--pin");
        }
    }
    for ip in from.source.iter().copied().flatten() {
        UdpSocket::bind((ip, 0)).with_context(|| format!("--source: cannot send from {ip}"))?;
    }
    check_files(args.output.report.json.as_deref(), args.output.html.as_deref())
}

/// Prints the table and writes the requested files. A file that cannot be written does not prevent
/// the others; the first failure is the error.
fn write(args: &LoadArgs, report: &Report) -> anyhow::Result<()> {
    let output = &args.output;
    let printed = print(output.report.json.as_deref(), &report.to_table(), report);
    printed.and(write_page(output.html.as_deref(), || report.to_html()))
}

/// Writes a page to the file that was asked for.
fn write_page(path: Option<&Path>, page: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, page()).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that the requested files can be written, before time is spent on measuring.
fn check_files(json: Option<&Path>, html: Option<&Path>) -> anyhow::Result<()> {
    for path in [json, html].into_iter().flatten().filter(|path| path.as_os_str() != "-") {
        // Opening and closing a pipe would signal the end of the file to its reader.
        if path.exists() && !path.is_file() && !path.is_dir() {
            continue;
        }
        // A dangling symbolic link exists, and is not removed below.
        let new = path.symlink_metadata().is_err();
        let opened = std::fs::File::options().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write {}", path.display()))?;
        if new {
            // Nothing is left behind where nothing comes to be measured.
            drop(std::fs::remove_file(path));
        }
    }
    Ok(())
}
