//! Control and observation of a tracker over HTTP, on one thread of its own. It reads the counters
//! that the workers write, and reaches a shard only through [`onrush_tracker::orders`].
//!
//! | module | contents |
//! |---|---|
//! | [`api`] | JSON types, shared by server and client |
//! | [`view`], [`readiness`], [`files`] | the state that the main thread publishes |
//! | [`request`] | requests to the main thread and their responses |
//! | [`server`] | listener, connections, routes, authorization, `/health`, `/metrics`, `/lists` |
//! | [`admin`] | the admin API: reload, export, upgrade, access list, swarms |
//! | [`metrics`] | a snapshot of all state, as JSON and for Prometheus |
//! | [`history`] | rates, peers and swarms of the last hour and month |
//! | [`in_force`] | the values of all keys, and how they differ from the file |
//! | [`page`] | `/`: the status page |
//! | [`client`] | HTTP client for `onrush ctl` and `onrush top` |
//! | [`stall`] | detection of stalled workers |
//! | [`token`], [`caller`] | the token of the admin API, and who needs none |
//! | `state`, `connections` | what the routes share; the open connections |
//! | `list_text` | an access list as text |
//! | `mutex` | locks of shared state |
//! | `source_shares` | shares of sources, estimated from samples |

pub mod admin;
pub mod api;
pub mod caller;
pub mod client;
pub mod files;
pub mod history;
pub mod in_force;
pub mod metrics;
pub mod page;
pub mod readiness;
pub mod request;
pub mod server;
pub mod stall;
pub mod token;
pub mod view;

mod connections;
mod list_text;
mod mutex;
mod source_shares;
mod state;
#[cfg(test)]
mod tests;

pub use server::{AdminError, Server};
pub use token::{TOKEN_KEY, Token, TokenError};
