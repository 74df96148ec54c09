//! Writing the full scrape to its file, as SIGUSR1 does, with an answer.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::serving;
use super::wait::at_length;
use crate::problem::Problem;
use crate::request::Ask;
use crate::request::Exported;
use crate::shared::Shared;

/// A full scrape that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Written {
    /// The file: `export.file` of the configuration.
    pub path: String,
    /// How many swarms are in it.
    pub swarms: u64,
    /// Its length.
    pub bytes: u64,
    /// How long that took.
    pub seconds: f64,
}

impl From<Exported> for Written {
    fn from(exported: Exported) -> Self {
        let Exported { path, swarms, bytes, took } = exported;
        Self { path: path.display().to_string(), swarms, bytes, seconds: took.as_secs_f64() }
    }
}

/// Writes the full scrape to its file, as SIGUSR1 does, and answers when it is there. Where one is being written
/// already, that is the one.
#[utoipa::path(post, path = "/api/v1/export", tag = "admin", security(("token" = [])), responses(
    (status = 200, description = "What was written", body = Written),
    (status = 401, description = "Not the token", body = Problem),
    (status = 403, description = "The admin API is switched off", body = Problem),
    (status = 409, description = "There is no file to write to: export.file is not set", body = Problem),
    (status = 500, description = "It could not be written: the former file stays", body = Problem),
    (status = 503, description = "The tracker does not serve, or has too much to do", body = Problem),
    (status = 504, description = "Not written in two minutes; it may still be", body = Problem),
))]
pub(crate) async fn export(State(shared): State<Arc<Shared>>) -> Result<Json<Written>, Problem> {
    let source = serving(&shared)?;
    if source.overview.in_force().settings.export.file.is_none() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "there is nothing to be exported to: name a file as export.file and reload",
        ));
    }
    match at_length(source, Ask::Export).await? {
        Ok(exported) => Ok(Json(exported.into())),
        Err(why) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("no export, and the former one stays: {why}"),
        )),
    }
}
