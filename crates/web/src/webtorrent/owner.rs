//! What the worker that owns swarms does with announces and with members that leave.

use std::mem;

use onrush_proto::InfoHash;
use onrush_tracker::assemble::Secrets;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::parcel::{Delivery, File};
use super::swarms::{Announce, Socket, Swarms, Totals};

/// The time in which silent members are found, in seconds, if no turn has too much to look at.
const SWEEP_SECONDS: usize = 60;
/// Members and swarms that are looked at for that per turn at most: about 10 us.
const SWEPT_PER_TURN: usize = 1024;

/// The swarms of one worker. What has to be told to connections is passed to `post`.
pub(super) struct Owner {
    swarms: Swarms,
    rng: SmallRng,
    /// Members who get the offers of an announce, kept to reuse the memory.
    chosen: Vec<Socket>,
    /// Members that were silent, likewise.
    expired: Vec<(Socket, InfoHash)>,
    /// The second of the last sweep.
    second: u32,
    /// Members and swarms to look at in this second.
    to_sweep: usize,
}

impl Owner {
    /// For worker `number`, whose draws depend on it.
    pub(super) fn new(secrets: &Secrets, number: u16) -> Self {
        Self {
            swarms: Swarms::new(secrets.table_key),
            rng: SmallRng::seed_from_u64(secrets.seed.wrapping_add(number.into())),
            chosen: Vec::new(),
            expired: Vec::new(),
            second: 0,
            to_sweep: 0,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.swarms.totals()
    }

    /// Adds a member, or notes that it is still there. Returns the members who get its `offers`, at
    /// most one for each.
    pub(super) fn announce(
        &mut self,
        announce: &Announce,
        offers: usize,
        now: u32,
        mut post: impl FnMut(Socket, Delivery<&str>),
    ) -> &[Socket] {
        let Self { swarms, rng, chosen, .. } = self;
        let Announce { info_hash, socket, .. } = *announce;
        chosen.clear();
        match swarms.announce(announce, now) {
            Ok(announced) => {
                if let Some(replaced) = announced.replaced {
                    post(replaced, Delivery::Forget { info_hash });
                }
                let counts = announced.counts;
                post(socket, Delivery::Announced { info_hash, counts, is_member: true });
                swarms.choose(&info_hash, socket, offers, rng, |member| chosen.push(member));
            }
            Err(_) => post(socket, Delivery::Refused { info_hash }),
        }
        chosen
    }

    /// Removes a member, and `replies` with the counts if it has asked for that.
    pub(super) fn remove(
        &mut self,
        socket: Socket,
        info_hash: InfoHash,
        replies: bool,
        mut post: impl FnMut(Socket, Delivery<&str>),
    ) {
        self.swarms.remove(socket, &info_hash);
        if replies {
            let counts = self.swarms.counts(&info_hash);
            post(socket, Delivery::Announced { info_hash, counts, is_member: false });
        }
    }

    /// Fills in the counts of a swarm.
    pub(super) fn fill(&self, (hash, counts): &mut File) {
        *counts = self.swarms.counts(&InfoHash(*hash));
    }

    /// Removes some of the members that have been silent for more than `silence` seconds. Returns
    /// whether there is more to look at now.
    pub(super) fn sweep(
        &mut self,
        now: u32,
        silence: u32,
        mut post: impl FnMut(Socket, Delivery<&str>),
    ) -> bool {
        if mem::replace(&mut self.second, now) != now {
            let Totals { swarms, seeders, leechers } = self.swarms.totals();
            self.to_sweep = (swarms + seeders + leechers).div_ceil(SWEEP_SECONDS);
        }
        let work = self.to_sweep.min(SWEPT_PER_TURN);
        self.to_sweep -= work;
        self.swarms.sweep(now, silence, work, &mut self.expired);
        for (socket, info_hash) in self.expired.drain(..) {
            post(socket, Delivery::Forget { info_hash });
        }
        self.to_sweep > 0
    }
}
