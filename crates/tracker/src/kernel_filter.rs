//! The filter that the kernel applies to a worker's sockets under overload.
//!
//! A worker that cannot keep up loses datagrams of all kinds alike. Meanwhile the filter drops what
//! intake would refuse without a reply and without computing anything, so that requests find room:
//! datagrams that are no request of BEP 15, and connection ids of a time bucket that is not valid
//! (half of all guesses). Every connect request passes.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicI32, Ordering};

use onrush_net::Socket;
use onrush_net::filter::{Check, Filter, Kind};
use onrush_proto::{announce, connect, scrape};

/// Offset of the lower word of a connection id, in which its time bucket is.
const TAG_AT: u32 = 4;
/// Offset of the action of a request (BEP 15).
const ACTION_AT: u32 = 8;

/// The filter while connection ids with the `valid_tags` (a bit for each) may be valid.
fn filter(valid_tags: u8) -> Filter {
    let magic = Check::Head([(connect::MAGIC >> 32) as u32, connect::MAGIC as u32]);
    let tag = Check::Tag { at: TAG_AT, valid: valid_tags };
    let kind = |value, min_len: usize, check| Kind { value, min_len: min_len as u32, check };
    Filter {
        kind_at: ACTION_AT,
        kinds: [
            kind(connect::ACTION, connect::REQUEST_LEN, magic),
            kind(announce::ACTION, announce::REQUEST_LEN, tag),
            kind(scrape::ACTION, scrape::REQUEST_HEAD_LEN, tag),
        ],
    }
}

/// The error with which the kernel refuses the filter at a worker's sockets. The worker writes it,
/// and the supervisor, which switches the filter, reads it.
#[derive(Debug, Default)]
pub struct FilterRefusal(AtomicI32);

impl FilterRefusal {
    /// Sets the error; `None` if the kernel has accepted the filter, or it is off.
    pub fn set(&self, error: Option<&io::Error>) {
        let number = error.map_or(0, |error| error.raw_os_error().unwrap_or(i32::MAX));
        self.0.store(number, Ordering::Relaxed);
    }

    /// The error, if the kernel refuses the filter.
    pub fn get(&self) -> Option<io::Error> {
        let number = self.0.load(Ordering::Relaxed);
        (number != 0).then(|| io::Error::from_raw_os_error(number))
    }
}

/// The filter at the sockets of a worker.
#[derive(Debug, Default)]
pub(crate) struct KernelFilter {
    is_on: bool,
    /// What is attached; `None` if that is unknown: perhaps a filter of another process, or after
    /// an error a filter at some of the sockets.
    installed: Option<Option<Filter>>,
    /// Whether the log has the error of a filter that the kernel does not remove.
    has_warned: bool,
}

impl KernelFilter {
    /// Switches the filter from the next renewal on. Returns whether it was switched the other way.
    pub(crate) fn switch(&mut self, is_on: bool) -> bool {
        mem::replace(&mut self.is_on, is_on) != is_on
    }

    /// Attaches the current filter to `socket`, or removes it where it is off. An error is tried
    /// again with the next call. Call every second, as `valid_tags` change.
    pub(crate) fn renew(
        &mut self,
        socket: &mut impl Socket,
        valid_tags: u8,
        refusal: &FilterRefusal,
    ) {
        let error = match self.is_on {
            true => self.install(socket, Some(filter(valid_tags))).err(),
            false => {
                self.remove(socket);
                None
            }
        };
        refusal.set(error.as_ref());
    }

    /// Removes the filter, also one of another process. A filter would outlive this process where
    /// another one has the sockets too.
    pub(crate) fn remove(&mut self, socket: &mut impl Socket) {
        if let Err(error) = self.install(socket, None)
            && !mem::replace(&mut self.has_warned, true)
        {
            log::warn!("the kernel does not remove its filter against overload: {error}");
        }
    }

    fn install(&mut self, socket: &mut impl Socket, filter: Option<Filter>) -> io::Result<()> {
        if self.installed != Some(filter) {
            self.installed = None;
            socket.set_filter(filter.as_ref())?;
            (self.installed, self.has_warned) = (Some(filter), false);
        }
        Ok(())
    }

    /// Another process may have attached or removed filters meanwhile.
    pub(crate) fn forget(&mut self) {
        self.installed = None;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use onrush_proto::{Connect, TransactionId};

    use super::*;

    /// A request of `len` bytes with this action, and 8 bytes in front of it.
    fn request(head: u64, action: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![7; len.max(12)];
        bytes[..8].copy_from_slice(&head.to_be_bytes());
        bytes[8..12].copy_from_slice(&action.to_be_bytes());
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn every_connect_passes_and_of_other_requests_those_with_a_valid_tag() {
        let passes = |tags, bytes: &[u8], port: u16| {
            filter(tags).passes(bytes, SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)))
        };
        for number in [0, 1, u32::MAX] {
            let mut bytes = [0; connect::REQUEST_LEN];
            Connect { transaction_id: TransactionId(number) }.write(&mut bytes);
            assert!((1..=u16::MAX).step_by(99).all(|port| passes(0, &bytes, port)));
            assert!(!passes(15, &bytes, 0));
        }
        assert!(!passes(15, &request(connect::MAGIC, connect::ACTION, 15), 9));
        assert!(!passes(15, &request(connect::MAGIC ^ 1, connect::ACTION, 16), 9));
        assert!(!passes(15, &request(connect::MAGIC, 3, 98), 9));
        for id in 0..8 {
            let head = 0xA1B2_C3D4_E5F6_0000 | id;
            for (action, len) in [
                (announce::ACTION, announce::REQUEST_LEN),
                (scrape::ACTION, scrape::REQUEST_HEAD_LEN),
            ] {
                let valid = 1 << (id & 3);
                assert!(passes(valid, &request(head, action, len), 9));
                assert!(!passes(!valid & 15, &request(head, action, len), 9));
                assert!(!passes(valid, &request(head, action, len - 1), 9));
            }
        }
    }
}
