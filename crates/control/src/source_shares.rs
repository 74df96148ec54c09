//! Shares of sources, estimated from a sample of each worker.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::api::sources::{Grouping, SourceShare, TopSources};
use onrush_tracker::source_sample::SampledSources;

/// The probability that a share is within its error.
const CONFIDENCE: f64 = 0.999;
/// How many standard deviations that is (normal distribution, both sides).
const DEVIATIONS: f64 = 3.291;

/// Sums over the workers for one source.
#[derive(Clone, Copy, Default)]
struct Sums {
    share: f64,
    variance: f64,
    sampled: u64,
}

/// The `limit` largest sources of the samples of all workers, which were collected in `seconds`.
///
/// Each worker counts for its share `w` of all requests. Of a worker's sample of `n` requests out
/// of `N`, a source has the part `p`. Its share is the sum of `w p`, whose variance is the sum of
/// `w² p (1 - p) / n`, less the part of the requests that are known (`n / N`). Its error is
/// [`DEVIATIONS`] `d` times the square root of that, and `d² w / n` more, which makes it no smaller
/// than the interval of Wilson (1927), also for a source without a request in the sample.
///
/// The fields about the request and the tracker have their defaults.
pub(crate) fn estimate(
    by: Grouping,
    limit: usize,
    seconds: f64,
    samples: &[SampledSources],
) -> TopSources {
    let requests: u64 = samples.iter().map(|sample| sample.requests).sum();
    let mut sums: HashMap<IpNet, Sums> = HashMap::new();
    let mut least: f64 = 0.0;
    for sample in samples.iter().filter(|sample| sample.requests > 0) {
        let all = sample.requests as f64;
        let (size, weight) = (sample.sources.len() as f64, all / requests as f64);
        let unknown = (all - size) / (all - 1.0).max(1.0);
        if unknown > 0.0 {
            least = least.max(DEVIATIONS * DEVIATIONS * weight / size);
        }
        for (source, count) in counts(by, &sample.sources) {
            let part = count as f64 / size;
            let sum = sums.entry(source).or_default();
            sum.share += weight * part;
            sum.variance += weight * weight * part * (1.0 - part) / size * unknown;
            sum.sampled += count;
        }
    }
    let error = |sums: &Sums| DEVIATIONS * sums.variance.sqrt() + least;
    let mut found: Vec<_> = sums.into_iter().collect();
    found.sort_unstable_by(order);
    let others = found.get(limit..).unwrap_or_default();
    let others_at_most = others.iter().map(|(_, sums)| sums.share + error(sums));
    TopSources {
        seconds,
        requests,
        sampled: samples.iter().map(|sample| sample.sources.len() as u64).sum(),
        others_at_most: others_at_most.fold(least, f64::max).min(1.0),
        sources: found
            .iter()
            .take(limit)
            .map(|(source, sums)| SourceShare {
                source: *source,
                share: sums.share,
                error: error(sums),
                rate: sums.share * requests as f64 / seconds,
                sampled: sums.sampled,
            })
            .collect(),
        confidence: CONFIDENCE,
        ..TopSources::default()
    }
}

/// The largest share first; of equal ones that with the lower address.
fn order(a: &(IpNet, Sums), b: &(IpNet, Sums)) -> Ordering {
    b.1.share.total_cmp(&a.1.share).then_with(|| a.0.cmp(&b.0))
}

/// Number of requests by source.
fn counts(by: Grouping, sources: &[Ipv6Addr]) -> HashMap<IpNet, u64> {
    let mut counts = HashMap::new();
    for ip in sources {
        *counts.entry(block(by, *ip)).or_default() += 1;
    }
    counts
}

