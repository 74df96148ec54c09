//! Load over HTTP and HTTPS: connections that announce and scrape, and check every reply.
//!
//! A worker has a fixed number of *slots*, each with a source address and at most one connection. A
//! slot takes requests while it has fewer of them than `pipeline`; without keep-alive each request
//! has a connection of its own. Latency counts from when a request is due (open loop) or composed
//! (closed loop), so it includes the connection that a request needs.
//!
//! A request is *lost* where its connection fails, ends before the reply, or has no reply in time,
//! and where the tracker asks to try later (BEP 31). A connection that the tracker has closed just
//! as a further request was sent is opened again, once (RFC 9112, section 9.3.1).
//!
//! | module | contents |
//! |---|---|
//! | `request` | requests as bytes |
//! | [`worker`] | a worker |

mod request;
pub mod worker;

use std::sync::Arc;

use onrush_verify::tcp::Url;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::plan::profile::Mix;

/// The settings of a load over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpSettings {
    /// Connections of all workers together, at least one of each worker.
    pub connections: usize,
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// Requests of a connection that wait for replies at a time, at least 1; 1 without keep-alive.
    pub pipeline: usize,
    /// Whether TLS is used.
    pub tls: bool,
    /// Whether sessions of TLS are resumed.
    pub resume: bool,
    /// Share of the peers that ask for a list of dictionaries (`compact=0`), 0 to 1.
    pub lists: f64,
}

impl HttpSettings {
    /// Connections of worker number `worker` of `workers`.
    pub fn connections_of(&self, worker: usize, workers: usize) -> usize {
        self.connections / workers + usize::from(worker < self.connections % workers)
    }

    /// The most requests in flight per worker.
    pub fn in_flight(&self, workers: usize) -> usize {
        self.connections_of(0, workers) * self.pipeline
    }
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// The announce URLs, which differ in their addresses: at least one.
    pub urls: Vec<Url>,
    /// TLS, for `https://`.
    pub tls: Option<Arc<ClientConfig>>,
    /// The settings.
    pub settings: HttpSettings,
}

/// Leaves the kinds of requests that exist over HTTP.
pub fn adapt(mix: &mut Mix) {
    (mix.connect, mix.unusable, mix.junk) = (0.0, 0.0, 0.0);
}
