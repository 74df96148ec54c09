//! What clients send, or the response that says what is wrong with it and how to write it.

use std::ops::RangeInclusive;

use axum::Json;
use axum::extract::Query;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;

use crate::api::Problem;

/// The body of a request, which looks like `example`.
pub(super) fn body<T>(sent: Result<Json<T>, JsonRejection>, example: &str) -> Result<T, Problem> {
    sent.map(|Json(body)| body).map_err(|error| match error.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(status, "the body is longer than admin.max_body: send less at once")
        }
        _ => {
            let error = error.body_text();
            Problem::bad_request(format!("{error}: send {example} as application/json"))
        }
    })
}

/// The query of a request, which looks like `example`.
pub(super) fn query<T>(
    sent: Result<Query<T>, QueryRejection>,
    example: &str,
) -> Result<T, Problem> {
    let invalid = |error: QueryRejection| format!("{}: write {example}", error.body_text());
    sent.map(|Query(query)| query).map_err(|error| Problem::bad_request(invalid(error)))
}

/// Refuses a number that is out of range.
pub(super) fn check_range(
    name: &str,
    number: u64,
    range: RangeInclusive<u64>,
) -> Result<(), Problem> {
    match range.contains(&number) {
        true => Ok(()),
        false => Err(Problem::bad_request(format!(
            "{name} is {number}: write a number from {} to {}",
            range.start(),
            range.end()
        ))),
    }
}
