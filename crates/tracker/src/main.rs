//! The daemon `onrush`: what was asked for, start, watch, stop.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use onrush::args::{Args, Task, show};
use onrush::process::{greeting, logging, signals};
use onrush::settings::{Host, Notice, Settings};
use onrush::supervise::{End, watch};
use onrush::{StartError, Tracker};
use onrush_net::affinity;

/// Could not start, or died.
const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    // Without an answer nothing is pinned, and there is one worker.
    let vcpus = affinity::cores_first(&affinity::allowed().unwrap_or_default());
    let host = Host::here(vcpus);
    match args.task(&host) {
        Err(problems) => {
            tell(&problems.to_string());
            ExitCode::from(WRONG)
        }
        Ok(Task::Show(text)) => match show(&text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&format!("cannot write: {error}")),
        },
        Ok(Task::Serve(settings, notices)) => match serve(&settings, &notices) {
            Ok(End::Asked) => ExitCode::SUCCESS,
            Ok(End::Died(death)) => failed(&format!("{} died: {}", death.name, death.cause)),
            Err(error) => failed(&error.to_string()),
        },
    }
}

/// Runs a tracker from start to end.
fn serve(settings: &Settings, notices: &[Notice]) -> Result<End, StartError> {
    logging::start(settings.log.level);
    // Before anything is started: a signal that comes early must not kill what is half there.
    let wishes = signals::listen().map_err(StartError::Threads)?;
    let mut tracker = Tracker::start(settings)?;
    for notice in notices {
        log::warn!("{notice}");
    }
    for warning in &tracker.warnings {
        log::warn!("{warning}");
    }
    for line in greeting::lines(settings, &tracker) {
        log::info!("{line}");
    }
    let end = watch(&mut tracker, settings, &wishes);
    if end == End::Asked {
        let summary = tracker.stop();
        log::info!(
            "stopped: {} datagrams in, {} out, {} refused",
            summary.datagrams,
            summary.sent,
            summary.refused_in_all(),
        );
    }
    Ok(end)
}

/// For whoever started this, whatever the level of the log is.
fn failed(why: &str) -> ExitCode {
    tell(&format!("onrush: {why}\n"));
    ExitCode::from(FAILED)
}

/// Writes to standard error. Where that cannot be, the exit code says what it can.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
