//! The cost model: what a reply costs in each placement on a host of a given size, and so how many
//! replies a second the host gives. Arithmetic only; every number it starts from is at its top,
//! with where it comes from.

#![allow(dead_code, unreachable_pub, reason = "the program and the test each use their part")]

// Measured on the machine of docs/benchmarks/2026-11-20-2vcpu-xeon, in nanoseconds of CPU time for
// each reply. The whole is `scripts/bench-speed --only cpu` (classic mix, colocated); the shares are those
// of `perf record -e cpu-clock` under the same load, waiting left out: sendmmsg 66 %, recvmmsg 21 %,
// the rest ours.

/// The kernel's receiving.
pub const RECEIVE: f64 = 600.0;
/// The kernel's sending, which on loopback is also the other side's receiving.
pub const SEND: f64 = 1_900.0;
/// Receiving, checking, sorting and sending in user space.
pub const INTAKE: f64 = 240.0;
/// `Shard::serve`, for each announce, with two million peers: its part of the same samples.
pub const SERVE: f64 = 250.0;

// A hop there and home, both sides together: `--example lanes`, the table of one message at a time.
// Lanes take 1,181 ns for a message of one and 19,970 ns for one of 128, of which the work itself
// is 85 and 6,650 ns; a line of cache takes 60 ns from one vCPU to the other.

/// Nanoseconds of instructions for a message (334 of them) with the lines already here.
pub const MESSAGE: f64 = 100.0;
/// Lines of cache that a message moves: its slots and counters in two channels, its box twice.
pub const MESSAGE_LINES: f64 = 15.0;
/// Lines that a request moves: one and a half there, its reply home, less what is fetched ahead.
pub const REQUEST_LINES: f64 = 1.7;
/// Nanoseconds for a line, here.
pub const LINE_HERE: f64 = 60.0;

// The large host: 48 dedicated vCPUs of an EPYC Milan, two to a core, eight cores to a CCX.
// Nanoseconds from core to core, EPYC 7R13: github.com/nviennot/core-to-core-latency (single
// socket 23 and 107, dual socket 197).

/// A line within a CCX.
pub const LINE_IN_CCX: f64 = 23.0;
/// A line between two CCXs of a socket.
pub const LINE_ACROSS: f64 = 107.0;
/// A line between two sockets. The published host shows one socket; see [`Assumed::sockets`].
pub const LINE_SOCKETS: f64 = 197.0;
/// Cores that share a third-level cache.
pub const CCX: usize = 8;

// What is known of aquatic_udp, here and there.

/// CPU for each reply of aquatic_udp 0.9.0 here (classic mix, docs/benchmarks/2026-11-20-2vcpu-xeon).
pub const AQUATIC_HERE: f64 = 3_360.0;
/// Published for the large host (aquatic, documents/aquatic-udp-load-test-2024-02-10.md; loopback,
/// mio): vCPUs, replies a second, and vCPUs that were in use. One vCPU of each core was taken
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

/// What nobody has measured yet. Each is a line in the list of what would refute the model.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    /// What two threads of one core do together, of what one does alone.
    pub smt: f64,
    /// Announces of all replies.
    pub announces: f64,
    /// Announces of the most popular info hash, of all.
    pub hot: f64,
    /// Announces that the kernel brings to the worker of their info hash
    /// (`crates/daemon/tests/it/steering.rs` asks for this much).
    pub steered: f64,
    /// Datagrams for each receive call under full load: the setting.
    pub batch: f64,
    /// How busy a swarm worker is meant to be when the sockets are full: its queue is everybody's
    /// latency, and replies of 200 peers cost more than the average.
    pub swarm_load: f64,
    /// Sockets that the vCPUs are spread over.
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

/// What public trackers see, as config/epyc-48.toml is written for.
pub const REAL: Assumed = Assumed { announces: 0.745, hot: 0.01, batch: 256.0, ..CLASSIC };

/// vCPUs, and the cores behind them.
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

    /// What a vCPU does of what it would do alone on its core.
    fn speed(self, assumed: &Assumed) -> f64 {
        if self.vcpus > self.cores { assumed.smt / 2.0 } else { 1.0 }
    }

    /// A line on its way between two workers that may be anywhere.
    fn line(self, assumed: &Assumed) -> f64 {
        let groups = self.cores.div_ceil(CCX) as f64;
        let within = (LINE_IN_CCX + (groups - 1.0) * LINE_ACROSS) / groups;
        (within + (assumed.sockets - 1.0) * LINE_SOCKETS) / assumed.sockets
    }
}

