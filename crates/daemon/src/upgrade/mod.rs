//! Upgrade without downtime: a new process takes over sockets and peers while the running one still
//! answers. They talk over a Unix socket in the state directory.
//!
//! ```text
//! incoming                                   outgoing (serves)
//!  │── Request: protocol version ─────────────▶│
//!  │◀─ Handoff: addresses, shard key; sockets, state lock, control socket as descriptors ─│
//!  │   (opens further sockets)                 │
//!  │── Accept: addresses to keep ─────────────▶│
//!  │◀─ Dump: number of peers ──────────────────│ records stops and replacements from here on
//!  │◀─ all peers, as a snapshot ───────────────│ dumps in steps
//!  │   (workers wait at a gate)                │
//!  │── Ready: could serve ────────────────────▶│
//!  │                                           │ refuses changes; workers stop receiving and drain
//!  │◀─ Release ────────────────────────────────│
//!  │   (late changes, rules; binds sockets)      │
//!  │── Acquired ──────────────────────────────▶│
//!  │ (serves)                                  │ drains addresses not kept; workers stop
//!  │◀─ stops and peers since the dump ─────────│
//!  │                                           │ exits with 0
//! ```
//!
//! Both processes have the same sockets, so datagrams queue in the kernel while neither receives.
//! Until the outgoing process has read `Acquired` it can resume, and does so on any failure; after
//! that it never reads a shared socket again. Every wait has a timeout. A shard's change log
//! is bounded: peers whose stop it has dropped stay listed until their lifetime ends.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | the messages between the two processes |
//! | [`outgoing`] | the running process's side |
//! | [`incoming`] | the new process's side |
//! | [`delta`] | peers that have stopped or announced since the dump |
//! | [`state`] | the upgrade in progress, in the process that serves |
//! | [`successor`] | how the running process starts the new one |

pub mod delta;
pub mod incoming;
pub mod message;
pub mod outgoing;
pub mod state;
pub mod successor;

use std::io;
use std::time::Duration;

use crossbeam_channel::bounded;
use onrush_swarm::Shard;

use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::orders::Orders;

/// The Unix socket's name in the state directory.
pub const SOCKET: &str = "upgrade.sock";

/// Runs a task on every shard until it returns a result. Waits for each result up to `timeout`;
/// they are in any order.
fn collect_from_shards<R, T>(
    orders: &Orders,
    timeout: Duration,
    mut task: impl FnMut(usize) -> T,
) -> io::Result<Vec<R>>
where
    R: Send + 'static,
    T: FnMut(&mut Shard, Now) -> Option<R> + Send + 'static,
{
    let (to, results) = bounded(orders.shards());
    let with_result = |shard| -> Box<dyn ShardTask> {
        let (mut step, to) = (task(shard), to.clone());
        Box::new(move |shard: &mut Shard, now: Now| {
            // The receiver is dropped after a timeout.
            step(shard, now).map(|result| to.send(result)).is_none()
        })
    };
    orders.run_on_every_shard(with_result).map_err(io::Error::other)?;
    let next = |_| results.recv_timeout(timeout).map_err(|_| stalled());
    (0..orders.shards()).map(next).collect()
}

fn stalled() -> io::Error {
    io::Error::other("a worker has ended, or is stalled")
}
