//! A simulated host: network, clocks, one tracker or two during an upgrade, its clients, and the
//! faults of a scenario.

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam_channel::bounded;
use onrush::effect::{ChangeRecord, Effect, Effects, End};
use onrush::overload::ProcessState;
use onrush::supervise::config_source::LoadedConfig;
use onrush::supervise::event::Event;
use onrush::time::Time as DaemonTime;
use onrush::upgrade::predecessor::HandoffEvent;
use onrush_config::host::QuotaPeriods;
use onrush_control::caller::Caller;
use onrush_control::request::{Request, Responder};
use onrush_net::memory::{Network, Options};
use onrush_replica::delta::{self, CompletedHandoff};
use onrush_replica::handoff::InheritedState;
use onrush_swarm::{Shard, ShardMap};
use onrush_testing::memory_tracker::{endpoints, secrets};
use onrush_tracker::assemble::{Secrets, shard_map};
use onrush_tracker::metrics::Summary;
use onrush_tracker::refusal::{Refusal, UdpRefusal};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::{Clocks, Step, Time};
use super::coverage::Coverage;
use super::limits::Limits;
use super::model::Model;
use super::operator::{Disk, draw_changes};
use super::peers::Peers;
use super::process::{Process, Starting};
use super::scenario::{CALM, Fault, Scenario};
use super::socket::{Log, SharedSocket};
use super::upgrade::{Failure, Plan, Upgrade};

/// Seconds within which every client gets a reply to an announce once faults have ended: an
/// interval, and time-outs while datagrams are lost.
const REPLY_TIMEOUT: Duration = Duration::from_secs(CALM - 10);
/// Events that a failure shows.
const TRACE: usize = 12;

struct World {
    rng: SmallRng,
    network: Network,
    clocks: Clocks,
    log: Log,
    sockets: Vec<SharedSocket>,
    secrets: Secrets,
    map: ShardMap,
    /// `limits.peers`.
    most_peers: u64,
    disk: Disk,
    serving: Process,
    /// The configuration that a reload has read, and the second at which that ends.
    loading: Option<(u64, LoadedConfig)>,
    /// Processes that have exited.
    exited: Vec<Summary>,
    upgrade: Option<Upgrade>,
    model: Model,
    coverage: Coverage,
    trace: Vec<String>,
}

/// Runs a scenario.
///
/// # Errors
/// A disagreement with the model, with the last faults before it.
pub(crate) fn run(seed: u64, scenario: &Scenario) -> Result<Coverage, String> {
    let mut world = World::new(seed, scenario);
    let result = world.run(scenario);
    result.map_err(|problem| {
        let first = world.trace.len().saturating_sub(TRACE);
        let at = world.network.now();
        format!("at {at:?}: {problem}\n  after:\n    {}", world.trace[first..].join("\n    "))
    })?;
    Ok(world.coverage)
}

impl World {
    fn new(seed: u64, scenario: &Scenario) -> Self {
        let options = Options {
            in_flight: 4096,
            receive_buffer: scenario.receive_buffer,
            batch: 64,
            blocking: false,
        };
        let network = Network::with_options(seed, scenario.conditions.clone(), options);
        let disk = Disk::new(scenario.text.clone());
        let mut settings = disk.settings();
        let most_peers = scenario.most_peers.unwrap_or(settings.limits.peers);
        settings.limits.peers = most_peers;
        let secrets = secrets(seed);
        let (log, clocks) = (Log::default(), Clocks::start());
        let endpoints = endpoints(&settings, &secrets, &network);
        let sockets: Vec<_> =
            endpoints.into_iter().map(|end| SharedSocket::new(end, log.clone())).collect();
        let map = shard_map(settings.placement.shards(), &secrets);
        let starting =
            Starting::new(&disk, &secrets, sockets.clone(), (0, most_peers), None, &clocks);
        let serving = starting.serve(&disk, None, clocks.at(0), &clocks);
        let rules = serving.rules();
        Self {
            rng: SmallRng::seed_from_u64(seed ^ 0xFA17),
            network,
            clocks,
            log,
            sockets,
            map,
            most_peers,
            model: Model::new(&rules, Limits::new(&settings), map, settings.connection.validity),
            secrets,
            disk,
            serving,
            loading: None,
            exited: Vec::new(),
            upgrade: None,
            coverage: Coverage::default(),
            trace: Vec::new(),
        }
    }

