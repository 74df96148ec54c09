//! The cost model: the cost of a reply in each placement on a host of a given size, and from it the
//! host's replies per second. Arithmetic only; all inputs are at the top, with their sources.

#![allow(dead_code, unreachable_pub, reason = "the program and the test each use their part")]

// Measured on the machine of docs/benchmarks/2026-11-20-2vcpu-xeon, in nanoseconds of CPU time per
// reply. The total is `scripts/bench-speed --only cpu` (classic mix, colocated); the shares are
// those of `perf record -e cpu-clock` under the same load, without waiting: sendmmsg 66 %, recvmmsg
// 21 %, the rest in user space.

/// Receiving in the kernel.
pub const RECEIVE: f64 = 600.0;
/// Sending in the kernel, which on loopback includes the receiver's part.
pub const SEND: f64 = 1_900.0;
/// Receiving, checking, sorting and sending in user space.
pub const INTAKE: f64 = 240.0;
/// `Shard::serve` per announce, with two million peers, from the same samples.
pub const SERVE: f64 = 250.0;

// A hop there and back, both sides together: program `lanes`, the table of one message at a time.
// Lanes take 1,181 ns for a message of one and 19,970 ns for one of 128, of which the work itself
// is 85 and 6,650 ns; a cache line takes 60 ns from one vCPU to the other.

/// Nanoseconds of instructions per message (334 of them) with its cache lines local.
pub const MESSAGE: f64 = 100.0;
/// Cache lines that a message moves: its slots and counters in two channels, its box twice.
pub const MESSAGE_LINES: f64 = 15.0;
/// Cache lines that a request moves: one and a half there, its reply back, less prefetched ones.
pub const REQUEST_LINES: f64 = 1.7;
/// Nanoseconds per cache line on this machine.
pub const LINE_HERE: f64 = 60.0;

// The large host: 48 dedicated vCPUs of an EPYC Milan, two to a core, eight cores to a CCX.
// Nanoseconds from core to core, EPYC 7R13: github.com/nviennot/core-to-core-latency (single socket
// 23 and 107, dual socket 197).

/// A cache line within a CCX.
pub const LINE_IN_CCX: f64 = 23.0;
/// A cache line between two CCXs of a socket.
pub const LINE_ACROSS: f64 = 107.0;
/// A cache line between two sockets. The published host shows one socket; see [`Assumed::sockets`].
pub const LINE_SOCKETS: f64 = 197.0;
/// Cores that share a third-level cache.
pub const CCX: usize = 8;

// Figures of aquatic_udp on both machines.

/// CPU time per reply of aquatic_udp 0.9.0 on this machine (classic mix,
/// docs/benchmarks/2026-11-20-2vcpu-xeon).
pub const AQUATIC_HERE: f64 = 3_360.0;
/// Published for the large host (aquatic, documents/aquatic-udp-load-test-2024-02-10.md; loopback,
/// mio): vCPUs, replies per second, and vCPUs in use. One vCPU of each core was used
/// (`subsequent-one-per-pair`); the load came from the other cores.
pub const PUBLISHED: [(usize, f64, f64); 7] = [
    (1, 186_939.0, 0.953),
    (2, 371_478.0, 1.90),
    (4, 734_709.0, 3.81),
    (6, 1_034_804.0, 5.65),
    (8, 1_296_693.0, 7.31),
    (12, 1_871_353.0, 10.64),
    (16, 2_037_713.0, 11.26),
];

/// Assumptions without a measurement. Each is listed among the results that would refute the model.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    /// The throughput of two threads of one core, relative to one alone.
    pub smt: f64,
    /// Announces as a share of replies.
    pub announces: f64,
    /// Announces of the most popular info hash, as a share of all.
    pub hot: f64,
    /// Announces that the kernel steers to the worker of their info hash, as a share
    /// (`crates/daemon/tests/it/steering.rs` requires this much).
    pub steered: f64,
    /// Datagrams per receive call under full load: the setting.
    pub batch: f64,
    /// The intended load of a swarm worker when the sockets are full: its queue adds to all
    /// latencies, and replies of 200 peers cost more than the average.
    pub swarm_load: f64,
    /// Sockets over which the vCPUs are spread.
    pub sockets: f64,
}

