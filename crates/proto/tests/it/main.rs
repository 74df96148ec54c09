//! Integration tests of the wire formats: properties of arbitrary datagrams and of arbitrary
//! queries over HTTP, datagrams of real clients, messages of WebTorrent, and the text that people
//! read.

mod captured;
mod http;
mod http_client;
mod laws;
mod texts;
mod webtorrent;
mod webtorrent_client;
