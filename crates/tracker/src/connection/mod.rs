//! Connection ids: proof that a client receives datagrams at its source address, without state per
//! client.
//!
//! An id is SipHash-2-4 (Aumasson and Bernstein, 2012) over the source **address**, under a key
//! that is derived, by SipHash-2-4 as well, for each **wall-clock** time bucket as wide as the
//! validity. The lowest two bits are the bucket's number modulo four, in the clear, so that a check
//! computes one hash whichever bucket an id is of; forging an id takes 2^62 guesses
//! (docs/decisions/0005). The port is left out: libtorrent keeps ids per address, and carriers'
//! NATs change ports. The current and the previous bucket are accepted, and the next one for hosts
//! whose clock is up to [`SKEW`] seconds behind. With wall-clock time and a key in a file, ids
//! survive a restart and are valid on every host with the same file.

mod key;

pub use key::{Key, Keys};

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use onrush_proto::ConnectionId;
use siphasher::sip::SipHasher24;

/// Maximum difference between the clocks of hosts that share a key, seconds.
pub const SKEW: u64 = 10;

/// The bits of an id that are its bucket's number modulo four; the others are a hash.
const TAG: u64 = 3;

/// Issues and checks connection ids. Each worker has its own copy.
#[derive(Clone, Debug)]
pub struct ConnectionIds {
    keys: Keys,
    validity: u64,
    prepared: Buckets,
}

/// The state of ids at one second in time.
#[derive(Clone, Debug)]
struct Buckets {
    /// The second, since 1970.
    unix: u64,
    /// The tag of this second's bucket.
    this: usize,
    /// Whether ids of a bucket are valid at this second, by tag.
    valid: [bool; 4],
    /// The buckets' keys, derived from the current key, by tag.
    current: [BucketKey; 4],
    /// The same from the previous and the next key, as far as there are any.
    others: [Option<[BucketKey; 4]>; 2],
    /// Whether there are any.
    has_others: bool,
}

/// The key of the ids of one bucket.
#[derive(Clone, Copy, Default)]
struct BucketKey(u64, u64);

impl ConnectionIds {
    /// Ids under `keys` that are valid for at least `validity` seconds and at most twice as long
    /// (BEP 15 suggests two minutes).
    ///
    /// # Panics
    /// When `validity` is 0.
    pub fn new(keys: &Keys, validity: u32) -> Self {
        assert!(validity > 0, "a connection id is valid for at least a second");
        let validity = u64::from(validity);
        Self { keys: *keys, validity, prepared: Buckets::at(0, keys, validity) }
    }

    /// Prepares for ids at this time, in seconds since 1970. Ids at other times are correct, but
    /// slower.
    #[inline]
    pub fn prepare(&mut self, unix: u64) {
        if self.prepared.unix != unix {
            self.prepared = self.buckets(unix);
        }
    }

    /// The id for a client at `ip`. Never 0, which rtorrent treats as no id.
    #[inline]
    pub fn issue(&self, ip: impl Address, unix: u64) -> ConnectionId {
        self.with_buckets(unix, |buckets| buckets.current[buckets.this].id(buckets.this, ip))
    }

    /// Whether `id` was issued to `ip` and has not expired.
    ///
    /// The expected id is always computed, and compared as a whole word, so that the time does not
    /// tell how much of a guess is right. During a rotation an id of another key takes longer.
    #[inline]
    pub fn accepts(&self, id: ConnectionId, ip: impl Address, unix: u64) -> bool {
        self.with_buckets(unix, |buckets| buckets.accepts(id, ip))
    }

    /// The values of an id's lowest two bits that a valid id may have at this time: bit `n` is set
    /// if value `n` may.
    pub fn valid_tags(&self, unix: u64) -> u8 {
        self.with_buckets(unix, |buckets| {
            buckets.valid.iter().rev().fold(0, |tags, valid| tags << 1 | u8::from(*valid))
        })
    }

    /// The tag of ids that are issued at this time.
    pub(crate) fn tag(&self, unix: u64) -> u8 {
        self.with_buckets(unix, |buckets| buckets.this as u8)
    }

