//! `/openapi.json`: the OpenAPI description of all routes. The tests below generate it from the
//! handlers, so that the program needs no generator.

use axum::http::header;
use axum::response::IntoResponse;

/// This description.
#[cfg_attr(test, utoipa::path(get, path = "/openapi.json", responses(
    (status = 200, description = "OpenAPI 3.1"),
)))]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

#[cfg(test)]
pub(crate) mod tests;
