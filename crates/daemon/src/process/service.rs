//! The service manager around the process (systemd, or whoever set `$NOTIFY_SOCKET`): what it is
//! told, and the watchdog that it keeps. Without one all of this does nothing.
//!
//! The protocol is sd_notify(3): datagrams to a Unix socket. Whoever starts or stops for longer than
//! the unit's timeouts allow says so by [`Patience`]; [`Watchdog`] decides when the watchdog is fed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use onrush_control::stall::StallDetector;
use onrush_tracker::metrics::{Summary, WorkerMetrics};

/// For how long an extension of a timeout holds.
const EXTENSION: Duration = Duration::from_secs(30);
/// How often it is extended.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
/// How often the line for people is written anew.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The tracker serves: all sockets are bound, and what was kept is loaded. `status` is a line for
/// people.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again. [`ready`] ends this, whatever came of it.
pub fn reloading() {
    // A manager that waits for the end of a reload (Type=notify-reload) tells by the time whether this
    // one is the one that it asked for.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// The tracker has begun to stop.
pub fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Another process is the one to watch over from here on, and to be waited for as long as this one would be.
pub fn follow(process: u32) {
    notify(&[NotifyState::MainPid(process), NotifyState::Watchdog]);
}

/// This process is the one that is watched over from here on. What it said before was not heard (NotifyAccess=main).
pub fn followed() {
    notify(&[NotifyState::Ready, NotifyState::Watchdog]);
}

/// A line for people, shown by `systemctl status`.
pub fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Feeds the watchdog; when, is for [`Watchdog`] to say.
pub fn feed() {
    notify(&[NotifyState::Watchdog]);
}

/// Asks for so much time from now on, before the unit's timeout for starting, reloading or stopping
/// ends the process.
pub fn extend(time: Duration) {
    let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::ExtendTimeoutUsec(micros)]);
}