    /// The number of the time bucket, in which all ids are issued under the same keys.
    pub(crate) fn bucket(&self, unix: u64) -> u64 {
        unix / self.validity
    }

    /// The keys of the bucket of this time and of its neighbours: the set of new ids, then those of
    /// ids that are accepted as well. A set has two words for each tag.
    pub(crate) fn key_sets(&self, unix: u64) -> Vec<[[u64; 2]; 4]> {
        let words = |keys: [BucketKey; 4]| keys.map(|BucketKey(first, second)| [first, second]);
        self.with_buckets(unix, |buckets| {
            let others = buckets.others.iter().flatten();
            std::iter::once(&buckets.current).chain(others).copied().map(words).collect()
        })
    }

    /// Calls `ask` with the buckets of `unix`, prepared or computed.
    #[inline]
    fn with_buckets<T>(&self, unix: u64, ask: impl FnOnce(&Buckets) -> T) -> T {
        let others;
        let buckets = match self.prepared.unix == unix {
            true => &self.prepared,
            false => {
                others = self.buckets(unix);
                &others
            }
        };
        ask(buckets)
    }

    #[cold]
    fn buckets(&self, unix: u64) -> Buckets {
        Buckets::at(unix, &self.keys, self.validity)
    }
}

impl Buckets {
    fn at(unix: u64, keys: &Keys, validity: u64) -> Self {
        let bucket = unix / validity;
        let [before, this, next] =
            [bucket.wrapping_sub(1), bucket, bucket + 1].map(|bucket| (bucket & TAG) as usize);
        let mut valid = [false; 4];
        valid[before] = true;
        valid[this] = true;
        valid[next] = unix % validity + SKEW >= validity;
        let of = |key: Key| {
            let mut keys = [BucketKey::default(); 4];
            // The fourth bucket is two away and never valid.
            for bucket in (0..4).map(|ahead| bucket.wrapping_sub(1).wrapping_add(ahead)) {
                keys[(bucket & TAG) as usize] = BucketKey::derive(&key, bucket);
            }
            keys
        };
        let others = [keys.previous, keys.next].map(|key| key.map(of));
        let has_others = others.iter().any(Option::is_some);
        Self { unix, this, valid, current: of(keys.current), others, has_others }
    }

    #[inline]
    fn accepts(&self, id: ConnectionId, ip: impl Address) -> bool {
        let tag = (id.0 & TAG) as usize;
        let genuine = self.current[tag].id(tag, ip) == id
            || (self.has_others && self.accepts_under_others(id, tag, ip));
        genuine & self.valid[tag]
    }

    /// Whether an id is one of the previous or the next key.
    #[cold]
    fn accepts_under_others(&self, id: ConnectionId, tag: usize, ip: impl Address) -> bool {
        self.others.iter().flatten().any(|keys| keys[tag].id(tag, ip) == id)
    }
}

impl BucketKey {
    /// Two words of a pseudo-random function of the bucket's number. The ids and the key of one
    /// bucket reveal nothing about another.
    fn derive(key: &Key, bucket: u64) -> Self {
        let word = |number: u8| {
            let mut hasher = SipHasher24::new_with_key(&key.0);
            hasher.write_u64(bucket);
            hasher.write_u8(number);
            hasher.finish()
        };
        Self(word(0), word(1))
    }

    #[inline]
    fn id(self, tag: usize, ip: impl Address) -> ConnectionId {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        ip.hash(&mut hasher);
        ConnectionId(never_zero((hasher.finish() & !TAG) | tag as u64))
    }
}

impl fmt::Debug for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BucketKey(..)")
    }
}

/// An address that ids are issued to. IPv4 addresses are hashed as 4 bytes and IPv6 addresses as
/// 16, so that the two families never collide (SipHash covers the length).
pub trait Address: Copy {
    /// Hashes the address.
    fn hash(self, hasher: &mut SipHasher24);
}

impl Address for Ipv4Addr {
    #[inline]
    fn hash(self, hasher: &mut SipHasher24) {
        hasher.write_u32(u32::from_le_bytes(self.octets()));
    }
}

