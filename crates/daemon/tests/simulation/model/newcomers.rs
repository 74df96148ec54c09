//! Results of newcomers' announces, and the peers that newcomers replace.

use onrush_proto::{Endpoint, InfoHash};

use super::super::clock::Time;
use super::super::history::{Doubt, History, Possible};
use super::super::limits::{Count, Found, NewcomerOutcome, Occupied, add_alike, blocks};
use super::{Asked, Kind, Model, Pending};

impl Pending {
    /// The announce, unless it is a stop or a scrape.
    fn announce(&self) -> Option<Asked> {
        match self.kind {
            Kind::Announce(asked) if !asked.stop => Some(asked),
            _ => None,
        }
    }
}

impl Model {
    /// An announce was answered: decides what has become of its peer. Returns what the peer may be.
    pub(super) fn take_effect(&mut self, asked: &Asked, at: Time) -> Possible {
        let Asked { arrival, hash, announcer, seeder, stop, completes, .. } = *asked;
        let before = self.before(asked, at);
        let outcome = match before.unknown && !stop {
            true => self.admit(asked, before, at),
            false => NewcomerOutcome::Stored,
        };
        let (sequence, complete) = (self.sequence, !self.incomplete);
        let swarm = self.swarms.entry(hash).or_default();
        swarm.completed.0 +=
            u32::from(completes.0 && complete && outcome == NewcomerOutcome::Stored);
        swarm.completed.1 -= u32::from(completes.1 && outcome == NewcomerOutcome::Refused);
        if let Some(history) = swarm.peers.get_mut(&announcer) {
            // The result of the announce before this one remains unknown.
            self.unstored.most += u64::from(history.in_doubt_before(arrival));
            history.answered(arrival, sequence, at.second as i64);
            match outcome {
                NewcomerOutcome::Stored => {}
                NewcomerOutcome::Refused => history.not_stored(arrival),
                NewcomerOutcome::Open(doubt) => history.doubt_announce(arrival, doubt),
            }
        }
        let mut own =
            Possible { unknown: stop || outcome != NewcomerOutcome::Stored, kinds: [false; 2] };
        own.kinds[usize::from(seeder)] = !stop && outcome != NewcomerOutcome::Refused;
        own
    }

    /// Possible states of the peer when its announce took effect.
    fn before(&self, asked: &Asked, at: Time) -> Possible {
        let Asked { arrival, hash, announcer, .. } = *asked;
        self.possible(hash, announcer, arrival, arrival - 1, at.second)
    }

    /// Result of the announce of a peer that was unknown before, or may have been.
    fn admit(&mut self, asked: &Asked, before: Possible, at: Time) -> NewcomerOutcome {
        let found = self.find(asked, at);
        let outcome = match self.limits.outcome(&found) {
            // A known peer may announce again.
            NewcomerOutcome::Refused if before.kinds != [false; 2] => {
                NewcomerOutcome::Open(Doubt::Limited)
            }
            outcome => outcome,
        };
        let shard = self.map.shard_of(&asked.hash);
        match outcome {
            NewcomerOutcome::Stored => {}
            NewcomerOutcome::Refused => {
                self.unstored.add(true);
                return outcome;
            }
            NewcomerOutcome::Open(_) => drop(self.in_doubt.insert(shard)),
        }
        if found.creates.1 {
            let known = before.kinds != [false; 2];
            let certain = found.creates.0 && outcome == NewcomerOutcome::Stored && !known;
            self.created.push(asked.announcer, shard, self.minutes(asked, at), certain);
        }
        self.displace(asked, at);
        outcome
    }

