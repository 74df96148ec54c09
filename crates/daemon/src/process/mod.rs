//! The process around the tracker: whose it is, what it holds, what it hears and says.

pub mod activation;
pub mod exit;
pub mod greeting;
pub mod logging;
pub mod service;
pub mod signals;
pub mod user;
