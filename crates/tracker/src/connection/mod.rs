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

use std::net::IpAddr;

use onrush_proto::ConnectionId;
use siphasher::sip::SipHasher24;

/// Seconds by which the clocks of hosts that share a key may differ.
pub const SKEW: u64 = 10;

/// Makes and checks connection ids. Each worker has its own copy.
#[derive(Clone, Debug)]
pub struct ConnectionIds {
    current: SipHasher24,
    previous: Option<SipHasher24>,
    validity: u64,
}

impl ConnectionIds {
    /// Ids under `keys` that are good for `validity` seconds at least and for twice as long at
    /// most (BEP 15 speaks of two minutes).
    ///
    /// # Panics
    /// When `validity` is 0: settings do not let that through.
    pub fn new(keys: &Keys, validity: u32) -> Self {
        assert!(validity > 0, "a connection id is valid for at least a second");
        Self {
            current: SipHasher24::new_with_key(&keys.current.0),
            previous: keys.previous.map(|key| SipHasher24::new_with_key(&key.0)),
            validity: u64::from(validity),
        }
    }

    /// The id for a client at `ip`. Never 0, which rtorrent takes for "none".
    #[inline]
    pub fn issue(&self, ip: IpAddr, unix: u64) -> ConnectionId {
        ConnectionId(mac(&self.current, ip, unix / self.validity))
    }

    /// Whether `id` was issued to `ip` and has not expired.
    ///
    /// Takes the same time for a good and a bad id: every candidate is computed, and whole words
    /// are compared.
    #[inline]
    pub fn accepts(&self, id: ConnectionId, ip: IpAddr, unix: u64) -> bool {
        let bucket = unix / self.validity;
        let mut good = self.matches(id, ip, bucket) | self.matches(id, ip, bucket.wrapping_sub(1));
        if unix % self.validity + SKEW >= self.validity {
            good |= self.matches(id, ip, bucket + 1);
        }
        good
    }

    #[inline]
    fn matches(&self, id: ConnectionId, ip: IpAddr, bucket: u64) -> bool {
        let mut good = mac(&self.current, ip, bucket) == id.0;
        if let Some(previous) = &self.previous {
            good |= mac(previous, ip, bucket) == id.0;
        }
        good
    }
}

/// The message is the bucket and the address: 12 bytes for IPv4 and 24 for IPv6, so that the two
/// can never be mistaken for each other (SipHash covers the length). An IPv4-mapped address is
/// its IPv4 address.
#[inline]
fn mac(hasher: &SipHasher24, ip: IpAddr, bucket: u64) -> u64 {
    let hash = match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let mut message = [0; 12];
            message[..8].copy_from_slice(&bucket.to_le_bytes());
            message[8..].copy_from_slice(&ip.octets());
            hasher.hash(&message)
        }
        IpAddr::V6(ip) => {
            let mut message = [0; 24];
            message[..8].copy_from_slice(&bucket.to_le_bytes());
            message[8..].copy_from_slice(&ip.octets());
            hasher.hash(&message)
        }
    };
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
    fn zero_is_never_an_id() {
        let ids = ConnectionIds::new(&KEYS, 120);
        let ip = ip("192.0.2.1");
        assert!((0..100_000).all(|n| ids.issue(ip, n * 120).0 != 0));
        assert!(!ids.accepts(ConnectionId(0), ip, 1_000_000));
    }
}
