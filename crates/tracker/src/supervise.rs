//! The main thread once the workers run: hears signals and deaths, watches once a second, reports.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select, tick};
use onrush_net::steering::Steering;
use onrush_swarm::Moment;

use crate::exporter::Totals;
use crate::process::logging::WarningLimit;
use crate::process::signals::Wish;
use crate::relief::{Change, Relief};
use crate::running::{Death, Running};
use crate::settings::Settings;
use crate::start::Tracker;

/// Seconds without a turn after which a worker is reported as standing still. Workers wake several
/// times a second even when there is nothing to do.
const STANDSTILL: u32 = 5;

/// Why the tracker ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// A worker died.
    Died(Death),
}

/// Watches a tracker until it is asked to stop or a worker dies.
pub fn watch(tracker: &mut Tracker, settings: &Settings, wishes: &Receiver<Wish>) -> End {
    let seconds = tick(Duration::from_secs(1));
    let mut watch = Watch::new(&tracker.running, settings);
    loop {
        select! {
            recv(wishes) -> wish => match wish {
                Ok(Wish::Reload) => log::info!(
                    "SIGHUP: the configuration is read at start only; restart to apply a change"
                ),
                Ok(Wish::User) => log::info!("SIGUSR1: nothing is tied to this signal"),
                Ok(Wish::Stop) | Err(_) => return End::Asked,
            },
            recv(tracker.running.deaths()) -> death => {
                let unknown = || Death { name: "worker".into(), cause: "unknown".into() };
                return End::Died(death.unwrap_or_else(|_| unknown()));
            }
            recv(seconds) -> _ => watch.second(&tracker.running, tracker.steering.as_mut()),
        }
    }
}

/// What the main thread remembers from second to second.
struct Watch {
    start: Instant,
    limit: WarningLimit,
    totals: Totals,
    totals_every: Duration,
    totals_at: Instant,
    drops: u64,
    /// Turns of each worker when last looked at, and for how many seconds they have not changed.
    turns: Vec<(u64, u32)>,
    relief: Relief,
}

impl Watch {
    fn new(running: &Running, settings: &Settings) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            limit: WarningLimit::new(settings.limits.warnings_per_minute),
            totals: Totals::default(),
            totals_every: settings.log.totals_every,
            totals_at: now,
            drops: 0,
            turns: vec![(0, 0); running.workers().count()],
            relief: Relief::new(settings.placement.doors()),
        }
    }

    fn second(&mut self, running: &Running, steering: Option<&mut Steering>) {
        self.look_for_standstill(running);
        self.look_for_drops(running);
        if let Some(steering) = steering {
            self.relieve(running, steering);
        }
        let now = Instant::now();
        let elapsed = now.duration_since(self.totals_at);
        if !self.totals_every.is_zero() && elapsed >= self.totals_every {
            self.totals_at = now;
            log::info!("{}", self.totals.line(running.summary(), elapsed));
        }
    }

    fn look_for_standstill(&mut self, running: &Running) {
        for ((name, metrics), (turns, seconds)) in running.workers().zip(&mut self.turns) {
            let now = metrics.turns.get();
            *seconds = if now == *turns { *seconds + 1 } else { 0 };
            *turns = now;
            if *seconds >= STANDSTILL {
                self.limit.warn("standstill", || {
                    format!("{name} has not taken a turn for {seconds} s: its vCPU may be taken by others")
                });
            }
        }
    }

    fn look_for_drops(&mut self, running: &Running) {
        let drops = running.summary().kernel_drops;
        let new = drops.saturating_sub(self.drops);
        self.drops = drops;
        if new > 0 {
            self.limit.warn("drops", || {
                format!(
                    "the kernel dropped {new} datagrams within a second because receive buffers \
                     were full: raise net.core.rmem_max and socket.receive_buffer, or give the \
                     tracker more workers"
                )
            });
        }
    }

    fn relieve(&mut self, running: &Running, steering: &mut Steering) {
        let drops = running.workers().map(|(_, metrics)| metrics.kernel_drops.get());
        let now = Moment(self.start.elapsed().as_secs() as u32);
        for change in self.relief.observe(drops, now) {
            let result = match change {
                Change::Withdraw(worker) => {
                    self.limit.warn("relief", || {
                        format!(
                            "worker-{worker} drops datagrams while others have time: its info \
                                 hashes are spread over all workers for a while"
                        )
                    });
                    steering.withdraw(worker as u16)
                }
                Change::Restore(worker) => steering.restore(worker as u16),
            };
            if let Err(error) = result {
                self.limit.warn("steering", || format!("cannot change the steering: {error}"));
            }
        }
    }
}