/// The mix of published comparisons.
pub const CLASSIC: Assumed = Assumed {
    smt: 1.25,
    announces: 0.505,
    hot: 0.0,
    steered: 0.95,
    batch: 128.0,
    swarm_load: 0.7,
    sockets: 1.0,
};

/// The mix of public trackers, for which config/epyc-48.toml is written.
pub const REAL: Assumed = Assumed { announces: 0.745, hot: 0.01, batch: 256.0, ..CLASSIC };

/// vCPUs, and their cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    pub vcpus: usize,
    pub cores: usize,
}

impl Host {
    /// One vCPU of each core, as in the published runs.
    pub fn one_a_core(vcpus: usize) -> Self {
        Self { vcpus, cores: vcpus }
    }

    /// All vCPUs of a host with two to a core.
    pub fn whole(vcpus: usize) -> Self {
        Self { vcpus, cores: vcpus.div_ceil(2) }
    }

    /// The throughput of a vCPU relative to that of one alone on its core.
    fn speed(self, assumed: &Assumed) -> f64 {
        if self.vcpus > self.cores { assumed.smt / 2.0 } else { 1.0 }
    }

    /// The mean cost of a cache line between two workers at any places.
    fn line(self, assumed: &Assumed) -> f64 {
        let groups = self.cores.div_ceil(CCX) as f64;
        let within = (LINE_IN_CCX + (groups - 1.0) * LINE_ACROSS) / groups;
        (within + (assumed.sockets - 1.0) * LINE_SOCKETS) / assumed.sockets
    }
}

/// The ratio of a vCPU of the large host to one here: aquatic's cost there over its cost here.
pub fn factor() -> f64 {
    published_cost(&PUBLISHED[0]) / AQUATIC_HERE
}

/// Nanoseconds of a busy vCPU per published reply.
fn published_cost(&(_, replies, busy): &(usize, f64, f64)) -> f64 {
    busy / replies * 1e9
}

/// The factor by which a reply costs more when so many cores work, as they share memory, caches and
/// the kernel. From aquatic's published figures, made monotonic, and constant beyond the last of
/// them.
pub fn crowding(cores: usize) -> f64 {
    let base = published_cost(&PUBLISHED[0]);
    let (mut least, mut from) = (1.0, 1);
    for entry in &PUBLISHED {
        let here = (published_cost(entry) / base).max(least);
        if cores <= entry.0 {
            let part =
                if entry.0 == from { 1.0 } else { (cores - from) as f64 / (entry.0 - from) as f64 };
            return least + (here - least) * part;
        }
        (least, from) = (here, entry.0);
    }
    least
}

/// The cost of one reply on each side, in nanoseconds of a vCPU alone on its core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    pub socket_side: f64,
    pub swarm_side: f64,
    /// Requests per message.
    pub requests: f64,
}

/// Half of a hop per announce: both sides bear about the same.
fn half_hop(host: Host, assumed: &Assumed, requests: f64) -> f64 {
    let line = host.line(assumed);
    let message = MESSAGE * factor() + MESSAGE_LINES * line;
    (message / requests + REQUEST_LINES * line) / 2.0
}

/// Receiving, checking and sending.
fn door(host: Host) -> f64 {
    (RECEIVE + SEND + INTAKE) * factor() * crowding(host.cores)
}

fn serve(host: Host) -> f64 {
    SERVE * factor() * crowding(host.cores)
}

/// A split with this many swarm workers.
pub fn split_costs(host: Host, assumed: &Assumed, swarm_workers: usize) -> Costs {
    // A batch is divided into one message per shard.
    let requests = (assumed.batch * assumed.announces / swarm_workers as f64).max(1.0);
    let hop = half_hop(host, assumed, requests);
    Costs {
        socket_side: door(host) + assumed.announces * hop,
        swarm_side: assumed.announces * (serve(host) + hop),
        requests,
    }
}

