//! Newcomers: connects whose source is a new one each time. Each asks once, so that a tracker that
//! loses connects of unknown sources shows here.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use onrush_net::{Return, Socket as _};

use super::connects::Connects;
use super::prefix::Prefix;
use super::{AttackArgs, HonestReport};
use crate::latency::{Latencies, Latency, Nanos};
use crate::run::RunClock;

/// Step from one source to the next: odd, so that all sources of a block come up, and far from
/// neighbours.
const STRIDE: u64 = 0x9E37_79B1;
/// Upper bound on a wait.
const LONGEST_WAIT: Nanos = 20_000_000;

/// Connects of newcomers, and the result of their requests.
pub(super) struct Newcomers {
    pub(super) connects: Connects,
    targets: Vec<(SocketAddr, Prefix)>,
    rate: f64,
    timeout: Nanos,
    seed: u64,
    /// When each was due, from the first on, and whether it was answered in time.
    due: Vec<(Nanos, bool)>,
    /// The start of the measured window.
    start: Nanos,
    /// Latency of the answers of the window, from the due time on.
    latency: Latencies,
}

impl Newcomers {
    /// Opens the sockets. `targets` have a block of sources of their family each.
    ///
    /// # Errors
    /// When a socket cannot be bound.
    pub(super) fn open(
        args: &AttackArgs,
        seed: u64,
        targets: Vec<(SocketAddr, Prefix)>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            connects: Connects::open(&targets)?,
            targets,
            rate: args.newcomers,
            timeout: args.timeout.as_nanos() as Nanos,
            seed,
            due: Vec::new(),
            start: args.warmup.as_nanos() as Nanos,
            latency: Latencies::default(),
        })
    }

    /// The newcomers of the measured window.
    pub(super) fn report(&self) -> HonestReport {
        let counted = || self.due.iter().filter(|(due, _)| *due >= self.start);
        HonestReport {
            requests: counted().count() as u64,
            answered: counted().filter(|(_, answered)| *answered).count() as u64,
            latency: Latency::of(&self.latency.0),
        }
    }

    /// Sends until the span ends, and waits for the last answers.
    ///
    /// # Errors
    /// Only what makes a socket unusable.
    pub(super) fn run(&mut self, span: &RunClock) -> io::Result<()> {
        loop {
            let over = span.is_over();
            let now = span.now();
            let next = (self.due.len() as f64 * 1e9 / self.rate) as Nanos;
            // Requests that were due are sent although this thread is late.
            if next <= now && next < span.end() {
                let number = self.due.len();
                self.due.push((next, false));
                let (place, source) = source(&self.targets, self.seed, number);
                let to = Return::to(self.targets[place].0, place as u16).from_local(source);
                self.connects.ask(number, &to);
                continue;
            }
            self.receive(span)?;
            let last = self.due.last().map_or(0, |(due, _)| due + self.timeout);
            if over && (now > last || self.due.iter().all(|(_, answered)| *answered)) {
                return Ok(());
            }
            let wait = if over { LONGEST_WAIT } else { next.saturating_sub(now) };
            self.connects.socket.wait(Duration::from_nanos(wait.min(LONGEST_WAIT)))?;
        }
    }

    fn receive(&mut self, span: &RunClock) -> io::Result<()> {
        let Self { connects, due, latency, timeout, start, .. } = self;
        connects.receive(|number, _| {
            let Some((due, answered)) = due.get_mut(number) else { return };
            let took = span.now().saturating_sub(*due);
            if !*answered && took <= *timeout {
                *answered = true;
                if *due >= *start {
                    latency.0.saturating_record(took);
                }
            }
        })
    }
}

/// The target of a newcomer, and its source: targets take turns, and each counts its newcomers by
/// itself, so that no source returns before all of its block have come up.
fn source(targets: &[(SocketAddr, Prefix)], seed: u64, number: usize) -> (usize, IpAddr) {
    let place = number % targets.len();
    let turn = (number / targets.len()) as u64;
    (place, targets[place].1.source(seed.wrapping_add(turn.wrapping_mul(STRIDE))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_source_returns_only_after_the_whole_block() {
        let target = |address: &str, block: &str| {
            (address.parse().unwrap(), Prefix::new(block.parse().unwrap()))
        };
        let both = [target("10.0.0.1:1", "10.79.0.0/16"), target("[fd00::1]:1", "fd79::/48")];
        for targets in [&both[..1], &both[..]] {
            let all = targets.len() << 16;
            let found: HashSet<_> = (0..all).map(|n| source(targets, 0xABC, n).1).collect();
            assert_eq!(found.len(), all, "{targets:?}");
            assert_eq!(source(targets, 0xABC, all), source(targets, 0xABC, 0));
        }
    }
}
