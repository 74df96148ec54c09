//! The loads that trackers are compared under.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use strum::Display;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mix {
    /// The classic mix (connect, announce, scrape 50/50/1) from 1,000 addresses, each datagram by
    /// itself, no client twice in a batch, as on the internet; every reply is checked.
    Spread,
    /// The classic mix from 64 addresses in bursts (UDP_SEGMENT), where replies to a client can
    /// leave together; every reply is checked.
    Bursts,
    /// The traffic of public trackers, junk and unusable ids included, from 1,000 addresses; every
    /// reply is checked.
    Real,
    /// aquatic_udp_load_test, which published comparisons used, in its default configuration: 4
    /// sockets per worker, errors counted as wrong, nothing else checked, no latency; its
    /// population is the same in every round, its rate the mean of a whole run, warm-up included.
    Published,
    /// The classic mix from 4 addresses, as many as aquatic_udp_load_test has, each datagram by
    /// itself, for the cost of the load testers; every reply is checked.
    Few,
    /// The classic mix from 4 addresses in bursts of 64; every reply is checked.
    FewBursts,
    /// aquatic_udp_load_test without its extra statistics, where it costs least.
    FewPublished,
}

impl Mix {
    /// The arguments of onrush-load; `None` for another load tester.
    pub fn arguments(self) -> Option<&'static str> {
        match self {
            Self::Spread => Some("--profile classic --sources 1000 --burst 1 --no-bursts"),
            Self::Bursts => Some("--profile classic --sources 64"),
            Self::Real => Some("--profile real --sources 1000 --burst 1 --no-bursts"),
            Self::Few => Some("--profile classic --sources 4 --no-bursts"),
            Self::FewBursts => Some("--profile classic --sources 4 --burst 64"),
            Self::Published | Self::FewPublished => None,
        }
    }

    /// Whether aquatic_udp_load_test makes this load.
    pub fn is_published(self) -> bool {
        self.arguments().is_none()
    }

    /// Requests in flight per worker in a closed loop; `None` for the load tester's default. In an
    /// open loop onrush-load computes this limit by itself.
    pub fn in_flight(self) -> Option<u32> {
        matches!(self, Self::Spread | Self::Real | Self::FewBursts).then_some(512)
    }

    /// Its description in the report, as in `--help`.
    pub fn about(self) -> String {
        let value = self.to_possible_value().expect("no mix is hidden");
        value.get_help().map(ToString::to_string).unwrap_or_default()
    }

    /// Whether the report has its latency: not for bursts, where it would be that of a burst.
    pub fn has_latency(self) -> bool {
        matches!(self, Self::Spread | Self::Real)
    }
}
