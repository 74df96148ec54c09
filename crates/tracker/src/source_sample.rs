//! A sample of the sources of requests, in memory of fixed size: who sends most.
//!
//! A worker has a sample only while somebody asks for one. It keeps `size` sources, so that after
//! any number of requests each of them had the same chance to be among these (reservoir sampling,
//! algorithm L of Li, 1994). Up to `size` requests it has all of them. Later it draws how many
//! requests to skip until the next one that it keeps, which costs a comparison per request.

use std::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crossbeam_channel::Sender;
use onrush_net::Received;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::metrics::{Incoming, WorkerMetrics};

/// The requests whose sources are sampled. Each kind is what a counter counts, so that an outcome
/// is seen by its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampled {
    /// All datagrams.
    All,
    /// Connects that are answered.
    Connects,
    /// Announces that are admitted.
    Announces,
    /// Datagrams that are refused for any [reason](crate::refusal).
    Refused,
}

impl Sampled {
    /// How many of them a worker has counted.
    #[inline]
    fn counted(self, metrics: &WorkerMetrics) -> u64 {
        let of = |incoming: &Incoming| match self {
            Self::All => incoming.datagrams.get(),
            Self::Connects => incoming.connects.get(),
            Self::Announces => incoming.announces.get(),
            Self::Refused => incoming.refusals().map(|(_, count)| count).sum(),
        };
        of(&metrics.incoming.v4) + of(&metrics.incoming.v6)
    }
}

/// A worker's sample.
#[derive(Debug)]
pub struct SampledSources {
    /// Number of requests of the kind.
    pub requests: u64,
    /// The sources of these, or of as many as the sample holds, each request with the same chance.
    /// IPv4 addresses are mapped (RFC 4291, section 2.5.5.2).
    pub sources: Vec<Ipv6Addr>,
}

/// A sample that a worker collects.
pub struct SourceSample {
    kind: Sampled,
    size: usize,
    found: SampledSources,
    /// The source of the datagram that is being checked, and the counter of the kind before it.
    checking: Option<IpAddr>,
    counted: u64,
    /// How many requests there are before the next that is kept.
    next: u64,
    /// The largest of `size` random numbers, of which each request has one: the state of algorithm
    /// L.
    largest: f64,
    rng: SmallRng,
    response: Sender<SampledSources>,
}

impl SourceSample {
    /// An empty sample of at most `size` sources, which must not be 0. The random numbers follow
    /// from `seed`. [`finish`](Self::finish) sends what was found to `response`.
    pub fn new(kind: Sampled, size: usize, seed: u64, response: Sender<SampledSources>) -> Self {
        Self {
            kind,
            size,
            // Allocated here, so that the worker does not allocate.
            found: SampledSources { requests: 0, sources: Vec::with_capacity(size) },
            checking: None,
            counted: 0,
            next: 0,
            largest: 1.0,
            rng: SmallRng::seed_from_u64(seed),
            response,
        }
    }

    /// Whether all datagrams are sampled, whatever becomes of them. Then call
    /// [`observe_all`](Self::observe_all) for each batch, otherwise [`observe`](Self::observe) for
    /// each datagram.
    pub fn is_of_all(&self) -> bool {
        self.kind == Sampled::All
    }

    /// Samples the sources of a batch of datagrams.
    pub fn observe_all(&mut self, received: &Received<'_>) {
        self.add(received.len(), |index| received.source(index).ip());
    }

    /// Before the check of each datagram, with its source, and after the last one of a batch,
    /// without: samples the source of the datagram that has just been checked, if its kind was
    /// counted.
    pub fn observe(&mut self, next: Option<&SocketAddr>, metrics: &WorkerMetrics) {
        let counted = self.kind.counted(metrics);
        let checked = mem::replace(&mut self.checking, next.map(SocketAddr::ip));
        if let Some(source) = checked
            && counted != self.counted
        {
            self.add(1, |_| source);
        }
        self.counted = counted;
    }

    /// Sends what was found to the requester, who may be gone.
    pub fn finish(self) {
        let _ = self.response.try_send(self.found);
    }

