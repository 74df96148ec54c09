//! The routes: which path is answered by what, and what holds for all of them.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{OpenApi, ToSchema};

use super::openapi::Document;
use super::problem::Problem;
use super::prometheus::{self, Format};
use super::shared::Shared;
use super::stage::Stage;
use super::stats::Stats;
use super::{admin, lists, page};
use onrush_config::settings::AdminSettings;

/// Where the admin API begins.
pub(super) const API: &str = "/api/v1";

/// A path, and what answers there. All routes are in two tables of these: the test that holds the document to them
/// knows no others.
pub(super) type Route = (&'static str, MethodRouter<Arc<Shared>>);

/// What is there for everybody.
pub(super) fn open() -> Vec<Route> {
    vec![
        ("/", get(page::page)),
        ("/health", get(health)),
        ("/ready", get(ready)),
        ("/metrics", get(metrics)),
        ("/stats.json", get(stats)),
        ("/lists", get(lists::lists)),
        ("/openapi.json", get(openapi)),
    ]
}

/// All routes.
pub(super) fn router(shared: Arc<Shared>, settings: &AdminSettings) -> Router {
    of(open())
        .nest(API, of(admin::routes()).layer(from_fn_with_state(shared.clone(), admin::authorized)))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(settings.max_body))
        .layer(from_fn_with_state(shared.clone(), in_time))
        .with_state(shared)
}

fn of(routes: Vec<Route>) -> Router<Arc<Shared>> {
    routes.into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route))
}

/// Whether the process is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `stuck`.
    pub status: String,
    /// Workers that took no turn for five seconds.
    pub stuck: Vec<String>,
}

/// Whether the tracker serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// Whether it does.
    pub ready: bool,
    /// `starting`, `serving` or `stopping`.
    pub stage: String,
}

/// Alive: every worker took a turn in the last five seconds.
#[utoipa::path(get, path = "/health", tag = "observation", responses(
    (status = 200, description = "Every worker takes turns", body = Health),
    (status = 503, description = "Some do not: their names", body = Health),
))]
pub(super) async fn health(State(shared): State<Arc<Shared>>) -> Response {
    health_of(shared.stuck(Instant::now()))
}

fn health_of(stuck: Vec<String>) -> Response {
    let (code, status) = match stuck.is_empty() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stuck"),
    };
    (code, Json(Health { status: status.to_owned(), stuck })).into_response()
}

/// Ready: all sockets are bound, and what outlived the last process is loaded.
#[utoipa::path(get, path = "/ready", tag = "observation", responses(
    (status = 200, description = "It serves", body = Ready),
    (status = 503, description = "It does not yet, or not any more", body = Ready),
))]
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let stage = shared.stage.get();
    let ready = stage == Stage::Serving;
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Ready { ready, stage: stage.name().to_owned() })).into_response()
}

/// Everything that is counted, for Prometheus: OpenMetrics where `Accept` names it, else the text format 0.0.4.
#[utoipa::path(get, path = "/metrics", tag = "observation", responses(
    (status = 200, description = "Metrics", body = String, content_type = "text/plain"),
    (status = 503, description = "It does not serve yet", body = Problem),
))]
pub(super) async fn metrics(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let reading = shared.reading().ok_or_else(|| Problem::not_serving("starting"))?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let format = Format::accepted(accept);
    let kind = [(header::CONTENT_TYPE, format.content_type())];
    Ok((kind, prometheus::write(reading, format)).into_response())
}

/// Everything that is counted, as JSON. Rates are up to the reader: counts only rise, and `time` is that of the
/// reading.
#[utoipa::path(get, path = "/stats.json", tag = "observation", responses(
    (status = 200, description = "A reading of everything", body = Stats),
    (status = 503, description = "It does not serve yet", body = Problem),
))]
pub(super) async fn stats(State(shared): State<Arc<Shared>>) -> Result<Json<Stats>, Problem> {
    let reading = shared.reading().ok_or_else(|| Problem::not_serving("starting"))?;
    Ok(Json(Stats::of(&reading)))
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "observation", responses(
    (status = 200, description = "OpenAPI 3.1"),
))]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

async fn nothing_here() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this path: / is for people; /openapi.json describes /health, /ready, /metrics, /stats.json, /lists \
         and the admin API under /api/v1",
    )
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not take this method: /openapi.json says which it takes",
    )
}

/// Gives up on what takes too long, counts, and keeps answers out of caches.
async fn in_time(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    shared.request();
    // Routes that wait for others give up by themselves, with a better word.
    let longest = match request.uri().path() {
        path if path.ends_with("/reload") || path.ends_with("/export") => admin::AT_LENGTH * 2,
        path if path.ends_with("/upgrade") => admin::upgrade::PATIENCE * 2,
        _ => shared.patience * 2,
    };
    let _under_way = shared.under_way();
    let answered = timeout(longest, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|_| {
        let why = "the request was not sent within admin.timeout: send it at once";
        Problem::new(StatusCode::REQUEST_TIMEOUT, why).into_response()
    });
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuck_workers_make_it_unhealthy() {
        assert_eq!(health_of(Vec::new()).status(), StatusCode::OK);
        let stuck = health_of(vec!["worker-1".to_owned()]);
        assert_eq!(stuck.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
