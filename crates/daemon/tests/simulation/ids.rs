//! The rules of connection ids, naively: every id that the tracker has issued is kept, and is valid
//! for its address while the wall clock is in its time bucket, the one after it, or a few seconds
//! before it.

use std::collections::HashMap;
use std::net::IpAddr;

use onrush_proto::ConnectionId;

/// Seconds before a bucket in which its ids are accepted: other hosts' clocks may be behind.
const SKEW: u64 = 10;

/// The ids that were issued.
pub(crate) struct IssuedIds {
    validity: u64,
    /// The bucket of each id.
    buckets: HashMap<(IpAddr, u64), u64>,
    /// The id of an address in each bucket.
    ids: HashMap<(IpAddr, u64), u64>,
}

impl IssuedIds {
    pub(crate) fn new(validity: u32) -> Self {
        Self { validity: validity.into(), buckets: HashMap::new(), ids: HashMap::new() }
    }

    /// Records that `id` was issued. An address has one id per bucket, whichever worker, process
    /// or order of clock steps issues it.
    pub(crate) fn issue(&mut self, id: ConnectionId, ip: IpAddr, unix: u64) -> Result<(), String> {
        let bucket = unix / self.validity;
        if id.0 == 0 || id.0 & 3 != bucket & 3 {
            return Err(format!("id {:x} of bucket {bucket}", id.0));
        }
        let before = *self.ids.entry((ip, bucket)).or_insert(id.0);
        if before != id.0 {
            return Err(format!("ids {before:x} and {:x} in bucket {bucket}", id.0));
        }
        self.buckets.insert((ip, id.0), bucket);
        Ok(())
    }

    /// Whether `id` is valid for `ip` at `unix`.
    pub(crate) fn accepts(&self, id: ConnectionId, ip: IpAddr, unix: u64) -> bool {
        let Some(&bucket) = self.buckets.get(&(ip, id.0)) else { return false };
        let this = unix / self.validity;
        let is_next = bucket == this + 1 && unix + SKEW >= bucket * self.validity;
        bucket == this || bucket + 1 == this || is_next
    }
}
