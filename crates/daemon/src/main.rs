//! The daemon `onrush`: parses the command line, then starts, supervises and stops a tracker.

#![forbid(unsafe_code)]

mod allocator;
mod greeting;

use std::process::ExitCode;

use clap::Parser;
use onrush::cli::ctl;
use onrush::cli::doctor;
use onrush::cli::top;
use onrush::cli::{Cli, Command, Task, print};
use onrush::process::exit::{Exit, GOOD};
use onrush::process::{activation, logging, signals, user};
use onrush::supervise::reload::Reload;
use onrush::supervise::{End, Supervisor};
use onrush::upgrade::incoming::passed_sockets;
use onrush::upgrade::successor::{self, Program};
use onrush::{StartError, Tracker};
use onrush_config::config_file::config_file;
use onrush_config::{Host, Passed, Settings};
use onrush_net::{adopt::Adopted, affinity};
use onrush_store::lists::file::ListError;

fn main() -> ExitCode {
    // First, since the file may be replaced by the next version.
    let program = Program::current();
    let mut cli = Cli::parse();
    match &cli.command {
        Some(Command::Doctor(doctor)) => return doctor::run(doctor).report(),
        Some(Command::Ctl(ctl)) => return ctl::run(ctl).report(),
        Some(Command::Top(top)) => return top::run(top).report(),
        None if cli.upgrade && successor::is_launcher() => {
            return successor::run_launcher(cli.force).report();
        }
        None => {}
    }
    // Once: a file that disappears later is an error of a reload, not a change to the defaults.
    cli.flags.config = config_file(cli.flags.config.take());
    let passed = match activation::take() {
        Err(error) => return Exit::failed(error).report(),
        Ok(passed) => passed,
    };
    // If the affinity is unknown, one worker runs and is not pinned.
    let vcpus = affinity::cores_first(&affinity::allowed().unwrap_or_default());
    let mut host = Host::here(vcpus);
    host.passed = passed.as_ref().map(Passed::of).or_else(|| inherited_sockets(&cli, &host));
    let exit = match cli.task(&host) {
        Err(problems) => Exit::wrong(problems),
        Ok(Task::Show(text)) => print(&text, GOOD),
        Ok(Task::Serve(settings, notices)) => {
            serve(*settings, &notices, passed, cli, host, program).unwrap_or_else(failed_start)
        }
    };
    exit.report()
}

/// The sockets that a service manager has passed to the running process, for an upgrade. Problems
/// of the configuration are reported later.
fn inherited_sockets(cli: &Cli, host: &Host) -> Option<Passed> {
    let (settings, _) = cli.upgrade.then(|| Settings::load(&cli.flags, host))?.ok()?;
    passed_sockets(&settings)
}

/// Runs a tracker from start to end.
fn serve(
    settings: Settings,
    notices: &[String],
    passed: Option<Adopted>,
    cli: Cli,
    host: Host,
    program: Program,
) -> Result<Exit, StartError> {
    let host_warnings = doctor::host_warnings(&settings, &host);
    if let Some(name) = &settings.user {
        user::load_names(name, settings.group.as_deref());
    }
    logging::start(settings.log.level).map_err(StartError::Threads)?;
    // Before the start, so that an early signal does not end the process in the middle of it.
    let signals = signals::listen().map_err(StartError::Threads)?;
    let tracker = match cli.upgrade {
        true => Tracker::take_over(&settings, cli.force)?,
        false => Tracker::start(&settings, passed)?,
    };
    for notice in notices {
        log::warn!("{notice}");
    }
    for warning in tracker.warnings.iter().chain(&host_warnings) {
        log::warn!("{warning}");
    }
    let greeting = greeting::lines(&settings, &tracker);
    let mut supervisor =
        Supervisor::new(tracker, settings, Reload::new(cli.flags, host)).with_program(program);
    for line in greeting {
        log::info!("{line}");
    }
    Ok(match supervisor.run(&signals) {
        End::HandedOver(mut handed_over) => {
            match supervisor.into_tracker().hand_over(&mut handed_over) {
                true => Exit::good(),
                false => Exit::failed(format!(
                    "process {} took over and exited at once: start again (the log says whether \
                     the peers are in the snapshot)",
                    handed_over.process
                )),
            }
        }
        End::Stopped => {
            let (summary, written) = supervisor.into_tracker().stop();
            log::info!(
                "stopped: {} datagrams in, {} out, {} refused",
                summary.datagrams,
                summary.sent,
                summary.refused_in_all(),
            );
            written.map_or_else(Exit::lost_peers, |()| Exit::good())
        }
        End::WorkerFailed(failure) => {
            // The other workers may hang for the same reason, so they are not waited for.
            std::mem::forget(supervisor);
            Exit::failed(failure)
        }
    })
}

/// The exit status and final message of a start that has failed.
fn failed_start(error: StartError) -> Exit {
    match error {
        // The next start reads it again, and systemd starts no tracker again that exits with 2.
        error @ StartError::List(ListError::Changed { .. }) => Exit::failed(error),
        // Parts of the configuration.
        StartError::List(_) | StartError::Token(_) => {
            Exit::wrong(format!("{error}\nnothing was started.\n"))
        }
        error => Exit::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::running::WorkerFailure;
    use std::io;

    #[test]
    fn failures_have_their_exit_status_and_message() {
        let failure = WorkerFailure { name: "worker-3".into(), cause: "it panicked: why".into() };
        let exit = Exit::failed(failure);
        assert_eq!(
            (exit.code, exit.text.as_str()),
            (1, "onrush: worker-3 failed: it panicked: why\n")
        );
        let exit = failed_start(ListError::Empty { path: "list".into() }.into());
        assert_eq!(exit.code, 2);
        let exit = failed_start(ListError::Changed { path: "list".into() }.into());
        assert_eq!(exit.code, 1);
        let exit = failed_start(StartError::Poll(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(exit.code, 1);
        assert!(exit.text.starts_with("onrush: cannot set up polling: "), "{}", exit.text);
    }
}