fn notify(state: &[NotifyState<'_>]) {
    // Who does not listen any more does not need to hear it, and a tracker serves all the same.
    if let Err(error) = sd_notify::notify(state) {
        log::debug!("the service manager cannot be told: {error}");
    }
}

/// Keeps a manager patient while something takes its time: a snapshot that is loaded or written, a list that is read.
///
/// Call [`step`](Self::step) between the steps of the work, however many there are; every few seconds
/// one of them extends the timeout by half a minute. Work that hangs stops calling, and is ended.
#[derive(Debug, Default)]
pub struct Patience {
    extended: Option<Instant>,
}

impl Patience {
    /// For work that begins.
    pub fn new() -> Self {
        Self::default()
    }

    /// The work goes on at `now`.
    pub fn step(&mut self, now: Instant) {
        if self.is_due(now) {
            extend(EXTENSION);
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.extended.is_none_or(|last| now.duration_since(last) >= EXTEND_EVERY);
        if due {
            self.extended = Some(now);
        }
        due
    }
}

/// Reports progress of long work to the service manager: a callback for work that calls it every few
/// milliseconds (see [`Patience`]).
pub fn progress() -> impl FnMut() {
    let mut patience = Patience::new();
    move || patience.step(Instant::now())
}

/// What the manager hears of a tracker that serves: that it does, how it is, and that it lives.
#[derive(Debug)]
pub struct Lifeline {
    watchdog: Option<Watchdog>,
    /// The beginning of the line for people.
    serves: String,
    /// When it was written last, and what there was of requests then.
    told: (Instant, u64),
}

impl Lifeline {
    /// Of a tracker that serves these addresses from now on.
    pub fn new(addresses: &[SocketAddr], now: Instant) -> Self {
        let addresses: Vec<_> =
            addresses.iter().map(|address| format!("udp://{address}")).collect();
        let serves = format!("serves {}", addresses.join(" and "));
        Self { watchdog: Watchdog::here(now), serves, told: (now, 0) }
    }

    /// It serves, for the first time or again after a reload.
    pub fn ready(&self) {
        ready(&self.serves);
    }

    /// To be called once a second with all workers, always in the same order.
    pub fn second(&mut self, workers: &[(&str, &WorkerMetrics)], now: Instant) {
        let turns = workers.iter().map(|(_, metrics)| metrics.turns.get());
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(turns, now)) {
            feed();
        }
        if now.duration_since(self.told.0) >= STATUS_EVERY {
            let summary = Summary::of(workers.iter().map(|(_, metrics)| *metrics));
            status(&self.line(&summary, now));
        }
    }

    fn line(&mut self, summary: &Summary, now: Instant) -> String {
        let (last, datagrams) = std::mem::replace(&mut self.told, (now, summary.datagrams));
        let seconds = now.duration_since(last).as_secs_f64().max(0.001);
        let rate = summary.datagrams.saturating_sub(datagrams) as f64 / seconds;
        let peers = summary.peers_v4 + summary.peers_v6;
        format!("{}: {rate:.0} requests/s, {peers} peers in {} swarms", self.serves, summary.swarms)
    }
}

/// Decides when to feed the service manager's watchdog: only while every worker has taken a turn
/// since the last feed. If a worker hangs, the watchdog expires and the manager restarts the tracker.
#[derive(Debug)]
pub struct Watchdog {
    /// The time between feeds.
    every: Duration,
    fed: Instant,
    stalls: StallDetector,
}

impl Watchdog {
    /// The watchdog of this process, if it has one (WatchdogSec= in the unit).
    pub fn here(now: Instant) -> Option<Self> {
        sd_notify::watchdog_enabled().map(|timeout| Self::new(timeout, now))
    }

    /// A watchdog that expires when it is not fed for `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        // Workers take at least four turns per second; a shorter interval could see none.
        let every = (timeout / 3).max(Duration::from_millis(500));
        Self { every, fed: now, stalls: StallDetector::new(now) }
    }

    /// Whether to feed the watchdog at `now`, given each worker's turn counter. Call it at least once
    /// a second, always with the workers in the same order.
    pub fn is_due(&mut self, turns: impl IntoIterator<Item = u64>, now: Instant) -> bool {
        let elapsed = now.duration_since(self.fed);
        let stalled = self.stalls.observe(turns, now).into_iter().any(|time| time >= elapsed);
        let due = elapsed >= self.every && !stalled;
        if due {
            self.fed = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_watchdog_is_fed_while_every_worker_takes_turns() {
        let mut now = Instant::now();
        let mut watchdog = Watchdog::new(9 * SECOND, now);
        let mut turns = [0, 0];
        let mut fed = Vec::new();
        for second in 0..30 {
            now += SECOND;
            turns[0] += 4;
            // The second worker hangs for a while, and comes back.
            turns[1] += if (10..20).contains(&second) { 0 } else { 1 };
            if watchdog.is_due(turns, now) {
                fed.push(second);
            }
        }
        // The feed of second 11 has turns of the seconds before; then there are none until 20.
        assert_eq!(fed, [2, 5, 8, 11, 20, 23, 26, 29]);
    }

    #[test]
    fn a_worker_that_never_began_is_not_fed_for() {
        let now = Instant::now();
        let mut watchdog = Watchdog::new(3 * SECOND, now);
        assert!(!watchdog.is_due([5, 0], now + 9 * SECOND));
        assert!(watchdog.is_due([5, 1], now + 9 * SECOND));
    }

    #[test]
    fn the_line_for_people_tells_what_is_new() {
        let start = Instant::now();
        let mut lifeline = Lifeline::new(&["127.0.0.1:6969".parse().unwrap()], start);
        let mut summary = Summary { datagrams: 500, swarms: 3, peers_v6: 4, ..Summary::default() };
        let said = "serves udp://127.0.0.1:6969: 100 requests/s, 4 peers in 3 swarms";
        assert_eq!(lifeline.line(&summary, start + 5 * SECOND), said);
        summary.datagrams += 10;
        assert!(lifeline.line(&summary, start + 10 * SECOND).contains(": 2 requests/s, "));
    }

    #[test]
    fn a_timeout_is_extended_every_few_seconds_while_work_goes_on() {
        let start = Instant::now();
        let mut patience = Patience::new();
        let due: Vec<_> =
            (0..14).filter(|second| patience.is_due(start + *second * SECOND)).collect();
        assert_eq!(due, [0, 5, 10]);
        assert!(EXTENSION > 2 * EXTEND_EVERY);
    }
}
