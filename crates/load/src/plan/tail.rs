//! The laws of swarm sizes that a profile can name. `super::sizes` evaluates them.
//!
//! | tail | the swarm of rank k (1 is the largest) of n has | `exponent` is |
//! |---|---|---|
//! | [`Tail::Zipf`] | scale / k^s peers | s; 1 is Zipf's law |
//! | [`Tail::Exponential`] | scale * e^(-e (k-1) / n) peers | e: how often sizes fall to 1/2.718 |
//!
//! A Pareto distribution is Zipf's law seen from another side: where P(size > x) falls with x^-a,
//! the k-th largest of n sizes is near the x of n x^-a = k, which is proportional to k^(-1/a). So a
//! Pareto distribution of shape a has the rank sizes of a Zipf tail of exponent 1/a (L. A. Adamic,
//! "Zipf, power-laws, and Pareto: a ranking tutorial", 2000).

use serde::{Deserialize, Serialize};

/// The law by which swarm sizes fall with the rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// The size is proportional to a power of the rank.
    #[default]
    Zipf,
    /// The size falls by the same factor from rank to rank.
    Exponential,
}

impl Tail {
    /// The names in a profile, in order of the variants.
    pub const WORDS: [&'static str; 2] = ["zipf", "exponential"];

    /// The accepted range of exponents, both ends included.
    pub const fn exponents(self) -> (f64, f64) {
        match self {
            Self::Zipf => (0.1, 3.0),
            Self::Exponential => (1.0, 100_000.0),
        }
    }
}
