//! `GET /api/v1/swarm/{info_hash}` and `/api/v1/swarms/top`: one swarm, and the largest ones.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, SwarmSummary};
use tokio::time::Instant;

use super::input;
use super::wait::gathered;
use crate::api::Problem;
use crate::api::admin::{LargestSwarms, Measure, Swarm, TopQuery};
use crate::state::SharedState;
use onrush_tracker::clock::Now;

impl From<SwarmSummary> for Swarm {
    fn from(summary: SwarmSummary) -> Self {
        let SwarmSummary { info_hash, completed, seeders, leechers, idle_for } = summary;
        Self { info_hash: info_hash.to_string(), seeders, leechers, completed, idle_for }
    }
}

/// One swarm: the counts that a scrape returns, and for how long it has had no peers.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/swarm/{info_hash}",
    params(("info_hash" = String, Path,
            description = "40 hexadecimal digits or 32 base32 characters")),
    responses(
        (status = 200, description = "The swarm", body = Swarm),
        (status = 400, description = "Not an info hash"),
        (status = 404, description = "No such swarm"),
        (status = 504, description = "The swarm's worker did not answer in time"),
    )
))]
pub(crate) async fn swarm(
    State(state): SharedState,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Swarm>, Problem> {
    let info_hash = input::info_hash_of(path)?;
    let view = state.serving()?;
    let deadline = Instant::now() + state.timeout;
    let shard = view.parts.map.shard_of(&info_hash);
    let look_up = move |shard: &mut Shard, now: Now| Some(shard.summary(&info_hash, now.moment));
    let found = view.parts.orders.gather_from_shard(shard, look_up)?;
    let found = gathered(found, deadline, "the worker of this swarm").await?;
    found.into_iter().flatten().next().map(|summary| Json(summary.into())).ok_or_else(|| {
        Problem::not_found(format!("no swarm {info_hash}: it has had no announce lately"))
    })
}

/// The largest swarms. The workers examine every swarm, in small steps between their turns. Only
/// one such request runs at a time.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/swarms/top", params(TopQuery), responses(
    (status = 200, description = "The largest first", body = LargestSwarms),
    (status = 400, description = "Unknown measure or a limit out of range"),
    (status = 429, description = "Another such request is running"),
    (status = 504, description = "A worker did not answer in time"),
)))]
pub(crate) async fn top(
    State(state): SharedState,
    query: Result<Query<TopQuery>, QueryRejection>,
) -> Result<Json<LargestSwarms>, Problem> {
    let example = "?by=peers|seeders|leechers|completed&limit=1 to 1000";
    let TopQuery { by, limit } = input::query(query, example)?;
    input::check_range("limit", limit as u64, 1..=1_000)?;
    let view = state.serving()?;
    let _walks = state.walk()?;
    let deadline = Instant::now() + state.timeout;
    let found = view
        .parts
        .orders
        .gather_walk(|| Found::new(limit), move |found, swarm| found.examine(swarm, by, limit))?;
    let Found { swarms, examined } = merge(by, limit, gathered(found, deadline, "a worker").await?);
    let swarms = swarms.into_iter().map(Swarm::from).collect();
    Ok(Json(LargestSwarms { by, examined, swarms }))
}

impl Measure {
    /// Size of a swarm by this measure.
    fn of(self, swarm: &SwarmSummary) -> u64 {
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
struct Found {
    /// The largest swarms, fewer than twice the limit, in no order. Swarms of size 0 are left out.
    swarms: Vec<SwarmSummary>,
    /// Number of swarms examined.
    examined: u64,
}

impl Found {
    /// Nothing, with the memory that the search needs: workers do not allocate.
    fn new(limit: usize) -> Self {
        Self { swarms: Vec::with_capacity(2 * limit), examined: 0 }
    }

    fn examine(&mut self, swarm: &SwarmSummary, by: Measure, limit: usize) {
        self.examined += 1;
        if by.of(swarm) > 0 {
            self.swarms.push(*swarm);
        }
        if self.swarms.len() == 2 * limit {
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
fn merge(by: Measure, limit: usize, found: impl IntoIterator<Item = Found>) -> Found {
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
    use super::*;

    /// Swarm `n` has `n` peers, a third of them seeders.
    fn swarm(number: u16) -> SwarmSummary {
        let (seeders, leechers) = (u32::from(number).div_ceil(3), u32::from(number) * 2 / 3);
        SwarmSummary { info_hash: hash(number), completed: 0, seeders, leechers, idle_for: None }
    }

    fn hash(number: u16) -> InfoHash {
        let mut hash = [7; 20];
        hash[..2].copy_from_slice(&number.to_be_bytes());
        InfoHash(hash)
    }

    #[test]
    fn the_largest_swarms_of_all_shards_are_found_in_order() {
        let found = |by, limit| {
            let mut found = Found::new(limit);
            (1..300).for_each(|number| found.examine(&swarm(number), by, limit));
            found
        };
        for by in [Measure::Peers, Measure::Seeders, Measure::Leechers] {
            let found = found(by, 10);
            assert!((10..20).contains(&found.swarms.len()), "{by:?}");
            assert_eq!(found.examined, 299);
            // As if two shards had found half of them each.
            let halves =
                found.swarms.chunks(10).map(|half| Found { swarms: half.to_vec(), examined: 1 });
            let merged = merge(by, 4, halves);
            let largest: Vec<InfoHash> =
                merged.swarms.iter().map(|swarm| swarm.info_hash).collect();
            if by == Measure::Peers {
                assert_eq!(largest, [299, 298, 297, 296].map(hash));
            }
            let sizes: Vec<u64> = merged.swarms.iter().map(|swarm| by.of(swarm)).collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        }
        assert_eq!(found(Measure::Completed, 10).swarms, [], "no swarm has completed");
    }
}
