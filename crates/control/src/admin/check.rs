//! `POST /api/v1/list/check`: what another file of the access list would change.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use onrush_proto::InfoHash;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::LONG_TIMEOUT;
use super::wait::gathered;
use crate::api::Problem;
use crate::api::admin::ListCheck;
use crate::state::SharedState;
use crate::view::View;
use onrush_tracker::access::AccessList;

/// Length of an info hash in the body.
const LENGTH: usize = 20;

/// Changes that a list would make in place of the file of the access list: entries, and swarms that
/// would be removed. The body has the info hashes of the new file, of 20 bytes each. Nothing
/// changes. The workers examine every swarm, in small steps between their turns.
#[cfg_attr(test, utoipa::path(post, path = "/api/v1/list/check",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The effect", body = ListCheck),
        (status = 400, description = "The length of the body is no multiple of 20"),
        (status = 409, description = "There is no list"),
        (status = 413, description = "The list is longer than limits.list_entries"),
        (status = 429, description = "Another such request is running"),
        (status = 504, description = "A worker did not answer in time"),
    )
))]
pub(crate) async fn check(
    State(state): SharedState,
    body: Body,
) -> Result<Json<ListCheck>, Problem> {
    let view = state.serving()?;
    let in_force = view.in_force();
    let Some(kind) = in_force.lists.access.kind() else {
        return Err(Problem::no_list());
    };
    let _walks = state.walk()?;
    // Not limited by admin.max_body: a list has a limit of its own.
    let limit = in_force.settings.limits.list_entries.saturating_mul(LENGTH);
    let body = to_bytes(body, limit).await.map_err(|_| {
        let error = "the list has more entries than limits.list_entries, or did not arrive";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })?;
    let hashes = read(&body)?;
    let parts = view.parts.clone();
    // Millions of entries are sorted and compared.
    let compare = move || {
        let former = in_force.lists.access;
        let list = Arc::new((parts.candidate)(&in_force.settings, hashes));
        let (added, removed) = (missing(&list, &former), missing(&former, &list));
        (list, added, removed)
    };
    let failed = |_| Problem::unavailable("the tracker is stopping");
    let (list, added, removed) = spawn_blocking(compare).await.map_err(failed)?;
    let counts = count(view, &list).await?;
    let (mode, entries) = (kind.name().to_owned(), list.len() as u64);
    Ok(Json(ListCheck { mode, entries, added, removed, ..counts }))
}

/// Counts the swarms of all shards, and those that a list does not permit.
async fn count(view: &View, list: &Arc<AccessList>) -> Result<ListCheck, Problem> {
    let deadline = Instant::now() + LONG_TIMEOUT;
    let list = list.clone();
    let counts = view.parts.orders.gather_walk(ListCheck::default, move |counts, swarm| {
        counts.examined += 1;
        if !list.permits(swarm.info_hash) {
            counts.swarms += 1;
            counts.peers += u64::from(swarm.seeders) + u64::from(swarm.leechers);
        }
    })?;
    let mut sum = ListCheck::default();
    for counts in gathered(counts, deadline, "a worker").await? {
        sum.swarms += counts.swarms;
        sum.peers += counts.peers;
        sum.examined += counts.examined;
    }
    Ok(sum)
}

/// The info hashes of a body.
fn read(body: &[u8]) -> Result<Vec<[u8; LENGTH]>, Problem> {
    let (hashes, []) = body.as_chunks::<LENGTH>() else {
        return Err(Problem::bad_request(format!(
            "the body has {} bytes: send info hashes of {LENGTH} bytes each",
            body.len()
        )));
    };
    Ok(hashes.to_vec())
}

/// The number of entries of a list that another one does not have.
fn missing(list: &AccessList, other: &AccessList) -> u64 {
    let (Some(list), Some(other)) = (list.set(), other.set()) else { return 0 };
    list.iter().filter(|hash| !other.contains(&InfoHash(**hash))).count() as u64
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
    fn a_body_has_whole_info_hashes() {
        assert_eq!(read(&[7; 40]).unwrap(), [[7; LENGTH]; 2]);
        assert_eq!(read(&[]).unwrap(), [[0; LENGTH]; 0]);
        assert!(read(&[7; 41]).unwrap_err().error.contains("41 bytes"));
    }

    #[test]
    fn entries_are_missing_in_one_direction() {
        assert_eq!(missing(&deny(&[1, 2, 3]), &deny(&[2])), 2);
        assert_eq!(missing(&deny(&[2]), &deny(&[1, 2, 3])), 0);
        assert_eq!(missing(&AccessList::Open, &deny(&[1])), 0);
    }
}
