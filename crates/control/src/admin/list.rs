//! `/api/v1/list`: the access list and changes to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::{Extension, Json};
use onrush_proto::InfoHash;

use super::input;
use super::wait::main_thread;
use crate::api::Problem;
use crate::api::admin::{
    ChangesQuery, ListChanges, ListEntries, ListEntry, ListPart, ListReport, ListUpdate,
};
use crate::api::stats::ListState;
use crate::caller::Caller;
use crate::list_text::list_text;
use crate::request::Request;
use crate::state::{ServerState, SharedState};
use crate::view::InForce;
use onrush_tracker::access::origins::comment;
use onrush_tracker::access::overlay::ListChange;

/// The mode and the length of the list, and the refusals of its parts.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/list", responses(
    (status = 200, description = "The list in force", body = ListReport),
)))]
pub(crate) async fn state(State(state): SharedState) -> Result<Json<ListReport>, Problem> {
    let view = state.serving()?;
    let InForce { lists, settings, overrides, .. } = view.in_force();
    let part = |(name, refused): (&str, u64)| ListPart { name: name.to_owned(), refused };
    let parts = lists.refused_by_part().map(part).collect();
    let overrides = overrides.map_or(0, |overrides| overrides.entries);
    Ok(Json(ListReport { list: ListState::of(&lists, overrides, &settings), parts }))
}

/// State of one info hash: listed or not, and why.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/list/{info_hash}",
    params(("info_hash" = String, Path,
            description = "40 hexadecimal digits or 32 base32 characters")),
    responses(
        (status = 200, description = "Whether it is listed and served", body = ListEntry),
        (status = 400, description = "Not an info hash"),
    )
))]
pub(crate) async fn entry(
    State(state): SharedState,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<ListEntry>, Problem> {
    let info_hash = input::info_hash_of(path)?;
    let view = state.serving()?;
    let request = |responder| Request::ListChanges { from: info_hash, limit: 1, responder };
    let changes = main_thread(view, state.timeout, request).await?.changes;
    let list = view.in_force().lists.access;
    let set = list.set().filter(|set| set.contains(&info_hash));
    let (listed, served) = (set.is_some(), list.permits(info_hash));
    let comment = set.and_then(|set| set.comment(&info_hash)).map(str::to_owned);
    let refusing = list.refusing_part(&info_hash).filter(|_| !served);
    let refused_by = refusing.map(|(_, part)| part.name.to_string());
    let info_hash = info_hash.to_string();
    let change = changes.into_iter().find(|change| change.info_hash == info_hash);
    Ok(Json(ListEntry { info_hash, listed, served, comment, refused_by, change }))
}

/// The list in force as text: a comment with its meaning, then one info hash per line, with its
/// comment behind a #.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/list/export", operation_id = "export_list",
    responses(
    (status = 200, description = "The list", body = String, content_type = "text/plain"),
)))]
pub(crate) async fn export(State(state): SharedState) -> Result<Response, Problem> {
    Ok(list_text(state.serving()?.in_force().lists.access, true))
}

/// Adds info hashes to the list: all of them, or none where one is invalid. Swarms that are no
/// longer permitted are removed.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/list", request_body = ListEntries, responses(
    (status = 200, description = "The list contains them; until the restart or the next \
                                  upgrade, if `unrecorded` says why they could not be written to \
                                  disk", body = ListUpdate),
    (status = 400, description = "An entry of the body is no info hash"),
    (status = 409, description = "There is no list, or it would be too long"),
)))]
pub(crate) async fn add(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    entries: Result<Json<ListEntries>, JsonRejection>,
) -> Result<Json<ListUpdate>, Problem> {
    change(&state, caller, entries, |hash| ListChange::new(hash, true)).await
}

/// Removes info hashes from the list: all of them, or none where one is invalid.
#[cfg_attr(test, utoipa::path(delete, path = "/api/v1/list", request_body = ListEntries, responses(
    (status = 200, description = "The list does not contain them; until the restart or the next \
                                  upgrade, if `unrecorded` says why", body = ListUpdate),
    (status = 400, description = "An entry of the body is no info hash"),
    (status = 409, description = "There is no list, or the allow list would be empty"),
)))]
pub(crate) async fn remove(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    entries: Result<Json<ListEntries>, JsonRejection>,
) -> Result<Json<ListUpdate>, Problem> {
    change(&state, caller, entries, |hash| ListChange::new(hash, false)).await
}

/// The changes that the files of the list do not have, by info hash.
#[cfg_attr(test, utoipa::path(get, path = "/api/v1/list/changes", operation_id = "list_changes",
    params(ChangesQuery), responses(
    (status = 200, description = "A part of the changes, and their number", body = ListChanges),
    (status = 400, description = "Not an info hash"),
)))]
pub(crate) async fn changes(
    State(state): SharedState,
    query: Result<Query<ChangesQuery>, QueryRejection>,
) -> Result<Json<ListChanges>, Problem> {
    let ChangesQuery { from } = input::query(query, "?from=INFO_HASH")?;
    let from = from.map_or(Ok(InfoHash([0; 20])), |from| input::parse_info_hash(&from))?;
    let request = |responder| Request::ListChanges { from, limit: 10_000, responder };
    main_thread(state.serving()?, state.timeout, request).await.map(Json)
}

/// Drops changes, so that these info hashes are again as the files of the list say: all of them, or
/// none where one is invalid.
#[cfg_attr(test, utoipa::path(delete, path = "/api/v1/list/changes", operation_id = "reset_list",
    request_body = ListEntries, responses(
    (status = 200, description = "There is no change of them", body = ListUpdate),
    (status = 400, description = "An entry of the body is no info hash"),
    (status = 409, description = "There is no list, the allow list would be empty, or a reload or \
                                  an upgrade is in progress"),
)))]
pub(crate) async fn reset(
    State(state): SharedState,
    Extension(caller): Extension<Caller>,
    entries: Result<Json<ListEntries>, JsonRejection>,
) -> Result<Json<ListUpdate>, Problem> {
    let reset = |hash| ListChange { is_reset: true, ..ListChange::new(hash, false) };
    change(&state, caller, entries, reset).await
}

async fn change(
    state: &ServerState,
    caller: Caller,
    entries: Result<Json<ListEntries>, JsonRejection>,
    change: impl Fn(InfoHash) -> ListChange,
) -> Result<Json<ListUpdate>, Problem> {
    let entries = input::body(entries, "{\"info_hashes\": [\"...\"]}")?;
    // A map, so that a repeated info hash counts once.
    let hashes: BTreeMap<InfoHash, Option<Arc<str>>> =
        entries.info_hashes.iter().map(|line| parse_entry(line)).collect::<Result<_, _>>()?;
    let changes = hashes.into_iter().map(|(hash, comment)| ListChange { comment, ..change(hash) });
    let changes = changes.collect();
    let request = |responder| Request::ChangeList { changes, caller, responder };
    main_thread(state.serving()?, state.timeout, request).await?.map(Json)
}

/// An info hash, perhaps with a comment behind a #, as on a line of a list file.
fn parse_entry(line: &str) -> Result<(InfoHash, Option<Arc<str>>), Problem> {
    let (hash, behind) = match line.split_once('#') {
        Some((hash, behind)) => (hash.trim_end(), comment(behind)),
        None => (line, "".into()),
    };
    Ok((input::parse_info_hash(hash)?, Some(behind).filter(|behind| !behind.is_empty())))
}
