//! Reading the configuration again, as SIGHUP does, with an answer.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::serving;
use super::wait::at_length;
use crate::problem::Problem;
use crate::request::{Ask, Reloaded};
use crate::shared::Shared;

/// What a reload has led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Report {
    /// Keys whose values have changed.
    pub changed: Vec<String>,
    /// Keys whose new values need an upgrade or a restart; the old ones stay in force.
    pub restart: Vec<String>,
    /// What the operator should know of it.
    pub notices: Vec<String>,
}

impl From<Reloaded> for Report {
    fn from(reloaded: Reloaded) -> Self {
        let Reloaded { changed, restart, notices } = reloaded;
        Self { changed, restart, notices }
    }
}

/// Reads the configuration and its lists again, as SIGHUP does. What may change changes at once; where anything is
/// wrong, nothing does.
#[utoipa::path(post, path = "/api/v1/reload", tag = "admin", security(("token" = [])), responses(
    (status = 200, description = "What has changed, and what needs an upgrade or a restart", body = Report),
    (status = 401, description = "Not the token", body = Problem),
    (status = 403, description = "The admin API is switched off", body = Problem),
    (status = 422, description = "The configuration is invalid and changes nothing", body = Problem),
    (status = 503, description = "The tracker does not serve, or has too much to do", body = Problem),
    (status = 504, description = "Not read in two minutes; it may still come into force", body = Problem),
))]
pub(crate) async fn reload(State(shared): State<Arc<Shared>>) -> Result<Json<Report>, Problem> {
    let source = serving(&shared)?;
    match at_length(source, Ask::Reload).await? {
        Ok(reloaded) => Ok(Json(reloaded.into())),
        Err(wrong) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the configuration is invalid and changes nothing:\n{wrong}"),
        )),
    }
}
