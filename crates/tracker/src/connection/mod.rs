//! Connection ids: proof that a client receives what is sent to its address, without a byte
//! stored per client.
//!
//! An id is SipHash-2-4 (Aumasson and Bernstein, 2012), 64 bits, over the source **address** and
//! a **wall-clock** time bucket as wide as the validity. The port is left out: libtorrent keeps
//! ids per address, and carriers' NATs change ports. The current and the previous bucket are
//! accepted, and the next one for hosts whose clock is up to [`SKEW`] seconds behind. Wall-clock
//! time and a key that lives in a file make ids survive a restart, and valid on every host that
//! was given the same file.

mod key;

pub use key::{Key, KeyError, Keys};

use std::hash::Hasher;
use std::net::IpAddr;

use onrush_proto::ConnectionId;
use siphasher::sip::SipHasher24;

/// Seconds by which the clocks of hosts that share a key may differ.
pub const SKEW: u64 = 10;

/// Makes and checks connection ids. Each worker has its own copy.
#[derive(Clone, Debug)]
pub struct ConnectionIds {
    keys: Keys,
    validity: u64,
    prepared: Buckets,
}

/// The buckets that count during one bucket's time, already hashed: what is left to do for an id
/// is the address.
#[derive(Clone, Debug)]
struct Buckets {
    /// When this bucket began, in seconds since 1970.
    start: u64,
    /// Of the current key: this bucket, the one before, the one after.
    current: [SipHasher24; 3],
    /// Of the previous key.
    previous: Option<[SipHasher24; 3]>,
}

impl ConnectionIds {
    /// Ids under `keys` that are good for `validity` seconds at least and for twice as long at
    /// most (BEP 15 speaks of two minutes).
    ///
    /// # Panics
    /// When `validity` is 0: settings do not let that through.
    pub fn new(keys: &Keys, validity: u32) -> Self {
        assert!(validity > 0, "a connection id is valid for at least a second");
        let validity = u64::from(validity);
        Self { keys: *keys, validity, prepared: Buckets::at(0, keys, validity) }
    }

    /// Gets ready for ids at this time, in seconds since 1970. Asking for one at another time is
    /// no mistake, only slower.
    #[inline]
    pub fn prepare(&mut self, unix: u64) {
        if !self.is_prepared(unix) {
            self.prepared = Buckets::at(unix, &self.keys, self.validity);
        }
    }

    /// The id for a client at `ip`. Never 0, which rtorrent takes for "none".
    #[inline]
    pub fn issue(&self, ip: IpAddr, unix: u64) -> ConnectionId {
        ConnectionId(self.with_buckets(unix, |buckets| buckets.mac(ip)))
    }

    /// Whether `id` was issued to `ip` and has not expired.
    ///
    /// Takes the same time for a good and a bad id: every candidate is computed, and whole words
    /// are compared.
    #[inline]
    pub fn accepts(&self, id: ConnectionId, ip: IpAddr, unix: u64) -> bool {
        self.with_buckets(unix, |buckets| buckets.accept(id, ip, unix, self.validity))
    }

    /// The prepared buckets, or others for a time that they are not for.
    #[inline]
    fn with_buckets<T>(&self, unix: u64, ask: impl FnOnce(&Buckets) -> T) -> T {
        let others;
        let buckets = match self.is_prepared(unix) {
            true => &self.prepared,
            false => {
                others = Buckets::at(unix, &self.keys, self.validity);
                &others
            }
        };
        ask(buckets)
    }

    #[inline]
    fn is_prepared(&self, unix: u64) -> bool {
        unix.wrapping_sub(self.prepared.start) < self.validity
    }
}

impl Buckets {
    fn at(unix: u64, keys: &Keys, validity: u64) -> Self {
        let bucket = unix / validity;
        let of = |key: Key| {
            [bucket, bucket.wrapping_sub(1), bucket + 1].map(|bucket| {
                let mut hasher = SipHasher24::new_with_key(&key.0);
                hasher.write_u64(bucket);
                hasher
            })
        };
        let start = bucket * validity;
        Self { start, current: of(keys.current), previous: keys.previous.map(of) }
    }

    #[inline]
    fn mac(&self, ip: IpAddr) -> u64 {
        mac(&self.current[0], ip)
    }

