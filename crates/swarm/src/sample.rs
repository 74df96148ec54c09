//! Selects the peers of a reply: how many of each kind, and which ones.
//!
//! Peers of one kind lie in rows of wire form. A reply takes a run of neighbours from a random
//! start, around the end and on from the beginning: every peer has the same probability, and taking
//! them is one copy or two.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The source of random numbers.
#[derive(Debug)]
pub(crate) struct Sampler {
    pub(crate) rng: SmallRng,
    /// The shortest interval, and the number of intervals from it on.
    pub(crate) intervals: (u32, u32),
}

impl Sampler {
    /// For intervals of `interval` seconds, plus or minus `percent`, at most 100.
    pub(crate) fn new(seed: u64, interval: u32, percent: u32) -> Self {
        Self { rng: SmallRng::seed_from_u64(seed), intervals: intervals(interval, percent) }
    }

    /// The interval for one announce, and the random number for its peers.
    #[inline]
    pub(crate) fn draw(&mut self) -> (u32, Draw) {
        let (shortest, width) = self.intervals;
        let mut draw = Draw(self.rng.next_u64());
        (shortest + draw.below(width as usize) as u32, draw)
    }
}

/// The shortest of the intervals around this one, plus or minus `percent`, and their number.
pub(crate) fn intervals(interval: u32, percent: u32) -> (u32, u32) {
    let spread = u64::from(interval) * u64::from(percent) / 100;
    let spread = u32::try_from(spread).expect("at most the interval");
    (interval - spread, spread.saturating_mul(2).saturating_add(1))
}

/// The random choices of one announce, all from one random number of 64 bits.
///
/// Each draw takes the integer part of a multiple and leaves the fraction to the next. No
/// combination of draws is likelier than another by more than one part in 2^64 over the product of
/// their bounds: the interval, the coin and two starts in blocks of 128 leave more than 2^30.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// A number below `bound`, which is above 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.0) * bound as u128;
        self.0 = product as u64;
        (product >> 64) as usize
    }
}

/// The numbers of seeders and leechers for a leecher that wants `want` peers.
///
/// Half of each, if there are enough: leechers must find one another however many seeders there are
/// (to take load off the seeders), and every leecher must find a lone seeder.
#[inline]
pub(crate) fn mixture(
    want: usize,
    seeders: usize,
    leechers: usize,
    draw: &mut Draw,
) -> (usize, usize) {
    if seeders + leechers <= want {
        return (seeders, leechers);
    }
    let half = (want + draw.below(2)) / 2;
    let from_seeders = half.min(seeders).max(want.saturating_sub(leechers));
    (from_seeders, want - from_seeders)
}

/// Maps random bits to a number below `bound`, which is above 0, without division (Lemire, "Fast
/// random integer generation in an interval", 2019; without its rejection, the bias is below
/// `bound` in 2^32).
#[inline]
pub(crate) fn scale(bits: u32, bound: usize) -> usize {
    ((u64::from(bits) * bound as u64) >> 32) as usize
}

/// Appends up to `want` of the rows of leechers, for a seeder.
#[inline]
pub(crate) fn leechers<const N: usize>(
    rows: &[[u8; N]],
    want: usize,
    draw: &mut Draw,
    out: &mut Vec<u8>,
) {
    if rows.len() <= want {
        out.extend_from_slice(rows.as_flattened());
    } else {
        window(rows, None, want, draw, out);
    }
}