/// The block of an address, which is mapped if it is IPv4.
fn block(by: Grouping, ip: Ipv6Addr) -> IpNet {
    let (v4, v6) = by.lengths();
    let net = match ip.to_ipv4_mapped() {
        Some(ip) => Ipv4Net::new(ip, v4).map(IpNet::V4),
        None => Ipv6Net::new(ip, v6).map(IpNet::V6),
    };
    net.expect("the lengths are within those of the families").trunc()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn v4(text: &str) -> Ipv6Addr {
        text.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped()
    }

    fn names(shares: &TopSources) -> Vec<String> {
        shares.sources.iter().map(|source| source.source.to_string()).collect()
    }

    #[test]
    fn addresses_are_grouped_by_the_prefix_of_their_family() {
        let sources = vec![
            v4("192.0.2.1"),
            v4("192.0.2.1"),
            v4("192.0.2.2"),
            "2001:db8:1:1::1".parse().unwrap(),
            "2001:db8:1:1::2".parse().unwrap(),
            "2001:db8:1:2::1".parse().unwrap(),
            "2001:db8:1:2::1".parse().unwrap(),
            "2001:db8:1:2::1".parse().unwrap(),
        ];
        let samples = [SampledSources { requests: 8, sources }];
        for (by, expected) in [
            (Grouping::Address, &["2001:db8:1:2::1/128", "192.0.2.1/32", "192.0.2.2/32"][..]),
            (Grouping::Source, &["2001:db8:1:2::/64", "192.0.2.1/32", "2001:db8:1:1::/64"]),
            (Grouping::Network, &["2001:db8:1::/48", "192.0.2.0/24"]),
            (Grouping::NetworkByV4, &["2001:db8:1::/48", "192.0.2.0/24"]),
        ] {
            let shares = estimate(by, 3, 2.0, &samples);
            assert_eq!(names(&shares), expected, "{by:?}");
        }
        let first = &estimate(Grouping::Network, 3, 2.0, &samples).sources[0];
        assert_eq!((first.share, first.error, first.rate, first.sampled), (0.625, 0.0, 2.5, 5));
    }

    /// A worker with a tenth of the requests and as large a sample counts for a tenth.
    #[test]
    fn workers_count_by_their_requests() {
        let busy = SampledSources { requests: 9_000, sources: vec![v4("192.0.2.1"); 100] };
        let idle = SampledSources { requests: 1_000, sources: vec![v4("192.0.2.2"); 100] };
        let none = SampledSources { requests: 0, sources: Vec::new() };
        let shares = estimate(Grouping::Address, 1, 1.0, &[idle, none, busy]);
        assert_eq!((shares.requests, shares.sampled), (10_000, 200));
        assert_eq!(names(&shares), ["192.0.2.1/32"]);
        assert!((shares.sources[0].share - 0.9).abs() < 1e-9);
        // A source may be missing in the sample.
        assert!(shares.sources[0].error > 0.09 && shares.sources[0].error < 0.11);
        assert!(shares.others_at_most > 0.1 && shares.others_at_most < 0.21);
    }

    #[test]
    fn nothing_was_received() {
        let shares = estimate(Grouping::Address, 20, 1.0, &[]);
        assert_eq!((shares.requests, shares.others_at_most), (0, 0.0));
        assert!(shares.sources.is_empty());
    }

    /// The error is as the normal distribution has it for a sample of 65,536, and falls to 0 with
    /// the part that is unknown.
    #[test]
    fn errors_shrink_with_the_sample() {
        let error = |size: usize, requests: u64| {
            let mut sources = vec![v4("192.0.2.1"); size / 2];
            sources.resize(size, v4("192.0.2.2"));
            let sample = [SampledSources { requests, sources }];
            estimate(Grouping::Address, 1, 1.0, &sample).sources[0].error
        };
        let million = error(65_536, 100_000_000);
        assert!((0.0064..0.0068).contains(&million), "{million}");
        assert!(error(6_553, 100_000_000) > 3.0 * million);
        assert!(error(65_536, 70_000) < million / 2.0);
        assert_eq!(error(65_536, 65_536), 0.0);
    }
}
