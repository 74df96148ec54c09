//! Where the connections of a load come from and go to.

use onrush_proto::Family;
use onrush_verify::tcp::Url;

use crate::plan::population::Addresses;

/// The source address and the URL of a connection.
pub(crate) struct Route {
    /// The number of the connection among those of all workers.
    pub(crate) number: usize,
    pub(crate) family: Family,
    /// The number of the source address among those of its family.
    pub(crate) address: u32,
    /// Connections of its family.
    pub(crate) of_family: u32,
    /// The number of the URL.
    pub(crate) url: usize,
}

/// The routes of all connections: of each family, all source addresses and all URLs in turn.
pub(crate) struct Routes<'a> {
    sources: &'a Addresses,
    /// The numbers of the URLs of each family.
    urls: [Vec<usize>; 2],
    /// Share of connections over IPv6.
    v6: f64,
}

impl<'a> Routes<'a> {
    /// From these sources to these URLs. `v6` is the share of connections over IPv6, where there
    /// are URLs of both families.
    pub(crate) fn new(urls: &[Url], sources: &'a Addresses, v6: f64) -> Self {
        let of_family = |family: Family| {
            let urls = urls.iter().enumerate();
            let urls = urls.filter(move |(_, url)| Family::of(url.address.ip()) == family);
            urls.map(|(number, _)| number).collect::<Vec<_>>()
        };
        let urls = [of_family(Family::V4), of_family(Family::V6)];
        let v6 = match (urls[0].is_empty(), urls[1].is_empty()) {
            (_, true) => 0.0,
            (true, false) => 1.0,
            _ => v6,
        };
        Self { sources, urls, v6 }
    }

    /// The routes of worker number `worker`, of `all` connections.
    pub(crate) fn of_worker(
        &self,
        worker: usize,
        workers: usize,
        all: usize,
    ) -> impl Iterator<Item = Route> {
        let before = |number: usize| (number as f64 * self.v6).round() as usize;
        (worker..all).step_by(workers).map(move |number| {
            let is_v6 = before(number + 1) > before(number);
            let (family, nth, of_family) = match is_v6 {
                true => (Family::V6, before(number), before(all)),
                false => (Family::V4, number - before(number), all - before(all)),
            };
            let (sources, urls) = (self.sources.count(family), &self.urls[family as usize]);
            Route {
                number,
                family,
                address: (nth % sources as usize) as u32,
                of_family: of_family as u32,
                url: urls[nth % urls.len()],
            }
        })
    }
}
