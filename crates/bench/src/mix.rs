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
    /// itself, no client twice in a batch: as on the internet.
    Spread,
    /// The classic mix from 64 addresses in bursts (UDP_SEGMENT), where replies to a client can
    /// leave together.
    Bursts,
    /// The traffic of public trackers, junk and unusable ids included, from 1,000 addresses.
    Real,
    /// aquatic_udp_load_test, which published comparisons used: it measures no latency and counts
    /// errors, but checks nothing else.
    Published,
    /// The classic mix from as many addresses as aquatic_udp_load_test has, each datagram by
    /// itself, for the cost of the load testers.
    Few,
    /// The same in bursts of 64.
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

    /// Its description in the report.
    pub fn about(self) -> &'static str {
        match self {
            Self::Spread => {
                "classic mix (connect, announce, scrape 50/50/1) from 1,000 addresses, each \
                 datagram by itself, every reply checked"
            }
            Self::Bursts => {
                "classic mix from 64 addresses in bursts (UDP_SEGMENT), every reply checked"
            }
            Self::Real => {
                "traffic of public trackers, junk and unusable ids included, from 1,000 addresses, \
                 every reply checked"
            }
            Self::Published => {
                "aquatic_udp_load_test in its default configuration: 4 sockets per worker, errors \
                 counted as wrong, nothing else checked; its population is the same in every \
                 round, its rate the mean of a whole run, warm-up included"
            }
            Self::Few => {
                "classic mix from 4 addresses, each datagram by itself, every reply checked"
            }
            Self::FewBursts => "classic mix from 4 addresses in bursts of 64, every reply checked",
            Self::FewPublished => "aquatic_udp_load_test without its extra statistics",
        }
    }

    /// Whether the report has its latency: not for bursts, where it would be that of a burst.
    pub fn has_latency(self) -> bool {
        matches!(self, Self::Spread | Self::Real)
    }
}
