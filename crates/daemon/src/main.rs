//! The daemon `onrush`: parses the command line, then starts, supervises and stops a tracker.

mod allocator;
mod startup_lines;

use std::process::ExitCode;

use clap::Parser;
use onrush::cli::{Cli, Command, check, hinted};
use onrush::effect::End;
use onrush::process::socket_activation::{self, PassedSockets};
use onrush::process::{self, log_output, logging, signals, user};
use onrush::serve::Serving;
use onrush::supervise::config_source::ConfigSource;
use onrush::upgrade::launcher;
use onrush::upgrade::program::Program;
use onrush::upgrade::successor::passed_sockets;
use onrush::xdp::load::Attempt;
use onrush::{StartError, Tracker};
use onrush_commands::exit::{Exit, FAILED, GOOD, print};
use onrush_commands::{ctl, doctor, probe, top};
use onrush_config::config_file::config_file;
use onrush_config::settings::LogFormat;
use onrush_config::{Flags, Host, Passed, Problems, Settings, print_config};
use onrush_net::affinity;
use onrush_store::lists::file::{ListError, ListFault};
use onrush_text::numbers::grouped;

fn main() -> ExitCode {
    process::exit::report(run())
}

/// Does what the command line requests.
fn run() -> Exit {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    onrush_net::name_service::use_built_in_sources();
    // Early, since the file may be replaced by the next version.
    let program = Program::current();
    log_output::register();
    let mut cli = match Cli::try_parse().map_err(hinted) {
        Err(error) if error.use_stderr() => return Exit::wrong(error),
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    match &cli.command {
        Some(Command::Doctor(doctor)) => return doctor::run(doctor),
        Some(Command::Ctl(ctl)) => return ctl::run(ctl),
        Some(Command::Top(top)) => return top::run(top),
        Some(Command::Probe(args)) => return probe::run(args),
        None if launcher::is_launcher() => return launcher::run_launcher(),
        None if cli.print_config => return print(&print_config(), GOOD),
        None => {
            cli.upgrade |= launcher::is_successor();
            cli.force |= launcher::is_forced();
        }
    }
    // Once: a file that disappears later is an error of a reload, not a change to the defaults.
    cli.flags.config = config_file(cli.flags.config.take());
    // Before the file is read, as its errors are written in this format.
    log_output::set_json(cli.flags.log_format.as_deref() == Some("json"));
    let passed = match socket_activation::take() {
        Err(error) => return Exit::failed(error),
        Ok(passed) => passed,
    };
    // If the affinity is unknown, one worker runs and is not pinned.
    let vcpus = affinity::cores_first(&affinity::allowed().unwrap_or_default());
    let mut host = Host::here(vcpus);
    host.passed = match passed.describe() {
        none if none == Passed::default() => inherited_sockets(&cli, &host),
        passed => passed,
    };
    match Settings::load(&cli.flags, &host) {
        Err(problems) => Exit::wrong(problems),
        Ok((settings, notices)) if cli.check_config => {
            check::run(&cli.flags, &settings, notices, &host)
        }
        Ok((settings, notices)) => {
            serve(settings, &notices, passed, cli, host, program).unwrap_or_else(Exit::failed)
        }
    }
}

/// The sockets that a service manager has passed to the predecessor, for an upgrade. Problems of
/// the configuration are reported later.
fn inherited_sockets(cli: &Cli, host: &Host) -> Passed {
    match cli.upgrade.then(|| Settings::load(&cli.flags, host)) {
        Some(Ok((settings, _))) => passed_sockets(&settings),
        _ => Passed::default(),
    }
}

/// Runs a tracker from start to end.
fn serve(
    settings: Settings,
    notices: &[String],
    passed: PassedSockets,
    cli: Cli,
    host: Host,
    program: Program,
) -> Result<Exit, StartError> {
    user::load_names(settings.user.as_deref(), settings.group.as_deref());
    // Before any other thread starts, and before the change of user.
    let xdp = match Attempt::new(&settings, cli.upgrade) {
        Ok(xdp) => xdp,
        Err(refused) => return Ok(wrong(&cli.flags.places().problems([refused]))),
    };
    let host_warnings = doctor::host_warnings(&settings, &host);
    log_output::set_json(settings.log.format == LogFormat::Json);
    logging::start(settings.log.level).map_err(StartError::Threads)?;
    // Before the start, so that an early signal does not end the process in the middle of it.
    let signals = signals::listen().map_err(StartError::Threads)?;
    let started = match cli.upgrade {
        true => Tracker::start_as_successor(&settings, cli.force, xdp),
        false => Tracker::start(&settings, passed, xdp),
    };
    let tracker = match started {
        Ok(tracker) => tracker,
        Err(error) => return Ok(failed_start(&error, &cli.flags, &settings)),
    };
    for notice in notices {
        log::warn!("{notice}");
    }
    for warning in tracker.warnings.iter().chain(&host_warnings) {
        log::warn!("{warning}");
    }
    let startup_lines = startup_lines::lines(&settings, &tracker);
    let source = ConfigSource { flags: cli.flags, host };
    let mut serving = Serving::new(tracker, settings, source, Some(program));
    for line in startup_lines {
        log::info!("{line}");
    }
    Ok(match serving.run(&signals) {
        End::Handoff(completed) => {
            let process = completed.process;
            match serving.finish_handoff(completed) {
                true => Exit::good(),
                false => Exit::failed(format!(
                    "process {process} received the sockets and exited at once: start again (the \
                     log says whether the peers are in the snapshot)"
                )),
            }
        }
        End::Stopped => {
            let (summary, written) = serving.stop();
            log::info!(
                "stopped: {} in, {} out, {} refused",
                grouped(summary.received()),
                grouped(summary.replied()),
                grouped(summary.refused_in_all()),
            );
            written.map_or_else(Exit::lost_peers, |()| Exit::good())
        }
        End::WorkerFailed(failure) => {
            // The other workers may hang for the same reason, so they are not waited for.
            std::mem::forget(serving);
            Exit::failed(failure)
        }
    })
}

/// The exit status and final message of a start that has failed.
fn failed_start(error: &StartError, flags: &Flags, settings: &Settings) -> Exit {
    let Some(refused) = error.refused(settings) else { return Exit::failed(error) };
    let problems = flags.places().problems([refused]);
    match error {
        // The next start reads it again, and systemd starts no tracker again that exits with 2.
        StartError::List(ListError { fault: ListFault::Changed, .. }) => failed(&problems),
        // Parts of the configuration.
        StartError::List(_) | StartError::Token(_) | StartError::Xdp(_) => wrong(&problems),
        _ => failed(&problems),
    }
}

/// A start that fails until the configuration or the unit is changed.
fn wrong(problems: &Problems) -> Exit {
    Exit::wrong(format!("{problems}nothing was started.\n"))
}

/// A start that may succeed later without a change of the configuration.
fn failed(problems: &Problems) -> Exit {
    Exit { code: FAILED, text: format!("onrush: cannot start:\n{problems}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_net::bind::BindError;
    use onrush_tracker::running::{Scheme, WorkerFailure};
    use std::io;

    #[test]
    fn failures_have_their_exit_status_and_message() {
        let failure = WorkerFailure { name: "worker-3".into(), cause: "it panicked: why".into() };
        let exit = Exit::failed(failure);
        assert_eq!(
            (exit.code, exit.text.as_str()),
            (1, "onrush: worker-3 failed: it panicked: why\n")
        );
        let listen = "listen = ['127.0.0.1:80']\nhttp.listen = [':81', '127.0.0.1:80']";
        let settings = Settings::for_test(listen);
        let failed = |error: StartError| failed_start(&error, &Flags::default(), &settings);
        let exit = failed(ListError { path: "list".into(), fault: ListFault::Empty }.into());
        assert_eq!(exit.code, 2);
        let exit = failed(ListError { path: "list".into(), fault: ListFault::Changed }.into());
        assert_eq!(exit.code, 1);
        assert!(exit.text.contains("`access.blocked_file`: list: "), "{}", exit.text);
        let two = "[access]\nmode = 'deny'\nfiles = ['/a/x', '/b/y']";
        let empty = ListError { path: "/b/y".into(), fault: ListFault::Empty }.into();
        let exit = failed_start(&empty, &Flags::default(), &Settings::for_test(two));
        assert!(exit.text.contains("`access.files.1`: /b/y: "), "{}", exit.text);
        let exit = failed(BindError::NotHere { address: settings.listen[0].address }.into());
        assert_eq!(exit.code, 1);
        assert!(exit.text.contains("`listen.0`: this host has no address"), "{}", exit.text);
        let absent = BindError::NotHere { address: settings.listen[0].address };
        let exit = failed(StartError::Http(Scheme::Http, absent));
        assert!(exit.text.contains("`http.listen.1`: this host has no"), "{}", exit.text);
        let exit = failed(StartError::Poll(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(exit.code, 1);
        assert!(exit.text.starts_with("onrush: cannot set up polling: "), "{}", exit.text);
    }
}
