//! The largest swarms of the tracker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use crossbeam_channel::bounded;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::serving;
use super::swarm::{Swarm, unavailable};
use super::wait::{NoAnswer, answer};
use crate::largest::{By, Found, Top, merge};
use crate::problem::Problem;
use crate::shared::Shared;

/// Swarms at most.
const MOST: usize = 1_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// What a swarm is large by.
    #[serde(default)]
    #[param(inline)]
    by: Measure,
    /// How many are wanted, 1 to 1000.
    #[serde(default = "some")]
    #[param(default = 20, minimum = 1, maximum = 1000)]
    limit: usize,
}

fn some() -> usize {
    20
}

/// What a swarm is large by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// All of its peers.
    #[default]
    Peers,
    /// Peers that miss nothing.
    Seeders,
    /// The other peers.
    Leechers,
    /// How often it was completed.
    Completed,
}

impl From<Measure> for By {
    fn from(measure: Measure) -> Self {
        match measure {
            Measure::Peers => Self::Peers,
            Measure::Seeders => Self::Seeders,
            Measure::Leechers => Self::Leechers,
            Measure::Completed => Self::Completed,
        }
    }
}

/// The largest swarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Largest {
    /// What they are large by.
    pub by: Measure,
    /// How many swarms were looked at.
    pub looked_at: u64,
    /// The largest first. Those that are zero by the measure are left out.
    pub swarms: Vec<Swarm>,
}

/// The largest swarms. Every swarm is looked at, in small steps between the turns of the workers; one such
/// request at a time.
#[utoipa::path(get, path = "/api/v1/swarms/top", tag = "admin", security(("token" = [])), params(Asked),
    responses(
        (status = 200, description = "The largest first", body = Largest),
        (status = 400, description = "Not a measure or a number that is taken", body = Problem),
        (status = 401, description = "Not the token", body = Problem),
        (status = 403, description = "The admin API is switched off", body = Problem),
        (status = 429, description = "Somebody else has the swarms looked through", body = Problem),
        (status = 503, description = "The tracker does not serve, or a worker takes no orders", body = Problem),
        (status = 504, description = "A worker did not answer in time", body = Problem),
    )
)]
pub(crate) async fn top(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Largest>, Problem> {
    let Query(Asked { by, limit }) = asked.map_err(|error| {
        Problem::bad(format!(
            "{}: write ?by=peers|seeders|leechers|completed&limit=1 to {MOST}",
            error.body_text()
        ))
    })?;
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::bad(format!("limit is {limit}: write a number from 1 to {MOST}")));
    }
    let source = serving(&shared)?;
    let Some(_turn) = Turn::take(&shared) else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "the swarms are being looked through for somebody else: ask again in a moment",
        ));
    };
    let until = Instant::now() + shared.patience;
    let orders = source.overview.orders();
    let given_up = GivenUp::default();
    let (tell, told) = bounded(orders.shards());
    orders
        .run_on_every_shard(|_| {
            Box::new(Top::new(by.into(), limit, given_up.0.clone(), tell.clone()))
        })
        .map_err(|deaf| unavailable(&deaf))?;
    drop(tell);
    let mut found: Vec<Found> = Vec::with_capacity(orders.shards());
    while found.len() < orders.shards() {
        found.push(answer(&told, until).await.map_err(|why| match why {
            NoAnswer::Late => Problem::late("a worker"),
            NoAnswer::Gone => unavailable(&"a worker has ended"),
        })?);
    }
    let Found { swarms, looked_at } = merge(by.into(), limit, found);
    Ok(Json(Largest { by, looked_at, swarms: swarms.into_iter().map(Swarm::from).collect() }))
}

/// The right to have all swarms looked through.
struct Turn<'a>(&'a Shared);

impl<'a> Turn<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        (!shared.looking_through.swap(true, Ordering::AcqRel)).then_some(Self(shared))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.looking_through.store(false, Ordering::Release);
    }
}

/// Ends the walks when nobody waits for them any more: the client may hang up.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
