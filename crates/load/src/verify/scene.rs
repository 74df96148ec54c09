//! What one check has to itself: info hashes that the tracker serves and nobody else uses, and
//! peers; and the crowd, a large swarm that several checks look at.

use onrush_proto::{Endpoint, Family, InfoHash};

use super::ask::{Ask, STOPPED};
use super::dialogue::{Party, Tracker, Trouble, fresh_hash};

/// Peers of the crowd by family: more than fit one datagram of 1232 bytes (RFC 8200's 1280 less
/// headers).
const CROWD: [u16; 2] = [210, 75];
/// The first port of the crowd.
const FIRST_PORT: u16 = 20_000;

/// A check's own corner.
#[derive(Debug)]
pub struct Scene<'t> {
    /// Who is asked.
    pub tracker: &'t Tracker,
    hashes: Vec<InfoHash>,
}

impl<'t> Scene<'t> {
    /// Takes `count` hashes, waits for them where other checks have them.
    ///
    /// # Errors
    /// When there are not so many: a sentence about what is missing.
    pub(super) fn new(tracker: &'t Tracker, count: usize) -> Result<Self, String> {
        let hashes = match tracker.given.len() {
            0 => std::iter::repeat_with(fresh_hash).take(count).collect(),
            // One is the crowd's.
            given if given <= count => {
                return Err(format!("needs {} info hashes that the tracker serves", count + 1));
            }
            _ => tracker.take(count),
        };
        Ok(Self { tracker, hashes })
    }

    /// Hash number `n`: one that the tracker serves.
    pub fn hash(&self, n: usize) -> InfoHash {
        self.hashes[n]
    }

    /// A peer at the first source address.
    pub fn party(&self) -> Result<Party<'t>, Trouble> {
        Party::join(self.tracker, self.tracker.address, self.tracker.sources[0])
    }

    /// A peer at another source address, where there is one.
    pub fn other_party(&self) -> Result<Option<Party<'t>>, Trouble> {
        let Some(source) = self.tracker.sources.get(1) else { return Ok(None) };
        Party::join(self.tracker, self.tracker.address, *source).map(Some)
    }

    /// The crowd; the first who wants it gathers it.
    pub fn crowd(&self) -> Result<&'t Crowd, Trouble> {
        let tracker = self.tracker;
        tracker.crowd.get_or_init(|| Crowd::gather(tracker)).as_ref().map_err(Clone::clone)
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if !self.tracker.given.is_empty() {
            self.tracker.give_back(&mut self.hashes);
        }
    }
}

impl Tracker {
    /// Takes hashes from those given, which are more than `count`.
    fn take(&self, count: usize) -> Vec<InfoHash> {
        let mut free = self.free.lock().expect("no check panics");
        // The crowd's hash is the first of those given and lies at the bottom.
        while free.len() < count + 1 {
            free = self.freed.wait(free).expect("no check panics");
        }
        let at = free.len() - count;
        free.split_off(at)
    }

    fn give_back(&self, hashes: &mut Vec<InfoHash>) {
        let mut free = self.free.lock().expect("no check panics");
        // Behind those that were not used yet.
        for hash in hashes.drain(..) {
            free.insert(1, hash);
        }
        self.freed.notify_all();
    }

    /// Takes the crowd out of its swarm.
    pub(super) fn leave(&self) {
        let Some(Ok(crowd)) = self.crowd.get() else { return };
        let Ok(party) = Party::join(self, self.address, self.sources[0]) else { return };
        let asks: Vec<_> = crowd.ports().map(|port| Ask::new(crowd.hash, port)).collect();
        let leave = asks.into_iter().map(|ask| ask.event(STOPPED).want(0));
        // Whoever is not taken off expires.
        let _ = party.announce_all(&leave.collect::<Vec<_>>());
    }
}

/// A large swarm of leechers.
#[derive(Debug)]
pub struct Crowd {
    /// Its hash.
    pub hash: InfoHash,
    /// Its peers.
    pub peers: Vec<Endpoint>,
}

impl Crowd {
    fn gather(tracker: &Tracker) -> Result<Self, Trouble> {
        let hash = tracker.given.first().copied().unwrap_or_else(fresh_hash);
        let party = Party::join(tracker, tracker.address, tracker.sources[0])?;
        let count = CROWD[usize::from(tracker.family() == Family::V6)];
        let ports = FIRST_PORT..FIRST_PORT + count;
        let asks: Vec<_> = ports.clone().map(|port| Ask::new(hash, port).want(0)).collect();
        party.announce_all(&asks)?;
        let peers = ports.map(|port| party.endpoint(port)).collect();
        party.stay();
        Ok(Self { hash, peers })
    }

    fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.peers.iter().map(Endpoint::port)
    }
}
