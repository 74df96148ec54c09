//! Experiments and micro-benchmarks. Programs in `programs/` measure one part each, or make figures
//! of `docs/benchmarks/`; benches in `benches/` run under criterion. Not part of the product: the
//! crate is no default member of the workspace, and its dependencies serve comparisons.
//!
//! | module | contents |
//! |---|---|
//! | [`population`] | random populations of peers, and shards that hold them |
//! | [`measure`] | processor time and quantiles |
//! | [`allocator`] | the allocator of a program, and its resident memory |

pub mod allocator;
pub mod measure;
pub mod population;
