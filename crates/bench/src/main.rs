//! `onrush-bench`: finds trackers, plans, measures, reports.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use onrush_bench::args::{Args, Run, Selection, Task};
use onrush_bench::contender::{ALL, Listed, Search, hitch, unique};
use onrush_bench::load::Published;
use onrush_bench::mix::Protocol;
use onrush_bench::plan::Plan;
use onrush_bench::prepare::{self, Prepared};
use onrush_bench::process::{Stop, Stopped, must_be_free};
use onrush_bench::record::{Raw, RoundOutcome};
use onrush_bench::round::address;
use onrush_bench::run::run;
use onrush_bench::summary::{Row, Summary};
use onrush_bench::transport::{self, TransportPlan};
use onrush_bench::{machine, record, report};
use onrush_load::affinity::format_list;
use onrush_load::options::command_line;
use onrush_text::times::duration;

/// Exit status: no round has a figure, or results cannot be written.
const FAILED: u8 = 1;
/// Exit status: the arguments or this host are unusable. Clap exits with the same status.
const UNUSABLE: u8 = 2;
/// Exit status: ended by a signal.
const STOPPED: u8 = 130;

fn main() -> ExitCode {
    // The status is that of an error.
    let (status, done) = match Args::parse().task {
        Task::List => (UNUSABLE, list()),
        Task::Plan(what) => (UNUSABLE, planned(&what).map(|planned| show(&planned.plan))),
        Task::Report { directory } => (FAILED, reported(&directory)),
        Task::Transport(args) => match transport::begin(&args) {
            Ok(comparison) => (FAILED, comparison.measured(&args).map(|text| print!("{text}"))),
            Err(error) => (UNUSABLE, Err(error)),
        },
        Task::Run(Run { what, out, strict }) => match begun(&what, &out) {
            Ok(prepared) => (FAILED, measured(&prepared, &out, strict)),
            Err(error) => (UNUSABLE, Err(error)),
        },
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("onrush-bench: {error:#}");
    if error.is::<Stopped>() { STOPPED.into() } else { status.into() }
}

fn list() -> anyhow::Result<()> {
    let search = Search::here();
    let names = ALL.each_ref().map(|contender| contender.keyword.to_owned());
    let (present, listed) = prepare::contenders(&names, &Protocol::ALL, &search)?;
    for Listed { name, version, text, .. } in &listed {
        let program = present.iter().find(|found| found.contender.name == name);
        match (version, program) {
            (Some(version), Some(found)) => {
                println!("{name:16} {version:30} {}", found.program.display());
                println!("{:16} settings: {text}", "");
            }
            _ => println!("{name:16} absent: {text}"),
        }
    }
    let load = ["onrush-load"].into_iter().chain(Published::PROGRAMS);
    for (tool, what) in load.map(|tool| (tool, "(load)")).chain([(hitch::PROGRAM, "(TLS)")]) {
        match search.program(tool) {
            Some(path) => println!("{tool:16} {what:30} {}", path.display()),
            None => println!("{tool:16} absent"),
        }
    }
    Ok(())
}

fn planned(what: &Selection) -> anyhow::Result<Prepared> {
    let search = Search::here();
    let protocols = unique(what.mix.iter().map(|mix| mix.protocol()));
    let (present, listed) = prepare::contenders(&what.contenders, &protocols, &search)?;
    let tools = prepare::tools(&search)?;
    let plan = prepare::plan(
        what,
        &present,
        listed,
        &tools,
        &machine::cores()?,
        command_line("onrush-bench"),
    )?;
    Ok(Prepared { plan, present, tools })
}

fn show(plan: &Plan) {
    for Listed { name, version, text, .. } in plan.listed.iter().chain(&plan.testers) {
        match version {
            Some(version) => println!("{name} {version}"),
            None => println!("{name}: absent: {text}"),
        }
    }
    println!();
    for case in &plan.cases {
        let seats = &case.seats;
        println!(
            "{:17} tracker on vCPU {} ({} cores), {} load workers on {}: {} [{}]",
            case.mix.to_string(),
            format_list(&seats.tracker),
            seats.tracker.len(),
            seats.load.len(),
            format_list(&seats.load),
            case.variant.name(),
            case.variant.split()
        );
    }
    for notice in &plan.notices {
        println!("{notice}");
    }
    let seconds: f64 = plan.steps().iter().map(|(_, case)| plan.settings.seconds(case)).sum();
    let (cases, rounds) = (plan.cases.len(), plan.settings.rounds);
    let took = duration(seconds);
    println!("\n{cases} cases, {rounds} rounds of each, taking turns: about {took}");
}

/// Runs the rounds and writes the report.
fn measured(prepared: &Prepared, directory: &Path, strict: bool) -> anyhow::Result<()> {
    let stop = Stop::on_signals().context("cannot catch signals")?;
    run(prepared, directory, &stop, |line| eprintln!("onrush-bench: {line}"))?;
    reported(directory)?;
    let records = record::read(directory)?;
    if !records.iter().any(|record| matches!(record.outcome, RoundOutcome::Measured(_))) {
        bail!("no round has a figure; the reasons are in the report");
    }
    if strict { sound(&Summary::new(&prepared.plan, &records)) } else { Ok(()) }
}

/// Checks that no round failed and that all replies of the baseline were right.
fn sound(summary: &Summary) -> anyhow::Result<()> {
    if let Some(failure) = summary.failures.first() {
        bail!("{} rounds failed, the first: {}", summary.failures.len(), failure.reason);
    }
    let baseline = &summary.plan.settings.baseline;
    let mut ours =
        summary.rows.iter().filter(|row| row.case.variant.is_called(baseline)).peekable();
    if ours.peek().is_none() {
        bail!("--strict: there is no figure of the baseline, {baseline}");
    }
    if let Some(Row { case, wrong_percent, findings, .. }) =
        ours.find(|row| row.wrong_percent > 0.0)
    {
        let name = case.variant.name();
        bail!("{name}: {wrong_percent:.3} % of the replies were wrong: {findings:?}");
    }
    Ok(())
}

/// A new plan, written to its directory.
fn begun(what: &Selection, directory: &Path) -> anyhow::Result<Prepared> {
    let planned = planned(what)?;
    show(&planned.plan);
    // A plan without a result belongs to a bench that could not start.
    if fs::metadata(directory.join(Raw::NAME)).is_ok_and(|raw| raw.len() > 0) {
        bail!("{} holds results already: take another directory", directory.display());
    }
    for protocol in unique(planned.plan.cases.iter().map(|case| case.mix.protocol())) {
        let address = address(0, protocol, planned.plan.settings.port);
        must_be_free(address, protocol, &Stop::default())?;
    }
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    planned.plan.write(directory)?;
    Ok(planned)
}

fn reported(directory: &Path) -> anyhow::Result<()> {
    let write = if TransportPlan::is_of(directory) { transport::write } else { report::write };
    print!("{}", write(directory)?);
    Ok(())
}
