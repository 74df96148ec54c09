//! How swarm sizes fall from the largest to the smallest: the tail of a population.
//!
//! Three laws, each of a scale that is searched so that the mean is right, and each cut off at
//! one peer, as a swarm without peers is none:
//!
//! | tail | the swarm of rank k (1 is the largest) of n has | `exponent` is |
//! |---|---|---|
//! | [`Tail::Zipf`] | scale / k^s peers | s; 1 is Zipf's law |
//! | [`Tail::Pareto`] | scale / k^(1/a) peers | the shape a |
//! | [`Tail::Exponential`] | scale * e^(-e (k-1) / n) peers | e: how often sizes fall to 1/2.718 |
//!
//! Zipf's and Pareto's are one law seen from two sides: where P(size > x) falls with x^-a, the
//! k-th largest of n sizes is near the x of n x^-a = k, which is proportional to k^(-1/a). So a
//! Pareto tail of shape a has the rank sizes of a Zipf tail of exponent 1/a (L. A. Adamic, "Zipf,
//! power-laws, and Pareto: a ranking tutorial", 2000).

use serde::{Deserialize, Serialize};

use super::profile::Swarms;

/// The law of swarm sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// The size is proportional to a power of the rank.
    Zipf,
    /// The share of swarms above a size is proportional to a power of the size.
    Pareto,
    /// The size falls by the same factor from rank to rank.
    Exponential,
}

impl Tail {
    /// As a profile has them.
    pub const WORDS: [&'static str; 3] = ["zipf", "pareto", "exponential"];

    /// The exponents that make sense, both ends included.
    pub const fn exponents(self) -> (f64, f64) {
        match self {
            Self::Zipf => (0.1, 3.0),
            Self::Pareto => (0.34, 10.0),
            Self::Exponential => (1.0, 100_000.0),
        }
    }
}

/// How many swarms there are of each size, largest first.
pub(super) fn sizes(swarms: &Swarms) -> Vec<(u32, u32)> {
    let wanted = f64::from(swarms.count) * swarms.mean;
    let (mut low, mut high) = (1.0, wanted.max(2.0));
    for _ in 0..60 {
        let scale = (low + high) / 2.0;
        let peers: f64 = sizes_for(swarms, scale)
            .iter()
            .map(|&(n, count)| f64::from(n) * f64::from(count))
            .sum();
        if peers < wanted { low = scale } else { high = scale }
    }
    sizes_for(swarms, low)
}

fn sizes_for(swarms: &Swarms, scale: f64) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut rank = 0;
    while rank < swarms.count {
        let size = size(swarms, scale, rank);
        let until = if size <= 1 { swarms.count } else { last(swarms, scale, size).max(rank + 1) };
        found.push((size, until - rank));
        rank = until;
    }
    found
}

/// The size of the swarm that `before` others precede.
fn size(swarms: &Swarms, scale: f64, before: u32) -> u32 {
    let share = match power(swarms) {
        Some(power) => f64::from(before + 1).powf(-power),
        None => (-swarms.exponent * f64::from(before) / f64::from(swarms.count)).exp(),
    };
    (scale * share).max(1.0) as u32
}

/// How many swarms have at least `size` peers.
fn last(swarms: &Swarms, scale: f64, size: u32) -> u32 {
    let ratio = scale / f64::from(size);
    let rank = match power(swarms) {
        Some(power) => ratio.powf(1.0 / power),
        None => ratio.ln() * f64::from(swarms.count) / swarms.exponent + 1.0,
    };
    (rank as u64).min(u64::from(swarms.count)) as u32
}

