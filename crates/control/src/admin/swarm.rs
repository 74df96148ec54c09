//! `GET /api/v1/swarm/{info_hash}`: one swarm.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use onrush_proto::InfoHash;
use onrush_proto::id::InvalidInfoHash;
use onrush_swarm::{Shard, SwarmSummary};
use tokio::time::Instant;

use super::wait::gathered;
use crate::api::Problem;
use crate::api::admin::Swarm;
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
    let info_hash = info_hash_of(path)?;
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

/// The info hash in the path of a request.
pub(super) fn info_hash_of(path: Result<Path<String>, PathRejection>) -> Result<InfoHash, Problem> {
    // The path is not UTF-8.
    let Path(text) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
    parse_info_hash(&text)
}

/// Parses an info hash in hexadecimal or base32.
pub(super) fn parse_info_hash(text: &str) -> Result<InfoHash, Problem> {
    text.trim().parse().map_err(|error: InvalidInfoHash| {
        Problem::bad_request(format!("{text:?} is no info hash: {error}"))
    })
}
