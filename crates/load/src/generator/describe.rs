//! Descriptions of requests, for the examples of wrong replies.

use super::Route;
use super::flight::Pending;
use crate::plan::{Plan, PlannedRequest, num_want};

/// Describes a request.
pub(super) fn request(plan: &Plan, routes: &[Route], pending: &Pending) -> String {
    let route = &routes[pending.route as usize];
    let source = plan.population.addresses.get(route.family, route.address);
    match pending.request {
        PlannedRequest::Announce { peer, event, seeder } => {
            let member = plan.population.member(route.family, peer);
            format!(
                "announce from {source} port {} to {}, {event:?}, left {}, num_want {}, {} of a \
                 swarm of {}",
                plan.population.port(&member),
                route.target,
                u8::from(!seeder),
                num_want(plan.client(route.family, peer).num_want, event),
                plan.population.info_hash(member.swarm),
                member.swarm_size(),
            )
        }
        PlannedRequest::Scrape { hashes, .. } => {
            format!("scrape of {hashes} swarms from {source} to {}", route.target)
        }
        request => format!("{} from {source} to {}", request.kind().as_ref(), route.target),
    }
}
