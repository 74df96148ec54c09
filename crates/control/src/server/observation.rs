//! `/metrics` and `/stats.json`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use crate::api::Problem;
use crate::api::stats::Stats;
use crate::metrics::prometheus::{self, Format};
use crate::state::SharedState;

/// All counters and gauges for Prometheus: in OpenMetrics where `Accept` names it, else in the text
/// format 0.0.4.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Metrics", body = String, content_type = "text/plain"),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn metrics(
    State(state): SharedState,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let snapshot = state.snapshot()?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let format = Format::accepted(accept);
    let content_type = [(header::CONTENT_TYPE, format.content_type())];
    Ok((content_type, prometheus::write(snapshot, format)).into_response())
}

/// All counters and gauges as JSON. Counters never decrease, and `time` is the time of the
/// response: clients compute rates from two responses.
#[cfg_attr(test, utoipa::path(get, path = "/stats.json", responses(
    (status = 200, description = "All counters and gauges", body = Stats),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn stats(State(state): SharedState) -> Result<Json<Stats>, Problem> {
    Ok(Json(Stats::of(&state.snapshot()?)))
}
