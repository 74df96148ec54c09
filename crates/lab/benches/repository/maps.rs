//! Concurrent maps, shared by all threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dashmap::DashMap;
use indexmap::IndexMap;
use onrush_swarm::Announce;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::ours::in_parallel;
use super::swarm::Swarm;
use super::{BATCH, Outcome, Pace, Place};

/// A map that any thread may announce to.
pub(crate) trait Shared: Sync + Default {
    /// Stores an announce and writes the reply.
    fn announce(&self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>);
}

/// One lock, one sorted map.
#[derive(Default)]
pub(crate) struct StdTree(std::sync::RwLock<BTreeMap<[u8; 20], Swarm>>);

impl Shared for StdTree {
    fn announce(&self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>) {
        let mut swarms = self.0.write().expect("no thread panics");
        swarms.entry(announce.info_hash.0).or_default().announce(announce, rng, out);
    }
}

/// One lock, one hash map.
#[derive(Default)]
pub(crate) struct ParkingLot(parking_lot::RwLock<HashMap<[u8; 20], Swarm>>);

impl Shared for ParkingLot {
    fn announce(&self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>) {
        let mut swarms = self.0.write();
        swarms.entry(announce.info_hash.0).or_default().announce(announce, rng, out);
    }
}

/// A lock for each part of a hash map.
#[derive(Default)]
pub(crate) struct Dash(DashMap<[u8; 20], Swarm>);

impl Shared for Dash {
    fn announce(&self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>) {
        self.0.entry(announce.info_hash.0).or_default().announce(announce, rng, out);
    }
}

/// Sixteen parts by the first byte of the info hash. A swarm has a lock of its own, so a part is
/// only read-locked unless it gets a new swarm.
#[derive(Default)]
pub(crate) struct Aquatic([parking_lot::RwLock<IndexMap<[u8; 20], Arc<LockedSwarm>>>; 16]);

type LockedSwarm = parking_lot::Mutex<Swarm>;

impl Shared for Aquatic {
    fn announce(&self, announce: &Announce, rng: &mut SmallRng, out: &mut Vec<u8>) {
        let hash = announce.info_hash.0;
        let part = &self.0[usize::from(hash[0] % 16)];
        let known = part.read().get(&hash).cloned();
        let swarm = known.unwrap_or_else(|| part.write().entry(hash).or_default().clone());
        swarm.lock().announce(announce, rng, out);
    }
}

/// A store whose client threads do all the work.
#[derive(Default)]
pub(crate) struct Direct<S>(S);

impl<S: Shared> Place for Direct<S> {
    fn serve(&mut self, parts: &[Vec<Announce>], _: Pace) -> Outcome {
        in_parallel(parts.iter().collect(), |part| ask(&self.0, part))
    }
}

/// Runs announces in sequence. Returns the bytes of all replies.
fn ask<S: Shared>(shared: &S, part: &[Announce]) -> u64 {
    let mut rng = SmallRng::seed_from_u64(2);
    let mut replies = Vec::with_capacity(BATCH * 1_232);
    let mut bytes = 0;
    for batch in part.chunks(BATCH) {
        replies.clear();
        for announce in batch {
            shared.announce(announce, &mut rng, &mut replies);
        }
        bytes += replies.len() as u64;
    }
    bytes
}
