//! The routes, and the middleware that applies to all of them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::timeout;

use super::{auth, host, observation, openapi};
use crate::admin::{self, API, Route};
use crate::api::Problem;
use crate::page;
use crate::state::{ServerState, SharedState};
use onrush_config::settings::AdminSettings;

/// The routes without a token. A test compares these and [`admin::routes`] with the OpenAPI file.
pub(super) fn public_routes() -> Vec<Route> {
    vec![
        ("/", get(page::page)),
        ("/favicon.ico", get(page::icon)),
        ("/health", get(observation::health)),
        ("/ready", get(observation::ready)),
        ("/metrics", get(observation::metrics)),
        ("/stats.json", get(observation::stats)),
        ("/history.json", get(observation::history)),
        ("/lists", get(observation::lists)),
        ("/openapi.json", get(openapi::openapi)),
    ]
}

/// The router of all routes.
pub(super) fn router(state: Arc<ServerState>, settings: &AdminSettings) -> Router {
    let admin = add(admin::routes()).layer(from_fn_with_state(state.clone(), auth::authorize));
    let routes = add(public_routes())
        .nest(API, admin)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(settings.max_body));
    with_common(routes, state)
}

/// The router of the connections above `admin.connections`: the checks of a service manager or a
/// container runtime, which may restart the tracker when it gets no answer.
pub(super) fn reserve_router(state: Arc<ServerState>) -> Router {
    let is_asked = |(path, _): &Route| matches!(*path, "/health" | "/ready");
    let routes = add(public_routes().into_iter().filter(is_asked).collect());
    let routes = routes.fallback(too_many).method_not_allowed_fallback(method_not_allowed);
    with_common(routes, state)
}

/// Adds the middleware of all routes.
fn with_common(routes: Router<Arc<ServerState>>, state: Arc<ServerState>) -> Router {
    routes
        .layer(from_fn_with_state(state.clone(), host::require_known_host))
        .layer(from_fn_with_state(state.clone(), common))
        .with_state(state)
}

fn add(routes: Vec<Route>) -> Router<Arc<ServerState>> {
    routes.into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route))
}

async fn not_found() -> Problem {
    Problem::not_found(
        "there is nothing at this path: / is the status page; /openapi.json describes /health, \
         /ready, /metrics, /stats.json, /history.json, /lists and the admin API under /api/v1",
    )
}

async fn too_many(State(state): SharedState) -> Problem {
    state.connections.counters.rejected.add(1);
    Problem::unavailable(
        "too many requests at once, of this source or in all: try again, or raise \
         admin.connections",
    )
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not accept this method: /openapi.json lists the methods of each path",
    )
}

/// Ends of the paths of requests that take seconds with millions of entries or swarms, or that
/// observe for a time.
const LONG_PATHS: [&str; 5] = ["/reload", "/export", "/snapshot", "/list/check", "/sources/top"];

/// Middleware for all routes: time limit, request counter, and headers that forbid caching.
async fn common(State(state): SharedState, request: Request, next: Next) -> Response {
    state.connections.counters.requests.add(1);
    // Handlers that wait for another thread have a shorter limit with a more precise error. This
    // one ends requests whose body does not arrive.
    let limit = match request.uri().path() {
        path if LONG_PATHS.iter().any(|end| path.ends_with(end)) => admin::LONG_TIMEOUT * 2,
        path if path.ends_with("/upgrade") => admin::actions::UPGRADE_TIMEOUT * 2,
        _ => state.timeout * 2,
    };
    let _in_progress = state.in_progress.clone();
    let response = timeout(limit, next.run(request)).await;
    let mut response = response.unwrap_or_else(|_| {
        let error = "the request did not arrive within admin.timeout: send it without pauses";
        Problem::new(StatusCode::REQUEST_TIMEOUT, error).into_response()
    });
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
