//! Integration tests of the wire formats: properties of arbitrary datagrams, datagrams of real
//! clients, and the text that people read.

mod captured;
mod laws;
mod texts;
