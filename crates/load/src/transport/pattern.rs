//! What a stream writes: blocks that differ in stream, number and content, so that an echo of
//! another stream, or of another block, is noticed.

/// Bytes of a block.
pub const BLOCK: usize = 1024;
/// Bytes in front of the content: connection, stream and number.
const HEAD: usize = 12;
/// Bytes from which contents are cut.
const SOURCE: usize = 8192;

/// A block of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId {
    /// The number of the connection.
    pub connection: u32,
    /// The number of the stream in its connection.
    pub stream: u32,
    /// How many blocks the stream has written before.
    pub number: u32,
}

/// Writes blocks and compares with them.
#[derive(Debug)]
pub struct Pattern {
    source: Box<[u8]>,
}

impl Default for Pattern {
    fn default() -> Self {
        let mut state = 1u64;
        let mut next = || {
            // Knuth's constants for a linear congruential generator.
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 56) as u8
        };
        Self { source: (0..SOURCE).map(|_| next()).collect() }
    }
}

impl Pattern {
    /// Both parts of a block.
    fn parts(&self, id: BlockId) -> ([u8; HEAD], &[u8]) {
        let BlockId { connection, stream, number } = id;
        let mut head = [0; HEAD];
        for (part, value) in head.chunks_exact_mut(4).zip([connection, stream, number]) {
            part.copy_from_slice(&value.to_be_bytes());
        }
        let mixed =
            connection.wrapping_mul(31).wrapping_add(stream).wrapping_mul(131) + number % 97;
        let start = mixed as usize % (SOURCE - BLOCK);
        (head, &self.source[start..start + BLOCK - HEAD])
    }

    /// Writes a block.
    pub fn write(&self, id: BlockId, block: &mut [u8; BLOCK]) {
        let (head, content) = self.parts(id);
        block[..HEAD].copy_from_slice(&head);
        block[HEAD..].copy_from_slice(content);
    }

    /// Whether a block has these bytes at `from`.
    ///
    /// # Panics
    /// When they reach beyond the end of the block.
    pub fn matches(&self, id: BlockId, from: usize, bytes: &[u8]) -> bool {
        let (head, content) = self.parts(id);
        let in_head = bytes.len().min(HEAD.saturating_sub(from));
        let (first, rest) = bytes.split_at(in_head);
        let at = (from + in_head).saturating_sub(HEAD);
        (first.is_empty() || *first == head[from..from + in_head])
            && *rest == content[at..at + rest.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_changed_byte_is_found_wherever_a_block_is_cut(
            at in 0..BLOCK, from in 0..BLOCK, to in 0..=BLOCK, number in any::<u32>(),
        ) {
            let (from, to) = (from.min(to), from.max(to));
            let pattern = Pattern::default();
            let id = BlockId { connection: 3, stream: 70_000, number };
            let mut block = [0; BLOCK];
            pattern.write(id, &mut block);
            prop_assert!(pattern.matches(id, from, &block[from..to]));
            block[at] ^= 1;
            prop_assert_eq!(pattern.matches(id, from, &block[from..to]), !(from..to).contains(&at));
        }
    }

    #[test]
    fn blocks_of_other_streams_and_numbers_differ() {
        let pattern = Pattern::default();
        let id = BlockId { connection: 1, stream: 1, number: 1 };
        let mut block = [0; BLOCK];
        pattern.write(id, &mut block);
        for other in [
            BlockId { connection: 2, ..id },
            BlockId { stream: 2, ..id },
            BlockId { number: 2, ..id },
        ] {
            assert!(!pattern.matches(other, 0, &block), "{other:?}");
            assert!(!pattern.matches(other, HEAD, &block[HEAD..]), "{other:?}");
        }
    }
}
