//! An upgrade in mid-flight: the daemon's predecessor and successor hand over sockets and peers
//! while requests go on, each on a thread that takes turns with the simulation.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_channel::{Receiver, unbounded};
use onrush::upgrade::predecessor::{HandoffEvent, PredecessorSide};
use onrush::upgrade::successor::{HandoffError, SuccessorSide};
use onrush::xdp::OpenQueues;
use onrush_config::PassedKinds;
use onrush_config::settings::Listen;
use onrush_replica::delta::{self, OLDER_IN_DUMP};
use onrush_replica::handoff::{Handoff, IntervalCommitment};
use onrush_replica::link::Link;
use onrush_swarm::ShardMap;
use onrush_tracker::access::AccessList;
use onrush_tracker::orders::Orders;
use onrush_tracker::worker::SwarmSide;

use super::clock::Time;
use super::link::{Host, Side, SimulatedLink, pair};
use super::process::{Process, Starting, orders};

/// Seconds by which peers may count as older after an upgrade, besides the time that the dump has
/// taken: of the dump, of stored ages and of clocks.
const OLDER: i64 = OLDER_IN_DUMP as i64 + 32;

/// When an upgrade fails, if it does: the process that serves goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// While the peers are sent.
    InDump,
    /// After the workers have stopped receiving.
    Paused,
}

/// The random choices for an upgrade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) failure: Option<Failure>,
    /// Seconds from the end of the dump until the successor could serve.
    pub(crate) start: u64,
    /// Seconds from the release of the sockets until it acquires them.
    pub(crate) acquisition: u64,
    /// Seconds until the delta arrives.
    pub(crate) arrival: u64,
}

/// An upgrade in progress.
pub(crate) struct Upgrade {
    host: Arc<Host>,
    predecessor: Side,
    pub(crate) events: Receiver<HandoffEvent>,
    successor: Side,
    /// The process that is to serve, once it has the commitment of its predecessor.
    new: Option<Starting>,
    exchange: Arc<Mutex<Exchange>>,
    /// When the successor has started.
    pub(crate) started: u64,
    begun: Time,
    plan: Plan,
    /// Seconds by which peers may count as older: ages are loaded as if the dump took no time, and
    /// it waits for stalled workers. `None` while peers are dumped.
    pub(crate) older: Option<i64>,
    /// Whether the successor could serve: the workers stop receiving.
    pub(crate) is_releasing: bool,
    /// The second before which nothing of the delta arrives; `None` until the successor serves.
    arrival: Option<u64>,
}

/// Values passed between the simulation and the thread of the successor.
#[derive(Default)]
struct Exchange {
    /// The shards that the successor loads peers into, the handle to its workers, and the list of
    /// permitted swarms.
    assembled: Option<(Vec<SwarmSide>, Orders, Arc<AccessList>)>,
    /// The second at which the successor has loaded the dump.
    loaded: Option<u64>,
    /// The successor's shards with all peers of the dump, and its predecessor's commitment.
    released: Option<(Vec<SwarmSide>, IntervalCommitment)>,
    /// The list with which the successor serves.
    access: Option<Arc<AccessList>>,
}

/// The successor's part of an upgrade.
struct Successor {
    link: SimulatedLink,
    plan: Plan,
    listen: Vec<Listen>,
    map: ShardMap,
    limit: u64,
    exchange: Arc<Mutex<Exchange>>,
}

impl Successor {
    fn run(self) -> Result<(), HandoffError> {
        let (link, exchange) = (&self.link, || self.exchange.lock().unwrap());
        let mut side = SuccessorSide::begin(link.clone(), &self.listen, &[])?;
        let assembled = exchange().assembled.take();
        let (mut sides, orders, permitted) = assembled.expect("a commitment");
        let shards = sides.iter_mut().map(|it| &mut it.shard).collect();
        side.load_peers(shards, self.map, &permitted, link.now(), self.limit, false)?;
        exchange().loaded = Some(link.host.second());
        if self.plan.failure == Some(Failure::InDump) {
            return Ok(());
        }
        link.sleep(self.plan.start)?;
        let commitment = side.wait_for_release()?;
        if self.plan.failure == Some(Failure::Paused) {
            return Ok(());
        }
        link.sleep(self.plan.acquisition)?;
        side.acquire()?;
        exchange().released = Some((sides, commitment));
        let Ok(access) = link.until(u64::MAX, || exchange().access.take()) else { return Ok(()) };
        delta::merge(link, (orders, self.map), access, side.stops, || ())?;
        Ok(())
    }
}

