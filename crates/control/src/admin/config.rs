//! `/api/v1/config`, `/api/v1/config/diff` and `/api/v1/log-level`: the configuration in force, how
//! its file differs from it, and the level of the log until the next reload.

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::input;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::admin::{ConfigDifferences, ConfigReport, LogLevel};
use crate::caller::Caller;
use crate::in_force::in_force;
use crate::request::Request;
use crate::state::SharedState;
use crate::view::InForce;
use onrush_config::keys::{LEVELS, LOG_LEVEL, level_word};

/// The values of all keys that are in force: of the file, of flags, defaults, and derived ones.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/config", responses(
    (status = 200, description = "All keys", body = ConfigReport),
)))]
pub(crate) async fn config(State(state): SharedState) -> Result<Json<ConfigReport>, Problem> {
    let InForce { settings, log_level_by, .. } = state.serving()?.in_force();
    let mut keys = in_force(&settings);
    let level = keys.iter_mut().find(|key| key.key == LOG_LEVEL);
    level.into_iter().for_each(|key| key.changed_by = log_level_by.map(|by| by.to_string()));
    Ok(Json(ConfigReport { keys }))
}

/// Reads the file again, with the flags of the start, and compares it with what is in force.
/// Changes nothing.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/config/diff", responses(
    (status = 200, description = "The keys that differ", body = ConfigDifferences),
    (status = 422, description = "The configuration is wrong"),
    (status = 504, description = "The file was not read in time"),
)))]
pub(crate) async fn differences(
    State(state): SharedState,
) -> Result<Json<ConfigDifferences>, Problem> {
    let view = state.serving()?;
    let (parts, InForce { settings, overrides, .. }) = (view.parts.clone(), view.in_force());
    // A thread of its own: a file system that hangs must not stop this one.
    let compared = spawn_blocking(move || (parts.compare)(&settings));
    let compared = timeout(state.timeout, compared).await;
    let compared = compared.map_err(|_| Problem::timed_out("the file system"))?;
    let failed = |_| Problem::unavailable("the tracker is stopping");
    let differences = compared
        .map_err(failed)?
        .map_err(|problems| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problems.to_string()))?;
    Ok(Json(ConfigDifferences { differences, overrides }))
}

/// Changes the lowest level that is logged. A reload returns to that of the configuration.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/log-level", request_body = LogLevel,
    responses(
        (status = 200, description = "The former level", body = LogLevel),
        (status = 400, description = "There is no such level"),
    )
))]
pub(crate) async fn log_level(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    level: Result<Json<LogLevel>, JsonRejection>,
) -> Result<Json<LogLevel>, Problem> {
    let LogLevel { level } = input::body(level, "{\"level\": \"info\"}")?;
    let level = level.parse().map_err(|_| {
        Problem::bad_request(format!("{level:?} is no level: write one of {}", LEVELS.join(", ")))
    })?;
    let request = |responder| Request::LogLevel { level, caller, responder };
    let former = main_thread(state.serving()?, state.timeout, request).await?;
    Ok(Json(LogLevel { level: level_word(former).to_owned() }))
}
