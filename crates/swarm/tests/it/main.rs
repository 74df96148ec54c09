//! Integration tests of a shard: against naive models, rule by rule, and for fairness of sampling.
//! Allocations are counted in a binary of their own, `allocations`, which has its own allocator.

mod change_log;
mod fairness;
mod model;
mod population;
mod rules;
mod sources;
mod walk;
