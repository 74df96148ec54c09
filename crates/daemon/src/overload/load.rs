//! The load of one second: differences of the workers' counters.

use std::time::{Duration, Instant};

use onrush_config::host::QuotaPeriods;
use onrush_tracker::close_cause::CloseCause;
use onrush_tracker::member::{Member, Role};
use onrush_tracker::metrics::WorkerMetrics;
use onrush_tracker::refusal::Refusal;

/// Share of a second with work from which on a worker that loses datagrams cannot keep up. A worker
/// that loses them while it is mostly idle has too small a buffer for bursts: neither longer
/// intervals nor other steering help. In a second with this share of throttled periods every worker
/// counts as busy: one whose work fits into the rest of the quota sleeps when it is stopped.
const BUSY: f64 = 0.5;
/// A worker without a turn for so long is stalled, as an idle one takes four in a second. It
/// counts as busy: the time of a turn is added to the counters at its end.
const STALL_COUNTS_AS_BUSY: Duration = Duration::from_millis(500);

/// The load of one second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The load of each worker.
    pub workers: Vec<WorkerLoad>,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams lost because a receive buffer was full.
    pub lost: u64,
    /// The lost datagrams of busy workers.
    pub lost_by_busy: u64,
    /// Requests over UDP refused as busy: their shard held its share of the batches, or as many
    /// scrapes were in progress as `limits.scrapes_in_flight` permits.
    pub refused: u64,
    /// Requests over UDP refused as busy because of busy workers: all of them in a second in which
    /// a worker with a shard was busy, and none in any other, in which a burst exceeded the share
    /// of batches. A worker without a shard causes none: it takes back every served batch in each
    /// turn, and receives no requests while it is stalled.
    pub refused_by_busy: u64,
    /// Datagrams that the kernel's filter dropped.
    pub filtered: u64,
    /// Connections of HTTP and HTTPS accepted.
    pub connections: u64,
    /// Connections that were closed as soon as they were accepted, because `http.connections`
    /// others were in use.
    pub turned_away: u64,
    /// Requests over HTTP and WebSocket, with TLS or without.
    pub requests: u64,
    /// Of `requests`, those refused as busy, also in seconds without a busy worker: announces that
    /// have waited two seconds for room in a batch, and scrapes.
    pub refused_over_http: u64,
    /// Periods of a CPU quota.
    pub quota: QuotaPeriods,
}

/// The load of a worker in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams lost because a receive buffer was full.
    pub lost: u64,
    /// Whether the worker was in turns with work for at least half of the second, or stalled, or
    /// all were throttled.
    pub is_busy: bool,
}

impl Load {
    /// Datagrams received or lost. Those that the filter dropped are not among them.
    pub fn arrived(&self) -> u64 {
        self.received + self.lost
    }

