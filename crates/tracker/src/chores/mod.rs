//! Work over whole shards, done in steps between turns (see [`crate::orders::Chore`]).

pub mod dump;
pub mod forget;
pub mod purge;
pub mod tally;
