//! `POST /api/v1/export`: writes the full scrape to its file, as SIGUSR1 does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::LONG_TIMEOUT;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::admin::ExportReport;
use crate::request::{Exported, Request};
use crate::state::ServerState;

impl From<Exported> for ExportReport {
    fn from(exported: Exported) -> Self {
        let Exported { path, swarms, bytes, took } = exported;
        Self { path: path.display().to_string(), swarms, bytes, seconds: took.as_secs_f64() }
    }
}

/// Writes the full scrape to its file, as SIGUSR1 does, and responds when the file is complete. If
/// an export is in progress, the response reports that one.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/export", responses(
    (status = 200, description = "The export is written", body = ExportReport),
    (status = 409, description = "export.file is not set"),
    (status = 500, description = "The export failed: the previous file stays"),
    (status = 503, description = "The tracker does not serve, or is busy"),
    (status = 504, description = "Not written within two minutes; it may still complete"),
)))]
pub(crate) async fn export(
    State(state): State<Arc<ServerState>>,
) -> Result<Json<ExportReport>, Problem> {
    let view = state.serving()?;
    if view.in_force().settings.export.file.is_none() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "no file to export to: set export.file and reload",
        ));
    }
    match main_thread(view, LONG_TIMEOUT, Request::Export).await? {
        Ok(exported) => Ok(Json(exported.into())),
        Err(cause) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the export failed, and the previous file stays: {cause}"),
        )),
    }
}
