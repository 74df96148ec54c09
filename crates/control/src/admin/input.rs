//! Bodies, queries and paths of requests. The response to an invalid one names the error and an
//! example.

use std::ops::RangeInclusive;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use onrush_proto::InfoHash;
use onrush_proto::id::InvalidInfoHash;

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

/// The info hash in the path of a request.
pub(super) fn info_hash_of(path: Result<Path<String>, PathRejection>) -> Result<InfoHash, Problem> {
    // The path is not UTF-8.
    let Path(text) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
    parse_info_hash(&text)
}

/// Parses an info hash in hexadecimal or base32.
pub(super) fn parse_info_hash(text: &str) -> Result<InfoHash, Problem> {
    text.trim().parse().map_err(|error: InvalidInfoHash| {
        Problem::bad_request(format!("{text:?} is no info hash: {error}"))
    })
}
