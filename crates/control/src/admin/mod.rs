//! The admin API, `/api/v1`. It requires the token of `admin.token_file`.

pub mod actions;
pub mod blocks;
pub mod check;
pub mod config;
pub mod list;
pub mod sources;
pub mod swarms;

mod input;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::routing::{MethodRouter, get, post};

use crate::state::ServerState;

/// Path prefix of the admin API.
pub(crate) const API: &str = "/api/v1";

/// Time limit of a reload or an export, which take seconds with millions of entries or swarms.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(120);

/// A path and its handlers.
pub(crate) type Route = (&'static str, MethodRouter<Arc<ServerState>>);

/// All routes of the admin API, below [`API`].
pub(crate) fn routes() -> Vec<Route> {
    vec![
        ("/reload", post(actions::reload)),
        ("/export", post(actions::export)),
        ("/snapshot", post(actions::snapshot)),
        ("/upgrade", post(actions::upgrade)),
        ("/config", get(config::config)),
        ("/config/diff", get(config::differences)),
        ("/log-level", post(config::log_level)),
        ("/list", get(list::state).post(list::add).delete(list::remove)),
        ("/list/export", get(list::export)),
        ("/list/changes", get(list::changes).delete(list::reset)),
        ("/list/check", post(check::check)),
        ("/list/{info_hash}", get(list::entry)),
        ("/blocks", get(blocks::list).post(blocks::block).delete(blocks::unblock)),
        ("/swarm/{info_hash}", get(swarms::swarm)),
        ("/swarms/top", get(swarms::top)),
        ("/sources/top", get(sources::top)),
    ]
}
