//! The slots of a worker.

use onrush_proto::Family;

use super::Target;
use super::worker::Slot;
use crate::plan::Plan;
use crate::routes::Routes;

/// The slots of worker number `worker`.
pub(super) fn of(plan: &Plan, target: &Target, worker: usize, workers: usize) -> Vec<Slot> {
    let all = target.settings.connections;
    let peers = plan.population.peers(Family::V4) as usize;
    let routes = Routes::new(&target.urls, &target.sources, plan.profile.v6);
    let routes = routes.of_worker(worker, workers, all);
    let slots = routes.map(|route| {
        // Those with its number, and every further one of as many as there are connections.
        let own = (peers + all - 1 - route.number) / all;
        Slot::new(route.number as u32, route.family, route.address, route.url, own)
    });
    slots.collect()
}
