//! One swarm, by its info hash.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use crossbeam_channel::bounded;
use onrush_proto::InfoHash;
use onrush_proto::id::InvalidInfoHash;
use onrush_swarm::SwarmSummary;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::serving;
use super::wait::{NoAnswer, answer};
use crate::lookup::LookUp;
use crate::problem::Problem;
use crate::shared::Shared;

/// A swarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Swarm {
    /// Its name, in hexadecimal.
    pub info_hash: String,
    /// Peers that miss nothing.
    pub seeders: u32,
    /// The other peers.
    pub leechers: u32,
    /// How often a peer became a seeder by the event `completed`.
    pub completed: u32,
    /// Seconds since its last peer left, where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_for: Option<u32>,
}

impl From<SwarmSummary> for Swarm {
    fn from(met: SwarmSummary) -> Self {
        let SwarmSummary { info_hash, completed, seeders, leechers, idle_for } = met;
        Self { info_hash: info_hash.to_string(), seeders, leechers, completed, idle_for }
    }
}

/// One swarm, as a scrape would tell of it, and for how long it has been without peers.
#[utoipa::path(get, path = "/api/v1/swarm/{info_hash}", tag = "admin", security(("token" = [])),
    params(("info_hash" = String, Path, description = "40 hexadecimal digits or 32 base32 characters")),
    responses(
        (status = 200, description = "The swarm", body = Swarm),
        (status = 400, description = "This is no info hash", body = Problem),
        (status = 401, description = "Not the token", body = Problem),
        (status = 403, description = "The admin API is switched off", body = Problem),
        (status = 404, description = "The swarm is not known", body = Problem),
        (status = 503, description = "The tracker does not serve, or the swarm's worker takes no orders", body = Problem),
        (status = 504, description = "The swarm's worker did not answer in time", body = Problem),
    )
)]
pub(crate) async fn swarm(
    State(shared): State<Arc<Shared>>,
    Path(text): Path<String>,
) -> Result<Json<Swarm>, Problem> {
    let info_hash = info_hash(&text)?;
    let source = serving(&shared)?;
    let until = Instant::now() + shared.patience;
    let (tell, told) = bounded(1);
    let shard = source.shard_of(&info_hash);
    let order = Box::new(LookUp::new(info_hash, tell));
    source.overview.orders().run_on_shard(shard, order).map_err(|deaf| unavailable(&deaf))?;
    match answer(&told, until).await {
        Ok(Some(met)) => Ok(Json(met.into())),
        Ok(None) => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("no swarm {info_hash} is known: nobody has announced it lately"),
        )),
        Err(NoAnswer::Late) => Err(Problem::late("the worker of this swarm")),
        Err(NoAnswer::Gone) => Err(unavailable(&"the worker of this swarm has ended")),
    }
}

/// What people write for an info hash.
pub(crate) fn info_hash(text: &str) -> Result<InfoHash, Problem> {
    text.parse()
        .map_err(|why: InvalidInfoHash| Problem::bad(format!("{text:?} is no info hash: {why}")))
}

/// A worker that takes no orders.
pub(super) fn unavailable(why: &dyn std::fmt::Display) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
}
