//! Load over WebSocket: members of WebTorrent swarms that announce with offers, answer those that
//! they receive, and check every message.
//!
//! A worker has a fixed number of *slots*, each a connection that is a member of several swarms. In
//! place of addresses the population has the numbers of connections: a peer belongs to one of them
//! for the whole run, and a connection has at most one peer of a swarm. So an offer says by its id
//! alone which connections may get it.
//!
//! A slot has one request in flight; offers and answers need none. Session descriptions are
//! functions of the offer's id, so that a receiver checks them byte for byte without memory of what
//! was sent. The state of each offer (whether, and to whom it was delivered) is on a board that
//! all workers share.
//!
//! An announce or a scrape is *lost* where its connection fails, or has no reply in time. Offers
//! and answers are no requests: a tracker may drop them. The report has their numbers, and those
//! that came within the timeout.
//!
//! | module | contents |
//! |---|---|
//! | `answers` | answers to which a reply may come |
//! | `board` | offers under way, of all workers |
//! | `client` | a connection with its WebSocket |
//! | `messages` | what a worker does with messages |
//! | `sdp` | session descriptions from a seed |
//! | `slots` | the slots of a worker |
//! | [`worker`] | a worker |

mod answers;
mod board;
mod client;
mod messages;
mod sdp;
mod slots;
pub mod worker;

use std::str::FromStr;
use std::sync::Arc;

use onrush_verify::tcp::Url;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use crate::plan::Profile;
use crate::plan::population::Addresses;

pub use worker::all;

/// The settings of a load over WebSocket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WsSettings {
    /// Connections of all workers together, at least one of each worker.
    pub connections: usize,
    /// Whether each connection announces once and is held.
    pub is_idle: bool,
    /// Offers of an announce.
    pub offers: u32,
    /// Sizes of session descriptions.
    pub sdp: Sizes,
    /// Share of the offers that are answered, 0 to 1.
    pub answers: f64,
    /// Share of the announces after whose reply the connection ends, 0 to 1.
    pub disconnects: f64,
    /// Whether TLS is used.
    pub tls: bool,
}

/// Sizes of session descriptions in bytes, as they are in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The smallest one.
    pub min: usize,
    /// The largest one.
    pub max: usize,
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok();
        let sizes = text.split_once('-').and_then(|(min, max)| Some((number(min)?, number(max)?)));
        let (min, max) = sizes.ok_or("expected MIN-MAX in bytes, like 500-2000")?;
        match sdp::MIN <= min && min <= max && max <= 16_000 {
            true => Ok(Self { min, max }),
            false => Err(format!("both have to be between {} and 16000, and in order", sdp::MIN)),
        }
    }
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URLs, which differ in their addresses: at least one.
    pub urls: Vec<Url>,
    /// TLS, for `wss://`.
    pub tls: Option<Arc<ClientConfig>>,
    /// The settings.
    pub settings: WsSettings,
    /// The source addresses of the connections.
    pub sources: Addresses,
}

/// Leaves the requests that exist over WebSocket. Peers that vanish do so with their connection.
pub fn adapt(profile: &mut Profile) {
    let mix = &mut profile.mix;
    (mix.connect, mix.unusable, mix.junk) = (0.0, 0.0, 0.0);
    profile.odd.port_zero = 0.0;
}
