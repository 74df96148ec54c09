//! `/health`, `/ready`, `/metrics`, `/stats.json`, `/history.json`, and `/lists`, if the operator
//! publishes the access list.

use std::time::{Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use log::LevelFilter;

use crate::api::history::History;
use crate::api::stats::Stats;
use crate::api::{Health, Problem, Ready};
use crate::list_text::list_text;
use crate::metrics::prometheus;
use crate::metrics::text::CONTENT_TYPE;
use crate::readiness::Readiness;
use crate::state::{SharedState, unix};
use crate::view::InForce;
use onrush_config::keys::level_word;

/// Liveness: every worker took a turn within the last five seconds.
#[cfg_attr(test, utoipa::path(get, path = "/health", responses(
    (status = 200, description = "Every worker takes turns", body = Health),
    (status = 503, description = "The named workers take no turns", body = Health),
)))]
pub(super) async fn health(State(state): SharedState) -> Response {
    respond(state.stalled(Instant::now()), log::max_level())
}

fn respond(stalled: Vec<String>, level: LevelFilter) -> Response {
    let (code, status) = match stalled.is_empty() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
    };
    let log_level = (level == LevelFilter::Off).then(|| level_word(level).to_owned());
    (code, Json(Health { status: status.to_owned(), stalled, log_level })).into_response()
}

/// Readiness: all sockets are bound and saved state is loaded.
#[cfg_attr(test, utoipa::path(get, path = "/ready", responses(
    (status = 200, description = "The tracker serves", body = Ready),
    (status = 503, description = "The tracker is starting or stopping", body = Ready),
)))]
pub(super) async fn ready(State(state): SharedState) -> Response {
    let readiness = state.readiness();
    let ready = readiness == Readiness::Serving;
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Ready { ready, stage: readiness.name().to_owned() })).into_response()
}

/// All counters and gauges for Prometheus, in the text format 0.0.4.
#[cfg_attr(test, utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Metrics", body = String, content_type = "text/plain"),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn metrics(State(state): SharedState) -> Result<Response, Problem> {
    let page = prometheus::write(&state.snapshot()?);
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response())
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

/// Rates, peers and swarms of the last hour by seconds, and of the last month by hours.
#[cfg_attr(test, utoipa::path(get, path = "/history.json", responses(
    (status = 200, description = "Values over time", body = History),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn history(State(state): SharedState) -> Result<Json<History>, Problem> {
    let history = &state.serving()?.parts.history;
    Ok(Json(history.report(Instant::now(), unix(SystemTime::now()) as u64)))
}

/// The access list in force: a comment with its meaning, then one info hash per line.
#[cfg_attr(test, utoipa::path(get, path = "/lists", responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
    (status = 404, description = "The list is not published (admin.publish_lists)"),
    (status = 503, description = "The tracker is starting"),
)))]
pub(super) async fn lists(State(state): SharedState) -> Result<Response, Problem> {
    let InForce { settings, lists, .. } = state.serving()?.in_force();
    if !settings.admin.publish_lists {
        return Err(Problem::not_found(
            "this tracker does not publish its list: its operator may set \
             admin.publish_lists = true",
        ));
    }
    Ok(list_text(lists.access, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_workers_make_the_tracker_unhealthy() {
        assert_eq!(respond(Vec::new(), LevelFilter::Off).status(), StatusCode::OK);
        let stalled = respond(vec!["worker-1".to_owned()], LevelFilter::Info);
        assert_eq!(stalled.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
