//! `/api/v1/blocks`: sources that are blocked while the tracker runs.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::{Extension, Json};

use super::input;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::blocks::{BlockEntry, BlockList, BlockRequest, BlockUpdate, UnblockRequest};
use crate::caller::Caller;
use crate::request::Request;
use crate::state::SharedState;

/// The body of a request for a block or for its removal.
const PREFIX: &str = "{\"prefix\": \"...\"}";

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
)))]
pub(crate) async fn block(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    block: Result<Json<BlockRequest>, JsonRejection>,
) -> Result<Json<BlockUpdate>, Problem> {
    let block = Box::new(input::body(block, PREFIX)?);
    let request = |responder| Request::Block { block, caller, responder };
    main_thread(state.serving()?, state.timeout, request).await?.map(Json)
}

/// Removes a block; returns it.
#[cfg_attr(test, utoipa::path(delete, path = "/api/v1/blocks", operation_id = "unblock",
    request_body = UnblockRequest, responses(
    (status = 200, description = "The block was removed", body = BlockEntry),
    (status = 400, description = "The prefix is not valid"),
    (status = 404, description = "There is no such block"),
    (status = 409, description = "A handoff is in progress"),
    (status = 500, description = "The file in the state directory cannot be written"),
)))]
pub(crate) async fn unblock(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    block: Result<Json<UnblockRequest>, JsonRejection>,
) -> Result<Json<BlockEntry>, Problem> {
    let UnblockRequest { prefix } = input::body(block, PREFIX)?;
    let request = |responder| Request::Unblock { prefix, caller, responder };
    let removed = main_thread(state.serving()?, state.timeout, request).await?;
    removed.map(|removed| Json(removed.block))
}
