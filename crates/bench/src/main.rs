//! `onrush-bench`: finds trackers, plans, measures, reports.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use onrush_bench::args::{Args, Run, Selection, Task};
use onrush_bench::contender::{Listed, Search};
use onrush_bench::plan::Plan;
use onrush_bench::prepare::{self, Present};
use onrush_bench::process::{Stop, Stopped, must_be_free};
use onrush_bench::record::{Outcome, Raw};
use onrush_bench::run::{run, written};
use onrush_bench::summary::Summary;
use onrush_bench::{machine, record, report, resume};

/// Exit status: no round has a figure, or results cannot be written.
const FAILED: u8 = 1;
/// Exit status: the arguments or this host are unusable. Clap exits with the same status.
const UNFIT: u8 = 2;
/// Exit status: ended by a signal.
const STOPPED: u8 = 130;

fn main() -> ExitCode {
    let done = match Args::parse().task {
        Task::List => list(),
        Task::Plan(what) => planned(&what).map(|(plan, _)| show(&plan)),
        Task::Report { directory } => reported(&directory).map_err(Failure::Results),
        Task::Run(task) => measure(&task),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (Failure::Unfit(error) | Failure::Results(error)) = &failure;
            eprintln!("onrush-bench: {error:#}");
            match failure {
                Failure::Unfit(_) => UNFIT.into(),
                Failure::Results(error) if error.is::<Stopped>() => STOPPED.into(),
                Failure::Results(_) => FAILED.into(),
            }
        }
    }
}

/// An error and its exit status.
enum Failure {
    Unfit(anyhow::Error),
    Results(anyhow::Error),
}

fn list() -> Result<(), Failure> {
    let search = Search::here();
    let (present, listed) = prepare::contenders(&[], &search).map_err(Failure::Unfit)?;
    for Listed { name, version, text, .. } in &listed {
        let program = present.iter().find(|(contender, _)| contender.name() == name);
        match (version, program) {
            (Some(version), Some((_, found))) => {
                println!("{name:16} {version:30} {}", found.program.display());
                println!("{:16} settings: {text}", "");
            }
            _ => println!("{name:16} absent: {text}"),
        }
    }
    for tool in ["onrush-load", onrush_bench::load::Published::PROGRAM] {
        match search.program(tool) {
            Some(path) => println!("{tool:16} {:30} {}", "(load)", path.display()),
            None => println!("{tool:16} absent"),
        }
    }
    Ok(())
}

fn planned(what: &Selection) -> Result<(Plan, Vec<Present>), Failure> {
    let search = Search::here();
    let plan = || {
        let (present, listed) = prepare::contenders(&what.contenders, &search)?;
        let tools = prepare::tools(&search)?;
        let cores = machine::cores()?;
        let plan = prepare::plan(what, &present, listed, &tools, &cores, command())?;
        Ok((plan, present))
    };
    plan().map_err(Failure::Unfit)
}

/// The command line, for repeating the bench.
fn command() -> String {
    let words = env::args().skip(1).map(|word| match word.contains([' ', '(']) {
        true => format!("'{word}'"),
        false => word,
    });
    format!("onrush-bench {}", words.collect::<Vec<_>>().join(" "))
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
            "{:9} tracker on vCPU {} ({} cores), {} load workers on {}: {} [{}]",
            case.mix.to_string(),
            seats.tracker,
            seats.tracker_cores,
            seats.load_workers,
            seats.load,
            case.variant.name(),
            case.variant.split()
        );
    }
    for notice in &plan.notices {
        println!("{notice}");
    }
    let seconds: f64 = plan.steps().iter().map(|(_, case)| plan.seconds(case)).sum();
    let (cases, rounds) = (plan.cases.len(), plan.settings.rounds);
    let took = written(Duration::from_secs_f64(seconds));
    println!("\n{cases} cases, {rounds} rounds of each, taking turns: about {took}");
}

fn measure(task: &Run) -> Result<(), Failure> {
    let (plan, present, directory) = begin(task)?;
    let tools = prepare::tools(&Search::here()).map_err(Failure::Unfit)?;
    let done = || {
        let stop = Stop::on_signals().context("cannot catch signals")?;
        let say = |line: &str| eprintln!("onrush-bench: {line}");
        let done = run(&plan, &present, &tools, &directory, &stop, say);
        if let Err(error) = &done
            && error.is::<Stopped>()
        {
            eprintln!(
                "onrush-bench: go on with: onrush-bench run --resume {}",
                directory.display()
            );
        }
        done?;
        reported(&directory)?;
        let records = record::read(&directory)?;
        if !records.iter().any(|record| matches!(record.outcome, Outcome::Measured(_))) {
            bail!("no round has a figure; the reasons are in the report");
        }
        if task.strict {
            sound(&Summary::new(&plan, &records))?;
        }
        Ok(())
    };
    done().map_err(Failure::Results)
}

/// Checks that no round failed and that all replies of the baseline were right.
fn sound(summary: &Summary) -> anyhow::Result<()> {
    if let Some(failure) = summary.failures.first() {
        bail!("{} rounds failed, the first: {}", summary.failures.len(), failure.reason);
    }
    let baseline = &summary.plan.settings.baseline;
    let ours = || summary.rows.iter().filter(|row| row.case.variant.is_called(baseline));
    if ours().next().is_none() {
        bail!("--strict: there is no figure of the baseline, {baseline}");
    }
    for row in ours() {
        if row.wrong_percent > 0.0 {
            bail!(
                "{}: {:.3} % of the replies were wrong: {:?}",
                row.name,
                row.wrong_percent,
                row.findings
            );
        }
    }
    Ok(())
}

/// The plan, new or resumed, and the programs that it needs.
fn begin(task: &Run) -> Result<(Plan, Vec<Present>, PathBuf), Failure> {
    if let Some(directory) = &task.resume {
        let resumed = || {
            let plan = Plan::read(directory)?;
            let (present, listed) = prepare::contenders(&[], &Search::here())?;
            let tools = prepare::tools(&Search::here())?;
            let mixes: Vec<_> = plan.cases.iter().map(|case| case.mix).collect();
            resume::same(&plan, &listed, &tools.listed(&mixes), &machine::facts())?;
            Ok((plan, present, directory.clone()))
        };
        return resumed().map_err(Failure::Unfit);
    }
    let directory = task.out.clone().unwrap_or_default();
    let (plan, present) = planned(&task.what)?;
    show(&plan);
    let started = || {
        // A plan without a result belongs to a bench that could not start.
        if fs::metadata(directory.join(Raw::NAME)).is_ok_and(|raw| raw.len() > 0) {
            bail!(
                "{} holds results already: go on with --resume, or take another directory",
                directory.display()
            );
        }
        let address = (Ipv4Addr::LOCALHOST, plan.settings.port).into();
        must_be_free(address, &Stop::default())?;
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        plan.write(&directory)
    };
    started().map_err(Failure::Unfit)?;
    Ok((plan, present, directory))
}

fn reported(directory: &Path) -> anyhow::Result<()> {
    for path in report::write(directory)? {
        println!("{}", path.display());
    }
    Ok(())
}
