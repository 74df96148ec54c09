//! Integration tests of the wire formats: properties of arbitrary datagrams and of arbitrary
//! queries over HTTP, datagrams of real clients, and the text that people read.

mod captured;
mod http;
mod laws;
mod texts;
