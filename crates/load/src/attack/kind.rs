//! The attacks, and the datagrams that each of them sends.

use clap::ValueEnum;
use onrush_proto::announce::{self, Announce};
use onrush_proto::scrape::{HASH_LEN, MAX_HASHES, MAX_REQUEST_LEN};
use onrush_proto::{
    Connect, ConnectionId, Event, InfoHash, PeerId, Scrape, TransactionId, connect,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

/// Bytes of the largest datagram.
pub(super) const LARGEST: usize = MAX_REQUEST_LEN;
/// Bytes of the largest junk.
const LARGEST_JUNK: usize = 600;
/// Kernels verify the checksum of datagrams up to this length before they look for the socket, and
/// of longer ones when they are received (`CHECKSUM_BREAK` of Linux).
const CHECKSUM_BREAK: usize = 76;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Attack {
    /// Connects from spoofed sources; the tracker answers each with 16 bytes.
    Connects,
    /// Announces with random connection ids from spoofed sources.
    GuessedIds,
    /// Announces of random info hashes with valid ids: each creates a swarm.
    RandomHashes,
    /// Announces of one info hash from many ports with valid ids: one swarm, one shard.
    HotHash,
    /// As random-hashes and, alternately, many ports in the largest honest swarm; all sources in
    /// one /24 or /48.
    OnePrefix,
    /// Scrapes of 74 random info hashes with valid ids: the largest requests.
    Scrapes,
    /// 0 to 600 random bytes from spoofed sources.
    Junk,
    /// Datagrams of more than 76 bytes with a wrong UDP checksum from spoofed sources.
    BadChecksums,
    /// Connects from spoofed sources in short bursts with long pauses.
    Bursts,
}

impl Attack {
    /// Whether its datagrams have source addresses that are not this host's.
    pub fn is_spoofed(self) -> bool {
        !matches!(self, Self::RandomHashes | Self::HotHash | Self::OnePrefix | Self::Scrapes)
    }
}

/// Writes the datagrams of an attack.
pub(super) struct Payloads {
    attack: Attack,
    rng: SmallRng,
    /// The hash of hot-hash.
    hot: InfoHash,
    /// A swarm of honest peers.
    honest: InfoHash,
}

impl Payloads {
    /// The datagrams of `attack`; `honest` is the info hash of a swarm of honest peers.
    pub(super) fn new(attack: Attack, honest: InfoHash, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        Self { attack, hot: InfoHash(rng.random()), honest, rng }
    }

    /// Writes a datagram of a source with the connection id `id`; returns its length.
    pub(super) fn write(&mut self, id: u64, into: &mut [u8; LARGEST]) -> usize {
        let rng = &mut self.rng;
        let (id, info_hash) = match self.attack {
            Attack::GuessedIds | Attack::BadChecksums => (rng.random(), InfoHash(rng.random())),
            Attack::RandomHashes => (id, InfoHash(rng.random())),
            Attack::HotHash => (id, self.hot),
            Attack::OnePrefix if rng.random() => (id, self.honest),
            Attack::OnePrefix => (id, InfoHash(rng.random())),
            Attack::Connects | Attack::Bursts => {
                let into = into.first_chunk_mut().expect("long enough");
                Connect { transaction_id: TransactionId(rng.random()) }.write(into);
                return connect::REQUEST_LEN;
            }
            Attack::Scrapes => {
                let transaction = TransactionId(rng.random());
                let head = Scrape::write(ConnectionId(id), transaction, &[], into);
                let len = head + MAX_HASHES * HASH_LEN;
                rng.fill(&mut into[head..len]);
                return len;
            }
            Attack::Junk => {
                let len = rng.random_range(0..=LARGEST_JUNK);
                rng.fill(&mut into[..len]);
                return len;
            }
        };
        let mut peer_id = PeerId(*b"-OL0000-attack-00000");
        rng.fill(&mut peer_id.0[15..]);
        Announce {
            connection_id: ConnectionId(id),
            transaction_id: TransactionId(rng.random()),
            info_hash,
            peer_id,
            left: rng.random_range(0..2),
            event: Event::Started,
            key: rng.random(),
            num_want: -1,
            port: rng.random_range(1024..=u16::MAX),
            ..Announce::default()
        }
        .write(into)
    }
}

const _: () = assert!(announce::REQUEST_LEN > CHECKSUM_BREAK && LARGEST >= LARGEST_JUNK);

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_proto::Request;

    const HONEST: InfoHash = InfoHash([7; 20]);

    /// A thousand datagrams.
    fn written(attack: Attack, mut each: impl FnMut(&[u8])) {
        let mut payloads = Payloads::new(attack, HONEST, 1);
        let mut into = [0; LARGEST];
        for _ in 0..1000 {
            let len = payloads.write(99, &mut into);
            each(&into[..len]);
        }
    }

    #[test]
    fn each_attack_sends_what_its_name_says() {
        for attack in Attack::value_variants() {
            let json = serde_json::to_string(attack).unwrap();
            assert_eq!(json.trim_matches('"'), attack.as_ref());
            assert_eq!(attack.to_possible_value().unwrap().get_name(), attack.as_ref());
            let (mut hashes, mut ids, mut ports) = (Vec::new(), Vec::new(), Vec::new());
            let mut lengths = Vec::new();
            written(*attack, |bytes| {
                lengths.push(bytes.len());
                match Request::parse(bytes) {
                    Ok(Request::Announce(announce)) => {
                        hashes.push(announce.info_hash);
                        ids.push(announce.connection_id.0);
                        ports.push(announce.port);
                    }
                    Ok(Request::Scrape(scrape)) => {
                        ids.push(scrape.connection_id.0);
                        hashes.extend(scrape.info_hashes());
                    }
                    _ => {}
                }
            });
            for all in [&mut ids, &mut lengths.iter().map(|len| *len as u64).collect()] {
                all.sort_unstable();
                all.dedup();
            }
            hashes.sort_unstable_by_key(|hash| hash.0);
            let honest = hashes.iter().filter(|hash| **hash == HONEST).count();
            hashes.dedup();
            let kinds = (hashes.len(), ids.len(), honest > 400 && honest < 600);
            let expected = match attack {
                Attack::Connects | Attack::Bursts => (0, 0, false),
                Attack::GuessedIds | Attack::BadChecksums => (1000, 1000, false),
                Attack::RandomHashes => (1000, 1, false),
                Attack::HotHash => (1, 1, false),
                Attack::OnePrefix => (1001 - honest, 1, true),
                Attack::Scrapes => (74_000, 1, false),
                Attack::Junk => kinds,
            };
            assert_eq!(kinds, expected, "{attack:?}");
            let longest = *lengths.iter().max().unwrap();
            let expected = match attack {
                Attack::Connects | Attack::Bursts => 16,
                Attack::Junk => longest.clamp(500, 600),
                Attack::Scrapes => 16 + 74 * 20,
                _ => 98,
            };
            assert_eq!(longest, expected, "{attack:?}");
            if *attack == Attack::HotHash {
                ports.sort_unstable();
                ports.dedup();
                assert!(ports.len() > 900, "{} ports", ports.len());
            }
        }
    }
}
