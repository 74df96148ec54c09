//! The swarms of WebRTC peers of one shard. They have no address, so that they are apart from the
//! swarms of other peers; a member is the connection that offers and answers are sent to.
//!
//! The members of a swarm are a vector, seeders first, so that random members of one kind are found
//! at once. A large swarm has an index of its members, a small one is searched.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use hashbrown::HashTable;
use onrush_proto::{InfoHash, PeerId, ScrapeCounts};
use rand::Rng;
use rand::seq::index;
use siphasher::sip::SipHasher13;

/// The most members that are searched without an index.
const MAX_SEARCHED: usize = 16;

/// The WebSocket connection of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Socket {
    /// The web worker that owns it.
    pub worker: u16,
    /// Its place in the worker's table.
    pub slot: u32,
    /// Counts the connections of the slot.
    pub generation: u32,
}

/// The part of an announce that changes a swarm.
#[derive(Clone, Copy, Debug)]
pub struct Announce {
    /// The swarm.
    pub info_hash: InfoHash,
    /// Where the announce comes from.
    pub socket: Socket,
    /// The address of the client at the other end; a connection has always the same.
    pub client: IpAddr,
    /// The client's peer id.
    pub peer_id: PeerId,
    /// Whether the peer misses nothing; a member keeps its state without, and a new one is a
    /// leecher.
    pub seeder: Option<bool>,
    /// Whether the event is `completed`.
    pub completed: bool,
}

/// The result of an announce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// The connection whose membership is replaced: another one of the same address and peer id.
    pub replaced: Option<Socket>,
    /// The counts of the swarm after it.
    pub counts: ScrapeCounts,
}

/// The connection is a member with another peer id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherPeerId;

/// Sums over all swarms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Swarms, which all have members.
    pub swarms: usize,
    /// Members without anything missing.
    pub seeders: usize,
    /// Other members.
    pub leechers: usize,
}

/// The swarms of one shard.
pub struct Swarms {
    /// A secret key: no client can aim at one place of a table.
    key: SipHasher13,
    swarms: Vec<Swarm>,
    /// The places of the swarms, by the hashes of their info hashes.
    places: HashTable<u32>,
    /// The swarm and the member that [`sweep`](Self::sweep) has visited last. It visits them
    /// backwards: what a removal moves was visited.
    visited: (usize, usize),
    members: usize,
    seeders: usize,
}

impl Swarms {
    /// No swarms, with a secret key for the tables.
    pub fn new(key: [u8; 16]) -> Self {
        Self {
            key: SipHasher13::new_with_key(&key),
            swarms: Vec::new(),
            places: HashTable::new(),
            visited: (0, 0),
            members: 0,
            seeders: 0,
        }
    }

    /// Sums over all swarms.
    pub fn totals(&self) -> Totals {
        let leechers = self.members - self.seeders;
        Totals { swarms: self.swarms.len(), seeders: self.seeders, leechers }
    }

    /// The counts of a swarm, zeros without one. A swarm without members forgets its completions.
    pub fn counts(&self, info_hash: &InfoHash) -> ScrapeCounts {
        let place = self.place(info_hash);
        place.map_or(ScrapeCounts::default(), |place| self.swarms[place].counts())
    }

    /// Adds a member to a swarm, or notes that it is still there. `now` is in seconds.
    ///
    /// # Errors
    /// [`OtherPeerId`]; then nothing has changed.
    pub fn announce(&mut self, announce: &Announce, now: u32) -> Result<Announced, OtherPeerId> {
        let Announce { info_hash, socket, completed, .. } = *announce;
        // Names the client behind a connection: its next connection replaces this one.
        let identity = hashed(&self.key, (announce.client, announce.peer_id));
        let place = self.place(&info_hash).unwrap_or_else(|| self.add(info_hash));
        let (swarm, key) = (&mut self.swarms[place], &self.key);
        let own = swarm.find(By::Socket, hashed(key, socket), |member| member.socket == socket);
        let at = own.or_else(|| swarm.find(By::Identity, identity, |it| it.identity == identity));
        let before = at.map(|at| swarm.members[at]);
        if own.is_some() && before.is_some_and(|member| member.identity != identity) {
            return Err(OtherPeerId);
        }
        let was_seeder = at.is_some_and(|at| at < swarm.seeders);
        let is_seeder = announce.seeder.unwrap_or(was_seeder);
        match own {
            Some(own) if was_seeder == is_seeder => swarm.members[own].announced = now,
            _ => {
                if let Some(at) = at {
                    swarm.take(at, key);
                }
                swarm.put(Member { identity, socket, announced: now }, is_seeder, key);
            }
        }
        // A browser that begins to seed announces `completed`, too.
        let was_leecher = before.is_some() && !was_seeder;
        swarm.completed += u32::from(completed && is_seeder && was_leecher);
        let counts = swarm.counts();
        self.members += usize::from(before.is_none());
        self.seeders = self.seeders + usize::from(is_seeder) - usize::from(was_seeder);
        let replaced = before.filter(|_| own.is_none()).map(|member| member.socket);
        Ok(Announced { replaced, counts })
    }

