//! `/api/v1/blocks`: sources that are blocked while the tracker runs.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::wait::main_thread;
use crate::api::Problem;
use crate::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate, UnblockRequest};
use crate::caller::Caller;
use crate::request::{BlockError, Request};
use crate::state::SharedState;

/// All blocks, with the requests that they have refused.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/blocks", operation_id = "blocks", responses(
    (status = 200, description = "The blocks", body = BlockList),
    (status = 504, description = "The main thread did not answer in time"),
)))]
pub(crate) async fn list(State(state): SharedState) -> Result<Json<BlockList>, Problem> {
    main_thread(state.serving()?, state.timeout, Request::Blocks).await.map(Json)
}

/// Refuses all requests of an address or prefix, at once and across restarts. If the prefix is
/// blocked already, duration and reason are replaced.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/blocks", operation_id = "block",
    request_body = BlockRequest, responses(
    (status = 200, description = "The sources are blocked", body = BlockUpdate),
    (status = 400, description = "The prefix, duration or reason is not valid, or the prefix is \
                                  too short without force"),
    (status = 409, description = "There are too many blocks, or a handoff is in progress"),
    (status = 500, description = "The file in the state directory cannot be written"),
    (status = 504, description = "The main thread did not answer in time"),
)))]
pub(crate) async fn block(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    block: Result<Json<BlockRequest>, JsonRejection>,
) -> Result<Json<BlockUpdate>, Problem> {
    let Json(block) = block.map_err(|error| invalid(&error))?;
    let block = Box::new(block);
    let request = |responder| Request::Block { block, caller, responder };
    let blocked = main_thread(state.serving()?, state.timeout, request).await?;
    blocked.map(Json).map_err(problem)
}

/// Removes a block; returns it.
#[cfg_attr(test, utoipa::path(delete, path = "/api/v1/blocks", operation_id = "unblock",
    request_body = UnblockRequest, responses(
    (status = 200, description = "The block was removed", body = BlockEntry),
    (status = 400, description = "The prefix is not valid"),
    (status = 404, description = "There is no such block"),
    (status = 409, description = "A handoff is in progress"),
    (status = 500, description = "The file in the state directory cannot be written"),
    (status = 504, description = "The main thread did not answer in time"),
)))]
pub(crate) async fn unblock(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    block: Result<Json<UnblockRequest>, JsonRejection>,
) -> Result<Json<BlockEntry>, Problem> {
    let Json(UnblockRequest { prefix }) = block.map_err(|error| invalid(&error))?;
    let request = |responder| Request::Unblock { prefix, caller, responder };
    let removed = main_thread(state.serving()?, state.timeout, request).await?;
    removed.map(Json).map_err(problem)
}

fn invalid(error: &JsonRejection) -> Problem {
    let status = error.status();
    let text = format!("{}: send {{\"prefix\": \"...\"}} as application/json", error.body_text());
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(status, text),
        _ => Problem::bad_request(text),
    }
}

fn problem(error: BlockError) -> Problem {
    let status = match error {
        BlockError::Invalid(_) => StatusCode::BAD_REQUEST,
        BlockError::NotBlocked { .. } => StatusCode::NOT_FOUND,
        BlockError::Full(_) | BlockError::Upgrading => StatusCode::CONFLICT,
        BlockError::File { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, error.to_string())
}