    /// Datagrams lost and requests over UDP refused for lack of time.
    pub fn pressed_out(&self) -> u64 {
        self.lost_by_busy + self.refused_by_busy
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
    refused: u64,
    filtered: u64,
    connections: u64,
    turned_away: u64,
    requests: u64,
    busy_nanoseconds: u64,
}

impl Reading {
    fn of(metrics: &WorkerMetrics) -> Self {
        let families = [&metrics.incoming.v4, &metrics.incoming.v6];
        let web = &metrics.web;
        let requests = [&web.requests, &web.https_requests, &web.ws_requests, &web.wss_requests];
        Self {
            received: families.iter().map(|family| family.datagrams.get()).sum(),
            lost: metrics.kernel_drops.get(),
            refused: families
                .iter()
                .map(|family| family.refused[Refusal::Busy as usize].get())
                .sum(),
            filtered: metrics.kernel_shed.get(),
            connections: web.accepted.get() + web.https_accepted.get(),
            turned_away: web.closed[CloseCause::Full as usize].get(),
            requests: requests.iter().map(|counter| counter.get()).sum(),
            busy_nanoseconds: metrics.turn_times.sum(),
        }
    }
}

impl Readings {
    /// Call every second with all members, always in the same order, how long each has been
    /// `stalled`, and the periods of a quota in this second. The first call returns the load of the
    /// time before as that of one second.
    pub fn tick(
        &mut self,
        members: &[Member],
        stalled: &[Duration],
        quota: QuotaPeriods,
        now: Instant,
    ) -> Load {
        let before = self.at.replace(now);
        let elapsed = before.map_or(1.0, |at| now.duration_since(at).as_secs_f64());
        self.workers.resize(members.len(), Reading::default());
        let is_throttled = quota.throttled > 0 && quota.throttled as f64 >= BUSY * quota.all as f64;
        let mut load = Load { quota, ..Load::default() };
        for ((member, last), stalled) in members.iter().zip(&mut self.workers).zip(stalled) {
            let new = Reading::of(&member.metrics);
            let old = std::mem::replace(last, new);
            // A turn lasts until the next one begins, also while the process may not run.
            let busy = new.busy_nanoseconds.saturating_sub(old.busy_nanoseconds) as f64 * 1e-9;
            let worker = WorkerLoad {
                received: new.received.saturating_sub(old.received),
                lost: new.lost.saturating_sub(old.lost),
                is_busy: is_throttled || busy >= BUSY * elapsed || *stalled >= STALL_COUNTS_AS_BUSY,
            };
            // Requests that the XDP program has answered or refused never reached the sockets.
            load.received += if member.role == Role::Program { 0 } else { worker.received };
            load.lost += worker.lost;
            load.lost_by_busy += if worker.is_busy { worker.lost } else { 0 };
            // Those of web workers are no datagrams, and the kernel's filter does not lessen them.
            let refused = match member.role.has_connections() {
                true => &mut load.refused_over_http,
                false => &mut load.refused,
            };
            *refused += new.refused.saturating_sub(old.refused);
            load.requests += new.requests.saturating_sub(old.requests);
            load.filtered += new.filtered.saturating_sub(old.filtered);
            load.connections += new.connections.saturating_sub(old.connections);
            load.turned_away += new.turned_away.saturating_sub(old.turned_away);
            load.workers.push(worker);
        }
        let mut owners =
            members.iter().zip(&load.workers).filter(|(member, _)| member.role.has_shard());
        if owners.any(|(_, owner)| owner.is_busy) {
            load.refused_by_busy = load.refused;
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SPLIT: [Role; 3] = [Role::Socket, Role::Shard, Role::Shard];
    const COLOCATED: [Role; 3] = [Role::Both; 3];
    const RUNS: [Duration; 3] = [Duration::ZERO; 3];
    const NO_QUOTA: QuotaPeriods = QuotaPeriods { all: 0, throttled: 0 };

    fn members(roles: [Role; 3]) -> [Member; 3] {
        roles.map(|role| Member::new(role, 0, Arc::default()))
    }

    #[test]
    fn losses_of_idle_workers_are_told_apart() {
        let members = members(COLOCATED);
        let workers = members.each_ref().map(|member| &member.metrics);
        let (mut readings, start) = (Readings::default(), Instant::now());
        workers.iter().for_each(|worker| worker.incoming.v4.datagrams.add(1_000));
        assert_eq!(readings.tick(&members, &RUNS, NO_QUOTA, start).received, 3_000);
        for (worker, milliseconds) in workers.iter().zip([400, 499, 600]) {
            worker.turn_times.observe(milliseconds * 1_000_000);
            worker.kernel_drops.add(100 + milliseconds);
            worker.incoming.v6.datagrams.add(10);
            worker.incoming.v4.refused[Refusal::Busy as usize].add(3);
            worker.kernel_shed.add(5);
            worker.web.accepted.add(30);
            worker.web.https_accepted.add(10);
            worker.web.closed[CloseCause::Full as usize].add(4);
            worker.web.closed[CloseCause::Replaced as usize].add(1);
        }
        let load = readings.tick(&members, &RUNS, NO_QUOTA, start + Duration::from_secs(1));
        let worker = |lost, is_busy| WorkerLoad { received: 10, lost, is_busy };
        let expected = Load {
            workers: vec![worker(500, false), worker(599, false), worker(700, true)],
            received: 30,
            lost: 1_799,
            lost_by_busy: 700,
            refused: 9,
            refused_by_busy: 9,
            filtered: 15,
            connections: 120,
            turned_away: 12,
            requests: 0,
            refused_over_http: 0,
            quota: NO_QUOTA,
        };
        assert_eq!(load, expected);
        assert_eq!((load.arrived(), load.pressed_out()), (1_829, 709));
        // 0.6 s of work within two seconds.
        workers[0].turn_times.observe(600_000_000);
        workers[0].kernel_drops.add(7);
        let load = readings.tick(&members, &RUNS, NO_QUOTA, start + Duration::from_secs(3));
        assert_eq!((load.lost, load.lost_by_busy), (7, 0));
    }

    #[test]
    fn what_web_workers_refuse_is_no_part_of_the_datagrams() {
        let members = [Role::Both, Role::Web].map(|it| Member::new(it, 0, Arc::default()));
        let [worker, front] = members.each_ref().map(|member| &member.metrics);
        worker.incoming.v4.datagrams.add(100);
        worker.incoming.v4.refused[Refusal::Busy as usize].add(3);
        worker.turn_times.observe(900_000_000);
        let web = &front.web;
        let requests = [&web.requests, &web.https_requests, &web.ws_requests, &web.wss_requests];
        requests.iter().for_each(|counter| counter.add(2_500));
        front.incoming.v6.refused[Refusal::Busy as usize].add(50);
        let load = Readings::default().tick(&members, &RUNS[..2], NO_QUOTA, Instant::now());
        assert_eq!((load.refused, load.refused_by_busy, load.arrived()), (3, 3, 100));
        assert_eq!((load.refused_over_http, load.requests), (50, 10_000));
    }

    /// A flood that the program drops does not hide what sockets lose.
    #[test]
    fn what_the_program_has_received_is_no_load() {
        let members = [Role::Both, Role::Program].map(|it| Member::new(it, 0, Arc::default()));
        members.iter().zip([700, 1_000_000]).for_each(|(member, received)| {
            member.metrics.incoming.v4.datagrams.add(received);
        });
        members[0].metrics.kernel_drops.add(300);
        let load = Readings::default().tick(&members, &RUNS[..2], NO_QUOTA, Instant::now());
        assert_eq!((load.arrived(), load.lost), (1_000, 300));
    }

    /// A worker that drains its buffer within the rest of a quota is idle by the time of its turns.
    #[test]
    fn workers_are_busy_while_a_quota_stops_the_process() {
        let members = members(COLOCATED);
        members[0].metrics.turn_times.observe(300_000_000);
        let (mut readings, mut second) = (Readings::default(), 0);
        let mut now = Instant::now();
        let mut busy = |all, throttled| {
            (second, now) = (second + 1, now + Duration::from_secs(1));
            members[0].metrics.kernel_drops.add(second);
            let load = readings.tick(&members, &RUNS, QuotaPeriods { all, throttled }, now);
            (load.workers[0].is_busy, load.lost_by_busy)
        };
        assert_eq!(busy(0, 0), (false, 0));
        assert_eq!(busy(10, 4), (false, 0));
        assert_eq!(busy(10, 5), (true, 3), "in half of the periods");
        assert_eq!(busy(10, 0), (false, 0));
    }

    /// Worker 0 refuses 50 requests. In the split placement it has no shard.
    #[test]
    fn refusals_are_pressure_if_a_worker_with_a_shard_is_busy() {
        type Row = ([Role; 3], [u64; 3], [u64; 3], u64);
        const TABLE: [Row; 11] = [
            // Roles, milliseconds with work and milliseconds without a turn, pressure.
            (SPLIT, [0, 0, 0], [0, 0, 0], 0),
            (SPLIT, [1000, 499, 499], [0, 250, 250], 0),
            (SPLIT, [0, 0, 0], [1000, 0, 0], 0),
            (SPLIT, [0, 500, 0], [0, 0, 0], 50),
            (SPLIT, [0, 0, 900], [0, 0, 0], 50),
            (SPLIT, [900, 900, 900], [0, 0, 0], 50),
            (SPLIT, [0, 0, 0], [0, 1000, 0], 50),
            (COLOCATED, [499, 499, 499], [0, 250, 250], 0),
            (COLOCATED, [900, 0, 0], [0, 0, 0], 50),
            (COLOCATED, [0, 0, 900], [0, 0, 0], 50),
            (COLOCATED, [0, 0, 0], [0, 0, 5000], 50),
        ];
        for (roles, busy, stalled, pressure) in TABLE {
            let members = members(roles);
            let workers = members.each_ref().map(|member| &member.metrics);
            for (worker, milliseconds) in workers.iter().zip(busy) {
                worker.turn_times.observe(milliseconds * 1_000_000);
            }
            workers[0].incoming.v4.refused[Refusal::Busy as usize].add(20);
            workers[0].incoming.v6.refused[Refusal::Busy as usize].add(30);
            let stalled = stalled.map(Duration::from_millis);
            let load = Readings::default().tick(&members, &stalled, NO_QUOTA, Instant::now());
            let expected = (50, pressure, pressure);
            let found = (load.refused, load.refused_by_busy, load.pressed_out());
            assert_eq!(found, expected, "{roles:?} {busy:?} {stalled:?}");
        }
    }
}
