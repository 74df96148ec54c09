//! `POST /api/v1/list/check`: what another file of the access list would change.

use std::sync::{Arc, Weak};

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use crossbeam_channel::{Sender, bounded};
use onrush_proto::InfoHash;
use onrush_swarm::{Shard, Verdict};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::LONG_TIMEOUT;
use super::wait::worker_response;
use crate::api::Problem;
use crate::api::admin::ListCheck;
use crate::request::ListChangeError;
use crate::state::SharedState;
use crate::view::View;
use onrush_tracker::access::AccessList;
use onrush_tracker::clock::Now;
use onrush_tracker::lanes::ShardTask;

/// Swarms per step: a look into the list each.
const STEP: usize = 128;
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
        (status = 503, description = "The tracker does not serve, or a worker accepts no orders"),
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
        return Err(Problem::new(StatusCode::CONFLICT, ListChangeError::NoList.to_string()));
    };
    let Ok(_permit) = state.walk.try_lock() else {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "another request is searching the swarms: try again in a moment",
        ));
    };
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
    let Counts { swarms, peers, looked_at } = count(view, &list).await?;
    let (mode, entries) = (kind.name().to_owned(), list.len() as u64);
    Ok(Json(ListCheck { mode, entries, added, removed, swarms, peers, looked_at }))
}

/// Counts the swarms of all shards that a list does not permit.
async fn count(view: &View, list: &Arc<AccessList>) -> Result<Counts, Problem> {
    let deadline = Instant::now() + LONG_TIMEOUT;
    let orders = &view.parts.orders;
    // The walks end when this is dropped: axum drops the handler of a closed connection.
    let request = Arc::new(());
    let (sender, responses) = bounded(orders.shards());
    let walk = |_| Box::new(Count::new(list, Arc::downgrade(&request), sender.clone())) as _;
    let ordered = orders.run_on_every_shard(walk);
    ordered.map_err(|error| Problem::unavailable(error.to_string()))?;
    drop(sender);
    let mut sum = Counts::default();
    for _ in 0..orders.shards() {
        let counts: Counts = worker_response(&responses, deadline, "a worker").await?;
        sum.swarms += counts.swarms;
        sum.peers += counts.peers;
        sum.looked_at += counts.looked_at;
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

/// The swarms that a list does not permit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    swarms: u64,
    peers: u64,
    looked_at: u64,
}

/// A walk over one shard that counts the swarms that a list does not permit.
struct Count {
    list: Arc<AccessList>,
    request: Weak<()>,
    begun: bool,
    counts: Counts,
    response: Sender<Counts>,
}

impl Count {
    fn new(list: &Arc<AccessList>, request: Weak<()>, response: Sender<Counts>) -> Self {
        let (list, counts) = (list.clone(), Counts::default());
        Self { list, request, begun: false, counts, response }
    }
}

impl ShardTask for Count {
    fn step(&mut self, shard: &mut Shard, now: Now) -> bool {
        if self.request.strong_count() == 0 {
            return false;
        }
        if !self.begun {
            self.begun = true;
            shard.begin_walk();
        }
        let Self { list, counts, .. } = self;
        let more = shard.walk(now.moment, STEP, |swarm| {
            counts.looked_at += 1;
            if !list.permits(swarm.info_hash) {
                counts.swarms += 1;
                counts.peers += u64::from(swarm.seeders) + u64::from(swarm.leechers);
            }
            Verdict::Keep
        });
        if !more {
            let _ = self.response.try_send(self.counts);
        }
        more
    }
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
