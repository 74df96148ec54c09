//! The slots of a worker.

use onrush_proto::Family;

use super::Target;
use super::worker::Slot;
use crate::plan::Plan;

/// The slots of worker number `worker`. Those of all workers together have the share of IPv6 of the
/// profile and, in each family, all source addresses in turn.
pub(super) fn of(plan: &Plan, target: &Target, worker: usize, workers: usize) -> Vec<Slot> {
    let of_family = |family: Family| {
        let urls = target.urls.iter().enumerate();
        let urls = urls.filter(move |(_, url)| Family::of(url.address.ip()) == family);
        urls.map(|(number, _)| number).collect::<Vec<_>>()
    };
    let urls = [of_family(Family::V4), of_family(Family::V6)];
    let v6 = match (urls[0].is_empty(), urls[1].is_empty()) {
        (_, true) => 0.0,
        (true, false) => 1.0,
        _ => plan.profile.v6,
    };
    let before = |number: usize| (number as f64 * v6).round() as usize;
    let all = target.settings.connections;
    let peers = plan.population.peers(Family::V4) as usize;
    let slot = |number: usize| {
        let is_v6 = before(number + 1) > before(number);
        let (family, nth) = match is_v6 {
            true => (Family::V6, before(number)),
            false => (Family::V4, number - before(number)),
        };
        let addresses = target.sources.count(family) as usize;
        let urls = &urls[family as usize];
        let (address, url) = ((nth % addresses) as u32, urls[nth % urls.len()]);
        // Those with its number, and every further one of as many as there are connections.
        let own = (peers + all - 1 - number) / all;
        Slot::new(number as u32, family, address, url, own)
    };
    (worker..all).step_by(workers).map(slot).collect()
}