/// Whether the connection has ended, or the other side was too slow.
fn is_lost(error: &io::Error) -> bool {
    let lost = [ErrorKind::TimedOut, ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];
    lost.contains(&error.kind())
}

impl Upgrade {
    /// A process with this id, which has `started` then and is to serve these addresses, requests
    /// the handoff from the process that serves.
    pub(crate) fn begin(
        serving: &Process,
        (process, started, listen): (i32, u64, Vec<Listen>),
        (map, limit): (ShardMap, u64),
        plan: Plan,
        begun: Time,
    ) -> Self {
        let (events_to, events) = unbounded();
        let side = PredecessorSide {
            handoff: Handoff {
                version: "test".to_owned(),
                process: 0,
                sections: Vec::new(),
                passed: PassedKinds::default(),
                shard_key: [0; 5],
                admin: Vec::new(),
                control_file: None,
                current: None,
            },
            descriptors: Vec::new(),
            queues: OpenQueues::default(),
            control: None,
            orders: orders(&serving.workers),
            limit,
            merging: Arc::default(),
            events: events_to,
        };
        let (host, [here, there]) = (Arc::<Host>::default(), pair());
        let (shared, serving) = (host.clone(), serving.started);
        let predecessor =
            Side::new(move |turns| _ = side.serve(here.link(shared, turns, serving, process)));
        let exchange = Arc::<Mutex<Exchange>>::default();
        let (shared, exchange_of) = (host.clone(), exchange.clone());
        let successor = Side::new(move |turns| {
            let link = there.link(shared, turns, started, 0);
            let exchange = exchange_of;
            let successor = Successor { link, plan, listen, map, limit, exchange };
            // The predecessor learns of a failure by the end of the connection.
            match successor.run() {
                Err(HandoffError::Broken(error)) if !is_lost(&error) => panic!("{error}"),
                _ => {}
            }
        });
        Self {
            host,
            predecessor,
            events,
            successor,
            new: None,
            exchange,
            started,
            begun,
            plan,
            older: None,
            is_releasing: false,
            arrival: None,
        }
    }

    /// The successor has assembled its workers, with the commitment of the predecessor.
    pub(crate) fn assembled(&mut self, mut new: Starting) {
        let assembled = (new.take_sides(), orders(&new.workers), new.access().clone());
        self.exchange().assembled = Some(assembled);
        self.new = Some(new);
    }

    /// Lets both sides go on. Returns whether one has.
    pub(crate) fn advance(&mut self, time: Time) -> bool {
        self.host.set_time(time);
        let before = self.host.steps();
        self.predecessor.run();
        if self.arrival.is_none_or(|at| at <= time.second) {
            self.successor.run();
        }
        let loaded = self.exchange().loaded.take();
        if let Some(second) = loaded {
            self.older = Some(OLDER + (second - self.begun.second) as i64);
        }
        self.host.steps() > before
    }

    /// Whether the successor has the sockets, and has merged the delta.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrival.is_some() && self.successor.has_ended()
    }

    /// The process that serves from now on, with the commitment of the predecessor.
    pub(crate) fn released(&mut self) -> (Starting, IntervalCommitment) {
        let released = self.exchange().released.take();
        let (sides, commitment) = released.expect("the sockets are acquired");
        let mut new = self.new.take().expect("one handoff");
        new.put_sides(sides);
        (new, commitment)
    }

    /// The successor serves with this list.
    pub(crate) fn serves(&mut self, access: Arc<AccessList>, time: Time) {
        self.arrival = Some(time.second + self.plan.arrival);
        self.exchange().access = Some(access);
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap()
    }
}
