//! Another process for this one, without a gap.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::serving;
use super::wait::main_thread;
use crate::problem::Problem;
use crate::request::{Ask, Followed};
use crate::shared::Shared;

/// How long a new process may take until it has all peers: as long as a connection may last.
pub(crate) const PATIENCE: Duration = Duration::from_secs(280);

/// The process that takes over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Successor {
    /// Its number; the `pid` of `/stats.json` as soon as it answers there.
    pub process: u32,
    /// Which build it is.
    pub version: String,
}

impl From<Followed> for Successor {
    fn from(Followed { process, version }: Followed) -> Self {
        Self { process, version }
    }
}

/// Starts the program anew, with the same command line, and has it take over sockets and peers. The answer comes when the
/// new process has all peers, just before it gets the sockets: some moments later it answers at this address, and the
/// old one is gone.
#[utoipa::path(post, path = "/api/v1/upgrade", tag = "admin", security(("token" = [])), responses(
    (status = 202, description = "The new process takes over now", body = Successor),
    (status = 401, description = "Not the token", body = Problem),
    (status = 403, description = "The admin API is switched off", body = Problem),
    (status = 409, description = "It has failed, and why, or another one is under way: this process serves on", body = Problem),
    (status = 503, description = "The tracker does not serve, or has too much to do", body = Problem),
    (status = 504, description = "Not loaded in five minutes; it may still take over", body = Problem),
))]
pub(crate) async fn upgrade(
    State(shared): State<Arc<Shared>>,
) -> Result<(StatusCode, Json<Successor>), Problem> {
    let source = serving(&shared)?;
    match main_thread(source, PATIENCE, Ask::Upgrade).await? {
        Ok(followed) => Ok((StatusCode::ACCEPTED, Json(followed.into()))),
        Err(why) => Err(Problem::new(StatusCode::CONFLICT, why)),
    }
}
