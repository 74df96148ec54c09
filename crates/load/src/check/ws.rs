//! Checks of replies over WebSocket.

use onrush_proto::announce::AnnounceHead;
use onrush_proto::webtorrent::client::{Announced, BadReply};
use onrush_proto::{Event, Family, TransactionId};

use super::{Announcer, Checker, Finding, Right};
use crate::plan::{Plan, PlannedRequest};

impl From<BadReply> for Finding {
    fn from(bad: BadReply) -> Self {
        match bad {
            BadReply::Json => Self::Json,
            BadReply::Action | BadReply::Value => Self::Layout,
        }
    }
}

impl Checker {
    /// Checks the counts of the reply to an announce.
    ///
    /// # Errors
    /// The fault that is found.
    pub fn check_announced(
        &self,
        plan: &Plan,
        request: &PlannedRequest,
        reply: &Announced,
    ) -> Result<Right, Finding> {
        let PlannedRequest::Announce { peer, event, seeder } = *request else {
            return Err(Finding::OtherAction);
        };
        let (Some(seeders), Some(leechers)) = (reply.seeders, reply.leechers) else {
            return Ok(Right { differs: Some(Finding::NoCounts), ..Right::PLAIN });
        };
        let (transaction_id, interval) = (TransactionId(0), reply.interval);
        let head = AnnounceHead { transaction_id, interval, leechers, seeders };
        let member = plan.population.member(Family::V4, peer);
        if !self.strictness.strangers
            && u64::from(seeders) + u64::from(leechers) > u64::from(member.swarm_size())
        {
            return Err(Finding::CountsTooHigh);
        }
        // There are no peers in the reply.
        let announcer = Announcer { member, seeder, stopped: event == Event::Stopped, want: 0 };
        let differs = match interval {
            0 => Some(Finding::ZeroInterval),
            _ => announcer.differs(&head, 0),
        };
        Ok(Right { differs, ..Right::PLAIN })
    }
}