    #[inline]
    fn accept(&self, id: ConnectionId, ip: IpAddr, unix: u64, validity: u64) -> bool {
        let next_counts = unix - self.start + SKEW >= validity;
        let mut good = false;
        for [this, before, next] in
            [Some(&self.current), self.previous.as_ref()].into_iter().flatten()
        {
            good |= (mac(this, ip) == id.0) | (mac(before, ip) == id.0);
            if next_counts {
                good |= mac(next, ip) == id.0;
            }
        }
        good
    }
}

/// The message is the bucket and the address: 12 bytes for IPv4 and 24 for IPv6, so that the two
/// can never be mistaken for each other (SipHash covers the length). An IPv4-mapped address is
/// its IPv4 address.
#[inline]
fn mac(bucket: &SipHasher24, ip: IpAddr) -> u64 {
    let mut hasher = *bucket;
    match ip.to_canonical() {
        IpAddr::V4(ip) => hasher.write_u32(u32::from_le_bytes(ip.octets())),
        IpAddr::V6(ip) => {
            let ip = u128::from_le_bytes(ip.octets());
            hasher.write_u64(ip as u64);
            hasher.write_u64((ip >> 64) as u64);
        }
    }
    never_zero(hasher.finish())
}

/// The one hash in 2^64 that is 0 becomes 1. Making and checking both come through here, so that id
/// is as good as any.
#[inline]
fn never_zero(hash: u64) -> u64 {
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys { current: Key([7; 16]), previous: None };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn good_for_its_validity_and_never_longer_than_twice_that() {
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
    fn a_clock_that_is_ten_seconds_behind_accepts_what_another_host_issued() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        for issued in 1_200_000..1_200_120 {
            assert!(ids.accepts(ids.issue(ip, issued), ip, issued - SKEW));
        }
        let start_of_bucket = 1_200_000;
        assert!(!ids.accepts(ids.issue(ip, start_of_bucket), ip, start_of_bucket - SKEW - 1));
    }

    #[test]
    fn belongs_to_one_address_and_one_key() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let id = ids.issue(ip("192.0.2.1"), 5_000);
        assert!(!ids.accepts(id, ip("192.0.2.2"), 5_000));
        let other = Keys { current: Key([8; 16]), previous: None };
        assert!(!ConnectionIds::new(&other, 120).accepts(id, ip("192.0.2.1"), 5_000));
        assert!(ids.accepts(id, ip("::ffff:192.0.2.1"), 5_000), "mapped is the same client");
        let v6 = ids.issue(ip("2001:db8::1"), 5_000);
        assert!(ids.accepts(v6, ip("2001:db8::1"), 5_000));
        assert!(!ids.accepts(v6, ip("2001:db8::2"), 5_000));
    }

    #[test]
    fn the_previous_key_is_still_accepted_after_a_rotation() {
        let old = ConnectionIds::new(&KEYS, 120);
        let rotated = Keys { current: Key([9; 16]), previous: Some(KEYS.current) };
        let new = ConnectionIds::new(&rotated, 120);
        let ip = ip("192.0.2.1");
        assert!(new.accepts(old.issue(ip, 9_000), ip, 9_001));
        assert!(new.accepts(new.issue(ip, 9_000), ip, 9_001));
        assert!(!old.accepts(new.issue(ip, 9_000), ip, 9_001));
    }

    #[test]
    fn being_prepared_changes_nothing_but_the_cost() {
        let rotated = Keys { current: Key([9; 16]), previous: Some(KEYS.current) };
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

    /// Ids are shared between hosts and versions: their making may not change unseen.
    #[test]
    fn an_id_is_siphash_of_bucket_and_address() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let sip = SipHasher24::new_with_key(&KEYS.current.0);
        let mut v4 = (1_200_000u64 / 120).to_le_bytes().to_vec();
        let mut v6 = v4.clone();
        v4.extend([192, 0, 2, 1]);
        v6.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        assert_eq!(ids.issue(ip("192.0.2.1"), 1_200_000).0, sip.hash(&v4));
        assert_eq!(ids.issue(ip("2001:db8::1"), 1_200_000).0, sip.hash(&v6));
    }

    #[test]
    fn zero_is_never_an_id() {
        // No input is known whose SipHash is 0, so the rule is shown on the hash itself.
        assert_eq!(never_zero(0), 1);
        for hash in [1, 2, u64::MAX] {
            assert_eq!(never_zero(hash), hash);
        }
        let ids = ConnectionIds::new(&KEYS, 120);
        assert!(!ids.accepts(ConnectionId(0), ip("192.0.2.1"), 1_000_000));
    }
}
