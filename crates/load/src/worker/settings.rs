//! The settings of a load.

use serde::{Deserialize, Serialize};

use super::Nanos;
use super::pace::Pace;
use crate::check::Strictness;

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
    /// Whether a difference within what the BEPs leave open counts as wrong.
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
