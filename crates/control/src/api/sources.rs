//! Request and response of `/sources/top`.

use std::collections::BTreeSet;

use clap::ValueEnum;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::admin::default_limit;

/// Query of `/sources/top`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct SourcesQuery {
    /// How long requests are observed, 1 to 60.
    #[serde(default = "default_seconds")]
    #[cfg_attr(test, param(default = 10, minimum = 1, maximum = 60))]
    pub seconds: u64,
    /// The unit of a source.
    #[serde(default)]
    #[cfg_attr(test, param(inline))]
    pub by: Grouping,
    /// Kind of the requests that are counted.
    #[serde(default)]
    #[cfg_attr(test, param(inline))]
    pub kind: RequestKind,
    /// Maximum number of sources, 1 to 1000.
    #[serde(default = "default_limit")]
    #[cfg_attr(test, param(default = 20, minimum = 1, maximum = 1000))]
    pub limit: usize,
}

fn default_seconds() -> u64 {
    10
}

/// The unit of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub enum Grouping {
    /// An address.
    #[default]
    #[serde(rename = "ip")]
    #[value(name = "ip")]
    Address,
    /// An IPv4 address or an IPv6 /64, which one client may have: a source of the limits.
    #[serde(rename = "64")]
    #[value(name = "64")]
    Source,
    /// An IPv4 /24 or an IPv6 /48: a network of the limits.
    #[serde(rename = "48")]
    #[value(name = "48")]
    Network,
    /// The same as `48`.
    #[serde(rename = "24")]
    #[value(name = "24")]
    NetworkByV4,
}

impl Grouping {
    /// The prefix lengths of IPv4 and of IPv6.
    pub fn lengths(self) -> (u8, u8) {
        match self {
            Self::Address => (32, 128),
            Self::Source => (32, 64),
            Self::Network | Self::NetworkByV4 => (24, 48),
        }
    }
}

/// Kind of the requests that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum RequestKind {
    /// All datagrams.
    #[default]
    All,
    /// Connects that are answered.
    Connect,
    /// Announces that are admitted: with a valid connection id.
    Announce,
    /// Datagrams that are refused for any reason, with or without an error reply.
    Refused,
}

/// The sources that send most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct TopSources {
    /// The unit of a source.
    pub by: Grouping,
    /// Kind of the requests that are counted.
    pub kind: RequestKind,
    /// How long requests were observed.
    pub seconds: f64,
    /// Number of requests of the kind in this time.
    pub requests: u64,
    /// Number of them whose sources are known. Each request had the same chance.
    pub sampled: u64,
    /// The probability that the share of a source is within its error, where not all requests were
    /// sampled.
    pub confidence: f64,
    /// Whether the addresses may be forged: requests that need no connection id are among the kind.
    pub unverified: bool,
    /// Datagrams that the kernel's filter dropped in this time because of an overload. Their
    /// sources are not known.
    pub shed: u64,
    /// No source that is missing below has a larger share than this, from 0 to 1, with the same
    /// probability.
    pub others_at_most: f64,
    /// The UDP ports of the tracker.
    pub ports: BTreeSet<u16>,
    /// The largest share first.
    pub sources: Vec<SourceShare>,
}

/// The share of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SourceShare {
    /// The address block.
    #[cfg_attr(test, schema(value_type = String))]
    pub source: IpNet,
    /// Its share of the requests, from 0 to 1.
    pub share: f64,
    /// The share is wrong by at most this; 0 if all requests were sampled.
    pub error: f64,
    /// Its requests per second.
    pub rate: f64,
    /// Number of its requests in the sample.
    pub sampled: u64,
}
