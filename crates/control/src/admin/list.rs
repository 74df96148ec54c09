//! The list of info hashes: what it is, and changes of it that last without reading its file again.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use onrush_proto::InfoHash;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::serving;
use super::swarm::info_hash;
use super::wait::main_thread;
use crate::problem::Problem;
use crate::reading::mode_of;
use crate::request::{Ask, NotChanged};
use crate::shared::Shared;
use crate::stats::ListState;
use onrush_tracker::access::listing::Change;

/// Info hashes that are to be put on the list, or taken off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Entries {
    /// Each with 40 hexadecimal digits or 32 base32 characters.
    pub info_hashes: Vec<String>,
}

/// What a change has led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// `allow` or `deny`.
    pub mode: String,
    /// How many info hashes are listed now.
    pub entries: u64,
    /// How many of those that were named were not as they are now.
    pub changed: u64,
    /// Whether it outlives the process: there is a state directory.
    pub lasting: bool,
}

/// Whether one info hash is listed, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Entry {
    /// In hexadecimal.
    pub info_hash: String,
    /// Whether it is on the list.
    pub listed: bool,
    /// Whether it is served.
    pub served: bool,
}

/// Of which kind the list is, and how long.
#[utoipa::path(get, path = "/api/v1/list", tag = "admin", security(("token" = [])), responses(
    (status = 200, description = "The list in force", body = ListState),
    (status = 401, description = "Not the token", body = Problem),
    (status = 403, description = "The admin API is switched off", body = Problem),
    (status = 503, description = "The tracker does not serve", body = Problem),
))]
pub(crate) async fn state(State(shared): State<Arc<Shared>>) -> Result<Json<ListState>, Problem> {
    let in_force = serving(&shared)?.overview.in_force();
    Ok(Json(ListState {
        mode: mode_of(&in_force.lists.access).to_owned(),
        entries: in_force.lists.access.len() as u64,
        blocked_sources: in_force.lists.blocked.len() as u64,
        published: in_force.settings.admin.publish_lists,
    }))
}

/// Whether one info hash is listed.
#[utoipa::path(get, path = "/api/v1/list/{info_hash}", tag = "admin", security(("token" = [])),
    params(("info_hash" = String, Path, description = "40 hexadecimal digits or 32 base32 characters")),
    responses(
        (status = 200, description = "Whether it is listed, and served", body = Entry),
        (status = 400, description = "This is no info hash", body = Problem),
        (status = 401, description = "Not the token", body = Problem),
        (status = 403, description = "The admin API is switched off", body = Problem),
        (status = 503, description = "The tracker does not serve", body = Problem),
    )
)]
pub(crate) async fn entry(
    State(shared): State<Arc<Shared>>,
    Path(text): Path<String>,
) -> Result<Json<Entry>, Problem> {
    let info_hash = info_hash(&text)?;
    let list = serving(&shared)?.overview.in_force().lists.access;
    let listed = list.listing().is_some_and(|listing| listing.contains(&info_hash));
    let served = list.permits(info_hash);
    Ok(Json(Entry { info_hash: info_hash.to_string(), listed, served }))
}

/// Puts info hashes on the list, at once: all of them, or where one is wrong, none. Swarms that are no longer
/// permitted are forgotten.
#[utoipa::path(post, path = "/api/v1/list", tag = "admin", security(("token" = [])), request_body = Entries,
    responses(
        (status = 200, description = "They are listed", body = Changed),
        (status = 400, description = "Something in the body is no info hash", body = Problem),
        (status = 401, description = "Not the token", body = Problem),
        (status = 403, description = "The admin API is switched off", body = Problem),
        (status = 409, description = "There is no list, or it would be too long", body = Problem),
        (status = 413, description = "The body is longer than admin.max_body", body = Problem),
        (status = 503, description = "The tracker does not serve, or has too much to do", body = Problem),
        (status = 504, description = "The main thread did not answer in time", body = Problem),
    )
)]
pub(crate) async fn add(
    State(shared): State<Arc<Shared>>,
    entries: Result<Json<Entries>, JsonRejection>,
) -> Result<Json<Changed>, Problem> {
    change(&shared, entries, true).await
}

/// Takes info hashes off the list, at once: all of them, or where one is wrong, none.
#[utoipa::path(delete, path = "/api/v1/list", tag = "admin", security(("token" = [])), request_body = Entries,
    responses(
        (status = 200, description = "They are not listed", body = Changed),
        (status = 400, description = "Something in the body is no info hash", body = Problem),
        (status = 401, description = "Not the token", body = Problem),
        (status = 403, description = "The admin API is switched off", body = Problem),
        (status = 409, description = "There is no list, or nothing would be left of an allow list", body = Problem),
        (status = 413, description = "The body is longer than admin.max_body", body = Problem),
        (status = 503, description = "The tracker does not serve, or has too much to do", body = Problem),
        (status = 504, description = "The main thread did not answer in time", body = Problem),
    )
)]
pub(crate) async fn remove(
    State(shared): State<Arc<Shared>>,
    entries: Result<Json<Entries>, JsonRejection>,
) -> Result<Json<Changed>, Problem> {
    change(&shared, entries, false).await
}

async fn change(
    shared: &Shared,
    entries: Result<Json<Entries>, JsonRejection>,
    listed: bool,
) -> Result<Json<Changed>, Problem> {
    let Json(entries) = entries.map_err(|error| {
        let how = "send {\"info_hashes\": [\"...\"]} as application/json";
        let text = match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                "the body is longer than admin.max_body: send fewer info hashes at once".to_owned()
            }
            _ => format!("{}: {how}", error.body_text()),
        };
        let status = match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Problem::new(status, text)
    })?;
    // Each once, or it would count as often as it stands there.
    let hashes: BTreeSet<InfoHash> =
        entries.info_hashes.iter().map(|text| info_hash(text)).collect::<Result<_, _>>()?;
    let changes = hashes.into_iter().map(|info_hash| Change { info_hash, listed }).collect();
    let source = serving(shared)?;
    let told =
        main_thread(source, shared.patience, |answer| Ask::ChangeList(changes, answer)).await?;
    let changed = told.map_err(|why| {
        let status = match why {
            NotChanged::Journal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::CONFLICT,
        };
        Problem::new(status, why.to_string())
    })?;
    let mode = mode_of(&source.overview.in_force().lists.access).to_owned();
    let (entries, lasting) = (changed.listed as u64, changed.lasting);
    Ok(Json(Changed { mode, entries, changed: changed.changed as u64, lasting }))
}
