//! `GET /api/v1/sources/top`: who sends most.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::input;
use super::wait::gathered;
use crate::api::Problem;
use crate::api::sources::{RequestKind, SourcesQuery, TopSources};
use crate::readiness::Readiness;
use crate::source_shares::estimate;
use crate::state::{ServerState, SharedState};
use crate::view::View;
use onrush_tracker::orders::Orders;
use onrush_tracker::source_sample::Sampled;

/// Largest accepted `seconds`.
const MAX_SECONDS: u64 = 60;
/// Sources in the samples of all workers, 16 bytes each, and of one worker.
const SOURCES: usize = 1 << 19;
const SOURCES_OF_A_WORKER: usize = 1 << 14;
/// Time between two checks whether the tracker stops.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The sources that send most: their shares of all requests, or of one kind. The workers sample the
/// sources of requests that arrive while this request waits, up to 16,384 each. Only one such
/// request runs at a time. A closed connection ends it.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/sources/top",
    operation_id = "top_sources", params(SourcesQuery), responses(
    (status = 200, description = "The largest shares first", body = TopSources),
    (status = 400, description = "An unknown parameter, or one out of range"),
    (status = 409, description = "Another such request is running"),
    (status = 504, description = "A worker did not answer in time"),
)))]
pub(crate) async fn top(
    State(state): SharedState,
    query: Result<Query<SourcesQuery>, QueryRejection>,
) -> Result<Json<TopSources>, Problem> {
    let SourcesQuery { seconds, by, kind, limit } = input::query(
        query,
        "?seconds=1 to 60&by=ip|24|48|64&kind=all|connect|announce|refused&limit=1 to 1000",
    )?;
    input::check_range("seconds", seconds, 1..=MAX_SECONDS)?;
    input::check_range("limit", limit as u64, 1..=1_000)?;
    let view = state.serving()?;
    let Ok(_permit) = state.sampling.try_lock() else {
        return Err(Problem::conflict(format!(
            "another request samples the sources, for {MAX_SECONDS} s at most: try again when it \
             is done"
        )));
    };
    let shed_before = shed(view);
    let size = (SOURCES / view.parts.orders.workers().max(1)).min(SOURCES_OF_A_WORKER);
    let collection = Collection(&view.parts.orders);
    let begun = Instant::now();
    let samples = collection.0.sample_sources(kind.into(), size, rand::random)?;
    observe(&state, begun + Duration::from_secs(seconds)).await;
    let seconds = begun.elapsed().as_secs_f64();
    drop(collection);
    let samples = gathered(samples, Instant::now() + state.timeout, "a worker").await?;
    let shed = shed(view).saturating_sub(shed_before);
    // Hundreds of thousands of addresses are counted.
    let estimated = spawn_blocking(move || estimate(by, limit, seconds, &samples)).await;
    let shares = estimated.map_err(|error| Problem::unavailable(error.to_string()))?;
    let ports = view.parts.addresses.udp.iter().map(|address| address.port()).collect();
    let unverified = kind != RequestKind::Announce;
    Ok(Json(TopSources { by, kind, unverified, shed, ports, ..shares }))
}

impl From<RequestKind> for Sampled {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::All => Self::All,
            RequestKind::Connect => Self::Connects,
            RequestKind::Announce => Self::Announces,
            RequestKind::Refused => Self::Refused,
        }
    }
}

/// Ends the samples of the workers when it is dropped: axum drops the handler of a closed
/// connection.
struct Collection<'a>(&'a Orders);

impl Drop for Collection<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.end_samples() {
            // The next collection ends its sample.
            log::warn!("{error}: it continues to sample the sources of requests");
        }
    }
}

/// Waits until `end`, or until the tracker stops.
async fn observe(state: &ServerState, end: Instant) {
    while state.readiness() == Readiness::Serving {
        let remains = end.saturating_duration_since(Instant::now());
        if remains.is_zero() {
            return;
        }
        sleep(remains.min(POLL_INTERVAL)).await;
    }
}

/// Datagrams that the kernel has shed so far.
fn shed(view: &View) -> u64 {
    view.members().iter().map(|member| member.metrics.kernel_shed.get()).sum()
}
