//! Load shedding: what the kernel drops before it queues a datagram while the host is overloaded.
//!
//! A worker that cannot keep up loses datagrams of all kinds alike. While it does, a filter on its
//! sockets drops what intake would refuse without computing anything: datagrams that are no request
//! of BEP 15, and connection ids of a time bucket that is not valid (half of all guesses). In a
//! flood of connects it also drops connects of a share of all sources, chosen by a keyed hash of
//! the address, so that requests with a connection id find room. The choice changes every
//! [`SLOT_SECONDS`]: a client whose connect got no answer asks again after 15, 30 and 60 seconds
//! (BEP 15, "Time outs"), in other slots.

use std::fmt;
use std::hash::Hasher as _;

use onrush_net::filter::{Check, Filter, Kind, Share};
use onrush_proto::{announce, connect, scrape};
use siphasher::sip::SipHasher13;

/// Seconds for which the choice of sources lasts: about the time before a client asks again.
pub const SLOT_SECONDS: u64 = 16;

/// The number in which a connection id carries its time bucket is in the lower of its two words.
const TAG_AT: u32 = 4;
/// The action of a request (BEP 15).
const ACTION_AT: u32 = 8;

/// The decision what the kernel drops.
#[derive(Clone, Copy, PartialEq)]
pub struct Shedding {
    key: [u8; 16],
    share: f64,
}

impl Shedding {
    /// Lets the connects of all sources pass. An attacker who knows the `key` could choose sources
    /// that pass when only a share does.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, share: 1.0 }
    }

    /// With a key that nobody knows.
    pub fn with_random_key() -> Self {
        Self::new(rand::random())
    }

    /// Lets connects of a `share` (0 to 1) of all sources pass.
    #[must_use]
    pub fn with_share(self, share: f64) -> Self {
        Self { share: share.clamp(0.0, 1.0), ..self }
    }

    /// The share of sources whose connects are answered, 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// The filter of the slot at `unix`, seconds since 1970, while connection ids with the
    /// `valid_tags` (a bit for each) may be valid.
    pub fn filter(&self, unix: u64, valid_tags: u8) -> Filter {
        let slot = unix / SLOT_SECONDS;
        let words = [0, 1].map(|number| {
            let mut hasher = SipHasher13::new_with_key(&self.key);
            hasher.write_u64(slot);
            hasher.write_u8(number);
            hasher.finish()
        });
        let keys = [words[0], words[0] >> 32, words[1], words[1] >> 32].map(|word| word as u32);
        let share = Share { up_to: (self.share * f64::from(u32::MAX)) as u32, keys };
        let magic = [(connect::MAGIC >> 32) as u32, connect::MAGIC as u32];
        let tag = Check::Tag { at: TAG_AT, valid: valid_tags };
        let kind = |value, min_len: usize, check| Kind { value, min_len: min_len as u32, check };
        Filter {
            kind_at: ACTION_AT,
            kinds: [
                kind(connect::ACTION, connect::REQUEST_LEN, Check::Share(magic, share)),
                kind(announce::ACTION, announce::REQUEST_LEN, tag),
                kind(scrape::ACTION, scrape::REQUEST_HEAD_LEN, tag),
            ],
        }
    }
}

impl fmt::Debug for Shedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedding").field("share", &self.share).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use onrush_proto::{Connect, TransactionId};

    use super::*;

    fn source(number: u32) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(number)), 4_000)
    }

    fn answers(shedding: &Shedding, source: SocketAddr, unix: u64) -> bool {
        let mut bytes = [0; connect::REQUEST_LEN];
        Connect { transaction_id: TransactionId(7) }.write(&mut bytes);
        shedding.filter(unix, 0).passes(&bytes, source)
    }

    #[test]
    fn the_share_is_answered_in_every_slot_and_sources_take_turns() {
        for share in [0.125, 0.5, 0.9, 1.0] {
            let shedding = Shedding::new([3; 16]).with_share(share);
            let slots: Vec<Vec<bool>> = (0..8)
                .map(|slot| {
                    let unix = 1_800_000_000 + slot * SLOT_SECONDS;
                    (0..2_000).map(|n| answers(&shedding, source(n), unix)).collect()
                })
                .collect();
            for slot in &slots {
                let answered = slot.iter().filter(|answered| **answered).count() as f64;
                assert!((answered - 2_000.0 * share).abs() < 120.0, "{answered} at {share}");
            }
            // Slots are independent: within eight of them nearly all sources are answered.
            let never = (0..2_000).filter(|n| slots.iter().all(|slot| !slot[*n])).count() as f64;
            assert!((never - 2_000.0 * (1.0 - share).powi(8)).abs() < 120.0, "{never} at {share}");
        }
    }

    /// BEP 15: again 15 * 2^n seconds after the last request, eight times.
    #[test]
    fn retries_at_the_intervals_of_bep_15_get_through() {
        let shedding = Shedding::new([4; 16]).with_share(0.25);
        let (mut by_the_fourth, mut never) = (0, 0);
        for client in 0..4_000 {
            let mut at = 1_000_000 + u64::from(client) * 7;
            let answered = (0..9).position(|n| {
                let answers = answers(&shedding, source(client), at);
                at += 15 << n;
                answers
            });
            by_the_fourth += usize::from(answered.is_some_and(|n| n < 4));
            never += usize::from(answered.is_none());
        }
        // 1 - 0.75^4 and 0.75^9.
        assert!((2_550..2_900).contains(&by_the_fourth), "{by_the_fourth} of 4,000");
        assert!((200..420).contains(&never), "{never} of 4,000");
    }
}
