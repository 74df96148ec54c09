//! Signals as messages. A thread waits for them, so no code runs in a signal handler.

use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// A signal, by the action that it requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// TERM or INT: stop cleanly. A second one ends the process at once, with status 1.
    Stop,
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
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, receiver) = unbounded();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stopping = false;
        for number in signals.forever() {
            let signal = match number {
                SIGHUP => Signal::Reload,
                SIGUSR1 => Signal::Export,
                SIGUSR2 => Signal::Upgrade(Instant::now()),
                // The clean stop may be blocked, by a stalled worker or a slow disk.
                _ if stopping => {
                    log::logger().flush();
                    std::process::exit(1);
                }
                _ => Signal::Stop,
            };
            stopping |= signal == Signal::Stop;
            if sender.send(signal).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}
