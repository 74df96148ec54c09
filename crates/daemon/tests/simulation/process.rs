//! One process of a simulated tracker: the real supervisor, and workers that a fault stalls.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use onrush::access::AccessControl;
use onrush::access::purge::swarm_removal;
use onrush::certificates::CertificateControl;
use onrush::effect::Removal;
use onrush::overload::Overload;
use onrush::supervise::config_source::ConfigSource;
use onrush::supervise::{Owners, Supervisor};
use onrush::upgrade::progress::Upgrade;
use onrush_config::{Flags, Host};
use onrush_replica::handoff::IntervalCommitment;
use onrush_store::lists::journal::Journal;
use onrush_swarm::Shard;
use onrush_tracker::access::AccessList;
use onrush_tracker::assemble::{Secrets, assemble};
use onrush_tracker::member::{Member, Role};
use onrush_tracker::metrics::Summary;
use onrush_tracker::orders::Orders;
use onrush_tracker::rules::Rules;
use onrush_tracker::running::Addresses;
use onrush_tracker::worker::{SwarmSide, Worker};

use super::clock::{Clocks, Time};
use super::operator::Disk;
use super::socket::SharedSocket;

/// A process with all of its workers on the thread of the test.
pub(crate) struct Process {
    pub(crate) supervisor: Supervisor,
    pub(crate) workers: Vec<Worker<SharedSocket>>,
    /// The second until which each worker takes no turn.
    stalled: Vec<u64>,
    /// When the process has started, for its monotonic clock.
    pub(crate) started: u64,
    removed: (Sender<u64>, Receiver<u64>),
    most_peers: u64,
}

/// A process that has read its configuration, and does not serve yet.
pub(crate) struct Starting {
    owners: Owners,
    settings: Arc<onrush_config::Settings>,
    pub(crate) workers: Vec<Worker<SharedSocket>>,
    started: u64,
    /// Length of the journal when it was read.
    journal_length: usize,
    most_peers: u64,
}

impl Starting {
    /// Reads the configuration, as at a start, and adopts a commitment. `most_peers` is
    /// `limits.peers`, which may be less than a configuration may have.
    pub(crate) fn new(
        disk: &Disk,
        secrets: &Secrets,
        sockets: Vec<SharedSocket>,
        (started, most_peers): (u64, u64),
        commitment: Option<(IntervalCommitment, Instant)>,
        clocks: &Clocks,
    ) -> Self {
        let (settings, now) = (disk.settings(), clocks.instant(started));
        let lists = disk.lists(&settings);
        // Of a journal without a file: what it holds is in the lists already.
        let replayed = Journal::new("/nonexistent".as_ref()).replay((*lists.access).clone());
        let mut access = AccessControl::new(lists, settings.placement.workers());
        access.begin_records(&replayed);
        let mut overload = Overload::new(&settings, now);
        commitment.into_iter().for_each(|(commitment, at)| overload.adopt(commitment, at));
        let mut rules = overload.rules(&settings, access.lists());
        limit(&mut rules, most_peers, settings.placement.shards());
        let workers = assemble(&settings.workers(), secrets, sockets, &rules);
        let certificates = CertificateControl::default();
        let upgrade = Upgrade::new(true, now);
        let owners = Owners { access, overload, upgrade, certificates };
        let journal_length = disk.journal.len();
        Self { owners, settings: settings.into(), workers, started, journal_length, most_peers }
    }

    /// The list by which peers are loaded.
    pub(crate) fn access(&self) -> &Arc<AccessList> {
        &self.owners.access.lists().access
    }

    /// Takes the shards out of the workers, to load peers. In order.
    pub(crate) fn take_sides(&mut self) -> Vec<SwarmSide> {
        self.workers.iter_mut().filter_map(|worker| worker.swarm_side.take()).collect()
    }

    /// Puts the shards back.
    pub(crate) fn put_sides(&mut self, sides: Vec<SwarmSide>) {
        // Workers with a shard are the last ones.
        let first = self.workers.len() - sides.len();
        for (worker, side) in self.workers[first..].iter_mut().zip(sides) {
            worker.swarm_side = Some(side);
        }
    }

