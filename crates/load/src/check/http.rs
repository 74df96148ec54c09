//! Checks of replies over HTTP. Lists of the other family than the connection's, which BEP 7
//! allows, are checked for their form only.

use onrush_proto::announce::AnnounceHead;
use onrush_proto::http::client::{AnnounceBody, BadReply, Body, Files};
use onrush_proto::scrape::MAX_HASHES;
use onrush_proto::{Family, TransactionId};

use super::{Checker, Finding, Right, may_be_refused, port_zero};
use crate::plan::{Plan, PlannedRequest};

impl From<BadReply> for Finding {
    fn from(bad: BadReply) -> Self {
        match bad {
            BadReply::Head | BadReply::Long => Self::HttpHead,
            BadReply::Bencoding => Self::Bencoding,
            BadReply::KeyOrder => Self::KeyOrder,
            BadReply::Value | BadReply::Peers => Self::Layout,
        }
    }
}

impl Checker {
    /// Checks the body of a reply to `request`, which was sent over `family`, with `compact` or
    /// not.
    ///
    /// # Errors
    /// The first fault that is found.
    pub fn check_body(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        (family, compact): (Family, bool),
        body: &Body<'_>,
    ) -> Result<Right, Finding> {
        match (body, *request) {
            (Body::Failure(_), request) if may_be_refused(&request) => Ok(Right::PLAIN),
            (Body::Failure(_), _) => Err(Finding::ErrorReply),
            (Body::Announce(announce), PlannedRequest::PortZero { .. }) => {
                Ok(port_zero(if family == Family::V4 { &announce.v4 } else { &announce.v6 }))
            }
            (Body::Announce(announce), PlannedRequest::Announce { .. }) => {
                let right = self.announce_body(plan, request, family, announce)?;
                let other_form = (announce.is_list == compact).then_some(Finding::OtherForm);
                Ok(Right { differs: right.differs.or(other_form), ..right })
            }
            // A full scrape, which a tracker may answer with any swarms.
            (Body::Scrape(_), PlannedRequest::Scrape { hashes: 0, .. }) => Ok(Right::PLAIN),
            (Body::Scrape(files), PlannedRequest::Scrape { draw, hashes }) => {
                self.files(plan, (draw, hashes), files)
            }
            _ => Err(Finding::OtherAction),
        }
    }

    fn announce_body(
        &mut self,
        plan: &Plan,
        request: &PlannedRequest,
        family: Family,
        body: &AnnounceBody<'_>,
    ) -> Result<Right, Finding> {
        let peers = if family == Family::V4 { &body.v4 } else { &body.v6 };
        let (transaction_id, interval) = (TransactionId(0), body.interval);
        if let (Some(seeders), Some(leechers)) = (body.seeders, body.leechers) {
            let head = AnnounceHead { transaction_id, interval, leechers, seeders };
            return self.announce(plan, request, family, &head, peers);
        }
        // Without counts the list is checked for the swarm alone.
        let PlannedRequest::Announce { peer, .. } = *request else {
            return Err(Finding::OtherAction);
        };
        let seeders = plan.population.member(family, peer).swarm_size();
        let head = AnnounceHead { transaction_id, interval, leechers: 0, seeders };
        let right = self.announce(plan, request, family, &head, peers)?;
        Ok(Right { differs: Some(Finding::NoCounts), ..right })
    }

    /// Checks the reply to a scrape, which has each of its swarms once, sorted.
    pub(crate) fn files(
        &mut self,
        plan: &Plan,
        (draw, hashes): (u64, u8),
        files: &Files<'_>,
    ) -> Result<Right, Finding> {
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        asked.extend(
            plan.scraped(draw, hashes)
                .map(|member| (plan.population.info_hash(member.swarm).0, member.swarm_size())),
        );
        asked.sort_unstable();
        asked.dedup();
        let size = |hash| {
            let place = asked.binary_search_by_key(hash, |(hash, _)| *hash).ok()?;
            Some(asked[place].1)
        };
        let known = || files.hashes.iter().filter_map(size);
        let verdict = if known().count() < files.hashes.len() {
            Err(Finding::ScrapeOthers)
        } else if files.hashes.len() < asked.len().min(MAX_HASHES) {
            // Trackers may leave out swarms beyond those that BEP 15 allows.
            Err(Finding::ScrapeEntries)
        } else {
            self.sizes(files.counts.iter().zip(known()))
        };
        self.asked = asked;
        verdict
    }
}
