//! The daemon `onrush`: what was asked for, start, watch, stop.

#![forbid(unsafe_code)]

mod allocator;

use std::process::ExitCode;

use clap::Parser;
use onrush::args::{Args, Command, Task, show};
use onrush::ctl;
use onrush::doctor;
use onrush::process::exit::Exit;
use onrush::process::{activation, greeting, logging, signals};
use onrush::reload::Reload;
use onrush::settings::{Host, Notice, Passed, Settings};
use onrush::supervise::{End, Supervisor};
use onrush::top;
use onrush::{StartError, Tracker};
use onrush_net::{adopt::Adopted, affinity};

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.command {
        Some(Command::Doctor(doctor)) => return doctor::run(doctor).say(),
        Some(Command::Ctl(ctl)) => return ctl::run(ctl).say(),
        Some(Command::Top(top)) => return top::run(top).say(),
        None => {}
    }
    let passed = match activation::take() {
        Err(error) => return Exit::failed(error).say(),
        Ok(passed) => passed,
    };
    // Without an answer nothing is pinned, and there is one worker.
    let vcpus = affinity::cores_first(&affinity::allowed().unwrap_or_default());
    let mut host = Host::here(vcpus);
    host.passed = passed.as_ref().map(Passed::of);
    let exit = match args.task(&host) {
        Err(problems) => Exit::wrong(problems),
        Ok(Task::Show(text)) => match show(&text) {
            Ok(()) => Exit::good(),
            Err(error) => Exit::failed(format!("cannot write: {error}")),
        },
        Ok(Task::Serve(settings, notices)) => {
            let ailments = doctor::short_version(&settings, &host);
            Exit::after(serve(*settings, passed, &notices, ailments, args, host))
        }
    };
    exit.say()
}

/// Runs a tracker from start to end.
fn serve(
    settings: Settings,
    passed: Option<Adopted>,
    notices: &[Notice],
    ailments: Option<String>,
    args: Args,
    host: Host,
) -> Result<End, StartError> {
    logging::start(settings.log.level);
    // Before anything is started: a signal that comes early must not kill what is half there.
    let wishes = signals::listen().map_err(StartError::Threads)?;
    let tracker = match args.upgrade {
        true => Tracker::take_over(&settings)?,
        false => Tracker::start_on(&settings, passed)?,
    };
    for notice in notices {
        log::warn!("{notice}");
    }
    for warning in &tracker.warnings {
        log::warn!("{warning}");
    }
    if let Some(ailments) = ailments {
        log::warn!("{ailments}");
    }
    let greeting = greeting::lines(&settings, &tracker);
    let mut supervisor = Supervisor::new(tracker, settings, Reload::new(args, host));
    for line in greeting {
        log::info!("{line}");
    }
    let end = supervisor.run(&wishes);
    let tracker = supervisor.into_tracker();
    if end == End::Given {
        tracker.hand_over();
    } else if end == End::Asked {
        let summary = tracker.stop();
        log::info!(
            "stopped: {} datagrams in, {} out, {} refused",
            summary.datagrams,
            summary.sent,
            summary.refused_in_all(),
        );
    } else {
        // Who is left may be stuck for the same reason; the end of the process does not wait.
        std::mem::forget(tracker);
    }
    Ok(end)
}
