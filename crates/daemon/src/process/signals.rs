//! Signals as messages: a thread of their own waits for them, so that no code runs in a handler.

use std::io;
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// TERM, INT: stop cleanly. A second one ends the process at once, with status 1.
    Stop,
    /// HUP: read the configuration again.
    Reload,
    /// USR1: write the full scrape to its file.
    User,
    /// USR2: start the process that follows. When it came, as a process that is about to take over itself may
    /// get it together with the one that it takes over from.
    Upgrade(Instant),
}

/// Catches TERM, INT, HUP, USR1 and USR2 for the rest of the process's life.
///
/// # Errors
/// When the handlers cannot be set or the thread cannot be started.
pub fn listen() -> io::Result<Receiver<Wish>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    let (sender, receiver) = unbounded();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut asked_to_stop = false;
        for signal in signals.forever() {
            let wish = match signal {
                SIGHUP => Wish::Reload,
                SIGUSR1 => Wish::User,
                SIGUSR2 => Wish::Upgrade(Instant::now()),
                // Whoever asks twice does not want to wait for what holds up the first: a log
                // that nobody reads, or a worker that is stuck.
                _ if asked_to_stop => std::process::exit(1),
                _ => Wish::Stop,
            };
            asked_to_stop |= wish == Wish::Stop;
            if sender.send(wish).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}
