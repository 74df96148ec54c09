//! The peers of a tracker for another process that continues to serve them: the successor in an
//! upgrade, or another host that follows the same stream.
//!
//! | module | contents |
//! |---|---|
//! | [`handoff`] | the messages of a handoff, and the descriptors that follow them |
//! | [`dump`] | all peers, in steps of running workers, and how they are loaded |
//! | [`delta`] | peers that have stopped or announced since a dump, and how they are merged |

pub mod delta;
pub mod dump;
pub mod handoff;

use std::io;
use std::time::Duration;

use crossbeam_channel::bounded;
use onrush_swarm::Shard;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;
use onrush_tracker::orders::Orders;

/// Runs a task on every shard until it returns a result. Waits for each result up to `timeout`;
/// they are in any order.
///
/// # Errors
/// When a worker has ended, or returns no result in time.
pub fn collect_from_shards<R, T>(
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
