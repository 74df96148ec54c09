//! The daemon `onrush`: what was asked for, start, watch, stop.

#![forbid(unsafe_code)]

mod allocator;

use std::process::ExitCode;

use clap::Parser;
use onrush::cli::ctl;
use onrush::cli::doctor;
use onrush::cli::top;
use onrush::cli::{Cli, Command, Task, print};
use onrush::process::exit::Exit;
use onrush::process::{activation, greeting, logging, signals, user};
use onrush::reload::Reload;
use onrush::supervise::{End, Supervisor};
use onrush::upgrade::successor::{self, Program};
use onrush::upgrade::take::look;
use onrush::{StartError, Tracker};
use onrush_config::settings::{Host, Notice, Passed, Settings};
use onrush_net::{adopt::Adopted, affinity};

fn main() -> ExitCode {
    // Before the file may be replaced.
    let program = Program::here();
    let cli = Cli::parse();
    match &cli.command {
        Some(Command::Doctor(doctor)) => return doctor::run(doctor).say(),
        Some(Command::Ctl(ctl)) => return ctl::run(ctl).say(),
        Some(Command::Top(top)) => return top::run(top).say(),
        None if cli.upgrade && successor::is_guard() => return successor::guard().say(),
        None => {}
    }
    let passed = match activation::take() {
        Err(error) => return Exit::failed(error).say(),
        Ok(passed) => passed,
    };
    // Without an answer nothing is pinned, and there is one worker.
    let vcpus = affinity::cores_first(&affinity::allowed().unwrap_or_default());
    let mut host = Host::here(vcpus);
    host.passed = passed.as_ref().map(Passed::of).or_else(|| passed_before(&cli, &host));
    let exit = match cli.task(&host) {
        Err(problems) => Exit::wrong(problems),
        Ok(Task::Show(text)) => match print(&text) {
            Ok(()) => Exit::good(),
            Err(error) => Exit::failed(format!("cannot write: {error}")),
        },
        Ok(Task::Serve(settings, notices)) => {
            let host_warnings = doctor::host_warnings(&settings, &host);
            let start = Start { passed, cli, host, program };
            Exit::after(serve(*settings, start, &notices, host_warnings))
        }
    };
    exit.say()
}

/// What a service manager has passed to the process that this one takes over from. What is wrong with the
/// configuration is told later.
fn passed_before(cli: &Cli, host: &Host) -> Option<Passed> {
    let (settings, _) = cli.upgrade.then(|| cli.flags.settings(host))?.ok()?;
    look(&settings)
}

/// How this process was started, and on what.
struct Start {
    passed: Option<Adopted>,
    cli: Cli,
    host: Host,
    program: Program,
}

/// Runs a tracker from start to end.
fn serve(
    settings: Settings,
    start: Start,
    notices: &[Notice],
    host_warnings: Option<String>,
) -> Result<End, StartError> {
    let Start { passed, cli, host, program } = start;
    logging::start(settings.log.level);
    if let Some(name) = &settings.user {
        user::load_names(name, settings.group.as_deref());
    }
    // Before anything is started: a signal that comes early must not kill what is half there.
    let wishes = signals::listen().map_err(StartError::Threads)?;
    let tracker = match cli.upgrade {
        true => Tracker::take_over(&settings)?,
        false => Tracker::start_on(&settings, passed)?,
    };
    for notice in notices {
        log::warn!("{notice}");
    }
    for warning in &tracker.warnings {
        log::warn!("{warning}");
    }
    if let Some(host_warnings) = host_warnings {
        log::warn!("{host_warnings}");
    }
    let greeting = greeting::lines(&settings, &tracker);
    let supervisor = Supervisor::new(tracker, settings, Reload::new(cli.flags, host));
    let mut supervisor = supervisor.followed_by(program);
    for line in greeting {
        log::info!("{line}");
    }
    let mut end = supervisor.run(&wishes);
    let tracker = supervisor.into_tracker();
    match &mut end {
        End::Given(given) => {
            if !tracker.hand_over(given) {
                return Ok(End::Orphaned(given.process));
            }
        }
        End::Asked => {
            let summary = tracker.stop();
            log::info!(
                "stopped: {} datagrams in, {} out, {} refused",
                summary.datagrams,
                summary.sent,
                summary.refused_in_all(),
            );
        }
        // Who is left may be stuck for the same reason; the end of the process does not wait.
        End::Died(_) | End::Orphaned(_) => std::mem::forget(tracker),
    }
    Ok(end)
}
