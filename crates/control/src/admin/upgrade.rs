//! `POST /api/v1/upgrade`: replaces this process by a new one without a gap.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::wait::main_thread;
use crate::api::{Problem, Successor};
use crate::request::Request;
use crate::state::ServerState;

/// Time limit until the successor has all peers. A connection may last 300 s by default.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(280);

/// Starts the program again with the same command line and hands sockets and peers over to the new
/// process. The response is sent when the new process has all peers, just before it receives the
/// sockets. A moment later the new process answers at this address and the old one exits.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/upgrade", responses(
    (status = 202, description = "The new process takes over", body = Successor),
    (status = 409, description = "The upgrade failed, or another one is in progress: this process \
                                  continues to serve"),
    (status = 503, description = "The tracker does not serve, or is busy"),
    (status = 504, description = "Not loaded within five minutes; it may still take over"),
)))]
pub(crate) async fn upgrade(
    State(state): State<Arc<ServerState>>,
) -> Result<(StatusCode, Json<Successor>), Problem> {
    match main_thread(state.serving()?, UPGRADE_TIMEOUT, Request::Upgrade).await? {
        Ok(successor) => Ok((StatusCode::ACCEPTED, Json(successor))),
        Err(cause) => Err(Problem::new(StatusCode::CONFLICT, cause)),
    }
}
