//! Responses of `/health` and `/ready`.

use serde::{Deserialize, Serialize};

/// Progress of the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok` or `stalled`.
    pub status: String,
    /// The workers that took no turn for five seconds.
    pub stalled: Vec<String>,
    /// `off` where the log is off, errors included; otherwise absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
}

/// Readiness of the tracker to answer requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Ready {
    /// True while it does.
    pub ready: bool,
    /// `starting`, `serving` or `stopping`.
    pub stage: String,
}
