//! `POST /api/v1/reload`, `/api/v1/export`, `/api/v1/snapshot` and `/api/v1/upgrade`.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::LONG_TIMEOUT;
use super::input;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::admin::{ExportReport, ForceQuery, ReloadReport, SnapshotReport, Successor};
use crate::caller::Caller;
use crate::request::Request;
use crate::state::SharedState;

/// Time limit until the successor has all peers. A connection may last 300 s by default.
pub(crate) const UPGRADE_TIMEOUT: Duration = Duration::from_secs(280);

/// The query of a request that can be forced.
const FORCE: &str = "?force=true or false";

/// Reloads the configuration and its lists, as SIGHUP does. Live keys take effect at once. If
/// anything is wrong, nothing changes.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/reload", params(ForceQuery), responses(
    (status = 200, description = "Which keys have changed, and which need an upgrade or a restart",
     body = ReloadReport),
    (status = 400, description = "The query is wrong"),
    (status = 409, description = "An upgrade is under way: the old configuration stays in force"),
    (status = 422, description = "The configuration is wrong, or a list lost more than half of its \
                                  entries: the old ones stay in force"),
    (status = 504, description = "Not read within two minutes; it may still take effect"),
)))]
pub(crate) async fn reload(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ForceQuery>, QueryRejection>,
) -> Result<Json<ReloadReport>, Problem> {
    let ForceQuery { force } = input::query(query, FORCE)?;
    let request = |responder| Request::Reload { force, caller, responder };
    main_thread(state.serving()?, LONG_TIMEOUT, request).await?.map(Json)
}

/// Writes the full scrape to its file, as SIGUSR1 does, and responds when the file is complete. If
/// an export is in progress, the response reports that one.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/export", responses(
    (status = 200, description = "The export is written", body = ExportReport),
    (status = 409, description = "export.file is not set"),
    (status = 500, description = "The export failed: the previous file stays"),
    (status = 504, description = "Not written within two minutes; it may still complete"),
)))]
pub(crate) async fn export(State(state): SharedState) -> Result<Json<ExportReport>, Problem> {
    let view = state.serving()?;
    if view.in_force().settings.export.file.is_none() {
        return Err(Problem::conflict("no file to export to: set export.file and reload"));
    }
    let exported = main_thread(view, LONG_TIMEOUT, Request::Export).await?;
    exported.map(Json).map_err(|cause| {
        Problem::failed(format!("the export failed, and the previous file stays: {cause}"))
    })
}

/// Writes all peers to the snapshot in the state directory, as at each `snapshot.every`, and
/// responds when the file is complete. If a snapshot is being written, the response reports that
/// one.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/snapshot", responses(
    (status = 200, description = "The snapshot is written", body = SnapshotReport),
    (status = 409, description = "Snapshots are off, there is no state directory, or the snapshot \
                                  failed: the previous file stays"),
    (status = 504, description = "Not written within two minutes; it may still complete"),
)))]
pub(crate) async fn snapshot(State(state): SharedState) -> Result<Json<SnapshotReport>, Problem> {
    let written = main_thread(state.serving()?, LONG_TIMEOUT, Request::Snapshot).await?;
    written.map(Json).map_err(|cause| {
        Problem::conflict(format!("the snapshot failed, and the previous file stays: {cause}"))
    })
}

/// Starts the program again with the same command line and hands sockets and peers to it, the
/// successor. The response is sent when the successor has all peers, just before it receives the
/// sockets. A moment later the successor answers at this address and the predecessor exits.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/upgrade", params(ForceQuery), responses(
    (status = 202, description = "The successor serves in a moment", body = Successor),
    (status = 400, description = "The query is wrong"),
    (status = 409, description = "The upgrade failed, or would drop peers or most of a list \
                                  without `force`, or another one is in progress: this process \
                                  continues to serve"),
    (status = 504, description = "Not loaded within five minutes; it may still serve later"),
)))]
pub(crate) async fn upgrade(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ForceQuery>, QueryRejection>,
) -> Result<(StatusCode, Json<Successor>), Problem> {
    let ForceQuery { force } = input::query(query, FORCE)?;
    let request = |responder| Request::Upgrade { force, caller, responder };
    let upgraded = main_thread(state.serving()?, UPGRADE_TIMEOUT, request).await?;
    Ok((StatusCode::ACCEPTED, upgraded.map(Json).map_err(Problem::conflict)?))
}
