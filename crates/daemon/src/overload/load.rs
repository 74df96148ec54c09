//! The load of one second: differences of the workers' counters.

use std::time::Instant;

use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::refusal::Refusal;

/// The share of a second from which on a worker that loses datagrams cannot keep up. One that loses
/// them while it is mostly idle has too small a buffer for bursts: neither load shedding nor other
/// steering helps.
pub const BUSY: f64 = 0.5;

/// The load of one second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams lost because a receive buffer was full.
    pub lost: u64,
    /// The part of them that busy workers lost.
    pub lost_by_busy: u64,
    /// Requests refused because no batch was free or a lane was full.
    pub refused_busy: u64,
    /// Connects among the datagrams received.
    pub connects: u64,
    /// Datagrams that the kernel's filter dropped.
    pub shed: u64,
}

impl Load {
    /// Datagrams that were to be received: those that the filter dropped are not among them.
    pub fn arrived(&self) -> u64 {
        self.received + self.lost
    }

    /// Datagrams and requests that the workers had no time for.
    pub fn pressed_out(&self) -> u64 {
        self.lost_by_busy + self.refused_busy
    }
}

/// Counters at the end of the previous second.
#[derive(Debug, Default)]
pub struct Readings {
    at: Option<Instant>,
    workers: Vec<Reading>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    received: u64,
    lost: u64,
    refused_busy: u64,
    connects: u64,
    shed: u64,
    busy_nanoseconds: u64,
}

impl Reading {
    fn of(metrics: &WorkerMetrics) -> Self {
        let families = [&metrics.incoming.v4, &metrics.incoming.v6];
        Self {
            received: families.iter().map(|family| family.datagrams.get()).sum(),
            lost: metrics.kernel_drops.get(),
            refused_busy: families
                .iter()
                .map(|family| family.refused[Refusal::Busy as usize].get())
                .sum(),
            connects: families.iter().map(|family| family.connects.get()).sum(),
            shed: metrics.kernel_shed.get(),
            busy_nanoseconds: metrics.turn_times.sum(),
        }
    }
}

impl Readings {
    /// Call every second with all workers, always in the same order. The first call returns the
    /// load of the time before as that of one second.
    pub fn tick(&mut self, workers: &[(&str, &WorkerMetrics)], now: Instant) -> Load {
        let elapsed = self.at.replace(now).map_or(1.0, |at| now.duration_since(at).as_secs_f64());
        self.workers.resize(workers.len(), Reading::default());
        let mut load = Load::default();
        for ((_, metrics), last) in workers.iter().zip(&mut self.workers) {
            let new = Reading::of(metrics);
            let old = std::mem::replace(last, new);
            // A turn lasts until the next one begins, also while the process may not run.
            let busy = new.busy_nanoseconds.saturating_sub(old.busy_nanoseconds) as f64 * 1e-9;
            let lost = new.lost.saturating_sub(old.lost);
            load.lost += lost;
            load.lost_by_busy += if busy >= BUSY * elapsed { lost } else { 0 };
            load.received += new.received.saturating_sub(old.received);
            load.refused_busy += new.refused_busy.saturating_sub(old.refused_busy);
            load.connects += new.connects.saturating_sub(old.connects);
            load.shed += new.shed.saturating_sub(old.shed);
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn losses_of_idle_workers_are_told_apart() {
        let workers = [WorkerMetrics::default(), WorkerMetrics::default()];
        let named = [("worker-0", &workers[0]), ("worker-1", &workers[1])];
        let (mut readings, start) = (Readings::default(), Instant::now());
        workers.iter().for_each(|worker| worker.incoming.v4.datagrams.add(1_000));
        assert_eq!(readings.tick(&named, start).received, 2_000);
        for (worker, milliseconds) in workers.iter().zip([400, 600]) {
            worker.turn_times.observe(milliseconds * 1_000_000);
            worker.kernel_drops.add(100 + milliseconds);
            worker.incoming.v6.datagrams.add(10);
            worker.incoming.v6.connects.add(4);
            worker.incoming.v4.refused[Refusal::Busy as usize].add(3);
            worker.kernel_shed.add(5);
        }
        let load = readings.tick(&named, start + Duration::from_secs(1));
        let expected = Load {
            received: 20,
            lost: 1_200,
            lost_by_busy: 700,
            refused_busy: 6,
            connects: 8,
            shed: 10,
        };
        assert_eq!(load, expected);
        assert_eq!((load.arrived(), load.pressed_out()), (1_220, 706));
        // 0.6 s of work within two seconds.
        workers[0].turn_times.observe(600_000_000);
        workers[0].kernel_drops.add(7);
        let load = readings.tick(&named, start + Duration::from_secs(3));
        assert_eq!((load.lost, load.lost_by_busy), (7, 0));
    }
}
