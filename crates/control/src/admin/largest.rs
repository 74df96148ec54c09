//! `GET /api/v1/swarms/top`: the largest swarms.

use std::cmp::Reverse;
use std::sync::{Arc, Weak};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use crossbeam_channel::{Sender, bounded};
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary, Verdict};
use tokio::time::Instant;

use super::wait::worker_response;
use crate::api::Problem;
use crate::api::admin::{LargestSwarms, Measure, Swarm, TopQuery};
use crate::state::SharedState;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms per step: one or two cache misses each.
const STEP: usize = 128;
/// Largest accepted `limit`.
const MAX_LIMIT: usize = 1_000;

/// The largest swarms. The workers examine every swarm, in small steps between their turns. Only
/// one such request runs at a time.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/swarms/top", params(TopQuery), responses(
    (status = 200, description = "The largest first", body = LargestSwarms),
    (status = 400, description = "Unknown measure or a limit out of range"),
    (status = 429, description = "Another such request is running"),
    (status = 503, description = "The tracker does not serve, or a worker accepts no orders"),
    (status = 504, description = "A worker did not answer in time"),
)))]
pub(crate) async fn top(
    State(state): SharedState,
    query: Result<Query<TopQuery>, QueryRejection>,
) -> Result<Json<LargestSwarms>, Problem> {
    let Query(TopQuery { by, limit }) = query.map_err(|error| {
        Problem::bad_request(format!(
            "{}: write ?by=peers|seeders|leechers|completed&limit=1 to {MAX_LIMIT}",
            error.body_text()
        ))
    })?;
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::bad_request(format!(
            "limit is {limit}: write a number from 1 to {MAX_LIMIT}"
        )));
    }
    let view = state.serving()?;
    let Ok(_permit) = state.walk.try_lock() else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "another request is searching the swarms: try again in a moment",
        ));
    };
    let deadline = Instant::now() + state.timeout;
    let orders = &view.parts.orders;
    // The walks end when this is dropped: axum drops the handler of a closed connection.
    let request = Arc::new(());
    let (sender, responses) = bounded(orders.shards());
    let walk = |_| Box::new(Top::new(by, limit, Arc::downgrade(&request), sender.clone())) as _;
    let ordered = orders.run_on_every_shard(walk);
    ordered.map_err(|error| Problem::unavailable(error.to_string()))?;
    drop(sender);
    let mut found = Vec::with_capacity(orders.shards());
    while found.len() < orders.shards() {
        found.push(worker_response(&responses, deadline, "a worker").await?);
    }
    let Found { swarms, examined } = merge(by, limit, found);
    let swarms = swarms.into_iter().map(Swarm::from).collect();
    Ok(Json(LargestSwarms { by, looked_at: examined, swarms }))
}

impl Measure {
    /// Size of a swarm by this measure.
    pub fn of(self, swarm: &SwarmSummary) -> u64 {
        match self {
            Self::Peers => u64::from(swarm.seeders) + u64::from(swarm.leechers),
            Self::Seeders => swarm.seeders.into(),
            Self::Leechers => swarm.leechers.into(),
            Self::Completed => swarm.completed.into(),
        }
    }
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The largest swarms, in no order. Swarms of size 0 are left out.
    pub swarms: Vec<SwarmSummary>,
    /// Number of swarms examined.
    pub examined: u64,
}

/// A walk over one shard that keeps the largest swarms.
pub struct Top {
    by: Measure,
    limit: usize,
    request: Weak<()>,
    begun: bool,
    found: Found,
    response: Sender<Found>,
}

impl Top {
    /// Sends the largest `limit` swarms to `response`; ends without a response once `request` is
    /// dropped.
    pub fn new(by: Measure, limit: usize, request: Weak<()>, response: Sender<Found>) -> Self {
        // Allocated here, so that the worker does not allocate.
        let found = Found { swarms: Vec::with_capacity(2 * limit), examined: 0 };
        Self { by, limit, request, begun: false, found, response }
    }
}