    /// A newcomer may replace any peer of its shard, if that is full, and one of its network in its
    /// swarm, if that has as many as it may have.
    fn displace(&mut self, asked: &Asked, at: Time) {
        let known = self.swarms.values().map(|swarm| swarm.peers.len() as u64).sum::<u64>();
        let here = self.swarms.get(&asked.hash).map_or(0, |swarm| swarm.peers.len() as u64);
        let may_be_full = self.limits.replaces() && known >= self.limits.peers;
        if !may_be_full && !self.limits.crowds([Count::default(), Count { least: 0, most: here }]) {
            return;
        }
        let others = self.others(asked, at);
        let full = may_be_full && Count::of(&others).most >= self.limits.peers;
        let here: Vec<_> = others.iter().filter(|(of, ..)| *of == asked.hash).copied().collect();
        let [_, of_network] = Occupied::by(&here).of(&asked.announcer);
        let crowded = self.limits.crowds([Count::default(), of_network]);
        if !full && !crowded {
            return;
        }
        self.in_doubt.insert(self.map.shard_of(&asked.hash));
        let occupied = Occupied::by(&others);
        let [_, network] = blocks(&asked.announcer);
        for (hash, endpoint, _) in others {
            let neighbour = crowded && hash == asked.hash && blocks(&endpoint)[1] == network;
            let reason = match neighbour || occupied.outweighs(&endpoint, &asked.announcer) {
                true => Doubt::Limited,
                false => Doubt::Misjudged,
            };
            if !full && !neighbour {
                continue;
            }
            let swarm = self.swarms.entry(hash).or_default();
            swarm.peers.entry(endpoint).or_default().doubt(reason);
        }
    }

    /// Newcomers whose replies are due may have replaced others already.
    pub(super) fn displace_by_pending(&mut self, at: Time) {
        for asked in self.pending.iter().filter_map(Pending::announce).collect::<Vec<_>>() {
            if self.before(&asked, at).unknown {
                self.displace(&asked, at);
            }
        }
    }

    /// Numbers of other peers when a newcomer arrives.
    fn find(&self, asked: &Asked, at: Time) -> Found {
        let Asked { hash, announcer, completes, .. } = *asked;
        let others = self.others(asked, at);
        let in_swarm: Vec<_> = others.iter().filter(|(of, ..)| *of == hash).copied().collect();
        let (least, most) = self.completed(hash);
        let peers = Count::of(&in_swarm);
        let unknown = peers.most == 0 && most == u32::from(completes.1);
        let may_be_unknown = peers.least == 0 && least == 0;
        let shard = self.map.shard_of(&hash);
        let (mut created, mut all_created) =
            self.created.of(&announcer, shard, self.minutes(asked, at));
        for other in self.pending.iter().filter_map(Pending::announce) {
            // It may have created a swarm already.
            all_created.add(false);
            add_alike(&mut created, &other.announcer, &announcer, false);
        }
        let occupied = Occupied::by(&others);
        Found {
            in_swarm: Occupied::by(&in_swarm).of(&announcer),
            in_shard: occupied.of(&announcer),
            all: Count::of(&others),
            creates: (unknown, may_be_unknown),
            created,
            all_created,
        }
    }

    /// The first and the last minute, by the clock of the process, in which an announce may have
    /// been served.
    fn minutes(&self, asked: &Asked, at: Time) -> [u32; 2] {
        [asked.second, at.second]
            .map(|second| Time { second, ..at }.since(self.started).moment.0 / 60)
    }

    /// The peers besides a newcomer in its shard, with what each may have been since its announce.
    fn others(&self, asked: &Asked, at: Time) -> Vec<(InfoHash, Endpoint, Possible)> {
        let (shard, from) = (self.map.shard_of(&asked.hash), asked.arrival);
        let mut others = Vec::new();
        for (&hash, swarm) in self.swarms.iter().filter(|it| self.map.shard_of(it.0) == shard) {
            let others_here = swarm.peers.keys().filter_map(|&endpoint| {
                let peer = self.possible(hash, endpoint, from, self.sequence, at.second);
                let is_other = (hash, endpoint) != (asked.hash, asked.announcer);
                (is_other && peer.kinds != [false; 2]).then_some((hash, endpoint, peer))
            });
            others.extend(others_here);
        }
        others
    }

    /// An upgrade may bring back peers whose swarm was removed since it began. It loses none: the
    /// shards exceed their shares meanwhile.
    pub(super) fn doubt_upgraded(&mut self) {
        let since = self.upgrading_since.expect("an upgrade");
        for (hash, swarm) in &mut self.swarms {
            if swarm.lost.is_some_and(|lost| lost >= since) {
                self.in_doubt.insert(self.map.shard_of(hash));
                (swarm.completed.0, swarm.dumped) = (0, 0);
                swarm.peers.values_mut().for_each(History::doubt_upgrade);
            }
        }
    }
}
