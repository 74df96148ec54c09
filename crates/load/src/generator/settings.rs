//! The settings of a worker, and its actions.

use std::net::SocketAddr;
use std::time::Duration;

use onrush_net::Return;
use onrush_proto::Family;

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

/// Settings of a worker.
#[derive(Clone, Debug)]
pub struct GeneratorSettings {
    /// The pace of requests; a schedule is that of all workers together.
    pub pace: Pace,
    /// Limit of requests in flight in an open loop, 1 to 2^20.
    pub limit: usize,
    /// Requests per burst, at least 1.
    pub burst: usize,
    /// Whether requests of equal length are adjacent in a burst, for UDP_SEGMENT.
    pub group: bool,
    /// Time after which a request is lost.
    pub timeout: Nanos,
    /// Strictness of the checks.
    pub strictness: Strictness,
    /// Whether a difference within what BEP 15 leaves open counts as wrong.
    pub strict: bool,
    /// Seed of the transaction ids.
    pub seed: u64,
    /// The worker's number.
    pub worker: usize,
    /// The number of workers.
    pub workers: usize,
}

impl Default for GeneratorSettings {
    /// A closed loop of one worker with the defaults of the command line.
    fn default() -> Self {
        Self {
            pace: Pace::InFlight(256),
            limit: 4096,
            burst: 32,
            group: true,
            timeout: 1_000_000_000,
            strictness: Strictness { strangers: false, sample: 8 },
            strict: false,
            seed: 1,
            worker: 0,
            workers: 1,
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
