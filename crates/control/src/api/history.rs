//! Response of `/history.json`: rates, peers and swarms over time. The daemon keeps the same in a
//! file of the state directory, so that they survive a restart.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the format. A build reads only its own.
pub const VERSION: u32 = 1;

/// Rates, peers and swarms of the last hour by seconds, and of the last month by hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct History {
    /// The version of the format: 1.
    pub version: u32,
    /// Up to 3,600 seconds.
    pub hour: HistorySpan,
    /// Up to 744 hours; the running one is not among them.
    pub month: HistorySpan,
}

/// Values in equal steps of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct HistorySpan {
    /// The end of the last step: seconds since 1970, by the clock of this moment. The steps count
    /// back from it, so that they stay in order when the clock is set.
    pub until: u64,
    /// Seconds per step.
    pub step: u32,
    /// The values by name, oldest first. All lists have the same length; null stands for steps in
    /// which the tracker did not run. `replies`, `announces`, `connects`, `scrapes`, `refused` and
    /// the causes of `totals.lost` in `/stats.json` are per second, `peers_ipv4`, `peers_ipv6` and
    /// `swarms` are stored. Requests refused as `busy` are not in `refused`. `replies` and
    /// `refused` include HTTP. Values of an hour are means.
    pub values: BTreeMap<String, Vec<Option<f32>>>,
}