/// Appends up to `want` of the rows, the first `seeders` of which are seeders, for a leecher, whose
/// own row is number `own` of the leechers, if it is stored.
#[inline]
pub(crate) fn both<const N: usize>(
    rows: &[[u8; N]],
    seeders: usize,
    own: Option<usize>,
    want: usize,
    draw: &mut Draw,
    out: &mut Vec<u8>,
) {
    let others = rows.len() - usize::from(own.is_some());
    if others <= want {
        // All peers: most swarms are no larger than the number wanted.
        let start = out.len();
        out.extend_from_slice(rows.as_flattened());
        if let Some(own) = own {
            take_out::<N>(start + (seeders + own) * N, out);
        }
        return;
    }
    let (from_seeders, from_leechers) = mixture(want, seeders, others - seeders, draw);
    let (seeders, leechers) = rows.split_at(seeders);
    window(seeders, None, from_seeders, draw, out);
    window(leechers, own, from_leechers, draw, out);
}

/// Appends `take` of the rows to `out`, except row `own`. There must be as many.
#[inline(always)]
fn window<const N: usize>(
    rows: &[[u8; N]],
    own: Option<usize>,
    take: usize,
    draw: &mut Draw,
    out: &mut Vec<u8>,
) {
    if take == 0 {
        return;
    }
    let all = rows.len();
    let Some(own) = own else {
        return ring(rows, draw.below(all), take, out);
    };
    // Uniform over the others.
    let start = draw.below(all - 1);
    let start = start + usize::from(start >= own);
    let ahead = if own > start { own - start } else { own + all - start };
    let among = ahead < take;
    let at = out.len() + ahead * N;
    ring(rows, start, take + usize::from(among), out);
    if among {
        // One row more than wanted, and the last one replaces the announcer's own.
        take_out::<N>(at, out);
    }
}

/// Appends `take` rows from `start` on, around the end.
#[inline(always)]
fn ring<const N: usize>(rows: &[[u8; N]], start: usize, take: usize, out: &mut Vec<u8>) {
    debug_assert!(take <= rows.len(), "there are as many");
    let (before, from) = rows.split_at(start);
    if take <= from.len() {
        out.extend_from_slice(from[..take].as_flattened());
    } else {
        out.extend_from_slice(from.as_flattened());
        out.extend_from_slice(before[..take - from.len()].as_flattened());
    }
}

/// Moves the last row to `at`.
#[inline]
fn take_out<const N: usize>(at: usize, out: &mut Vec<u8>) {
    let last = out.len() - N;
    out.copy_within(last.., at);
    out.truncate(last);
}

/// Appends the rows of a range in order, except row `own`, until `left` is used up.
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

    #[test]
    fn mixtures_are_exact_and_have_both_kinds() {
        let mut rng = SmallRng::seed_from_u64(1);
        for want in 0..20 {
            for seeders in 0..20 {
                for leechers in 0..20 {
                    let (s, l) = mixture(want, seeders, leechers, &mut Draw(rng.next_u64()));
                    assert_eq!(s + l, want.min(seeders + leechers));
                    assert!(s <= seeders && l <= leechers);
                    if want >= 2 {
                        assert_eq!((s > 0, l > 0), (seeders > 0, leechers > 0));
                    }
                    if want < seeders + leechers && seeders.min(leechers) >= want.div_ceil(2) {
                        assert!(s.abs_diff(l) <= 1, "half of each");
                    }
                }
            }
        }
    }

    #[test]
    fn one_peer_is_of_either_kind_equally_often() {
        let mut rng = SmallRng::seed_from_u64(2);
        let seeders: usize =
            (0..10_000).map(|_| mixture(1, 3, 50, &mut Draw(rng.next_u64())).0).sum();
        assert!((4_800..5_200).contains(&seeders), "{seeders} of 10000");
    }

    #[test]
    fn windows_have_distinct_rows_without_the_own_one() {
        let mut rng = SmallRng::seed_from_u64(3);
        let rows: Vec<[u8; 2]> = (0..10u8).map(|n| [n, n]).collect();
        for _ in 0..1_000 {
            for own in [None, Some(0), Some(4), Some(9)] {
                let others = 10 - own.iter().len();
                for take in 0..=others {
                    let mut out = Vec::new();
                    window(&rows, own, take, &mut Draw(rng.next_u64()), &mut out);
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
