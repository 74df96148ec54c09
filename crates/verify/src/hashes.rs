//! The info hashes of checks: random ones, or the given ones of a tracker that serves no others.

use std::sync::{Condvar, Mutex};

use onrush_proto::InfoHash;

use crate::message::fresh_hash;

/// The info hashes that the tracker serves; any where none were given.
#[derive(Debug)]
pub struct HashPool {
    given: Vec<InfoHash>,
    /// The unused info hashes. The first one belongs to the shared large swarm and stays.
    free: Mutex<Vec<InfoHash>>,
    freed: Condvar,
}

impl HashPool {
    /// Of these info hashes; of random ones where there are none.
    pub(crate) fn new(given: Vec<InfoHash>) -> Self {
        Self { free: Mutex::new(given.clone()), given, freed: Condvar::new() }
    }

    /// Whether checks share a limited number of info hashes.
    pub(crate) fn is_limited(&self) -> bool {
        !self.given.is_empty()
    }

    /// An info hash that no check takes: that of the shared large swarm.
    pub(crate) fn reserved(&self) -> InfoHash {
        self.given.first().copied().unwrap_or_else(fresh_hash)
    }

    /// Takes `count` info hashes. Waits until other checks have returned theirs.
    ///
    /// # Errors
    /// When fewer were given: how many are needed.
    pub(crate) fn lease(&self, count: usize) -> Result<Lease<'_>, String> {
        if !self.is_limited() {
            let hashes = std::iter::repeat_with(fresh_hash).take(count).collect();
            return Ok(Lease { pool: self, hashes });
        }
        // One more is for the large swarm.
        if self.given.len() <= count {
            return Err(format!("needs {} info hashes that the tracker serves", count + 1));
        }
        let mut free = self.free.lock().expect("no check panics");
        while free.len() < count + 1 {
            free = self.freed.wait(free).expect("no check panics");
        }
        let at = free.len() - count;
        Ok(Lease { pool: self, hashes: free.split_off(at) })
    }
}

/// Info hashes of one check, which are returned at its end.
#[derive(Debug)]
pub(crate) struct Lease<'p> {
    pool: &'p HashPool,
    hashes: Vec<InfoHash>,
}

impl Lease<'_> {
    /// Info hash number `n`.
    pub(crate) fn hash(&self, n: usize) -> InfoHash {
        self.hashes[n]
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.pool.is_limited() {
            let mut free = self.pool.free.lock().expect("no check panics");
            // Unused hashes are taken first.
            for hash in self.hashes.drain(..) {
                free.insert(1, hash);
            }
            self.pool.freed.notify_all();
        }
    }
}
