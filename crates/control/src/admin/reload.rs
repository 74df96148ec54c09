//! `POST /api/v1/reload`: reloads the configuration, as SIGHUP does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::LONG_TIMEOUT;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::admin::ReloadReport;
use crate::request::{Reloaded, Request};
use crate::state::ServerState;

impl From<Reloaded> for ReloadReport {
    fn from(reloaded: Reloaded) -> Self {
        let Reloaded { changed, restart, notices } = reloaded;
        Self { changed, restart, notices }
    }
}

/// Reloads the configuration and its lists, as SIGHUP does. Live keys take effect at once. If
/// anything is wrong, nothing changes.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/reload", responses(
    (status = 200, description = "Which keys have changed, and which need an upgrade or a restart",
     body = ReloadReport),
    (status = 422, description = "The configuration is wrong: the old one stays in force"),
    (status = 503, description = "The tracker does not serve, or is busy"),
    (status = 504, description = "Not read within two minutes; it may still take effect"),
)))]
pub(crate) async fn reload(
    State(state): State<Arc<ServerState>>,
) -> Result<Json<ReloadReport>, Problem> {
    match main_thread(state.serving()?, LONG_TIMEOUT, Request::Reload).await? {
        Ok(reloaded) => Ok(Json(reloaded.into())),
        Err(errors) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the configuration is wrong, and the old one stays in force:\n{errors}"),
        )),
    }
}
