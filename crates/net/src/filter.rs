//! Which datagrams the kernel drops before it queues them: a classic BPF program on each socket
//! (SO_ATTACH_FILTER), so that they cost no work in user space.
//!
//! The program knows a few *kinds* of payloads by one word. Payloads of any other kind are dropped,
//! as are datagrams from port 0. Each kind has a least length and one [`Check`]: either the payload
//! begins with two words, or the lowest two bits of a word are among the valid ones.
//!
//! Source: `Documentation/networking/filter.rst` (classic BPF). That offset 0 of a UDP socket's
//! filter is the UDP header was measured; the tests verify it.

use std::net::SocketAddr;

/// Condition for a datagram to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Offset in the payload of the word that tells its kind. Shorter payloads are dropped.
    pub kind_at: u32,
    /// The kinds that are queued if their own check holds.
    pub kinds: [Kind; 3],
}

/// A kind of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The word that tells the kind.
    pub value: u32,
    /// Shorter payloads are dropped. At least the end of every word that is read.
    pub min_len: u32,
    /// Additional condition.
    pub check: Check,
}

/// Additional condition for a payload of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The payload begins with these two words.
    Head([u32; 2]),
    /// The lowest two bits of the word at offset `at` are a number whose bit in `valid` is set.
    Tag {
        /// Offset of the word.
        at: u32,
        /// Bit `n` is set if tag `n` is valid.
        valid: u8,
    },
}

/// The bits of a tag.
pub(crate) const TAG: u32 = 3;

impl Filter {
    /// Whether the kernel queues a datagram.
    pub fn passes(&self, payload: &[u8], source: SocketAddr) -> bool {
        let Some(kind) = word(payload, self.kind_at) else { return false };
        let Some(kind) = self.kinds.iter().find(|known| known.value == kind) else { return false };
        source.port() != 0 && payload.len() >= kind.min_len as usize && kind.check.holds(payload)
    }
}

impl Check {
    fn holds(self, payload: &[u8]) -> bool {
        match self {
            Self::Head(head) => [word(payload, 0), word(payload, 4)] == head.map(Some),
            Self::Tag { at, valid } => {
                word(payload, at).is_some_and(|word| valid >> (word & TAG) & 1 == 1)
            }
        }
    }
}

/// The big-endian word at an offset.
fn word(payload: &[u8], at: u32) -> Option<u32> {
    let bytes = payload.get(at as usize..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}
