//! Counters of a shard, updated by every step so that reading them costs nothing.

use onrush_proto::Family;

use crate::sources::Exceeded;

/// Counters of one shard: gauges ("now") rise and fall, the others ("ever") only rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Now: swarms with at least one peer.
    pub swarms: u64,
    /// Now: swarms without peers, kept for their `completed`.
    pub idle_swarms: u64,
    /// Now: IPv4 peers, seeders included.
    pub peers_v4: u64,
    /// Now: IPv6 peers, seeders included.
    pub peers_v6: u64,
    /// Now: IPv4 peers that have the whole torrent.
    pub seeders_v4: u64,
    /// Now: IPv6 peers that have the whole torrent.
    pub seeders_v6: u64,
    /// Ever: peers that became seeders by the event `completed`, once per swarm, source and period.
    pub completed: u64,
    /// Ever: announces whose peer was not stored because of the ceiling on peers.
    pub refused_full: u64,
    /// Ever: peers removed after their lifetime.
    pub expired: u64,
    /// Ever: announces whose peer was not stored because of
    /// [`SourceLimits::peers_per_swarm`](crate::SourceLimits), or was in place of a neighbour's.
    pub refused_per_swarm: u64,
    /// Ever: announces whose peer was not stored because of
    /// [`SourceLimits::peers`](crate::SourceLimits).
    pub refused_of_source: u64,
    /// Ever: announces whose peer was not stored because of
    /// [`SourceLimits::new_swarms`](crate::SourceLimits).
    pub refused_new_swarms: u64,
    /// Ever: peers removed from a full shard for a newcomer of a source that occupies less.
    pub replaced: u64,
    /// Now: whether a table of sources is crowded, so that only the limits of networks apply: 0 or
    /// 1.
    pub crowded_tables: u64,
    /// Ever: idle swarms evicted because of the ceiling on them.
    pub idle_evicted: u64,
}

impl Totals {
    /// Peers of both families.
    pub fn peers(&self) -> u64 {
        self.peers_v4 + self.peers_v6
    }

    /// Announces whose peer was not stored for any reason, or was in place of a neighbour's.
    pub fn refused(&self) -> u64 {
        self.refused_full
            + self.refused_per_swarm
            + self.refused_of_source
            + self.refused_new_swarms
    }

    /// The counter of newcomers that would exceed a limit.
    pub(crate) fn exceeded(&mut self, exceeded: Exceeded) -> &mut u64 {
        match exceeded {
            Exceeded::PeersPerSwarm | Exceeded::NetworkPerSwarm => &mut self.refused_per_swarm,
            Exceeded::Peers => &mut self.refused_of_source,
            Exceeded::NewSwarms => &mut self.refused_new_swarms,
        }
    }

    pub(crate) fn peer_added(&mut self, family: Family, seeder: bool) {
        let (peers, seeders) = self.family(family);
        *peers += 1;
        *seeders += u64::from(seeder);
    }

    pub(crate) fn peer_changed(&mut self, family: Family, was_seeder: bool, is_seeder: bool) {
        let (_, seeders) = self.family(family);
        *seeders = *seeders - u64::from(was_seeder) + u64::from(is_seeder);
    }

    pub(crate) fn peer_removed(&mut self, family: Family, seeder: bool) {
        self.peers_removed(family, 1, u64::from(seeder));
    }

    pub(crate) fn peers_removed(&mut self, family: Family, left: u64, of_them_seeders: u64) {
        let (peers, seeders) = self.family(family);
        *peers -= left;
        *seeders -= of_them_seeders;
    }

    fn family(&mut self, family: Family) -> (&mut u64, &mut u64) {
        match family {
            Family::V4 => (&mut self.peers_v4, &mut self.seeders_v4),
            Family::V6 => (&mut self.peers_v6, &mut self.seeders_v6),
        }
    }
}
