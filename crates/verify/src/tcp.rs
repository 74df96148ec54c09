//! What clients of trackers over TCP share: the announce URL, TLS, and whether a tracker takes
//! connections.

pub mod reach;
pub(crate) mod target;
pub mod tls;
pub mod url;

pub use target::TcpSettings;
pub use url::{Scheme, Url};