    /// Removes a member from a swarm; false if it is none.
    pub fn remove(&mut self, socket: Socket, info_hash: &InfoHash) -> bool {
        let Some(place) = self.place(info_hash) else { return false };
        let hash = hashed(&self.key, socket);
        let at = self.swarms[place].find(By::Socket, hash, |member| member.socket == socket);
        if let Some(at) = at {
            self.remove_at(place, at);
        }
        at.is_some()
    }

    /// Passes up to `want` different members of a swarm to `each`, drawn at random from all but the
    /// announcer; a seeder gets leechers only. None for a connection that is no member.
    pub fn choose(
        &self,
        info_hash: &InfoHash,
        socket: Socket,
        want: usize,
        rng: &mut impl Rng,
        mut each: impl FnMut(Socket),
    ) {
        let Some(swarm) = self.place(info_hash).map(|place| &self.swarms[place]) else { return };
        let hash = hashed(&self.key, socket);
        let own = swarm.find(By::Socket, hash, |member| member.socket == socket);
        let Some(own) = own else { return };
        let first = if own < swarm.seeders { swarm.seeders } else { 0 };
        let others = swarm.members.len() - first - usize::from(own >= first);
        for drawn in index::sample(rng, others, want.min(others)) {
            let at = first + drawn;
            each(swarm.members[at + usize::from(own >= first && at >= own)].socket);
        }
    }

    /// Removes members that have not announced for more than `silence` seconds, and appends them to
    /// `expired`: their connections have to forget the membership. Looks at the next `work` members
    /// and swarms. A member that changes its place meanwhile may be found in the next pass only.
    pub fn sweep(
        &mut self,
        now: u32,
        silence: u32,
        work: usize,
        expired: &mut Vec<(Socket, InfoHash)>,
    ) {
        for _ in 0..work {
            let (place, at) = &mut self.visited;
            if *at == 0 {
                if *place == 0 {
                    *place = self.swarms.len();
                }
                let Some(next) = (*place).min(self.swarms.len()).checked_sub(1) else { return };
                (*place, *at) = (next, self.swarms[next].members.len());
                continue;
            }
            let Some(swarm) = self.swarms.get(*place) else {
                *at = 0;
                continue;
            };
            *at = (*at).min(swarm.members.len()) - 1;
            let (place, at) = self.visited;
            let Member { socket, announced, .. } = swarm.members[at];
            if now.saturating_sub(announced) > silence {
                expired.push((socket, swarm.info_hash));
                self.remove_at(place, at);
            }
        }
    }

    fn place(&self, info_hash: &InfoHash) -> Option<usize> {
        let is_it = |place: &u32| self.swarms[*place as usize].info_hash == *info_hash;
        self.places.find(hashed(&self.key, info_hash), is_it).map(|place| *place as usize)
    }

    /// Adds a swarm, which has to get a member.
    fn add(&mut self, info_hash: InfoHash) -> usize {
        let Self { key, swarms, places, .. } = self;
        let place = swarms.len();
        swarms.push(Swarm {
            info_hash,
            members: Vec::with_capacity(1),
            seeders: 0,
            completed: 0,
            index: HashTable::new(),
        });
        let hash_of = |place: &u32| hashed(key, swarms[*place as usize].info_hash);
        places.insert_unique(hashed(key, info_hash), place as u32, hash_of);
        place
    }

    fn remove_at(&mut self, place: usize, at: usize) {
        let Self { key, swarms, places, .. } = self;
        self.members -= 1;
        self.seeders -= usize::from(at < swarms[place].seeders);
        swarms[place].take(at, key);
        if swarms[place].members.is_empty() {
            let hash = hashed(key, swarms.swap_remove(place).info_hash);
            if let Ok(entry) = places.find_entry(hash, |it| *it as usize == place) {
                entry.remove();
            }
            // The last swarm is there now.
            if let Some(moved) = swarms.get(place)
                && let Some(entry) =
                    places.find_mut(hashed(key, moved.info_hash), |it| *it as usize == swarms.len())
            {
                *entry = place as u32;
            }
            if swarms.len() < swarms.capacity() / 4 {
                swarms.shrink_to(2 * swarms.len());
                let hash_of = |place: &u32| hashed(key, swarms[*place as usize].info_hash);
                places.shrink_to(2 * swarms.len(), hash_of);
            }
        }
    }
}