    /// Counts requests, and keeps those that are due; `source` returns the source of each by its
    /// index.
    fn add(&mut self, requests: usize, source: impl Fn(usize) -> IpAddr) {
        let before = self.found.requests;
        self.found.requests += requests as u64;
        while self.next < self.found.requests {
            let source = mapped(source((self.next - before) as usize));
            if self.found.sources.len() < self.size {
                self.found.sources.push(source);
            } else {
                let place = self.rng.random_range(0..self.size);
                self.found.sources[place] = source;
            }
            let skipped = if self.found.sources.len() < self.size { 0 } else { self.draw() };
            // The sum saturates as the numbers drawn have no bound.
            self.next = self.next.saturating_add(skipped).saturating_add(1);
        }
    }

    /// Draws how many requests are skipped until the next that is kept.
    fn draw(&mut self) -> u64 {
        // Above 0, at most 1.
        let [first, second] = [(); 2].map(|()| 1.0 - self.rng.random::<f64>());
        self.largest *= (first.ln() / self.size as f64).exp();
        // The conversion saturates.
        (second.ln() / (-self.largest).ln_1p()).floor() as u64
    }
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::refusal::{Refusal, UdpRefusal};

    const SIZE: usize = 1_000;

    fn source(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 6881))
    }

    /// A sample of `requests` connects, of which number `n` comes from the source `source_of(n)`.
    fn sample(requests: u32, seed: u64, source_of: impl Fn(u32) -> u32) -> SampledSources {
        let (sender, response) = bounded(1);
        let mut sample = SourceSample::new(Sampled::Connects, SIZE, seed, sender);
        let mut first = 0;
        for batch in [1, 64, 7].into_iter().cycle() {
            if first == requests {
                break;
            }
            let len = batch.min(requests - first);
            sample.add(len as usize, |index| source(source_of(first + index as u32)).ip());
            first += len;
        }
        sample.finish();
        response.try_recv().unwrap()
    }

    #[test]
    fn all_requests_are_kept_while_they_fit() {
        for requests in [0, 1, 999, 1_000] {
            let found = sample(requests, 1, |number| number);
            assert_eq!(found.requests, u64::from(requests));
            let expected: Vec<_> = (0..requests).map(|n| mapped(source(n).ip())).collect();
            assert_eq!(found.sources, expected);
        }
    }

    /// The sample has a place for a tenth of the requests, so each tenth of them gets a tenth of
    /// the places, wherever it is.
    #[test]
    fn each_request_has_the_same_chance() {
        const RUNS: u64 = 50;
        let mut places = [0u64; 10];
        for seed in 0..RUNS {
            let found = sample(10_000, seed, |number| number / 1_000);
            assert_eq!((found.requests, found.sources.len()), (10_000, SIZE));
            for ip in &found.sources {
                places[usize::from(ip.octets()[15])] += 1;
            }
        }
        // The standard deviation is 64.
        let expected = RUNS * SIZE as u64 / 10;
        assert!(places.iter().all(|count| count.abs_diff(expected) < 300), "{places:?}");
    }

    #[test]
    fn a_long_run_replaces_the_first_sources() {
        let found = sample(300_000, 7, |number| u32::from(number >= 3_000));
        let first = found.sources.iter().filter(|ip| ip.octets()[15] == 0).count();
        // Ten are expected.
        assert!((1..40).contains(&first), "{first}");
    }

    #[test]
    fn only_the_kind_is_sampled() {
        type Counts = fn(&Incoming);
        let counts: [Counts; 4] = [
            |incoming| incoming.connects.add(1),
            |incoming| incoming.announces.add(1),
            |incoming| incoming.refused[Refusal::Busy as usize].add(1),
            |incoming| incoming.refused_by_udp[UdpRefusal::ConnectionId as usize].add(1),
        ];
        for (kind, expected) in [
            (Sampled::All, 4),
            (Sampled::Connects, 1),
            (Sampled::Announces, 1),
            (Sampled::Refused, 2),
        ] {
            let metrics = WorkerMetrics::default();
            // Counted before the sample begins.
            counts.iter().for_each(|count| count(&metrics.incoming.v4));
            let (sender, response) = bounded(1);
            let mut sample = SourceSample::new(kind, SIZE, 1, sender);
            for (count, family) in
                counts.iter().zip([&metrics.incoming.v4, &metrics.incoming.v6].repeat(2))
            {
                sample.observe(Some(&source(1)), &metrics);
                family.datagrams.add(1);
                count(family);
            }
            sample.observe(None, &metrics);
            sample.finish();
            assert_eq!(response.try_recv().unwrap().requests, expected, "{kind:?}");
        }
    }
}
