//! Swarm sizes of a population by rank, from the largest to the smallest.
//!
//! Each [`Tail`] is a law with a scale. The scale is found by bisection, so that the mean size is
//! the wanted one. Sizes are at least one peer.

use super::profile::Swarms;
use super::tail::Tail;

impl Swarms {
    /// Pairs of swarm size and number of swarms of this size, largest first.
    pub fn sizes(&self) -> Vec<(u32, u32)> {
        let wanted = f64::from(self.count) * self.mean;
        let (mut low, mut high) = (1.0, wanted.max(2.0));
        for _ in 0..60 {
            let scale = (low + high) / 2.0;
            let sizes = sizes_for(self, scale);
            let peers: f64 = sizes.iter().map(|&(n, count)| f64::from(n) * f64::from(count)).sum();
            if peers < wanted { low = scale } else { high = scale }
        }
        sizes_for(self, low)
    }
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

/// The size of the swarm with `before` larger ones.
fn size(swarms: &Swarms, scale: f64, before: u32) -> u32 {
    let share = match swarms.tail {
        Tail::Zipf => f64::from(before + 1).powf(-swarms.exponent),
        Tail::Exponential => (-swarms.exponent * f64::from(before) / f64::from(swarms.count)).exp(),
    };
    (scale * share).max(1.0) as u32
}

/// How many swarms have at least `size` peers.
fn last(swarms: &Swarms, scale: f64, size: u32) -> u32 {
    let ratio = scale / f64::from(size);
    let rank = match swarms.tail {
        Tail::Zipf => ratio.powf(1.0 / swarms.exponent),
        Tail::Exponential => ratio.ln() * f64::from(swarms.count) / swarms.exponent + 1.0,
    };
    (rank as u64).min(u64::from(swarms.count)) as u32
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
        let sizes = swarms(Tail::Zipf, 1.0, 1_000_000, 1.3).sizes();
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
        let largest = |s| swarms(Tail::Zipf, s, 100_000, 1.3).sizes()[0].0;
        assert!(largest(0.7) * 3 < largest(1.0), "{} {}", largest(0.7), largest(1.0));
    }

    #[test]
    fn exponential_sizes_fall_by_a_constant_factor() {
        let sizes = swarms(Tail::Exponential, 215.0, 430_000, 4.65).sizes();
        assert!((700..900).contains(&sizes[0].0), "largest {}", sizes[0].0);
        let mut rank = 0.0;
        for (size, count) in sizes.iter().copied().filter(|&(size, _)| size >= 20) {
            let meant = f64::from(sizes[0].0) * (-215.0 * rank / 430_000.0f64).exp();
            assert!((f64::from(size) - meant).abs() <= 2.0, "rank {rank}: {size}, not {meant}");
            rank += f64::from(count);
        }
    }

    proptest! {
        /// Sizes of a power law by rank are a Pareto distribution.
        #[test]
        fn sizes_have_the_shape_of_a_pareto_distribution(a in 0.8f64..2.0, mean in 3.0f64..10.0) {
            let count = 200_000;
            let sizes = swarms(Tail::Zipf, 1.0 / a, count, mean).sizes();
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
            law in 0usize..2, part in 0.0f64..1.0, count in 1u32..200_000, mean in 1.0f64..50.0,
        ) {
            let tail = [Tail::Zipf, Tail::Exponential][law];
            let (low, high) = tail.exponents();
            let swarms = swarms(tail, low + part * (high.min(500.0) - low), count, mean);
            let sizes = swarms.sizes();
            prop_assert!(sizes.is_sorted_by(|a, b| a.0 > b.0), "largest first");
            let swarms = sizes.iter().map(|&(_, n)| u64::from(n)).sum::<u64>();
            prop_assert_eq!(swarms, u64::from(count));
            let wanted = f64::from(count) * mean;
            let found = peers(&sizes) as f64;
            // Swarms of equal size change together, so a flat tail misses the mean by up to a step.
            let step = sizes.iter().map(|&(_, n)| f64::from(n)).fold(1.0, f64::max);
            let tolerance = (wanted * 0.02).max(step);
            prop_assert!((found - wanted).abs() <= tolerance, "{} of {}", found, wanted);
        }
    }
}