/// The keyed hash of a value.
fn hashed(key: &SipHasher13, value: impl Hash) -> u64 {
    let mut hasher = *key;
    value.hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, Copy)]
struct Member {
    /// The keyed hash of address and peer id.
    identity: u64,
    socket: Socket,
    /// The second of the last announce.
    announced: u32,
}

const _: () = assert!(size_of::<Member>() == 24);

/// What members are found by.
#[derive(Clone, Copy)]
enum By {
    Socket = 0,
    Identity = 1,
}

impl By {
    const ALL: [Self; 2] = [Self::Socket, Self::Identity];

    /// The entry of a member in an index.
    fn entry(self, at: usize) -> u32 {
        (at as u32) << 1 | self as u32
    }
}

impl Member {
    fn hash(&self, by: By, key: &SipHasher13) -> u64 {
        match by {
            By::Socket => hashed(key, self.socket),
            By::Identity => self.identity,
        }
    }
}

struct Swarm {
    info_hash: InfoHash,
    /// Seeders first.
    members: Vec<Member>,
    seeders: usize,
    /// How often a member became a seeder by the event `completed`.
    completed: u32,
    /// Two entries of each member of a large swarm, otherwise none: its place, and what it is found
    /// by in the lowest bit.
    index: HashTable<u32>,
}

impl Swarm {
    fn counts(&self) -> ScrapeCounts {
        let leechers = (self.members.len() - self.seeders) as u32;
        ScrapeCounts { seeders: self.seeders as u32, completed: self.completed, leechers }
    }

    fn find(&self, by: By, hash: u64, is_it: impl Fn(&Member) -> bool) -> Option<usize> {
        if self.index.is_empty() {
            return self.members.iter().position(is_it);
        }
        let at = |entry: &u32| (*entry >> 1) as usize;
        let is_entry =
            |entry: &u32| *entry == by.entry(at(entry)) && is_it(&self.members[at(entry)]);
        self.index.find(hash, is_entry).map(at)
    }

    /// Adds a member, which has to be new.
    fn put(&mut self, member: Member, is_seeder: bool, key: &SipHasher13) {
        let end = self.members.len();
        self.members.push(member);
        let mut at = end;
        if is_seeder {
            at = self.seeders;
            self.relocate(at, end, key);
            self.members[at] = member;
            self.seeders += 1;
        }
        if !self.index.is_empty() {
            self.enter(at, key);
        } else if end == MAX_SEARCHED {
            (0..=end).for_each(|at| self.enter(at, key));
        }
    }

    /// Removes a member.
    fn take(&mut self, at: usize, key: &SipHasher13) {
        let member = self.members[at];
        for by in By::ALL {
            let is_it = |entry: &u32| *entry == by.entry(at);
            if let Ok(entry) = self.index.find_entry(member.hash(by, key), is_it) {
                entry.remove();
            }
        }
        let mut hole = at;
        if at < self.seeders {
            self.seeders -= 1;
            self.relocate(self.seeders, hole, key);
            hole = self.seeders;
        }
        let last = self.members.len() - 1;
        self.relocate(last, hole, key);
        self.members.pop();
        if last <= MAX_SEARCHED / 2 {
            self.index = HashTable::new();
        }
        if last < self.members.capacity() / 4 {
            self.members.shrink_to(2 * last);
        }
    }

    /// Moves a member to a place without one.
    fn relocate(&mut self, from: usize, to: usize, key: &SipHasher13) {
        let member = self.members[from];
        self.members[to] = member;
        for by in By::ALL {
            let is_it = |entry: &u32| *entry == by.entry(from);
            if let Some(entry) = self.index.find_mut(member.hash(by, key), is_it) {
                *entry = by.entry(to);
            }
        }
    }

    /// Adds the entries of a member to the index.
    fn enter(&mut self, at: usize, key: &SipHasher13) {
        let Self { members, index, .. } = self;
        let hash_of = |entry: &u32| {
            let by = By::ALL[(*entry & 1) as usize];
            members[(*entry >> 1) as usize].hash(by, key)
        };
        for by in By::ALL {
            index.insert_unique(members[at].hash(by, key), by.entry(at), hash_of);
        }
    }
}
