//! Error responses: JSON with a text that names the error and the remedy.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Problem {
    /// The HTTP status.
    #[serde(skip)]
    status: StatusCode,
    /// The error and its remedy.
    pub error: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    /// 503.
    pub(crate) fn unavailable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    /// 504: a thread did not answer within `admin.timeout`.
    pub(crate) fn timed_out(thread: &str) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!(
                "{thread} did not answer within admin.timeout: /health reports whether all workers \
                 take turns"
            ),
        )
    }

    /// 400.
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// 404.
    pub fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// 409: the state of the tracker does not permit the request.
    pub fn conflict(error: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }

    /// 422: the configuration, or a file that it names, is not put into force.
    pub fn rejected(problems: &str) -> Self {
        let error = format!("the configuration in force stays:\n{problems}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, error)
    }

    /// 500: the tracker tried, and failed.
    pub fn failed(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
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
