//! Selects the peers of a reply: how many of each kind, and which ones.
//!
//! Peers of one kind lie in rows of wire form. A reply takes a run of neighbours from a random
//! start, around the end and on from the beginning: every peer has the same probability, and taking
//! them is one copy or two. The exception is a run with more peers of one network than its part of
//! the list: it is drawn again, row by row.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::time::TICK;

/// The source of random numbers.
#[derive(Debug)]
pub(crate) struct Sampler {
    pub(crate) rng: SmallRng,
    /// The shortest interval, and the number of intervals from it on.
    intervals: (u32, u32),
    /// The time between two announces after which a peer is settled, half of the shortest interval:
    /// in quarters of a [`TICK`].
    pub(crate) settles: u16,
}

impl Sampler {
    /// For intervals of `interval` seconds, plus or minus `percent`, at most 100.
    pub(crate) fn new(seed: u64, interval: u32, percent: u32) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        let mut sampler = Self { rng, intervals: (0, 1), settles: 1 };
        sampler.set_intervals(interval, percent);
        sampler
    }

    /// From now on, intervals of `interval` seconds, plus or minus `percent`.
    pub(crate) fn set_intervals(&mut self, interval: u32, percent: u32) {
        self.intervals = intervals(interval, percent);
        let quarters = self.intervals.0 / 2 / (TICK / 4);
        self.settles = quarters.clamp(1, u16::MAX.into()) as u16;
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
fn intervals(interval: u32, percent: u32) -> (u32, u32) {
    let spread = u64::from(interval) * u64::from(percent) / 100;
    let spread = u32::try_from(spread).expect("at most the interval");
    (interval - spread, spread.saturating_mul(2).saturating_add(1))
}

/// The random choices of one reply, all from one random number of 64 bits; a list that is drawn
/// again has a number of its own.
///
/// Each draw takes the integer part of a multiple and leaves the fraction to the next. No
/// combination of draws is likelier than another by more than one part in 2^64 over the product of
/// their bounds: the interval, the coin and two starts in blocks of 128 leave more than 2^30, with
/// steps more than 2^24.
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

/// Appends up to `want` of the rows, the first `seeders` of which are seeders, for an announcer
/// whose row is number `own` of the leechers, if it is among them.
#[inline(always)]
pub(crate) fn rows<const N: usize>(
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

/// Draws the last `want` rows of a reply again, if there are more `rows` than that and a network
/// has more than its part of them.
pub(crate) fn spread_crowds<const N: usize>(
    rows: &[[u8; N]],
    seeders: usize,
    own: Option<usize>,
    want: usize,
    mut draw: Draw,
    out: &mut Vec<u8>,
) {
    let others = rows.len() - usize::from(own.is_some());
    let Some(start) = out.len().checked_sub(want * N) else { return };
    if others <= want || Networks::new(want, &draw).hold::<N>(&out[start..]) {
        return;
    }
    out.truncate(start);
    let (from_seeders, from_leechers) = mixture(want, seeders, others - seeders, &mut draw);
    let (seeders, leechers) = rows.split_at(seeders);
    let mut networks = Networks::new(want, &draw);
    networks.spread(turned(seeders, None, &mut draw), from_seeders, out);
    networks.spread(turned(leechers, own, &mut draw), from_leechers, out);
}

/// Steps from row to row, prime numbers: one of them meets each of up to 128 rows once.
const STEPS: [usize; 8] = [131, 137, 139, 149, 151, 157, 163, 167];

/// All rows from a random one on, around the end, in random steps, except row `own`: the rows
/// behind those of a crowd are as likely as others.
fn turned<'a, const N: usize>(
    rows: &'a [[u8; N]],
    own: Option<usize>,
    draw: &mut Draw,
) -> impl Iterator<Item = [u8; N]> + Clone + use<'a, N> {
    let len = rows.len();
    let (start, step) = (draw.below(len.max(1)), STEPS[draw.below(STEPS.len())]);
    let numbers = (0..len).map(move |nth| (start + nth * step) % len);
    numbers.filter(move |number| Some(*number) != own).map(|number| rows[number])
}

/// A list has at most this part of its peers from one network, while others are left: one in so
/// many.
pub(crate) const NETWORK_PART: usize = 8;

/// The part of a network in a list for `want` peers.
pub(crate) fn part(want: usize) -> usize {
    (want / NETWORK_PART).max(1)
}

/// The network of an endpoint in wire form: IPv4 /24, IPv6 /48.
#[inline]
pub(crate) fn network<const N: usize>(row: &[u8; N]) -> u64 {
    match row.first_chunk() {
        Some(bytes) if N > 8 => u64::from_be_bytes(*bytes) >> 16,
        _ => u64::from(u32::from_be_bytes([row[0], row[1], row[2], 0])),
    }
}

/// The peers of a list by their networks (IPv4 /24, IPv6 /48), in cells that some networks share.
///
/// The hash is drawn for each list, so that the networks that share a cell cannot be chosen.
pub(crate) struct Networks {
    cells: [u8; 256],
    factor: u64,
    most: u8,
}