    fn run(&mut self, scenario: &Scenario) -> Result<(), String> {
        let rng = SmallRng::seed_from_u64(self.rng.random());
        let mut peers = Peers::new(rng, scenario.peers, scenario.addresses, &self.network);
        let mut faults = scenario.faults.iter().peekable();
        let mut next_second = 0;
        while next_second <= scenario.length() {
            if self.model.beyond {
                self.finish();
                self.coverage.cut_short = 1;
                return Ok(());
            }
            let second = Duration::from_secs(next_second);
            let due = [peers.next(), self.network.next_arrival(), Some(second)];
            let now = self.network.now();
            let due = due.into_iter().flatten().min().expect("a second is due").max(now);
            self.network.advance(due - now);
            let on_second = due >= second;
            next_second += u64::from(on_second);
            let mut time = self.clocks.at(due.as_secs());
            if on_second {
                while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= time.second) {
                    self.cause(fault, time);
                    time = self.clocks.at(time.second);
                }
                self.tick(time);
            }
            self.settle(time, on_second)?;
            peers.act(due);
        }
        let end = self.network.now();
        let unanswered = peers.unanswered_since(end - REPLY_TIMEOUT);
        if unanswered > 0 {
            return Err(format!("{unanswered} clients got no reply for {REPLY_TIMEOUT:?}"));
        }
        self.finish();
        let Coverage { busy_announces, busy_scrapes, .. } = self.coverage;
        match !scenario.has_room() || busy_announces + busy_scrapes == 0 {
            true => Ok(()),
            false => Err("requests were refused as busy while no worker was stalled".into()),
        }
    }

    /// Lets the workers and an upgrade go on until nothing is left to do, and compares.
    fn settle(&mut self, time: Time, on_second: bool) -> Result<(), String> {
        self.log.set_time(time);
        loop {
            self.serving.settle(time);
            self.model.check(&self.log.take())?;
            if !self.advance_upgrade(time) {
                break;
            }
        }
        let dumping = self.upgrade.as_ref().is_some_and(|upgrade| upgrade.older.is_none());
        if !self.serving.runs(time) || dumping {
            return Ok(());
        }
        let access = self.serving.supervisor.access();
        if on_second && !access.is_purge_scheduled() {
            self.model.end_removals(&access.lists().access);
        }
        let in_doubt = !self.model.in_doubt.is_empty();
        if on_second || in_doubt || self.model.has_pending() {
            self.compare()?;
        }
        let regular = on_second && time.second.is_multiple_of(20);
        if in_doubt || regular {
            self.audit(regular, time)?;
        }
        Ok(())
    }

    /// Compares counters. Nothing is in flight.
    fn compare(&mut self) -> Result<(), String> {
        self.model.settle();
        let mut totals = self.exited.clone();
        totals.push(self.serving.summary());
        let sum = |of: &dyn Fn(&Summary) -> u64| totals.iter().map(of).sum::<u64>();
        let refused = |reason: Result<Refusal, UdpRefusal>| match reason {
            Ok(refusal) => sum(&|it| it.refused_for(refusal)),
            Err(refusal) => sum(&|it| it.refused_by_udp[refusal as usize]),
        };
        let replies = sum(&|it| it.replies.iter().sum());
        if sum(&|it| it.lane_full + it.orphaned) > 0 {
            return Err("a lane had no room for a batch".into());
        }
        self.model.compare_counters(sum(&|it| it.datagrams), replies, &refused)
    }

    /// Compares what is stored, in all shards or in those in doubt. Nothing is in flight.
    fn audit(&mut self, all: bool, time: Time) -> Result<(), String> {
        let moment = time.since(self.serving.started).moment;
        let shards = self.serving.shards();
        let (mut unstored, mut stored) = (0, Vec::new());
        for (number, shard) in shards.into_iter().enumerate() {
            unstored += shard.totals().refused() + shard.totals().replaced;
            if all || self.model.in_doubt.contains(&number) {
                shard.check();
                stored.push((number, shard.swarms(moment).collect()));
            }
        }
        self.model.audit(&stored, unstored, time)
    }

    fn finish(&mut self) {
        self.exited.push(self.serving.summary());
        let sum = |of: fn(&Summary) -> u64| self.exited.iter().map(of).sum::<u64>();
        self.coverage += self.model.coverage;
        self.coverage = Coverage {
            dropped: self.network.counts().dropped,
            expired: sum(|it| it.expired),
            refused_full: sum(|it| it.refused_full),
            refused_per_swarm: sum(|it| it.refused_per_swarm),
            refused_of_source: sum(|it| it.refused_of_source),
            refused_new_swarms: sum(|it| it.refused_new_swarms),
            replaced: sum(|it| it.replaced),
            ..self.coverage
        };
    }

    fn cause(&mut self, fault: &Fault, time: Time) {
        self.trace.push(format!("{} s: {fault:?}", time.second));
        match fault {
            Fault::Clock(step) => {
                match step {
                    Step::By(_) => self.coverage.clock_steps += 1,
                    Step::Epoch => self.coverage.clock_resets += 1,
                }
                self.clocks.step(*step, time.second);
            }
            Fault::Stall { worker, seconds } => {
                self.coverage.stalls += 1;
                self.serving.stall(*worker, time.second + seconds);
            }
            Fault::Reload => {
                self.disk.draw(&mut self.rng);
                let (force, caller, responder) = (false, caller(), Responder::new(|_| ()));
                let request = Request::Reload { force, caller, responder };
                self.on(Event::Request(request), time);
            }
            Fault::List { share } => self.change_list(*share, time),
            Fault::Upgrade(failure) => {
                if self.upgrade.is_none() {
                    self.begin_upgrade(*failure, time);
                }
            }
        }
    }

    fn tick(&mut self, time: Time) {
        if let Some((_, loaded)) = self.loading.take_if(|(until, _)| *until <= time.second) {
            self.coverage.reloads += 1;
            self.on(Event::Loaded(Ok(Box::new(loaded))), time);
        }
        let summary = self.serving.summary();
        let tick = ProcessState {
            summary,
            quota: QuotaPeriods::default(),
            reasons_known: true,
            has_program: false,
            is_steering: true,
            suspended: Duration::ZERO,
        };
        self.on(Event::Tick(Box::new(tick)), time);
        self.coverage.purged += self.serving.removed();
    }

    /// The supervisor handles an event.
    fn on(&mut self, event: Event, time: Time) {
        let daemon_time = DaemonTime { now: self.clocks.instant(time.second), unix: time.unix };
        let mut effects = VecDeque::from(self.serving.supervisor.on(event, daemon_time).0);
        while let Some(effect) = effects.pop_front() {
            if let Some(event) = self.carry_out(effect, time) {
                let Effects(more) = self.serving.supervisor.on(event, daemon_time);
                effects.extend(more);
            }
        }
    }

    /// Carries out an effect that clients can see. Logs, files and the service manager are not
    /// simulated.
    fn carry_out(&mut self, effect: Effect, time: Time) -> Option<Event> {
        match effect {
            Effect::Publish => self.publish(time),
            Effect::Reply(reply) => reply.respond(()),
            Effect::Remove(removal) => self.serving.remove(&removal),
            Effect::Merge(list) => return Some(Event::Merged(Some(list.merged()))),
            Effect::Record(ChangeRecord::ListChanges(kind, changes)) => {
                self.disk.journal.extend(changes.into_iter().map(|change| (kind, change)));
                return Some(Event::Recorded(Ok(())));
            }
            Effect::Load => {
                let settings = self.disk.settings();
                let lists = self.disk.lists(&settings);
                let (notices, replayed, token) = (Vec::new(), None, None);
                let loaded =
                    LoadedConfig { settings, notices, lists, replayed, token, certificates: None };
                self.loading = Some((time.second + self.rng.random_range(0..3), loaded));
            }
            Effect::SendInherited(current, to) => {
                self.assemble_successor(&current, time);
                to.send(*current).expect("it is waited for");
            }
            Effect::End(End::Handoff(completed)) => self.complete_handoff(completed, time),
            Effect::End(end) => panic!("{end:?}"),
            _ => {}
        }
        None
    }

    /// Gives the rules in force to the workers and to the model.
    fn publish(&mut self, time: Time) {
        self.serving.publish();
        let rules = self.serving.rules();
        let is_new = *rules.access != *self.model.rules.access;
        self.model.set_rules(&rules, time.second);
        if is_new {
            self.coverage.new_lists += 1;
            self.model.begin_removal(|hash| !rules.access.permits(hash));
        }
    }

    /// Adds info hashes to the list and removes others.
    fn change_list(&mut self, share: f64, time: Time) {
        let list = self.serving.supervisor.access().lists().access.clone();
        let Some(changes) = draw_changes(&list, share, &mut self.rng) else { return };
        let (to, result) = bounded(1);
        let responder = Responder::new(move |result| to.send(result).expect("room"));
        let request = Request::ChangeList { changes, caller: caller(), responder };
        self.on(Event::Request(request), time);
        // Refused where nothing would be left of an allow list, or the sockets change hands.
        self.coverage.list_changes += u64::from(result.recv().expect("a response").is_ok());
    }

    fn begin_upgrade(&mut self, failure: Option<Failure>, time: Time) {
        self.model.begin_upgrade();
        let (started, most_peers) = (time.second - self.rng.random_range(0..=5), self.most_peers);
        let (start, arrival) = (self.rng.random_range(0..5), self.rng.random_range(0..4));
        // After five seconds the predecessor gives up.
        let acquisition = if self.rng.random_bool(0.2) { self.rng.random_range(0..8) } else { 0 };
        let process = (1 + self.exited.len() as i32, started, self.disk.settings().listen);
        let plan = Plan { failure, start, acquisition, arrival };
        let limits = (self.map, most_peers);
        self.upgrade = Some(Upgrade::begin(&self.serving, process, limits, plan, time));
    }

    /// The successor reads the configuration, and adopts the commitment.
    fn assemble_successor(&mut self, current: &InheritedState, time: Time) {
        let upgrade = self.upgrade.as_mut().expect("an upgrade");
        let limits = (upgrade.started, self.most_peers);
        let (sockets, disk, clocks) = (self.sockets.clone(), &self.disk, &self.clocks);
        let commitment = Some((current.commitment, clocks.instant(time.second)));
        let new = Starting::new(disk, &self.secrets, sockets, limits, commitment, clocks);
        upgrade.assembled(new);
    }

    /// Lets an upgrade go on. Returns whether workers may have work by it.
    fn advance_upgrade(&mut self, time: Time) -> bool {
        let Some(upgrade) = &mut self.upgrade else { return false };
        let mut worked = upgrade.advance(time);
        let events = upgrade.events.clone();
        for event in events.try_iter() {
            worked = true;
            match (&event, &mut self.upgrade) {
                (HandoffEvent::Ready { .. }, Some(upgrade)) => upgrade.is_releasing = true,
                (HandoffEvent::Failed, _) => self.fail_upgrade(time),
                _ => {}
            }
            self.on(Event::Handoff(event), time);
        }
        if self.upgrade.take_if(|upgrade| upgrade.is_complete()).is_some() {
            self.model.end_upgrade();
            self.trace.push(format!("{} s: the upgrade is complete", time.second));
            self.coverage.upgrades += 1;
        }
        worked
    }

    fn fail_upgrade(&mut self, time: Time) {
        self.trace.push(format!("{} s: the upgrade has failed", time.second));
        match self.upgrade.take().is_some_and(|upgrade| upgrade.is_releasing) {
            true => self.coverage.failed_pauses += 1,
            false => self.coverage.failed_dumps += 1,
        }
        self.model.end_upgrade();
    }

    /// The successor serves in place of the predecessor, which sends it the delta.
    fn complete_handoff(&mut self, completed: CompletedHandoff, time: Time) {
        let CompletedHandoff { mut to, mut since, .. } = completed;
        let sides = self.serving.workers.iter_mut().filter_map(|it| it.swarm_side.take());
        let mut shards: Vec<Shard> = sides.map(|side| side.shard).collect();
        let now = time.since(self.serving.started);
        delta::begin(&mut to.0).expect("memory");
        delta::write(to.0, &mut shards, &mut since, now).expect("memory");
        self.exited.push(self.serving.summary());
        // A process that exits reads no configuration.
        self.loading = None;
        let upgrade = self.upgrade.as_mut().expect("an upgrade");
        let (new, commitment) = upgrade.released();
        self.serving = new.serve(&self.disk, Some(commitment), time, &self.clocks);
        let access = self.serving.supervisor.access().lists().access.clone();
        upgrade.serves(access, time);
        let older = upgrade.older.expect("a dump");
        self.trace.push(format!("{} s: the successor serves", time.second));
        self.model.begin_merge(older, self.serving.started);
        self.publish(time);
    }
}

/// The sender of requests.
fn caller() -> Caller {
    Caller::Address("192.0.2.1:9".parse().expect("an address"))
}
