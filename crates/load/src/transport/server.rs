//! The server's process: it returns to each stream what it received from it.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, bail};
use onrush_net::affinity::pin_current_thread;

use super::control::{Control, Message};
use super::open_server;
use super::signal::Tracker;
use super::stack::{Arrivals, Stack, StackKind, wait_until};

/// Longest wait without input.
const IDLE: Duration = Duration::from_secs(1);

/// Serves the process at the other end of standard input until that ends.
///
/// # Errors
/// When standard input is no socket of a client, or the system refuses a socket or a thread.
pub fn serve() -> anyhow::Result<()> {
    let stream = io::stdin().as_fd().try_clone_to_owned()?;
    let mut control = Control::new(UnixStream::from(stream))?;
    let start = control.receive().context("--serve is for onrush-load itself")?;
    let Message::Start { stack: kind, streams, pin, swarm } = start else {
        bail!("unexpected: {start:?}")
    };
    if let Some(cpu) = pin {
        pin_current_thread(cpu)?;
    }
    let (mut stack, ready) = open_server(kind, streams)?;
    let tracker = match &swarm {
        Some(swarm) => Some(Tracker::join(swarm, true, stack.wake()?)?),
        None => None,
    };
    control.send(&ready)?;
    let (mut sender, messages) = control.background(stack.wake()?);
    let mut arrivals = Arrivals::default();
    let mut refused = 0;
    loop {
        match messages.try_recv() {
            Ok(Message::Finish) => {
                let unsent = stack.unsent();
                return Ok(sender.send(&Message::Finished { refused, unsent })?);
            }
            Ok(Message::Description { connection, text }) => {
                let described = stack.describe(connection, &text, Instant::now());
                described.map_err(Error::msg)?;
                for (connection, text) in stack.descriptions() {
                    sender.send(&Message::Description { connection, text })?;
                }
                continue;
            }
            Ok(other) => bail!("unexpected: {other:?}"),
            // The client has ended.
            Err(TryRecvError::Disconnected) => return Ok(()),
            Err(TryRecvError::Empty) => {}
        }
        if let Some(tracker) = &tracker {
            answer(tracker, &mut *stack)?;
        }
        refused += turn(&mut *stack, &mut arrivals)?;
        if kind == StackKind::Webrtc {
            for (connection, reason) in arrivals.closed.drain(..) {
                sender.send(&Message::Ended { connection, reason })?;
            }
        }
    }
}

/// Answers the offers that have come through a tracker.
fn answer(tracker: &Tracker, stack: &mut dyn Stack) -> anyhow::Result<()> {
    while let Some((connection, text)) = tracker.receive().map_err(Error::msg)? {
        stack.describe(connection, &text, Instant::now()).map_err(Error::msg)?;
        for (connection, text) in stack.descriptions() {
            tracker.send(connection, text)?;
        }
    }
    Ok(())
}

/// Waits for input and returns it; counts what could not be written.
fn turn(stack: &mut dyn Stack, arrivals: &mut Arrivals) -> io::Result<u64> {
    stack.wait(wait_until(stack.timeout(), Instant::now(), IDLE))?;
    let now = Instant::now();
    arrivals.clear();
    stack.receive(now, arrivals)?;
    let mut refused = 0;
    for (connection, stream, bytes) in arrivals.chunks() {
        refused += u64::from(!stack.send(connection, stream, bytes));
    }
    stack.flush(now)?;
    Ok(refused)
}
