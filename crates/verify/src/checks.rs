//! The checks, by the part of the protocol that they concern.

mod announce;
mod connect;
mod counts;
mod large;
mod other;
mod peers;
mod scrape;

use crate::check::Check;

pub(crate) use announce::FIRST as FIRST_ANNOUNCE;

/// Every check, in the order of the list.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let all = [
        connect::CHECKS,
        announce::CHECKS,
        counts::CHECKS,
        peers::CHECKS,
        large::CHECKS,
        scrape::CHECKS,
        other::CHECKS,
    ];
    all.into_iter().flatten()
}
