//! An answer that is no: JSON with a text that says what would be right.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why there is no other answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The HTTP status.
    #[serde(skip)]
    pub(super) status: u16,
    /// What is wrong, and what would be right.
    pub error: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status: status.as_u16(), error: error.into() }
    }

    /// There is no tracker yet, or none any more.
    pub(super) fn not_serving(stage: &str) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the tracker is {stage}: /ready says when it serves"),
        )
    }

    /// Nobody answered in time.
    pub(super) fn late(who: &str) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "{who} did not answer within admin.timeout: /health says whether all workers take turns"
            ),
        )
    }

    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