impl Networks {
    /// Of an empty list for `want` peers.
    #[inline]
    pub(crate) fn new(want: usize, draw: &Draw) -> Self {
        let most = part(want).min(255) as u8;
        Self { cells: [0; 256], factor: draw.0 | 1, most }
    }

    /// Counts a peer in wire form, unless its network has its part of the list.
    #[inline]
    fn add<const N: usize>(&mut self, row: &[u8; N]) -> bool {
        let product = u128::from(network(row)) * u128::from(self.factor);
        // Each half alone has networks at equal distances in few cells for some factors.
        let cell = &mut self.cells[usize::from((product >> 56 ^ product >> 64) as u8)];
        let fits = *cell < self.most;
        *cell += u8::from(fits);
        fits
    }

    /// Whether no network has more than its part of a list.
    #[inline]
    pub(crate) fn hold<const N: usize>(&mut self, list: &[u8]) -> bool {
        list.as_chunks::<N>().0.iter().all(|row| self.add(row))
    }

    /// Appends `take` of the rows to a list: in order those whose networks have not their part yet,
    /// then the others.
    #[cold]
    pub(crate) fn spread<const N: usize>(
        &mut self,
        rows: impl Iterator<Item = [u8; N]> + Clone,
        mut take: usize,
        out: &mut Vec<u8>,
    ) {
        // Each row is judged the same both times, and the list keeps the counts of the first.
        let mut again = Self { cells: self.cells, ..*self };
        for (networks, fits) in [(&mut *self, true), (&mut again, false)] {
            for row in rows.clone() {
                if take == 0 {
                    return;
                }
                if networks.add(&row) == fits {
                    out.extend_from_slice(&row);
                    take -= 1;
                }
            }
        }
    }
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
    use rand::RngExt;

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

    /// Of networks with 40, 7 and 3 peers, and 60 or 5 single ones, in lists of 32.
    #[test]
    fn a_list_has_few_peers_of_one_network_while_others_are_left() {
        let mut rng = SmallRng::seed_from_u64(4);
        for (singles, most) in [(60, 4), (5, 24)] {
            let crowds = [(0, 40), (1, 7), (2, 3)].into_iter();
            let crowds = crowds.flat_map(|(network, peers)| (0..peers).map(move |n| [network, n]));
            let peers = crowds.chain((0..singles).map(|n| [100 + n, 0]));
            let list: Vec<[u8; 6]> = peers.map(|[net, n]| [10, 0, net, n, 0, 80]).collect();
            for _ in 0..200 {
                let mut out = Vec::new();
                let own = rng.random_range(0..list.len());
                rows(&list, 0, Some(own), 32, &mut Draw(rng.next_u64()), &mut out);
                spread_crowds(&list, 0, Some(own), 32, Draw(rng.next_u64()), &mut out);
                let mut got: Vec<[u8; 6]> = out.as_chunks().0.to_vec();
                assert!(got.len() == 32 && !got.contains(&list[own]));
                let of_network = |net| got.iter().filter(|row| row[2] == net).count();
                let counts = [0, 1, 2].map(of_network);
                assert!(counts[0] <= most && counts[1] <= 7, "{counts:?} of {singles} singles");
                got.sort_unstable();
                got.dedup();
                assert_eq!(got.len(), 32, "no peer twice");
            }
        }
    }

    /// 64 peers of one network, then 64 of networks of their own, in lists of 50.
    #[test]
    fn peers_behind_a_crowd_are_as_likely_as_others() {
        let mut rng = SmallRng::seed_from_u64(5);
        let list: Vec<[u8; 6]> =
            (0..128).map(|n: u8| [10, 0, n.saturating_sub(63), n, 0, 80]).collect();
        let (draws, mut counts) = (4_000, [0; 128]);
        for _ in 0..draws {
            let mut out = Vec::new();
            rows(&list, 0, None, 50, &mut Draw(rng.next_u64()), &mut out);
            spread_crowds(&list, 0, None, 50, Draw(rng.next_u64()), &mut out);
            out.as_chunks::<6>().0.iter().for_each(|row| counts[usize::from(row[3])] += 1);
        }
        let shares = counts[64..].iter().map(|count| f64::from(*count) / f64::from(draws));
        let shares: Vec<f64> = shares.collect();
        assert!(shares.iter().all(|share| (0.55..0.85).contains(share)), "{shares:?}");
    }

    /// The seeders are 12 peers of network 9 and the 4 of network 0: no leecher is of network 0.
    #[test]
    fn a_list_of_two_kinds_has_one_part_of_a_network() {
        let seeders = (0..24).map(|n| [10, 0, if n < 20 { 9 } else { 0 }, n, 0, 80]);
        let leechers = (0..40).map(|n| [10, 0, n / 20 * n, n, 1, 80]);
        let draw = Draw(0x9E37_79B9_7F4A_7C15);
        let (mut out, mut networks) = (Vec::new(), Networks::new(32, &draw));
        networks.spread::<6>(seeders, 16, &mut out);
        networks.spread::<6>(leechers, 16, &mut out);
        let second = &out.as_chunks::<6>().0[16..];
        assert_eq!(second.len(), 16);
        assert!(second.iter().all(|row| row[2] != 0), "{second:?}");
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