/// What a nanosecond here is on one vCPU of the large host: aquatic's cost there over its cost here.
pub fn factor() -> f64 {
    published_cost(&PUBLISHED[0]) / AQUATIC_HERE
}

/// Nanoseconds of a busy vCPU for a published reply.
fn published_cost(&(_, replies, busy): &(usize, f64, f64)) -> f64 {
    busy / replies * 1e9
}

/// How much more a reply costs when so many cores work: they share memory, caches and the kernel.
/// What aquatic's published figures show, never falling, and held from the last of them on.
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

/// What one reply costs each side, in nanoseconds of a vCPU alone on its core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    pub socket_side: f64,
    pub swarm_side: f64,
    /// Requests in a message.
    pub requests: f64,
}

/// Half of a hop, for each announce: both sides bear about the same.
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

/// A split with so many swarm workers.
pub fn split_costs(host: Host, assumed: &Assumed, swarm_workers: usize) -> Costs {
    // A batch falls apart into one message for each shard that is asked.
    let requests = (assumed.batch * assumed.announces / swarm_workers as f64).max(1.0);
    let hop = half_hop(host, assumed, requests);
    Costs {
        socket_side: door(host) + assumed.announces * hop,
        swarm_side: assumed.announces * (serve(host) + hop),
        requests,
    }
}

/// Replies a second of a split, without loss: whichever side is full first.
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

/// How busy the fullest swarm worker is when a split gives what it can.
pub fn swarm_load(host: Host, assumed: &Assumed, swarm_workers: usize) -> f64 {
    let fullest = assumed.hot + (1.0 - assumed.hot) / swarm_workers as f64;
    let each = split_costs(host, assumed, swarm_workers).swarm_side * fullest;
    split(host, assumed, swarm_workers) * each / (host.speed(assumed) * 1e9)
}

/// The number of swarm workers that gives most, and how much; `None` for a single vCPU.
pub fn best_split(host: Host, assumed: &Assumed) -> Option<(usize, f64)> {
    (1..host.vcpus)
        .map(|workers| (workers, split(host, assumed, workers)))
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
}

/// What a reply costs a colocated worker; `foreign` announces of all meet their shard by a lane.
fn colocated_cost(host: Host, assumed: &Assumed, foreign: f64) -> f64 {
    let others = (host.vcpus - 1).max(1) as f64;
    let requests = (assumed.batch * assumed.announces * foreign / others).max(1.0);
    let hop = 2.0 * half_hop(host, assumed, requests);
    door(host) + assumed.announces * (serve(host) + foreign * hop)
}

fn foreign(host: Host, assumed: &Assumed) -> f64 {
    if host.vcpus == 1 { 0.0 } else { 1.0 - assumed.steered }
}

/// Replies a second of colocated workers, without loss: until the one with the popular info hash is
/// full, as the kernel brings that one's announces to it, and connects to all alike.
pub fn colocated(host: Host, assumed: &Assumed) -> f64 {
    let workers = host.vcpus as f64;
    let cost = colocated_cost(host, assumed, foreign(host, assumed));
    let announces = assumed.hot + (1.0 - assumed.hot) / workers;
    let fullest = assumed.announces * announces + (1.0 - assumed.announces) / workers;
    host.speed(assumed) * 1e9 / (cost * fullest)
}

/// The same once the fullest worker is relieved: its announces come to all alike, and go to it by
/// lanes.
pub fn colocated_relieved(host: Host, assumed: &Assumed) -> f64 {
    let workers = host.vcpus as f64;
    let hot = assumed.hot + (1.0 - assumed.hot) / workers;
    let foreign = foreign(host, assumed);
    let foreign = foreign + (1.0 - foreign) * hot * (workers - 1.0) / workers;
    workers * host.speed(assumed) * 1e9 / colocated_cost(host, assumed, foreign)
}

/// Replies a second of aquatic_udp by the same arithmetic, all of its vCPUs in use.
pub fn aquatic(host: Host) -> f64 {
    host.vcpus as f64 * 1e9 / (published_cost(&PUBLISHED[0]) * crowding(host.cores))
}

/// From how many vCPUs on, of whole hosts up to `largest`, every split is ahead.
pub fn crossover(assumed: &Assumed, largest: usize) -> Option<usize> {
    let ahead = |vcpus: &usize| {
        let host = Host::whole(*vcpus);
        best_split(host, assumed).is_some_and(|(_, most)| most > colocated(host, assumed))
    };
    (1..=largest / 2).rev().map(|cores| 2 * cores).take_while(ahead).last()
}
