//! Integration tests of the web worker: a whole tracker on one thread, with connections within the
//! process.

mod connections;
mod limits;
mod pause;
mod proxies;
mod requests;
mod simulation;
mod tls;
mod websocket;
mod webtorrent;
mod webtorrent_exchange;
mod webtorrent_limits;
mod webtorrent_simulation;
mod webtorrent_swarms;
mod world;
