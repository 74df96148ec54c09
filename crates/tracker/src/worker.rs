//! One worker: a socket side, a swarm side, or both. Its [`turn`](Worker::turn) is the whole data
//! path, the same in either placement.
//!
//! ```text
//! receive ─▶ intake ─▶ sorter ─┬─ own shard: serve ─────────────┬─▶ send
//!    │                         └─ lane ─▶ another's shard ─ lane ┘    ▲
//!    └─ connects and errors are answered from here ────────────────────┘
//! ```

mod door;
mod home;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::Parker;
use onrush_net::Socket;

pub use door::Door;
pub use home::Home;

use crate::clock::Now;
use crate::lanes::{Inbox, Ways};
use crate::metrics::WorkerMetrics;

/// Parcels that a worker serves for others in one turn at most, so that its own socket is looked
/// at again soon.
const PARCELS_PER_TURN: usize = 64;

/// A worker. Everything in it belongs to one thread; it meets others only through lanes and
/// counters.
pub struct Worker<S: Socket> {
    /// Its number among all workers.
    pub index: usize,
    /// Its socket side.
    pub door: Option<Door<S>>,
    /// Its swarm side.
    pub home: Option<Home>,
    /// Where its parcels arrive.
    pub inbox: Inbox,
    /// The ways to all workers, itself included, by number.
    pub ways: Arc<[Ways]>,
    /// The worker that owns each shard.
    pub owners: Arc<[usize]>,
    /// Sleeps here when it has no socket to sleep in.
    pub parker: Parker,
    /// Its counters.
    pub metrics: Arc<WorkerMetrics>,
}

impl<S: Socket> Worker<S> {
    /// Does what there is to do and never waits. Returns whether there may be more.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn turn(&mut self, now: Now) -> io::Result<bool> {
        let mut busy = false;
        if let Some(door) = &mut self.door {
            busy |= door.receive(now, &self.metrics)?;
            busy |=
                dispatch(door, self.home.as_mut(), &self.ways, &self.owners, &self.metrics, now);
        }
        if let Some(home) = &mut self.home {
            busy |= serve_lanes(home, &self.inbox, &self.ways, now);
            busy |= home.keep_up(now, &self.metrics);
        }
        if let Some(door) = &mut self.door {
            while let Some(parcel) = self.inbox.home() {
                busy = true;
                door.welcome(parcel);
            }
            door.send(&self.metrics);
            door.keep_up(now, &self.metrics);
        }
        self.metrics.turns.add(1);
        Ok(busy)
    }

    /// Sleeps until there may be something to do, for `timeout` at most.
    ///
    /// # Errors
    /// When the socket has become unusable.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut result = Ok(());
        let (door, parker) = (&mut self.door, &self.parker);
        self.inbox.sleep(|| match door {
            Some(door) => result = door.wait(timeout),
            None => parker.park_timeout(timeout),
        });
        result
    }
}

/// Every open batch goes to its shard: straight into the own one, over a lane to any other.
fn dispatch<S: Socket>(
    door: &mut Door<S>,
    mut home: Option<&mut Home>,
    ways: &[Ways],
    owners: &[usize],
    metrics: &WorkerMetrics,
    now: Now,
) -> bool {
    let mut busy = false;
    while let Some(mut parcel) = door.take_sorted() {
        busy = true;
        let requests = parcel.batch.len() as u64;
        match &mut home {
            Some(home) if home.shard_index == parcel.shard => {
                metrics.local.add(requests);
                home.shard.serve(&mut parcel.batch, now.moment);
                door.welcome(parcel);
            }
            own => {
                if own.is_some() {
                    metrics.foreign.add(requests);
                }
                if let Err(parcel) = ways[owners[parcel.shard]].work.try_send(parcel) {
                    metrics.lane_full.add(1);
                    door.give_up(parcel, metrics);
                }
            }
        }
    }
    busy
}

/// What other workers have sent for this one's shard.
fn serve_lanes(home: &mut Home, inbox: &Inbox, ways: &[Ways], now: Now) -> bool {
    let mut busy = false;
    for _ in 0..PARCELS_PER_TURN {
        let Some(mut parcel) = inbox.work() else { break };
        busy = true;
        home.shard.serve(&mut parcel.batch, now.moment);
        // The way home has room for every parcel its owner has, so this fails only when the
        // owner is gone; then nobody is left to reply.
        let _ = ways[parcel.home].home.try_send(parcel);
    }
    busy
}
