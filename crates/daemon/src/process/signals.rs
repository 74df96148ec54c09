//! Signals as messages. A thread waits for them, so no code runs in a signal handler.

use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use onrush_net::signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::signal_name;

/// A signal, by the action that it requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Signal {
    /// TERM or INT: stop cleanly. A second one ends the process at once, with status 1. Carries its
    /// name and sender, for the log.
    Stop(String),
    /// HUP: reload the configuration.
    Reload,
    /// USR1: write the full scrape to `export.file`.
    Export,
    /// USR2: start a successor. Carries the time of arrival: a signal sent to all processes of a
    /// unit reaches a successor too, before it serves.
    Upgrade(Instant),
}

/// Catches TERM, INT, HUP, USR1 and USR2 for the rest of the process's life.
///
/// # Errors
/// When the handlers cannot be set or the thread cannot be started.
pub fn listen() -> io::Result<Receiver<Signal>> {
    let mut signals =
        SignalsInfo::<WithRawSiginfo>::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, receiver) = unbounded();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stopping = false;
        for info in signals.forever() {
            let signal = match info.si_signo {
                SIGHUP => Signal::Reload,
                SIGUSR1 => Signal::Export,
                SIGUSR2 => Signal::Upgrade(Instant::now()),
                // The clean stop may be blocked, by a stalled worker or a slow disk.
                _ if stopping => {
                    log::logger().flush();
                    std::process::exit(1);
                }
                _ => Signal::Stop(described(info.si_signo, signal::sender(&info))),
            };
            stopping |= matches!(signal, Signal::Stop(_));
            if sender.send(signal).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}

/// The name of a signal and its sender, the ids of a process and a user: `SIGTERM of process 1,
/// user 0`.
fn described(number: i32, sender: Option<(i32, u32)>) -> String {
    let name = signal_name(number).unwrap_or("a signal");
    match sender {
        Some((process, user)) => format!("{name} of process {process}, user {user}"),
        None => format!("{name} of the kernel, as for Ctrl-C"),
    }
}