/// For addresses that are not IPv4-mapped.
impl Address for Ipv6Addr {
    #[inline]
    fn hash(self, hasher: &mut SipHasher24) {
        let ip = u128::from_le_bytes(self.octets());
        hasher.write_u64(ip as u64);
        hasher.write_u64((ip >> 64) as u64);
    }
}

/// An IPv4-mapped address counts as its IPv4 address.
impl Address for IpAddr {
    fn hash(self, hasher: &mut SipHasher24) {
        match self.to_canonical() {
            Self::V4(ip) => ip.hash(hasher),
            Self::V6(ip) => ip.hash(hasher),
        }
    }
}

/// Replaces the id 0 with another of its bucket, when issuing and when checking.
#[inline]
fn never_zero(id: u64) -> u64 {
    if id == 0 { TAG + 1 } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys { current: Key([7; 16]), previous: None, next: None };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_id_is_valid_for_one_to_two_periods() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        for issued in 1_000_000..1_000_130 {
            let id = ids.issue(ip, issued);
            for age in 0..=120 {
                assert!(ids.accepts(id, ip, issued + age), "at age {age}");
            }
            assert!(!ids.accepts(id, ip, issued + 240));
        }
    }

    #[test]
    fn a_clock_ten_seconds_behind_accepts_ids_of_another_host() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        for issued in 1_200_000..1_200_120 {
            assert!(ids.accepts(ids.issue(ip, issued), ip, issued - SKEW));
        }
        let start_of_bucket = 1_200_000;
        assert!(!ids.accepts(ids.issue(ip, start_of_bucket), ip, start_of_bucket - SKEW - 1));
    }

    #[test]
    fn an_id_is_valid_for_one_address_and_one_key() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let id = ids.issue(ip("192.0.2.1"), 5_000);
        assert!(!ids.accepts(id, ip("192.0.2.2"), 5_000));
        let other = Keys { current: Key([8; 16]), previous: None, next: None };
        assert!(!ConnectionIds::new(&other, 120).accepts(id, ip("192.0.2.1"), 5_000));
        assert!(
            ids.accepts(id, ip("::ffff:192.0.2.1"), 5_000),
            "a mapped address is the same client"
        );
        let v6 = ids.issue(ip("2001:db8::1"), 5_000);
        assert!(ids.accepts(v6, ip("2001:db8::1"), 5_000));
        assert!(!ids.accepts(v6, ip("2001:db8::2"), 5_000));
    }

    #[test]
    fn ids_of_the_previous_key_are_accepted() {
        let old = ConnectionIds::new(&KEYS, 120);
        let rotated = Keys { current: Key([9; 16]), previous: Some(KEYS.current), next: None };
        let new = ConnectionIds::new(&rotated, 120);
        let ip = ip("192.0.2.1");
        assert!(new.accepts(old.issue(ip, 9_000), ip, 9_001));
        assert!(new.accepts(new.issue(ip, 9_000), ip, 9_001));
        assert!(!old.accepts(new.issue(ip, 9_000), ip, 9_001));
    }

    /// Hosts adopt each key file one after another: at no time does one refuse the ids of another.
    #[test]
    fn a_rotation_in_three_steps_refuses_no_id_on_any_host() {
        let (old, new) = (KEYS.current, Key([9; 16]));
        let steps = [
            Keys { current: old, previous: None, next: None },
            Keys { current: old, previous: None, next: Some(new) },
            Keys { current: new, previous: Some(old), next: None },
            Keys { current: new, previous: None, next: None },
        ];
        let hosts = steps.map(|keys| ConnectionIds::new(&keys, 120));
        for ip in [ip("192.0.2.1"), ip("2001:db8::1")] {
            let ids = hosts.each_ref().map(|host| host.issue(ip, 9_000));
            assert_eq!((ids[0], ids[2]), (ids[1], ids[3]), "the next key is not used yet");
            for at in 0..3 {
                assert!(hosts[at].accepts(ids[at + 1], ip, 9_001), "step {at}");
            }
            assert!(hosts[1].accepts(ids[0], ip, 9_001) && hosts[2].accepts(ids[1], ip, 9_001));
            let guess = ConnectionId(ids[0].0 ^ (1 << 40));
            assert!(hosts.iter().all(|host| !host.accepts(guess, ip, 9_001)));
            // With two keys, an id expires like one of the current key.
            assert!(!hosts[1].accepts(ids[2], ip, 9_000 + 240));
        }
    }

    #[test]
    fn preparation_does_not_change_ids() {
        let rotated = Keys { current: Key([9; 16]), previous: Some(KEYS.current), next: None };
        let cold = ConnectionIds::new(&rotated, 120);
        let mut warm = cold.clone();
        for unix in (1_000_000..1_000_600).step_by(7) {
            warm.prepare(unix);
            for ip in [ip("192.0.2.1"), ip("2001:db8::1")] {
                let id = warm.issue(ip, unix);
                assert_eq!(id, cold.issue(ip, unix));
                for at in [unix - 240, unix - 10, unix, unix + 10, unix + 240] {
                    assert_eq!(warm.accepts(id, ip, at), cold.accepts(id, ip, at), "{at}");
                }
            }
        }
    }

    #[test]
    fn the_tag_is_the_bucket_and_an_id_is_valid_for_no_other() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        for bucket in 10_000..10_008 {
            let issued = bucket * 120;
            let id = ids.issue(ip, issued).0;
            assert_eq!(id & 3, bucket & 3);
            for other in [id ^ 1, id ^ 2, id ^ 3] {
                for at in [issued - SKEW, issued, issued + 120] {
                    assert!(!ids.accepts(ConnectionId(other), ip, at));
                }
            }
            assert!(
                !ids.accepts(ConnectionId(id), ip, issued + 4 * 120),
                "four buckets later, with the same tag"
            );
        }
    }

    #[test]
    fn ids_are_valid_only_with_a_valid_tag() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        for unix in 1_200_000..1_200_500 {
            let tags = ids.valid_tags(unix);
            assert_eq!(tags.count_ones(), if unix % 120 < 120 - SKEW { 2 } else { 3 });
            for issued in [unix - 239, unix - 120, unix, unix + SKEW] {
                let id = ids.issue(ip, issued);
                assert!(!ids.accepts(id, ip, unix) || tags >> (id.0 & TAG) & 1 == 1);
            }
        }
    }

    #[test]
    fn every_bit_of_an_id_is_checked() {
        let rotated = Keys { current: Key([9; 16]), previous: Some(KEYS.current), next: None };
        for ids in [ConnectionIds::new(&KEYS, 120), ConnectionIds::new(&rotated, 120)] {
            for ip in [ip("192.0.2.1"), ip("2001:db8::1")] {
                let id = ids.issue(ip, 1_000_000).0;
                for bit in 0..64 {
                    assert!(
                        !ids.accepts(ConnectionId(id ^ (1 << bit)), ip, 1_000_000),
                        "bit {bit}"
                    );
                }
            }
        }
    }

    /// Hosts and versions share ids, so that a change of the algorithm has to be deliberate.
    #[test]
    fn an_id_is_siphash_of_the_address_and_the_tag_of_the_bucket() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let v6 = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap();
        for bucket in 10_000u64..10_004 {
            let key = [0, 1].map(|word| {
                let message = [bucket.to_le_bytes().as_slice(), &[word]].concat();
                SipHasher24::new_with_key(&KEYS.current.0).hash(&message)
            });
            let sip = SipHasher24::new_with_keys(key[0], key[1]);
            let id = |message: &[u8]| ConnectionId((sip.hash(message) >> 2 << 2) | (bucket % 4));
            assert_eq!(ids.issue(ip("192.0.2.1"), bucket * 120), id(&[192, 0, 2, 1]));
            assert_eq!(ids.issue(v6, bucket * 120 + 119), id(&v6.octets()));
        }
    }

    #[test]
    fn zero_is_never_an_id() {
        // No input is known whose id would be 0.
        assert_eq!(never_zero(0), 4);
        for id in [1, 3, 4, u64::MAX] {
            assert_eq!(never_zero(id), id);
        }
        let ids = ConnectionIds::new(&KEYS, 120);
        assert!(!ids.accepts(ConnectionId(0), ip("192.0.2.1"), 1_000_000));
    }
}
