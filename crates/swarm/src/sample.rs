//! Which peers an announcer gets: how many of each kind, and which of them.
//!
//! Peers of one kind lie in rows of wire form. A reply takes a run of neighbours from a random
//! start, around the end and on from the beginning: every peer has the same chance, and taking
//! them is one copy or two.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

/// How many seeders and leechers go to a leecher that wants `want`, of as many as there are.
///
/// Half of each, as far as there are enough: leechers must find one another however many
/// seeders there are (else nobody takes the load off these), and a lone seeder must be found by
/// every leecher.
#[inline]
pub(crate) fn mixture(
    want: usize,
    seeders: usize,
    leechers: usize,
    rng: &mut SmallRng,
) -> (usize, usize) {
    if seeders + leechers <= want {
        return (seeders, leechers);
    }
    let odd_one = want % 2 == 1 && rng.random();
    let half = want / 2 + usize::from(odd_one);
    let from_seeders = half.min(seeders).max(want.saturating_sub(leechers));
    (from_seeders, want - from_seeders)
}

/// A number below `bound`, which is above 0 and below 2^32.
#[inline]
pub(crate) fn below(bound: usize, rng: &mut SmallRng) -> usize {
    scale(rng.next_u32(), bound)
}

/// Brings random bits below `bound` without division (Lemire, "Fast random integer generation in
/// an interval", 2019; without its rejection, the bias is below `bound` in 2^32).
#[inline]
pub(crate) fn scale(bits: u32, bound: usize) -> usize {
    ((u64::from(bits) * bound as u64) >> 32) as usize
}

/// Appends `take` of the rows to `out`, none of them row number `own`. There must be as many.
#[inline]
pub(crate) fn window(
    rows: &[u8],
    width: usize,
    own: Option<usize>,
    take: usize,
    rng: &mut SmallRng,
    out: &mut Vec<u8>,
) {
    if take == 0 {
        return;
    }
    let all = rows.len() / width;
    let start = match own {
        // Uniform over the others.
        Some(own) => {
            let start = below(all - 1, rng);
            start + usize::from(start >= own)
        }
        None => below(all, rng),
    };
    let mut left = take;
    span(rows, width, start..all, own, &mut left, out);
    span(rows, width, 0..start, own, &mut left, out);
    debug_assert_eq!(left, 0, "there are enough");
}

/// Appends rows of a range in order, but for row number `own`, until `left` is used up.
#[inline]
pub(crate) fn span(
    rows: &[u8],
    width: usize,
    range: std::ops::Range<usize>,
    own: Option<usize>,
    left: &mut usize,
    out: &mut Vec<u8>,
) {
    let mut copy = |from: usize, to: usize| {
        let take = (to - from).min(*left);
        out.extend_from_slice(&rows[from * width..(from + take) * width]);
        *left -= take;
    };
    match own {
        Some(own) if range.contains(&own) => {
            copy(range.start, own);
            copy(own + 1, range.end);
        }
        _ => copy(range.start, range.end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn mixtures_are_exact_and_hold_both_kinds() {
        let mut rng = SmallRng::seed_from_u64(1);
        for want in 0..20 {
            for seeders in 0..20 {
                for leechers in 0..20 {
                    let (s, l) = mixture(want, seeders, leechers, &mut rng);
                    assert_eq!(s + l, want.min(seeders + leechers));
                    assert!(s <= seeders && l <= leechers);
                    if want >= 2 {
                        assert_eq!((s > 0, l > 0), (seeders > 0, leechers > 0));
                    }
                }
            }
        }
    }

    #[test]
    fn one_peer_is_of_either_kind_equally_often() {
        let mut rng = SmallRng::seed_from_u64(2);
        let seeders: usize = (0..10_000).map(|_| mixture(1, 3, 50, &mut rng).0).sum();
        assert!((4_800..5_200).contains(&seeders), "{seeders} of 10000");
    }

    #[test]
    fn windows_hold_distinct_rows_and_never_the_own_one() {
        let mut rng = SmallRng::seed_from_u64(3);
        let rows: Vec<u8> = (0..10u8).flat_map(|n| [n, n]).collect();
        for _ in 0..1_000 {
            for own in [None, Some(0), Some(4), Some(9)] {
                let others = 10 - own.iter().len();
                for take in 0..=others {
                    let mut out = Vec::new();
                    window(&rows, 2, own, take, &mut rng, &mut out);
                    let mut got: Vec<_> = out.chunks(2).map(|row| usize::from(row[0])).collect();
                    assert!(!got.iter().any(|&n| Some(n) == own));
                    got.sort_unstable();
                    got.dedup();
                    assert_eq!(got.len(), take);
                }
            }
        }
    }
}
