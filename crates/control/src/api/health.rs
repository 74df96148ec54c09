//! Responses of `/health` and `/ready`.

use serde::{Deserialize, Serialize};

/// Whether all workers make progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok` or `stalled`.
    pub status: String,
    /// The workers that took no turn for five seconds.
    pub stalled: Vec<String>,
}

/// Whether the tracker answers requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Ready {
    /// True while it does.
    pub ready: bool,
    /// `starting`, `serving` or `stopping`.
    pub stage: String,
}
