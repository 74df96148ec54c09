//! `/health` and `/ready`.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use crate::api::{Health, Ready};
use crate::readiness::Readiness;
use crate::state::SharedState;

/// Liveness: every worker took a turn within the last five seconds.
#[cfg_attr(test, utoipa::path(get, path = "/health", responses(
    (status = 200, description = "Every worker takes turns", body = Health),
    (status = 503, description = "The named workers take no turns", body = Health),
)))]
pub(super) async fn health(State(state): SharedState) -> Response {
    respond(state.stalled(Instant::now()))
}

fn respond(stuck: Vec<String>) -> Response {
    let (code, status) = match stuck.is_empty() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
    };
    (code, Json(Health { status: status.to_owned(), stuck })).into_response()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_workers_make_the_tracker_unhealthy() {
        assert_eq!(respond(Vec::new()).status(), StatusCode::OK);
        let stalled = respond(vec!["worker-1".to_owned()]);
        assert_eq!(stalled.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