/// Sizes fall with this power of the rank, if with any.
fn power(swarms: &Swarms) -> Option<f64> {
    match swarms.tail {
        Tail::Zipf => Some(swarms.exponent),
        Tail::Pareto => Some(1.0 / swarms.exponent),
        Tail::Exponential => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn swarms(tail: Tail, exponent: f64, count: u32, mean: f64) -> Swarms {
        Swarms { count, mean, tail, exponent }
    }

    fn peers(sizes: &[(u32, u32)]) -> u64 {
        sizes.iter().map(|&(size, count)| u64::from(size) * u64::from(count)).sum()
    }

    #[test]
    fn sizes_follow_zipf_and_have_the_mean() {
        let sizes = sizes(&swarms(Tail::Zipf, 1.0, 1_000_000, 1.3));
        let count: u64 = sizes.iter().map(|&(_, count)| u64::from(count)).sum();
        let peers = peers(&sizes);
        assert_eq!(count, 1_000_000);
        assert!((peers as f64 / 1_300_000.0 - 1.0).abs() < 0.01, "{peers} peers");
        // Zipf's law: rank times size is the same all along the tail.
        let mut rank = 0.0;
        let scale = f64::from(sizes[0].0);
        for (size, count) in sizes.iter().copied().filter(|&(size, _)| size >= 10) {
            rank += f64::from(count);
            let product = rank * f64::from(size);
            assert!((0.85..=1.01).contains(&(product / scale)), "rank {rank}, size {size}");
        }
        assert!(rank > 1_000.0, "the tail has {rank} swarms of at least 10 peers");
    }

    #[test]
    fn a_flatter_tail_has_a_smaller_head() {
        let largest = |s| sizes(&swarms(Tail::Zipf, s, 100_000, 1.3))[0].0;
        assert!(largest(0.7) * 3 < largest(1.0), "{} {}", largest(0.7), largest(1.0));
    }

    #[test]
    fn an_exponential_tail_falls_by_one_factor_from_rank_to_rank() {
        let sizes = sizes(&swarms(Tail::Exponential, 215.0, 430_000, 4.65));
        assert!((700..900).contains(&sizes[0].0), "largest {}", sizes[0].0);
        let mut rank = 0.0;
        for (size, count) in sizes.iter().copied().filter(|&(size, _)| size >= 20) {
            let meant = f64::from(sizes[0].0) * (-215.0 * rank / 430_000.0f64).exp();
            assert!((f64::from(size) - meant).abs() <= 2.0, "rank {rank}: {size}, not {meant}");
            rank += f64::from(count);
        }
    }

    proptest! {
        #[test]
        fn a_pareto_of_shape_a_is_a_zipf_of_exponent_1_by_a(
            a in 0.4f64..5.0, count in 1u32..50_000, mean in 1.0f64..20.0,
        ) {
            let pareto = sizes(&swarms(Tail::Pareto, a, count, mean));
            prop_assert_eq!(pareto, sizes(&swarms(Tail::Zipf, 1.0 / a, count, mean)));
        }

        #[test]
        fn pareto_sizes_exceed_x_as_often_as_the_shape_says(a in 0.8f64..2.0, mean in 3.0f64..10.0) {
            let count = 200_000;
            let sizes = sizes(&swarms(Tail::Pareto, a, count, mean));
            let above = |x: u32| -> f64 {
                let there = sizes.iter().filter(|&&(size, _)| size >= x);
                there.map(|&(_, count)| f64::from(count)).sum()
            };
            // From 20 to 80 peers, P(size >= x) falls by 4^a.
            prop_assume!(above(80) > 200.0 && above(20) < f64::from(count) / 2.0);
            let slope = (above(20) / above(80)).log(4.0);
            prop_assert!((slope - a).abs() < 0.05, "{} for a shape of {}", slope, a);
        }

        #[test]
        fn every_tail_has_its_mean_and_all_its_swarms(
            law in 0usize..3, part in 0.0f64..1.0, count in 1u32..200_000, mean in 1.0f64..50.0,
        ) {
            let tail = [Tail::Zipf, Tail::Pareto, Tail::Exponential][law];
            let (low, high) = tail.exponents();
            let swarms = swarms(tail, low + part * (high.min(500.0) - low), count, mean);
            let sizes = sizes(&swarms);
            prop_assert!(sizes.is_sorted_by(|a, b| a.0 > b.0), "largest first");
            prop_assert_eq!(sizes.iter().map(|&(_, n)| u64::from(n)).sum::<u64>(), u64::from(count));
            let wanted = f64::from(count) * mean;
            let found = peers(&sizes) as f64;
            // Equal sizes change together: a flat tail cannot be in between.
            let step = sizes.iter().map(|&(_, n)| f64::from(n)).fold(1.0, f64::max);
            prop_assert!((found - wanted).abs() <= (wanted * 0.02).max(step), "{} of {}", found, wanted);
        }
    }
}
