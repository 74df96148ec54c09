//! JSON types of the admin side, shared by server and client.

pub mod admin;
pub mod blocks;
pub mod history;
pub mod sources;
pub mod stats;

mod health;
mod problem;

pub use admin::Successor;
pub use health::{Health, Ready};
pub use problem::Problem;