impl ShardTask for Top {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.request.strong_count() == 0 {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let more = shard.walk(now.moment, STEP, |swarm| {
            self.found.examine(swarm, self.by, self.limit);
            Verdict::Keep
        });
        if !more {
            self.found.keep_largest(self.by, self.limit);
            let _ = self.response.try_send(std::mem::take(&mut self.found));
        }
        more
    }
}

impl Found {
    fn examine(&mut self, swarm: &SwarmSummary, by: Measure, limit: usize) {
        self.examined += 1;
        if by.of(swarm) > 0 {
            self.swarms.push(*swarm);
        }
        if self.swarms.len() == 2 * limit {
            self.keep_largest(by, limit);
        }
    }

    fn keep_largest(&mut self, by: Measure, limit: usize) {
        if self.swarms.len() > limit {
            self.swarms.select_nth_unstable_by_key(limit, |swarm| rank(by, swarm));
            self.swarms.truncate(limit);
        }
    }
}

/// Sort key by which the largest swarm comes first; of equal ones that with the smaller info hash.
fn rank(by: Measure, swarm: &SwarmSummary) -> (Reverse<u64>, InfoHash) {
    (Reverse(by.of(swarm)), swarm.info_hash)
}

/// The largest swarms of all shards, in descending order.
pub fn merge(by: Measure, limit: usize, found: impl IntoIterator<Item = Found>) -> Found {
    let mut all = Found::default();
    for part in found {
        all.swarms.extend(part.swarms);
        all.examined += part.examined;
    }
    all.swarms.sort_unstable_by_key(|swarm| rank(by, swarm));
    all.swarms.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use onrush_proto::Endpoint;
    use onrush_swarm::{Moment, PeerView, ShardSettings};

    use super::*;

    const NOW: Now = Now { moment: Moment(5), unix: 5 };

    /// A shard in which swarm `n` has `n` peers, a third of them seeders.
    fn shard(swarms: u16) -> Shard {
        let mut shard = Shard::new(ShardSettings::default(), [1; 16], 1);
        for swarm in 1..swarms {
            let peers = (0..swarm).map(|peer| PeerView {
                endpoint: Endpoint::v4(Ipv4Addr::new(192, 0, 2, 1), 1_000 + peer),
                seeder: peer % 3 == 0,
                age: 0,
            });
            shard.restore(hash(swarm), 0, peers, NOW.moment);
        }
        shard
    }

    fn hash(number: u16) -> InfoHash {
        let mut hash = [7; 20];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    }

    fn found(shard: &mut Shard, by: Measure, limit: usize) -> Found {
        let (sender, response) = bounded(1);
        let request = Arc::new(());
        let mut top = Top::new(by, limit, Arc::downgrade(&request), sender);
        while top.step(shard, NOW) {}
        response.try_recv().unwrap()
    }

    #[test]
    fn the_largest_swarms_of_all_shards_are_found_in_order() {
        let mut shard = shard(300);
        for by in [Measure::Peers, Measure::Seeders, Measure::Leechers] {
            let found = found(&mut shard, by, 10);
            assert_eq!((found.swarms.len(), found.examined), (10, 299));
            // As if two shards had found half of them each.
            let halves =
                found.swarms.chunks(5).map(|half| Found { swarms: half.to_vec(), examined: 1 });
            let merged = merge(by, 4, halves);
            let largest: Vec<InfoHash> =
                merged.swarms.iter().map(|swarm| swarm.info_hash).collect();
            if by == Measure::Peers {
                assert_eq!(largest, [299, 298, 297, 296].map(hash));
            }
            let sizes: Vec<u64> = merged.swarms.iter().map(|swarm| by.of(swarm)).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        }
        assert_eq!(found(&mut shard, Measure::Completed, 10).swarms, [], "no swarm has completed");
    }

    #[test]
    fn a_cancelled_search_sends_no_response() {
        let mut shard = shard(300);
        let (sender, response) = bounded(1);
        let request = Arc::new(());
        let mut top = Top::new(Measure::Peers, 10, Arc::downgrade(&request), sender);
        assert!(top.step(&mut shard, NOW));
        drop(request);
        assert!(!top.step(&mut shard, NOW));
        assert!(response.is_empty());
    }
}