    /// Begins to serve: with the changes of the journal since, and the commitment of the
    /// predecessor.
    pub(crate) fn serve(
        mut self,
        disk: &Disk,
        commitment: Option<IntervalCommitment>,
        time: Time,
        clocks: &Clocks,
    ) -> Process {
        let now = clocks.instant(time.second);
        let Owners { access, overload, upgrade, .. } = &mut self.owners;
        if let Some(commitment) = commitment {
            overload.adopt(commitment, now);
        }
        if let Some(kind) = access.lists().access.kind() {
            access.apply_late_changes(&disk.changes(kind, self.journal_length), now);
        }
        *upgrade = Upgrade::new(true, now);
        let role = |worker: &Worker<SharedSocket>| match (
            worker.socket_side.is_some(),
            worker.swarm_side.is_some(),
        ) {
            (true, true) => Role::Both,
            (true, false) => Role::Socket,
            _ => Role::Shard,
        };
        let members = self.workers.iter().enumerate();
        let members = members.map(|(nth, it)| Member::new(role(it), nth, it.metrics.clone()));
        let source = ConfigSource { flags: Flags::default(), host: Host::default() };
        let supervisor = Supervisor::new(
            self.owners,
            (self.settings, source),
            members.collect(),
            (&Addresses::default(), None),
            onrush::time::Time { now, unix: time.unix },
        );
        let (workers, started, most_peers) = (self.workers, self.started, self.most_peers);
        let (stalled, removed) = (vec![0; workers.len()], unbounded());
        Process { supervisor, workers, stalled, started, removed, most_peers }
    }
}

/// The handle to the workers of a process.
pub(crate) fn orders(workers: &[Worker<SharedSocket>]) -> Orders {
    let Worker { mailboxes, owners, .. } = &workers[0];
    Orders::new(mailboxes, workers.len(), owners.clone())
}

/// Sets `limits.peers` of rules.
fn limit(rules: &mut Rules, most_peers: u64, shards: usize) {
    rules.shard.max_peers = (most_peers / shards as u64).max(1);
}

impl Process {
    /// The rules in force.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = self.supervisor.rules();
        limit(&mut rules, self.most_peers, orders(&self.workers).shards());
        rules
    }

    /// Gives the rules in force to all workers.
    pub(crate) fn publish(&self) {
        let rules = Arc::new(self.rules());
        orders(&self.workers).update_rules(&rules).expect("a worker takes its orders");
    }

    /// Starts a removal of swarms.
    pub(crate) fn remove(&self, removal: &Removal) {
        let started = swarm_removal::start(removal, &orders(&self.workers), &self.removed.0);
        started.expect("a worker takes its orders");
    }

    /// The number of swarms that removals have removed since the last call.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.1.try_iter().sum()
    }

    /// Keeps a worker from taking turns.
    pub(crate) fn stall(&mut self, worker: usize, until: u64) {
        let place = worker % self.workers.len();
        self.stalled[place] = until;
    }

    /// Whether every worker takes turns.
    pub(crate) fn runs(&self, now: Time) -> bool {
        self.stalled.iter().all(|until| *until <= now.second)
    }

    /// Lets every worker that is not stalled take turns until all are idle.
    pub(crate) fn settle(&mut self, now: Time) {
        for _ in 0..10_000 {
            let mut busy = false;
            for (worker, until) in self.workers.iter_mut().zip(&self.stalled) {
                if *until <= now.second {
                    let turn = worker.turn(now.since(self.started));
                    busy |= turn.expect("the in-process network does not fail");
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the workers are still busy after 10,000 turns");
    }

    /// The totals of all workers.
    pub(crate) fn summary(&self) -> Summary {
        Summary::of(self.workers.iter().map(|worker| &*worker.metrics))
    }

    /// The shards, in order.
    pub(crate) fn shards(&mut self) -> Vec<&mut Shard> {
        let sides = self.workers.iter_mut().filter_map(|worker| worker.swarm_side.as_mut());
        sides.map(|side| &mut side.shard).collect()
    }
}