/// Replies per second of a split, without loss: limited by the side that is full first.
pub fn split(host: Host, assumed: &Assumed, swarm_workers: usize) -> f64 {
    let socket_workers = host.vcpus - swarm_workers;
    let costs = split_costs(host, assumed, swarm_workers);
    let second = host.speed(assumed) * 1e9;
    let sockets = socket_workers as f64 * second / costs.socket_side;
    // The fullest shard has the popular info hash and its share of the others.
    let fullest = assumed.hot + (1.0 - assumed.hot) / swarm_workers as f64;
    let swarms = assumed.swarm_load * second / (costs.swarm_side * fullest);
    sockets.min(swarms)
}

/// The load of the fullest swarm worker when a split is at its capacity.
pub fn swarm_load(host: Host, assumed: &Assumed, swarm_workers: usize) -> f64 {
    let fullest = assumed.hot + (1.0 - assumed.hot) / swarm_workers as f64;
    let each = split_costs(host, assumed, swarm_workers).swarm_side * fullest;
    split(host, assumed, swarm_workers) * each / (host.speed(assumed) * 1e9)
}

/// The best number of swarm workers, and its capacity; `None` for a single vCPU.
pub fn best_split(host: Host, assumed: &Assumed) -> Option<(usize, f64)> {
    (1..host.vcpus)
        .map(|workers| (workers, split(host, assumed, workers)))
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// The cost of a reply on a colocated worker; a share of `foreign` announces takes a lane.
fn colocated_cost(host: Host, assumed: &Assumed, foreign: f64) -> f64 {
    let others = (host.vcpus - 1).max(1) as f64;
    let requests = (assumed.batch * assumed.announces * foreign / others).max(1.0);
    let hop = 2.0 * half_hop(host, assumed, requests);
    door(host) + assumed.announces * (serve(host) + foreign * hop)
}

fn foreign(host: Host, assumed: &Assumed) -> f64 {
    if host.vcpus == 1 { 0.0 } else { 1.0 - assumed.steered }
}

/// Replies per second of colocated workers, without loss: limited by the worker of the popular info
/// hash, as the kernel steers all of its announces there and spreads connects evenly.
pub fn colocated(host: Host, assumed: &Assumed) -> f64 {
    let workers = host.vcpus as f64;
    let cost = colocated_cost(host, assumed, foreign(host, assumed));
    let announces = assumed.hot + (1.0 - assumed.hot) / workers;
    let fullest = assumed.announces * announces + (1.0 - assumed.announces) / workers;
    host.speed(assumed) * 1e9 / (cost * fullest)
}

/// The same after steering back-off of the fullest worker: its announces arrive at all workers
/// alike, and reach it by lanes.
pub fn colocated_relieved(host: Host, assumed: &Assumed) -> f64 {
    let workers = host.vcpus as f64;
    let hot = assumed.hot + (1.0 - assumed.hot) / workers;
    let foreign = foreign(host, assumed);
    let foreign = foreign + (1.0 - foreign) * hot * (workers - 1.0) / workers;
    workers * host.speed(assumed) * 1e9 / colocated_cost(host, assumed, foreign)
}

/// Replies per second of aquatic_udp by the same arithmetic, with all of its vCPUs in use.
pub fn aquatic(host: Host) -> f64 {
    host.vcpus as f64 * 1e9 / (published_cost(&PUBLISHED[0]) * crowding(host.cores))
}

/// The number of vCPUs, of whole hosts up to `largest`, from which every split is ahead.
pub fn crossover(assumed: &Assumed, largest: usize) -> Option<usize> {
    let ahead = |vcpus: &usize| {
        let host = Host::whole(*vcpus);
        best_split(host, assumed).is_some_and(|(_, most)| most > colocated(host, assumed))
    };
    (1..=largest / 2).rev().map(|cores| 2 * cores).take_while(ahead).last()
}
