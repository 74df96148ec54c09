//! The settings of a load, and the actions of a worker.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::Return;
use onrush_proto::Family;
use serde::{Deserialize, Serialize};

use super::flight::Nanos;
use super::pace::Pace;
use crate::check::Strictness;

/// A path from one of the backend's sockets to one address of the tracker.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Socket and destination.
    pub to: Return,
    /// The tracker's address, which replies must come from.
    pub target: SocketAddr,
    /// Its family.
    pub family: Family,
    /// The number of the source address among those of its family.
    pub address: u32,
    /// The number of the connection id of this path: one per target and source address; those of
    /// one target and family are in the order of the addresses.
    pub id: u32,
}

/// The settings of a load, which are those of each worker, as the report has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSettings {
    /// The pace of requests. An open loop's schedule is that of all workers together and starts
    /// with the measured window; a closed loop's number is that of each worker.
    pub pace: Pace,
    /// Limit of requests in flight of a worker in an open loop, 1 to 2^20; without it, what the
    /// rate produces within the timeout.
    #[serde(skip)]
    pub limit: Option<usize>,
    /// Upper bound on requests per burst, at least 1.
    pub burst: usize,
    /// Whether requests of equal length are adjacent in a burst and sent in segments (UDP_SEGMENT).
    pub bursts: bool,
    /// Seconds of load before the measured window.
    pub warmup: f64,
    /// Seconds after which a request is lost.
    pub timeout: f64,
    /// Seed of population, mix and transaction ids.
    pub seed: u64,
    /// Workers.
    pub workers: usize,
    /// Their vCPUs, where they are pinned.
    pub pin: Vec<usize>,
    /// Strictness of the checks.
    pub strictness: Strictness,
    /// Whether a difference within what BEP 15 leaves open counts as wrong.
    pub strict: bool,
}

impl Default for LoadSettings {
    /// A closed loop of one worker with the defaults of the command line.
    fn default() -> Self {
        Self {
            pace: Pace::InFlight(256),
            limit: None,
            burst: 32,
            bursts: true,
            warmup: 2.0,
            timeout: 1.0,
            seed: 1,
            workers: 1,
            pin: Vec::new(),
            strictness: Strictness { strangers: false, sample: 8 },
            strict: false,
        }
    }
}

impl LoadSettings {
    /// Requests of a worker that a closed loop keeps in flight, or an open loop has at most.
    pub fn in_flight(&self) -> usize {
        match &self.pace {
            Pace::InFlight(count) => *count,
            Pace::Open(schedule) => {
                let limit = || schedule.in_flight_limit(self.workers, self.timeout);
                self.limit.unwrap_or_else(limit)
            }
        }
    }
}

/// The measured window: requests and replies within it count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its start, included.
    pub start: Nanos,
    /// Its end, excluded; requests due later are not sent.
    pub end: Nanos,
}

/// The action after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another turn at once: the next request is due too soon to sleep.
    Again,
    /// Wait for replies, at most this long.
    Wait(Duration),
    /// All requests are sent, and answered or expired.
    Done,
}
