//! Control and observation over HTTP, on a thread of its own. Workers know nothing of it: it reads the counters
//! that each of them writes anyway, and what it wants of a shard it orders as everybody does
//! ([`onrush_tracker::orders`]).
//!
//! | room | what is in it |
//! |---|---|
//! | [`server`] | the socket, the thread, connections that cannot pile up |
//! | `patience` | a stream that fails when nobody reads |
//! | [`routes`] | which path is answered by what; `/health`, `/ready` |
//! | [`reading`] | one look at everything that is shown |
//! | [`stats`], [`prometheus`] | the look as JSON, and for Prometheus |
//! | [`page`] | `/`: all of it for people
//! | [`lists`] | `/lists`: what is denied, for who wants it known |
//! | [`admin`] | the admin API: reload, lists, swarms |
//! | [`token`] | the admin API's token |
//! | [`problem`] | answers that are no |
//! | [`openapi`] | the description of all of it |
//! | [`source`] | where everything about the tracker is read |
//! | [`shared`], [`stage`], [`pulse`], [`process`] | what routes go by |

#![forbid(unsafe_code)]

pub mod admin;
pub mod client;
pub mod files;
pub mod largest;
pub mod lists;
pub mod lookup;
pub mod openapi;
pub mod page;
pub mod problem;
pub mod process;
pub mod prometheus;
pub mod pulse;
pub mod reading;
pub mod request;
pub mod routes;
pub mod server;
pub mod shared;
pub mod source;
pub mod stage;
pub mod stats;
pub mod token;
pub mod version;
pub mod view;

mod patience;

pub use server::{HttpError, Server};
pub use token::{Token, TokenError};
