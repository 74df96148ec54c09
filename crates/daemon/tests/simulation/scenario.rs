//! Events of a run, drawn from its seed: the shape of the tracker, the network, and faults.

use std::time::Duration;

use onrush_net::memory::Conditions;
use onrush_testing::memory_tracker::{COLOCATED, SPLIT};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::Step;
use super::model::LONGEST_STALL;
use super::upgrade::Failure;

/// Seconds in which faults are caused.
const FAULTY: std::ops::Range<u64> = 30..400;
/// Seconds after the last fault, in which all have to be served again.
pub(crate) const CALM: u64 = 260;

/// One run.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The tables of the configuration that no reload changes.
    pub(crate) text: String,
    pub(crate) conditions: Conditions,
    /// Whether the workers have few batches, with room for few requests.
    pub(crate) few_batches: bool,
    pub(crate) receive_buffer: usize,
    pub(crate) peers: usize,
    /// `limits.peers`, less than a configuration may have.
    pub(crate) most_peers: Option<u64>,
    pub(crate) addresses: Addresses,
    /// Faults, with the second of each, in order.
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// The addresses of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// Clients of an average source: some sources have many more, others one.
    pub(crate) clients_per_source: usize,
    pub(crate) sources_per_network: usize,
}

/// A fault, or what an operator does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The wall clock is set.
    Clock(Step),
    /// A worker takes no turn.
    Stall { worker: usize, seconds: u64 },
    /// Another configuration.
    Reload,
    /// A change of the list, of this share of the swarms.
    List { share: f64 },
    /// A handoff to a successor, unless that fails.
    Upgrade(Option<Failure>),
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let placement = if rng.random_bool(0.5) { SPLIT } else { COLOCATED };
        let limits = match rng.random_range(0..3) {
            0 => "batches_in_flight = 6\nbatch_requests = 1\nscrapes_in_flight = 1",
            1 => "batches_in_flight = 12\nbatch_requests = 4\nscrapes_in_flight = 4",
            _ => "",
        };
        let (most_peers, of_sources, addresses) = draw_limits(&mut rng);
        let text = format!("{placement}\n[limits]\n{limits}\n{of_sources}\n",);
        let conditions = Conditions {
            loss: rng.random_range(0.0..0.05),
            duplicates: rng.random_range(0.0..0.05),
            delay: Duration::from_millis(2)..=Duration::from_millis(rng.random_range(3..150)),
            reordering: rng.random_range(0.0..0.1),
        };
        let receive_buffer = [8, 64, 1024][rng.random_range(0..3)];
        let peers = rng.random_range(40..160);
        // Some kinds of faults are left out, so that the others are seen alone.
        let kinds: Vec<usize> = (0..5).filter(|_| rng.random_bool(0.5)).collect();
        let count = if kinds.is_empty() { 0 } else { rng.random_range(1..12) };
        let mut faults: Vec<(u64, Fault)> = Vec::new();
        let mut at = 0;
        for _ in 0..count {
            // Half of them come soon after another one, and meet what it has begun.
            at = match faults.is_empty() || rng.random_bool(0.5) {
                true => rng.random_range(FAULTY),
                false => at + rng.random_range(0..8),
            };
            let kind = kinds[rng.random_range(0..kinds.len())];
            faults.push((at, Fault::draw(kind, &mut rng)));
        }
        faults.sort_by_key(|(at, _)| *at);
        let few_batches = !limits.is_empty();
        Self { few_batches, text, conditions, receive_buffer, peers, most_peers, addresses, faults }
    }

    /// Whether no request has to be refused as busy: batches suffice, and no worker is stalled.
    pub(crate) fn has_room(&self) -> bool {
        let stalls = |(_, fault): &(u64, Fault)| matches!(fault, Fault::Stall { .. });
        !self.few_batches && !self.faults.iter().any(stalls)
    }

    /// Seconds of the run.
    pub(crate) fn length(&self) -> u64 {
        self.faults.last().map_or(FAULTY.start, |(at, _)| at + LONGEST_STALL) + CALM
    }
}

/// `limits.peers`, the limits of a source, and addresses of clients that reach them. A third of the
/// runs have neither limit, and each client has an address of its own.
fn draw_limits(rng: &mut SmallRng) -> (Option<u64>, String, Addresses) {
    let (small, of_sources) = [(false, false), (true, false), (false, true), (true, true)]
        [[0, 0, 1, 2, 3, 2][rng.random_range(0..6)]];
    let most_peers = small.then(|| rng.random_range(6..=90));
    let text = match of_sources {
        true => format!(
            "source_peers_per_swarm = {}\nsource_peers = {}\nsource_new_swarms = {}",
            rng.random_range(0..=3),
            [0, rng.random_range(3..=24)][rng.random_range(0..2)],
            rng.random_range(0..=6),
        ),
        false => String::new(),
    };
    let addresses = match small || of_sources {
        true => Addresses {
            clients_per_source: [1, 3, 10, 40][rng.random_range(0..4)],
            sources_per_network: [1, 4, 250][rng.random_range(0..3)],
        },
        false => Addresses { clients_per_source: 1, sources_per_network: 1 },
    };
    (most_peers, text, addresses)
}

impl Fault {
    fn draw(kind: usize, rng: &mut SmallRng) -> Self {
        match kind {
            0 => Self::Clock(match rng.random_range(0..6) {
                0 => Step::By(rng.random_range(-15..=15)),
                1 => Step::By(rng.random_range(-300..=300)),
                2 => Step::By(3_600),
                3 => Step::By(-3_600),
                4 => Step::By(10 * 365 * 86_400),
                _ => Step::Epoch,
            }),
            1 => Self::Stall {
                worker: rng.random_range(0..16),
                seconds: rng.random_range(1..=LONGEST_STALL),
            },
            2 => Self::Reload,
            3 => Self::List { share: rng.random_range(0.0..0.5) },
            _ => Self::Upgrade(match rng.random_range(0..4) {
                0 => Some(Failure::InDump),
                1 => Some(Failure::Paused),
                _ => None,
            }),
        }
    }
}
