//! `GET /api/v1/swarms/top`: the largest swarms.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use crossbeam_channel::bounded;
use tokio::time::Instant;

use super::largest::{Found, Top, merge};
use super::wait::worker_response;
use crate::api::Problem;
use crate::api::admin::{LargestSwarms, Swarm, TopQuery};
use crate::state::SharedState;

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
