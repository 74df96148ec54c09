//! `POST /api/v1/list/check`: what other files of the access list would change.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use onrush_proto::InfoHash;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::LONG_TIMEOUT;
use super::input;
use super::wait::gathered;
use crate::api::Problem;
use crate::api::admin::{CheckQuery, ListCheck};
use crate::state::SharedState;
use crate::view::{NamedHashes, View};
use onrush_tracker::access::{AccessList, ListKind};

/// Length of an info hash in the body.
const LENGTH: usize = 20;
/// A query.
const EXAMPLE: &str = "?mode=allow|deny&files=NAME:ENTRIES/NAME:ENTRIES";

/// Changes that a list would make in place of the files of the access list: entries, and swarms
/// that would be removed; and whether a reload would accept it. The body has the info hashes of the
/// new files, of 20 bytes each. Nothing changes. The workers examine every swarm, in small steps
/// between their turns.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/list/check",
    params(CheckQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The effect", body = ListCheck),
        (status = 400, description = "The body or the query is wrong"),
        (status = 409, description = "There is no list"),
        (status = 413, description = "The list is longer than limits.list_entries"),
        (status = 429, description = "Another such request is running"),
        (status = 504, description = "A worker did not answer in time"),
    )
))]
pub(crate) async fn check(
    State(state): SharedState,
    query: Result<Query<CheckQuery>, QueryRejection>,
    body: Body,
) -> Result<Json<ListCheck>, Problem> {
    let CheckQuery { mode, files } = input::query(query, EXAMPLE)?;
    let view = state.serving()?;
    let in_force = view.in_force();
    let kind = match mode.as_deref() {
        None => in_force.lists.access.kind().ok_or_else(|| {
            Problem::conflict("there is no list, as access.mode is \"open\": name a mode (--mode)")
        })?,
        Some(mode) => ListKind::named(mode)
            .ok_or_else(|| Problem::bad_request(format!("no mode {mode:?}: write {EXAMPLE}")))?,
    };
    let _walks = state.walk()?;
    // Not limited by admin.max_body: a list has a limit of its own.
    let limit = in_force.settings.limits.list_entries.saturating_mul(LENGTH);
    let body = to_bytes(body, limit).await.map_err(|_| {
        let error = "the list has more entries than limits.list_entries, or did not arrive";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })?;
    let files = read(&body, files.as_deref().unwrap_or(&format!(":{}", body.len() / LENGTH)))?;
    let parts = view.parts.clone();
    // Millions of entries are sorted and compared.
    let compare = move || {
        let former = &in_force.lists.access;
        let (list, check) = (parts.candidate)(&in_force, kind, files);
        let (mode, entries) = (kind.name().to_owned(), list.len() as u64);
        let (added, removed) = (missing(&list, former), missing(former, &list));
        (Arc::new(list), ListCheck { mode, entries, added, removed, ..check })
    };
    let failed = |_| Problem::unavailable("the tracker is stopping");
    let (list, check) = spawn_blocking(compare).await.map_err(failed)?;
    count(view, list, check).await.map(Json)
}

/// The sum with the swarms of all shards, and with those that a list does not permit.
async fn count(
    view: &View,
    list: Arc<AccessList>,
    mut sum: ListCheck,
) -> Result<ListCheck, Problem> {
    let deadline = Instant::now() + LONG_TIMEOUT;
    let counts = view.parts.orders.gather_walk(ListCheck::default, move |counts, swarm| {
        counts.examined += 1;
        if !list.permits(swarm.info_hash) {
            counts.swarms += 1;
            counts.peers += u64::from(swarm.seeders) + u64::from(swarm.leechers);
        }
    })?;
    for counts in gathered(counts, deadline, "a worker").await? {
        sum.swarms += counts.swarms;
        sum.peers += counts.peers;
        sum.examined += counts.examined;
    }
    Ok(sum)
}

/// The names and info hashes of the `files` of which a body consists.
fn read(body: &[u8], files: &str) -> Result<Vec<NamedHashes>, Problem> {
    let (mut hashes, rest) = body.as_chunks::<LENGTH>();
    let mut file = |text: &str| {
        let (name, entries) = text.rsplit_once(':')?;
        let (own, others) = hashes.split_at_checked(entries.parse().ok()?)?;
        hashes = others;
        Some((name.to_owned(), own.to_vec()))
    };
    let read = files.split('/').map(&mut file).collect::<Option<Vec<_>>>();
    read.filter(|_| hashes.is_empty() && rest.is_empty()).ok_or_else(|| {
        let bytes = body.len();
        Problem::bad_request(format!(
            "the body has {bytes} bytes: send info hashes of {LENGTH} bytes each, and the number \
             of each file's: {EXAMPLE}"
        ))
    })
}

/// The number of entries of a list that another one does not have, or not with their meaning.
fn missing(list: &AccessList, other: &AccessList) -> u64 {
    let other = other.set().filter(|_| list.kind() == other.kind());
    let is_missing =
        |hash: &&[u8; LENGTH]| !other.is_some_and(|other| other.contains(&InfoHash(**hash)));
    list.set().map_or(0, |list| list.iter().filter(is_missing).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_tracker::access::overlay::OverlaySet;
    use onrush_tracker::access::set::InfoHashSet;

    fn deny(hashes: &[u8]) -> AccessList {
        let hashes = hashes.iter().map(|byte| [*byte; LENGTH]).collect();
        AccessList::Deny(OverlaySet::new(InfoHashSet::new(hashes)))
    }

    #[test]
    fn a_body_has_whole_info_hashes_of_each_file() {
        let file = |name: &str, entries: usize| (name.to_owned(), vec![[7; LENGTH]; entries]);
        let both = read(&[7; 60], "a:b.txt:2/c:1").unwrap();
        assert_eq!(both, [file("a:b.txt", 2), file("c", 1)]);
        assert_eq!(read(&[], ":0").unwrap(), [file("", 0)]);
        for (bytes, files) in [(41, ":2"), (40, ":1"), (40, ":3"), (40, "a:1/"), (40, "2")] {
            let error = read(&vec![7; bytes], files).unwrap_err().error;
            assert!(error.contains(&format!("{bytes} bytes")), "{error}");
        }
    }

    #[test]
    fn entries_are_missing_in_one_direction() {
        assert_eq!(missing(&deny(&[1, 2, 3]), &deny(&[2])), 2);
        assert_eq!(missing(&deny(&[2]), &deny(&[1, 2, 3])), 0);
        assert_eq!(missing(&AccessList::Open, &deny(&[1])), 0);
        assert_eq!(missing(&deny(&[1]), &AccessList::Open), 1);
    }
}
